"""Bad input gets a clear error of ours, before any long work; the text names what came and what is needed."""

import re
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import to_torch_coo_tensor

import edgewise as ew
import zoo

NODES, CLASSES = 7, 3


class Counting(zoo.Chain):
    """Counts its forward passes, outside of the model."""

    calls: ClassVar[list[None]] = []

    def forward(self, x, edge_index):
        Counting.calls.append(None)
        return super().forward(x, edge_index)


@pytest.fixture
def model():
    Counting.calls.clear()
    return zoo.randomise(Counting(GCNConv(5, 4), GCNConv(4, CLASSES)))


@pytest.fixture
def data():
    full = zoo.GRAPHS["directed"]()
    return Data(x=full.x, edge_index=full.edge_index)


def refused(*needles, **arguments):
    """Call `explain`, expect an error of ours whose text matches every needle, after four forward passes at most."""
    model, data = arguments.pop("model"), arguments.pop("data")
    Counting.calls.clear()
    with pytest.raises(ew.EdgewiseError) as caught:
        ew.explain(model, data, **arguments)
    text = str(caught.value)
    for needle in needles:
        assert re.search(needle, text, re.IGNORECASE), f"/{needle}/ is not in: {text}"
    assert len(text) > 20, f"too short to help: {text}"
    assert len(Counting.calls) <= 4, f"{len(Counting.calls)} forward passes before the refusal"
    return text


# The index ############################################################################################################


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (NODES, NODES),
        (99, 99),
        (-99, -99),
        ([0, 99], 99),
        (torch.tensor([0, 99]), 99),
        (range(5, 100), "7|99"),
        ([0, -99], -99),
    ],
)
def test_an_index_out_of_range_is_refused(model, data, index, wrong):
    refused(str(wrong), r"\b7\b|\b6\b", model=model, data=data, index=index)


@pytest.mark.parametrize(
    "index", [[], (), range(0), slice(5, 5), torch.tensor([], dtype=torch.long), torch.zeros(NODES, dtype=torch.bool)]
)
def test_an_empty_index_is_refused(model, data, index):
    refused(r"empty|no node|none|nothing|at least one|selects no", model=model, data=data, index=index)


@pytest.mark.parametrize(
    ("index", "came"),
    [
        (1.5, r"1\.5|float"),
        ([0, 0.5], r"0\.5|float"),
        ("three", "three|str"),
        (["a"], "'a'|str"),
        ([None], "None"),
        (torch.tensor([0.5]), "float|0.5"),
        ({"node": 3}, "dict|node"),
        (object(), "object"),
    ],
)
def test_an_index_that_is_no_whole_number_is_refused(model, data, index, came):
    refused(came, "whole|integer|int", model=model, data=data, index=index)


def test_a_mask_of_another_length_is_refused(model, data):
    refused(r"\b3\b", r"\b7\b", model=model, data=data, index=torch.tensor([True, False, True]))


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.uint8])
def test_an_index_with_two_axes_is_refused(model, data, dtype):
    refused(r"7, 10|shape|dimension", model=model, data=data, index=torch.ones(NODES, 10, dtype=dtype))


# The class ############################################################################################################


@pytest.mark.parametrize("target", [CLASSES, 17, -1, [0, 17]])
def test_a_class_out_of_range_is_refused(model, data, target):
    wrong = target[-1] if isinstance(target, list) else target
    refused(rf"(?<!\d){wrong}\b", r"\b3\b|\b2\b", model=model, data=data, index=[0, 1], target=target)


def test_a_third_class_of_one_logit_is_refused(data):
    refused(r"\b2\b", r"0|1|binary", model=zoo.BY_NAME["binary"].build(), data=data, index=0, target=2)


@pytest.mark.parametrize("target", [0.5, "cat", [0.5, 1]])
def test_a_class_that_is_no_whole_number_is_refused(model, data, target):
    refused(r"0\.5|cat|float|str", model=model, data=data, index=[0, 1], target=target)


def test_a_list_of_classes_of_another_length_is_refused(model, data):
    refused(r"\b2\b", r"\b3\b", model=model, data=data, index=[0, 1, 2], target=[0, 1])


