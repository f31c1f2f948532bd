"""A held question notices every change of what `forward` can reach, and nothing else."""

import array
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import importlib
import logging
import subprocess
import sys
import threading
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv

import edgewise as ew
from edgewise.graph import cut
from edgewise.question import subject

HELPERS = """
import torch
from functools import lru_cache, wraps
import {name}_more as more

ALPHA = 1.5
TABLE = {{"deep": [{{"levels": ({{"of": [torch.ones(1, dtype=torch.float64)]}},)}}]}}
CALLS = []
CACHE = {{}}
COUNT = 0

def scaled(x, by=1.0, *, shift=0.0):
    return x * ALPHA * by + shift + more.offset(x)

def counted(x):
    global COUNT
    COUNT += 1
    CALLS.append(len(x))
    CACHE[len(x)] = COUNT
    return x

@lru_cache
def constant():
    return ALPHA

def kept(function):
    @wraps(function)
    def inner(x):
        return function(x)
    return inner

@kept
def wrapped(x):
    return x * ALPHA

class Tool:
    factor = 2.0
    __slots__ = ("power", "unset")
    def __init__(self, power=1.0):
        self.power = power
    def __call__(self, x):
        return x * self.factor * self.power
"""
MORE = """
BETA = 0.25

def offset(x):
    return deeper(x)

def deeper(x):
    return BETA
"""


@pytest.fixture
def helpers(request):
    with user_modules(f"user_helpers_{abs(hash(request.node.nodeid))}") as module:
        yield module


@contextlib.contextmanager
def user_modules(name):
    """A module of the user's that imports another one."""
    for full, source in ((f"{name}_more", MORE), (name, HELPERS.format(name=name))):
        module = sys.modules[full] = types.ModuleType(full)
        exec(compile(source, f"{full}.py", "exec"), vars(module))
    yield sys.modules[name]
    del sys.modules[name], sys.modules[f"{name}_more"]


class Mode(enum.Enum):
    LOUD = 2.0
    QUIET = 0.5


@dataclasses.dataclass(slots=True)
class Slotted:
    alpha: float
    parts: list


class Table(dict):
    """A dictionary with an attribute."""

    scale = 1.0


class Config:
    beta = 1.0

    def __init__(self):
        self.alpha, self.inner = 1.0, types.SimpleNamespace(gamma=[1.0, {"delta": 1.0}])

    def value(self):
        return self.alpha * self.beta * self.inner.gamma[0] * self.inner.gamma[1]["delta"]


Pair = collections.namedtuple("Pair", "first second")
SCALE = 1.0


class Net(nn.Module):
    """Two layers, and what a variant puts between them."""

    factor = 1.0

    def __init__(self, between=None, **attributes):
        super().__init__()
        self.one, self.two, self.between = GCNConv(4, 5), GCNConv(5, 3), between
        for key, value in attributes.items():
            setattr(self, key, value)

    def bend(self, x):
        return x * self.factor

    def forward(self, x, edge_index):
        x = self.bend(self.one(x, edge_index)).tanh()
        return self.two(x if self.between is None else self.between(self, x), edge_index)


def fresh(kind):
    """A class of the same code, which a test may change."""
    return type(kind.__name__, (kind,), {"__module__": kind.__module__})


def problem(between=None, kind=Net, **attributes):
    torch.manual_seed(0)
    data = Data(
        x=torch.randn(6, 4, dtype=torch.float64), edge_index=torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 2]])
    )
    return kind(between, **attributes).double().eval(), data


@torch.no_grad()
def output(model, data, forward=None):
    return model(data.x, data.edge_index) if forward is None else forward(model, data)


def assert_stale(model, data, change, *, forward=None, word="changed since", looks=2):
    """Only from the change on, in the first look and in a later one."""
    call = {} if forward is None else {"forward": forward}
    before = output(model, data, forward)
    early, late = (ew.Question(model, data, [2, 5], **call) for _ in range(2))
    for _ in range(looks):
        late.explain()
    change()
    assert not torch.equal(output(model, data, forward), before), "it changes nothing: no case"
    for ask in (early, late):
        with pytest.raises(ew.StaleQuestionError, match=word):
            ask.explain()
        with pytest.raises(ew.StaleQuestionError, match=word):
            ask.of(3)


