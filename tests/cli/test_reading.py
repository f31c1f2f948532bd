"""What the command line is given: models, weights, data and targets, good and bad."""

import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset

import edgewise as ew
from command_line import MINE, NODES, call, error, printed, ring, workshop
from edgewise.cli.read.data import Graphs, read_data
from edgewise.cli.read.graphs import split
from edgewise.cli.read.targets import read_targets
from edgewise.cli.read.tensor_files import read_safetensors
from edgewise.torch_internals import safe_globals

NET = ("--model", "net.py:Net", "--model-args", "features=3")
POOLED = ("--model", "net.py:Pooled", "--model-args", "features=3", "--weights", "weights.pt")


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """The current folder is a user's, with a model, weights and data; the model."""
    monkeypatch.chdir(tmp_path)
    return workshop(tmp_path)


def values(*arguments):
    return [one["value"] for one in printed("explain", *arguments)["targets"]]


def approx(model, data=None, **options):
    return pytest.approx([why.value for why in ew.explain(model, data or ring(), **options)], rel=1e-4)


# Models ###############################################################################################################


def test_a_model_is_found_by_module_and_by_file_and_may_be_ready_made(mine, tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "nets.py").write_text((tmp_path / "net.py").read_text())
    rest = ("--model-args", "features=3", "--weights", "weights.pt", "--data", "graph.npz")
    for place in ("own_package.nets:Net", "own_package/nets.py:Net", str(tmp_path / "net.py") + ":Net"):
        assert values("--model", place, *rest) == approx(mine)
    assert values("--model", "net.py:ready", "--weights", "weights.pt", "--data", "graph.npz") == approx(mine)


def test_the_search_path_is_put_back(monkeypatch):
    before = list(sys.path)
    call("explain", *MINE)
    error("explain", "--model", "no_such_module:Net", "--data", "graph.npz")
    assert sys.path == before


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("net", "Use --model package.module:factory"),
        ("nix:Net", "There is no module 'nix', neither in"),
        ("nix.py:Net", "There is no file nix.py"),
        ("net.py:Nett", "net.py has no Nett. Did you mean 'Net'?"),
        ("net.py:number", "number must be a class or a function that returns the model, got int"),
        ("net.py:not_a_model", "not_a_model() must return the model, a torch.nn.Module, got int"),
        ("net.py:broken", "broken() raised KeyError: 'no such file'"),
        ("needy:Net", "needy cannot be imported: it needs the module 'not_installed_at_all'"),
        ("wrong.py:Net", "wrong.py cannot be imported: SyntaxError: invalid syntax (wrong.py, line 2)"),
        ("late:Net", "late cannot be imported: ZeroDivisionError in late.py line 3: division by zero."),
    ],
)
def test_a_factory_that_cannot_be_used_is_named(tmp_path, place, sentence):
    (tmp_path / "needy.py").write_text("import not_installed_at_all\n")
    (tmp_path / "late.py").write_text("import torch\n\nhalf = 1 / 0\n")
    (tmp_path / "wrong.py").write_text("import torch\nclass Net(:\n")
    assert sentence in error("explain", "--model", place, "--data", "graph.npz")


def test_arguments_that_do_not_fit_show_the_signature_and_the_numbers_of_the_data():
    forgotten = error("explain", "--model", "net.py:Net", "--data", "graph.npz")
    assert "Net(features: int, hidden: int = 4, classes: int = 3)" in forgotten
    assert "Use --model-args features=VALUE" in forgotten
    assert "3 features and 3 classes" in forgotten
    assert "unexpected keyword argument 'width'" in error("explain", *NET, "width=3", "--data", "graph.npz")
    assert "must be a name and its value, got 'hidden'" in error(
        "explain", *NET, "--model-args", "hidden", "--data", "graph.npz"
    )
    assert "a model already" in error(
        "explain", "--model", "net.py:ready", "--model-args", "a=1", "--data", "graph.npz"
    )


def test_without_a_model_the_error_says_what_to_use():
    assert "Use --model package.module:factory" in error("explain", "--data", "graph.npz")
    assert "need a --model" in error("explain", "--data", "infection", "--weights", "weights.pt")


def test_an_untrained_model_is_repeatable_and_said():
    first = call("explain", *NET, "--data", "graph.npz", "--json")
    assert "No --weights" in first.stderr
    assert json.loads(first.stdout)["targets"] == printed("explain", *NET, "--data", "graph.npz")["targets"]


