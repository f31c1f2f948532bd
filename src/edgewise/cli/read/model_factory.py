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

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.cli.read.graph_files import load_safely
from edgewise.cli.read.safetensors import read_safetensors
from edgewise.errors import FileError, ModelError
from edgewise.seeds import seeded

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


# --- Trained weights into a model: safetensors, or a state dict that torch loads without unpickling anything -----------


_NESTED = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "model.", "_orig_mod.")  # of DataParallel, of Lightning, of torch.compile
_SHOWN = 6
_INSTEAD = (
    "If it is the whole model: where it was made, type torch.save(model.state_dict(), 'weights.pt') and give that file."
)


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Give the model its weights; what had to be looked for is said in the returned notes."""
    weights, notes = read_weights(path)
    weights, more = _without_prefix(weights, model)
    problems = _problems(weights, model.state_dict())
    if problems:
        raise ModelError(f"The weights of {path} do not fit the model: {'; '.join(problems)}. Check --model-args.")
    model.load_state_dict(weights)
    return notes + more


def read_weights(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by name, and a note if they lay inside a checkpoint."""
    if not path.is_file():
        raise FileError(
            f"There is no file {path} with weights. Save them: torch.save(model.state_dict(), 'weights.pt')."
        )
    found = read_safetensors(path) if path.suffix == ".safetensors" else load_safely(path, "weights", _INSTEAD)
    if isinstance(found, Mapping):
        if found and _are_weights(found):
            return dict(found), []
        for name in _NESTED:
            inside = found.get(name)
            if isinstance(inside, Mapping) and inside and _are_weights(inside):
                return dict(inside), [f"{path.name} is a checkpoint; its weights are under {name!r}."]
    keys = f" with {', '.join(map(str, list(found)[:_SHOWN]))}" if isinstance(found, Mapping) else ""
    raise FileError(
        f"{path} holds {type(found).__name__}{keys}; needed is a state dict, names and tensors. Save it as "
        f"torch.save(model.state_dict(), 'weights.pt')."
    )


def _are_weights(found: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items())


def _without_prefix(weights: dict[str, Tensor], model: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    wanted = model.state_dict().keys()
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in weights) and not any(name.startswith(prefix) for name in wanted):
            named = {name.removeprefix(prefix): value for name, value in weights.items()}
            return named, [f"The names of the weights begin with {prefix!r}, which was left out."]
    return weights, []


def _problems(weights: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> list[str]:
    missing = [name for name in wanted if name not in weights]
    unexpected = [name for name in weights if name not in wanted]
    shapes = [
        f"{name} is {list(value.shape)}, the model has {list(wanted[name].shape)}"
        for name, value in weights.items()
        if name in wanted
        and not is_lazy(wanted[name])
        and isinstance(wanted[name], Tensor)
        and value.shape != wanted[name].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    return [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# --- `key=value` arguments ---------------------------------------------------------------------------------------------
