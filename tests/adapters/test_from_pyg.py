"""`from_pyg` runs PyG's explainers as PyG does, each time on a fresh copy: no run changes the next one, or the user's model."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    DummyExplainer,
    Explainer,
    ExplainerAlgorithm,
    GNNExplainer,
    GraphMaskExplainer,
    PGExplainer,
)
from torch_geometric.nn import GAT, GCN

import edgewise as ew
import oracles
import zoo
from checks import assert_close, graph_problem, node_problem, quietly, scores_of, with_batch
from footprint import Footprint
from pyg_small import CONFIG, small

pytest.importorskip("captum")
# PGExplainer.train returns float(loss) of a loss that still has its graph; torch 2.13 warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")

EPOCHS, TRAIN = 4, [0, 3]
LEARNED = {
    "gnn": lambda: GNNExplainer(epochs=EPOCHS),
    "pg": lambda: PGExplainer(epochs=EPOCHS),
    "graph_mask": lambda: GraphMaskExplainer(2, epochs=2, log=False),
    "dummy": DummyExplainer,
    "saliency": lambda: CaptumExplainer("Saliency", abs=False),
    "integrated": lambda: CaptumExplainer("IntegratedGradients", n_steps=5),
    "sampled": lambda: CaptumExplainer("ShapleyValueSampling", n_samples=2),
}


def algorithm_of(name):
    """PGExplainer draws its network when it is made: the same one each time."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return AttentionExplainer() if name == "attention" else LEARNED[name]()


def method(name):
    return ew.from_pyg(algorithm_of(name), train=TRAIN if name == "pg" else None)


def by_pyg(name, model, data, index, seed=0):
    """What PyG gives, typed as its documentation says, on a fresh copy of the model."""
    model, algorithm = copy.deepcopy(model), algorithm_of(name)
    with torch.random.fork_rng():
        kind = "model" if name == "attention" else "phenomenon"
        explainer = Explainer(model, algorithm, kind, CONFIG, edge_mask_type="object")
        target = None if name == "attention" else model(data.x, data.edge_index).detach().argmax(dim=-1)
        if name == "pg":
            torch.manual_seed(seed)
            for epoch in range(EPOCHS):
                for node in TRAIN:
                    algorithm.train(epoch, model, data.x, data.edge_index, target=target, index=node)
        torch.manual_seed(seed + index)
        mask = explainer(data.x, data.edge_index, target=target, index=index).edge_mask.detach()
        return mask.to(data.x.dtype)  # some versions of Captum give integrated gradients in doubles


def test_one_after_another_on_one_model_they_give_what_each_gives_on_a_fresh_one():
    model, data = small()
    for name in [*LEARNED, *reversed(LEARNED)]:
        found = ew.explain(model, data, index=[3, 5], method=method(name))
        for why in found:
            expected = by_pyg(name, model, data, int(why.index))
            assert torch.equal(why.scores, expected), name
            assert (why.scores != 0).any(), name


def test_attention_comes_between_them():
    model, data = small(GAT, heads=2)
    for name in ("gnn", "attention", "saliency", "attention", "gnn"):
        why = ew.explain(model, data, index=3, method=method(name))
        assert torch.equal(why.scores, by_pyg(name, model, data, 3)), name


@pytest.mark.parametrize("name", LEARNED)
def test_the_users_model_keeps_no_trace(name):
    (model, data), chosen = small(), method(name)
    model.train()
    before = Footprint(model, data)
    ew.explain(model, data, index=[3, 5], method=chosen)
    before.assert_unchanged()


def test_the_users_algorithm_stays_as_it_was():
    model, data = small()
    gnn, pg = GNNExplainer(epochs=2), PGExplainer(epochs=2)
    before = [dict(vars(algorithm)) for algorithm in (gnn, pg)]
    ew.explain(model, data, index=3, method=ew.from_pyg(gnn))
    ew.explain(model, data, index=3, method=ew.from_pyg(pg, train=[0]))
    for algorithm, state in zip((gnn, pg), before, strict=True):
        assert vars(algorithm).keys() == state.keys()
        assert all(vars(algorithm)[key] is value for key, value in state.items())
    assert all(torch.nn.parameter.is_lazy(p) or p.grad is None for p in pg.mlp.parameters())


