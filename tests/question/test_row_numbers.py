"""Rows that a model knows by number are others in a cut than in the graph: answered as on the whole graph, or refused."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, LGConv, SAGEConv, SimpleConv

import edgewise as ew
from checks import assert_close
from edgewise.graph import cut

NODES, WIDTH, INDEX = 90, 5, [71, 12, 70]
FAR = (torch.arange(NODES) >= 60).double().view(-1, 1)


@pytest.fixture(autouse=True)
def every_graph_is_cut(monkeypatch):
    monkeypatch.setattr(cut, "_SMALL", 0)
    monkeypatch.setattr(cut, "_TINY", 6)


def ring():
    torch.manual_seed(0)
    nodes = torch.arange(NODES)
    ends = torch.stack([torch.cat([nodes, nodes]), torch.cat([(nodes + 1) % NODES, (nodes + 7) % NODES])])
    return Data(x=torch.randn(NODES, WIDTH).double(), edge_index=ends[:, torch.randperm(ends.size(1))])


class Net(nn.Module):
    """Two layers, with something in front of them and something behind."""

    def __init__(self, before=None, after=None, conv=SAGEConv):
        super().__init__()
        self.before, self.after = before, after
        self.lin, self.one, self.two = nn.Linear(WIDTH, 6), conv(6, 6), conv(6, 3)
        self.emb, self.wide, self.out = nn.Embedding(NODES, 6), nn.Embedding(NODES, WIDTH), nn.Embedding(NODES, 3)
        self.more, self.scale = nn.Embedding(NODES + 4, 6), nn.Parameter(torch.randn(NODES))
        self.register_buffer("place", torch.randn(NODES, 6))

    def forward(self, x, edge_index):
        h = self.lin(x) if self.before is None else self.before(self, x, edge_index)
        h = self.two(self.one(h, edge_index).relu(), edge_index)
        return h if self.after is None else self.after(self, h)


def noise(rows):
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(7), dtype=torch.double)


def written(h):
    h = h.clone()
    h[0::2] = 2 * h[0::2]
    return h


BY_NUMBER = {
    "an embedding of arange": lambda m, x, e: m.lin(x) + m.emb(torch.arange(x.size(0))),
    "more embeddings than nodes": lambda m, x, e: m.lin(x) + m.more(torch.arange(len(x))),
    "the first rows of a table": lambda m, x, e: m.lin(x) + m.emb.weight[: len(x)],
    "the last rows of a table": lambda m, x, e: m.lin(x) + m.emb.weight[-len(x) :],
    "a buffer by row": lambda m, x, e: m.lin(x) + m.place[: x.shape[0]],
    "a list of numbers": lambda m, x, e: m.lin(x) * torch.tensor(list(range(len(x)))).view(-1, 1),
    "linspace": lambda m, x, e: m.lin(x) * torch.linspace(0, 1, len(x)).double().view(-1, 1),
    "cumsum": lambda m, x, e: m.lin(x) * x.new_ones(len(x), 1).cumsum(0),
    "cumsum of the features": lambda m, x, e: m.lin(x.cumsum(0)),
    "nonzero": lambda m, x, e: m.lin(x) * (x[:, :1] == x[:, :1]).nonzero()[:, :1],
    "eye": lambda m, x, e: m.lin(x) * torch.eye(len(x), 6).double(),
    "noise of a fixed seed": lambda m, x, e: m.lin(x) + noise(len(x)),
    "parity": lambda m, x, e: m.lin(x) * (torch.arange(len(x)) % 2).view(-1, 1),
    "where": lambda m, x, e: torch.where(torch.arange(len(x)).view(-1, 1) < 40, m.lin(x), 0.0),
    "numbers that differ far away": lambda m, x, e: m.lin(x) * (torch.arange(len(x)) >= 60).view(-1, 1),
    "rows that are written": lambda m, x, e: written(m.lin(x)),
    "the number of nodes": lambda m, x, e: m.lin(x * (100 / x.size(0))),
    "the number of nodes as a tensor": lambda m, x, e: m.lin(x * torch.tensor(100 / len(x))),
    "the number of nodes in every row": lambda m, x, e: m.lin(x * torch.full((len(x), 1), 100 / len(x)).double()),
    "a branch by size": lambda m, x, e: m.lin(x) if len(x) < 80 else -m.lin(x),
    "a table under a mean": lambda m, x, e: m.lin(x) + m.emb.weight - m.emb.weight.mean(0),
    "the neighbours' rows": lambda m, x, e: m.lin(x).roll(1, 0),
}
AFTER = {
    "an embedding behind": lambda m, h: h + m.out(torch.arange(len(h))),
    "parity behind": lambda m, h: h * (torch.arange(len(h)) % 2).view(-1, 1),
    "the number of nodes behind": lambda m, h: h * torch.full((len(h), 1), 100 / len(h)).double(),
    "vectors of all rows": lambda m, h: torch.stack([h[:, 0], h[:, 1] * torch.arange(len(h))], 1),
}


def agree(model, data, index=INDEX):
    """A question's values, gradients and occlusions are those of the model on the whole graph."""
    true = model(data.x, data.edge_index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, index)
        for question, nodes in ((ask, index), (ask.of([3, 44]), [3, 44])):
            assert_close(question.value, true[nodes].max(dim=1).values.detach(), 1e-9)
        found, first = ask.explain(method="occlusion"), int(ask.target[0])
    column = int(found[0].scores.abs().argmax())
    silenced = without_message(model, data, column)[index[0], first]
    assert_close(found[0].scores[column], (true[index[0], first] - silenced).detach(), 1e-9)
    return ask.settings["locality"]


