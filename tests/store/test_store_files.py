"""Graphs on disk: whatever they are built from, they hold the same graph; what was cut short or altered is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import edgewise as ew
from edgewise.graph.computation_graph import InEdges
from edgewise.store import array_files
from edgewise.store.edge_order import find_loops

NODES, EDGES = 30, 90


def random_graph(seed=0, nodes=NODES, edges=EDGES):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.float32)
    return Data(
        x=x,
        edge_index=edge_index,
        y=torch.arange(nodes) % 3,
        edge_attr=torch.rand(edges, 2, generator=generator).float(),
    )


def same(store, data, keys=("x", "edge_index", "y", "edge_attr")):
    return all(torch.equal(store.data[key], data[key]) for key in keys)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("piece", [24, 2**20])
def test_edges_are_grouped_as_in_memory_also_in_small_pieces(tmp_path, monkeypatch, flow, piece):
    monkeypatch.setattr(array_files, "PIECE", piece)
    data = random_graph()
    edges = ew.GraphStore.build(tmp_path / "store", data, both_ways=True).edges()
    order = edges.into if flow == "source_to_target" else edges.out_of
    known = InEdges.of(data.edge_index, NODES, flow)
    for ours, theirs in zip(
        (order.start, order.column, order.other), (known.start, known.edge, known.sender), strict=True
    ):
        assert np.array_equal(ours, theirs.numpy())


def test_loops_are_found(tmp_path):
    loops = torch.tensor([[4, 7, 4], [4, 7, 4]])
    edge_index = torch.cat([torch.tensor([[0, 1], [1, 2]]), loops], dim=1)
    store = ew.GraphStore.build(tmp_path / "store", Data(x=torch.ones(9, 1), edge_index=edge_index))
    assert store.edges().loops.tolist() == [[4, 7], [2, 1]] == find_loops(edge_index.numpy()).tolist()


def _as_npz(folder, data):
    arrays = {key: data[key].numpy() for key in ("x", "edge_index", "y", "edge_attr")}
    np.savez_compressed(folder / "graph.npz", **arrays, node_names=np.array([f"n{i}" for i in range(NODES)]))
    return folder / "graph.npz"


def _as_columns(folder, data):
    arrays = {key: data[key].numpy() for key in ("x", "y", "edge_attr")}
    np.savez(folder / "graph.npz", **arrays, edge_index=data.edge_index.t().contiguous().numpy().T)
    return folder / "graph.npz"


def _as_torch(folder, data):
    torch.save(data, folder / "graph.pt")
    return folder / "graph.pt"


def _columns(data):
    nodes = {
        "id": [f"n{i}" for i in range(NODES)],
        **{f"f{c}": data.x[:, c].tolist() for c in range(3)},
        "y": data.y.tolist(),
    }
    ends = {
        "source": [f"n{i}" for i in data.edge_index[0].tolist()],
        "target": [f"n{i}" for i in data.edge_index[1].tolist()],
    }
    return {"nodes": nodes, "edges": ends | {f"a{c}": data.edge_attr[:, c].tolist() for c in range(2)}}


def _as_csv(folder, data):
    for name, columns in _columns(data).items():
        rows = zip(*columns.values(), strict=True)
        text = "\n".join([",".join(columns), *(",".join(map(repr_of, row)) for row in rows)])
        (folder / f"{name}.csv").write_text(text + "\n")
    return folder


def repr_of(cell):
    return cell if isinstance(cell, str) else repr(cell)


def _as_parquet(folder, data):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    for name, columns in _columns(data).items():
        parquet.write_table(arrow.table(columns), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("write", [_as_npz, _as_columns, _as_torch, _as_csv, _as_parquet])
def test_a_store_holds_the_graph_that_it_was_built_from(tmp_path, write):
    data = random_graph()
    (tmp_path / "files").mkdir()
    store = ew.GraphStore.build(tmp_path / "store", write(tmp_path / "files", data))
    assert same(store, data)
    assert (store.num_nodes, store.num_edges) == (NODES, EDGES)
    if store.names() is not None:
        assert store.names()[7] == "n7"
        assert store.node("n9") == 9


def test_a_store_of_a_graph_in_memory_leaves_it_as_it_was(tmp_path):
    data = random_graph()
    before = {key: value.clone() for key, value in data.to_dict().items()}
    store = ew.GraphStore.build(tmp_path / "store", data, names=[f"n{i % 7}" for i in range(NODES)])
    assert same(store, data)
    assert {key: value for key, value in data.to_dict().items() if not torch.equal(value, before[key])} == {}
    assert store.names().find("n3") == [3, 10, 17, 24]
    store.data.x[0] = 99.0  # written into memory of ours, not into the file
    assert same(ew.GraphStore(tmp_path / "store"), data)


def test_the_same_graph_has_the_same_digest_and_another_one_another(tmp_path):
    data = random_graph()
    first, again = (ew.GraphStore.build(tmp_path / name, data) for name in ("a", "b"))
    data.x[3, 1] += 1
    assert first.digest == again.digest != ew.GraphStore.build(tmp_path / "c", data).digest


def test_what_was_cut_short_or_altered_is_refused(tmp_path):
    ew.GraphStore.build(tmp_path / "store", random_graph())
    for number, harm in enumerate((_cut_short, _flip, _other_manifest, _no_file, _no_manifest)):
        broken = tmp_path / f"broken{number}"
        shutil.copytree(tmp_path / "store", broken)
        harm(broken)
        with pytest.raises(ew.FileError, match=r"store again|Make one"):
            ew.GraphStore(broken)


def _cut_short(folder):
    path = folder / "edges" / "in_column.npy"
    path.write_bytes(path.read_bytes()[:-4])


def _flip(folder):
    path = folder / "nodes" / "x.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


def _other_manifest(folder):
    said = json.loads((folder / "manifest.json").read_text())
    said["nodes"][0]["count"] += 1
    (folder / "manifest.json").write_text(json.dumps(said))


def _no_file(folder):
    (folder / "nodes" / "x.npy").unlink()


def _no_manifest(folder):
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [3]])), ew.InputError),
        (Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(2, 1)), ew.InputError),
        (Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]), odd=object()), ew.InputError),
        (Data(x=torch.ones(3, 1)), ew.InputError),
        (HeteroData(), ew.InputError),
        ("nowhere.npz", ew.FileError),
        (3, ew.InputError),
    ],
)
def test_what_is_no_graph_is_refused_and_nothing_is_left(tmp_path, data, error):
    with pytest.raises(error):
        ew.GraphStore.build(tmp_path / "store", data)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_not_written_over(tmp_path):
    with pytest.raises(ew.FileError, match="there already"):
        ew.GraphStore.build(tmp_path, random_graph())
