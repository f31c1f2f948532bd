"""Made once, by version 0.1.0: the files beside it, and `expected.json`, which says what loading them must give.

Not to be run again for the same names: files that a later version wrote would prove nothing about the old ones. It
shows how they were made.

    python make_saved.py FOLDER
"""

import json
import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from torch_geometric.nn import ChebConv, GCNConv, SAGEConv, global_add_pool

import edgewise as ew

FEATURES, WIDTH, CLASSES = 3, 4, 3
EDGES = [(0, 1), (1, 2), (2, 0), (3, 1), (3, 1), (1, 4), (4, 3), (2, 2), (4, 5), (5, 4), (0, 5)]  # a loop, twins


class Chain(nn.Module):
    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


class LongSkip(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)
        self.jump = nn.Linear(FEATURES, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index) + self.jump(x)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = SAGEConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        x = self.first(x, edge_index).relu()
        return self.head(global_add_pool(self.second(x, edge_index).relu(), batch))


def model_of(make, dtype=torch.float32):
    torch.manual_seed(0)
    return make().eval().to(dtype)


def graph(edges, nodes, dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t().contiguous()
    return Data(x=torch.randn(nodes, FEATURES).to(dtype), edge_index=edge_index)


def chain(outputs=CLASSES):
    return Chain(GCNConv(FEATURES, WIDTH), SAGEConv(WIDTH, outputs))


def sets():
    """Name → a set of explanations."""
    data, exact = graph(EDGES, 7), graph(EDGES, 7, torch.float64)
    graphs = [graph(EDGES, 6, seed=2), graph([], 2, seed=3), graph([(0, 1), (1, 0), (2, 1)], 3, seed=4)]
    model, precise, pooled = model_of(chain), model_of(chain, torch.float64), model_of(Pooled)
    cheb = model_of(lambda: Chain(ChebConv(FEATURES, WIDTH, K=2), GCNConv(WIDTH, CLASSES)))
    outside = ew.from_pyg(GNNExplainer(epochs=3))
    return {
        "node_input_gradient": ew.explain(precise, exact, index=[1, 4, 6]),
        "node_layer_occlusion": ew.explain(
            model, data, index=[4, 1, 3], method="occlusion", level="layer", target=[0, 2, 1]
        ),
        "node_layer_top": ew.explain(model, data, method="gradient", level="layer", top=2, of="log_prob"),
        "node_binary": ew.explain(model_of(lambda: chain(1)), data, index=[1, 4], method="occlusion", of="prob"),
        "node_regression": ew.explain(model_of(lambda: chain(2)), data, index=[1, 4], mode="regression", target=1),
        "node_own_missing": ew.explain(cheb, data, index=[1, 4], level="layer"),
        "node_bypass": ew.explain(model_of(LongSkip), data, index=[1, 4], method="integrated_gradients", steps=3),
        "node_shapley": ew.explain(model, data, index=[1, 4], method="shapley", samples=4, seed=2),
        "node_random_layer": ew.explain(model, data, index=[1, 5], method="random", level="layer", seed=7),
        "node_full": ew.explain(model, data, index=[0, 6], method="full"),
        "node_from_pyg": ew.explain(model, data, index=[1, 4], method=outside),
        "graph_input": ew.explain(pooled, graphs, task="graph"),
        "graph_layer_shapley": ew.explain(
            pooled, graphs, index=[2, 0], task="graph", method="shapley", level="layer", samples=2
        ),
        "empty_no_edges": ew.explain(model, graph([], 3), level="layer"),
        "empty_no_targets": ew.explain(model, data, index=[1, 4])[:0],
    }


def plain(tensor):
    """Nested lists; float32 is exact as float64, and repr gives every digit; NaN is written as a word."""
    return None if tensor is None else _plain(tensor.tolist())


def _plain(value):
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def told(found):
    """All that a set says, through its public face."""
    each = list(found)
    graphs = [{"num_nodes": why.num_nodes, "edge_index": plain(why.edge_index)} for why in each]
    return {
        "index": plain(found.index),
        "target": plain(found.target),
        "value": plain(found.value),
        "dtype": str(found.value.dtype).removeprefix("torch."),
        "method": found.method,
        "level": found.level,
        "num_layers": found.num_layers,
        "settings": {key: list(value) if isinstance(value, tuple) else value for key, value in found.settings.items()},
        "graphs": graphs[:1] if all(one == graphs[0] for one in graphs) else graphs,
        "scores": [plain(why.scores) for why in each],
        "self_scores": [plain(why.self_scores) for why in each],
        "standard_errors": [plain(why.standard_errors) for why in each],
    }


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "expected.json").exists():
        raise SystemExit(f"{folder} has its files already: what an old version wrote is not written again.")
    expected = {}
    for name, found in sets().items():
        for ending in (".npz", ".parquet"):
            found.save(folder / f"{name}{ending}")
            again = told(ew.load(folder / f"{name}{ending}"))
            assert {**again, "settings": 0} == {**told(found), "settings": 0}, (name, ending)
            assert again == expected.setdefault(name, again), (name, ending)
    lines = (f" {json.dumps(name)}: {json.dumps(one, allow_nan=False)}" for name, one in expected.items())
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"Edgewise {ew.__version__}")
    main(Path(sys.argv[1]))