def test_globals_and_helpers_of_helpers(helpers):
    for change in (
        lambda: setattr(helpers, "ALPHA", helpers.ALPHA + 1),
        lambda: setattr(helpers.more, "BETA", helpers.more.BETA + 1),
        lambda: setattr(helpers.more, "deeper", lambda x: 7.0),
        lambda: setattr(helpers.more.offset, "__code__", (lambda x: 3.0).__code__),
        lambda: setattr(helpers.scaled, "__defaults__", (4.0,)),
        lambda: setattr(helpers.scaled, "__kwdefaults__", {"shift": 2.0}),
        lambda: setattr(helpers, "scaled", lambda x: x * 9),
    ):
        assert_stale(*problem(lambda model, x: helpers.scaled(x)), change)


def test_a_number_that_the_forward_of_a_class_names(monkeypatch):
    class Named(Net):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index) * SCALE

    assert_stale(*problem(kind=Named), lambda: monkeypatch.setitem(globals(), "SCALE", 3.0), word="global SCALE")


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table["deep"][0]["levels"][0]["of"].__setitem__(0, torch.zeros(1, dtype=torch.float64)),
        lambda table: table["deep"][0]["levels"][0]["of"][0].add_(1),
        lambda table: table["deep"][0]["levels"][0]["of"][0].data.add_(1),
    ],
)
@pytest.mark.parametrize("where", ["global", "attribute", "closure", "default", "partial"])
def test_containers_many_levels_deep(helpers, change, where):
    table = helpers.TABLE

    def read(tensors, x):
        return x * tensors["deep"][0]["levels"][0]["of"][0]

    between = {
        "global": lambda model, x: read(helpers.TABLE, x),
        "attribute": lambda model, x: read(model.table, x),
        "closure": lambda model, x: read(table, x),
        "default": lambda model, x, kept=table: read(kept, x),
        "partial": lambda model, x: model.part(x),
    }[where]
    model, data = problem(between, table=table, part=functools.partial(read, table))
    # of what modules hold the twin has copies, so that the user's own is changed
    assert_stale(model, data, lambda: change(model.table if where != "partial" else model.part.args[0]))


def plain(key, value):
    return lambda model: setattr(functools.reduce(getattr, key.split(".")[:-1], model), key.split(".")[-1], value)


