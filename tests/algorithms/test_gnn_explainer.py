"""`gnn_explainer` is PyG's: the same objective, the same optimiser, and from the same start the same masks.

PyG draws its start from the global generator; the tests draw the same numbers and hand them over as `init=`.
"""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCN

import edgewise as ew
import oracles
import zoo
from checks import assert_close, node_problem, one_in, scores_of, with_batch

PROMISED = 1e-4
PYG_MODE = {"multiclass": "multiclass_classification", "binary": "binary_classification", "regression": "regression"}


def pyg_mask(model, data, index, seed, *, mode="multiclass", task="node", **settings):
    """What PyG's GNNExplainer says; on a copy, because it leaves traces on the model."""
    explainer = Explainer(
        copy.deepcopy(model),
        GNNExplainer(**settings),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": PYG_MODE[mode], "task_level": task, "return_type": "raw"},
    )
    extras = {} if task == "node" else {"batch": torch.zeros(data.num_nodes, dtype=torch.long)}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return explainer(data.x, data.edge_index, index=index, **extras).edge_mask


def starts(data, seeds, dtype):
    return torch.stack([oracles.pyg_start(data.edge_index.shape[1], data.num_nodes, seed, dtype) for seed in seeds])


def assert_same_masks_as_pyg(model, data, index, tolerance=PROMISED, **options):
    found = ew.explain(model, data, index=index, method="gnn_explainer", init=starts(data, index, data.x.dtype))
    for why in found:
        expected = pyg_mask(model, data, int(why.index), seed=int(why.index), **options)
        assert (expected > 0).sum() > 1
        assert_close(why.scores, expected, tolerance, f"mask of node {why.index}")


# Against PyG ##########################################################################################################


@pytest.mark.parametrize(
    "case_name", ["gcn", "gcn_relu", "sage_sum", "gin", "gat", "graph_conv", "sage_used_twice", "jumping_cat"]
)
def test_from_the_same_start_the_masks_are_those_of_pyg(double, case_name):
    _, model, data, _ = node_problem(case_name, "directed")
    assert_same_masks_as_pyg(model, Data(x=data.x, edge_index=data.edge_index), [1, 4, 6], tolerance=1e-9)


def test_so_they_are_in_single_precision():
    _, model, data, _ = node_problem("gcn_relu", "directed")
    assert_same_masks_as_pyg(
        copy.deepcopy(model).float(), Data(x=data.x.float(), edge_index=data.edge_index), [0, 1, 2]
    )


@pytest.mark.parametrize("case_name", ["binary", "regression"])
def test_so_they_are_for_one_logit_and_for_regression(double, case_name):
    case, model, data, _ = node_problem(case_name, "directed")
    plain = Data(x=data.x, edge_index=data.edge_index)
    index = [0, 1, 2, 4]
    found = ew.explain(
        model, plain, index=index, method="gnn_explainer", init=starts(plain, index, torch.float64), **case.arguments
    )
    for why in found:
        expected = pyg_mask(model, plain, int(why.index), seed=int(why.index), mode=case.mode)
        assert_close(why.scores, expected, 1e-9, f"mask of node {why.index}")


@pytest.mark.parametrize("case_name", ["mean_pool", "sum_pool", "max_pool", "pooled_binary"])
def test_so_they_are_for_graphs(double, case_name):
    case = zoo.GRAPH_BY_NAME[case_name]
    model, data = case.build(), zoo.GRAPHS["directed"]()
    plain = Data(x=data.x, edge_index=data.edge_index)
    why = ew.explain(model, plain, task="graph", method="gnn_explainer", init=starts(plain, [7], torch.float64)[0])
    assert_close(why.scores, pyg_mask(model, plain, None, 7, mode=case.mode, task="graph"), 1e-9, "mask")


def test_other_settings_mean_the_same_as_in_pyg(double):
    _, model, data, _ = node_problem("gcn", "directed")
    settings = {"epochs": 40, "lr": 0.1, "edge_size": 0.05, "edge_ent": 0.3}
    why = ew.explain(model, data, index=1, method="gnn_explainer", init=starts(data, [1], torch.float64)[0], **settings)
    assert_close(why.scores, pyg_mask(model, data, 1, seed=1, **settings), 1e-9, "mask")


def test_a_model_that_pygs_explainer_has_handled_is_explained_as_before(double):
    # PyG leaves `_edge_mask` among the parameters of every conv, and its switch `explain` set.
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    expected = scores_of(ew.explain(model, data, index=[1, 4], level="layer"))
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    options = {"explanation_type": "model", "edge_mask_type": "object", "model_config": config}
    Explainer(model, GNNExplainer(epochs=2), **options)(data.x, data.edge_index, index=1)
    assert "_edge_mask" in model.convs[0]._parameters
    assert_close(scores_of(ew.explain(model, data, index=[1, 4], level="layer")), expected, 1e-12)


