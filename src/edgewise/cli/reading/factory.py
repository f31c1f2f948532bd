"""The user's model: `package.module:factory` or `file.py:factory`, imported and called."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from edgewise.datasets.seeding import seeded
from edgewise.errors import ModelError

_FORM = "--model package.module:factory, or --model file.py:factory"


def make_model(given: str, arguments: Mapping[str, Any], seed: int, hint: str = "") -> tuple[nn.Module, Path | None]:
    """The model that the factory makes (in eval mode), and the file that it comes from; `hint` is added if arguments lack."""
    place, colon, name = given.rpartition(":")
    if not colon or not place or not name:
        raise ModelError(f"--model is {given!r}; needed is {_FORM}.")
    folder = Path(place).parent if place.endswith(".py") else Path()
    with _importable(Path().resolve()), _importable(folder.resolve()), seeded(seed):
        module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
        model = _called(_attribute(module, name, place), name, arguments, hint)
    return model.eval(), _source(module)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """As when Python runs a file of that folder; the search path is put back."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ModelError(
                f"There is no module {error.name!r}, neither in {Path().resolve()} nor among the installed packages. "
                f"Needed is {_FORM}."
            ) from error
        raise ModelError(
            f"{name} cannot be imported: it needs the module {error.name!r}. Install that first."
        ) from error
    except Exception as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"There is no file {path} in {Path().resolve()}. Needed is {_FORM}.")
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
    where = "" if isinstance(error, SyntaxError) else _last_own_line(error)
    return ModelError(f"{place} cannot be imported: {type(error).__name__}{where}: {error}.")


def _last_own_line(error: Exception) -> str:
    """Where the user's code stood: not the import system's, not an installed package's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_foreign(frame.filename)]
    return f" in {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""


def _is_foreign(filename: str) -> bool:
    return filename.startswith("<") or "site-packages" in filename or filename == __file__ or "importlib" in filename


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else f" It has {', '.join(known[:8]) or 'nothing to call'}."
        raise ModelError(f"{place} has no {name}.{hint}") from error


def _called(factory: Any, name: str, arguments: Mapping[str, Any], hint: str) -> nn.Module:
    if isinstance(factory, nn.Module):
        if arguments:
            raise ModelError(f"{name} is a model already and takes no --model-args.")
        return factory
    if not callable(factory):
        raise ModelError(f"{name} is {type(factory).__name__}; needed is a class or a function that returns the model.")
    _check_arguments(factory, name, arguments, hint)
    try:
        made = factory(**arguments)
    except Exception as error:
        raise ModelError(
            f"{name}({_typed(arguments)}) raised {type(error).__name__}: {error}. Check --model-args."
        ) from error
    if not isinstance(made, nn.Module):
        raise ModelError(f"{name}() returned {type(made).__name__}; needed is the model, a torch.nn.Module.")
    return made


def _check_arguments(factory: Any, name: str, arguments: Mapping[str, Any], hint: str) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C: calling it will tell
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        shown = f"{name}{signature.replace(return_annotation=inspect.Signature.empty)}"
        needed = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        ]
        example = " ".join(f"{key}={arguments.get(key, 'VALUE')}" for key in needed)
        fix = f" Type: --model-args {example}." if needed else ""
        raise ModelError(f"--model-args do not fit: {error}. The factory is {shown}.{fix}{hint}") from error


def _typed(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())


def _source(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file else None
