"""`--weights`: trained weights for a model, from safetensors or from a state dict that torch loads without unpickling.

`load_weights` is the way in. It reads the file, looks for the state dict inside a checkpoint, drops the prefixes that
wrappers add, compares names, shapes and types with the model's own, and only then changes the model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.cli.read.graph_files import load_safely
from edgewise.errors import FileError, ModelError, missing_extra

_NESTED = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "model.", "_orig_mod.")  # of DataParallel, of Lightning, of torch.compile
_SHOWN = 6
_INSTEAD = (
    "If it is the whole model: where it was made, run torch.save(model.state_dict(), 'weights.pt') and use that file."
)


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
        f"{path} must hold a state dict (names and tensors), got {type(found).__name__}{keys}. Save one: "
        f"torch.save(model.state_dict(), 'weights.pt')."
    )


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file by name.

    The library checks the header before it reads any tensor: every tensor has as many bytes as its shape and type need, and
    together they cover the file. A file that is cut short, or whose header lies, is therefore an error and never memory
    that was not written.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise missing_extra("safetensors", "cli", "A .safetensors file") from error
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = str(error).removeprefix("Error while deserializing header: ").split(", expected one of")[0]
        raise FileError(
            f"{path} cannot be read as safetensors ({reason}). It may be cut short, or another kind of file. Save the "
            f"weights again: safetensors.torch.save_file(model.state_dict(), '{path.name}')."
        ) from error


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
    """What does not fit, one text for each kind of problem; empty if the weights can be loaded."""
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
    return str(tensor.dtype).removeprefix("torch.")


def _listed(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
