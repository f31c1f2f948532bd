"""Compiled loops of occlusion through GATv2, slot after slot: what a missing message changes, followed to all targets.

A missing message leaves attention as it is, so the first change is −α · sent. In later calls a changed node changes what it
sends and its logits. A receiver that did not change itself is brought up to date: with ρ = exp(new logit − old logit) for the
messages of changed senders, and sums over these alone,

    Z = 1 + Σ α (ρ − 1)          change = (Σ α (ρ · new − old) − (Z − 1) · received) / Z

A receiver that changed itself has new logits everywhere: it attends again to all that it receives, and so does one whose Z is
so small that digits would be lost.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.attention_updates import (
    add_update,
    attend_again,
    brought_up,
    heads_joined,
    is_sound,
    project,
    take_away,
)
from edgewise.program.kernels.change_rows import bend, row_of
from edgewise.program.kernels.compilation import leaf, loop
from edgewise.program.kernels.neighbourhoods import grown


@leaf()
def changed_receivers(
    nodes: Array, rows: Array, count: int, new_nodes: Array, new_rows: Array, at: int, skip: int, skip_self: int,
    incoming: Any, outgoing: Any, near: Array, layer: Any, room: Any,
) -> int:  # fmt: skip
    """Through a call: the new rows of all nodes that it changes; returns how many there are.

    `skip` is the column that carries nothing, `skip_self` the node whose loop does not, −1: none; `at` is where that is, −1 if
    it is too far from a target. `outgoing` are the edges that still lead to a target, `near` says which nodes do. `layer` and
    `room` are what `attention_drops` knows of this call, and its room for numbers.
    """
    in_start, in_edge, in_sender, sender = incoming
    start, edge, other = outgoing
    sent, received, attention, logits, loop, full, vector, by_sender, by_receiver, below, concat = layer
    place, mark, new_sent, new_received, update, growth, steep, logit, top, norm, weight, missing, wide = room
    heads, width, loops, new = attention.shape[1], sent.shape[1], len(loop) > 0, 0
    total, top, norm, weight, missing = wide[:width], top[:heads], norm[:heads], weight[:heads], missing[:heads]
    logit, growth = logit[:, :heads], growth[:, :heads]
    project(nodes, rows, count, sent, received, by_sender, by_receiver, new_sent, new_received)
    for i in range(count):
        mark[nodes[i]] = i
    source = -1
    if at >= 0:  # the receiver of the missing message
        source = at if skip < 0 else sender[skip]
        new = row_of(at, place, new_nodes, update, width, 0)
        growth[0], steep[0] = 0, False
        for h in range(heads):
            missing[h] = loop[at, h] if skip < 0 else attention[skip, h]
    for i in range(count):
        u = nodes[i]
        if near[u] and place[u] < 0:
            new = row_of(u, place, new_nodes, update, width, new)
            growth[new - 1], steep[new - 1] = 0, False
        for j in range(start[u], start[u + 1]):
            v = other[j]
            if mark[v] >= 0:
                continue
            before = new
            new = row_of(v, place, new_nodes, update, width, new)
            if new > before:
                growth[before], steep[before] = 0, False
            add_update(
                place[v], u, i, v, edge[j], sent, new_sent, received, attention, logits, vector, below, logit, update, growth,
                steep, weight,
            )  # fmt: skip
            if edge[j] == skip:
                for h in range(heads):
                    missing[h] = weight[h]
    for r in range(new):
        v = new_nodes[r]
        if mark[v] < 0 and is_sound(r, growth, steep):
            brought_up(r, v, update, growth, full, total)
            if v == at and source >= 0:
                if mark[source] >= 0:
                    take_away(r, growth, missing, new_sent, mark[source], total)
                else:
                    take_away(r, growth, missing, sent, source, total)
        else:
            if mark[v] >= 0:
                attend_again(
                    v, new_received, mark[v], skip, v == skip_self, in_start, in_edge, in_sender, mark, sent, new_sent, loops,
                    vector, below, logit, top, norm, total,
                )  # fmt: skip
            else:
                attend_again(
                    v, received, v, skip, v == skip_self, in_start, in_edge, in_sender, mark, sent, new_sent, loops, vector,
                    below, logit, top, norm, total,
                )  # fmt: skip
            for d in range(width):
                total[d] -= full[v, d]
        heads_joined(total, heads, concat, new_rows, r)
    for i in range(count):
        mark[nodes[i]] = -1
    return new


@leaf()
def followed(
    item: int, of_call: int, of_self: bool, nodes: Array, rows: Array, new_nodes: Array, new_rows: Array, incoming: Any,
    receiver: Array, starts: Any, edges: Any, others: Any, near: Array, sent: Any, received: Any, attention: Any, logits: Any,
    loop: Any, full: Any, vector: Any, by_sender: Any, by_receiver: Any, below: Array, concat: Array, before: Any, after: Any,
    bent: Array, room: Any,
) -> Any:  # fmt: skip
    """What one slot changes in the output: how many nodes, and whether they are in `nodes` and `rows` or in the new ones."""
    here_at = item if of_self else receiver[item]
    count, is_new = 0, False
    for call in range(max(of_call, 0), len(below)):
        here = (of_call < 0 or of_call == call) and (not of_self or len(loop[call]) > 0)
        gone = here and near[call, here_at]
        at = here_at if gone else -1
        skip, skip_self = (-1, at) if of_self else (item if gone else -1, -1)
        outgoing = (starts[call], edges[call], others[call])
        layer = (
            sent[call], received[call], attention[call], logits[call], loop[call], full[call], vector[call],
            by_sender[call], by_receiver[call], below[call], concat[call],
        )  # fmt: skip
        new = changed_receivers(
            nodes, rows, count, new_nodes, new_rows, at, skip, skip_self, incoming, outgoing, near[call], layer, room
        )
        count = bend(new_nodes, new_rows, new, before[call], after[call], bent[call], room[0])
        nodes, new_nodes, rows, new_rows, is_new = new_nodes, nodes, new_rows, rows, not is_new
        if count == 0 and of_call >= 0:
            break
    return count, is_new


@loop(nogil=True)
def attention_drops(
    item: Array, call_of: Array, of_self: bool, in_start: Array, in_edge: Array, in_sender: Array, sender: Array,
    receiver: Array, starts: Any, edges: Any, others: Any, distance: Array, sent: Any, received: Any, attention: Any,
    logits: Any, loop: Any, full: Any, vector: Any, by_sender: Any, by_receiver: Any, below: Array, concat: Array,
    before: Any, after: Any, bent: Array, target_start: Array, target: Array, wanted: Array,
) -> Any:  # fmt: skip
    """What every target loses by each slot, one slot after another; as `slot_drops`, for chains of GATv2 and ReLUs.

    Args:
        item: `[slots]`, the column that is missing, or with `of_self` the node whose loop is.
        call_of: `[slots]`, the call in which it is, or −1 for all.
        of_self: See `item`.
        in_start: `[N + 1]`, the edges into node v are `in_start[v]:in_start[v + 1]`.
        in_edge: `[E]`, the column of each edge in that order.
        in_sender: `[E]`, its sender.
        sender: `[E]`, of each column.
        receiver: `[E]`, of each column.
        starts: Per call `[N + 1]`, the edges out of each node that still lead to a target.
        edges: Per call, their columns in that order.
        others: Per call, their receivers in that order.
        distance: `[N]`, hops to the nearest target.
        sent: Per call `[N, heads · channels]`, what nodes send.
        received: The same, what attention reads of them as receivers.
        attention: Per call `[E, heads]`, by column.
        logits: Per call `[E, heads]`, by column.
        loop: Per call `[N, heads]`, attention of added loops; empty: none.
        full: Per call `[N, heads · channels]`, what nodes receive.
        vector: Per call `[heads · channels]`.
        by_sender: Per call `[in, heads · channels]`.
        by_receiver: The same for receivers.
        below: `[calls]`, the slope below zero of attention's own bend.
        concat: `[calls]`, whether attention heads stand side by side; otherwise they are averaged.
        before: Per call `[N, out]`, what nodes have behind it and before its ReLU.
        after: The same behind the ReLU; empty: there is none.
        bent: `[calls]`, the slope below zero of that ReLU.
        target_start: `[N + 1]`, the targets at node v are `target[target_start[v] : target_start[v + 1]]`.
        target: `[T]`, their positions.
        wanted: `[T]`, the explained column of each target.

    Returns:
        Where the entries of each slot begin `[slots + 1]`; `[n]` each, positions of targets and changes that are not zero.
    """
    calls, size, widest, heads, degree = len(below), len(distance), 1, 1, 0
    for call in range(calls):
        widest = max(widest, sent[call].shape[1], before[call].shape[1])
        heads = max(heads, attention[call].shape[1])
    for v in range(size):
        degree = max(degree, in_start[v + 1] - in_start[v])
    dtype = before[0].dtype
    place, mark = np.full(size, -1), np.full(size, -1)
    nodes, new_nodes = np.empty(size, np.int64), np.empty(size, np.int64)
    rows, new_rows, update = (
        np.empty((size, widest), dtype),
        np.empty((size, widest), dtype),
        np.empty((size, widest), dtype),
    )
    new_sent, new_received = np.empty((size, widest), dtype), np.empty((size, widest), dtype)
    growth, steep, logit = (
        np.empty((size, heads), dtype),
        np.empty(size, np.bool_),
        np.empty((degree + 1, heads), dtype),
    )
    top, norm, weight, missing = (
        np.empty(heads, dtype),
        np.empty(heads, dtype),
        np.empty(heads, dtype),
        np.empty(heads, dtype),
    )
    wide = np.empty(widest, dtype)
    incoming = (in_start, in_edge, in_sender, sender)
    room = (place, mark, new_sent, new_received, update, growth, steep, logit, top, norm, weight, missing, wide)
    positions, changes, slot_ends = np.empty(0, np.int32), np.empty(0, dtype), np.zeros(len(item) + 1, np.int64)
    near = np.empty((calls, size), np.bool_)
    for call in range(calls):
        near[call] = distance < calls - call
    found = 0
    for s in range(len(item)):
        count, is_new = followed(
            item[s], call_of[s], of_self, nodes, rows, new_nodes, new_rows, incoming, receiver, starts, edges, others, near,
            sent, received, attention, logits, loop, full, vector, by_sender, by_receiver, below, concat, before, after, bent,
            room,
        )  # fmt: skip
        if is_new:
            nodes, new_nodes, rows, new_rows = new_nodes, nodes, new_rows, rows
        for i in range(count):
            for p in range(target_start[nodes[i]], target_start[nodes[i] + 1]):
                change = rows[i, wanted[target[p]]]
                if change != 0:
                    positions, changes = grown(positions, found + 1), grown(changes, found + 1)
                    positions[found], changes[found] = target[p], change
                    found += 1
        slot_ends[s + 1] = found
    return slot_ends, positions[:found], changes[:found]