# Weights ##############################################################################################################


def write_safetensors(path, header, body=b""):
    """By the format's definition: the length of the header, the header, the tensors' bytes; `header` may be broken."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def claimed(dtype="F32", shape=(3,), begin=0, end=12):
    """A header of one tensor, which may claim anything."""
    return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}}


def test_safetensors_are_read_as_they_were_written(tmp_path):
    tensors = {
        "half": torch.randn(3, 2).bfloat16(), "double": torch.randn(2, dtype=torch.float64), "none": torch.zeros(0, 4),
        "scalar": torch.tensor(7), "flags": torch.tensor([True, False]),
    }  # fmt: skip
    save_file(tensors, tmp_path / "some.safetensors")
    found = read_safetensors(tmp_path / "some.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


BROKEN = {
    "a shape without bytes": (claimed(end=0), b""),
    "a scalar without bytes": (claimed(shape=(), end=0), b""),
    "fewer bytes than announced": (claimed(), b"\0" * 8),
    "more bytes than announced": (claimed(), b"\0" * 16),
    "fewer bytes than the shape needs": (claimed(end=8), b"\0" * 8),
    "an offset before the beginning": (claimed(begin=-4, end=8), b"\0" * 8),
    "an unknown type": (claimed(dtype="F99"), b"\0" * 12),
    "a type of another width": (claimed(dtype="F64"), b"\0" * 12),
    "a type that torch does not have": (claimed(dtype="F6_E2M3", shape=(4,), end=3), b"\0" * 3),
    "a shape beyond all memory": (claimed(shape=(2**62, 8), end=0), b""),
    "two tensors in one place": ({**claimed(), "b": claimed()["a"]}, b"\0" * 12),
    "a list as header": ([1], b""),
    "no JSON": (b"hello!!!", b""),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_safetensors_file_is_one_sentence_and_never_memory(tmp_path, kind):
    write_safetensors(tmp_path / "broken.safetensors", *BROKEN[kind])
    for _ in range(3):
        with pytest.raises(ew.FileError, match=r"broken\.safetensors cannot be read as safetensors"):
            read_safetensors(tmp_path / "broken.safetensors")
    said = error("explain", *NET, "--weights", "broken.safetensors", "--data", "graph.npz")
    assert "broken.safetensors cannot be read as safetensors" in said


@pytest.mark.parametrize("length", [0, 5, 8, 40, -1])
def test_a_safetensors_file_that_is_cut_short_says_so(mine, tmp_path, length):
    save_file(mine.state_dict(), tmp_path / "whole.safetensors")
    (tmp_path / "short.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:length])
    assert "It may be cut short" in error("explain", *NET, "--weights", "short.safetensors", "--data", "graph.npz")


def test_weights_of_another_type_are_refused_and_another_precision_is_not(mine, tmp_path):
    weights = mine.state_dict()
    save_file({name: tensor.double() for name, tensor in weights.items()}, tmp_path / "double.safetensors")
    assert values(*NET, "--weights", "double.safetensors", "--data", "graph.npz") == approx(mine)
    save_file({name: tensor.long() for name, tensor in weights.items()}, tmp_path / "whole.safetensors")
    said = error("explain", *NET, "--weights", "whole.safetensors", "--data", "graph.npz")
    assert "of another type: first.lin_rel.bias is int64, the model has float32" in said


def test_without_the_library_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ew.MissingExtraError, match=r"edgewise\[cli\]"):
        read_safetensors(tmp_path / "any.safetensors")


def test_weights_may_be_safetensors_a_checkpoint_or_have_a_prefix(mine, tmp_path):
    weights = mine.state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    torch.save({"epoch": 7, "model_state_dict": weights}, tmp_path / "checkpoint.pt")
    torch.save({"state_dict": {f"model.{name}": tensor for name, tensor in weights.items()}}, tmp_path / "light.ckpt")
    for file in ("w.safetensors", "checkpoint.pt", "light.ckpt"):
        assert values(*NET, "--weights", file, "--data", "graph.npz") == approx(mine)
    said = call("explain", *NET, "--weights", "light.ckpt", "--data", "graph.npz").stderr
    assert "its weights are under 'state_dict'" in said
    assert "begin with 'model.'" in said


def test_weights_that_do_not_fit_list_what_is_missing_unexpected_and_misshapen(mine, tmp_path):
    weights = dict(mine.state_dict())
    del weights["first.lin_rel.bias"]
    weights["third.lin"] = torch.zeros(1)
    weights["second.lin_root.weight"] = torch.zeros(9, 4)
    torch.save(weights, tmp_path / "other.pt")
    said = error("explain", *NET, "--weights", "other.pt", "--data", "graph.npz")
    assert "missing: first.lin_rel.bias" in said
    assert "unexpected: third.lin" in said
    assert "of another shape: second.lin_root.weight is [9, 4], the model has [3, 4]" in said


class Evil:
    def __reduce__(self):
        return (open, ("unpickled", "w"))


@pytest.mark.parametrize("option", ["--weights", "--data"])
def test_a_pickle_is_refused_and_nothing_of_it_runs(mine, tmp_path, option):
    torch.save(Evil(), tmp_path / "evil.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Evil()))
    for file in ("evil.pt", "plain.pt"):
        other = ("--data", "graph.npz") if option == "--weights" else ()
        assert "unpickling runs whatever is in the file" in error("explain", *NET, *other, option, file)
    assert not (tmp_path / "unpickled").exists()


def test_a_whole_model_is_refused_with_the_way_to_save_its_weights(tmp_path):
    from torch_geometric.nn import GCN

    torch.save(GCN(3, 4, 2), tmp_path / "whole.pt")
    said = error("explain", *NET, "--weights", "whole.pt", "--data", "graph.npz")
    assert "torch.save(model.state_dict(), 'weights.pt')" in said


def test_weights_that_are_no_weights_are_named(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "odd.pt")
    (tmp_path / "short.pt").write_bytes((tmp_path / "weights.pt").read_bytes()[:300])
    (tmp_path / "short.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    cases = {
        "odd.pt": "must hold a state dict (names and tensors), got dict with epoch",
        "short.pt": "cannot be read as weights",
        "nix.pt": "There is no file nix.pt",
    }
    cases["short.safetensors"] = "cannot be read as safetensors"
    for file, sentence in cases.items():
        assert sentence in error("explain", *NET, "--weights", file, "--data", "graph.npz")


# Data #################################################################################################################


class Two(InMemoryDataset):
    def __init__(self, graphs):
        super().__init__(None)
        self.data, self.slices = self.collate(graphs)


def test_every_file_of_pyg_gives_its_graphs(mine, tmp_path):
    assert values(*MINE[:-1], "graph.pt") == approx(mine)
    graphs = [ring(6), ring(9, seed=1)]
    torch.save(graphs, tmp_path / "list.pt")
    torch.save(Batch.from_data_list(graphs), tmp_path / "batch.pt")
    Two.save(graphs, tmp_path / "processed.pt")
    data, slices = Two.collate(graphs)[:2]
    torch.save((data, slices), tmp_path / "old.pt")
    listed = values(*POOLED, "--data", "list.pt")
    assert len(set(listed)) == 2
    for file in ("batch.pt", "processed.pt", "old.pt"):
        assert values(*POOLED, "--data", file) == pytest.approx(listed, rel=1e-5)
    Two.save(graphs[:1], tmp_path / "single.pt")
    torch.save(graphs[0].to_dict(), tmp_path / "dict.pt")
    for file in ("single.pt", "dict.pt"):
        assert values(*POOLED, "--data", file, "--task", "graph") == pytest.approx(listed[:1], rel=1e-5)


def test_what_a_user_allows_files_to_name_stays_allowed(mine):
    before = set(torch.serialization.get_safe_globals())
    with safe_globals([one for one in (Data, HeteroData) if one not in before]):  # newer versions of PyG allow them
        values(*MINE[:-1], "graph.pt")
        assert set(torch.serialization.get_safe_globals()) == before | {Data, HeteroData}
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("batch", [[0, 10**7, 0], [0, 2, 2], [0, -1, 0]])
def test_graphs_that_a_batch_vector_only_claims_are_refused_before_any_is_made(batch):
    data = Data(x=torch.ones(3, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), batch=torch.tensor(batch))
    with pytest.raises(ew.InputError, match="batch of the data"):
        split(data)


def test_an_npz_with_a_batch_vector_is_several_graphs(tmp_path):
    graphs = [ring(6), ring(9, seed=1)]
    torch.save(graphs, tmp_path / "list.pt")
    whole = Batch.from_data_list(graphs)
    np.savez("two.npz", x=whole.x, edge_index=whole.edge_index.int(), batch=whole.batch, y=np.array([1, 0]))
    assert values(*POOLED, "--data", "two.npz") == pytest.approx(values(*POOLED, "--data", "list.pt"), rel=1e-5)
    classes = [one["class"] for one in printed("explain", *POOLED, "--data", "two.npz", "--target", "label")["targets"]]
    assert classes == [1, 0]


def test_data_that_cannot_be_explained_is_named(tmp_path):
    torch.save(HeteroData(), tmp_path / "hetero.pt")
    torch.save(Data(x=torch.ones(2, 3)), tmp_path / "no_edges.pt")
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    torch.save([], tmp_path / "none.pt")
    np.savez("no_edges.npz", x=np.ones((2, 3)))
    np.savez("objects.npz", x=np.array([{}, 3], dtype=object))
    np.savez("half.npz", x=np.ones((2, 3)), edge_index=np.array([[0.5], [1]]))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "graph.npz").read_bytes()[:200])
    (tmp_path / "graph.xls").write_text("")
    (tmp_path / "empty").mkdir()
    cases = {
        "hetero.pt": "`data` must have nodes: a HeteroData without node types came",
        "no_edges.pt": "`data.edge_index` must be a tensor [2, edges], got None",
        "tensor.pt": "must hold a Data, a list of them, or the processed file of an InMemoryDataset; got Tensor",
        "weights.pt": "If these are the weights, use --weights weights.pt",
        "none.pt": "The data has no graphs",
        "no_edges.npz": "no_edges.npz has no edge_index",
        "objects.npz": "would have to be unpickled",
        "half.npz": "edge_index of the .npz must hold integers, got fractions",
        "cut.npz": "cannot be read as an .npz",
        "nix.npz": "There is no file nix.npz",
        "graph.xls": "must be a .pt, an .npz, or a folder with nodes.csv and edges.csv; got graph.xls",
        "empty": "has no nodes.csv and no nodes.parquet",
        "Corra": "Did you mean 'Cora'?",
    }
    for given, sentence in cases.items():
        assert sentence in error("explain", *NET, "--data", given)


def test_a_named_data_set_is_read_from_the_users_folder_which_stays_as_it_was(tmp_path, raw_data):
    root = tmp_path / "given"  # other tests let PyG write into the common copy
    shutil.copytree(Path(raw_data("MUTAG")) / "MUTAG" / "raw", root / "MUTAG" / "raw")
    found = read_data("mutag", root, None, 0)
    assert (found.task, found.size, found.data[0].num_features) == ("graph", 188, 7)
    assert "There is no folder" in error("explain", *NET, "--data", "PubMed", "--root", tmp_path)
    assert [path.name for path in (root / "MUTAG").iterdir()] == ["raw"]


# Targets ##############################################################################################################


def graphs(**more) -> Graphs:
    return Graphs(ring(), "node", "", **more)


def test_numbers_ranges_and_parts_name_targets_each_once_in_their_order():
    asked = {"test": torch.tensor([9, 10, 11])}
    assert read_targets("5,2-4, 3,test", graphs(parts=asked)).tolist() == [5, 2, 3, 4, 9, 10, 11]
    assert read_targets("all", graphs()).tolist() == list(range(NODES))


def test_where_the_data_has_ids_numbers_are_ids():
    numbered = graphs(ids=[str(100 + n) for n in range(NODES)])
    assert read_targets("103,105-107,row:0-1", numbered).tolist() == [3, 5, 6, 7, 0, 1]
    with pytest.raises(ew.InputError, match=r"'3', which is not an id of the data .*Use row:0 for a position"):
        read_targets("3", numbered)
    people = [f"person-{n}" for n in range(NODES)]
    called = graphs(ids=people, names=["Ann", "Bob", "Bob", *people[3:]])
    assert read_targets("person-4,Ann", called).tolist() == [4, 0]
    with pytest.raises(ew.InputError, match=r"2 nodes have that name\. Use one of row:1, row:2"):
        read_targets("Bob", called)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("12", "--index names node 12; there are 12 nodes, 0 to 11"),
        ("3-99", "--index names node 99"),
        ("7-3", "--index range 7-3 is descending; use 3-7"),
        (",", "names no node"),
        ("val", "--index val needs a val_mask in the data; parts that it has: test"),
        ("-4", "got '-4'"),
        ("frog", "--index must have numbers, ranges such as 100-200, all, test or names; got 'frog'"),
    ],
)
def test_an_index_outside_the_graph_is_named(text, sentence):
    assert sentence in error("explain", *MINE, f"--index={text}")
