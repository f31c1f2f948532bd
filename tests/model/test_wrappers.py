"""Wrapped, parametrized, hooked and otherwise bent models are explained as what they compute, and left as they were."""

import functools

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch_geometric.nn import GraphConv, MessagePassing, SGConv

import edgewise as ew
import zoo
from footprint import Footprint

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch.compile imports what torch itself deprecates
    # The footprint reads `.grad` of every tensor, also of those that have a history.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class Net(nn.Module):
    """Two layers whose messages are the columns, in their order; the variants bend what lies between."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GraphConv(5, 4), GraphConv(4, 3)
        self.norm, self.dropout, self.mix = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4)
        self.bend()

    def bend(self):
        """What a variant adds."""

    def between(self, x):
        return self.mix(self.dropout(self.norm(x))).tanh()

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index)


class Tied(Net):
    def bend(self):
        self.alias = nn.Linear(4, 4)
        self.alias.weight = self.mix.weight

    def between(self, x):
        return self.alias(super().between(x))


class Squared(nn.Module):
    def forward(self, weight):
        return weight.square()


class Parametrized(Net):
    def bend(self):
        parametrize.register_parametrization(self.mix, "weight", Squared())
        parametrize.register_parametrization(self.second.lin_rel, "weight", Squared())


class OldWeightNorm(Net):
    def bend(self):
        with pytest.warns(FutureWarning):
            nn.utils.weight_norm(self.mix)


class NewWeightNorm(Net):
    def bend(self):
        parametrizations.weight_norm(self.mix)
        parametrizations.weight_norm(self.first.lin_rel)


class OldSpectralNorm(Net):
    def bend(self):
        nn.utils.spectral_norm(self.mix)


class NewSpectralNorm(Net):
    def bend(self):
        parametrizations.spectral_norm(self.mix)


class Hooked(Net):
    """Hooks of the user's own change what the model computes."""

    def bend(self):
        self.mix.register_forward_hook(lambda module, args, output: 2 * output)
        self.second.register_forward_pre_hook(lambda module, args: (args[0] + 1, *args[1:]))
        self.first.register_message_forward_hook(lambda module, args, output: 3 * output)


class BoundMethod(Net):
    def bend(self):
        self.block, self.scaled = self.norm.forward, functools.partial(self.scale, by=2.0)

    def scale(self, x, by):
        return x * by

    def between(self, x):
        return self.mix(self.scaled(self.block(x))).tanh()


class Closure(Net):
    def bend(self):
        self.block = lambda x: self.mix(self.norm(x))

    def between(self, x):
        return self.block(x).tanh()


class ConvInClosure(Net):
    def bend(self):
        self.block = lambda x, edge_index: self.second(x, edge_index)

    def forward(self, x, edge_index):
        return self.block(self.between(self.first(x, edge_index)), edge_index)


class Unique:
    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")


class Uncopyable(Net):
    def bend(self):
        self.unique = Unique()


class Lightning(nn.Module):
    """What people write with Lightning: a module around the model, with losses and a trainer."""

    def __init__(self, model):
        super().__init__()
        self.model, self._trainer, self.loss = model, Unique(), nn.CrossEntropyLoss()

    def forward(self, x, edge_index):
        return self.model(x, edge_index)


TWINS = [
    Net,
    Tied,
    Parametrized,
    OldWeightNorm,
    NewWeightNorm,
    OldSpectralNorm,
    NewSpectralNorm,
    Hooked,
    BoundMethod,
    Uncopyable,
    Closure,
    ConvInClosure,
]


def built(make=Net):
    model, data = zoo.randomise(make()), zoo.GRAPHS["everything"]()
    return model, data


def expected_scores(model, data, node=1, column=2, call=None):
    """[L, E]: derivatives by the weights of messages, with hooks on the model itself."""
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    weights = [torch.ones(data.edge_index.size(1), 1, dtype=torch.float64, requires_grad=True) for _ in layers]
    before = [module.training for module in model.modules()]
    model.eval()
    handles = [
        layer.register_message_forward_hook(lambda module, args, output, weight=weight: output * weight)
        for layer, weight in zip(layers, weights, strict=True)
    ]
    output = (call or (lambda: model(data.x, data.edge_index)))()[node, column]
    found = torch.autograd.grad(output, weights)
    for handle in handles:
        handle.remove()
    for module, training in zip(model.modules(), before, strict=True):
        module.training = training
    return torch.stack([part.squeeze(1) for part in found])


