"""What a model is called with: the arguments of `forward` that the data have, by name.

Usually that is `model(x, edge_index, **extras)`. Extras are `EXTRAS` where `forward` names them, and whatever else it asks for
without a default; an argument with a default that is not among `EXTRAS` keeps its default. Where `forward` begins with other
names that the data have, `forward(z, pos, batch)`, all are given by name.
"""

import inspect
from functools import lru_cache
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.graph.inputs import is_stand_in
from edgewise.pyg_internals import attributes

EXTRAS = ("edge_weight", "edge_attr", "edge_type", "batch")
_USUAL = ["x", "edge_index"]
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def argument_names(model: nn.Module) -> list[str]:
    """The names of the arguments of `forward`."""
    names = _of_sequence(model)
    return names if names else [name for name, _ in _declared(model.forward)]


def required_names(function: Any) -> list[str]:
    """The names of the arguments of a function, or of the `forward` of a model, that have no default."""
    names = _of_sequence(function) if isinstance(function, nn.Module) else []
    forward = function.forward if isinstance(function, nn.Module) else function
    return names if names else [name for name, is_required in _declared(forward) if is_required]


def _of_sequence(model: nn.Module) -> list[str]:
    """Of a `torch_geometric.nn.Sequential`, whose forward is `(*args)`: the names are in its signature."""
    return list(getattr(getattr(model, "signature", None), "param_dict", None) or ())


def _declared(forward: Any) -> tuple[tuple[str, bool], ...]:
    """The names of the arguments; read once for each function (a method is bound anew each time it is looked at)."""
    function = getattr(forward, "__func__", None)
    if function is None:
        return _read(forward)
    return _declared_by(function)[1:]


@lru_cache(maxsize=256)
def _declared_by(function: Any) -> tuple[tuple[str, bool], ...]:
    return _read(function)


def _read(function: Any) -> tuple[tuple[str, bool], ...]:
    """Each name, and whether it has no default; `*args` and `**kwargs` have names, and nothing is required of them."""
    parameters = inspect.signature(function).parameters.values()
    return tuple((p.name, p.default is p.empty and p.kind not in _SEVERAL) for p in parameters)


def given(data: Data, name: str) -> Any:
    """What the data have under a name; None if nothing, or only what stands in for features."""
    value = attributes(data).get(name)
    return None if name == "x" and isinstance(value, Tensor) and is_stand_in(value) else value


def arguments_for(names: list[str], required: list[str], data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments for a function that has arguments of these names.

    >>> import torch
    >>> data = Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 1, dtype=torch.long), z=torch.arange(2))
    >>> [sorted(arguments_for(names, names, data)[1]) for names in (["h", "edge_index"], ["h", "edge_index", "z"], ["z"])]
    [[], ['z'], ['z']]
    """
    if list(names) == _USUAL:
        return (given(data, "x"), data.edge_index), {}
    wanted = [name for name in EXTRAS if name in names] + required
    named = {name: value for name in wanted if (value := given(data, name)) is not None}
    if all(name == own or given(data, name) is None for name, own in zip(names[:2], _USUAL, strict=False)):
        return (given(data, "x"), data.edge_index), {
            name: value for name, value in named.items() if name not in names[:2]
        }
    unknown = [name for name in required if name not in named]
    for own in _USUAL:
        if own not in names and unknown and given(data, own) is not None:
            named[unknown.pop(0)] = data[own]
    return (), named


def absent_names(names: list[str], required: list[str], data: Data) -> list[str]:
    """The arguments that are asked for and that nothing can be given for."""
    args, named = arguments_for(names, required, data)
    filled = [name for name, value in zip(names, args, strict=False) if value is not None]
    return [name for name in required if name not in named and name not in filled]
