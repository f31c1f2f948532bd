"""How a model of links of a typed graph is called: on the part of the union that is run, with pairs numbered by type."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from edgewise.errors import ModelError
from edgewise.graph.type_table import TypeTable
from edgewise.model.call import takes_data
from edgewise.model.call_arguments import argument_names, required_names
from edgewise.model.link_call import PAIRS, can_encode, names_of
from edgewise.model.typed_call import TypedForward, TypedPart, tables_of, typed_extras

_PAIRS_OF_TYPES = f"{PAIRS}_dict"


class TypedLinkForward(TypedForward):
    """The model's scores of `data.link_pairs`, which are nodes of the part; the model gets them as nodes of their types."""

    def __init__(self, data: HeteroData, table: TypeTable, forward: Callable[..., Any] | None) -> None:
        super().__init__(data, table, None)
        self.own = forward

    def __call__(self, model: nn.Module, graph: Data) -> Tensor:
        """`[pairs]`, or whatever the model makes of them."""
        part = self.part(graph)
        scores: Tensor = self._scores(model, self.given(part), self._local(part, graph.link_pairs.ends))
        return scores

    def _scores(self, model: nn.Module, data: HeteroData, pairs: Tensor) -> Any:
        kind = self.table.link
        if self.own is not None:
            return self.own(model, data, pairs)
        names = argument_names(model)
        named = next((name for name in (PAIRS, _PAIRS_OF_TYPES) if name in names), None)
        if named is not None:
            asked = pairs if named == PAIRS else {kind: pairs}
            return model(*tables_of(model, data), **{named: asked}, **typed_extras(names, data, required_names(model)))
        if can_encode(model):
            extras = typed_extras(names_of(model.encode), data, required_names(model.encode))
            z = model.encode(data.collect("x"), data.collect("edge_index"), **extras)  # type: ignore[operator]
            return model.decode(z, pairs)  # type: ignore[operator]
        if takes_data(model):
            data[kind][PAIRS] = pairs
            return model(data)
        raise ModelError(
            f"{type(model).__name__} does not say how it scores pairs: its forward must name {PAIRS}, or it must have encode "
            f"and decode. Use forward=lambda model, data, pairs: ..., where data is a HeteroData and pairs is [2, T]."
        )

    def _local(self, part: TypedPart, ends: Tensor) -> Tensor:
        """`[2, T]`: the pairs as numbers within the types of their ends."""
        assert self.table.link is not None
        rows = [part.nodes[self.table.link[end]] for end in (0, 2)]
        return torch.stack([torch.searchsorted(own, one.contiguous()) for own, one in zip(rows, ends, strict=True)])

    def spread(self, rows: Tensor, graph: Data) -> Tensor:
        """The scores themselves: they belong to pairs, not to nodes."""
        return rows

    def describe(self, model: nn.Module) -> str:
        """The call in words."""
        name = type(model).__name__
        if self.own is not None:
            return f"forward({name}, data, pairs)"
        if PAIRS in argument_names(model) or _PAIRS_OF_TYPES in argument_names(model):
            return f"{name}(x_dict, edge_index_dict, {PAIRS})"
        return (
            f"{name}.decode({name}.encode(x_dict, edge_index_dict), {PAIRS})" if can_encode(model) else f"{name}(data)"
        )