def without_message(model, data, column):
    """The output if the messages of a column are zero in every layer; the layers here send one for each column."""

    def silence(module, inputs, output):
        output = output.clone()
        output[column] = 0
        return output

    handles = [layer.register_message_forward_hook(silence) for layer in (model.one, model.two)]
    try:
        return model(data.x, data.edge_index)
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("name", [*BY_NUMBER, *AFTER])
def test_what_is_known_by_row_number_is_not_taken_for_a_proof(name):
    model = Net(BY_NUMBER.get(name), AFTER.get(name)).double().eval()
    assert agree(model, ring()) != "proved"


class Asleep(Net):
    """Rows known by number, which add something as soon as a message is silenced, and nothing before."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.two = rows, SimpleConv(aggr="sum")

    def forward(self, x, edge_index):
        h = self.one(self.lin(x), edge_index).relu()
        counted = self.two(torch.cat([h, torch.ones_like(h[:, :1])], dim=1), edge_index)
        degree = x.new_zeros(len(x)).index_add(0, edge_index[1], x.new_ones(edge_index.size(1))).view(-1, 1)
        return counted[:, :3] + (degree - counted[:, -1:] - 1e-3).relu() * self.rows(counted[:, :3])


ROWS = {
    "arange": lambda o: torch.arange(len(o)).view(-1, 1),
    "noise": lambda o: noise(len(o))[:, :3],
    "all rows upside down": lambda o: o.flip(0),
    "the number of nodes": lambda o: len(o),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_by_number_that_only_a_silenced_message_wakes(name):
    assert agree(Asleep(ROWS[name]).double().eval(), ring()) == "whole graph"


class AsleepLinks(Asleep):
    """The same, scored in pairs."""

    def encode(self, x, edge_index):
        return self(x, edge_index)

    def decode(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(1)


def test_links_that_only_a_silenced_message_wakes():
    model, data, pair = AsleepLinks(ROWS["arange"]).double().eval(), ring(), (71, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        found = ew.explain(model, data, pair, task="link", method="occlusion")
    column = int(found.scores.abs().argmax())
    true, silenced = (
        model.decode(z, torch.tensor(pair).view(2, 1))[0].detach()
        for z in (model(data.x, data.edge_index), without_message(model, data, column))
    )
    assert_close(found.scores[column], true - silenced, 1e-9)


@pytest.mark.parametrize("name", [*BY_NUMBER, *AFTER])
def test_where_the_graph_is_too_large_for_a_comparison_it_is_refused(name):
    model, data = Net(BY_NUMBER.get(name), AFTER.get(name)).double().eval(), ring()
    true = model(data.x, data.edge_index)[71].max()
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ew.LocalityWarning)
            found = ew.Question(model, data, 71, memory="1KB")
    except ew.ModelError as error:
        words = str(error)
        assert "memory=" in words
    else:
        sized = any("how many nodes" in str(one.message) for one in told)
        assert sized or torch.allclose(found.value, true.detach().view(1), atol=1e-9)


def test_edge_weights_by_position_are_not_taken_for_a_proof():
    class ByPosition(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(WIDTH, 3, normalize=False)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index, torch.linspace(0, 1, edge_index.size(1)).double())

    model, data = ByPosition().double().eval(), ring()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, INDEX)
    assert ask.settings["locality"] == "whole graph"
    assert_close(ask.value, model(data.x, data.edge_index)[INDEX].max(dim=1).values.detach(), 1e-9)


# --- what is proved all the same -----------------------------------------------------------------------------------------

TABLES = {
    "an embedding": lambda m, x, e: m.lin(x) + m.emb.weight,
    "an embedding through a layer": lambda m, x, e: m.lin(x) + m.lin(m.wide.weight).relu(),
    "nothing but an embedding": lambda m, x, e: m.emb.weight,
    "a buffer": lambda m, x, e: m.lin(x) * m.place,
    "two tables": lambda m, x, e: m.lin(x + m.wide.weight) * m.place,
    "columns of a table": lambda m, x, e: torch.cat([m.lin(x), m.emb.weight], 1).view(-1, 2, 6).sum(1),
}
UNIFORM = {
    "ones": lambda m, x, e: m.lin(x) + torch.ones(NODES, 1).double()[:1],
    "ones_like": lambda m, x, e: m.lin(x) + torch.ones_like(x[:, :1]),
    "one row for everybody": lambda m, x, e: m.lin(x) + m.emb.weight[3],
    "a vector": lambda m, x, e: m.lin(x) * m.lin.bias,
    "features by rows": lambda m, x, e: m.lin((x * 2).tanh()),
}


@pytest.mark.parametrize("name", [name for name in TABLES if name != "columns of a table"])
def test_a_table_with_a_row_for_each_node_is_cut_with_the_graph(name):
    model = Net(TABLES[name]).double().eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert agree(model, ring()) == "proved"
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert isinstance(model.emb.weight, nn.Parameter)


def test_a_table_that_is_joined_to_the_features_is_cut_with_the_graph():
    assert agree(Net(TABLES["columns of a table"]).double().eval(), ring()) in ("proved", "confirmed")


def test_a_model_of_embeddings_alone_is_explained_on_a_cut():
    class Light(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.one, self.two = nn.Embedding(NODES, 4), LGConv(), LGConv()

        def forward(self, x, edge_index):
            h = self.one(self.emb.weight, edge_index)
            return self.two(h, edge_index) + h

    model, data = Light().double().eval(), ring()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, INDEX)
        assert_close(ask.value, model(data.x, data.edge_index)[INDEX].max(dim=1).values.detach(), 1e-9)


@pytest.mark.parametrize("name", UNIFORM)
def test_rows_that_are_the_same_for_all_nodes_are_no_obstacle(name):
    assert agree(Net(UNIFORM[name]).double().eval(), ring()) in ("proved", "confirmed")


def test_a_look_up_by_ids_that_came_with_the_data_is_left_alone():
    data = ring()
    data.kind = torch.randperm(NODES)

    class ByIds(Net):
        def forward(self, x, edge_index, kind):
            h = self.lin(x) + self.emb(kind)
            return self.two(self.one(h, edge_index).relu(), edge_index)

    model = ByIds().double().eval()
    true = model(data.x, data.edge_index, data.kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, INDEX, forward=lambda m, d: m(d.x, d.edge_index, d.kind))
    assert_close(ask.value, true[INDEX].max(dim=1).values.detach(), 1e-9)


def test_a_matrix_that_has_as_many_rows_as_nodes_by_chance_is_no_table():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.one, self.two = nn.Linear(WIDTH, NODES), SAGEConv(NODES, 6), SAGEConv(6, 3)

        def forward(self, x, edge_index):
            return self.two(self.one(self.lin(x).relu(), edge_index).relu(), edge_index)

    assert agree(Wide().double().eval(), ring()) == "proved"


def test_a_model_that_runs_on_all_nodes_alone_is_explained_on_the_whole_graph():
    class Exact(Net):
        def forward(self, x, edge_index):
            assert len(x) == NODES
            return super().forward(x, edge_index)

    assert agree(Exact().double().eval(), ring()) == "whole graph"


def test_tables_of_a_typed_graph_are_cut_with_it():
    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.user = nn.Embedding(NODES, 4)
            kinds = (("item", "of", "user"), ("user", "likes", "item"))
            self.one = HeteroConv({kind: SAGEConv((4, 4), 4) for kind in kinds})
            self.two = HeteroConv({kind: SAGEConv((4, 4), 3) for kind in kinds})

        def forward(self, x_dict, edge_index_dict):
            given = {"user": self.user.weight, "item": x_dict["item"]}
            hidden = self.one(given, edge_index_dict)
            return self.two({name: h.relu() for name, h in hidden.items()}, edge_index_dict)

    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(NODES, 2).double(), torch.randn(40, 4).double()
    data["user", "likes", "item"].edge_index = torch.stack([torch.arange(NODES), torch.arange(NODES) % 40])
    data["item", "of", "user"].edge_index = data["user", "likes", "item"].edge_index.flip(0)
    model = Typed().double().eval()
    true = model(data.x_dict, data.edge_index_dict)["user"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, ("user", [50, 3]))
    assert ask.settings["locality"] != "whole graph"
    assert_close(ask.value, true[[50, 3]].max(dim=1).values.detach(), 1e-9)
    assert list(data["user"].keys()) == ["x"]


# --- links ---------------------------------------------------------------------------------------------------------------


class Links(nn.Module):
    def __init__(self, before=None, decoder=None):
        super().__init__()
        self.before, self.decoder = before, decoder
        self.lin, self.one, self.two = nn.Linear(WIDTH, 6), SAGEConv(6, 6), SAGEConv(6, 4)
        self.emb, self.bias, self.more = nn.Embedding(NODES, 6), nn.Parameter(torch.randn(NODES)), nn.Embedding(99, 1)

    def encode(self, x, edge_index):
        h = self.lin(x) if self.before is None else self.before(self, x)
        return self.two(self.one(h, edge_index).relu(), edge_index)

    def decode(self, z, pairs):
        scores = (z[pairs[0]] * z[pairs[1]]).sum(-1)
        return scores if self.decoder is None else self.decoder(self, scores, z, pairs)


ENCODERS = {
    "a table": (lambda m, x: m.lin(x) + m.emb.weight, "proved"),
    "parity": (lambda m, x: m.lin(x) * (torch.arange(len(x)) % 2).view(-1, 1), "whole graph"),
}
DECODERS = {
    "the same": (None, "proved"),
    "a number for each node": (lambda m, s, z, p: s + m.bias[p[0]], "proved"),
    "more numbers than nodes": (lambda m, s, z, p: s + m.more(p[1]).view(-1), "whole graph"),
    "a mean over nodes": (lambda m, s, z, p: s + z.mean(), "whole graph"),
    "all pairs": (lambda m, s, z, p: (z @ z.t()).softmax(dim=1)[p[0], p[1]], "whole graph"),
    "row numbers": (lambda m, s, z, p: s * (p[0] % 7), "whole graph"),
    "the number of nodes": (lambda m, s, z, p: s * 100 / len(z), "whole graph"),
}


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_links_are_scored_as_on_the_whole_graph(name):
    encoder, expected = ENCODERS.get(name, (None, ""))
    decoder, expected = DECODERS.get(name, (None, expected))
    model, data = Links(encoder, decoder).double().eval(), ring()
    pairs = torch.tensor([[71, 12], [3, 44], [60, 60]]).t()
    true = model.decode(model.encode(data.x, data.edge_index), pairs).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        warnings.simplefilter("ignore", ew.OutputWarning)
        ask = ew.Question(model, data, pairs, task="link")
        assert_close(ask.value, true, 1e-9)
        assert_close(ask.of((3, 44)).value, true[1:2], 1e-9)
        assert ask.settings["locality"] == expected  # finds out whether neighbourhoods do, which may be warned of


@pytest.mark.parametrize("row", [*range(6, 20), 80])
def test_a_row_that_a_part_of_the_graph_does_not_have(row, monkeypatch):
    """The model runs on some parts and not on others; the whole graph always has that row."""
    model, data = Net(lambda m, x, e: (h := m.lin(x)) + h[row]).double().eval(), ring()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        ask = ew.Question(model, data, index=INDEX)
        found = [ask.of(node) for node in INDEX] + [ask.of(3)] + [ew.Question(model, data, index=3)]
        found = [one.explain(method="gradient") for one in found]
    monkeypatch.setattr(cut, "_SMALL", 10**9)
    for one in found:
        assert_close(one.edge_scores(), ew.explain(model, data, one.index, method="gradient").edge_scores(), 1e-9)


def test_a_model_that_runs_nowhere_says_why():
    with pytest.raises(ew.ModelError, match="IndexError"):
        ew.Question(Net(lambda m, x, e: (h := m.lin(x)) + h[NODES]).double().eval(), ring(), index=INDEX)


def test_features_of_rows_that_a_copy_puts_elsewhere():
    """Alone, both nodes have the rows of the graph: only copies with a changed feature put them elsewhere."""

    class Parity(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.conv = nn.Linear(3, 4), SAGEConv(4, 2)

        def forward(self, x, edge_index):
            h = self.lin(x) * (torch.arange(len(x)) % 2).view(-1, 1)
            return self.conv(h, edge_index)

    torch.manual_seed(3)
    model = Parity().double().eval()
    data = Data(x=torch.randn(3, 3).double(), edge_index=torch.zeros(2, 0, dtype=torch.long))
    found = ew.features(model, data, [0, 1], method="occlusion")
    true = model(data.x, data.edge_index)
    for node, why in enumerate(found):
        for feature in range(3):
            x = data.x.clone()
            x[node, feature] = 0
            lost = true[node, why.target] - model(x, data.edge_index)[node, why.target]
            assert_close(why.scores[node, feature], lost.detach(), 1e-9)
