"""Compiled loops that put the entries of slots in the order of targets: counted first, then each written to its place.

A block of slots finds its entries slot by slot (`slot_loops.py`, `attention_slots.py`); results are kept target by target.
Example: slots 0 and 1 change targets (1, 0) and (1,). Target 0 then has the entry of slot 0, target 1 those of both.
"""

import numpy as np
from numba import njit

from edgewise.program.kernels import Array
from edgewise.program.kernels.leaf import leaf


@njit(cache=True, nogil=True)
def count_entries(position: Array, num_targets: int) -> Array:
    """`[targets]`: how many entries each target has."""
    found = np.zeros(num_targets, np.int64)
    for p in position:
        found[p] += 1
    return found


@leaf(nogil=True)
def fill_entries(
    slot_ends: Array,
    position: Array,
    change: Array,
    place_of: Array,
    low: int,
    high: int,
    filled: Array,
    places: Array,
    drops: Array,
) -> None:
    """Write what targets `low` to `high` lose behind what they have already, up to `filled` `[targets]`: places and drops.

    `place_of` `[slots]` is what slots are called in the result; the entries of slot s end at `slot_ends[s + 1]`.
    """
    for s in range(len(place_of)):
        name = place_of[s]
        for i in range(slot_ends[s], slot_ends[s + 1]):
            p = position[i]
            if low <= p < high:
                at = filled[p]
                places[at], drops[at], filled[p] = name, -change[i], at + 1
