"""`EdgewiseExplainer` under every setting of PyG's `Explainer`, against slopes taken by PyG's own masks and autograd."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_hetero_masks, set_masks
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv, global_add_pool

import edgewise as ew
from checks import assert_close, one_in
from footprint import Footprint

KINDS = [("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "written_by", "author")]
COUNTS = {"paper": 8, "author": 10}
WIDTHS = {"paper": 5, "author": 3}


class Net(nn.Module):
    """Two layers; rows of nodes, of pairs or of graphs; scores, probabilities or log-probabilities."""

    def __init__(self, task, columns, returns, gain=1.0):
        super().__init__()
        self.one, self.two = GCNConv(3, 6), GCNConv(6, columns)
        self.task, self.returns, self.gain = task, returns, gain

    def forward(self, x, edge_index, batch=None, edge_label_index=None):
        x = self.gain * self.two(self.one(x, edge_index).relu(), edge_index)
        if self.task == "graph":
            x = global_add_pool(x, batch)
        if self.task == "edge":
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        if self.returns == "raw":
            return x
        if x.size(1) == 1:
            return x.sigmoid()
        return x.softmax(dim=1) if self.returns == "probs" else x.log_softmax(dim=1)


class TypedNet(nn.Module):
    """Two layers over three relations; rows of papers, of pairs of papers, or one of the graph."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.one = HeteroConv({kind: SAGEConv((WIDTHS[kind[0]], WIDTHS[kind[2]]), 6) for kind in KINDS})
        self.two = HeteroConv({kind: SAGEConv((6, 6), 4) for kind in KINDS})

    def forward(self, x_dict, edge_index_dict, weight_dict=None, pairs=None):
        if weight_dict is not None:
            x_dict = {name: x * weight_dict[name] for name, x in x_dict.items()}
        hidden = {name: x.relu() for name, x in self.one(x_dict, edge_index_dict).items()}
        paper = self.two(hidden, edge_index_dict)["paper"]
        if self.task == "graph":
            return paper.relu().sum(dim=0, keepdim=True)
        return paper[pairs[0]] * paper[pairs[1]] if self.task == "edge" else paper


def trained(model):
    """A model in float64 whose biases are not zero."""
    torch.manual_seed(3)
    for parameter in model.double().parameters():
        nn.init.normal_(parameter, std=0.7)
    return model.eval()


def graph():
    """Eight nodes on a path, both ways; three graphs in the batch, with edges between them."""
    ends = torch.arange(7)
    edges = torch.cat([torch.stack([ends, ends + 1]), torch.stack([ends + 1, ends])], dim=1)
    torch.manual_seed(0)
    return torch.randn(8, 3).double(), edges, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])


def typed_graph():
    torch.manual_seed(0)
    x = {name: torch.randn(count, WIDTHS[name]).double() for name, count in COUNTS.items()}
    edges = {
        kind: torch.stack([torch.randint(0, COUNTS[kind[0]], (12,)), torch.randint(0, COUNTS[kind[2]], (12,))])
        for kind in KINDS
    }
    return x, edges


def explainer(model, algorithm, task, mode, returns, nodes="attributes", kind="model", edges="object"):
    return Explainer(
        model,
        algorithm,
        explanation_type=kind,
        node_mask_type=nodes,
        edge_mask_type=edges,
        model_config={"mode": mode, "task_level": task, "return_type": returns},
    )


def value(rows, index, target, mode, returns):
    """The explained numbers, added up."""
    rows = rows if index is None else rows[index].view(-1, rows.size(1))
    if mode == "regression":
        return rows.sum()
    target = target if index is None else target[index].view(-1)
    if mode == "binary_classification":
        other = 1 - rows if returns == "probs" else -rows
        return torch.where(target.view(-1, 1) == 1, rows, other).sum()
    return rows.gather(1, target.view(-1, 1)).sum()