class Broken(ExplainerAlgorithm):
    """Touches the model and gives up."""

    def forward(self, model, x, edge_index, *, target, index=None, **kwargs):
        for parameter in model.parameters():
            parameter.data.zero_()
        model.touched = True
        torch.rand(3)
        raise ValueError("nothing to see")

    def supports(self):
        return True


def test_an_algorithm_that_fails_leaves_no_trace_and_is_named():
    model, data = small()
    before = Footprint(model, data)
    with pytest.raises(ew.ModelError, match="Broken raised ValueError on node 3: nothing to see"):
        ew.explain(model, data, index=3, method=ew.from_pyg(Broken()))
    before.assert_unchanged()


# Captum's gradients are ours ##########################################################################################

SALIENCY = {"attribution_method": "Saliency", "abs": False}


def saliency():
    return ew.from_pyg(CaptumExplainer(**SALIENCY))


@pytest.mark.parametrize("case_name", ["gcn", "sage_mean", "gat_with_attributes", "gine", "binary", "regression"])
def test_captum_explains_the_number_that_is_asked_for(case_name):
    case, model, data, _ = node_problem(case_name, "parallel")
    asked = [{}]
    if case.mode != "regression":
        asked += [{"of": of, "target": target} for of in ("logit", "log_prob", "prob") for target in (0, 1)]
    for one in asked:
        options = {**case.arguments, **one}
        found = scores_of(ew.explain(model, data, method=saliency(), **options))
        assert_close(found, scores_of(ew.explain(model, data, **options)), 1e-5)


@pytest.mark.parametrize("case_name", ["takes_data", "takes_data_and_positions", "gcn_with_weights", "sequential"])
def test_models_that_are_called_in_their_own_way_are_explained(case_name):
    case, model, data, _ = node_problem(case_name, "weighted" if "weights" in case_name else "directed")
    found = scores_of(ew.explain(model, data, method=saliency(), **case.arguments))
    expected = scores_of(ew.explain(model, data, **case.arguments))
    loops = data.edge_index[0] == data.edge_index[1]
    assert_close(found[:, ~loops], expected[:, ~loops], 1e-5)


@pytest.mark.parametrize("case_name", ["gcn", "gat_with_attributes", "sage_mean"])
def test_loops_on_every_node_do_not_mix_up_the_masks(case_name):
    case, model, data, _ = node_problem(case_name, "loops_on_all_shuffled")
    found = scores_of(ew.explain(model, data, method=saliency(), **case.arguments))
    assert_close(found, scores_of(ew.explain(model, data, **case.arguments)), 1e-5)


@pytest.mark.parametrize("case_name", ["sum_pool", "pooled_binary", "pooled_regression", "pooled_with_attributes"])
def test_graphs_are_explained_one_after_another(case_name):
    case, model, _, _ = graph_problem(case_name, "directed")
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "parallel", "isolated")]
    options = {"task": "graph", "index": [2, 0], **case.arguments}
    with quietly(case):
        found = ew.explain(model, graphs, method=saliency(), **options)
        expected = ew.explain(model, graphs, **options)
    for one, other in zip(found, expected, strict=True):
        assert_close(one.scores, other.scores, 1e-5)
        assert (one.index, one.target) == (other.index, other.target)


def test_a_poisoned_model_is_explained_all_the_same():
    model, data = small()
    expected = ew.explain(model, data, index=3, method=saliency()).scores
    Explainer(model, GNNExplainer(epochs=1), "model", CONFIG, edge_mask_type="object")(data.x, data.edge_index, index=1)
    assert "_edge_mask" in model.convs[0]._parameters
    assert torch.equal(ew.explain(model, data, index=3, method=saliency()).scores, expected)


# GNNExplainer is ours, too ############################################################################################


