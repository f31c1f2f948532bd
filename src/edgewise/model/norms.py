"""PyG's `LayerNorm` in graph mode, where the model gives it no `batch`: a GIN's inner network does not pass it on.

Run on several graphs at once it would then normalise over all of them. Each graph gets what it gets alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import LayerNorm


@contextmanager
def norms_of_each_graph(model: nn.Module, data: Data) -> Iterator[None]:
    """For a while, every graph of a batch is normalised by itself."""
    batch = data.get("batch")
    norms = [m for m in model.modules() if isinstance(m, LayerNorm) and m.mode == "graph"]
    if batch is None or not norms:
        yield
        return

    def again(module: LayerNorm, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor | None:
        x = args[0] if args else kwargs["x"]
        given = args[1] if len(args) > 1 else kwargs.get("batch")
        if given is not None or x.dim() != 2 or len(x) != len(batch):
            return None
        return _norm_of_each_graph(module, x, batch, int(getattr(data, "num_graphs", None) or batch.max() + 1))

    handles = [norm.register_forward_hook(again, with_kwargs=True) for norm in norms]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _norm_of_each_graph(norm: LayerNorm, x: Tensor, batch: Tensor, graphs: int) -> Tensor:
    """What the module computes without `batch` (ε is added to the deviation, not to the variance), graph by graph."""
    size = torch.bincount(batch, minlength=graphs).clamp(min=1).to(x.dtype).view(-1, 1) * x.size(1)

    def mean(rows: Tensor) -> Tensor:
        total = rows.new_zeros(graphs, 1).index_add(0, batch, rows.sum(dim=1, keepdim=True))
        return (total / size).index_select(0, batch)

    x = x - mean(x)
    tiny = torch.finfo(x.dtype).tiny  # where all entries are equal: a root whose derivative is 0, as torch's std has it
    out = x / (mean(x * x).clamp(min=tiny).sqrt() + norm.eps)
    return out if norm.weight is None or norm.bias is None else out * norm.weight + norm.bias
