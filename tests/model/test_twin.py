"""A twin computes what the model computes, and nothing that is done to it is seen on the model."""

import functools
import gc
import io
import logging
import random
import signal
import threading
import time
import weakref
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm as parametrized_weight_norm
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, Linear, SGConv

import edgewise as ew
import zoo
from edgewise.errors import ModelError
from edgewise.model.global_state import push_mode
from edgewise.model.module_copy import unwrapped
from edgewise.model.twin import lent, make_twin, usable_model, watch_originals
from footprint import Footprint

# The footprint reads `.grad` of every tensor, also of those that have a history.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


class Net(nn.Module):
    """Two GCN layers with a norm and dropout between them; the variants below bend it."""

    def __init__(self, cached=False):
        super().__init__()
        self.first, self.second = GCNConv(5, 4, cached=cached), GCNConv(4, 3)
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.bend()

    def bend(self):
        """What a variant adds."""

    def between(self, x):
        return self.dropout(self.norm(x).relu())

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index)


class Tied(Net):
    def bend(self):
        self.again, self.alias = nn.Linear(4, 4), nn.Linear(4, 4)
        self.alias.weight = self.again.weight
        self.same_module = self.again

    def between(self, x):
        return self.same_module(self.alias(self.again(super().between(x))))


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


class Parametrized(Net):
    def bend(self):
        parametrize.register_parametrization(self.first.lin, "weight", Doubled())
        parametrize.register_parametrization(self.second, "bias", Doubled())


class Mixed(Net):
    def bend(self):
        self.mixed = nn.Linear(4, 4)

    def between(self, x):
        return self.mixed(super().between(x))


class OldWeightNorm(Mixed):
    def bend(self):
        with pytest.warns(FutureWarning):
            self.mixed = nn.utils.weight_norm(nn.Linear(4, 4))


class NewWeightNorm(Mixed):
    def bend(self):
        self.mixed = parametrized_weight_norm(nn.Linear(4, 4))
        parametrized_weight_norm(self.first.lin)


class OldSpectralNorm(Mixed):
    def bend(self):
        self.mixed = nn.utils.spectral_norm(nn.Linear(4, 4))


@dataclass
class Record:
    scale: torch.Tensor
    layer: nn.Module


class Holder:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


class Tensors(Net):
    """Tensors in every kind of attribute, many with a history."""

    def bend(self):
        weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
        self.plain, self.leaf, self.non_leaf = torch.ones(4), weight, weight * 2
        self.many, self.named, self.pair = [weight * 3], {"a": {"b": weight.exp()}}, (weight.cos(), 1)
        self.graph = Data(x=weight.sin().view(1, 4), note="kept")
        self.record = Record(weight.tanh(), nn.Linear(4, 4).double())
        self.held, self.free = Holder(weight.sigmoid()), [nn.Parameter(torch.ones(4))]
        self.register_buffer("hidden", weight.square().detach(), persistent=False)
        self.convs = [GCNConv(4, 4).double()]  # not registered

    def between(self, x):
        x = super().between(x) * self.plain + self.leaf + self.non_leaf * self.many[0] - self.named["a"]["b"]
        x = x + self.pair[0] + self.graph.x * self.record.scale + self.held.tensor * self.free[0] * self.hidden
        return self.convs[0](self.record.layer(x), torch.tensor([[0, 1], [1, 0]]))


class Recurrent(Net):
    def bend(self):
        self.lstm, self.heads = nn.LSTM(4, 4, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)

    def between(self, x):
        x = self.lstm(super().between(x).unsqueeze(0))[0]
        return self.heads(x, x, x)[0].squeeze(0)


class Bound(Net):
    """Bound methods, partials and a weak reference, all to itself."""

    def bend(self):
        self.block, self.turn = self.norm.forward, functools.partial(self.swap, by=2.0)
        self.whole = (weakref.ref(self),)

    def swap(self, x, by):
        return x * by

    def between(self, x):
        return self.turn(self.whole[0]().dropout(self.block(x)))


class Writes(Net):
    """Writes into a buffer, an attribute, a list and a tensor in a list."""

    def bend(self):
        self.register_buffer("count", torch.zeros(()))
        self.last, self.log, self.sums = None, [], [torch.zeros(4, dtype=torch.float64)]

    def between(self, x):
        self.count += 1
        self.last = x
        self.log.append(x.sum())
        self.sums[0] += x.detach().sum(0)
        return super().between(x)