@pytest.mark.parametrize("case_name", ["gcn", "binary", "regression"])
def test_gnn_explainer_through_pyg_equals_our_own_from_the_same_start(case_name):
    case, model, data, _ = node_problem(case_name, "directed")
    settings = {"epochs": 10, "lr": 0.05}
    found = ew.explain(model, data, index=4, method=ew.from_pyg(GNNExplainer(**settings)), **case.arguments, seed=7)
    start = oracles.pyg_start(data.num_edges, data.num_nodes, seed=7 + 4)
    ours = ew.explain(model, data, index=4, method="gnn_explainer", init=start, **settings, **case.arguments)
    assert_close(found.scores, ours.scores, 1e-5)


def test_gnn_explainer_on_graphs():
    _, model, data, _ = graph_problem("mean_pool", "directed")
    found = ew.explain(model, data, task="graph", method=ew.from_pyg(GNNExplainer(epochs=10)))
    start = oracles.pyg_start(data.num_edges, data.num_nodes, seed=0)
    ours = ew.explain(model, data, task="graph", method="gnn_explainer", epochs=10, init=start)
    assert_close(found.scores, ours.scores, 1e-5)


def test_a_class_that_is_asked_for_is_explained():
    model, data = small()
    scores = [ew.explain(model, data, index=3, target=c, method=method("gnn")).scores for c in range(3)]
    assert not torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[1], scores[2])


# PGExplainer ##########################################################################################################


def test_an_untrained_pg_explainer_says_what_to_type():
    model, data = small()
    with pytest.raises(ew.SettingError, match=r"0 of 3 epochs.*ew.from_pyg\(algorithm, train=range\(100\)\)"):
        ew.explain(model, data, index=3, method=ew.from_pyg(PGExplainer(epochs=3)))


def test_a_trained_pg_explainer_is_used_as_it_is():
    model, data = small()
    fresh = copy.deepcopy(model)
    algorithm = PGExplainer(epochs=2, lr=0.1)
    explainer = Explainer(fresh, algorithm, "phenomenon", CONFIG, edge_mask_type="object")
    target = fresh(data.x, data.edge_index).detach().argmax(dim=-1)
    for epoch in range(2):
        algorithm.train(epoch, fresh, data.x, data.edge_index, target=target, index=0)
    expected = explainer(data.x, data.edge_index, target=target, index=3).edge_mask
    assert torch.equal(ew.explain(model, data, index=3, method=ew.from_pyg(algorithm)).scores, expected)
    with pytest.raises(ew.SettingError, match="Leave train out"):
        ew.explain(model, data, index=3, method=ew.from_pyg(algorithm, train=[0]))


def test_a_pg_explainer_is_trained_on_graphs_too():
    _, model, _, _ = graph_problem("mean_pool", "directed")
    model = copy.deepcopy(model).float()
    graphs = [with_batch(zoo.GRAPHS[name]()) for name in ("directed", "parallel")]
    for graph in graphs:
        graph.x = graph.x.float()
    found = ew.explain(model, graphs, task="graph", method=ew.from_pyg(PGExplainer(epochs=2, lr=0.1), train=[0, 1]))
    assert (found[0].scores > 0).all()
    untrained = ew.from_pyg(PGExplainer(epochs=1, lr=1e-9), train=[0])
    other = ew.explain(model, graphs, task="graph", method=untrained)
    assert not torch.allclose(found[0].scores, other[0].scores)


def test_coefficients_are_those_at_the_time_of_from_pyg():
    model, data = small()
    chosen = ew.from_pyg(PGExplainer(epochs=2, lr=0.1, edge_size=0.05), train=[0])
    expected = ew.explain(model, data, index=3, method=chosen).scores
    PGExplainer(epochs=2, edge_size=50.0)
    assert torch.equal(ew.explain(model, data, index=3, method=chosen).scores, expected)


# Around it ############################################################################################################


