"""Networks that studies share: of planted data sets, and small ones trained on Cora, CiteSeer and WebKB."""

from typing import Any

import torch
from torch.nn import functional as F
from torch_geometric.nn import GCN, GIN, GraphSAGE

from benchmarks.data import raw_folder
from edgewise.board.trained_network import make_network
from edgewise.datasets.planted_data import fit

KINDS: dict[str, Any] = {"GCN": GCN, "SAGE": GraphSAGE, "GIN": GIN}
WIDTH, EPOCHS = 32, 60


def planted_network(name: str, seed: int, targets: int) -> tuple[Any, Any, torch.Tensor, str]:
    """The model, the data, the targets and the task of a planted data set."""
    network = make_network(name, seed, targets)
    graphs = isinstance(network.data, list)
    index = torch.arange(len(network.index)) if graphs else torch.tensor(network.index)
    return network.model, network.data, index, "graph" if graphs else "node"


def real_graph(name: str) -> Any:
    """A graph of PyG's, from raw files that are here; with the splits of geom-gcn."""
    from torch_geometric.datasets import Planetoid, WebKB

    folder = name if name in ("Cora", "CiteSeer") else name.lower()
    root = str(raw_folder(folder))
    return (Planetoid(root, name, split="geom-gcn") if folder == name else WebKB(root, name))[0]


def real_network(name: str, kind: str, depth: int, seed: int, targets: int) -> tuple[Any, Any, torch.Tensor, str]:
    """A network of width 32, trained for 60 epochs on the first split, and test nodes that the seed draws."""
    data = real_graph(name)
    training, test = (data[mask][:, 0].bool() for mask in ("train_mask", "test_mask"))

    def losses(model: Any) -> Any:
        yield F.cross_entropy(model(data.x, data.edge_index)[training], data.y[training])

    def make() -> Any:
        return KINDS[kind](data.num_features, WIDTH, depth, int(data.y.max()) + 1)

    model = fit(make, losses, seed=seed, epochs=EPOCHS)
    order = torch.randperm(int(test.sum()), generator=torch.Generator().manual_seed(seed))[:targets]
    return model, data, test.nonzero().view(-1)[order], "node"
