"""Gradients of one target whose neighbourhood is too large for memory: worked off in blocks of edges, exactly.

What has a row for each node (activations, and their gradients) is mapped to temporary files; of edges there is never more than
a block in memory, read from the source whenever it is needed. A sum over edges may be taken in any order, so a node with more
edges than a block holds is no exception: its parts are added up.

    forwards     call by call, blocks of receivers; then the row-wise steps behind the call, blocks of rows
    backwards    the same in reverse: gradients of rows are pulled back to the senders, and added there
    scores       once more over all edges: what each brought, times the gradient of its receiver, in every layer
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.graph.edge_blocks import EdgeBlock, edge_blocks, nodes_within
from edgewise.graph.inputs import check_values
from edgewise.graph.neighbour_sample import LargeNeighbourhoodError
from edgewise.graph.source import GraphSource
from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.hop import Hop
from edgewise.program.ir import Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.mapped_table import mapped_table
from edgewise.program.transfer import Degrees, Transfer


@dataclass(frozen=True, eq=False)
class BlockScores:
    """∂z/∂ω of some columns, by layer, and ∂z/∂s of some nodes: the layers in which they matter, from the first on."""

    column: Tensor
    """`[n]`."""
    of_edges: Tensor
    """`[layers, n]`."""
    node: Tensor
    """`[m]`."""
    of_own: Tensor
    """`[layers, m]`."""


class PiecewiseGradient:
    """The program of a model around one target, in blocks of at most `most` edges.

    Args:
        transfer: The program that was proved elsewhere, with the formulas of its coefficients.
        source: The graph.
        target: The node.
        most: Edges, and rows, of a block.
    """

    def __init__(self, transfer: Transfer, source: GraphSource, target: int, most: int) -> None:
        self.transfer, self.program, self.source, self.most = transfer, transfer.program, source, most
        self.node, self._ends = nodes_within(source, target, self.program.num_calls - 1, most)
        self._by_number = self.node.argsort()
        first = self.program.messages[0].source
        assert isinstance(first, Rows)
        self._dtype = first.tensor.dtype
        self._known: dict[int, Tensor] = {}
        self._gradient: dict[int, Tensor] = {}
        self._of_residuals: dict[int, Tensor] = {}
        """By call: ∂z/∂s through what is carried around it, `[nodes]`."""
        self.num_blocks = 0
        """How many blocks of edges were worked off."""

    def _rows_after(self, call: int) -> int:
        """How many nodes, from the first on, have rows in what a call makes."""
        return self._ends[self.program.num_calls - 1 - call]

    # --- forwards -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def row(self) -> Tensor:
        """`[1, columns]`: the output of the target at ω = 1."""
        for call, segment in enumerate(self.program.segments):
            rows, value = self._rows_after(call), self.program.messages[call].output
            for block in self._blocks(self.node[:rows]):
                weight = torch.ones(len(block.column), dtype=self._dtype)
                made = self._layer(call, block).forward(self._table(call, block), _hop(block), weight, None)
                self._rows_of(self._known, value, rows, made)[block.begin : block.end] += made
            for part in self._parts(rows) if segment else ():
                known = {other: self._known[other][part] for other in _read_by(segment)}
                ones = torch.ones(part.stop - part.start, dtype=self._dtype)
                values = interpret(segment, RowNumbers(_nothing, lambda _, ones=ones: ones), known)  # type: ignore[misc]
                for step in segment:
                    self._rows_of(self._known, step.output, rows, values[step.output])[part] = values[step.output]
        return self._known[self.program.output][:1].clone()

    # --- backwards ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def pull_back(self, gradient: Tensor) -> None:
        """Find the gradients of all rows, from that of the target's output, `[1, columns]`."""
        output, messages = self.program.output, self.program.messages
        self._rows_of(self._gradient, output, len(self._known[output]), gradient)[:1] = gradient
        for call, segment in reversed(list(enumerate(self.program.segments))):
            rows, step = self._rows_after(call), messages[call]
            for part in self._parts(rows):
                self._through_rows(segment, part)
            if call == 0 or step.output not in self._gradient:
                continue
            assert isinstance(step.source, Ref)
            of_source = self._rows_of(self._gradient, step.source.value, self._rows_after(call - 1))
            for block in self._blocks(self.node[:rows]):
                hop, made = _hop(block), self._gradient[step.output][block.begin : block.end]
                *_, back = self._layer(call, block).backward(self._table(call, block), hop, made, hop)
                assert back is not None
                of_source[self._places(block.node)] += back

    def _through_rows(self, segment: list[RowStep], part: slice) -> None:
        """Back through the row-wise steps after a call, on some rows: they are run again, with autograd on."""
        wanted = [step.output for step in segment if step.output in self._gradient]
        if not wanted:
            return
        inputs = {value: self._known[value][part].clone().requires_grad_() for value in _read_by(segment)}
        residuals = sorted({s.own_call for step in segment for s in step.sources if s.own_call is not None})
        owns = {call: torch.ones(part.stop - part.start, dtype=self._dtype).requires_grad_() for call in residuals}
        with torch.enable_grad():
            values = interpret(segment, RowNumbers(_nothing, owns.__getitem__), dict(inputs))
        given = [self._gradient[value][part] for value in wanted]
        leaves = [*inputs.values(), *owns.values()]
        found = torch.autograd.grad([values[value] for value in wanted], leaves, given, allow_unused=True)
        for value, gradient in zip(inputs, found, strict=False):
            if gradient is not None:
                self._rows_of(self._gradient, value, len(self._known[value]))[part] += gradient
        for call, gradient in zip(owns, found[len(inputs) :], strict=True):
            if gradient is not None:
                self._rows_of(self._of_residuals, call, len(self.node), gradient)[part] += gradient

    # --- scores -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self) -> Iterator[BlockScores]:
        """The scores of all edges, block by block; a node whose edges are split has its own with the first of them."""
        begin = 0
        for hop, end in enumerate(self._ends):
            for block in self._blocks(self.node[begin:end]):
                rows = slice(begin + block.begin, begin + block.end)
                layers = [self._scores(call, block, rows) for call in range(self.program.num_calls - hop)]
                of_edges, of_own = (torch.stack(parts) for parts in zip(*layers, strict=True))
                node = torch.from_numpy(block.node[: block.end - block.begin])
                node, of_own = (node, of_own) if block.is_first else (node[:0], of_own[:, :0])
                yield BlockScores(torch.from_numpy(block.column), of_edges, node, of_own)
            begin = end

    def _scores(self, call: int, block: EdgeBlock, rows: slice) -> tuple[Tensor, Tensor]:
        """Those of a block in one layer, `[edges]` and `[receivers]`."""
        gradient = self._gradient.get(self.program.messages[call].output)
        if gradient is None:  # what it made is not read
            of_edges = torch.zeros(len(block.column), dtype=self._dtype)
            of_own = of_edges.new_zeros(rows.stop - rows.start)
        else:
            table = self._table(call, block)
            of_edges, of_own, _ = self._layer(call, block).backward(table, _hop(block), gradient[rows], None)
        carried = self._of_residuals.get(call)
        return of_edges, of_own if carried is None or not block.is_first else of_own + carried[rows]

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _blocks(self, nodes: np.ndarray) -> Iterator[EdgeBlock]:
        for block in edge_blocks(self.source, nodes, self.most):
            self.num_blocks += 1
            yield block

    def _parts(self, rows: int) -> Iterator[slice]:
        """So many rows, some at a time."""
        return (slice(begin, min(begin + self.most, rows)) for begin in range(0, rows, self.most))

    def _layer(self, call: int, block: EdgeBlock) -> AffineLayer:
        """The layer of a call on a block; what a node adds of itself comes with its first edges."""
        loops = self.source.loops(block.node)
        if block.is_split and int(loops[0]) > 1:
            raise LargeNeighbourhoodError(
                f"Node {int(block.node[0])} has more edges than fit into memory at once, and several of them are loops, of "
                "which a layer may use one. Use a larger memory=, or neighbors=[25, 10] for a sample."
            )
        degree = Degrees(*(torch.from_numpy(part).to(self._dtype) for part in (self.source.counts(block.node), loops)))
        ends = torch.from_numpy(np.stack([block.sender, block.receiver]))
        layer = self.transfer.layer(call, ends, degree)
        return layer if block.is_first else replace(layer, loop=None, root=None, bias=None)

    def _table(self, call: int, block: EdgeBlock) -> Tensor:
        """`[table, in]`: what the nodes of a block send in a call; features are read from the source."""
        source = self.program.messages[call].source
        if isinstance(source, Ref):
            return self._known[source.value][self._places(block.node)]
        order = block.node.argsort()
        nothing = torch.zeros(2, 0, dtype=torch.long)
        part = self.source.part(torch.from_numpy(block.node[order]), nothing[0], nothing)
        check_values(part)
        found: Tensor = part.x[torch.from_numpy(order.argsort())]
        return found

    def _places(self, nodes: np.ndarray) -> Tensor:
        """Where some nodes are in tables of activations."""
        return torch.from_numpy(self._by_number[np.searchsorted(self.node, nodes, sorter=self._by_number)])

    def _rows_of(self, tables: dict[int, Tensor], key: int, rows: int, like: Tensor | None = None) -> Tensor:
        """A table with so many rows, made of zeros when it is first needed; without `like`, as wide as what is known of it."""
        if key not in tables:
            row = self._known[key][:1] if like is None else like
            tables[key] = mapped_table((rows, *row.shape[1:]), row.dtype)
        return tables[key]


def _hop(block: EdgeBlock) -> Hop:
    """The edges of a block between the rows of its table."""
    heads = torch.arange(block.end - block.begin)
    start, tail = torch.from_numpy(block.start), torch.from_numpy(block.sender)
    return Hop(start, tail, torch.arange(len(tail)), None, heads, len(block.node))


def _read_by(segment: list[RowStep]) -> list[int]:
    """The values that row-wise steps read and do not make."""
    made = {step.output for step in segment}
    read = {source.value for step in segment for source in step.sources if isinstance(source, Ref)}
    return sorted(read - made)


def _nothing(asked: Any) -> Tensor:
    raise AssertionError(f"a program that is carried over reads no constants behind its first call, got {asked}")
