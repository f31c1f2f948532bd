"""Models that are no plain chains: what runs beside the calls is part of the blocks, or refused with a reason."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GATConv, GCNConv, GINConv, SAGEConv

import edgewise as ew
import zoo
from edgewise.errors import ModelError
from walk_checks import assert_alive, assert_walks
from walk_models import mlp
from walk_oracles import twin
from zoo import CLASSES, FEATURES, WIDTH


class Parts(nn.Module):
    """Named parts, and a forward pass that is written as a list of functions of (features, edges)."""

    def __init__(self, *calls, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.steps = calls

    def forward(self, x, edge_index):
        for step in self.steps:
            x = step(self, x, edge_index)
        return x


def oracle(model, data):
    """The walks of the predicted classes, each function of the list being a call."""
    with torch.no_grad():
        target = model(data.x, data.edge_index).argmax(dim=1)
    calls = [lambda x, step=step: step(model, x, data.edge_index) for step in model.steps]
    return assert_alive(twin(calls, lambda x: x.gather(1, target.view(-1, 1)).view(-1), data.x).walks())


def check(model):
    model, data = zoo.randomise(model), zoo.GRAPHS["everything"]()
    assert_walks(model, data, oracle(model, data), ks=(1, 5))


STREAMS = {
    "gcn": lambda: GCNConv(WIDTH, WIDTH),
    "sage_without_root": lambda: SAGEConv(WIDTH, WIDTH, root_weight=False),
    "gat": lambda: GATConv(WIDTH, 2, heads=2),
    "gin": lambda: GINConv(mlp(WIDTH, WIDTH)),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_is_normalised_before_each_call_is_followed(kind):
    """x + conv(norm(x)): no call reads the value that runs on."""

    def step(call, last=False):
        def run(m, x, e):
            x = m.encoder(x) if call == 0 else x
            x = x + m.convs[call](torch.relu(m.norms[call](x)), e)
            return m.head(x) if last else x

        return run

    norms, convs = (nn.ModuleList(make() for _ in range(3)) for make in (lambda: nn.LayerNorm(WIDTH), STREAMS[kind]))
    parts = {"encoder": nn.Linear(FEATURES, WIDTH), "norms": norms, "convs": convs, "head": nn.Linear(WIDTH, CLASSES)}
    check(Parts(step(0), step(1), step(2, last=True), **parts))


def test_features_may_pass_the_encoder_and_the_first_call():
    check(
        Parts(
            lambda m, x, e: torch.relu(m.first(torch.relu(m.encoder(x)), e) + m.around(x)),
            lambda m, x, e: m.second(x, e),
            encoder=nn.Linear(FEATURES, WIDTH),
            first=SAGEConv(WIDTH, WIDTH, root_weight=False),
            around=nn.Linear(FEATURES, WIDTH),
            second=GCNConv(WIDTH, CLASSES),
        )
    )


def test_one_call_may_have_features_around_it():
    check(
        Parts(
            lambda m, x, e: m.first(torch.tanh(m.encoder(x)), e) + m.around(x),
            encoder=nn.Linear(FEATURES, WIDTH),
            first=SAGEConv(WIDTH, CLASSES, root_weight=False),
            around=nn.Linear(FEATURES, CLASSES),
        )
    )


def test_a_residual_may_be_concatenated_or_multiplied():
    check(
        Parts(
            lambda m, x, e: torch.relu(torch.cat([m.first(x, e), x], dim=1)),
            lambda m, x, e: m.second(x, e) * torch.sigmoid(m.gate(x)),
            first=GCNConv(FEATURES, WIDTH),
            second=SAGEConv(WIDTH + FEATURES, CLASSES),
            gate=nn.Linear(WIDTH + FEATURES, CLASSES),
        )
    )


def test_a_conv_that_is_used_twice_is_two_calls():
    check(
        Parts(
            lambda m, x, e: torch.tanh(m.first(x, e)),
            lambda m, x, e: torch.tanh(m.shared(x, e)),
            lambda m, x, e: m.head(torch.tanh(m.shared(x, e))),
            first=GCNConv(FEATURES, WIDTH),
            shared=SAGEConv(WIDTH, WIDTH),
            head=nn.Linear(WIDTH, CLASSES),
        )
    )


def test_a_model_that_changes_its_features_in_place_is_followed():
    data = zoo.GRAPHS["everything"]()
    changing = Parts(
        lambda m, x, e: torch.relu_(m.first(x.mul_(2.0).tanh_(), e)),
        lambda m, x, e: m.second(x, e),
        first=GCNConv(FEATURES, WIDTH),
        second=GCNConv(WIDTH, CLASSES),
    )
    model = zoo.randomise(changing)
    plain = Parts(
        lambda m, x, e: torch.relu(m.first(torch.tanh(2.0 * x), e)),
        changing.steps[1],
        first=changing.first,
        second=changing.second,
    )
    scores, before = oracle(plain, data), data.x.clone()
    assert_walks(model, data, scores, ks=(5,))
    assert torch.equal(data.x, before)


def test_words_that_are_looked_up_are_the_features():
    data, generator = zoo.GRAPHS["everything"](), torch.Generator().manual_seed(0)
    data.x = torch.randint(0, 3, (data.num_nodes, 2), generator=generator)
    model = zoo.randomise(
        Parts(
            lambda m, x, e: m.word(x[:, 0]) + m.place(x[:, 1]),
            lambda m, x, e: x + torch.relu(m.first(m.norm(x), e)),
            lambda m, x, e: m.second(x, e),
            word=nn.Embedding(3, WIDTH),
            place=nn.Embedding(3, WIDTH),
            norm=nn.LayerNorm(WIDTH),
            first=SAGEConv(WIDTH, WIDTH, root_weight=False),
            second=GCNConv(WIDTH, CLASSES),
        )
    )
    with torch.no_grad():
        target = model(data.x, data.edge_index).argmax(dim=1)
        features = model.word(data.x[:, 0]) + model.place(data.x[:, 1])
    calls = [lambda x, step=step: step(model, x, data.edge_index) for step in model.steps[1:]]
    scores = twin(calls, lambda x: x.gather(1, target.view(-1, 1)).view(-1), features).walks()
    assert_walks(model, data, assert_alive(scores), ks=(5,))


# Refused ##############################################################################################################


@pytest.mark.parametrize("jump", ["cat", "max", "lstm"])
def test_jumping_knowledge_is_refused_and_says_why(jump):
    model = zoo.randomise(GCN(FEATURES, WIDTH, 3, CLASSES, jk=jump))
    with pytest.raises(ModelError, match=r"JumpingKnowledge.*different lengths.*ew\.explain\(.*level='layer'"):
        ew.walks(model, zoo.GRAPHS["everything"](), 1)


def test_jumping_knowledge_that_takes_the_last_layer_is_no_jump():
    model, data = zoo.randomise(GCN(FEATURES, WIDTH, 3, CLASSES, jk="last")), zoo.GRAPHS["everything"]()
    assert ew.walks(model, data, 1)


LONG = {
    "features into the output": lambda m, x, e: m.second(torch.relu(m.first(x, e)), e) + m.jump(x),
    "the encoder into the output": lambda m, x, e: (
        m.second(torch.relu(m.first(torch.tanh(m.encoder(x)), e)), e) + m.jump(m.encoder(x))
    ),
    "the first state past the second call": lambda m, x, e: (
        m.second(torch.relu(m.middle(m.first(x, e), e)), e) + m.jump(m.first(x, e))
    ),
}


@pytest.mark.parametrize("what", LONG)
def test_whatever_skips_a_layer_is_refused(what):
    model = Parts(
        LONG[what],
        first=GCNConv(FEATURES, FEATURES),
        middle=GCNConv(FEATURES, FEATURES),
        second=GCNConv(FEATURES, CLASSES),
        encoder=nn.Linear(FEATURES, FEATURES),
        jump=nn.Linear(FEATURES, CLASSES),
    )
    with pytest.raises(ModelError, match=r"past later layers.*different lengths"):
        ew.walks(zoo.randomise(model), zoo.GRAPHS["everything"](), 1)


def test_features_that_mix_nodes_before_the_first_layer_are_refused():
    model = Parts(lambda m, x, e: m.first(x - x.mean(dim=0), e), first=GCNConv(FEATURES, CLASSES))
    with pytest.raises(ModelError, match="mixes the features of different nodes"):
        ew.walks(zoo.randomise(model), zoo.GRAPHS["everything"](), 1)


def test_edges_that_are_made_from_features_are_refused():
    weights = lambda x, e: (x[e[0], 0] - x[e[1], 0]).abs()  # noqa: E731
    model = Parts(lambda m, x, e: m.first(x, e, weights(x, e)), first=GCNConv(FEATURES, CLASSES))
    with pytest.raises(ModelError, match="reads more than node features"):
        ew.walks(zoo.randomise(model), zoo.GRAPHS["everything"](), 1)


@pytest.mark.parametrize("name", ["layer_norm_of_graphs", "batch_norm_without_statistics"])
def test_a_norm_over_the_whole_graph_is_refused_and_the_way_out_named(name):
    with pytest.raises(ModelError, match="norm='fixed'"):
        ew.walks(zoo.BY_NAME[name].build(), zoo.GRAPHS["everything"](), 1)
