"""Cases that take many seconds each while others like them run in every suite: they are left to slow runs (`make test-all`)."""

LONG = (
    "test_commands.py::test_demo_compares_saves_and_draws",
    "test_paper_parts.py::test_flips_of_nodes_are_counted_as_edge_by_edge[0]",
    "test_reproduce.py::test_negative_evidence_is_reproduced[negative-evidence-True]",
    "test_gnn_explainer.py::test_on_cora_the_masks_are_those_of_pyg[3]",
    "test_planted_data.py::test_the_model_learns_the_task[ba_2motifs]",
    "test_planted_data.py::test_the_model_learns_the_task[tree_cycles]",
    "test_planted_data.py::test_the_same_seed_gives_the_same_graphs_and_another_seed_others[ba_2motifs]",
    "test_faithfulness.py::test_fidelity_by_masking_equals_pyg[gatv2-model]",
    "test_faithfulness.py::test_fidelity_by_masking_equals_pyg[gcn-phenomenon]",
    "test_features.py::test_blocks_and_order_change_nothing[integrated_gradients-gat]",
    "test_features.py::test_blocks_and_order_change_nothing[integrated_gradients-gatv2]",
    "test_many_targets.py::test_many_targets_equal_single_calls[layer_norm_of_graphs-input]",
    "test_links.py::test_a_large_graph_is_cut_around_both_ends[sage-True]",
    "test_links.py::test_a_large_graph_is_cut_around_both_ends[gcn-False]",
    "test_compare.py::test_reasons_account_for_every_missing_number",
    "test_typed.py::test_every_method_has_a_score_for_each_edge_type_at_both_levels[hgt-gnn_explainer]",
    "test_gnn_explainer.py::test_on_infection_layerwise_masks_are_those_of_the_slow_loop",
    "test_many_targets.py::test_a_list_of_graphs_equals_the_graphs_one_by_one[pooled_layer_norm-input]",
    "test_kernels.py::test_on_any_graph_and_for_any_nodes_the_twins_agree[gat, relu]",
)
"""The ends of their names."""
ALWAYS = ("tests/project/", "tests/paper/")
"""Folders whose cases all run in every suite."""


def kept_share(cases: int) -> int:
    """Of a test with so many cases one in this many runs in every suite; the others are left to slow runs."""
    return 1 if cases < 8 else 2 if cases < 24 else 3 if cases < 48 else 4