class Own(Net):
    """Says itself how it is copied, because of a lock."""

    def bend(self):
        self.lock = threading.Lock()

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "lock"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.lock = threading.Lock()

    def between(self, x):
        with self.lock:
            return super().between(x)


class Trainer:
    def __deepcopy__(self, memo):
        raise RuntimeError("a trainer is not copied")


class Lightning(Net):
    def bend(self):
        self._trainer = Trainer()


VARIANTS = [
    Net,
    Tied,
    Parametrized,
    OldWeightNorm,
    NewWeightNorm,
    OldSpectralNorm,
    Tensors,
    Recurrent,
    Bound,
    Writes,
    Own,
]
VARIANTS += [Lightning, functools.partial(Net, cached=True)]


def problem(make=Net):
    """(model in training mode with generic weights and gradients, data, what it predicts in eval mode)."""
    model, data = zoo.randomise(make()), zoo.GRAPHS["everything"]()
    expected = predict(make_twin(model).model, data) if make is Writes else predict(model, data)
    model.train()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return model, data, expected


def predict(model, data):
    with torch.no_grad():
        return model(data.x, data.edge_index)


def runner(data):
    return lambda model: model(data.x, data.edge_index)


# What a twin is #######################################################################################################


@pytest.mark.parametrize("make", VARIANTS)
def test_a_twin_gives_the_numbers_of_the_model_and_leaves_no_trace(make):
    model, data, expected = problem(make)
    before = Footprint(model, data)
    twin, found = usable_model(model, runner(data))
    assert twin.borrowed == ""
    torch.testing.assert_close(
        found, expected, rtol=0, atol=1e-12
    )  # attention takes another way if it may be differentiated
    assert not found.requires_grad
    before.assert_unchanged()


@pytest.mark.parametrize("make", VARIANTS)
def test_no_module_and_no_tensor_of_a_twin_belongs_to_the_model(make):
    model, _, _ = problem(make)
    twin = make_twin(model).model
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    assert [name for name, _ in twin.named_modules(remove_duplicate=False)] == names
    assert not {id(module) for module in model.modules()} & {id(module) for module in twin.modules()}
    assert not any(module.training or getattr(module, "cached", False) for module in twin.modules())
    mine = dict(model.named_parameters(remove_duplicate=False))
    for name, parameter in twin.named_parameters(remove_duplicate=False):
        assert parameter is not mine[name]
        assert parameter.data_ptr() == mine[name].data_ptr(), "the memory is shared"
        assert not parameter.requires_grad
        assert parameter.grad is None
    for name, buffer in twin.named_buffers():
        assert buffer.data_ptr() != model.get_buffer(name).data_ptr(), "a forward pass may write here"


def test_an_update_of_the_weights_in_place_is_seen_by_the_twin():
    model, data, expected = problem()
    twin = make_twin(model).model
    with torch.no_grad():
        model.first.bias += 1
    found = predict(twin, data)
    assert not torch.equal(found, expected)
    assert torch.equal(found, predict(model.eval(), data))


def test_tied_weights_stay_tied():
    model, _, _ = problem(Tied)
    twin = make_twin(model).model
    assert twin.alias.weight is twin.again.weight
    assert twin.same_module is twin.again


@pytest.mark.parametrize("filled", [False, True])
def test_a_cached_graph_is_neither_read_nor_written(filled):
    model = zoo.randomise(nn.ModuleList([GCNConv(5, 5, cached=True), SGConv(5, 3, K=2, cached=True)]))
    data, other = zoo.GRAPHS["everything"](), zoo.GRAPHS["directed"]()

    def run(model, data):
        return model[1](model[0](data.x, data.edge_index), data.edge_index)

    fresh = make_twin(model).model
    expected = run(fresh, data)
    assert fresh[0]._cached_edge_index is None
    if filled:
        run(model, other)
    before = Footprint(model, data)
    assert torch.equal(run(make_twin(model).model, data), expected)
    before.assert_unchanged()
    assert (model[1]._cached_x is not None) == filled


def test_what_forward_writes_stays_on_the_twin():
    model, data, _ = problem(Writes)
    twin = make_twin(model).model
    predict(twin, data)
    predict(twin, data)
    assert (twin.count, len(twin.log)) == (2, 2)
    assert twin.sums[0].any()
    assert (model.count, model.last, model.log) == (0, None, [])
    assert not model.sums[0].any()


