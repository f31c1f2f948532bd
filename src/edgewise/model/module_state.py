"""What of a module's attributes belongs to the function that it computes in eval mode."""

from functools import lru_cache
from typing import Any

from torch import nn

from edgewise.model.code_names import assigned_by_forward

_TORCH_OWN = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    "_compiled_call_impl",
)
_COPIES = ("inspector", "_flat_weights", "_flat_weight_refs")  # what the class or the parameters say already
_TRAINERS = ("_trainer", "trainer", "_fabric", "fabric")
_NOT_THE_FUNCTION = frozenset(("training", *_TORCH_OWN, *_COPIES, *_TRAINERS))


@lru_cache(maxsize=4096)
def role(key: str) -> str:
    """What an attribute of this name is to the function: a value, hooks, or nothing."""
    if "_hooks" in key:
        return "hooks" if "forward" in key else ""
    return "" if key in _NOT_THE_FUNCTION or key.startswith("_cached") else "value"


def state_of(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(parameters, buffers, attributes) that are there now, without what `forward` itself assigns.

    >>> [list(part) for part in state_of(nn.Linear(2, 1))]
    [['weight', 'bias'], [], ['in_features', 'out_features']]
    """
    attributes, left_behind = {}, assigned_by_forward(type(module))  # type: ignore[arg-type]  # classes are hashable
    for key, value in list(vars(module).items()):
        kind = role(key)
        if kind == "value" and key not in left_behind:
            attributes[key] = value
        elif kind == "hooks" and value:
            attributes[key] = list(value.values())  # which hooks, in which order; their numbers mean nothing
    return module._parameters, module._buffers, attributes