# Numbers ##############################################################################################################


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_features_that_are_no_numbers_are_refused(model, data, value):
    data.x[3, 1] = value
    refused(r"nan|inf|finite", r"\bx\b|feature", model=model, data=data, index=0)


@pytest.mark.parametrize("name", ["edge_attr", "edge_weight"])
def test_edge_features_that_are_no_numbers_are_refused(data, name):
    case = zoo.BY_NAME["gine" if name == "edge_attr" else "gcn_with_weights"]
    shape = (data.edge_index.shape[1], zoo.EDGE_FEATURES) if name == "edge_attr" else (data.edge_index.shape[1],)
    data[name] = torch.ones(shape, dtype=torch.float64)
    data[name][2] = float("nan")
    refused("nan|finite", name, model=case.build(), data=data, index=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_outputs_that_are_no_numbers_are_refused(data, value):
    class Broken(zoo.Chain):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index) * value

    refused(r"nan|inf|finite", "output|model", model=zoo.randomise(Broken(GCNConv(5, CLASSES))), data=data, index=0)


# The graph ############################################################################################################


@pytest.mark.parametrize("wrong", ["turned", "three rows", "flat"])
def test_an_edge_index_of_another_shape_is_refused(model, data, wrong):
    edge_index = data.edge_index
    shapes = {
        "turned": edge_index.t(),
        "three rows": torch.cat([edge_index, edge_index[:1]]),
        "flat": edge_index.reshape(-1),
    }
    data.edge_index = shapes[wrong].contiguous()
    came = ", ".join(str(part) for part in data.edge_index.shape)
    refused("edge_index", came, r"\[2, ?\w+\]|2 rows|two rows|\(2, ", model=model, data=data, index=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool, torch.complex64])
def test_an_edge_index_of_another_dtype_is_refused(model, data, dtype):
    data.edge_index = data.edge_index.to(dtype)
    refused("edge_index", str(dtype).removeprefix("torch."), "long|int", model=model, data=data, index=0)


@pytest.mark.parametrize("node", [NODES, 1000, -1])
def test_an_edge_that_names_a_node_that_does_not_exist_is_refused(model, data, node):
    data.edge_index[0, 4] = node
    refused("edge_index", str(node), r"\b7\b|\b6\b", model=model, data=data, index=0)


def test_data_without_features_is_refused(model, data):
    refused(r"\bx\b", model=model, data=Data(edge_index=data.edge_index, num_nodes=NODES), index=0)


def test_data_without_edges_at_all_is_refused(model, data):
    refused("edge_index", model=model, data=Data(x=data.x), index=0)


@pytest.mark.parametrize("thing", [None, "graph", 3, {"x": torch.ones(2, 2)}, torch.ones(3, 3)])
def test_what_is_no_graph_is_refused(model, thing):
    refused("Data", type(thing).__name__, model=model, data=thing, index=0)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_sparse_features_are_refused(model, data, layout, task):
    data.x = data.x.to_sparse(layout=layout)
    given = data if task == "node" else [data]
    refused(r"\.x\b", "dense", "sparse", "to_dense", model=model, data=given, index=0, task=task)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_edge_features_are_refused(data):
    data.edge_attr = torch.eye(data.num_edges, zoo.EDGE_FEATURES, dtype=torch.float64).to_sparse()
    refused("edge_attr", "to_dense", model=zoo.BY_NAME["gine"].build(), data=data, index=0)


def test_a_pair_of_features_is_refused(model, data):
    data.x = (data.x, data.x)
    refused(r"data\.x", "tuple", "torch.cat", model=model, data=data, index=0)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_loader_is_refused_for_what_it_loads(model, data, task):
    refused("DataLoader", r"loader\.dataset", "graph", model=model, data=DataLoader([data, data]), index=0, task=task)
    sampler = NeighborLoader.__new__(NeighborLoader)  # to make one takes a package that is not always here
    sampler.__dict__["data"] = data
    refused("NeighborLoader", r"loader\.data\b", model=model, data=sampler, index=0, task=task)


