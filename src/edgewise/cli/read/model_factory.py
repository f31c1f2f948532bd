"""`--model`: the user's model, `package.module:factory` or `file.py:factory`, imported and called.

`make_model` is the way in. Whatever goes wrong in the user's code becomes a `ModelError` of one sentence that names the
place: a module that is not there, an import that fails, a factory that is misspelt, arguments that do not fit. The weights
come afterwards, see `weights`.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from edgewise.arguments import did_you_mean
from edgewise.errors import ModelError
from edgewise.seeds import seeded

_FORM = "--model package.module:factory, or --model file.py:factory"


def make_model(given: str, arguments: Mapping[str, Any], seed: int, hint: str = "") -> tuple[nn.Module, Path | None]:
    """Import the factory and call it.

    Args:
        given: What `--model` says: `my_model:Net`, `my_model.py:Net`, or the name of a model that is ready-made.
        arguments: Keyword arguments of the factory.
        seed: For the weights that the factory draws; the global random state is put back.
        hint: A sentence that is added if the arguments do not fit, such as the number of features of the data.

    Returns:
        The model in eval mode, and the file that it comes from, `None` if there is no such file.
    """
    place, colon, name = given.rpartition(":")
    if not colon or not place or not name:
        raise ModelError(f"--model must name a file or module and a factory, got {given!r}. Use {_FORM}.")
    folder = Path(place).parent if place.endswith(".py") else Path()
    with _importable(Path().resolve()), _importable(folder.resolve()), seeded(seed):
        module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
        model = _called(_attribute(module, name, place), name, arguments, hint)
    return model.eval(), _source(module)


# --- Import -------------------------------------------------------------------------------------------------------------


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Put a folder first on the search path, as when Python runs a file of it; the path is put back."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _from_module(name: str) -> ModuleType:
    """Import `package.module`; a module that is missing is told apart from one that it imports itself."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ModelError(
                f"There is no module {error.name!r}, neither in {Path().resolve()} nor among the installed packages. "
                f"Use {_FORM}."
            ) from error
        raise ModelError(
            f"{name} cannot be imported: it needs the module {error.name!r}. Install that first."
        ) from error
    except Exception as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module of its own name, so that it cannot hide a module that is installed."""
    if not path.is_file():
        raise ModelError(f"There is no file {path} in {Path().resolve()}. Use {_FORM}.")
    name = f"_edgewise_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _broken(place: str, error: Exception) -> ModelError:
    """The error for user code that raises while it is imported; a `SyntaxError` names its line itself."""
    where = "" if isinstance(error, SyntaxError) else _last_own_line(error)
    return ModelError(f"{place} cannot be imported: {type(error).__name__}{where}: {error}.")


def _last_own_line(error: Exception) -> str:
    """` in FILE line N`: the innermost line of the user's code, not of the import system or an installed package."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_foreign(frame.filename)]
    return f" in {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""


def _is_foreign(filename: str) -> bool:
    return filename.startswith("<") or "site-packages" in filename or filename == __file__ or "importlib" in filename


def _source(module: ModuleType) -> Path | None:
    """The file of a module, whose hash goes into the manifest."""
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


# --- Call ---------------------------------------------------------------------------------------------------------------


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    """The factory; `name` may have dots, such as `nets.Small`."""
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = did_you_mean(name, known) or f" It has {', '.join(known[:8]) or 'nothing to call'}."
        raise ModelError(f"{place} has no {name}.{hint}") from error


def _called(factory: Any, name: str, arguments: Mapping[str, Any], hint: str) -> nn.Module:
    """The model: what the factory returns, or the factory itself if it is a model already."""
    if isinstance(factory, nn.Module):
        if arguments:
            raise ModelError(f"{name} is a model already and takes no --model-args.")
        return factory
    if not callable(factory):
        raise ModelError(f"{name} must be a class or a function that returns the model, got {type(factory).__name__}.")
    _check_arguments(factory, name, arguments, hint)
    try:
        made = factory(**arguments)
    except Exception as error:
        raise ModelError(
            f"{name}({_typed(arguments)}) raised {type(error).__name__}: {error}. Check --model-args."
        ) from error
    if not isinstance(made, nn.Module):
        raise ModelError(f"{name}() must return the model, a torch.nn.Module, got {type(made).__name__}.")
    return made


def _check_arguments(factory: Any, name: str, arguments: Mapping[str, Any], hint: str) -> None:
    """Refuse arguments that the factory's signature does not take, before any of its code runs."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C: calling it will tell
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        shown = f"{name}{signature.replace(return_annotation=inspect.Signature.empty)}"
        required = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        ]
        example = " ".join(f"{key}={arguments.get(key, 'VALUE')}" for key in required)
        fix = f" Use --model-args {example}." if required else ""
        raise ModelError(f"--model-args do not fit: {error}. The factory is {shown}.{fix}{hint}") from error


def _typed(arguments: Mapping[str, Any]) -> str:
    """The arguments as they stand in a call: `hidden=16, act='relu'`."""
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
