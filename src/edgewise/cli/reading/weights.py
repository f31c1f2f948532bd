"""Trained weights into a model: safetensors, or a state dict that torch loads without unpickling anything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.cli.reading.loading import load_safely
from edgewise.cli.reading.safetensors import read_safetensors
from edgewise.errors import FileError, ModelError

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
