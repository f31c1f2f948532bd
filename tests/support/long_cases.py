"""Cases that take many seconds each while others like them run in every suite: they are left to slow runs (`make test-all`)."""

LONG = (
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
FAMILIES = (
    "tests/adapters/test_pyg_settings.py",
    "tests/algorithms/test_gradients.py",
    "tests/algorithms/test_occlusion.py",
    "tests/algorithms/test_eig_search.py",
    "tests/api/test_features.py",
    "tests/api/test_many_targets.py",
    "tests/program/test_lowering.py",
    "tests/program/test_vocabulary.py",
    "tests/question/test_answers_on_a_cut.py",
    "tests/question/test_links.py",
    "tests/question/test_memory_and_top.py",
    "tests/question/test_typed.py",
    "tests/report/page/test_page_answer.py",
    "tests/report/page/test_page_browser.py",
    "tests/trust/test_spellings.py",
    "tests/walk/test_graphs.py",
    "tests/walk/test_layers.py",
)
"""Files in which a test runs on dozens of like cases (models, methods, levels): half of them are left to slow runs."""
MANY = 8
"""From so many cases of one test on."""
