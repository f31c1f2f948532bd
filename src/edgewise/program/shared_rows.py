"""Values of many coalitions of edges of one target: rows that coalitions share are worked out once.

What a node has after a call depends on the edges within so many hops of it: in coalitions that differ elsewhere it has the
same row. So the rows of each call are numbered (`kernels/coalition_loops.py`), new ones are worked out side by side, and all
are kept for the next coalitions. What is left for each coalition is to add up the rows of its nodes, or to read the row of
its target.

For chains of affine layers with row-wise steps between them; of graph tasks, where the readout begins with a sum or mean over
the nodes. Anything else is run coalition by coalition (`algorithms/coalitions.py`), and a test compares the two.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.execution import LoweredEngine, LoweredGraphs
from edgewise.program.graph_drops import GraphDrops
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Program, Ref, Rows
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.layers.affine import AffineLayer
from edgewise.question.target import Target

_AT_ONCE = 2**18
"""Edges, and nodes, of the coalitions whose rows are numbered together."""
_FIRST = 2**12
"""Entries of the table of rows, as long as that is enough: a power of 2."""
_KEPT = 2**25
"""Numbers in rows that are kept; beyond, the tables are begun anew."""


class SharedRows:
    """The explained number of a lowered engine's only target as a function of sets of its edges."""

    def __init__(self, engine: LoweredEngine, target: Target, drops: GraphDrops | None, kernels: Any) -> None:
        self._engine, self._target, self._kernels = engine, target, kernels
        self._pooling = None if drops is None else drops.pooling
        self._segments = [*engine.program.segments]
        if drops is not None:
            self._segments[-1] = drops.rows
        self._read = engine.program.output if self._pooling is None else self._pooling.read
        levels = engine.levels
        self._heads = [levels.pairs_after(call + 1) for call in range(levels.num_calls)]
        last = torch.zeros(len(levels.edge_id) - len(levels.tail), dtype=torch.long)
        self._geometry = levels.start, torch.cat([levels.tail, last]), torch.tensor(self._heads)
        self._made = _made_in(engine.program)
        self._live = _read_later(engine.program, self._made) | {self._read}
        self._begin()

    @staticmethod
    def of(engine: Any, target: Target, work: int) -> "SharedRows | None":
        """None where the loops are not there, cannot do it or are not worth it; `work` is the number of edges of all sets."""
        if not isinstance(engine, LoweredEngine) or engine.num_targets != 1 or not engine.program.is_chain:
            return None
        program = engine.program
        plain = all(isinstance(step.layer, AffineLayer) and step.receiver is None for step in program.messages)
        kernels = kernels_for(work, target.truth)
        if not plain or program.kinds is not None or kernels is None:
            return None
        drops = GraphDrops.by_rows(engine, target)
        if isinstance(engine, LoweredGraphs) and (drops is None or drops.pooling is None):
            return None
        found = SharedRows(engine, target, drops, kernels)
        return found if found._made[found._read] == program.num_calls - 1 else None

    def values(self, on: Tensor) -> Tensor:
        """`[coalitions]`: the explained numbers with some of the edges, `[coalitions, M]` bool."""
        parts = on.split(max(1, _AT_ONCE // max(on.size(1), *self._heads)))
        return torch.cat([self._number(self._rows_of(part.contiguous())) for part in parts])

    def _begin(self) -> None:
        """Forget all rows."""
        calls = len(self._heads)
        self._table, self._row_of = torch.zeros(_FIRST, 3, dtype=torch.long), torch.zeros(_FIRST // 2, dtype=torch.long)
        self._counts = torch.zeros(calls + 1, dtype=torch.long)
        self._rows: dict[int, _Rows] = {value: _Rows() for value in self._live}
        self._own = [_Rows() for _ in range(calls)]

    # --- Rows -----------------------------------------------------------------------------------------------------------

    def _rows_of(self, on: Tensor) -> Tensor:
        """`[coalitions, pairs behind the last call]`: the numbers of their rows, all of which are there afterwards."""
        if sum(rows.size for rows in self._rows.values()) > _KEPT:
            self._begin()
        calls = len(self._heads)
        new = _NewRows.of(calls, len(on) * max(self._heads), on.numel())
        found = torch.empty(len(on), self._heads[-1], dtype=torch.long)
        done = self._fill(on, 0, new, found)
        while done < len(on):
            larger = torch.zeros(4 * len(self._table), 3, dtype=torch.long)
            self._kernels.refilled(*arrays(self._table, larger))
            self._row_of = torch.cat(
                [self._row_of, torch.empty(len(larger) // 2 - len(self._row_of), dtype=torch.long)]
            )
            self._table = larger
            done = self._fill(on, done, new, found)
        for call in range(calls):
            self._work_out(call, new)
        return found

    def _fill(self, on: Tensor, first: int, new: "_NewRows", found: Tensor) -> int:
        tables = (self._table, self._row_of, self._counts)
        parts = (new.rows, new.edges, new.own, new.pair, new.edge_end, new.edge, new.sent)
        done: int = self._kernels.met_rows(*arrays(on), first, *arrays(*self._geometry, *tables, *parts, found))
        return done

    def _work_out(self, call: int, new: "_NewRows") -> None:
        """The values of new rows behind a call and in the steps up to the next one."""
        rows, edges = int(new.rows[call]), int(new.edges[call])
        if rows == 0:
            return
        own, node = new.own[call, :rows], self._engine.levels.node[new.pair[call, :rows]]
        self._own[call].add(own)
        step, segment = self._engine.program.messages[call], self._segments[call]
        start = torch.cat([torch.zeros(1, dtype=torch.long), new.edge_end[call, :rows]])
        values = {step.output: self._call(step, own, node, start, new.edge[call, :edges], new.sent[call, :edges])}
        for source in {source.value for one in segment for source in one.sources if isinstance(source, Ref)}:
            if self._made[source] < call:
                values[source] = self._before(source, call, own)
        one = torch.ones(1)
        values = interpret(segment, RowNumbers(lambda rows: rows.tensor.index_select(0, node), lambda _: one), values)
        for value, kept in self._rows.items():
            if self._made[value] == call:
                kept.add(values[value])

    def _call(self, step: MessageStep, own: Tensor, node: Tensor, start: Tensor, edge: Tensor, sent: Tensor) -> Tensor:
        """A call for new rows, along the edges that are there."""
        levels = self._engine.levels
        if isinstance(step.source, Ref):
            table: Any = self._before(step.source.value, step.call)
            hop = Hop(start, sent, levels.edge_id[edge], own, node, len(table))
        else:
            table = self._engine.prepared[step.output]
            hop = Hop(start, levels.sender[edge], levels.edge_id[edge], node, node, levels.num_nodes)
        return step.layer.forward(table, hop, self._target.truth.new_ones(len(edge)), None)

    def _before(self, value: int, call: int, rows: Tensor | None = None) -> Tensor:
        """What rows before a call (all of them, or some) have of a value that an earlier call or step made."""
        table = self._rows[value].table
        if rows is None and self._made[value] == call - 1:
            return table
        rows = torch.arange(int(self._counts[call - 1])) if rows is None else rows
        for later in range(call - 1, self._made[value], -1):
            rows = self._own[later].table.index_select(0, rows)
        return table.index_select(0, rows)

    # --- The explained number -------------------------------------------------------------------------------------------

    def _number(self, found: Tensor) -> Tensor:
        """`[coalitions]`, from the numbers of the rows behind the last call."""
        table = self._rows[self._read].table
        if self._pooling is None:
            rows = table.index_select(0, found[:, 0])
        else:
            total = functional.embedding_bag(found, table, mode="sum") * self._pooling.share
            values = interpret(self._pooling.head, RowNumbers(_constant, _own), {self._pooling.made: total})
            rows = values[self._engine.program.output]
        return self._target.select(torch.zeros(len(found), dtype=torch.long)).value(rows)


@dataclass(frozen=True, eq=False)
class _NewRows:
    """What `met_rows` writes down of new rows; a line for each call."""

    rows: Tensor
    edges: Tensor
    own: Tensor
    pair: Tensor
    edge_end: Tensor
    edge: Tensor
    sent: Tensor

    @staticmethod
    def of(calls: int, rows: int, edges: int) -> "_NewRows":
        """Nothing so far, and room for so much in each call."""
        none, of_rows = torch.zeros(2, calls, dtype=torch.long), torch.empty(3, calls, rows, dtype=torch.long)
        return _NewRows(*none, *of_rows, *torch.empty(2, calls, edges, dtype=torch.long))


class _Rows:
    """A table that grows."""

    def __init__(self) -> None:
        self._room: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """Put rows at the end."""
        end = self._count + len(rows)
        if self._room is None or end > len(self._room):
            room = rows.new_empty(2 * end, *rows.shape[1:])
            if self._room is not None:
                room[: self._count] = self.table
            self._room = room
        self._room[self._count : end] = rows
        self._count = end

    @property
    def table(self) -> Tensor:
        """All rows."""
        assert self._room is not None
        return self._room[: self._count]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return 0 if self._room is None else self.table.numel()


def _made_in(program: Program) -> dict[int, int]:
    """Behind which call each value is made."""
    return {step.output: step.call if isinstance(step, MessageStep) else step.calls_done - 1 for step in program.steps}


def _read_later(program: Program, made: dict[int, int]) -> set[int]:
    """The values that are read behind a later call, or by it."""
    found = set()
    for step in program.steps:
        for source in step.sources:
            if isinstance(source, Ref) and made[source.value] < made[step.output]:
                found.add(source.value)
    return found


def _constant(source: Rows) -> Tensor:
    return source.tensor


def _own(call: int) -> Tensor:
    raise AssertionError("a readout carries no residual")