OBJECTS = {
    "a plain object": (Config, lambda m, x: x * m.held.value(), plain("held.alpha", 3.0)),
    "an object in it": (Config, lambda m, x: x * m.held.value(), plain("held.inner.gamma", [4.0, {"delta": 1.0}])),
    "a list in that": (Config, lambda m, x: x * m.held.value(), lambda m: m.held.inner.gamma.__setitem__(0, 2.0)),
    "a table in that": (Config, lambda m, x: x * m.held.value(), lambda m: m.held.inner.gamma[1].update(delta=2.0)),
    "a method of an object": (Config, lambda m, x: x * m.held.value(), lambda m: setattr(m.held, "value", lambda: 5.0)),
    "slots of a dataclass": (lambda: Slotted(1.0, [2.0]), lambda m, x: x * m.held.alpha, plain("held.alpha", 3.0)),
    "a list in slots": (
        lambda: Slotted(1.0, [2.0]),
        lambda m, x: x * m.held.parts[0],
        lambda m: m.held.parts.__setitem__(0, 1.0),
    ),
    "a kind of dictionary": (lambda: Table(a=1.0), lambda m, x: x * m.held["a"], lambda m: m.held.update(a=2.0)),
    "its attribute": (lambda: Table(a=1.0), lambda m, x: x * m.held.scale, plain("held.scale", 2.0)),
    "a default dictionary": (
        lambda: collections.defaultdict(lambda: 1.0),
        lambda m, x: x * m.held["a"],
        lambda m: m.held.__setitem__("a", 2.0),
    ),
    "a counter": (lambda: collections.Counter(a=1), lambda m, x: x * m.held["a"], lambda m: m.held.update(a=2)),
    "a queue": (lambda: collections.deque([1.0]), lambda m, x: x * m.held[0], lambda m: m.held.appendleft(2.0)),
    "a named tuple": (
        lambda: Pair(1.0, [2.0]),
        lambda m, x: x * m.held.second[0],
        lambda m: m.held.second.insert(0, 3.0),
    ),
    "an enum": (lambda: Mode.LOUD, lambda m, x: x * m.held.value, plain("held", Mode.QUIET)),
    "an array": (lambda: np.ones(5), lambda m, x: x * torch.from_numpy(m.held), lambda m: m.held.__setitem__(2, 3.0)),
    "a zero with a sign": (
        lambda: torch.zeros(1, dtype=torch.float64),
        lambda m, x: x * (1 / m.held).clamp(-9, 9),
        lambda m: m.held.mul_(-1),
    ),
    "a list of modules": (
        lambda: [nn.Linear(5, 5).double()],
        lambda m, x: m.held[0](x),
        lambda m: m.held[0].weight.data.add_(1),
    ),
    "a layer in a tuple in a list": (
        lambda: [(nn.Softplus(beta=1.0),)],
        lambda m, x: m.held[0][0](x),
        lambda m: setattr(m.held[0][0], "beta", 3.0),
    ),
    "a lambda": (lambda: lambda x: x * 2, lambda m, x: m.held(x), plain("held", lambda x: x * 3)),
    "a partial function": (
        lambda: functools.partial(torch.mul, other=2.0),
        lambda m, x: m.held(x),
        lambda m: m.held.keywords.update(other=3.0),
    ),
    "a namespace": (lambda: types.SimpleNamespace(a=1.0), lambda m, x: x * m.held.a, plain("held.a", 2.0)),
    "a distribution": (
        lambda: torch.distributions.Normal(torch.ones(1).double(), 1.0),
        lambda m, x: x * m.held.mean,
        lambda m: m.held.loc.add_(1),
    ),
    "a graph": (
        lambda: Data(a=torch.ones(5).double()),
        lambda m, x: x * m.held.a,
        lambda m: m.held.a.add_(1),
    ),
    "bytes": (lambda: bytearray(b"\1"), lambda m, x: x * m.held[0], lambda m: m.held.__setitem__(0, 2)),
    "numbers of an array": (
        lambda: array.array("d", [1.0]),
        lambda m, x: x * m.held[0],
        lambda m: m.held.insert(0, 2.0),
    ),
    "objects in an array": (
        lambda: np.array([Config()]),
        lambda m, x: x * m.held[0].value(),
        lambda m: setattr(m.held[0], "alpha", 2.0),
    ),
    "an object in a set": (
        lambda: {Config()},
        lambda m, x: x * next(iter(m.held)).value(),
        lambda m: setattr(next(iter(m.held)), "alpha", 2.0),
    ),
    "a key of a table": (
        lambda: {Config(): 1},
        lambda m, x: x * next(iter(m.held)).value(),
        lambda m: setattr(next(iter(m.held)), "alpha", 2.0),
    ),
    "a list of Python's library": (
        lambda: collections.UserList([1.0]),
        lambda m, x: x * m.held[0],
        lambda m: m.held.insert(0, 2.0),
    ),
    "what is looked up by a made name": (
        Config,
        lambda m, x: x * getattr(m.held, "al" + "pha"),
        plain("held.alpha", 2.0),
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_attributes_hold(name):
    make, between, change = OBJECTS[name]
    model, data = problem(between, held=make())
    assert_stale(model, data, lambda: change(model), word="attribute held")


@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in ("an enum", "a lambda")])
def test_what_closures_hold(name):
    make, between, change = OBJECTS[name]
    shared = types.SimpleNamespace(held=make())
    held = shared.held
    model, data = problem(lambda _, x: between(types.SimpleNamespace(held=held), x))
    assert_stale(model, data, lambda: change(shared))