@pytest.fixture(scope="module")
def infection(trained_infection):
    return trained_infection.model, trained_infection.graphs.test


def _watched(data, count):
    """Nodes with a computation graph of some size, far apart in the numbering."""
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    candidates = (degree >= 3).nonzero().view(-1)
    return candidates[torch.linspace(0, len(candidates) - 1, count).long()].tolist()


def test_on_infection_the_masks_are_those_of_pyg(infection):
    model, graph = infection
    data = Data(x=graph.x, edge_index=graph.edge_index)
    assert_same_masks_as_pyg(model, data, _watched(data, 6))


def test_on_infection_layerwise_masks_are_those_of_the_slow_loop(infection):
    model, graph = infection
    data = Data(x=graph.x.double(), edge_index=graph.edge_index)
    model = copy.deepcopy(model).double()
    twin = oracles.Twin(model, data)
    index = _watched(data, 2)
    init = torch.stack([starts(data, range(10 * node, 10 * node + 4), torch.float64) for node in index])
    for why, start in zip(
        ew.explain(model, data, index=index, method="gnn_explainer", level="layer", init=init), init, strict=True
    ):
        expected = oracles.gnn_explainer(twin, int(why.index), torch.tensor(int(why.target)), start)
        assert_close(why.scores, expected, 1e-6, f"mask of node {why.index}")


@pytest.fixture(scope="module")
def cora(raw_data):
    from torch_geometric.datasets import Planetoid

    return Planetoid(raw_data("Cora"), "Cora")[0]


def _trained_on_cora(cora, layers):
    with torch.random.fork_rng():
        torch.manual_seed(layers)
        model = GCN(cora.x.shape[1], 16, layers, 7)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(30):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                model(cora.x, cora.edge_index)[cora.train_mask], cora.y[cora.train_mask]
            )
            loss.backward()
            optimizer.step()
    model.zero_grad()
    return model.eval()


@pytest.mark.parametrize("layers", one_in(2, [3, 5]))
def test_on_cora_the_masks_are_those_of_pyg(cora, layers):
    model = _trained_on_cora(cora, layers)
    data = Data(x=cora.x, edge_index=cora.edge_index)
    test_nodes = cora.test_mask.nonzero().view(-1)
    assert_same_masks_as_pyg(model, data, test_nodes[[3, 333, 777]].tolist())


# Against the slow loop ################################################################################################


def _target(why, numbers, row):
    return numbers().detach()[row] if numbers.mode == "regression" else torch.tensor(int(why.target))


@pytest.mark.parametrize(
    "case_name", ["gcn", "sage_mean", "gat_with_attributes", "gin", "sgc", "layer_norm_of_nodes", "binary", "cheb"]
)
@pytest.mark.parametrize("level", ["input", "layer"])
def test_on_graphs_with_loops_and_parallel_edges_the_masks_are_those_of_the_slow_loop(case_name, level):
    case, model, data, numbers = node_problem(case_name, "everything")
    generator = torch.Generator().manual_seed(4)
    shape = (case.layers, data.edge_index.shape[1]) if level == "layer" else data.edge_index.shape[1:]
    init = torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.3
    for why in ew.explain(model, data, index=[1, 4], method="gnn_explainer", level=level, init=init, epochs=60):
        expected = oracles.gnn_explainer(
            numbers.twin, int(why.index), torch.tensor(int(why.target)), init, mode=case.mode, epochs=60
        )
        assert_close(why.scores, expected, 1e-8, f"mask of node {why.index}")


@pytest.mark.parametrize("target", [0, 1])
def test_the_mask_speaks_for_the_class_asked_for(target):
    _, model, data, numbers = node_problem("binary", "directed")
    init = starts(data, [2], torch.float64)[0]
    why = ew.explain(model, data, index=4, target=target, method="gnn_explainer", init=init, epochs=50)
    expected = oracles.gnn_explainer(numbers.twin, 4, torch.tensor(target), init, mode="binary", epochs=50)
    assert_close(why.scores, expected, 1e-8, "mask")


@pytest.mark.parametrize("case_name", ["mean_pool", "pooled_binary"])
def test_layerwise_masks_of_graphs_are_those_of_the_slow_loop(case_name):
    case = zoo.GRAPH_BY_NAME[case_name]
    model, data = case.build(), zoo.GRAPHS["everything"]()
    numbers = oracles.Numbers(model, with_batch(data), mode=case.mode)
    init = starts(data, range(case.layers), torch.float64)
    why = ew.explain(model, data, task="graph", method="gnn_explainer", level="layer", init=init)
    expected = oracles.gnn_explainer(numbers.twin, 0, numbers.target[0], init, mode=case.mode)
    assert_close(why.scores, expected, 1e-8, "mask")


