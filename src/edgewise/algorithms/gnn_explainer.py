"""GNNExplainer (Ying et al., NeurIPS 2019) with PyG's objective, for all targets in one Adam run.

Adam works entry by entry and the copies are separate, so every target gets exactly the mask that it would get alone.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.copy_scores import CopyScores
from edgewise.errors import InputError
from edgewise.score import Score


def gnn_explainer(
    score: Score, level: str, *, epochs: int, lr: float, edge_size: float, edge_ent: float, init: Any, seed: int
) -> CopyScores:
    """Masks σ(M) that minimise cross-entropy + edge_size·Σσ + edge_ent·mean entropy; 0 where the first gradient is 0.

    Layerwise: one mask per layer, trained jointly, the regularisers on every layer's mask. As in PyG, they act from the second
    step on, on the entries whose first gradient is not zero. Their derivative is written out: the entropy's is −M σ(1 − σ).
    """
    start = start_logits(score, level, init, seed)
    return CopyScores(_at(level, train_masks(score, start, range(epochs), epochs, lr, edge_size, edge_ent)))


def gnn_explainer_fast(
    score: Score,
    level: str,
    *,
    passes: int,
    epochs: int,
    lr: float,
    edge_size: float,
    edge_ent: float,
    init: Any,
    seed: int,
) -> CopyScores:
    """A stand-in for GNNExplainer: the same steps from the same start, with a new gradient of the model only now and then.

    Masks start at σ = ½ and what they do first decides most of what comes: gradients are taken at the epochs `(i / passes)^2.5`
    of the way, close together at first, and held in between. The regularisers, which cost nothing, act in every step.
    """
    fresh = {round(epochs * (number / passes) ** SPACING) for number in range(passes)}
    start = start_logits(score, level, init, seed)
    return CopyScores(_at(level, train_masks(score, start, fresh, epochs, lr, edge_size, edge_ent)))


SPACING = 2.5


def _at(level: str, masks: Tensor) -> Tensor:
    return masks if level == "layer" else masks[0]


def train_masks(
    score: Score, logits: Tensor, fresh: Collection[int], epochs: int, lr: float, edge_size: float, edge_ent: float
) -> Tensor:
    """σ(M) after so many steps of Adam, `[1 or L, M]`; the model is differentiated in the epochs `fresh`."""
    logits.grad = torch.zeros_like(logits)
    optimizer = torch.optim.Adam([logits], lr=lr, fused=True)
    active, pull, of_loss = (torch.zeros_like(logits) for _ in range(3))
    for epoch in range(epochs):
        mask = logits.sigmoid()
        of_loss = loss_gradient(score, mask) if epoch in fresh else of_loss
        torch.mul(of_loss + active * (edge_size - pull * logits), mask * (1 - mask), out=logits.grad)
        if epoch == 0:
            active = (logits.grad != 0).to(logits.dtype)
            pull = edge_ent * entropy_share(active, score)
        optimizer.step()
    return logits.sigmoid() * active


def loss_gradient(score: Score, mask: Tensor) -> Tensor:
    """∂ cross-entropy / ∂ mask."""
    mask = mask.detach().requires_grad_()
    loss = score.target.loss(score.output(mask.expand(score.num_layers, -1))).sum()
    if not loss.requires_grad:  # no edge at all
        return torch.zeros_like(mask)
    found = torch.autograd.grad(loss, mask, allow_unused=True)[0]
    return torch.zeros_like(mask) if found is None else found


def entropy_share(active: Tensor, score: Score) -> Tensor:
    """1 / number of active entries, per target and mask: the entropy is averaged over them."""
    rows = len(active)
    group = score.owner + torch.arange(rows, device=score.owner.device).view(-1, 1) * score.num_targets
    count = active.new_zeros(rows * score.num_targets)
    count.index_add_(0, group.reshape(-1), active.reshape(-1))
    return 1 / count.clamp(min=1)[group]


def start_logits(score: Score, level: str, init: Any, seed: int) -> Tensor:
    """Start logits `[1 or L, M]`: given ones, or PyG's normal distribution, drawn per target and edge from the seed."""
    dtype = score.target.truth.dtype
    if init is not None:
        return _given_start(score, level, init).to(score.owner.device, dtype).clone()
    layer = torch.arange(1 if level == "input" else score.num_layers, device=score.owner.device).view(-1, 1)
    target = score.index.to(score.owner.device)[score.owner]
    spread = (2.0 / score.num_nodes).sqrt().expand(score.num_targets)[score.owner]  # relu gain √2 · √(2 / 2N)
    return (random_numbers.normal(seed, target, layer, score.edge_id) * spread).to(dtype)


def _given_start(score: Score, level: str, init: Any) -> Tensor:
    """Given logits for every edge copy: shared by all targets, or one row (or one per layer) for each of them."""
    if isinstance(init, (list, tuple)):  # graph tasks: one tensor for each graph
        parts = [_as_rows(torch.as_tensor(init[i]), score, level) for i in score.positions.tolist()]
        if [part.size(1) for part in parts] != score.num_edges.tolist():
            raise InputError(
                f"init has {len(init)} entries; needed is one for each graph, each with that graph's edges."
            )
        order = torch.cat([torch.tensor([0]), score.num_edges.cumsum(0).cpu()])[score.owner.cpu()] + score.edge_id.cpu()
        return torch.cat(parts, dim=1)[:, order]
    if not isinstance(init, Tensor) and not hasattr(init, "__array__"):
        raise InputError(f"init is {init!r}; needed is a tensor of start logits, [E] for one: init=torch.zeros(E).")
    init = torch.as_tensor(init)
    edges = int(score.num_edges.max())
    shared = [(edges,), (score.num_layers, edges)] if level == "layer" else [(edges,)]
    each = [(score.num_asked, edges), (score.num_asked, score.num_layers, edges)][: 2 if level == "layer" else 1]
    owner, column = score.owner.to(init.device), score.edge_id.to(init.device)
    if tuple(init.shape) in shared:
        return _as_rows(init, score, level)[:, column]
    if tuple(init.shape) not in each:
        known = " or ".join(str(list(shape)) for shape in [*shared, *each])
        raise InputError(
            f"init has shape {list(init.shape)}; at level={level!r} needed is {known}: start logits of the edges."
        )
    row = score.positions.to(init.device)[owner]
    if init.dim() == 3:
        return init[row, :, column].t()
    return init[row, column].expand(1 if level == "input" else score.num_layers, -1)


def _as_rows(init: Tensor, score: Score, level: str) -> Tensor:
    rows = init.view(1, -1) if init.dim() == 1 else init
    wanted = 1 if level == "input" else score.num_layers
    if rows.dim() != 2 or rows.size(0) not in (1, wanted):
        raise InputError(f"init has shape {list(init.shape)}; at level={level!r} needed are {wanted} rows, or one.")
    return rows.expand(wanted, -1)