def test_values_of_enums_and_attributes_of_classes(helpers):
    kind, settings = fresh(Net), fresh(Config)

    class Own(enum.Enum):
        A = 1.0

    own = {"mode": Own}
    assert_stale(*problem(lambda m, x: x * own["mode"].A.value), lambda: setattr(Own.A, "_value_", 2.0))
    assert_stale(*problem(kind=kind), lambda: setattr(kind, "factor", 2.0), word="factor")
    assert_stale(*problem(lambda m, x: x * m.held.value(), held=settings()), lambda: setattr(settings, "beta", 2.0))
    tool = helpers.Tool()
    assert_stale(*problem(lambda m, x: tool(x)), lambda: setattr(helpers.Tool, "factor", 3.0))
    assert_stale(*problem(lambda m, x: tool(x)), lambda: setattr(tool, "power", 3.0))
    assert_stale(*problem(lambda m, x: helpers.Tool(1.0)(x)), lambda: setattr(helpers.Tool, "__call__", lambda s, x: x))


class Kind(type):
    scale = 1.0


def test_references_classes_of_classes_and_values_of_threads():
    config, kind = Config(), type("Kind", (Kind,), {"__module__": __name__})
    one, some = weakref.ref(config), weakref.WeakValueDictionary(a=config)
    assert_stale(*problem(lambda m, x: x * one().value()), lambda: setattr(config, "alpha", 2.0))
    assert_stale(*problem(lambda m, x: x * some["a"].value()), lambda: setattr(config, "alpha", 3.0))
    proxy = weakref.proxy(config)
    assert_stale(*problem(lambda m, x: x * proxy.alpha), lambda: setattr(config, "alpha", 9.0))
    of_kind = kind("OfKind", (), {"__module__": __name__})
    assert_stale(*problem(lambda m, x: x * of_kind.scale), lambda: setattr(kind, "scale", 2.0))
    of_thread, variable = threading.local(), contextvars.ContextVar("variable", default=1.0)
    of_thread.scale = 1.0
    assert_stale(*problem(lambda m, x: x * of_thread.scale), lambda: setattr(of_thread, "scale", 2.0))
    assert_stale(*problem(lambda m, x: x * variable.get()), lambda: variable.set(2.0))
    Mode.LOUD.scale = 1.0
    assert_stale(*problem(lambda m, x: x * Mode.LOUD.scale), lambda: setattr(Mode.LOUD, "scale", 2.0))


ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("alone", sys.argv[1])
module = sys.modules["alone"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.user_modules("user_helpers") as helpers:
    module.check_modules_that_are_named_by_a_string(helpers)
"""


def test_modules_that_are_named_by_a_string():
    """In a process of its own: beside a runner of tests such code reaches all tests that it has collected."""
    subprocess.run([sys.executable, "-c", ALONE, __file__], check=True, timeout=300)


def check_modules_that_are_named_by_a_string(helpers):
    name = helpers.__name__
    for read in (
        lambda m, x: x * sys.modules[name].ALPHA,
        lambda m, x: x * importlib.import_module(name).ALPHA,
        lambda m, x: x * __import__(name).ALPHA,
    ):
        assert_stale(*problem(read), lambda: setattr(helpers, "ALPHA", helpers.ALPHA + 1))
    values = {"made": 1.0}
    helpers.__getattr__ = eval("lambda name: values[name]", {"values": values, "__name__": name})
    assert_stale(*problem(lambda m, x: x * helpers.made), lambda: values.update(made=2.0))
    assert_stale(*problem(lambda m, x: x * abs(-1)), lambda: setattr(sys.modules[__name__], "abs", lambda x: 5.0))
    del sys.modules[__name__].abs


def test_the_order_of_modules_and_hooks_of_all_modules():
    model, data = problem(lambda m, x: m.steps(x), steps=nn.Sequential(nn.Linear(5, 5), nn.Tanh()))
    assert_stale(model, data, lambda: model.steps._modules.update(a=model.steps._modules.pop("0")))
    handles = []

    def change():
        double = nn.modules.module.register_module_forward_hook(lambda module, given, made: made * 2)
        handles.append(double)

    try:
        assert_stale(*problem(), change, word="hooks of all modules")
    finally:
        handles[0].remove()


def test_methods_replaced_on_the_class_and_on_the_object():
    def other(self, x, edge_index):
        return self.two(self.one(x, edge_index), edge_index)

    kind = fresh(Net)
    assert_stale(*problem(kind=kind), lambda: setattr(kind, "forward", other), word="forward")
    kind = fresh(Net)
    assert_stale(*problem(kind=kind), lambda: setattr(kind, "bend", lambda self, x: x * 3), word="bend")
    model, data = problem()
    assert_stale(model, data, lambda: setattr(model, "forward", types.MethodType(other, model)))
    model, data = problem()
    assert_stale(model, data, lambda: setattr(model, "bend", lambda x: -x))
    model, data = problem()
    assert_stale(model, data, lambda: setattr(model, "__class__", type("Other", (Net,), {"factor": 4.0})))


def test_code_of_a_method_that_is_exchanged():
    kind = type("Net", (Net,), {"__module__": __name__, "bend": lambda self, x: x * 2})
    assert_stale(*problem(kind=kind), lambda: setattr(kind.bend, "__code__", (lambda self, x: x * 3).__code__))


def test_functions_of_installed_packages_that_are_patched(monkeypatch):
    softsign = F.softsign
    assert_stale(
        *problem(lambda m, x: F.softsign(x)), lambda: monkeypatch.setattr(F, "softsign", lambda x: softsign(x) * 2)
    )
    forward = GCNConv.forward
    model, data = problem()

    def changed(self, x, edge_index, edge_weight=None):
        return forward(self, x * 2, edge_index, edge_weight)

    assert_stale(model, data, lambda: monkeypatch.setattr(GCNConv, "forward", changed), word="GCNConv")


class Gated(MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return x_j * MESSAGE_SCALE


MESSAGE_SCALE = 1.0


def test_what_messages_of_an_own_layer_name(monkeypatch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = Gated()

        def forward(self, x, edge_index):
            return self.one(x, edge_index)

    data = problem()[1]
    model = Two().double().eval()
    assert_stale(model, data, lambda: monkeypatch.setitem(globals(), "MESSAGE_SCALE", 2.0), word="MESSAGE_SCALE")


def test_the_forward_that_was_given_and_what_it_reads(helpers):
    scale = [2.0]
    tool = helpers.Tool()
    model, data = problem()
    for forward, change in (
        (lambda m, d: m(d.x * scale[0], d.edge_index), lambda: scale.__setitem__(0, 3.0)),
        (lambda m, d: m(helpers.scaled(d.x), d.edge_index), lambda: setattr(helpers, "ALPHA", 5.0)),
        (lambda m, d: m(tool(d.x), d.edge_index), lambda: setattr(tool, "power", 4.0)),
        (lambda m, d: m(helpers.wrapped(d.x), d.edge_index), lambda: setattr(helpers, "ALPHA", 6.0)),
    ):
        assert_stale(model, data, change, forward=forward, word="forward=")


def test_an_outer_variable_that_is_set_anew():
    scale = 2.0

    def forward(model, data):
        return model(data.x * scale, data.edge_index)

    def change():
        nonlocal scale
        scale = 3.0

    assert_stale(*problem(), change, forward=forward, word="closure scale")


def test_a_module_that_is_imported_inside_a_function(helpers):
    body = f"def between(model, x):\n    import {helpers.__name__} as inner\n    return x * inner.ALPHA\n"
    place = {"__name__": "__main__"}
    exec(body, place)
    assert_stale(*problem(place["between"]), lambda: setattr(helpers, "ALPHA", 8.0))


def test_a_module_of_constants_that_is_looked_up_by_a_made_name(helpers):
    for between in (lambda m, x: x * vars(helpers)["ALPHA"], lambda m, x: x * getattr(helpers, "AL" + "PHA"[:3])):
        assert_stale(*problem(between), lambda: setattr(helpers, "ALPHA", helpers.ALPHA + 1))
    place = {"__name__": "__main__", "SIZE": 2.0}
    exec("def between(model, x):\n    return x * globals()['SI' + 'ZE']\n", place)
    assert_stale(*problem(place["between"]), lambda: place.update(SIZE=3.0))


def test_where_every_global_counts_questions_and_results_do_not():
    place = {"__name__": "__main__", "SIZE": 2.0}
    exec("def between(model, x):\n    return x * globals().get('SI' + 'ZE') * globals().get('MORE', 1.0)\n", place)
    model, data = problem(place["between"])
    ask = place["ask"] = ew.Question(model, data, [2, 5])
    for _ in range(3):
        place["found"] = ask.explain()
    place["MORE"] = 2.0
    with pytest.raises(ew.StaleQuestionError, match=r"between \(.*every global counts"):
        ask.explain()


def test_other_things_in_the_data_that_forward_reads():
    model, data = problem()
    data.scales = {"a": [1.0]}

    def forward(m, d):
        return m(d.x * d.scales["a"][0], d.edge_index)

    assert_stale(model, data, lambda: data.scales["a"].__setitem__(0, 2.0), forward=forward, word="scales")


# --- no false alarms ----------------------------------------------------------------------------------------------------


def assert_fresh(model, data, change, *, forward=None):
    call = {} if forward is None else {"forward": forward}
    early, late = (ew.Question(model, data, [2, 5], **call) for _ in range(2))
    before = late.explain()
    for _ in range(3):
        change()
        for ask in (late, early):
            assert [why.value for why in ask.explain()] == [why.value for why in before]


def test_predictions_training_mode_and_other_names_do_not_matter(helpers):
    model, data = problem(lambda m, x: helpers.scaled(x))

    def change():
        model.train()
        model(data.x, data.edge_index)
        model.eval()
        helpers.UNUSED = object()
        helpers.CALLS.append(3)
        helpers.scaled.__doc__ = "other words"

    assert_fresh(model, data, change)


def test_what_the_model_itself_counts_and_keeps_is_no_change(helpers):
    model, data = problem(lambda m, x: helpers.counted(x) * helpers.constant())
    assert_fresh(model, data, lambda: model(data.x, data.edge_index))
    assert_stale(model, data, lambda: (helpers.constant.cache_clear(), setattr(helpers, "ALPHA", 9.0)))


def kept_activations(model, x):
    model.kept["h"] = x.detach()
    return x


def through_cache(model, x):
    if len(x) not in model.kept:
        model.kept[len(x)] = torch.ones(1, dtype=x.dtype)
    return x * model.kept[len(x)]


def in_place(model, x):
    model.kept.add_(1)
    return x


def until_many(model, x):
    model.kept.append(1)
    return x if len(model.kept) < 100 else x * 2


WRITTEN = {
    "a log": (lambda m, x: (m.kept.append(x.detach()), x)[1], list),
    "numbers of a log": (lambda m, x: (m.kept.append(float(x.detach().norm())), x)[1], lambda: [0.5]),
    "a window": (lambda m, x: (m.kept.append(len(x)), x)[1], lambda: collections.deque(maxlen=3)),
    "a counter": (lambda m, x: (m.kept.update(["n"]), x)[1], collections.Counter),
    "activations": (kept_activations, dict),
    "deeper": (lambda m, x: (m.kept["all"].append((len(x), x.detach())), x)[1], lambda: {"all": [], "name": "h"}),
    "a tensor": (in_place, lambda: torch.zeros(2)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_forward_writes_and_does_not_read_is_no_change(name):
    between, make = WRITTEN[name]
    model, data = problem(between, kept=make())
    assert_fresh(model, data, lambda: model(data.x, data.edge_index))
    assert_fresh(model, data, lambda: model(data.x * 2, data.edge_index))


def test_what_a_buffer_and_a_hook_keep_is_no_change():
    model, data = problem(in_place)
    model.register_buffer("kept", torch.zeros((), dtype=torch.long))
    model.seen = {}
    model.one.register_forward_hook(functools.partial(keep_in, model))
    assert_fresh(model, data, lambda: model(data.x, data.edge_index))
    assert_stale(model, data, lambda: model.two.bias.data.add_(1.0))
    assert_stale(model, data, lambda: model.one.register_forward_hook(lambda module, args, output: output * 2))


def keep_in(model, module, args, output):
    model.seen["one"] = output.detach()


def test_what_forward_writes_and_reads_is_watched():
    model, data = problem(through_cache, kept={})
    ask = ew.Question(model, data, [2, 5])
    model.kept[len(data.x)] = torch.full((1,), 5.0, dtype=torch.float64)
    with pytest.raises(ew.StaleQuestionError, match="kept"):
        ask.explain()
    model, data = problem(until_many, kept=[])
    ask = ew.Question(model, data, [2, 5])
    model.kept.extend([1] * 100)
    with pytest.raises(ew.StaleQuestionError, match="kept"):
        ask.explain()


class Tool:
    @functools.singledispatchmethod
    def applied(self, x):
        return x * 2


class Looked(Net):
    @functools.cached_property
    def twice(self):
        return 2.0


def test_what_python_keeps_for_the_next_look_up_is_no_change():
    assert_fresh(*problem(lambda m, x: m.held.applied(x), held=Tool()), lambda: None)
    model, data = problem(lambda m, x: x * m.twice, kind=Looked)
    assert_fresh(model, data, lambda: model(data.x, data.edge_index))


def test_the_same_code_written_once_more_is_no_change(helpers):
    model, data = problem(lambda m, x: helpers.scaled(x) + helpers.wrapped(x))

    def again():
        source = "\n\n" + HELPERS.format(name=helpers.__name__)
        exec(compile(source, "another.py", "exec"), vars(helpers))

    assert_fresh(model, data, again)


def test_a_number_that_is_set_to_the_same_value_is_no_change(helpers):
    model, data = problem(lambda m, x: helpers.scaled(x) * m.held.alpha, held=Config(), missing=float("nan"))

    def change():
        helpers.ALPHA, model.held.alpha, model.missing = float("1.5"), float("1.0"), float("nan")
        model.held.inner = copy.deepcopy(model.held.inner)

    assert_fresh(model, data, change)


def test_loggers_locks_and_tools_of_the_training_do_not_matter():
    log = logging.getLogger("tests of stale questions")
    kind = type("Net", (Net,), {"__module__": __name__})
    kind.training_step = lambda self, batch: SCALE * batch
    model, data = problem(lambda m, x: log.debug("seen") or x, kind=kind, log=log)
    lock = threading.Lock()
    model.between = functools.partial(lambda lock, m, x: x, lock)

    def change():
        log.setLevel(logging.DEBUG if log.level != logging.DEBUG else logging.INFO)
        log.debug("something")
        lock.acquire(blocking=False)
        globals()["SCALE"] += 1

    assert_fresh(model, data, change)


def test_other_objects_of_the_same_class_do_not_matter():
    model, data = problem()

    def change():
        other = Net(factor=3.0)
        other.register_forward_hook(lambda *_: None)
        Gated()
        SAGEConv(3, 4)

    assert_fresh(model, data, change)


def large_problem(monkeypatch):
    """A graph that is cut: 0 → 1 → … → 59, of which a question about 5 sees 3, 4 and 5, and the rim 2."""
    monkeypatch.setattr(cut, "_SMALL", 0)
    model, _ = problem()
    ends = torch.stack([torch.arange(59), torch.arange(1, 60)])
    return model, Data(x=torch.randn(60, 4, dtype=torch.float64), edge_index=ends)


def point_to(node):
    def change(data):
        data.edge_index[1, -1] = node

    return change


def point_to_unseen(node):
    """Through `.data`, which torch does not count."""

    def change(data):
        data.edge_index.data[1, -1] = node

    return change


def append(node):
    def change(data):
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[40], [node]])], dim=1)

    return change


def put_in_front(node):
    def change(data):
        data.edge_index = torch.cat([torch.tensor([[40], [node]]), data.edge_index], dim=1)

    return change


@pytest.mark.parametrize("node", [5, 4, 0])
@pytest.mark.parametrize("change", [point_to, point_to_unseen, append, put_in_front])
def test_columns_that_come_to_a_cut(change, node, monkeypatch):
    """Of node 0, which had no column, too: its degree is read where it is in the cut."""
    model, data = large_problem(monkeypatch)
    target = max(node, 1)
    ask = ew.Question(model, data, index=target)
    asks = [ask, ask.of(target)]
    for one in asks:
        one.explain()
    before = model(data.x, data.edge_index)[target]
    change(node)(data)
    assert not torch.allclose(model(data.x, data.edge_index)[target], before)
    for ask in asks:
        for answer in (ask.explain, ask.features, ask.walks, lambda ask=ask: ask.of(5), lambda ask=ask: ask.of(9)):
            with pytest.raises(ew.StaleQuestionError, match=r"data\.edge_index"):
                answer()


def test_columns_that_come_to_both_ends_of_a_cut_that_goes_both_ways(monkeypatch):
    _, data = large_problem(monkeypatch)
    found = cut.cut_out(data, torch.tensor([5]), 2, flow=None)
    for end in ([40, 4], [4, 40], [40, 41]):
        ends = torch.cat([data.edge_index, torch.tensor([end]).t()], dim=1)
        assert found.has_all(ends) == (4 not in end)
    assert not found.has_all(data.edge_index[:, 1:])
    assert not found.has_all(data.edge_index + 1)


@pytest.mark.parametrize("change", [point_to(30), append(30)])
def test_columns_that_stay_away_from_a_cut_are_no_change(change, monkeypatch):
    model, data = large_problem(monkeypatch)
    ask = ew.Question(model, data, index=5)
    before = ask.explain().edge_scores()
    change(data)
    assert torch.equal(ask.explain().edge_scores(), before)


@pytest.mark.parametrize("change", [point_to, append])
def test_columns_that_come_to_the_cut_of_a_pair(change, monkeypatch):
    """Of other pairs, too, after the edges have been sorted for them."""
    model, data = large_problem(monkeypatch)
    ask = ew.Question(PairNet(model).double(), data, index=(5, 20), task="link")
    ask.of((9, 20)).explain()
    change(30)(data)
    with pytest.raises(ew.StaleQuestionError, match=r"data\.edge_index"):
        ask.of((30, 20))
    change(4)(data)
    with pytest.raises(ew.StaleQuestionError, match=r"data\.edge_index"):
        ask.explain()


class PairNet(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def encode(self, x, edge_index):
        return self.net(x, edge_index)

    def decode(self, z, edge_label_index):
        first, second = edge_label_index
        return (z[first] * z[second]).sum(-1)


def test_a_graph_that_is_too_large_to_look_through_is_known_by_the_count_of_torch(monkeypatch):
    model, data = large_problem(monkeypatch)
    monkeypatch.setattr(subject, "_LOOKED_THROUGH", 0)
    ask = ew.Question(model, data, index=5)
    looks = []
    monkeypatch.setattr(cut.Cut, "has_all", lambda self, ends: bool(looks.append(ends)))
    ask.explain()
    assert not looks
    point_to(4)(data)
    with pytest.raises(ew.StaleQuestionError):
        ask.explain()
    assert len(looks) == 1
