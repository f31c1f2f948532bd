"""All compiled loops in one place. Importing this file imports numba, so only `kernels_for` does it, when work is worth it."""

from edgewise.program.kernels.attention_loops import attention_gradients
from edgewise.program.kernels.attention_rows import row_attention, row_sums, row_sums_back
from edgewise.program.kernels.attention_slots import attention_drops
from edgewise.program.kernels.coalition_loops import equal_rows, met_rows, refilled
from edgewise.program.kernels.gradient_loops import grow, pull
from edgewise.program.kernels.graph_loops import graph_changes, graph_gradients, graph_values
from edgewise.program.kernels.occlusion_loops import carry, carry_to_targets, rectify, spread
from edgewise.program.kernels.order_loops import order_values
from edgewise.program.kernels.slot_entries import count_entries, fill_entries, slot_names
from edgewise.program.kernels.slot_loops import slot_drops
from edgewise.program.kernels.target_loops import target_gradients
from edgewise.program.kernels.walk_loops import box_image, hull, pair_scores, rows_times, times_rows
from edgewise.program.kernels.weighted_loops import BLOCK, weighted_backward, weighted_forward

__all__ = [
    "BLOCK",
    "attention_drops",
    "attention_gradients",
    "box_image",
    "carry",
    "carry_to_targets",
    "count_entries",
    "equal_rows",
    "fill_entries",
    "graph_changes",
    "graph_gradients",
    "graph_values",
    "grow",
    "hull",
    "met_rows",
    "order_values",
    "pair_scores",
    "pull",
    "rectify",
    "refilled",
    "row_attention",
    "row_sums",
    "row_sums_back",
    "rows_times",
    "slot_drops",
    "slot_names",
    "spread",
    "target_gradients",
    "times_rows",
    "weighted_backward",
    "weighted_forward",
]