def test_statistics_of_a_norm_are_not_moved_even_if_the_twin_is_trained():
    model, data, _ = problem()
    before = Footprint(model, data)
    twin = make_twin(model).model.train()
    predict(twin, data)
    assert not torch.equal(twin.norm.running_mean, model.norm.running_mean)
    twin.norm.register_forward_hook(lambda *_: None)
    twin.double().requires_grad_(True)
    twin(data.x, data.edge_index).sum().backward()
    before.globals = Footprint(model, data).globals  # dropout was trained: that draws
    before.assert_unchanged()


def test_a_twin_in_another_precision_leaves_the_model_in_its_own():
    model, data, expected = problem()
    twin = make_twin(model.float()).model.double()
    assert predict(twin, data).dtype == torch.float64
    assert torch.allclose(predict(twin, data), expected, atol=1e-4)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_hooks_of_the_user_run_once_and_with_the_twin():
    model, data, expected = problem()
    calls = []

    def scale(module, _, output):
        calls.append(module)
        return 2 * output

    handles = [
        model.second.register_forward_hook(scale),
        model.norm.register_forward_pre_hook(lambda *_: calls.append("pre")),
    ]
    handles.append(model.first.register_message_forward_hook(lambda *_: calls.append("message")))
    twin, found = usable_model(model, runner(data))
    assert twin.borrowed == ""
    assert calls == ["message", "pre", twin.model.second]
    assert torch.equal(found, 2 * expected)
    for handle in handles:
        handle.remove()
    assert len(twin.model.second._forward_hooks) == 1


def test_a_model_made_by_tracing_is_copied():
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(5, 3), nn.ReLU()))
    twin = make_twin(graph)
    assert twin.borrowed == ""
    assert twin.model.get_parameter("0.weight").data_ptr() == graph.get_parameter("0.weight").data_ptr()
    assert torch.equal(twin.model(torch.ones(2, 5)), graph(torch.ones(2, 5)))


def test_a_generator_of_the_model_does_not_move():
    model, _, _ = problem()
    model.generator = torch.Generator().manual_seed(4)
    twin = make_twin(model).model
    assert torch.equal(torch.rand(3, generator=twin.generator), torch.rand(3, generator=model.generator))


def test_the_copy_is_released_with_the_last_use_of_it():
    model, _, _ = problem(Tied)
    twin = make_twin(model)
    alive = weakref.ref(twin.model)
    del twin
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_twin_made_without_gradients_can_be_differentiated(mode):
    model, data, _ = problem(Tensors)
    with mode():
        twin = make_twin(model).model
    x = data.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(twin(x, data.edge_index).sum(), x)
    assert gradient.any()


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_pass_can_be_differentiated_whatever_mode_the_caller_is_in(mode):
    model, data, _ = problem()

    def run(model):
        x = data.x.clone().requires_grad_()
        return torch.autograd.grad(model(x, data.edge_index).sum(), x)[0]

    with mode():
        _, gradient = usable_model(model, run)
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert gradient.any()


def test_lazy_layers_are_refused_by_name():
    model = nn.ModuleDict({"head": Linear(-1, 3)})
    with pytest.raises(ModelError, match=r"head\.weight without a shape"):
        make_twin(model)


def test_a_twin_is_made_in_a_moment():
    model, seconds = GCN(16, 32, 3, 4), []
    for _ in range(50):
        start = time.perf_counter()
        make_twin(model)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 3e-3  # a third of a millisecond on a machine that does nothing else


# Wrappers #############################################################################################################


class Fabric(nn.Module):
    """Lightning Fabric's wrapper, as far as we look at it."""

    def __init__(self, module):
        super().__init__()
        self._forward_module = self._original_module = module


