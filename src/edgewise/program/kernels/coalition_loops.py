"""Compiled loops of many coalitions: rows that several of them share have one number, and equal coalitions are found.

What a node has after a call is settled by what it had before the call, and by what those had who send to it. So a node with its
row before and the rows that it receives is looked up in a table of all that were met so far; a new one gets the next number.
Tables are open ones: an entry that is not in its place is in one of the next. Entries are compared in full, never by a hash.
"""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf, loop


@njit(cache=True, inline="always")
def _mixed(a: int, b: int) -> Any:
    """A place for a pair of numbers, before it is cut to the size of a table."""
    found = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) ^ (np.uint64(b) + np.uint64(0x632BE59BD9B4E019)) * np.uint64(
        0xC2B2AE3D27D4EB4F
    )
    return found ^ (found >> np.uint64(31))


@leaf()
def refilled(old: Array, new: Array) -> None:
    """Move all entries of a table of `met_rows` into a larger one."""
    mask = np.uint64(len(new) - 1)
    for i in range(len(old)):
        if old[i, 2]:
            place = _mixed(old[i, 0], old[i, 1]) & mask
            while new[place, 2]:
                place = (place + np.uint64(1)) & mask
            for part in range(3):
                new[place, part] = old[i, part]


@loop()
def met_rows(
    on: Array, first: int, start: Array, tail: Array, heads: Array, table: Array, row_of: Array, counts: Array, new: Array,
    new_edges: Array, own: Array, pair: Array, edge_end: Array, edge: Array, sent: Array, found: Array,
) -> int:  # fmt: skip
    """Numbers of the rows of coalitions, from `first` on; returns the coalition at which the table is half full, or the end.

    Args:
        on: `[coalitions, M]`, bool: the edges that are there.
        first: The coalition to begin with.
        start: `[pairs + 1]`, the edges of a pair are `start[p] : start[p + 1]`.
        tail: `[M]`, the pair that sends.
        heads: `[calls]`, how many pairs each call makes, from the first on.
        table: `[size, 3]`: (branch, step, number of the branch there + 1), 0: empty. A branch is a pair with its row before a
            call and some of the rows that it receives; each further one is a step.
        row_of: The row of each branch that was the last one of a pair, or −1.
        counts: `[calls + 1]`, how many rows each call has, then how many branches there are.
        new: `[calls]`, how many new rows the call has so far.
        new_edges: `[calls]`, how many edges they have.
        own: `[calls, rows]`, of each new row the row before the call; behind the first call its pair.
        pair: `[calls, rows]`, its pair.
        edge_end: `[calls, rows]`, where its edges end.
        edge: `[calls, edges]`, the edges that are there.
        sent: `[calls, edges]`, the rows of their senders before the call.
        found: `[coalitions, pairs of the last call]`, the rows behind the last call, filled in.
    """
    calls, mask = len(heads), np.uint64(len(table) - 1)
    state, before = np.zeros(len(start) - 1, np.int64), np.zeros(len(start) - 1, np.int64)
    longest = 0
    for call in range(calls):
        longest += heads[call] + start[heads[call]]
    for number in range(first, len(on)):
        if 2 * (counts[calls] + longest) > len(table):
            return number
        for call in range(calls):
            state, before = before, state
            for head in range(heads[call]):
                mine = before[head] if call else head
                branch, end = -1 - call, start[head + 1]
                for at in range(start[head] - 1, end):
                    if at < start[head]:
                        step = mine
                    elif on[number, at]:
                        step = ((at - start[head] + 1) << 32) | (before[tail[at]] if call else 0)
                    else:
                        continue
                    place = _mixed(branch, step) & mask
                    while table[place, 2] and (table[place, 0] != branch or table[place, 1] != step):
                        place = (place + np.uint64(1)) & mask
                    if table[place, 2] == 0:
                        table[place, 0], table[place, 1] = branch, step
                        table[place, 2] = counts[calls] + 1
                        row_of[counts[calls]] = -1
                        counts[calls] += 1
                    branch = table[place, 2] - 1
                row = row_of[branch]
                if row < 0:
                    row = row_of[branch] = counts[call]
                    counts[call] += 1
                    own[call, new[call]], pair[call, new[call]] = mine, head
                    for at in range(start[head], end):
                        if on[number, at]:
                            edge[call, new_edges[call]] = at
                            sent[call, new_edges[call]] = before[tail[at]] if call else 0
                            new_edges[call] += 1
                    edge_end[call, new[call]] = new_edges[call]
                    new[call] += 1
                state[head] = row
        for head in range(heads[calls - 1]):
            found[number, head] = state[head]
    return len(on)


@leaf()
def equal_rows(rows: Array, table: Array, place: Array, one: Array) -> int:
    """How many different rows of bools there are; `place` `[rows]`: which one each is, `one` `[rows]`: the first of each.

    `table` has twice as many entries as there are rows, or more (a power of 2), all of them −1.
    """
    count, width, mask = 0, rows.shape[1], np.uint64(len(table) - 1)
    for i in range(len(rows)):
        mixed = np.uint64(14695981039346656037)
        for d in range(width):
            mixed = (mixed ^ np.uint64(rows[i, d])) * np.uint64(1099511628211)
        at = (mixed ^ (mixed >> np.uint64(29))) & mask
        while table[at] >= 0:
            other, same = one[table[at]], True
            for d in range(width):
                if rows[other, d] != rows[i, d]:
                    same = False
                    break
            if same:
                break
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            table[at] = count
            one[count] = i
            count += 1
        place[i] = table[at]
    return count