def test_the_mask_does_not_depend_on_the_number_asked_for():
    _, model, data, _ = node_problem("gcn", "directed")
    masks = [
        ew.explain(
            model, data, index=1, method="gnn_explainer", init=starts(data, [0], torch.float64)[0], epochs=10, of=of
        ).scores
        for of in ("logit", "log_prob", "prob")
    ]
    assert_close(masks[1], masks[0], 1e-12)
    assert_close(masks[2], masks[0], 1e-12)


# Starts and seeds #####################################################################################################

BARELY = {"method": "gnn_explainer", "epochs": 1, "lr": 1e-12}  # the mask after this is σ(start) wherever a gradient is


def test_a_start_may_be_shared_or_given_per_target_at_both_levels():
    _, model, data, _ = node_problem("gcn", "directed")
    index = [1, 2, 4]  # as many targets as layers: [T, E] and [L, E] have the same shape
    generator = torch.Generator().manual_seed(0)
    full = torch.randn(3, 3, data.edge_index.shape[1], generator=generator, dtype=torch.float64)
    given = {
        ("input", "shared"): (full[0, 0], lambda position: full[0, 0]),
        ("input", "per target"): (full[:, 0], lambda position: full[position, 0]),
        ("layer", "shared"): (full[0], lambda position: full[0]),
        ("layer", "per target"): (full, lambda position: full[position]),
    }
    for (level, _), (init, own) in given.items():
        found = ew.explain(model, data, index=index, level=level, init=init, **BARELY)
        for position, why in enumerate(found):
            alive = why.scores != 0
            assert alive.any()
            assert_close(why.scores[alive], own(position).sigmoid()[alive], 1e-9, f"{level} start")


def test_a_start_follows_its_target_through_blocks_and_orders():
    _, model, data, _ = node_problem("gcn", "directed")
    init = starts(data, range(5), torch.float64)
    index = [6, 0, 3, 1, 2]
    whole = scores_of(ew.explain(model, data, index=index, init=init, method="gnn_explainer", epochs=10))
    blocks = scores_of(ew.explain(model, data, index=index, init=init, method="gnn_explainer", epochs=10, batch_size=2))
    assert_close(blocks, whole, 1e-9)
    order = [3, 1, 4, 0, 2]
    turned = ew.explain(
        model, data, index=[index[i] for i in order], init=init[order], method="gnn_explainer", epochs=10
    )
    assert_close(scores_of(turned), whole[order], 1e-9)


@pytest.mark.parametrize("level", ["input", "layer"])
def test_a_seed_fixes_the_mask_of_a_target_whatever_company_it_is_in(level):
    _, model, data, _ = node_problem("gcn", "directed")
    options = {"method": "gnn_explainer", "level": level, "epochs": 5}
    first = ew.explain(model, data, index=[1, 2, 4], seed=3, **options)
    again = ew.explain(model, data, index=[4, 4, 1], seed=3, **options)
    assert_close(again[0].scores, first[2].scores, 1e-9)
    assert_close(again[1].scores, first[2].scores, 1e-9)
    assert_close(again[2].scores, first[0].scores, 1e-9)
    assert_close(ew.explain(model, data, index=2, seed=3, **options).scores, first[1].scores, 1e-9)
    other = ew.explain(model, data, index=2, seed=4, **options)
    assert (other.scores - first[1].scores).abs().max() > 1e-3


def test_without_init_the_start_has_the_spread_of_pyg():
    data = zoo.graph(zoo.random_edges(40, 400), 40)
    model = zoo.BY_NAME["sage_mean"].build()
    logits = scores_of(ew.explain(model, data, index=[0, 5, 9, 21], **BARELY))
    logits = torch.logit(logits[logits > 0])
    assert len(logits) > 800
    expected = 2**0.5 * (2 / (2 * 40)) ** 0.5
    assert abs(float(logits.mean())) < 0.15 * expected  # standard error below 0.04 of it
    assert abs(float(logits.std()) - expected) < 0.15 * expected


def test_masks_lie_between_zero_and_one_and_have_no_self_scores():
    _, model, data, _ = node_problem("gcn", "everything")
    for level in ("input", "layer"):
        for why in ew.explain(model, data, method="gnn_explainer", level=level, epochs=5):
            assert 0 <= why.scores.min() <= why.scores.max() <= 1
            assert why.self_scores is None
            assert why.settings["epochs"] == 5
            assert why.settings["lr"] == 0.01