class Compiled(nn.Module):
    """The wrapper of `torch.compile`, as far as we look at it."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, *args):
        raise AssertionError("compiled code was run")


def compiled(model):
    return torch.compile(model, backend="eager")


@pytest.mark.skipif(torch.cuda.is_available(), reason="DataParallel moves the model to the GPU")
@pytest.mark.parametrize("wrap", [nn.DataParallel, Fabric, Compiled, lambda m: nn.DataParallel(Compiled(m)), compiled])
def test_wrappers_are_taken_off(wrap):
    model, data, expected = problem()
    wrapper = wrap(model)
    assert unwrapped(wrapper) is model
    before = Footprint(model, data)
    twin, found = usable_model(wrapper, runner(data))
    assert type(twin.model) is Net
    assert torch.equal(found, expected)
    before.assert_unchanged()


def test_wrappers_inside_a_model_are_taken_off_in_the_twin():
    model, data, expected = problem()
    model.first = Compiled(model.first)
    twin, found = usable_model(model, runner(data))
    assert type(twin.model.first) is GCNConv
    assert torch.equal(found, expected)


def test_a_wrapper_that_changes_the_function_stays():
    class Halved(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = Halved(nn.Linear(2, 1))
    assert unwrapped(model) is model


def test_a_compiled_call_is_not_carried_over():
    model, data, expected = problem()
    model.compile(backend="eager")
    twin, found = usable_model(model, runner(data))
    assert twin.model._compiled_call_impl is None
    assert torch.equal(found, expected)


# What Python cannot copy ################################################################################################


class Raises:
    def __deepcopy__(self, memo):
        raise RuntimeError("one of a kind")


class Service:
    """An object with a lock, something to count, and parts of the model."""

    __slots__ = ("counts", "lock", "norm", "unset")

    def __init__(self, norm):
        self.lock, self.counts, self.norm = threading.Lock(), {"calls": 0}, norm

    def __call__(self, x):
        with self.lock:
            self.counts["calls"] += 1
            return self.norm(x)


class Served(Net):
    """Holds what cannot be copied, uses it, and changes it."""

    def bend(self):
        self.lock, self.again = threading.Lock(), threading.RLock()
        self.service, self.ready = Service(self.norm), threading.Event()
        self.log = logging.getLogger("tests of twins")
        self.keep, self.stream = Raises(), io.StringIO()
        self.keep.inner = {"again": [self.service]}

    def between(self, x):
        with self.lock, self.again, self.service.lock:
            self.log.debug("between")
        return self.dropout(self.keep.inner["again"][0](x).relu())


UNCOPYABLE = {
    "one of a kind": Raises,
    "lock": threading.Lock,
    "condition": threading.Condition,
    "local": threading.local,
    "generator": lambda: (number for number in range(3)),
    "TextIOWrapper": lambda: open(__file__, encoding="utf-8"),  # noqa: SIM115
    "module": lambda: threading,
}


@pytest.mark.parametrize("word", UNCOPYABLE)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_what_cannot_be_copied_is_built_anew_or_shared(word):
    model, data, expected = problem()
    model.keep = [UNCOPYABLE[word]()]
    before = Footprint(model, data)
    twin, found = usable_model(model, runner(data))
    assert twin.model is not model
    assert not twin.borrowed
    assert torch.equal(found, expected)
    before.assert_unchanged()


def test_locks_and_what_holds_them_are_of_the_twin_alone():
    model, data, expected = problem(Served)
    before = Footprint(model, data)
    with model.lock, model.again, model.service.lock:  # a thread that predicts at this moment
        twin, found = usable_model(model, runner(data))
    assert torch.equal(found, expected)
    ours = twin.model
    assert ours.service.norm is ours.norm
    assert ours.keep.inner["again"][0] is ours.service
    assert model.service.counts is not ours.service.counts
    assert not hasattr(ours.service, "unset")
    before.assert_unchanged()


def test_a_model_with_locks_is_explained_while_threads_predict_with_it():
    model, data, _ = problem(Served)
    model.train()  # hooks, eval mode and gradients of the one must not be seen by the others
    model.dropout.p, model.norm.momentum = 0.0, 0.0
    own, errors, done = predict(model, data), [], threading.Event()

    def predicts():
        while not done.is_set():
            if not torch.equal(predict(model, data), own):
                errors.append("a wrong prediction")

    threads = [threading.Thread(target=predicts) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        scores = [ew.explain(model, data, [0, 1], level="layer") for _ in range(8)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert all(torch.equal(a.scores, b.scores) for some in scores for a, b in zip(some, scores[0], strict=True))


class Sticky(nn.Module):
    """Returns itself where a copy is asked for."""

    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        return x


class WithSticky(Net):
    def bend(self):
        self.sticky = Sticky()

    def between(self, x):
        return self.sticky(super().between(x))


def test_a_part_that_gives_itself_for_a_copy_is_built_anew():
    model, data, expected = problem(WithSticky)
    before = Footprint(model, data)
    twin, found = usable_model(model, runner(data))
    assert twin.model.sticky is not model.sticky
    assert torch.equal(found, expected)
    before.assert_unchanged()


class BoundLater(Net):
    """Its block is a function that is bound to it later."""

    def bend(self):
        self.block = self.norm.forward

    def between(self, x):
        return self.dropout(self.block(x).relu())


HELD = {}


class Reaching(Net):
    """Knows itself by a global, which no copy of it can change."""

    def bend(self):
        HELD["model"] = self
        self.block = lambda x: HELD["model"].norm(x)

    def between(self, x):
        return self.dropout(self.block(x).relu())


class ReachingForATensor(Net):
    def bend(self):
        HELD["model"] = self
        self.block = lambda x: x + HELD["model"].second.lin.weight.sum() * 0

    def between(self, x):
        return super().between(self.block(x))


class Stubborn(Reaching):
    """Catches whatever its parts raise."""

    def between(self, x):
        try:
            return super().between(x)
        except Exception:
            return x * 0


@pytest.mark.parametrize(
    ("make", "part"), [(Reaching, "norm"), (ReachingForATensor, "second.lin.weight"), (Stubborn, "norm")]
)
def test_a_model_that_reaches_for_the_original_is_borrowed_before_it_does_harm(make, part):
    model, data, expected = problem(make)
    before = Footprint(model, data)
    twin, found = usable_model(model, runner(data))
    assert twin.borrowed == f"forward calls modules of the original through a closure: {part}"
    assert twin.model is model
    assert torch.equal(found, expected)
    before.assert_unchanged()


def test_a_forward_that_closes_over_the_model_is_noticed():
    model, data, expected = problem()
    before = Footprint(model, data)
    twin, found = usable_model(model, lambda _: model(data.x, data.edge_index))
    assert "the model itself" in twin.borrowed
    assert torch.equal(found, expected)
    before.assert_unchanged()


def test_a_method_of_another_object_that_holds_the_model_is_noticed():
    model, data, expected = problem()
    reference = weakref.proxy(model)
    twin, found = usable_model(
        model, lambda ours: ours.second(reference.between(ours.first(data.x, data.edge_index)), data.edge_index)
    )
    assert twin.borrowed.endswith(": norm")
    assert torch.equal(found, expected)


def test_the_watch_lists_each_original_once_and_only_those_of_this_thread():
    model, data, _ = problem()
    model.eval()
    twin = make_twin(model)
    with watch_originals(model, twin) as watch:
        predict(twin.model, data)
        thread = threading.Thread(target=predict, args=(model, data))
        thread.start()
        thread.join()
        nn.Linear(2, 2)(torch.ones(1, 2))
        assert watch.seen == []
        model.norm(torch.ones(2, 4, dtype=torch.float64)), model.dropout(torch.ones(2)), model.dropout(torch.ones(2))
    assert watch.seen[0] == "norm"
    assert watch.seen.count("dropout") == 1
    model.first(data.x, data.edge_index)
    assert "first" not in watch.seen, "the watch is over"


def counting_down(model):
    def step(x, left):
        return model.norm(x) if left == 0 else step(x, left - 1)

    return lambda x: step(x, 2)


KNOWING = {
    "a closure": lambda model: lambda x: model.norm(x),
    "a default": lambda model: lambda x, norm=model.norm: norm(x),
    "a keyword default": lambda model: lambda x, *, norm=model.norm: norm(x),
    "a partial": lambda model: functools.partial(lambda ours, x: ours.norm(x), model),
    "functions in a list": lambda model: functools.partial(lambda all_, x: all_[0](x), [lambda x: model.norm(x)]),
    "itself": counting_down,
    "a method": lambda model: functools.wraps(model.norm.forward)(lambda x, run=model.norm.forward: run(x)),
    "a weak reference": lambda model: functools.partial(lambda ours, x: ours().norm(x), weakref.ref(model)),
    "a tensor": lambda model: lambda x, weight=model.second.lin.weight: model.norm(x) + 0 * weight.sum(),
}


@pytest.mark.parametrize("known", KNOWING)
def test_functions_that_know_the_model_know_its_twin(known):
    model, data, expected = problem(BoundLater)
    model.block = KNOWING[known](model)
    before = Footprint(model, data)
    twin, found = usable_model(model, runner(data))
    assert twin.borrowed == ""
    assert torch.equal(found, expected)
    before.assert_unchanged()
    twin.model.norm.weight = nn.Parameter(2 * twin.model.norm.weight)
    assert not torch.equal(runner(data)(twin.model), expected)
    assert torch.equal(predict(model.eval(), data), expected)


# Failures, interrupts, threads ########################################################################################


class Fails(Net):
    error: type[BaseException] = RuntimeError

    def between(self, x):
        self.dropout.p = 0.1
        raise self.error("in the middle of the pass")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("copyable", [True, False])
def test_a_pass_that_fails_leaves_no_trace_and_is_heard(error, copyable):
    model, data = Fails().double(), zoo.GRAPHS["everything"]()
    model.error, model.keep = error, None if copyable else Raises()
    before = Footprint(model, data)
    with pytest.raises(error, match="in the middle"):
        usable_model(model, runner(data))
    before.assert_unchanged()
    assert torch._C._len_torch_function_stack() == 0


# One that comes inside a callback of the garbage collector or of a weak reference reaches nobody: Python only warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [Net, Tensors])
def test_an_interrupt_at_any_moment_leaves_no_trace(make):
    model, data, expected = problem(make)
    before, heard, draw = Footprint(model, data), 0, random.Random(0)
    start = time.perf_counter()
    usable_model(model, runner(data))
    usual = time.perf_counter() - start

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, usual))
                usable_model(model, runner(data))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                heard += 1
            before.assert_unchanged()
            assert torch._C._len_torch_function_stack() == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert heard > 20, "too few interrupts arrived: the test could not fail"
    assert torch.equal(usable_model(model, runner(data))[1], expected)


def test_what_an_interrupt_leaves_hanging_is_finished_before_the_thread_is_put_back():
    model, _, _ = problem()

    def late():
        try:
            yield
        finally:  # as torch does where an interrupt comes while it has taken a mode off
            push_mode(TorchFunctionMode())

    def run(_):
        hanging = late()
        next(hanging)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        usable_model(model, run)
    assert torch._C._len_torch_function_stack() == 0
    del caught
    gc.collect()
    assert torch._C._len_torch_function_stack() == 0


class Crowd:
    """Threads that repeat a task until they are told to stop; what they found wrong is kept."""

    def __init__(self, tasks):
        self.wrong, self.done, self.errors = [], [0] * len(tasks), []
        self.threads = [threading.Thread(target=self._repeat, args=item) for item in enumerate(tasks)]

    def _repeat(self, position, task):
        try:
            for _ in range(25):
                if not task():
                    self.wrong.append(position)
                self.done[position] += 1
        except BaseException as error:
            self.errors.append(error)

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        assert (self.errors, self.wrong) == ([], [])
        assert set(self.done) == {25}


@pytest.mark.parametrize("training", [False, True])
def test_eight_threads_with_twins_and_one_that_predicts_do_not_disturb_each_other(training):
    model, data, expected = problem()
    model.dropout.p, model.norm.momentum = (
        0.0,
        0.0,
    )  # training mode: batch statistics, but nothing random and nothing moved
    model.train(training)
    own = predict(model, data)
    assert torch.equal(own, expected) != training
    before = Footprint(model, data)
    before_version = model.norm.num_batches_tracked.clone()

    def explain():
        twin = make_twin(model)
        handle = twin.model.first.register_message_forward_hook(lambda _, __, out: 2 * out)
        doubled = predict(twin.model, data)
        handle.remove()
        twin, found = usable_model(model, runner(data))
        return twin.borrowed == "" and torch.equal(found, expected) and not torch.equal(doubled, expected)

    Crowd([explain] * 8 + [lambda: torch.equal(predict(model, data), own)]).run()
    if training:  # the user's own passes count themselves
        assert model.norm.num_batches_tracked == before_version + 25
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    else:
        before.assert_unchanged()


def test_threads_that_must_borrow_take_turns():
    model, data, expected = problem(Reaching)
    before = Footprint(model, data)

    def explain():
        twin, found = usable_model(model, runner(data))
        return bool(twin.borrowed) and torch.equal(found, expected)

    Crowd([explain] * 4).run()
    before.assert_unchanged()


def test_a_twin_made_while_the_model_is_lent_carries_none_of_the_loan():
    model, data, expected = problem()
    model.keep = Raises()
    found = []
    with lent(model) as ours:
        handle = ours.second.register_forward_hook(lambda *_: 0)
        model.keep = None  # so that the other thread could copy it
        thread = threading.Thread(target=lambda: found.append(usable_model(model, runner(data))))
        thread.start()
        time.sleep(0.05)
        assert not found, "the other thread did not wait"
        handle.remove()
    thread.join()
    assert torch.equal(found[0][1], expected)
