"""PyG's convolutions with their options: gradients are differences, occlusion is a second run, or the layer is refused by name.

The twin below multiplies messages as MATH.md says and shares no code with the library.
"""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

import edgewise as ew
import zoo
from checks import one_in
from conv_catalogue import RELATIONS, Net, catalogue, graph
from oracles import match

STEP, CLASS = 1e-5, 1
CONVOLUTIONS = {conv.title: conv for conv in catalogue()}
EVERY = 9  # of the list in a normal run: at least one of almost every kind
SHORT = list(CONVOLUTIONS)[::EVERY]

pytestmark = [
    pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning"),
    pytest.mark.filterwarnings("ignore::edgewise.errors.OutputWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch_geometric"),
]


class Weighted:
    """A model as a function of ω[l, e]: every message is multiplied by the weight of its column in its layer."""

    def __init__(self, model, data, layers):
        self.model, self.data = copy.deepcopy(model), data
        self.weight, self.log = None, []
        for name in ("first", "second"):
            for module in getattr(self.model, name).modules():
                if isinstance(module, MessagePassing):
                    self._weigh(module, name)
        self()
        self.calls = [place for place, _ in self.log]
        counts = [self.calls.count(name) for name in ("first", "second")]
        own = [list(layers) or list(range(count)) for count in counts]
        self.layer_of = [*own[0], *(layer + max(own[0]) + 1 for layer in own[1])]
        assert [len(part) for part in own] == counts
        self.num_layers = max(self.layer_of) + 1
        if layers and len(layers) == RELATIONS:
            kinds = data.edge_attr[:, 0].mul(RELATIONS).long().clamp(max=RELATIONS - 1)
            given = [(kinds == call % RELATIONS).nonzero().view(-1) for call in range(len(self.calls))]
        else:
            given = [torch.arange(data.edge_index.size(1))] * len(self.calls)
        self.owners = [self._owners(used, columns) for (_, used), columns in zip(self.log, given, strict=True)]

    def _owners(self, used, columns):
        """For every message its column, or −1 for a node's own."""
        given, nodes = self.data.edge_index[:, columns], torch.arange(self.data.num_nodes)
        if torch.equal(used, given.flip(0)):  # against the arrows
            used = given
        pairs = []
        if torch.equal(used, torch.cat([given, nodes.expand(2, -1)], dim=1)):  # a loop is added beside an explicit one
            pairs, used = match(given, given), nodes.expand(2, -1)  # which owns every v→v message (MATH.md)
        pairs += match(used, given)
        return torch.tensor([int(columns[which]) if kind == "edge" else -1 for kind, which in pairs])

    def _weigh(self, conv, name):
        propagate, message = conv.propagate, conv.message
        current = {}
        if getattr(conv, "cached", False):
            conv.cached = False

        def weighted_propagate(edge_index, *args, **kwargs):
            current["call"] = len(self.log)
            self.log.append((name, edge_index))
            return propagate(edge_index, *args, **kwargs)

        def weighted_message(*args, **kwargs):
            out = message(*args, **kwargs)
            if self.weight is None:
                return out
            call = current["call"]
            padded = torch.cat([self.weight[self.layer_of[call]], self.weight.new_ones(1)])  # place −1: a node's own
            shape = [1] * out.dim()
            shape[conv.node_dim] = -1
            return out * padded[self.owners[call]].view(shape)

        conv.propagate, conv.message = weighted_propagate, weighted_message

    @torch.no_grad()
    def __call__(self, weight=None):
        """The explained column of every node."""
        self.weight, self.log = weight, []
        data = self.data
        return self.model(data.x, data.edge_index, data.edge_weight, data.edge_attr)[:, CLASS]

    def one_by_one(self, change):
        """[nodes, L, E]: a number for every weight, from a function of the outputs for values of it."""
        ones = torch.ones(self.num_layers, self.data.edge_index.size(1), dtype=torch.float64)
        found = torch.zeros(self.data.num_nodes, *ones.shape, dtype=torch.float64)
        for layer, column in torch.cartesian_prod(*map(torch.arange, ones.shape)).tolist():

            def at(value, layer=layer, column=column):
                weight = ones.clone()
                weight[layer, column] = value
                return self(weight)

            found[:, layer, column] = change(at)
        return found


