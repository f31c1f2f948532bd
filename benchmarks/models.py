"""The models that are explained, trained briefly with the paper's settings and kept between runs."""

import os
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, GCN, GIN, GATConv, GATv2Conv, TransformerConv, global_mean_pool

from benchmarks.cache import cache_folder
from benchmarks.data import COLUMN, cora, mutag, proteins
from edgewise.datasets import TrainedInfection, infection_model
from edgewise.random_numbers import seeded

HIDDEN, LAYERS, DROPOUT, LEARNING_RATE = 32, 3, 0.5, 0.003
CORA_EPOCHS, PROTEINS_EPOCHS = 100, 20


@cache
def infection() -> TrainedInfection:
    return infection_model(seed=0)


CORA_MODELS: dict[str, Callable[..., nn.Module]] = {
    "gcn": lambda *sizes: GCN(*sizes, dropout=DROPOUT),
    "gatv2": lambda *sizes: GAT(*sizes, dropout=DROPOUT, v2=True, heads=4),
    "gin": lambda *sizes: GIN(*sizes, dropout=DROPOUT),
}


@cache
def cora_model(architecture: str, layers: int = LAYERS) -> nn.Module:
    """Hidden 32, 100 epochs on split 0."""
    data = cora()
    with seeded(0):
        model = CORA_MODELS[architecture](data.num_features, HIDDEN, layers, int(data.y.max()) + 1)
        depth = "" if layers == LAYERS else f"-{layers}"
        return _kept(f"cora-{architecture}{depth}-{CORA_EPOCHS}", model, _train_on_cora)


ATTENTION = {"GAT": GATConv, "GATv2": GATv2Conv, "TransformerConv": TransformerConv}


class TwoAttention(nn.Module):
    """Two attention layers of four heads: side by side, then averaged."""

    def __init__(self, kind: str, features: int, classes: int, heads: int = 4) -> None:
        super().__init__()
        self.first = ATTENTION[kind](features, HIDDEN // heads, heads=heads)
        self.second = ATTENTION[kind](HIDDEN, classes, heads=heads, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.first(x, edge_index).relu(), DROPOUT, self.training)
        return self.second(hidden, edge_index)


@cache
def cora_attention(kind: str) -> nn.Module:
    """Hidden 32, 100 epochs on split 0."""
    data = cora()
    with seeded(0):
        model = TwoAttention(kind, data.num_features, int(data.y.max()) + 1)
        return _kept(f"cora-two-{kind}-{CORA_EPOCHS}", model, _train_on_cora)


class PooledGIN(nn.Module):
    """GIN layers, the mean over the nodes of a graph, one logit."""

    def __init__(self, features: int, norm: str | None) -> None:
        super().__init__()
        self.gnn = GIN(features, HIDDEN, LAYERS, dropout=DROPOUT, norm=norm)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.gnn(x, edge_index, batch=batch), batch))


@cache
def proteins_model(norm: str | None = None) -> nn.Module:
    """3 layers, hidden 32, 20 epochs on the first 60 % of the shuffled graphs."""
    with seeded(0):
        model = PooledGIN(proteins()[0].num_features, norm)
        return _kept(f"proteins-gin-{norm or 'plain'}-{PROTEINS_EPOCHS}", model, partial(_train_on_graphs, proteins()))


@cache
def mutag_model() -> nn.Module:
    """The same on MUTAG."""
    with seeded(0):
        model = PooledGIN(mutag()[0].num_features, None)
        return _kept(f"mutag-gin-{PROTEINS_EPOCHS}", model, partial(_train_on_graphs, mutag()))


def large_model(features: int = 128, hidden: int = 128, classes: int = 40) -> nn.Module:
    """An untrained GCN: cost does not depend on the weights."""
    with seeded(0):
        return GCN(features, hidden, LAYERS, classes).eval()


def _kept(name: str, model: nn.Module, train: Callable[[nn.Module], None]) -> nn.Module:
    file = cache_folder() / f"{name}.pt"
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
    else:
        train(model.train())
        part = file.with_suffix(f".{os.getpid()}")
        torch.save(model.state_dict(), part)
        part.rename(file)
    return model.eval()


def _train_on_cora(model: nn.Module) -> None:
    data, optimizer = cora(), torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-5)
    mask = data.train_mask[:, COLUMN].bool()
    for _ in range(CORA_EPOCHS):
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[mask], data.y[mask]).backward()
        optimizer.step()
    model.zero_grad()


def _train_on_graphs(graphs: list[Data], model: nn.Module) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-4)
    training = [graphs[i] for i in torch.randperm(len(graphs))[: len(graphs) * 6 // 10].tolist()]
    for _ in range(PROTEINS_EPOCHS):
        for batch in DataLoader(training, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            logit = model(batch.x, batch.edge_index, batch.batch).view(-1)
            F.binary_cross_entropy_with_logits(logit, batch.y.float()).backward()
            optimizer.step()
    model.zero_grad()
