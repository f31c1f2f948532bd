"""Result files of every kind, and ways to alter them: what `ew.load` must read right or refuse."""

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, HeteroConv, SAGEConv, global_add_pool

import edgewise as ew
from edgewise.results.container import with_digest

KINDS = ("node", "layer", "shapley", "random", "graph", "link", "typed", "feature", "factors")


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 2)

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.conv(x, edge_index).relu(), batch)


class Pairs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 4)

    def forward(self, x, edge_index, edge_label_index):
        z = self.conv(x, edge_index).relu()
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=1)


class Typed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        kinds = {("a", "to", "b"): SAGEConv((3, 3), 3), ("b", "back", "a"): SAGEConv((3, 3), 3)}
        self.first, self.second = HeteroConv(kinds), HeteroConv(dict(kinds))

    def forward(self, x_dict, edge_index_dict):
        hidden = {name: x.relu() for name, x in self.first(x_dict, edge_index_dict).items()}
        return self.second(hidden, edge_index_dict)


def graph(nodes: int, seed: int) -> Data:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, 3 * nodes), generator=draw)
    return Data(x=torch.randn(nodes, 3, generator=draw), edge_index=ends)


def typed_graph() -> HeteroData:
    draw, data = torch.Generator().manual_seed(0), HeteroData()
    data["a"].x, data["b"].x = (torch.randn(n, 3, generator=draw) for n in (5, 4))
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 0]])
    data["b", "back", "a"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    return data


@cache
def result(kind: str):
    """A small result of a kind, made once."""
    torch.manual_seed(0)
    model, data = GCN(3, 4, 2, 3).eval(), graph(9, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "graph":
            return ew.explain(Pooled().eval(), [graph(n, n) for n in (4, 6, 5)], task="graph", level="layer")
        if kind == "link":
            return ew.explain(Pairs().eval(), data, [(0, 1), (4, 7)], task="link")
        if kind == "typed":
            return ew.explain(Typed().eval(), typed_graph(), ("b", [0, 2]), level="layer")
        if kind in ("feature", "factors"):
            method = "occlusion" if kind == "feature" else "gradient"
            return ew.features(model, data, [1, 4, 8], method=method)
    method, level = {"node": "gradient", "layer": "occlusion"}.get(kind, kind), "input" if kind == "node" else "layer"
    own = {"samples": 3} if kind == "shapley" else {}
    return ew.explain(model, data, [4, 1, 8, 2], method=method, level=level, **own)


def write(kind: str, ending: str, folder: Path) -> Path:
    """The result as a file."""
    path = folder / f"{kind}{ending}"
    result(kind).save(path)
    return path


def endings(kind: str) -> tuple[str, ...]:
    return (".npz",) if kind in ("feature", "factors") else (".npz", ".parquet")


# Alterations: (path, draw) → nothing; they write the file again. `draw` is a numpy generator. ##########################


def flipped(path, draw):
    data = bytearray(path.read_bytes())
    data[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
    path.write_bytes(bytes(data))


def truncated(path, draw):
    data = path.read_bytes()
    path.write_bytes(data[: int(draw.integers(len(data)))])


def scrambled(path, draw):
    data = bytearray(path.read_bytes())
    begin = int(draw.integers(len(data)))
    data[begin : begin + 40] = draw.bytes(40)
    path.write_bytes(bytes(data))


def contents(path):
    """The arrays and the text of a `.npz`, or of the metadata of a `.parquet`, and its table."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            arrays = dict(archive)
        return arrays, json.loads(arrays.pop("about").tobytes()), None
    table = pyarrow.parquet.read_table(path)
    return None, None, table


def write_arrays(path, arrays, about):
    np.savez_compressed(path, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)


def changed(name, array, draw):
    """One array, wrong in one of many ways."""
    ways = [
        lambda: array[: len(array) // 2],
        lambda: np.concatenate([array, array]),
        lambda: array.reshape(-1)[::-1].copy(),
        lambda: array.astype(np.float64) * np.nan,
        lambda: array.astype(np.float32),
        lambda: array.astype(np.int32),
        lambda: array + 10**9,
        lambda: -array - 1,
        lambda: np.zeros(0, dtype=array.dtype),
        lambda: np.zeros(10**7, dtype=np.int64),
        lambda: np.zeros((2, 0), dtype=array.dtype),
        lambda: np.array(3, dtype=array.dtype),
        lambda: np.array(["text"] * max(len(array), 1)),
        lambda: array + np.arange(array.size).reshape(array.shape).astype(array.dtype),
        lambda: array.astype(">i8"),
        lambda: np.where(draw.random(array.shape) < 0.3, array * 0 + 2**40, array),
    ]
    return ways[int(draw.integers(len(ways)))]()


def lying_arrays(path, draw, digest=False):
    arrays, about, _ = contents(path)
    name = sorted(arrays)[int(draw.integers(len(arrays)))]
    arrays[name] = changed(name, arrays[name], draw)
    write_arrays(path, arrays, with_digest(arrays, about) if digest else about)


def lying_arrays_with_a_digest(path, draw):
    lying_arrays(path, draw, digest=True)


def swapped_arrays(path, draw):
    arrays, about, _ = contents(path)
    one, other = draw.choice(sorted(arrays), 2, replace=False)
    arrays[one], arrays[other] = arrays[other], arrays[one]
    write_arrays(path, arrays, with_digest(arrays, about) if draw.random() < 0.5 else about)


def lying_text(path, draw):
    arrays, about, _ = contents(path)
    name = sorted(about)[int(draw.integers(len(about)))]
    lies = [None, -1, 10**12, "nope", [], {}, 1.5, True, "x" * 1000, {"tuple": [0, 99]}]
    about[name] = lies[int(draw.integers(len(lies)))]
    write_arrays(path, arrays, with_digest(arrays, about) if draw.random() < 0.5 else about)


def missing_array(path, draw):
    arrays, about, _ = contents(path)
    del arrays[sorted(arrays)[int(draw.integers(len(arrays)))]]
    write_arrays(path, arrays, with_digest(arrays, about) if draw.random() < 0.5 else about)


def write_table(path, table):
    pyarrow.parquet.write_table(table, path)


def sorted_rows(path, draw):
    _, _, table = contents(path)
    write_table(path, table.take(draw.permutation(len(table))))


def filtered_targets(path, draw):
    _, _, table = contents(path)
    kept = np.isin(table["position"].to_numpy(), draw.choice(9, 2))
    write_table(path, table.filter(pyarrow.array(kept)))


def filtered_rows(path, draw):
    _, _, table = contents(path)
    write_table(path, table.filter(pyarrow.array(draw.random(len(table)) < 0.8)))


def doubled_rows(path, draw):
    _, _, table = contents(path)
    write_table(path, pyarrow.concat_tables([table, table.slice(0, int(draw.integers(1, 9)))]))


def foreign_rows(path, draw):
    _, _, table = contents(path)
    other = table.set_column(
        table.column_names.index("score"), "score", pyarrow.array(draw.random(len(table)), "float32")
    )
    cut = int(draw.integers(len(table) + 1))
    mixed = pyarrow.concat_tables([table.slice(0, cut), other.slice(cut)], promote_options="permissive")
    write_table(path, mixed.replace_schema_metadata(table.schema.metadata))


def swapped_columns(path, draw):
    _, _, table = contents(path)
    one, other = draw.choice([name for name in table.column_names if name != "score"], 2, replace=False)
    names = [{one: other, other: one}.get(name, name) for name in table.column_names]
    write_table(path, table.rename_columns(names))


def changed_column(path, draw):
    _, _, table = contents(path)
    name = table.column_names[int(draw.integers(len(table.column_names)))]
    values = table[name].to_numpy()
    ways = [values[::-1], values + 1, values * 0, values.astype(np.float64), np.where(values == values[:1], 5, values)]
    new = ways[int(draw.integers(len(ways)))].copy()
    write_table(path, table.set_column(table.column_names.index(name), name, pyarrow.array(new)))


def holes(path, draw):
    _, _, table = contents(path)
    name = table.column_names[int(draw.integers(len(table.column_names)))]
    empty = draw.random(len(table)) < 0.2
    column = pyarrow.array(table[name].to_numpy(), mask=empty)
    write_table(path, table.set_column(table.column_names.index(name), name, column))


def lost_column(path, draw):
    _, _, table = contents(path)
    write_table(path, table.drop_columns([table.column_names[int(draw.integers(len(table.column_names)))]]))


def lying_metadata(path, draw):
    _, _, table = contents(path)
    told = json.loads(table.schema.metadata[b"edgewise"])
    name = sorted(told["arrays"])[int(draw.integers(len(told["arrays"])))]
    ways = [told["arrays"]["index"], "", "AAAA", None, told["arrays"][name][:-8]]
    told["arrays"][name] = ways[int(draw.integers(len(ways)))]
    write_table(path, table.replace_schema_metadata({"edgewise": json.dumps(told)}))


BYTES = (flipped, truncated, scrambled)
NPZ = (lying_arrays, lying_arrays_with_a_digest, swapped_arrays, lying_text, missing_array)
PARQUET = (
    *(sorted_rows, filtered_targets, filtered_rows, doubled_rows, foreign_rows, swapped_columns, changed_column),
    *(holes, lost_column, lying_metadata),
)


def ways_of(ending: str):
    return BYTES + (NPZ if ending == ".npz" else PARQUET)