@pytest.mark.parametrize("door", ["explain", "walks", "question", "check"])
def test_calls_inside_autocast_are_refused(model, data, door):
    doors = {"explain": ew.explain, "walks": ew.walks, "question": ew.Question, "check": ew.check}
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ew.SettingError, match=r"autocast.*enabled=False"):
        doors[door](model, data, [0])
    held, score = ew.Question(model, data, [0]), ew.Score(model, data, [0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (held.explain, held.walks, held.check, lambda: score(score.ones())):
            with pytest.raises(ew.SettingError, match="autocast"):
                call()
        with torch.autocast("cpu", enabled=False):  # what the sentence says
            inside = ew.explain(model, data, 0)
    assert torch.equal(inside.scores, ew.explain(model, data, 0).scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["explain", "walks", "features", "compare", "check", "counterfactual", "Question", "Score"]
)
def test_models_of_few_digits_are_refused_at_the_question(model, data, name, dtype):
    data.x = data.x.to(dtype)
    with pytest.raises(ew.ModelError, match=r"few digits .* model\.float\(\)"):
        getattr(ew, name)(model.to(dtype), data, index=0)


def test_outputs_of_few_digits_are_refused_at_the_question(model, data):
    with pytest.raises(ew.ModelError, match=r"few digits .*\.float\(\)"):
        ew.explain(model, data, index=0, forward=lambda model, data: model(data.x, data.edge_index).bfloat16())


def test_autocast_in_the_models_own_forward_belongs_to_the_model(data):
    class Rounded(zoo.Chain):
        def forward(self, x, edge_index):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x, edge_index).float()

    model = zoo.randomise(Rounded(GCNConv(5, 4), GCNConv(4, CLASSES))).float()
    plain = zoo.Chain(GCNConv(5, 4), GCNConv(4, CLASSES))
    plain.load_state_dict(model.state_dict())
    data.x = data.x.float()
    found, expected = (ew.explain(each, data, 0, target=1).scores for each in (model, plain.eval()))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02 * float(expected.abs().max()))  # bfloat16: 8 bits
    assert not torch.is_autocast_enabled("cpu")


def test_edges_that_no_message_uses_score_zero_and_the_others_what_they_carry():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(1, 1, aggr="sum", root_weight=False, bias=False).double()

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index[:, edge_weight > 0.5])

    model = Picky()
    model.conv.lin_l.weight.data.fill_(2.0)
    graph = Data(
        x=torch.tensor([[1.0], [3.0], [0.0]], dtype=torch.float64),
        edge_index=torch.tensor([[0, 0, 1, 1], [2, 2, 2, 2]]),  # of two parallel columns one is dropped
        edge_weight=torch.tensor([0.1, 0.9, 0.8, 0.2], dtype=torch.float64),
    )
    for method in ("gradient", "occlusion"):
        why = ew.explain(model, graph, 2, method=method, target=1)
        assert why.scores.tolist() == [0.0, 2.0, 6.0, 0.0]


def test_a_list_of_graphs_needs_the_graph_task(model, data):
    refused("graph", model=model, data=[data, data], index=0)


@pytest.mark.parametrize("thing", [[], [None], [3]])
def test_a_list_without_graphs_is_refused(thing):
    refused("Data|graph|empty", model=zoo.GRAPH_BY_NAME["mean_pool"].build(), data=thing, task="graph")