def has_derivative(twin, slope):
    """[nodes, L, E]: false where a weight decides which of two equal messages is the larger.

    A bend shows in the second difference: that of a smooth function shrinks with the step, that of a kink does not.
    """
    wide, narrow = (
        twin.one_by_one(lambda at, step=step: ((at(1 + step) - 2 * at(1.0) + at(1 - step)) / step).abs())
        for step in (10 * STEP, STEP)
    )
    return narrow <= wide / 5 + 1e-9 * (1 + slope.abs().max())


def problem(title, seed=0):
    """(model with generic weights, graph)."""
    torch.manual_seed(seed)
    return zoo.randomise(Net(CONVOLUTIONS[title])), graph(seed)


def runs(model, data):
    """Whether PyG itself can run it: some options exist on paper only, or need a package that is not here."""
    try:
        with torch.no_grad():
            model(data.x, data.edge_index, data.edge_weight, data.edge_attr)
    except (RuntimeError, ImportError, AttributeError, ValueError, AssertionError, NotImplementedError):
        return False
    return True


def verdict(title, seed=0):
    """ "right", "refused" (by the name of a layer) or "cannot run"; anything else raises."""
    model, data = problem(title, seed)
    if not runs(copy.deepcopy(model), data):
        return "cannot run"
    asked = {"target": CLASS, "level": "layer"}
    refusal = ""
    try:
        gradient = ew.explain(model, data, **asked)
        occlusion = ew.explain(model, data, method="occlusion", **asked)
    except ew.EdgewiseError as error:
        refusal = str(error)
    if refusal:
        assert "first" in refusal or "second" in refusal, f"{title} is refused without the name of a layer: {refusal}"
        return "refused"
    twin = Weighted(model, data, CONVOLUTIONS[title].layers)
    assert gradient.num_layers == twin.num_layers, f"{title}: depth"
    slope = twin.one_by_one(lambda at: (at(1 + STEP) - at(1 - STEP)) / (2 * STEP))
    off = (torch.stack([why.scores for why in gradient]) - slope).abs()
    if off.max() > 1e-6 * (1 + slope.abs().max()):
        smooth = has_derivative(twin, slope)
        assert smooth.double().mean() > 0.5, f"{title}: almost no weight has a derivative"
        assert (off * smooth).max() <= 1e-6 * (1 + slope.abs().max()), f"{title}: a gradient is off by {off.max():.3g}"
    silenced = twin.one_by_one(lambda at: at(1.0) - at(0.0))
    off = (torch.stack([why.scores for why in occlusion]) - silenced).abs().max()
    assert off <= 1e-9 * (1 + silenced.abs().max()), f"{title}: an occlusion is off by {off:.3g}"
    return "right"


@pytest.mark.parametrize("title", one_in(2, SHORT))
def test_a_convolution_is_explained_rightly_or_refused_by_name(title):
    assert verdict(title) in ("right", "refused", "cannot run")


def test_the_short_list_has_almost_every_kind():
    kinds, short = ({title.partition("(")[0] for title in titles} for titles in (CONVOLUTIONS, SHORT))
    assert len(kinds) > 50
    assert len(short) > 40


@pytest.mark.slow
def test_every_convolution_with_every_option_is_right_or_refused():
    found = {title: verdict(title, seed=1) for title in CONVOLUTIONS}
    assert sum(word == "right" for word in found.values()) >= 1000
    assert {title.partition("(")[0] for title, word in found.items() if word == "refused"} <= {"ARMAConv"}


def test_stacks_of_arma_layers_are_explained_by_gradients_as_by_occlusion():
    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (pyg.ARMAConv(4, 4, num_stacks=3, num_layers=2) for _ in range(2))

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    torch.manual_seed(0)
    model, generator = Stacked().double().eval(), torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    data = Data(x=x, edge_index=torch.randint(0, 30, (2, 70), generator=generator))
    score = ew.Score(model, data, index=[2])
    weight = score.ones()
    step, whole = 1e-6, float(score(weight))
    found = {
        method: ew.explain(model, data, index=2, method=method, level="layer") for method in ("gradient", "occlusion")
    }
    for number in range(weight.size(1)):
        for less, method in ((step, "gradient"), (1.0, "occlusion")):
            changed = weight.clone()
            changed[1, number] -= less
            slope = (whole - float(score(changed))) / less
            assert abs(slope - float(found[method].scores[1, score.edge_id[number]])) < 1e-5
