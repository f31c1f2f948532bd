"""Occlusion of many slots for many targets through chains of GATv2, slot after slot in compiled loops.

`AttentionDrops` is `SlotDrops` for such chains with ReLUs between them (`kernels/attention_slots.py`);
`perturbation_output.drops` does the same for everything else, and a test compares the two.
"""

from typing import Any

import numpy as np
import torch

from edgewise.arrays import narrowed
from edgewise.program.attention_chain import MOST_CALLS, attention_calls, is_attention_chain
from edgewise.program.kernels import Array, arrays, kernels_for
from edgewise.program.layers.attention import sum_by_head
from edgewise.program.lowering import Lowering
from edgewise.program.perturbation import Differences, MissingMessages
from edgewise.program.slot_drops import Found, Lifted, SlotDrops, rows_of_slots

_MANY, _WORK = 16, 50_000
"""Targets, and edges that they see together, from which on it is worth loading the loops."""
_LARGEST = 2**24
"""Numbers of all nodes together: the loops have room for a row of each."""


class AttentionDrops(SlotDrops):
    """value − value without, for slots and targets of a lowered chain of GATv2."""

    def __init__(self, differences: Differences, kernels: Any) -> None:
        self._kernels, self._all = kernels, differences
        self._parts = _arguments(differences.lowering)

    @staticmethod
    def suits(differences: Differences) -> bool:
        """Whether the loops can do it, for so many targets that it may be worth it."""
        program, lowering = differences.program, differences.lowering
        if len(differences.targets) < _MANY or differences.target.of != "logit":
            return False
        if not is_attention_chain(program, lowering) or program.output != program.messages[-1].output:
            return False
        if any(slope.below is None for slope in lowering.slopes.values()):
            return False
        widest = max(call.sent.shape[1] for call in attention_calls(lowering))
        return lowering.in_edges.num_nodes * widest <= _LARGEST

    @staticmethod
    def of(differences: Differences, work: int) -> "AttentionDrops | None":
        """None where the loops are not there or not worth it; `work` is about how many edges are seen."""
        kernels = None if work < _WORK else kernels_for(work, differences.known[differences.program.output])
        return None if kernels is None else AttentionDrops(differences, kernels)

    def run(self, level: str, columns: Lifted, nodes: Lifted | None) -> list[Found]:
        """As `SlotDrops.run`."""
        every = self._all
        binary = every.target.mode == "binary"
        by_node = every.lowering.in_edges.start.new_zeros(len(every.lowering.in_edges.start))
        by_node[1:] = torch.bincount(every.targets, minlength=len(by_node) - 1).cumsum(0)
        column = torch.zeros_like(every.target.column) if binary else every.target.column
        of_targets = arrays(by_node, every.targets.argsort(stable=True), column)
        rows = [self._rows(every.slots(level, of_self=False), columns, of_targets)]
        if nodes is not None:
            rows.append(self._rows(every.slots(level, of_self=True), nodes, of_targets))
        if not binary:
            return rows
        sign = torch.where(every.target.column == 1, 1, -1).to(every.value)
        return [(begin, place, drop * torch.repeat_interleave(sign, begin.diff())) for begin, place, drop in rows]

    def _rows(self, slots: MissingMessages, lifted: Lifted, of_targets: list[Any]) -> Found:
        """Entries of all targets, of edges or of own terms."""
        every, graph, (number, width) = self._all, self._all.lowering.in_edges, lifted
        edges = (*arrays(graph.start, graph.edge, graph.sender, every.sender, every.receiver), *_near_edges(every))
        known = (*edges, *arrays(every.distance), *self._parts)

        def of_some(part: tuple[torch.Tensor, torch.Tensor]) -> Any:
            return self._kernels.attention_drops(*arrays(*part), slots.of_self, *known, *of_targets)

        place_of = slots.call.clamp(min=0) * width + number[slots.item]  # [slots]
        place_of = narrowed(place_of, every.program.num_calls * width)
        return rows_of_slots(slots, of_some, place_of, len(every.targets), self._kernels)


def _near_edges(differences: Differences) -> list[tuple[Array, ...]]:
    """The out-edges that still lead to a target, per call: where those of each node begin, their columns and receivers."""
    out, calls = differences.out_edges, differences.program.num_calls
    found = []
    for call in range(MOST_CALLS):
        reach = calls - call if 0 < call < calls else 0  # before the first call nothing has changed
        kept = (differences.distance[out.sender] < reach).nonzero().view(-1)
        found.append(arrays(torch.searchsorted(kept, out.start), out.edge[kept], out.sender[kept]))
    return [tuple(call[kind] for call in found) for kind in range(3)]


def _arguments(lowering: Lowering) -> list[Any]:
    """The arguments of the loop that belong to the model, filled up with empty ones; found once."""
    return lowering.remembered(AttentionDrops, lambda: _found_arguments(lowering))


def _found_arguments(lowering: Lowering) -> list[Any]:
    calls, steps = attention_calls(lowering), lowering.program.messages
    dtype = calls[0].sent.dtype
    nothing, none = np.empty((0, 0), dtype), np.empty(0, dtype)
    logits, full, after, bent = [], [], [], np.ones(len(calls))
    for number, (step, call) in enumerate(zip(steps, calls, strict=True)):
        layer: Any = step.layer
        hop = lowering.everything.hop(number, from_nodes=True)
        heads = call.attention.shape[1]
        sent, received = (torch.from_numpy(rows).view(len(rows), heads, -1) for rows in (call.sent, call.received))
        by_column = torch.empty(call.attention.shape, dtype=sent.dtype)
        by_column[hop.edge_id] = layer.logits(sent.index_select(0, hop.tail), received.index_select(0, hop.head))
        attention = torch.from_numpy(call.attention).index_select(0, hop.edge_id)
        got = sum_by_head(attention, sent, hop)
        if len(call.loop):
            got = got + torch.from_numpy(call.loop).unsqueeze(-1) * sent
        slope = lowering.slopes.get((number, 0))
        if slope is not None and slope.below is not None:
            bent[number] = slope.below
        logits.append(by_column.numpy())
        full.append(np.ascontiguousarray(got.flatten(1).numpy()))
        after.append(nothing if slope is None else lowering.known[slope.output].contiguous().numpy())
    before = [lowering.known[step.output].contiguous().numpy() for step in steps]
    turned = [[np.ascontiguousarray(getattr(call, name).T) for call in calls] for name in ("by_sender", "by_receiver")]
    plain = [[getattr(call, name) for call in calls] for name in ("sent", "received", "attention")]
    vector, missing = [call.vector for call in calls], MOST_CALLS - len(calls)
    rows = [*plain, logits, [call.loop for call in calls], full]
    filled = [(*parts, *[nothing] * missing) for parts in rows]
    return [
        *filled, (*vector, *[none] * missing), *((*parts, *[nothing] * missing) for parts in turned),
        np.array([call.below for call in calls], dtype), np.array([call.concat for call in calls]),
        *((*parts, *[nothing] * missing) for parts in (before, after)), bent,
    ]  # fmt: skip