def explained(model, data, **options):
    return ew.explain(model, data, 1, target=2, level="layer", **options)


@pytest.mark.parametrize("make", TWINS)
def test_a_bent_model_is_explained_as_what_it_computes_and_left_as_it_was(make):
    model, data = built(make)
    expected = expected_scores(model, data)
    model.train()
    before = Footprint(model, data)
    why = explained(model, data)
    before.assert_unchanged()
    torch.testing.assert_close(why.scores, expected, rtol=1e-9, atol=1e-11)
    assert why.settings["model"] == "a twin"


def test_a_forward_that_closes_over_the_model_is_explained_and_said_to_be_borrowed():
    model, data = built()
    expected = expected_scores(model, data)
    before = Footprint(model, data)
    why = explained(model, data, forward=lambda _, graph: model(graph.x, graph.edge_index))
    before.assert_unchanged()
    torch.testing.assert_close(why.scores, expected, rtol=1e-9, atol=1e-11)
    assert "closure" in why.settings["model"]


def on_the_cpu(model):
    """DataParallel, which would move the model to a GPU."""
    if torch.cuda.is_available():
        pytest.skip("DataParallel moves the model to the GPU")
    return nn.DataParallel(model)


WRAPPERS = {
    "data parallel": on_the_cpu,
    "compiled": torch.compile,
    "lightning": Lightning,
    "compiled lightning": lambda model: torch.compile(Lightning(model)),
    "lightning around compiled": lambda model: Lightning(torch.compile(model)),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_changes_no_score(wrapper):
    model, data = built()
    expected = expected_scores(model, data)
    wrapped = WRAPPERS[wrapper](model)
    before = Footprint(wrapped, data)
    found = explained(wrapped, data)
    before.assert_unchanged()
    torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-11)
    assert found.settings["model"] == "a twin"


def test_a_model_compiled_in_place_is_explained_without_its_compiled_call():
    model, data = built()
    expected = expected_scores(model, data)
    model.compile()
    compiled = model._compiled_call_impl
    torch.testing.assert_close(explained(model, data).scores, expected, rtol=1e-9, atol=1e-11)
    assert model._compiled_call_impl is compiled


def test_a_compiled_part_of_a_model_with_a_part_that_python_cannot_copy_is_taken_off():
    model, data = built(Uncopyable)
    expected = expected_scores(model, data)
    model.mix = torch.compile(model.mix)
    torch.testing.assert_close(explained(model, data).scores, expected, rtol=1e-9, atol=1e-11)


def test_a_distributed_model_is_explained_and_trains_on():
    model, data = built()
    expected = expected_scores(model, data)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        before = Footprint(model, data)
        found = explained(wrapped, data)
        before.assert_unchanged()
        wrapped(data.x, data.edge_index).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(found.scores, expected, rtol=1e-9, atol=1e-11)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_lightning_itself():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x, edge_index):
            return self.model(x, edge_index)

    model, data = built()
    expected = expected_scores(model, data)
    torch.testing.assert_close(explained(Module(model), data).scores, expected, rtol=1e-9, atol=1e-11)


def test_a_cache_of_another_graph_is_neither_used_nor_touched():
    class Cached(nn.Module):
        def __init__(self, cached):
            super().__init__()
            self.conv = SGConv(5, 3, K=2, cached=cached)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    model, data, other = zoo.randomise(Cached(True)), zoo.GRAPHS["everything"](), zoo.GRAPHS["directed"]()
    plain = Cached(False).double()
    plain.load_state_dict(model.state_dict())
    model(other.x, other.edge_index)
    kept = model.conv._cached_x
    before = Footprint(model, data)
    torch.testing.assert_close(explained(model, data).scores, explained(plain, data).scores)
    before.assert_unchanged()
    assert model.conv._cached_x is kept
    assert model.conv.cached