def test_results_depend_on_the_seed_and_on_nothing_else():
    model, data = small()
    one = ew.explain(model, data, index=[2, 3, 5], method=method("gnn"))
    other = ew.explain(model, data, index=[5, 2, 3], method=method("gnn"), batch_size=1)
    for why in one:
        assert torch.equal(why.scores, other.of(int(why.index)).scores)
    assert not torch.equal(one[0].scores, ew.explain(model, data, index=2, method=method("gnn"), seed=1).scores)
    assert not torch.equal(*(ew.explain(model, data, index=i, method=method("dummy")).scores for i in (2, 3)))


def test_a_result_is_like_any_other(tmp_path):
    model, data = small()
    found = ew.explain(model, data, index=[2, 3], method=method("saliency"), top=3)
    assert found.method == "CaptumExplainer(Saliency)"
    assert (found.settings["way"], found[0].self_scores) == ("outside", None)
    assert found.settings["algorithm"] == "CaptumExplainer(Saliency)(abs=False)"
    gnn = ew.explain(model, data, index=3, method=ew.from_pyg(GNNExplainer(epochs=2, edge_size=0.1)))
    assert "epochs=2" in gnn.settings["algorithm"]
    assert "edge_size=0.1" in gnn.settings["algorithm"]
    assert (found[0].scores != 0).sum() <= 3
    found.save(tmp_path / "found.npz")
    assert torch.equal(ew.load(tmp_path / "found.npz")[1].scores, found[1].scores)
    gradient = ew.explain(model, data, index=[2, 3], top=3)
    assert_close(ew.similarity(found, gradient).double(), torch.ones(2, dtype=torch.double), 1e-5)


class OnlyTheModel(DummyExplainer):
    """Takes no class."""

    def supports(self):
        return self.explainer_config.explanation_type.value == "model"


def test_an_algorithm_that_takes_no_class_explains_the_prediction():
    model, data = small()
    found = ew.explain(model, data, index=3, method=ew.from_pyg(OnlyTheModel()))
    assert torch.equal(found.scores, ew.explain(model, data, index=3, method=method("dummy")).scores)
    with pytest.raises(ew.SettingError, match="Leave target out"):
        ew.explain(model, data, index=3, target=(found.target + 1) % 3, method=ew.from_pyg(OnlyTheModel()))


def test_what_does_not_fit_is_refused():
    model, data = small()
    with pytest.raises(ew.SettingError, match=r"GNNExplainer.epochs=100"):
        ew.from_pyg(GNNExplainer)
    with pytest.raises(ew.SettingError, match="needs no training"):
        ew.from_pyg(GNNExplainer(), train=[0])
    with pytest.raises(ew.SettingError, match=r"no level 'layer'. Use level='input'"):
        ew.explain(model, data, index=1, level="layer", method=method("gnn"))
    with pytest.raises(ew.SettingError, match="no setting 'epochs'"):
        ew.explain(model, data, index=1, method=method("gnn"), epochs=3)
    with pytest.raises(ew.ModelError, match="attention-based"):
        ew.explain(model, data, index=1, method=ew.from_pyg(AttentionExplainer()))
    gat, _ = small(GAT)
    other = (int(gat(data.x, data.edge_index)[1].argmax()) + 1) % 3
    with pytest.raises(ew.SettingError, match="Leave target out"):
        ew.explain(gat, data, index=1, target=other, method=ew.from_pyg(AttentionExplainer()))


def test_on_a_large_graph_a_mask_is_pygs_whoever_else_is_asked_about():
    """Of a large graph only neighbourhoods are run, but PyG's start depends on the number of its nodes."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(9000, (2, 36000), generator=generator).unique(dim=1)
    data = Data(x=torch.randn(9000, 8, generator=generator), edge_index=edge_index)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GCN(8, 4, 2, 3).eval()
    assert not ew.Question(model, data, [7])._posed.cut.is_whole
    alone = ew.explain(model, data, 7, method=method("gnn"), seed=3)
    among = ew.explain(model, data, [5, 7, 11], method=method("gnn"), seed=3)
    torch.testing.assert_close(alone.scores, among[1].scores)
    wanted = by_pyg("gnn", model, data, 7, seed=3)
    torch.testing.assert_close(alone.scores, wanted.to(alone.scores.dtype))
