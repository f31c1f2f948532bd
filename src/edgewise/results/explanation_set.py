"""ExplanationSet: the explanations of many targets, of which only the non-zero part is stored.

`Entries` are the sparse rows behind it, one for each target; `ExplanationSet` makes an `Explanation` from a row when it is
looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor

from edgewise.arguments import shown
from edgewise.arrays import chosen_positions, index_keys, is_position, plain_index, read_tensor
from edgewise.contract import checked
from edgewise.errors import InputError, PositionError
from edgewise.graph.type_table import TypeTable
from edgewise.random_numbers import random_scores
from edgewise.results.entries import Entries
from edgewise.results.explanation import Explanation, Settings
from edgewise.results.ranked_rows import RankedSets
from edgewise.results.result_verbs import ResultVerbs
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.text import by_auto, counted

MARKS = ("sampled", "in_parts")
"""Settings that speak of single targets of a graph on disk, by number."""
MOST_FIGURES = 20
"""Pictures that a set draws at once."""


@dataclass(frozen=True, eq=False)
class ExplanationSet(ResultVerbs):
    """Explanations in the order of `index`: a sequence of `Explanation`, made from sparse rows when looked at.

    `len(all_)`, `all_[3]`, `for why in all_`, `all_[:10]`, `all_.of(42)` (the one of node 42), `all_.save("all.npz")`.
    """

    index: Tensor
    """`[T]`: the explained nodes or graphs; `[T, 2]`: the two ends of the explained links."""
    target: Tensor
    """`[T]`: the explained classes."""
    value: Tensor
    """`[T]`: the explained numbers."""
    method: str
    level: str
    num_layers: int
    graphs: Sequence[tuple[Tensor, int]]
    """`(edge_index, number of nodes)`: one, shared by all (nodes and links), or one for each target (graph task)."""
    edges: Entries | None
    """The edge scores; `None` for `random`, whose scores are drawn on demand."""
    own: Entries | None = None
    """The self scores, if the method gives them."""
    own_missing: tuple[int, ...] = ()
    """Layers whose own term cannot be separated: their self scores are NaN."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    errors: Entries | None = None
    """Standard errors of the scores, for methods that sample."""
    types: TypeTable | None = None
    """Of a typed graph: `index` are nodes of `types.explained`; `graphs` is the union of all types."""
    graph_types: tuple[TypeTable, ...] = ()
    """Of whole typed graphs (graph task): the types of the graph of each target."""
    n_id: Tensor | None = None
    """`[N]`: of a sampled batch, the numbers of its nodes in the whole graph (in their types)."""
    e_id: Tensor | None = None
    """`[E]`: the same of its columns."""

    def __len__(self) -> int:
        return len(self.index)

    @overload
    def __getitem__(self, item: int) -> Explanation: ...
    @overload
    def __getitem__(self, item: Any) -> "ExplanationSet": ...
    def __getitem__(self, item: Any) -> "Explanation | ExplanationSet":
        """One explanation by position, or a smaller set by slice, list or mask of positions."""
        if type(item) is int or is_position(item):
            return self._one(self._position(int(item)))
        return self._some(chosen_positions(item, len(self)))

    def _position(self, item: int) -> int:
        """A position from 0 on, also for a negative one; an `IndexError` ends a loop, as in a list."""
        if not -len(self) <= item < len(self):
            raise PositionError(
                f"Position {item} is outside the {len(self)} explanations. Use .of({item}) to look up a node's number."
            )
        return item % len(self)

    def __iter__(self) -> Iterator[Explanation]:
        return (self._one(position) for position in range(len(self)))

    @checked
    def of(self, index: Any) -> Explanation:
        """The explanation of the node or graph with that number, or of a link, a pair; of a typed graph also `("paper", 3)`."""
        if self.types is not None and isinstance(index, tuple):
            index = self.types.number(index)
        try:
            same = self.index == read_tensor(index)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"`index` must be a node or graph, or a pair for a link, got {shown(index)}.") from error
        found = (same.all(dim=1) if same.dim() == 2 else same).nonzero()
        if len(found) == 0:
            raise InputError(
                f"{index} is not among the {len(self)} explained targets ({plain_index(self.index[:5])} …). Explain it first."
            )
        return self._one(int(found[0]))

    @checked
    def graph(self, position: int) -> tuple[Tensor, int]:
        """`(edge_index, number of nodes)` of the target at a position."""
        place = self._position(position)
        return self.graphs[place if len(self.graphs) > 1 else 0]

    @property
    def type_tables(self) -> tuple[TypeTable, ...]:
        """The types: one table for one typed graph, one for each target for whole typed graphs; none for other graphs."""
        return self.graph_types if self.types is None else (self.types,)

    def types_of(self, position: int) -> TypeTable | None:
        """The types of the graph of a target; None for graphs of one type."""
        return self.graph_types[position] if self.graph_types else self.types

    def _shape(self, width: int) -> tuple[int, ...]:
        return (width,) if self.level == "input" else (self.num_layers, width)

    def _one(self, position: int) -> Explanation:
        """The explanation of one target, with dense scores on the device of its graph."""
        edge_index, num_nodes = self.graph(position)
        shape, index = self._shape(edge_index.size(1)), plain_index(self.index[position : position + 1])[0]
        errors = self.errors
        flat = Explanation.lazy(
            {
                "scores": lambda: self._scores(position, shape).to(edge_index.device),
                "self_scores": lambda: self._own_scores(position, num_nodes),
            },
            edge_index=edge_index,
            num_nodes=num_nodes,
            index=index,
            target=int(self.target[position]),
            value=float(self.value[position]),
            method=self.method,
            level=self.level,
            settings=self._settings_of(index),
            standard_errors=None
            if errors is None
            else errors.dense(position, prod(shape)).view(shape).to(edge_index.device),
            **({} if self.types is not None else {"n_id": self.n_id, "e_id": self.e_id}),
        )
        types = self.types_of(position)
        return flat if types is None else TypedExplanation.of(flat, types, self.n_id, self.e_id)

    def _settings_of(self, index: Any) -> Mapping[str, Any]:
        """The settings; what is said about single targets of a graph on disk, of this one alone."""
        marks = [name for name in MARKS if name in self.settings]
        if not marks:
            return self.settings
        rest = {name: value for name, value in self.settings.items() if name not in marks}
        told = {name: self.settings[name].get(str(index)) for name in marks}
        return Settings({**rest, **{name: said for name, said in told.items() if said is not None}})

    def _scores(self, position: int, shape: tuple[int, ...]) -> Tensor:
        """`[E]` or `[L, E]`: the scores of one target, with their zeros."""
        if self.edges is not None:
            return self.edges.dense(position, prod(shape)).view(shape)
        layers = None if self.level == "input" else self.num_layers
        key = index_keys(self.index[position : position + 1], self.graph(position)[1])
        drawn = random_scores(self.settings["seed"], int(key), layers, shape[-1])
        return drawn.to(self.value.dtype)

    def _own_scores(self, position: int, num_nodes: int) -> Tensor | None:
        """`[N]` or `[L, N]`: the self scores of one target, NaN in layers where they cannot be separated."""
        if self.own is None:
            return None
        shape = self._shape(num_nodes)
        own = self.own.dense(position, prod(shape)).view(shape).to(self.graph(position)[0].device)
        if self.own_missing and self.level == "input":
            own[:] = torch.nan  # a sum over layers of which one is unknown
        for layer in self.own_missing if self.level == "layer" else ():
            own[layer] = torch.nan
        return own

    def _some(self, positions: Tensor) -> "ExplanationSet":
        """The set of some targets, in the given order."""
        graphs = self.graphs if len(self.graphs) == 1 else tuple(self.graphs[i] for i in positions.tolist())
        return replace(
            self,
            index=self.index[positions],
            target=self.target[positions],
            value=self.value[positions],
            graphs=graphs,
            graph_types=tuple(self.graph_types[i] for i in positions.tolist()) if self.graph_types else (),
            edges=None if self.edges is None else self.edges.select(positions),
            own=None if self.own is None else self.own.select(positions),
            errors=None if self.errors is None else self.errors.select(positions),
        )

    @checked
    def top(self, k: int = 10, by: str = "support") -> RankedSets:
        """For each target its k strongest edges, as `Explanation.top` gives them; prints as one table for each."""
        found = list(self)
        return RankedSets([why.top(k, by) for why in found], [why.index for why in found])

    @checked
    def plot(self, **look: Any) -> list[Any]:
        """A figure for each target, at most `MOST_FIGURES`; the arguments are those of `Explanation.plot`."""
        if len(self) > MOST_FIGURES:
            raise InputError(
                f"{len(self)} figures are too many to look at. Use found[:{MOST_FIGURES}].plot(), or one page: "
                f"found.page('why.html', model, data)."
            )
        return [why.plot(**look) for why in self]

    def __repr__(self) -> str:
        entries = "drawn on demand" if self.edges is None else f"{len(self.edges)} scores"
        about = f"{self.method}, {self.level} level, {counted(len(self), 'target')}, {entries}"
        return f"ExplanationSet({about}){by_auto(self.settings)}"


Sequence.register(ExplanationSet)  # not a base class: its method `index` would stand in the way of the field


Explained: TypeAlias = Explanation | ExplanationSet
"""What `explain` returns: one explanation for a single index, a set for several."""
