"""PyG's `LayerNorm` in graph mode, where the model gives it no `batch`: a GIN's inner network does not pass it on.

Run on several graphs at once it would then normalise over all of them. Each graph gets what it gets alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphNorm, InstanceNorm, LayerNorm

from edgewise.errors import ModelError
from edgewise.model.module_tree import modules_of


@contextmanager
def norms_of_each_graph(model: nn.Module, data: Data) -> Iterator[None]:
    """For a while, every graph of a batch is normalised by itself."""
    batch = data.get("batch")
    norms = [m for m in modules_of(model) if isinstance(m, LayerNorm) and m.mode == "graph"]
    if batch is None or not norms or getattr(data, "num_graphs", None) == 1:
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


# --- statistics held fixed ------------------------------------------------------------------------------------------------


def norms_of_graphs(model: nn.Module) -> list[nn.Module]:
    """The norms that read all nodes of a graph at once."""
    return [
        module
        for module in modules_of(model)
        if (isinstance(module, LayerNorm) and module.mode == "graph")
        or isinstance(module, (GraphNorm, InstanceNorm))
        or (isinstance(module, nn.BatchNorm1d) and module.running_mean is None)
    ]


@contextmanager
def fixed_norms(model: nn.Module, run: Callable[[], Any]) -> Iterator[None]:
    """Hold the statistics of norms over a whole graph as they are in `run()`: each becomes a number times x plus a number.

    Only for one graph at a time; a norm that is used several times in a pass cannot be held.
    """
    held: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def hold(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if module in held:
            raise ModelError(
                f"norm='fixed': a {type(module).__name__} is used several times in a pass, so it cannot be held."
            )
        batch = args[1] if len(args) > 1 else kwargs.get("batch")
        held[module] = _as_affine(module, args[0] if args else kwargs["x"], with_batch=batch is not None)

    def replay(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        scale, shift = held[module]
        rows: Tensor = args[0] if args else kwargs["x"]
        return rows * scale + shift

    norms = norms_of_graphs(model)
    handles = [norm.register_forward_hook(hold, with_kwargs=True) for norm in norms]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    handles = [norm.register_forward_hook(replay, with_kwargs=True) for norm in norms if norm in held]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _as_affine(norm: Any, x: Tensor, *, with_batch: bool) -> tuple[Tensor, Tensor]:
    """(scale, shift), `[1, width]`, so that the norm of this graph is scale · x + shift.

    PyG's `LayerNorm` adds ε to the deviation, or, where it is given `batch`, to the variance.
    """
    if isinstance(norm, LayerNorm):
        mean, variance = x.mean(), x.var(unbiased=False)
        deviation = (variance + norm.eps).sqrt() if with_batch else variance.sqrt() + norm.eps
        mean, deviation = mean.expand(1, x.size(1)), deviation.expand(1, x.size(1))
    else:
        mean = x.mean(dim=0, keepdim=True) * (norm.mean_scale if isinstance(norm, GraphNorm) else 1)
        deviation = ((x - mean).square().mean(dim=0, keepdim=True) + norm.eps).sqrt()
    weight = 1.0 if norm.weight is None else norm.weight
    bias = 0.0 if norm.bias is None else norm.bias
    scale = weight / deviation
    return scale.detach(), (bias - mean * scale).detach()
