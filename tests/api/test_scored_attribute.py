"""Arguments of `forward` are filled from data of the same name, data need no `x`, and other attributes of nodes have scores."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, PointNetConv, RGCNConv, SAGEConv, global_add_pool

import edgewise as ew
from checks import assert_close

N, E = 10, 40


def atoms(seed=0, nodes=N, edges=E, **more):
    draw = torch.Generator().manual_seed(seed)
    z, pos = torch.randint(0, 5, (nodes,), generator=draw), torch.randn(nodes, 3, generator=draw, dtype=torch.float64)
    return Data(z=z, pos=pos, edge_index=torch.randint(0, nodes, (2, edges), generator=draw), **more)


class Atoms(nn.Module):
    """Reads numbers of elements and places, and no features."""

    def __init__(self, *, pooled=False):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.pooled = nn.Embedding(5, 4), pooled
        self.conv = PointNetConv(nn.Sequential(nn.Linear(7, 6), nn.Tanh()), nn.Linear(6, 3))
        self.double().eval()

    def forward(self, z, pos, edge_index, batch=None):
        h = self.conv(self.emb(z), pos, edge_index)
        return global_add_pool(h, batch) if self.pooled else h


class Elements(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.one, self.two = nn.Embedding(5, 4), GCNConv(4, 5), GCNConv(5, 3)
        self.double().eval()

    def forward(self, z, edge_index):
        return self.two(self.one(self.emb(z), edge_index).tanh(), edge_index)


class Relations(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = RGCNConv(3, 3, 2)
        self.double().eval()

    def forward(self, x, edge_index, edge_type, *, hidden=None):
        assert hidden is None, "an argument with a default keeps it"
        return self.conv(x, edge_index, edge_type)


def relational(**more):
    data = atoms(edge_type=torch.arange(E) % 2, hidden=torch.ones(N), **more)
    data.x = data.pos
    return data


def test_arguments_without_a_default_are_filled_by_name():
    data, model = relational(), Relations()
    mine = ew.explain(model, data, level="layer", method="occlusion")
    theirs = ew.explain(
        model, data, level="layer", method="occlusion", forward=lambda m, d: m(d.x, d.edge_index, d.edge_type)
    )
    for a, b in zip(mine, theirs, strict=True):
        assert_close(a.scores, b.scores, 1e-12)


def test_an_argument_that_the_data_lack_is_named():
    with pytest.raises(ew.EdgewiseError, match="asks for `edge_type`, and the data has no edge_type"):
        ew.explain(Relations(), Data(x=atoms().pos, edge_index=atoms().edge_index), 3)
    with pytest.raises(ew.EdgewiseError, match="asks for `pos`, and the data has no pos"):
        ew.explain(Atoms(), Data(z=atoms().z, edge_index=atoms().edge_index), 3)
    with pytest.raises(ew.EdgewiseError, match="asks for `x`, and the data has no x"):
        ew.explain(GCNConv(3, 2).double(), atoms(), 3)
    with pytest.raises(ew.InputError, match=r"set data\.num_nodes"):
        ew.explain(Elements(), Data(edge_index=atoms().edge_index), 3)


def test_data_without_features_have_the_scores_of_the_same_data_with_them():
    with_x = atoms()
    with_x.x = torch.ones(N, 2)
    of_atoms, of_elements = (lambda m, d: m(d.z, d.pos, d.edge_index)), (lambda m, d: m(d.z, d.edge_index))
    models = ((Atoms(), of_atoms), (Elements(), of_elements))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model, forward in models:
            for method in ("gradient", "occlusion", "integrated_gradients"):
                mine = ew.explain(model, atoms(), method=method)
                theirs = ew.explain(model, with_x, method=method, forward=forward)
                for a, b in zip(mine, theirs, strict=True):
                    assert_close(a.scores, b.scores, 1e-12)
                    assert a.value == pytest.approx(b.value, abs=1e-12)


def test_a_large_graph_without_features_is_cut():
    data, model = atoms(nodes=4000, edges=80_000), Elements()
    question = ew.Question(model, data, [5, 70])
    rows = model(data.z, data.edge_index)[[5, 70]]
    assert_close(question.value, rows.max(dim=1).values.detach(), 1e-9)
    assert_close(
        question.explain(method="occlusion")[1].scores, question.of(70).explain(method="occlusion").scores, 1e-9
    )
    data.z[int(data.edge_index[0, data.edge_index[1] == 70][0])] += 1
    data.z %= 5
    with pytest.raises(ew.StaleQuestionError, match=r"data\.z"):
        question.explain()


def test_a_model_of_its_own_embeddings_needs_the_number_of_nodes():
    class Own(Elements):
        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.randn(N, 4, dtype=torch.float64))

        def forward(self, edge_index):
            return self.two(self.one(self.rows, edge_index).tanh(), edge_index)

    model, data = Own(), Data(edge_index=atoms().edge_index, num_nodes=N)
    why = ew.explain(model, data, 3, target=1)
    assert why.value == pytest.approx(float(model(data.edge_index)[3, 1].detach()))
    assert why.scores.abs().sum() > 0


def test_graphs_without_features_are_explained_too():
    graphs, model = [atoms(seed, nodes=6 + seed) for seed in range(4)], Atoms(pooled=True)
    for graph, why in zip(graphs, ew.explain(model, graphs, task="graph", target=1), strict=True):
        alone = ew.explain(model, graph, task="graph", target=1)
        assert_close(why.scores, alone.scores, 1e-9)
        assert why.value == pytest.approx(float(model(graph.z, graph.pos, graph.edge_index)[0, 1].detach()))


def gradient_of_pos(model, data, row, column):
    pos = data.pos.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(data.z, pos, data.edge_index)[row, column], pos)
    return found


def test_another_attribute_has_the_scores_of_autograd():
    data, model = atoms(), Atoms()
    for why in ew.features(model, data, [3, 7], method="gradient", attribute="pos", target=1):
        assert_close(why.scores, gradient_of_pos(model, data, why.index, 1), 1e-10)
        assert why.settings["attribute"] == "pos"
    data.x = torch.ones(N, 2)
    forward = lambda m, d: m(d.z, d.pos, d.edge_index) if d.x.size(1) == 2 else None  # noqa: E731
    why = ew.features(model, data, 3, method="gradient", attribute="pos", target=1, forward=forward)
    assert_close(why.scores, gradient_of_pos(model, data, 3, 1), 1e-10)
    asked = ew.Question(model, data, 3, target=1, forward=forward).features("gradient", attribute="pos")
    assert_close(asked.scores, why.scores, 0.0)


def test_occlusion_of_an_attribute_is_a_run_without_it():
    data, model = atoms(), Atoms()
    why = ew.features(model, data, 3, method="occlusion", attribute="pos", target=0)
    for node, feature in ((int(data.edge_index[0][data.edge_index[1] == 3][0]), 1), (3, 2)):
        pos = data.pos.clone()
        pos[node, feature] = 0
        lost = model(data.z, data.pos, data.edge_index)[3, 0] - model(data.z, pos, data.edge_index)[3, 0]
        assert float(why.scores[node, feature]) == pytest.approx(float(lost.detach()), abs=1e-9)


def test_attributes_of_graphs_and_of_links_have_scores():
    graphs, model = [atoms(seed) for seed in range(3)], Atoms(pooled=True)
    found = ew.features(model, graphs, task="graph", method="gradient", attribute="pos", target=1)
    for graph, why in zip(graphs, found, strict=True):
        assert_close(why.scores, gradient_of_pos(model, graph, 0, 1), 1e-9)

    class Pairs(Atoms):
        def forward(self, z, pos, edge_index, edge_label_index):
            h = super().forward(z, pos, edge_index)
            return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=1)

    model, data = Pairs(), atoms()
    why = ew.features(model, data, (2, 5), task="link", method="gradient", attribute="pos")
    pos = data.pos.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(data.z, pos, data.edge_index, torch.tensor([[2], [5]])).sum(), pos)
    assert_close(why.scores, slope, 1e-9)


def test_an_attribute_that_the_model_does_not_read_is_refused_not_zero():
    data, model = atoms(), Atoms()
    data.x = torch.ones(N, 2, dtype=torch.float64)
    read = lambda m, d: m(d.z, d.pos, d.edge_index)  # noqa: E731
    for method in ("gradient", "gradient_x_input", "occlusion"):
        with pytest.raises(ew.InputError, match=r"does not depend on data\.x.*attribute='pos'"):
            ew.features(model, data, [3, 4], method=method, forward=read)
    with pytest.raises(ew.InputError, match=r"data\.x.*attribute='pos'"):
        ew.features(model, atoms(), 3)
    with pytest.raises(ew.InputError, match=r"floating-point numbers of each node, got 'z'.*attribute='pos'"):
        ew.features(model, atoms(), 3, attribute="z")
    with pytest.raises(ew.InputError, match="got 'speed'"):
        ew.features(model, atoms(), 3, attribute="speed")
    typed = HeteroData()
    typed["a"].x, typed["a", "to", "a"].edge_index = torch.ones(3, 1), torch.tensor([[0], [1]])
    with pytest.raises(ew.InputError, match="attribute"):
        ew.features(HeteroConv({("a", "to", "a"): SAGEConv(1, 2)}), typed, ("a", 1), attribute="pos")


def test_scores_that_are_truly_zero_are_no_error():
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))
    conv = SAGEConv(1, 2, root_weight=False)
    assert ew.features(conv, data, 2).scores.abs().sum() == 0


def test_arguments_of_typed_models_are_filled_by_name():
    data = HeteroData()
    torch.manual_seed(0)
    data["a"].z, data["b"].z = torch.randn(5, 3), torch.randn(4, 3)
    data["a"].age, data["b"].age = torch.randn(5, 3), torch.randn(4, 3)
    data["a"].num_nodes, data["b"].num_nodes = 5, 4
    for ends in (("a", "b"), ("b", "a")):
        data[ends[0], "to", ends[1]].edge_index = torch.randint(0, 4, (2, 9))

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HeteroConv({kind: SAGEConv(3, 2) for kind in data.edge_types})

        def forward(self, z_dict, edge_index_dict, age_dict):
            return self.conv({kind: z + age_dict[kind] for kind, z in z_dict.items()}, edge_index_dict)

    model = Typed().eval()
    mine = ew.explain(model, data, ("a", [0, 3]), method="occlusion")
    theirs = ew.explain(
        model, data, ("a", [0, 3]), method="occlusion", forward=lambda m, d: m(d.z_dict, d.edge_index_dict, d.age_dict)
    )
    for a, b in zip(mine, theirs, strict=True):
        assert a.value == b.value
        assert all(torch.equal(a.scores[kind], b.scores[kind]) for kind in data.edge_types)
