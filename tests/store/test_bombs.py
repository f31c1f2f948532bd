"""Small files that claim much are refused before anything is allocated; what nobody reads is not read."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN

import altered_files as files
import edgewise as ew
from edgewise.cli.read.data import read_data
from edgewise.cli.read.trained_model import read_weights
from edgewise.results.container import with_digest
from small_disks import memory_of, peak_above

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MOST = 300e6
"""Bytes of memory above what the process had."""
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("memory is not measured here", allow_module_level=True)


def refused(work, match):
    """Refused by an error of ours, and within the memory."""
    code, grown, said = peak_above(work)
    assert code == 3, said
    assert match in said
    assert grown < MOST, grown


def member(array=None, head=None, size=0):
    """A `.npy` as bytes: an array, or a head that claims one, and so many zeros."""
    file = io.BytesIO()
    if array is not None:
        np.save(file, array)
        return file.getvalue()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, **head})
    return file.getvalue() + bytes(size)


def write_npz(path, packed=True, **members):
    way = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", way) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content if isinstance(content, bytes) else member(content))
    return path


EDGES = np.array([[0, 1], [1, 2]])
ONES = np.ones((3, 2), dtype=np.float32)


@pytest.fixture(scope="module")
def zeros():
    """600 MB of numbers that pack into 0.6."""
    return member(head={"shape": (3, 5 * 10**7)}, size=600_000_000)


def readers(path, folder):
    """The two ways in which data files are read."""
    return (lambda: read_data(str(path), None, None, 0), lambda: ew.GraphStore.build(folder / "store", path))


def test_zeros_that_were_packed_are_not_unpacked(tmp_path, zeros):
    path = write_npz(tmp_path / "bomb.npz", x=zeros, edge_index=EDGES)
    assert path.stat().st_size < 3e6
    for read in readers(path, tmp_path):
        refused(read, "more than 250 times as much")
    path = write_npz(tmp_path / "result.npz", about=b"", x=zeros)
    refused(lambda: ew.load(path), "cannot be read as explanations")


def test_an_array_that_means_nothing_is_not_read(tmp_path, zeros):
    path = write_npz(tmp_path / "bomb.npz", x=ONES, edge_index=EDGES, diary=zeros, objects=np.array([{}], dtype=object))
    for read in readers(path, tmp_path):
        code, grown, said = peak_above(read)
        assert code == 0, said
        assert grown < MOST


@pytest.mark.parametrize(
    ("head", "size"),
    [
        ({"shape": (300_000_000,)}, 8), ({"shape": (5, -3)}, 0), ({"shape": (-1,)}, 0), ({"shape": (10**15, 10**15)}, 0),
        ({"shape": (0, 10**15)}, 0), ({"shape": (2, 2), "descr": "|O"}, 32), ({"shape": (2, 2), "descr": "<U0"}, 0),
        ({"shape": (2, 2), "descr": [("a", "<f4")]}, 16), ({"shape": (), "descr": "<f4"}, 4), ({"shape": (2.5, 2)}, 16),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [True, False])
def test_a_head_that_lies_is_refused(tmp_path, head, size, packed):
    path = write_npz(tmp_path / "lie.npz", packed, x=member(head=head, size=size), edge_index=EDGES)
    for read in readers(path, tmp_path):
        refused(read, "")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "text", [b"(" * 9000, b"{'descr': " + b"[" * 5000, b"{'descr':'<f4','fortran_order':False,'shape':(1,", b"9" * 5000]
)
def test_a_head_that_no_parser_reads_is_refused(tmp_path, text):
    head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    path = write_npz(tmp_path / "lie.npz", x=head, edge_index=EDGES)
    for read in readers(path, tmp_path):
        refused(read, "x is not an array that numpy saved")


def test_one_huge_row_is_refused(tmp_path):
    path = tmp_path / "row.npz"
    np.savez(path, x=np.ones((1, 30_000_000), dtype=np.float32), edge_index=np.zeros((2, 1), dtype=np.int64))
    refused(lambda: ew.GraphStore.build(tmp_path / "store", path), "A row of 120 MB is too large")
    row = Data(x=torch.ones(1, 1).expand(1, 300_000_000), edge_index=torch.zeros(2, 1, dtype=torch.long))
    refused(lambda: ew.GraphStore.build(tmp_path / "store", row), "got a repeated tensor")


def test_a_number_that_stands_for_millions_is_refused(tmp_path):
    data = Data(x=torch.ones(1, 1).expand(100_000_000, 3), edge_index=torch.zeros(2, 1, dtype=torch.long))
    torch.save(data, tmp_path / "bomb.pt")
    torch.save({"weight": torch.ones(1).expand(300_000_000)}, tmp_path / "weights.pt")
    assert (tmp_path / "bomb.pt").stat().st_size < 5000
    for read in readers(tmp_path / "bomb.pt", tmp_path):
        refused(read, "more than 250 times as much")
    refused(lambda: read_weights(tmp_path / "weights.pt"), "more than 250 times as much")


def test_a_tensor_file_that_was_packed_is_refused(tmp_path):
    torch.save(Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]])), tmp_path / "honest.pt")
    with (
        zipfile.ZipFile(tmp_path / "honest.pt") as old,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, bytes(600_000_000) if name.endswith("data/0") else old.read(name))
    for read in readers(tmp_path / "b.pt", tmp_path):
        refused(read, "more than 250 times as much")


def test_a_table_of_many_equal_rows_is_refused(tmp_path):
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(10**7, dtype=np.int8)), pyarrow.array([1.0]))
    table = pyarrow.table({"x": rows.cast("float64")})
    folder = tmp_path / "tables"
    folder.mkdir()
    with parquet.ParquetWriter(folder / "nodes.parquet", table.schema, compression="zstd") as writer:
        for _ in range(20):  # 2·10⁸ rows
            writer.write_table(table)
    parquet.write_table(pyarrow.table({"source": [0], "target": [1]}), folder / "edges.parquet")
    assert (folder / "nodes.parquet").stat().st_size < 1e6
    for read in readers(folder, tmp_path):
        refused(read, "with 200000000 rows of 1 columns")
    (folder / "nodes.parquet").rename(tmp_path / "result.parquet")
    refused(lambda: ew.load(tmp_path / "result.parquet"), "with 200000000 rows")


def test_long_texts_of_a_table_that_are_stored_once_are_refused(tmp_path):
    text = pyarrow.array(["a" * 10**6])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(60_000, dtype=np.int32)), text)
    nodes = pyarrow.table({"x": np.ones(60_000), "name": column})
    folder = tmp_path / "tables"
    folder.mkdir()
    parquet.write_table(nodes, folder / "nodes.parquet", store_schema=False)
    parquet.write_table(pyarrow.table({"source": [0], "target": [1]}), folder / "edges.parquet")
    assert (folder / "nodes.parquet").stat().st_size < 1e6
    for read in readers(folder, tmp_path):
        refused(read, "column name of")


def test_results_that_claim_a_large_graph_are_refused(tmp_path):
    path = files.write("node", ".npz", tmp_path)
    arrays, about, _ = files.contents(path)
    arrays["edge_index"] = np.zeros((2, 20_000_000), dtype=np.int64)
    arrays["graph_edges"] = np.array([20_000_000])
    files.write_arrays(path, arrays, with_digest(arrays, about))
    del arrays
    refused(lambda: ew.load(path), "more than 250 times as much")


def test_what_is_large_and_honest_is_read_and_takes_its_size_once(tmp_path):
    x = np.random.default_rng(0).standard_normal((10**6, 40)).astype(np.float32)
    np.savez(tmp_path / "large.npz", x=x, edge_index=EDGES)
    code, grown, said = peak_above(lambda: ew.GraphStore.build(tmp_path / "store", tmp_path / "large.npz"))
    assert code == 0, said
    assert grown < 120e6  # 160 MB stream through
    del x
    code, grown, said = peak_above(lambda: read_data(str(tmp_path / "large.npz"), None, None, 0))
    assert code == 0, said
    assert grown < 2.5 * 160e6


# Pipes and devices ####################################################################################################


@pytest.mark.parametrize("ending", [".npz", ".pt", ".parquet", ".safetensors", ".json"])
@pytest.mark.parametrize("way", ["pipe", "link to a pipe", "device", "link to a device"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, ending, way):
    path, target = tmp_path / f"a{ending}", tmp_path / "target"
    if "device" in way:
        target = Path("/dev/zero")
    else:
        os.mkfifo(target)
    path.symlink_to(target) if "link" in way else path.symlink_to(target) if "device" in way else target.rename(path)
    for read in (
        lambda: ew.load(path),
        lambda: read_weights(path),
        lambda: read_data(str(path), None, None, 0),
        lambda: ew.GraphStore.build(tmp_path / "store", path),
        lambda: ew.GraphStore(path),
        lambda: ew.jobs.open(path),
    ):
        with pytest.raises(ew.EdgewiseError):
            read()


@pytest.mark.parametrize("name", ["nodes.csv", "edges.csv", "nodes.parquet", "manifest.json"])
def test_a_folder_with_a_pipe_in_it_is_refused_without_waiting(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for read in readers(tmp_path, tmp_path):
        with pytest.raises(ew.EdgewiseError):
            read()


def holding_itself():
    found = []
    found.append(found)
    return found


def doubled(times=40):
    found = ["a"]
    for _ in range(times):
        found = [found, found]
    return found


@pytest.mark.parametrize("make", [holding_itself, doubled])
@pytest.mark.parametrize("name", ["notes", "node_names", "y", "train_mask"])
def test_a_list_that_holds_itself_or_another_one_many_times_is_not_written_out(tmp_path, make, name):
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), **{name: make()})
    torch.save(data, tmp_path / "graph.pt")
    _, building = readers(tmp_path / "graph.pt", tmp_path)
    refused(building, "")
    code, grown, said = peak_above(lambda: repr(read_data(str(tmp_path / "graph.pt"), None, None, 0)))
    assert code in (0, 3), said
    assert grown < MOST


@pytest.mark.parametrize("mask", [np.ones((3, 0), dtype=bool), np.ones((3, 2, 2), dtype=bool), np.array(True)])
def test_a_mask_that_is_none_is_not_read(tmp_path, mask):
    path = write_npz(tmp_path / "graph.npz", x=ONES, edge_index=EDGES, train_mask=mask)
    assert "train" not in read_data(str(path), None, None, 0).parts


@pytest.mark.parametrize("count", [10**9, 10**12, 2**62, 10**30, -3, "7", [3], 3.5])
@pytest.mark.parametrize("typed", [False, True])
def test_a_number_of_nodes_that_nothing_else_says_is_compared_with_the_file(tmp_path, count, typed):
    data = HeteroData() if typed else Data()
    (data["a"] if typed else data).num_nodes = count
    (data["a", "to", "a"] if typed else data).edge_index = torch.tensor([[0, 1], [1, 2]])
    torch.save(data, tmp_path / "graph.pt")
    for read in readers(tmp_path / "graph.pt", tmp_path):
        refused(read, "")


def test_more_nodes_than_can_be_counted_are_refused(tmp_path):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=10**12)
    refused(lambda: ew.GraphStore.build(tmp_path / "store", data), "1000000000000 nodes, more than can be counted")


# Texts that stand for many values ######################################################################################


@pytest.mark.parametrize("value", [b"[],", b"{},", b'"ab",', b"1.5,"])
def test_a_text_of_many_small_values_is_not_built(tmp_path, value):
    text = b'{"x":[' + value * (60_000_000 // len(value)) + b"0]}"
    path = write_npz(tmp_path / "why.npz", about=np.frombuffer(text, dtype=np.uint8))
    assert path.stat().st_size < 1e5
    refused(lambda: ew.load(path), "more than its size allows")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "manifest.json").write_bytes(text)
    if value in (b"[],", b"{},"):  # of a file that is itself large, those alone that take far more than it has
        refused(lambda: ew.jobs.open(tmp_path / "job"), "is not the folder of a job")


# Numbers that stand for many ##########################################################################################


@pytest.mark.parametrize("index", [range(10**12), range(10**30), range(5, -(10**12), -1), range(-(10**12), 3)])
def test_a_range_of_a_million_million_is_refused_at_once(index):
    data = Data(x=torch.randn(9, 3), edge_index=torch.randint(0, 9, (2, 30)))
    model = GCN(3, 4, 2, 3).eval()
    before = memory_of("VmRSS")
    for ask in (
        lambda: ew.explain(model, data, index),
        lambda: ew.explain(model, [data, data], index, task="graph"),
        lambda: ew.explain(
            model, data, index, task="link", forward=lambda model, data, pairs: model(data.x, data.edge_index)
        ),
        lambda: ew.explain(model, data, [0, 1, 2])[index],
        lambda: ew.walks(model, data, index),
        lambda: ew.features(model, data, index),
    ):
        with pytest.raises(ew.EdgewiseError):
            ask()
    assert memory_of("VmRSS") - before < MOST


def test_a_manifest_of_a_million_million_nodes_is_refused_at_once(tmp_path):
    ew.GraphStore.build(tmp_path / "store", Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]])))
    said = json.loads((tmp_path / "store" / "manifest.json").read_text())
    said["nodes"][0]["count"] = 10**12
    (tmp_path / "store" / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(ew.FileError, match="altered"):
        ew.GraphStore(tmp_path / "store")