def slopes(model, x, edge_index, extras, *number):
    """∂/∂(weight of each edge) and x · ∂/∂x, by PyG's masks and autograd; dictionaries for typed graphs."""
    typed = isinstance(x, dict)
    kinds = list(edge_index) if typed else [None]
    weights = [torch.ones((edge_index[k] if typed else edge_index).size(1)).double().requires_grad_() for k in kinds]
    inputs = [part.clone().requires_grad_() for part in (x.values() if typed else [x])]
    if typed:
        set_hetero_masks(model, dict(zip(kinds, weights, strict=True)), edge_index, apply_sigmoid=False)
    else:
        set_masks(model, weights[0], edge_index, apply_sigmoid=False)
    rows = model(dict(zip(x, inputs, strict=True)) if typed else inputs[0], edge_index, **extras)
    found = torch.autograd.grad(value(rows, *number), [*weights, *inputs], allow_unused=True)
    clear_masks(model)
    found = [
        torch.zeros_like(one) if part is None else part for part, one in zip(found, [*weights, *inputs], strict=True)
    ]
    edges, nodes = found[: len(kinds)], [a.detach() * b for a, b in zip(inputs, found[len(kinds) :], strict=True)]
    return (dict(zip(kinds, edges, strict=True)), dict(zip(x, nodes, strict=True))) if typed else (edges[0], nodes[0])


SETTINGS = [
    (task, mode, returns)
    for task in ("node", "edge", "graph")
    for mode, returns in [
        ("multiclass_classification", "raw"),
        ("multiclass_classification", "probs"),
        ("multiclass_classification", "log_probs"),
        ("binary_classification", "raw"),
        ("binary_classification", "probs"),
        ("regression", "raw"),
    ]
]


def posed(task, mode, returns, **more):
    model = trained(Net(task, 4 if mode.startswith("multi") else 1, returns, **more))
    x, edges, batch = graph()
    extras = {"batch": batch, "edge_label_index": torch.tensor([[0, 1, 2, 5], [3, 4, 5, 5]])}
    return model, x, edges, extras


@pytest.mark.parametrize(("task", "mode", "returns"), one_in(3, SETTINGS))
def test_masks_are_slopes_of_what_the_model_returns(task, mode, returns):
    model, x, edges, extras = posed(task, mode, returns)
    inside = explainer(model, ew.EdgewiseExplainer(), task, mode, returns)
    for index in (2, torch.tensor([0, 2]), None):
        found = inside(x, edges, index=index, **extras)
        of_edges, of_nodes = slopes(model, x, edges, extras, index, found.target, mode, returns)
        assert_close(found.edge_mask, of_edges, 1e-9)
        assert_close(found.node_mask, of_nodes, 1e-9)


@pytest.mark.parametrize("task", ["node", "edge", "graph"])
def test_node_masks_are_summed_over_features_or_nodes(task):
    model, x, edges, extras = posed(task, "multiclass_classification", "raw")
    settings = (task, "multiclass_classification", "raw")
    full = explainer(model, ew.EdgewiseExplainer(), *settings)(x, edges, index=1, **extras).node_mask
    for nodes, expected in [("object", full.sum(1, keepdim=True)), ("common_attributes", full.sum(0, keepdim=True))]:
        found = explainer(model, ew.EdgewiseExplainer(), *settings, nodes=nodes, edges=None)(
            x, edges, index=1, **extras
        )
        assert_close(found.node_mask, expected, 1e-12)
        assert "edge_mask" not in found


def test_graphs_of_a_batch_without_edges_between_them_are_asked_about_one_by_one():
    model, x, edges, extras = posed("graph", "multiclass_classification", "probs")
    same = extras["batch"][edges[0]] == extras["batch"][edges[1]]
    edges = edges[:, same]
    inside = explainer(model, ew.EdgewiseExplainer(level="layer"), "graph", "multiclass_classification", "probs")
    found = inside(x, edges, index=torch.tensor([2, 0]), **extras)
    of_edges, of_nodes = slopes(
        model,
        x,
        edges,
        extras,
        torch.tensor([2, 0]),
        found.target,
        "multiclass_classification",
        "probs",
    )
    assert_close(found.edge_mask, of_edges, 1e-9)
    assert_close(found.layer_edge_mask.sum(dim=1), of_edges, 1e-9)
    assert_close(found.node_mask, of_nodes, 1e-9)


