"""Graph tasks whose model is a chain: sums over edges, matrices and ReLUs, then a sum or mean over the nodes of each graph.

Most people train such models (GIN, GCN, SAGE with a pooling). Compiled loops (`kernels/graph_loops.py`) run them graph after
graph: forwards, backwards, and for each missing message. Everything else takes the passes over all graphs side by side
(`execution.py`, `graph_drops.py`), and a test compares the two.
"""

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edgewise.cores import even_parts, spread
from edgewise.graph.computation_graph import InEdges
from edgewise.program.chain_links import ChainLink, last_made, links_of, widths_of
from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.ir import Program, Rows
from edgewise.program.kernels import Array, arrays, filled_columns, kernels_for
from edgewise.program.readout import Pooling, read_pooling

if TYPE_CHECKING:
    from edgewise.question.target import Target

_MOST_LINKS = 12
"""Longer chains take the other way: there is one compiled loop for all up to that, with its arguments filled up."""
_WORK = 2**14
"""Nodes and edges from which on it is worth loading the loops."""
_PER_CORE = 2**10
"""Nodes, or missing messages, that are worth a core of their own."""
_NUMBERS = 2**22
"""Numbers of pooled rows, at most, of the missing messages that are followed together."""


class GraphChain:
    """The links of a program, its pooling, and the graphs side by side that it runs on."""

    def __init__(
        self, links: list[ChainLink], pooling: Pooling, program: Program, in_edges: InEdges, owner: Tensor, kernels: Any
    ) -> None:
        self.links, self.pooling, self.in_edges, self.owner = links, pooling, in_edges, owner
        self._program, self._kernels = program, kernels
        source = program.messages[0].source
        assert isinstance(source, Rows)
        features = np.ascontiguousarray(source.tensor.detach().numpy())
        self._features, self._dtype = filled_columns(features), features.dtype
        self._widths = widths_of(features.shape[1], links)
        sizes = torch.bincount(owner, minlength=len(pooling.share))
        self._first = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])  # [graphs + 1]
        self._kept: tuple[tuple[Array, ...], tuple[Array, ...]] | None = None

    @staticmethod
    def of(program: Program, in_edges: InEdges, owner: Tensor, like: Tensor) -> "GraphChain | None":
        """None where the model is no such chain, or the loops are not there or not worth it; `like` is `[graphs]`."""
        work = in_edges.num_nodes + len(in_edges.edge)
        kernels = None if work < _WORK else kernels_for(work, like)
        if kernels is None or not program.is_chain or program.kinds is not None or bool((owner.diff() < 0).any()):
            return None
        links, behind = links_of(program)
        pooling = None if behind is None else read_pooling(behind, owner, like)
        if pooling is None or not 0 < len(links) <= _MOST_LINKS or pooling.read != last_made(program, behind):
            return None
        source = program.messages[0].source
        if not isinstance(source, Rows) or source.tensor.dtype != like.dtype:
            return None
        return GraphChain(links, pooling, program, in_edges, owner, kernels)

    # --- forwards ---------------------------------------------------------------------------------------------------------

    @cached_property
    def output(self) -> Tensor:
        """`[graphs, columns]` at ω = 1."""
        return self._behind(self._pooled)

    @cached_property
    def _pooled(self) -> Tensor:
        """`[graphs, width]`: what stands behind the pooling at ω = 1."""
        rows = torch.from_numpy(self.values(with_before=False)[1][len(self.links) - 1])[:, : self._widths[-1]]
        total = rows.new_zeros(len(self.pooling.share), rows.size(1)).index_add_(0, self.owner, rows)
        return total * self.pooling.share.view(-1, 1)

    def _behind(self, rows: Tensor) -> Tensor:
        """The rows of the output, from rows of pooled values."""
        found = interpret(self.pooling.head, RowNumbers(_nothing, _nothing), {self.pooling.made: rows})
        return found[self._program.output]

    def values(self, *, with_before: bool) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """What nodes have before and behind the ReLU of each link; the first only if they are asked for.

        `[N, out]` each, with columns of zeros up to a multiple of eight, as all tables of the loops have.
        """
        if self._kept is None or (with_before and not len(self._kept[0][0])):
            nothing = np.empty((0, 0), self._dtype)
            size = (self.in_edges.num_nodes,)
            after = [np.empty((*size, bias.shape[1]), self._dtype) for bias in self._parts["bias"][: len(self.links)]]
            before = [np.empty_like(rows) if with_before else nothing for rows in after]
            filled = [nothing] * (_MOST_LINKS - len(after))
            self._kept = (*before, *filled), (*after, *filled)
            first, *geometry = self._geometry
            known = self._of("matrix", "root", "bias", "factors", "loop", "scalar", "below"), self._kept
            _work(lambda a, b: self._kernels.graph_values(first[a : b + 1], *geometry, *known[0], *known[1]), first)
        return self._kept

    # --- backwards --------------------------------------------------------------------------------------------------------

    def gradients(self, target: "Target") -> tuple[Tensor, Tensor]:
        """∂/∂ω `[L, E]`, in the order of the in-edges, and ∂/∂s `[L, N]` at 1 of the explained numbers."""
        with torch.enable_grad():
            pooled = self._pooled.detach().requires_grad_()
            output = self._behind(pooled)
        (gradient,) = torch.autograd.grad(output, pooled, target.slope(output.detach()).expand_as(output))
        top = gradient * self.pooling.share.view(-1, 1)
        calls, edges, nodes = self._program.num_calls, len(self.in_edges.edge), self.in_edges.num_nodes
        of_edges, of_own = top.new_empty(calls, edges), top.new_empty(calls, nodes)
        turned = {
            name: tuple(filled_columns(np.ascontiguousarray(part.T)) for part in self._parts[name])
            for name in ("matrix", "root")
        }
        (first, *geometry), after = self._geometry, self.values(with_before=False)[1]
        known = (turned["matrix"], turned["root"], *self._of("factors", "loop", "scalar", "below"), after)
        rows, filled = filled_columns(top.contiguous().numpy()), arrays(of_edges, of_own)
        _work(
            lambda a, b: self._kernels.graph_gradients(first[a : b + 1], *geometry, *known, rows[a:b], *filled), first
        )
        return of_edges, of_own

    # --- without one message ----------------------------------------------------------------------------------------------

    def drops(self, target: "Target", level: str, *, of_self: bool) -> Tensor:
        """`[1, E]` or `[L, E]` (of own terms `[…, N]`), by column: what each column's graph loses without it."""
        size = self.in_edges.num_nodes if of_self else len(self.in_edges.edge)
        groups = self._program.num_calls if level == "layer" else 1
        item = torch.arange(size).repeat_interleave(groups)
        call = torch.arange(groups).repeat(size) if level == "layer" else torch.full_like(item, -1)
        graph = self.owner[item] if of_self else self.owner[self._ends[1][item]]
        number = target.value(self.output)
        found = number.new_zeros(groups, size)
        known = self._known(of_self=of_self)

        def lose(some: Tensor) -> None:
            total, changed = self._changes(item[some], call[some], known)
            mine = graph[some]
            rows = self._behind(self._pooled[mine] + total * self.pooling.share[mine].view(-1, 1))
            drop = number[mine] - target.select(mine).value(rows)
            found[call[some].clamp(min=0), item[some]] = torch.where(changed, drop, 0.0)

        most, parts = max(_NUMBERS // self._pooled.size(1), 1), even_parts(len(item), _PER_CORE)
        for _ in spread(lose, torch.arange(len(item)).split(min(most, -(-len(item) // parts)) or 1)):
            pass
        return found

    def _changes(self, item: Tensor, call: Tensor, known: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """What missing messages change in the sums of their graphs, `[slots, width]`; and whether there is any change."""
        total = torch.empty(len(item), self._pooled.size(1), dtype=self._pooled.dtype)
        changed = torch.empty(len(item), dtype=torch.bool)
        self._kernels.graph_changes(*arrays(item, call), *known, *arrays(total, changed))
        return total, changed

    def _known(self, *, of_self: bool) -> tuple[Any, ...]:
        """What the loop over missing messages reads of graphs and model."""
        before, after = self.values(with_before=True)
        nothing, out = np.empty((0, 0), self._dtype), self._out_edges
        bent = tuple(rows if below != 1 else nothing for rows, below in zip(after, self._below, strict=True))
        return (
            of_self, *arrays(*self._ends, out.start, out.edge, out.sender), self._geometry[-1],
            *self._of("matrix", "root", "coefficient", "loop", "scalar", "below"), before, bent, self._messages[of_self],
        )  # fmt: skip

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """`[E]` each, by column: senders and receivers."""
        graph = self.in_edges
        sender, receiver = torch.empty_like(graph.sender), torch.empty_like(graph.sender)
        receiver[graph.edge] = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.start.diff())
        sender[graph.edge] = graph.sender
        return sender, receiver

    @cached_property
    def _out_edges(self) -> InEdges:
        sender, receiver = self._ends
        return InEdges.of(torch.stack([receiver, sender]), self.in_edges.num_nodes)

    @cached_property
    def _messages(self) -> dict[bool, tuple[Array, ...]]:
        """Per link what nodes send, through the matrix (False), and their own terms (True), `[N, out]`; empty: nothing."""
        nothing, everyone = np.empty((0, 0), self._dtype), torch.arange(self.in_edges.num_nodes)
        found: dict[bool, list[Array]] = {False: [], True: []}
        for place, link in enumerate(self.links):
            sent = own = None
            if link.call >= 0:
                rows = self._features if place == 0 else self.values(with_before=True)[1][place - 1]
                given = torch.from_numpy(rows)[:, : self._widths[place]]
                sent, own = link.layer.difference(given), link.layer.own_difference(given, everyone)
            for is_own, part in ((False, sent), (True, own)):
                found[is_own].append(_array(part, nothing))
        filled = [nothing] * (_MOST_LINKS - len(self.links))
        return {is_own: (*parts, *filled) for is_own, parts in found.items()}

    # --- the arguments of the loops ---------------------------------------------------------------------------------------

    @cached_property
    def _geometry(self) -> list[Any]:
        graph, call = self.in_edges, np.array([link.call for link in self.links])
        return [*arrays(self._first, graph.start, graph.sender), self._features, call]

    @cached_property
    def _below(self) -> Array:
        below = np.ones(_MOST_LINKS, self._dtype)
        below[: len(self.links)] = [link.below for link in self.links]
        return below

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """Per link its matrices `[in, out]`, bias and coefficients, filled up with empty ones."""
        nothing, none = np.empty((0, 0), self._dtype), np.empty(0, self._dtype)
        found: dict[str, list[Array]] = {
            name: [] for name in ("matrix", "root", "bias", "coefficient", "loop", "factors")
        }
        scalar, ones = np.zeros(_MOST_LINKS, self._dtype), np.ones(len(self.in_edges.edge), self._dtype)
        for place, link in enumerate(self.links):
            layer = link.layer
            root = layer.root if isinstance(layer.root, Tensor) else None
            scalar[place] = layer.root if isinstance(layer.root, float) else 0.0
            bias = torch.zeros(self._widths[place + 1]) if layer.bias is None else layer.bias
            for name, table in {"matrix": layer.matrix, "root": root, "bias": bias.view(-1, 1)}.items():
                found[name].append(_array(None if table is None else table.t(), nothing))
            for name, row in {"coefficient": layer.coefficient, "loop": layer.loop}.items():
                found[name].append(_array(row, none))
            coefficient = found["coefficient"][-1]
            found["factors"].append(coefficient[self.in_edges.edge.numpy()] if len(coefficient) else ones)
        missing = _MOST_LINKS - len(self.links)
        filled = {name: (*parts, *[nothing if parts[0].ndim == 2 else none] * missing) for name, parts in found.items()}
        return {**filled, "scalar": scalar, "below": self._below}

    def _of(self, *names: str) -> list[Any]:
        return [self._parts[name] for name in names]


def _array(part: Tensor | None, empty: Array) -> Array:
    """A contiguous array of the same kind for every link, its rows filled up to whole vectors; `empty` for None."""
    if part is None:
        return empty
    array = part.detach().numpy()
    return np.ascontiguousarray(filled_columns(array) if array.ndim > 1 else array, empty.dtype)


def _nothing(*_: Any) -> Tensor:
    raise AssertionError("a readout reads what was pooled, and nothing else")


def _work(function: Callable[[int, int], None], size: Array) -> None:
    """Call a function with ranges `a, b` of graphs or slots, on all cores; `size` `[n + 1]` rises with their work."""
    count = even_parts(int(size[-1] - size[0]), _PER_CORE)
    cuts = np.searchsorted(size, np.linspace(size[0], size[-1], count + 1)[1:-1]).tolist()
    for _ in spread(lambda ends: function(*ends), pairwise([0, *cuts, len(size) - 1])):
        pass
