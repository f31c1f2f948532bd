"""Private names of torch and PyG: each is there, and what takes its place in a version without it does the same."""

import importlib.util
import pickle
from contextlib import suppress

import pytest
import torch
from torch import nn, overrides
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise import pyg_internals, torch_internals
from places import ROOT

RENAMED = {
    "nothing": (),
    "function modes": ((overrides, "_get_current_function_mode_stack"),),
    "pushing and popping": ((overrides, "_push_mode"), (overrides, "_pop_mode")),
    "dispatch modes": (
        (torch._C, "_len_torch_dispatch_stack"),
        (_python_dispatch, "_pop_mode"),
        (_python_dispatch, "_get_current_dispatch_mode"),
    ),
    "looking away": ((torch._C, "_DisableTorchDispatch"),),
    "gradients": ((torch._C, "_set_grad_enabled"),),
    "files": ((torch.serialization, "safe_globals"),) if hasattr(torch.serialization, "safe_globals") else (),
}


class Count(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Watch(torch_internals.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(params=list(RENAMED))
def internals(request, monkeypatch):
    """The file as it is in a torch that has renamed some of its names; the names are gone only while it is loaded."""
    with monkeypatch.context() as torch_without:
        for place, name in RENAMED[request.param]:
            torch_without.delattr(place, name)
        spec = importlib.util.spec_from_file_location("internals", ROOT / "src/edgewise/torch_internals.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    replaced = [
        name for name in vars(torch_internals) if "torch_internals" in getattr(vars(module)[name], "__module__", "")
    ]
    assert not replaced or request.param == "nothing"
    return module


def test_function_modes_are_listed_pushed_and_popped(internals):
    first, second = Count(), Count()
    assert internals.function_modes() == []
    internals.push_function_mode(first)
    internals.push_function_mode(second)
    try:
        assert internals.function_modes() == [first, second]
    finally:
        internals.pop_function_mode()
        internals.pop_function_mode()
    assert internals.function_modes() == []


def test_dispatch_modes_are_counted_named_and_popped(internals):
    assert (internals.dispatch_depth(), internals.dispatch_mode()) == (0, None)
    watch = Watch()
    watch.__enter__()
    assert (internals.dispatch_depth(), internals.dispatch_mode()) == (1, watch)
    internals.pop_dispatch_mode()
    assert internals.dispatch_depth() == 0


def test_modes_do_not_see_what_is_done_without_them(internals):
    with Watch() as watch, Count() as count:
        with internals.no_dispatch(), internals.no_functions():
            torch.ones(2) + 1
        assert (watch.seen, count.seen) == (0, 0)
        torch.ones(2) + 1
    assert watch.seen > 0
    assert count.seen > 0


def test_gradients_are_switched(internals):
    internals.set_gradients(False)
    try:
        assert not torch.is_grad_enabled()
    finally:
        internals.set_gradients(True)
    assert torch.is_grad_enabled()


class Kept:
    """What a file may name while that is allowed."""


def test_files_may_name_what_is_allowed_until_the_end(internals, tmp_path):
    torch.save(Kept(), tmp_path / "kept.pt")
    before = list(torch.serialization.get_safe_globals())
    with internals.safe_globals([Kept]):
        assert isinstance(torch.load(tmp_path / "kept.pt", weights_only=True), Kept)
    with suppress(ZeroDivisionError), internals.safe_globals([Kept]):
        raise ZeroDivisionError
    assert set(torch.serialization.get_safe_globals()) == set(before)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "kept.pt", weights_only=True)


def test_hooks_of_one_module_and_of_all_are_noticed():
    layer = nn.Linear(1, 1)
    assert not torch_internals.has_hooks(layer)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert torch_internals.has_hooks(layer)
    handle.remove()

    def hook(module, inputs):
        """Of every module."""

    nn.modules.module.register_module_forward_pre_hook(hook)
    assert torch_internals.has_hooks(layer)
    torch_internals.remove_global_pre_hooks(lambda found: found is hook)
    assert not torch_internals.has_hooks(layer)


@pytest.mark.parametrize("table", ["_global_forward_hooks", "_global_forward_pre_hooks"])
def test_hooks_of_all_modules_are_those_of_users(table, monkeypatch):
    class Ours(torch_internals.OwnHook):
        def __call__(self, *_):
            """Looks on."""

    def theirs(*_):
        """A user's."""

    register = getattr(nn.modules.module, f"register_module{table.removeprefix('_global').removesuffix('s')}")
    handles = [register(Ours())]
    try:
        assert torch_internals.HooksOfAll(table).now() == {}
        assert not torch_internals.has_hooks(nn.Linear(1, 1))
        handles.append(register(theirs))
        assert list(torch_internals.HooksOfAll(table).now().values()) == [theirs]
        assert torch_internals.has_hooks(nn.Linear(1, 1))
    finally:
        for handle in handles:
            handle.remove()
    monkeypatch.delattr(nn.modules.module, table)
    assert torch_internals.HooksOfAll(table).now() == {}
    assert not torch_internals.has_hooks(nn.Linear(1, 1))
    torch_internals.remove_global_pre_hooks(lambda found: found is theirs)


def test_a_view_has_the_tensor_that_it_looks_at():
    x = torch.zeros(4)
    assert torch_internals.base_of(x[1:]) is x
    assert torch_internals.base_of(x) is None
    assert torch_internals.base_of(object()) is None


def test_views_share_the_key_of_their_memory_and_copies_do_not():
    x = torch.zeros(4)
    assert torch_internals.storage_key(x[1:]) == torch_internals.storage_key(x)
    copy = x.clone()
    assert torch_internals.storage_key(copy) != torch_internals.storage_key(x)


def test_the_attributes_of_a_graph_are_those_of_its_dictionary(monkeypatch):
    graph = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.zeros(3))
    assert dict(pyg_internals.attributes(graph)).keys() == graph.to_dict().keys()
    monkeypatch.setattr(Data, "__getattr__", lambda self, name: None)
    graph.__dict__.pop("_store")
    monkeypatch.setattr(Data, "to_dict", lambda self: {"x": 1})
    assert pyg_internals.attributes(graph) == {"x": 1}


def test_an_edge_index_inside_a_model_is_followed():
    """PyG's convs make one for the loops that they add, also while our modes watch."""
    torch.manual_seed(0)
    model = GCN(2, 4, 2, 2).eval()
    data = Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    assert (ew.explain(model, data, index=2).scores != 0).any()
    wrapped = EdgeIndex(data.edge_index, sparse_size=(3, 3))
    assert type(pyg_internals.plain(wrapped)) is torch.Tensor
    assert torch.equal(pyg_internals.plain(wrapped), data.edge_index)
    assert pyg_internals.plain(data.edge_index) is data.edge_index
