"""`--model` and `--weights`: the user's model, made by a factory, with its trained weights.

`make_model` imports `package.module:factory` or `file.py:factory` and calls it. Whatever goes wrong in the user's code
becomes a `ModelError` of one sentence that names the place: a module that is not there, an import that fails, a factory
that is misspelt, arguments that do not fit. `load_weights` reads the file, looks for the state dict inside a checkpoint,
drops the prefixes that wrappers add, compares names, shapes and types with the model's own, and only then changes the
model.
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

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.arguments import did_you_mean
from edgewise.cli.read.tensor_files import load_safely, read_safetensors
from edgewise.errors import FileError, ModelError
from edgewise.files import is_file
from edgewise.random_numbers import seeded

_FORM = "--model package.module:factory, or --model file.py:factory"
_NESTED = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "model.", "_orig_mod.")  # of DataParallel, of Lightning, of torch.compile
_SHOWN = 6
_INSTEAD = (
    "If it is the whole model: where it was made, run torch.save(model.state_dict(), 'weights.pt') and use that file."
)


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
    """Run a file as a module of its own name, so that it cannot hide a module that is installed.

    `net.py` becomes `_edgewise_model_net`; its folder is on the search path, so it may import its neighbours.
    """
    if not is_file(path):
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
    """Whether a line of a traceback belongs to Python, to an installed package or to us, and not to the user's code."""
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


# --- Weights ------------------------------------------------------------------------------------------------------------


def load_weights(model: nn.Module, path: Path) -> list[str]:
    """Give the model the weights of a file.

    Returns:
        Notes for the user: where in a checkpoint the weights were found, and which prefix was dropped.

    Raises:
        FileError: The file cannot be read, or holds something else.
        ModelError: The weights do not fit the model. The model is then as it was.
    """
    weights, notes = read_weights(path)
    weights, more = _without_prefix(weights, model)
    problems = _problems(weights, model.state_dict())
    if problems:
        raise ModelError(f"The weights of {path} do not fit the model: {'; '.join(problems)}. Check --model-args.")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # a type that torch cannot convert, a hook of the model
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"The weights of {path} do not fit the model: {first}. Check --model-args.") from error
    return notes + more


def read_weights(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by name, and a note if they were inside a checkpoint.

    A checkpoint is a dict that has the weights under one of the usual keys: `{"epoch": 7, "state_dict": {...}}`.
    """
    if not is_file(path):
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
        f"{path} must hold a state dict (names and tensors), got {type(found).__name__}{keys}. Save one: "
        f"torch.save(model.state_dict(), 'weights.pt')."
    )


def _are_weights(found: Mapping[Any, Any]) -> bool:
    """Whether it maps names to tensors, and nothing else."""
    return all(isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items())


def _without_prefix(weights: dict[str, Tensor], model: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """The weights without a wrapper's prefix that all their names have and no name of the model has; and a note."""
    wanted = model.state_dict().keys()
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in weights) and not any(name.startswith(prefix) for name in wanted):
            named = {name.removeprefix(prefix): value for name, value in weights.items()}
            return named, [f"The names of the weights begin with {prefix!r}, which was left out."]
    return weights, []


def _problems(weights: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> list[str]:
    """What does not fit, one text for each kind of problem; of lazy parameters only the names are compared.

    >>> import torch
    >>> _problems({"a": torch.zeros(2), "c": torch.zeros(1)}, {"a": torch.zeros(3), "b": torch.zeros(1)})
    ['missing: b', 'unexpected: c', 'of another shape: a is [2], the model has [3]']
    """
    shared = {name: (value, wanted[name]) for name, value in weights.items() if name in wanted}
    known = {name: pair for name, pair in shared.items() if isinstance(pair[1], Tensor) and not is_lazy(pair[1])}
    kinds = {
        "missing": [name for name in wanted if name not in weights],
        "unexpected": [name for name in weights if name not in wanted],
        "of another shape": [
            f"{name} is {list(value.shape)}, the model has {list(own.shape)}"
            for name, (value, own) in known.items()
            if value.shape != own.shape
        ],
        "of another type": [
            f"{name} is {_type(value)}, the model has {_type(own)}"
            for name, (value, own) in known.items()
            if _kind(value) != _kind(own)
        ],
    }
    return [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]


def _kind(tensor: Tensor) -> str:
    """Types that may stand for each other share a kind: half and double precision do, integers and floats do not."""
    return "complex" if tensor.is_complex() else "float" if tensor.is_floating_point() else "integer"


def _type(tensor: Tensor) -> str:
    """The name of a tensor's type as users know it: `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def _listed(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