def test_a_graph_that_is_another_one_in_its_batch_is_explained_there():
    class Shared(Net):
        def forward(self, x, edge_index, batch):
            return super().forward(x - x.mean(dim=0), edge_index, batch)  # the mean is that of all graphs

    model = trained(Shared("graph", 4, "raw"))
    x, edges, batch = graph()
    edges = edges[:, batch[edges[0]] == batch[edges[1]]]
    settings = ("graph", "multiclass_classification", "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        found = explainer(model, ew.EdgewiseExplainer(), *settings)(x, edges, index=1, batch=batch)
    of_edges, of_nodes = slopes(model, x, edges, {"batch": batch}, torch.tensor([1]), found.target, *settings[1:])
    assert_close(found.edge_mask, of_edges, 1e-9)
    assert_close(found.node_mask, of_nodes, 1e-9)


def test_equal_rows_by_chance_are_no_proof_that_a_graph_is_alone():
    class Centred(Net):
        def forward(self, x, edge_index, batch):
            hidden = self.one(x, edge_index)
            waves = (torch.pi * (hidden - hidden.mean(dim=0))).sin()  # the mean is that of all graphs
            return global_add_pool(self.two(waves, edge_index), batch)

    x, edges, batch = graph()
    edges = edges[:, batch[edges[0]] == batch[edges[1]]]
    model = trained(Centred("graph", 4, "raw"))
    model.one.lin.weight.data.fill_(1 / 3)
    hidden = model.one(x, edges).detach()
    x[3:5] += (
        (1 - (hidden[3, 0] - hidden[:, 0].mean())) * 8 / 6
    )  # both nodes of graph 1 are now 1 above the mean of all
    row, alone = model(x, edges, batch)[1], model(x[3:5], torch.tensor([[0, 1], [1, 0]]), batch[:2])[0]
    assert torch.allclose(row, alone)  # the waves are 0 there, as they are at the mean of the graph alone
    settings = ("graph", "multiclass_classification", "raw")
    found = explainer(model, ew.EdgewiseExplainer(), *settings)(x, edges, index=1, batch=batch)
    of_edges, of_nodes = slopes(model, x, edges, {"batch": batch}, torch.tensor([1]), found.target, *settings[1:])
    assert_close(found.edge_mask, of_edges, 1e-9)
    assert_close(found.node_mask, of_nodes, 1e-9)


@pytest.mark.parametrize("returns", ["raw", "probs"])
def test_the_given_class_of_a_phenomenon_is_explained(returns):
    model, x, edges, extras = posed("edge", "multiclass_classification", returns)
    settings = ("edge", "multiclass_classification", returns)
    target = torch.tensor([3, 0, 2, 1])
    found = explainer(model, ew.EdgewiseExplainer(), *settings, kind="phenomenon")(
        x, edges, target=target, index=torch.tensor([1, 3]), **extras
    )
    of_edges, of_nodes = slopes(model, x, edges, extras, torch.tensor([1, 3]), target, *settings[1:])
    assert_close(found.edge_mask, of_edges, 1e-9)
    assert_close(found.node_mask, of_nodes, 1e-9)


# --- masks in [0, 1] ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", one_in(2, ["edge", "node", "graph"]))
def test_masks_of_several_indices_are_the_largest_of_each(task):
    model, x, edges, extras = posed(task, "multiclass_classification", "probs")
    for algorithm in (
        ew.EdgewiseExplainer("gnn_explainer", epochs=3, level="layer"),
        ew.EdgewiseExplainer("occlusion", scale="unit"),
    ):
        inside = explainer(model, algorithm, task, "multiclass_classification", "probs")
        together = inside(x, edges, index=torch.tensor([0, 2]), **extras)
        alone = [inside(x, edges, index=index, **extras) for index in (0, 2)]
        for name in together.available_explanations:
            mask = together[name]
            assert 0 <= float(mask.min()) <= float(mask.max()) <= 1
            assert_close(mask, torch.maximum(alone[0][name], alone[1][name]), 1e-6)


@pytest.mark.parametrize("mode", ["multiclass_classification", "binary_classification"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_saturated_probabilities_have_finite_masks(task, mode):
    model, x, edges, extras = posed(task, mode, "probs", gain=1e4)
    model.float()
    for method in ("gradient", "occlusion", "gnn_explainer"):
        settings = {"epochs": 2} if method == "gnn_explainer" else {}
        found = explainer(model, ew.EdgewiseExplainer(method, **settings), task, mode, "probs")(
            x.float(), edges, index=1, **extras
        )
        assert float(found.prediction[1].max()) in (0.0, 1.0)
        assert torch.isfinite(found.edge_mask).all()
        assert torch.isfinite(found.node_mask).all()


def test_random_masks_ask_nothing_of_the_model():
    class Nothing(nn.Module):
        def forward(self, x, edge_index):
            return x

    x, edges, _ = graph()
    settings = ("node", "multiclass_classification", "raw")
    found = explainer(Nothing(), ew.EdgewiseExplainer("random", seed=5), *settings)(x, edges, index=3)
    again = explainer(Nothing(), ew.EdgewiseExplainer("random", seed=5), *settings)(x, edges, index=3)
    assert torch.equal(found.edge_mask, again.edge_mask)
    assert torch.equal(found.node_mask, again.node_mask)
    assert len(found.node_mask.unique()) == found.node_mask.numel()
    with pytest.raises(ew.ModelError, match="no message-passing layer"):
        explainer(Nothing(), ew.EdgewiseExplainer(), *settings)(x, edges, index=3)


# --- typed graphs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["node", "edge", "graph"])
def test_typed_masks_are_slopes_of_what_the_model_returns(task):
    model, (x, edges) = trained(TypedNet(task)), typed_graph()
    extras = {"weight_dict": {name: torch.rand(len(one), 1).double() for name, one in x.items()}}
    if task == "edge":
        extras["pairs"] = torch.randint(0, COUNTS["paper"], (2, 13))
    settings = ("multiclass_classification", "raw")
    inside = explainer(model, ew.EdgewiseExplainer(level="layer"), task, *settings)
    for index in (0, None) if task == "graph" else (2, torch.tensor([5, 0])):
        found = inside(x, edges, index=index, **extras)
        of_edges, of_nodes = slopes(model, x, edges, extras, index, found.target, *settings)
        for kind in KINDS:
            assert_close(found[kind].edge_mask, of_edges[kind], 1e-9)
            assert_close(found[kind].layer_edge_mask.sum(dim=1), of_edges[kind], 1e-9)
        for name in x:
            assert_close(found[name].node_mask, of_nodes[name], 1e-9)


def test_own_messages_of_typed_models_are_refused_and_degrees_are_not():
    class Own(TypedNet):
        def forward(self, x_dict, edge_index_dict, weight_dict=None):
            (ends, paper), rows = (edge_index_dict[KINDS[1]], x_dict["paper"]), x_dict["author"].sum(1)
            received = torch.zeros_like(paper[:, 0]).index_add(
                0, ends[1], rows[ends[0]] if self.sends else rows.new_ones(12)
            )
            return super().forward({**x_dict, "paper": paper * received.view(-1, 1)}, edge_index_dict, weight_dict)

    x, edges = typed_graph()
    extras = {"weight_dict": {name: torch.rand(len(one), 1).double() for name, one in x.items()}}
    for sends in (True, False):
        model = trained(Own("node"))
        model.sends = sends
        inside = explainer(model, ew.EdgewiseExplainer(), "node", "multiclass_classification", "raw", edges=None)
        if sends:
            with pytest.raises(ew.ModelError, match="by code of its own, at test_pyg_settings"):
                inside(x, edges, index=2, **extras)
        else:
            assert inside(x, edges, index=2, **extras)["paper"].node_mask.any()


def test_more_rows_than_nodes_are_explained_in_parts():
    model, (x, edges) = trained(TypedNet("edge")), typed_graph()
    extras = {"pairs": torch.randint(0, COUNTS["paper"], (2, 23))}
    settings = ("edge", "multiclass_classification", "raw")
    found = explainer(model, ew.EdgewiseExplainer(), *settings, nodes=None)(x, edges, **extras)
    of_edges, _ = slopes(model, x, edges, extras, None, found.target, *settings[1:])
    for kind in KINDS:
        assert_close(found[kind].edge_mask, of_edges[kind], 1e-9)


def test_rows_that_may_be_of_two_types_are_explained_on_the_whole_graph():
    model, (x, edges) = trained(TypedNet("node")), typed_graph()
    x["author"] = x["author"][:8]
    edges = {kind: ends.clamp(max=7) for kind, ends in edges.items()}
    settings = ("node", "multiclass_classification", "raw")
    with pytest.warns(ew.OutputWarning, match="node_type='paper'"):
        found = explainer(model, ew.EdgewiseExplainer(), *settings)(x, edges, index=3)
    named = explainer(model, ew.EdgewiseExplainer(node_type="paper"), *settings)(x, edges, index=3)
    of_edges, _ = slopes(model, x, edges, {}, 3, found.target, *settings[1:])
    for kind in KINDS:
        assert_close(found[kind].edge_mask, of_edges[kind], 1e-9)
        assert_close(named[kind].edge_mask, of_edges[kind], 1e-9)
    with pytest.raises(ew.InputError, match="node_type"):
        explainer(model, ew.EdgewiseExplainer(node_type="venue"), *settings)(x, edges, index=3)


def test_a_wrong_node_type_costs_time_not_truth():
    model, (x, edges) = trained(TypedNet("node")), typed_graph()
    x["author"] = x["author"][:8]
    edges = {kind: ends.clamp(max=7) for kind, ends in edges.items()}
    settings = ("node", "multiclass_classification", "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        wrong = explainer(model, ew.EdgewiseExplainer(node_type="author"), *settings, nodes=None)(x, edges, index=3)
    of_edges, _ = slopes(model, x, edges, {}, 3, wrong.target, *settings[1:])
    for kind in KINDS:
        assert_close(wrong[kind].edge_mask, of_edges[kind], 1e-9)


# --- nothing foreign, nothing left behind ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": 8}, "rows of the model's output, 0 to 7"),
        ({"index": torch.zeros(8, dtype=torch.bool)}, "at least one"),
        ({"target": torch.zeros(3, dtype=torch.long), "index": 1}, "a class, a whole number, for each of the 8 rows"),
        ({"target": torch.full((8,), 9), "index": 1}, "target names class 9"),
    ],
)
def test_what_does_not_fit_is_refused_in_our_words(arguments, message):
    model, x, edges, _ = posed("node", "multiclass_classification", "raw")
    inside = explainer(model, ew.EdgewiseExplainer(), "node", "multiclass_classification", "raw", kind="phenomenon")
    with pytest.raises(ew.EdgewiseError, match=message):
        inside(x, edges, **{"target": torch.zeros(8, dtype=torch.long), **arguments})


@pytest.mark.parametrize(
    "inputs",
    [
        lambda x, edges: (x, {KINDS[0]: edges}),
        lambda x, edges: ({"paper": x}, edges),
        lambda x, edges: (None, edges),
        lambda x, edges: ({}, {}),
        lambda x, edges: (x, edges.float()),
        lambda x, edges: (x, edges.t()),
        lambda x, edges: (x, torch.sparse_coo_tensor(edges, torch.ones(14).double(), (8, 8))),
        lambda x, edges: (x, edges + 1),
        lambda x, edges: (x / 0, edges),
        lambda x, edges: (x.long(), edges),
        lambda x, edges: ({"paper": x}, {("paper", "cites", "venue"): edges}),
    ],
)
@pytest.mark.parametrize("task", one_in(2, ["graph", "node"]))
def test_other_kinds_of_input_are_refused_in_our_words(inputs, task):
    model, x, edges, extras = posed(task, "multiclass_classification", "raw")
    x, edges = inputs(x, edges)
    algorithm = ew.EdgewiseExplainer()
    algorithm.connect(
        {"explanation_type": "phenomenon", "node_mask_type": "attributes", "edge_mask_type": "object"},
        {"mode": "multiclass_classification", "task_level": task, "return_type": "raw"},
    )
    with pytest.raises(ew.EdgewiseError):
        algorithm(model, x, edges, target=torch.zeros(8 if task == "node" else 3, dtype=torch.long), **extras)


def test_a_regression_with_several_outputs_is_refused():
    model, x, edges, _ = posed("node", "multiclass_classification", "raw")
    with pytest.raises(ew.InputError, match="no one number"):
        explainer(model, ew.EdgewiseExplainer(), "node", "regression", "raw")(x, edges, index=1)


def test_masks_that_score_nodes_have_no_features(caplog):
    model, *_ = posed("node", "multiclass_classification", "raw")
    with pytest.raises(ValueError, match="does not support"):
        explainer(model, ew.EdgewiseExplainer(features="cam"), "node", "multiclass_classification", "raw")
    assert "node_mask_type='object'" in caplog.text


@pytest.mark.parametrize("task", ["node", "edge", "graph"])
def test_the_model_is_left_as_it_was(task):
    model, x, edges, extras = posed(task, "multiclass_classification", "probs")
    inside = explainer(model, ew.EdgewiseExplainer(), task, "multiclass_classification", "probs", kind="phenomenon")
    rows = {"node": 8, "edge": 4, "graph": 3}[task]
    before = Footprint(model, Data(x=x, edge_index=edges, **extras))
    inside(x, edges, target=torch.zeros(rows, dtype=torch.long), index=1, **extras)
    before.assert_unchanged()
