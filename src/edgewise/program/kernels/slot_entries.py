"""Compiled loops that put the entries of slots in the order of targets: counted first, then each written to its place.

A bundle of slots finds for some targets a number for each of its slots (`slot_loops.py`; `attention_slots.py` has bundles of
one); results are kept target by target. Example: slots 0 and 1 are a bundle that changes targets 1 and 0 by (3, 0) and (2, 5).
Target 0 then has the entries of both slots, target 1 that of slot 0.
"""

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf, loop

_NONE = np.uint64(0)
"""A number without a sign: an index of this kind is not counted from the end, which would be looked for at every step."""


@loop(nogil=True)
def count_entries(position: Array, num_targets: int) -> Array:
    """`[targets]`: how many entries each target has."""
    found = np.zeros(num_targets, np.int64)
    for p in position:
        found[p] += 1
    return found


@loop(nogil=True)
def slot_names(
    bundles: Array, in_start: Array, in_edge: Array, number: Array, width: int, own_number: Array, own_width: int
) -> Array:
    """`[slots]`: what the slots of bundles (`bundles_of`) are called in the result, call · width + number."""
    total = 0
    for b in range(len(bundles)):
        total += bundles[b, 3]
    found, count = np.empty(total, number.dtype), 0
    for b in range(len(bundles)):
        at, call, first, lanes, owns = bundles[b, 0], bundles[b, 1], bundles[b, 2], bundles[b, 3], bundles[b, 4]
        for j in range(in_start[at] + first, in_start[at] + first + lanes - owns):
            found[count] = call * width + number[in_edge[j]]
            count += 1
        if owns:
            found[count] = call * own_width + own_number[at]
            count += 1
    return found


@leaf(nogil=True)
def fill_entries(
    ends: Array, lanes: Array, owns: Array, position: Array, change: Array, name: Array, tall: int, filled: Array,
    places: Array, drops: Array,
) -> None:  # fmt: skip
    """Write what targets lose behind what they have already, up to `filled`: places and drops.

    The targets of bundle b end at `ends[b + 1]`; each has a change for every one of its `lanes`, of which the last is an own
    term if `owns` says so: it goes to the row of the target that is `tall` rows further on. `name` `[slots]` is what slots are
    called in the result.
    """
    slot = number = _NONE
    for b in range(len(lanes)):
        own, count = np.uint64(owns[b]), np.uint64(lanes[b])
        last = count - np.uint64(1)
        for i in range(ends[b], ends[b + 1]):
            p = np.uint64(position[np.uint64(i)])
            at = np.uint64(filled[p])
            for lane in range(count - own):
                if change[number + lane] != 0:
                    places[at], drops[at] = name[slot + lane], -change[number + lane]
                    at += np.uint64(1)
            filled[p] = at
            if own and change[number + last] != 0:
                at = np.uint64(filled[p + np.uint64(tall)])
                places[at], drops[at] = name[slot + last], -change[number + last]
                filled[p + np.uint64(tall)] = at + np.uint64(1)
            number += count
        slot += count