def test_an_int_does_not_name_a_node_of_a_typed_graph(model):
    hetero = HeteroData()
    hetero["paper"].x = torch.ones(3, 5)
    hetero["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    refused("must name a node type", model=model, data=hetero, index=0)


@pytest.mark.parametrize(("name", "case_name"), [("edge_attr", "gine"), ("edge_weight", "gcn_with_weights")])
def test_edge_features_of_another_length_are_refused(data, name, case_name):
    shape = (5, zoo.EDGE_FEATURES) if name == "edge_attr" else (5,)
    data[name] = torch.ones(shape, dtype=torch.float64)
    refused(
        name, r"\b5\b", rf"\b{data.edge_index.shape[1]}\b", model=zoo.BY_NAME[case_name].build(), data=data, index=0
    )


def test_a_batch_vector_of_another_length_is_refused(data):
    data.batch = torch.zeros(4, dtype=torch.long)
    refused("batch", r"\b4\b", r"\b7\b", model=zoo.GRAPH_BY_NAME["mean_pool"].build(), data=data, task="graph")


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_adjacency_is_refused(model, data):
    data.edge_index = to_torch_coo_tensor(data.edge_index, size=(NODES, NODES)).t()
    refused("sparse", "edge_index", model=model, data=data, index=0)


def test_tensors_on_different_devices_are_refused(model, data):
    data.edge_index = data.edge_index.to("meta")
    refused("device|meta", "cpu", model=model, data=data, index=0)


def test_a_model_on_another_device_is_refused(model, data):
    refused("device|meta", "cpu", model=model.to("meta"), data=data, index=0)


# The model ############################################################################################################


@pytest.mark.parametrize("thing", [None, "model", 3, lambda x, edge_index: x, GCNConv])
def test_what_is_no_model_is_refused(data, thing):
    refused("Module|model", model=thing, data=data, index=0)


def test_a_class_is_no_model(data):
    refused("the class GCNConv", r"model = GCNConv\(\.\.\.\)", model=GCNConv, data=data, index=0)


def test_weights_are_no_model(model, data):
    refused("OrderedDict", "load_state_dict", model=model.state_dict(), data=data, index=0)


def test_a_model_without_message_passing_is_refused(data):
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(5, 3)

        def forward(self, x, edge_index):
            return self.lin(x)

    refused("message", model=Dense().double(), data=data, index=0)


def test_message_passing_that_is_never_called_is_refused(data):
    class Idle(zoo.Chain):
        def forward(self, x, edge_index):
            return x[:, :3]

    refused("message", model=zoo.randomise(Idle(GCNConv(5, 3))), data=data, index=0)


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:Converting sparse")
@pytest.mark.parametrize("conv", [SAGEConv, GCNConv])
def test_a_fused_path_is_refused_because_its_messages_cannot_be_weighted(data, conv):
    class Fused(zoo.Chain):
        def forward(self, x, edge_index):
            values = torch.ones(edge_index.shape[1], dtype=x.dtype)
            return super().forward(x, to_torch_coo_tensor(edge_index, values, size=(len(x), len(x))).t())

    refused(
        "fused|sparse",
        "convs.0|convs|SAGEConv|GCNConv",
        model=zoo.randomise(Fused(conv(5, 4), conv(4, 3))),
        data=data,
        index=0,
    )


def test_a_graph_model_asked_about_nodes_is_refused(data):
    model = zoo.GRAPH_BY_NAME["pooled_without_batch"].build()
    refused(r"\b1\b", r"\b7\b|task", model=model, data=data, index=0)


def test_an_output_that_is_no_tensor_is_refused(data):
    class Wrapped(zoo.Chain):
        def forward(self, x, edge_index):
            return {"logits": super().forward(x, edge_index)}

    refused("dict", model=zoo.randomise(Wrapped(GCNConv(5, 3))), data=data, index=0)


def test_messages_that_match_no_edge_are_refused_by_the_name_of_the_layer(data):
    class Rewired(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain, self.rewired = SAGEConv(5, 4), SAGEConv(4, 3)

        def forward(self, x, edge_index):
            return self.rewired(self.plain(x, edge_index).tanh(), (edge_index + 1) % len(x))

    refused("rewired", "edge", model=zoo.randomise(Rewired()), data=data, index=0)


# The request ##########################################################################################################


def test_an_unknown_method_is_refused_with_the_list_of_the_known(model, data):
    refused(
        "gradiant",
        "gradient",
        "occlusion",
        "gnn_explainer",
        "integrated_gradients",
        "random",
        "full",
        model=model,
        data=data,
        index=0,
        method="gradiant",
    )


class OfTheUsersOwn(GNNExplainer):
    """A subclass of PyG's."""


@pytest.mark.parametrize("method", [GNNExplainer(epochs=1), GNNExplainer, OfTheUsersOwn()])
def test_an_explainer_of_pyg_is_refused_with_what_makes_a_method_of_it(model, data, method):
    kind = method if isinstance(method, type) else type(method)
    needles = (kind.__name__, rf"ew\.from_pyg\({kind.__name__}\(\.\.\.\)\)")
    refused(*needles, model=model, data=data, index=0, method=method)
    with pytest.raises(ew.SettingError, match="from_pyg"):
        ew.compare(model, data, [0], methods=["gradient", method])


def test_an_explainer_object_of_pyg_is_refused_with_its_algorithm(model, data):
    explainer = Explainer(
        model,
        GNNExplainer(epochs=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    refused("Explainer", r"ew\.from_pyg\(explainer\.algorithm\)", model=model, data=data, index=0, method=explainer)


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        ("level", "edge", "layer"),
        ("task", "edge", "graph"),
        ("mode", "ternary", "binary"),
        ("of", "margin", "log_prob"),
    ],
)
def test_an_unknown_word_is_refused_with_the_known_ones(model, data, name, value, known):
    refused(value, known, name, model=model, data=data, index=0, **{name: value})


@pytest.mark.parametrize(
    ("method", "setting", "known"),
    [
        ("gnn_explainer", "epoch", "epochs"),
        ("positive_gradient", "eps", "epsilon"),
        ("gradient", "epochs", "gradient"),
        ("integrated_gradients", "step", "steps"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_known_ones(model, data, method, setting, known):
    refused(setting, known, model=model, data=data, index=0, method=method, **{setting: 3})


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("gnn_explainer", {"epochs": 0}),
        ("gnn_explainer", {"epochs": 2.5}),
        ("gnn_explainer", {"lr": -1.0}),
        ("gnn_explainer", {"lr": float("nan")}),
        ("integrated_gradients", {"steps": 0}),
        ("integrated_gradients", {"steps": "many"}),
        ("positive_gradient", {"epsilon": "small"}),
        ("gradient", {"batch_size": 0}),
        ("gradient", {"batch_size": -3}),
        ("gradient", {"memory": "lots"}),
        ("gradient", {"top": 0}),
        ("gradient", {"top": -2}),
        ("gradient", {"seed": "today"}),
        ("gradient", {"device": "toaster"}),
    ],
)
def test_a_setting_out_of_its_range_is_refused(model, data, method, setting):
    ((name, value),) = setting.items()
    refused(name, re.escape(str(value)), model=model, data=data, index=0, method=method, **setting)


@pytest.mark.parametrize(
    ("level", "shape"),
    [("input", (5,)), ("input", (4, 13)), ("layer", (3, 13)), ("layer", (5, 2, 13)), ("layer", (2, 2, 2, 13))],
)
def test_a_start_of_another_shape_is_refused(model, data, level, shape):
    init = torch.zeros(shape, dtype=torch.float64)
    refused("init", r"\b13\b", model=model, data=data, index=[0, 1], method="gnn_explainer", level=level, init=init)


def test_several_columns_are_no_binary_output(model, data):
    refused("binary", r"\b3\b", model=model, data=data, index=0, mode="binary")


def test_weights_of_another_shape_are_refused_by_the_score(model, data):
    score = ew.Score(model, data, [0, 1])
    for wrong in (score.ones()[:1], score.ones()[:, :-1], score.ones()[0]):
        with pytest.raises(ew.EdgewiseError, match=r"(?i)weight|shape|layer"):
            score(wrong)
    with pytest.raises(ew.EdgewiseError, match=r"(?i)self"):
        score(score.ones(), torch.ones(1, 1, dtype=torch.float64))


def test_the_score_refuses_what_explain_refuses(model, data):
    for arguments in ({"index": 99}, {"index": []}, {"index": [0], "target": 9}, {"index": [0], "of": "margin"}):
        with pytest.raises(ew.EdgewiseError):
            ew.Score(model, data, **arguments)


def test_a_misspelt_argument_is_no_setting_of_any_method(model, data):
    with pytest.raises((ew.EdgewiseError, TypeError), match="taget"):
        ew.explain(model, data, index=0, taget=1)
