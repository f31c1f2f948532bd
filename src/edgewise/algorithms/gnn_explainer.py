"""GNNExplainer (Ying et al., NeurIPS 2019) with PyG's objective, for all targets in one Adam run.

Adam works entry by entry and the copies are separate, so every target gets exactly the mask that it would get alone. Masks are
logits M, `[1, M]` at input level and `[L, M]` at layer level; the edge weights are σ(M). `train_masks` is the training loop,
`start_logits` where it starts.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.captured_step import repeat
from edgewise.arguments import shown
from edgewise.arrays import read_tensor
from edgewise.errors import InputError
from edgewise.program.weighted_chain import WeightedChain
from edgewise.score import CopyScores, Score


def gnn_explainer(
    score: Score, level: str, *, epochs: int, lr: float, edge_size: float, edge_ent: float, init: Any, seed: int
) -> CopyScores:
    """Masks σ(M) that minimise cross-entropy + edge_size·Σσ + edge_ent·mean entropy; 0 where the first gradient is 0.

    Layerwise: one mask per layer, trained jointly, the regularisers on every layer's mask. As in PyG, they act from the second
    step on, on the entries whose first gradient is not zero. Their derivative is written out: the entropy's is −M σ(1 − σ).

    Args:
        score: The explained numbers as a function of edge weights.
        level: `"input"` or `"layer"`.
        epochs: Steps of Adam.
        lr: Its step size.
        edge_size: Weight of the size of the mask.
        edge_ent: Weight of its entropy.
        init: Start logits instead of random ones: `[E]` or `[L, E]` for all targets, or such a tensor for each of them.
        seed: Random seed of the start.
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
    of the way, close together at first, and held in between. The regularisers, which cost nothing, act in every step. With
    `passes=4` and `epochs=100` the model is differentiated in the epochs 0, 3, 18 and 49. Args: as for `gnn_explainer`.
    """
    fresh = {round(epochs * (number / passes) ** SPACING) for number in range(passes)}
    start = start_logits(score, level, init, seed)
    return CopyScores(_at(level, train_masks(score, start, fresh, epochs, lr, edge_size, edge_ent)))


SPACING = 2.5  # the larger, the closer together the first gradients are


def _at(level: str, masks: Tensor) -> Tensor:
    """`[L, M]` at layer level, `[M]` at input level."""
    return masks if level == "layer" else masks[0]


def train_masks(
    score: Score, logits: Tensor, fresh: Collection[int], epochs: int, lr: float, edge_size: float, edge_ent: float
) -> Tensor:
    """`[1 or L, M]`: σ(M) after so many steps of Adam, 0 where the first gradient is 0.

    Args:
        score: The explained numbers as a function of edge weights.
        logits: `[1 or L, M]`, where to start; changed in place.
        fresh: The epochs in which the model is differentiated; in between its last gradient is held.
        epochs: Steps of Adam.
        lr: Its step size.
        edge_size: Weight of the size of the mask.
        edge_ent: Weight of its entropy.
    """
    logits.grad = torch.zeros_like(logits)
    optimizer = torch.optim.Adam([logits], lr=lr, fused=True, capturable=logits.is_cuda)
    active, pull, of_loss = (torch.zeros_like(logits) for _ in range(3))
    chain = score.weighted_chain(len(fresh))

    def step(*, is_fresh: bool) -> None:
        """One epoch, in place: a GPU may record and replay it."""
        mask = logits.sigmoid()
        if is_fresh:
            of_loss.copy_(loss_gradient(score, mask, chain))
        assert logits.grad is not None
        torch.mul(of_loss + active * (edge_size - pull * logits), mask * (1 - mask), out=logits.grad)
        optimizer.step()

    with score.expecting(len(fresh)):
        for epoch, times in _runs(fresh, epochs):
            repeat(lambda: step(is_fresh=epoch in fresh), times, logits.device, recordable=score.way == "lowered")  # noqa: B023
            if epoch == 0:
                active.copy_(logits.grad != 0)
                pull.copy_(edge_ent * entropy_share(active, score))
    return logits.sigmoid() * active


def _runs(fresh: Collection[int], epochs: int) -> list[tuple[int, int]]:
    """(first epoch, how many) of epochs that are alike; the first one stands alone, because it decides what is active.

    >>> _runs(range(100), 100), _runs({0, 3}, 6)
    ([(0, 1), (1, 99)], [(0, 1), (1, 2), (3, 1), (4, 2)])
    """
    found: list[tuple[int, int]] = []
    for epoch in range(epochs):
        if epoch > 1 and (epoch in fresh) == (epoch - 1 in fresh):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((epoch, 1))
    return found


def loss_gradient(score: Score, mask: Tensor, chain: WeightedChain | None = None) -> Tensor:
    """`[1 or L, M]`: ∂ cross-entropy / ∂ mask; a single row stands for all layers. With `chain` compiled loops find it."""
    if chain is not None:
        return chain.gradients(mask, lambda rows: _by_rows(score, rows))
    mask = mask.detach().requires_grad_()
    loss = score.target.loss(score.output(mask.expand(score.num_layers, -1))).sum()
    if not loss.requires_grad:  # no edge at all
        return torch.zeros_like(mask)
    found = torch.autograd.grad(loss, mask, allow_unused=True)[0]
    return torch.zeros_like(mask) if found is None else found


def _by_rows(score: Score, rows: Tensor) -> Tensor:
    """`[targets, columns]`: ∂ cross-entropy / ∂ the rows of the output."""
    rows = rows.detach().requires_grad_()
    return torch.autograd.grad(score.target.loss(rows).sum(), rows)[0]


def entropy_share(active: Tensor, score: Score) -> Tensor:
    """`[1 or L, M]`: 1 / number of active entries of the copy's target in that row: the entropy is averaged over them."""
    rows = len(active)
    group = score.owner + torch.arange(rows, device=score.owner.device).view(-1, 1) * score.num_targets
    count = active.new_zeros(rows * score.num_targets)
    count.index_add_(0, group.reshape(-1), active.reshape(-1))
    return 1 / count.clamp(min=1)[group]


def start_logits(score: Score, level: str, init: Any, seed: int) -> Tensor:
    """`[1 or L, M]`: given start logits, or PyG's normal distribution, drawn per target and edge from the seed."""
    dtype = score.target.truth.dtype
    if init is not None:
        return _given_start(score, level, init).to(score.owner.device, dtype).clone()
    layer = torch.arange(1 if level == "input" else score.num_layers, device=score.owner.device).view(-1, 1)
    target = score.key.to(score.owner.device)[score.owner]
    spread = (2.0 / score.num_nodes).sqrt().expand(score.num_targets)[score.owner]  # relu gain √2 · √(2 / 2N)
    return (random_numbers.normal(seed, target, layer, score.edge_id) * spread).to(dtype)


def _given_start(score: Score, level: str, init: Any) -> Tensor:
    """`[1 or L, M]`: given logits of columns, laid on the edge copies.

    `init` is a tensor for all targets (`[E]`, `[L, E]`), one for each (`[T, E]`, `[T, L, E]`), or in graph tasks a list of
    them.
    """
    if isinstance(init, (list, tuple)):  # graph tasks: one tensor for each graph
        try:
            parts = [_as_rows(read_tensor(init[i]), score, level) for i in score.positions.tolist()]
        except (TypeError, IndexError):
            parts = []
        if [part.size(1) for part in parts] != score.num_edges.tolist():
            raise InputError(
                f"`init` must have start logits for each graph, each with as many columns as the graph has edges, got "
                f"{len(init)} entries. Use init=None for a random start."
            )
        order = torch.cat([torch.tensor([0]), score.num_edges.cumsum(0).cpu()])[score.owner.cpu()] + score.edge_id.cpu()
        return torch.cat(parts, dim=1)[:, order]
    init = _start_tensor(init)
    edges = int(score.num_edges.max())
    shared = [(edges,), (score.num_layers, edges)] if level == "layer" else [(edges,)]
    each = [(score.num_asked, edges), (score.num_asked, score.num_layers, edges)][: 2 if level == "layer" else 1]
    owner, column = score.owner.to(init.device), score.edge_id.to(init.device)
    if tuple(init.shape) in shared:
        return _as_rows(init, score, level)[:, column]
    if tuple(init.shape) not in each:
        known = " or ".join(str(list(shape)) for shape in [*shared, *each])
        raise InputError(
            f"`init` must have shape {known} at level={level!r} (start logits of the edges), got {list(init.shape)}. "
            f"Use init=torch.zeros({edges}), for example."
        )
    row = score.positions.to(init.device)[owner]
    if init.dim() == 3:
        return init[row, :, column].t()
    return init[row, column].expand(1 if level == "input" else score.num_layers, -1)


def _start_tensor(init: Any) -> Tensor:
    """Start logits for all targets as a tensor, where they are."""
    try:
        if isinstance(init, Tensor) or hasattr(type(init), "__array__"):
            return torch.as_tensor(init)
    except TypeError:  # an array of texts
        pass
    raise InputError(
        f"`init` must be a tensor of start logits, got {shown(init)}. Use init=torch.zeros(E), for example."
    )


def _as_rows(init: Tensor, score: Score, level: str) -> Tensor:
    """`[1 or L, E]`: start logits of one graph, a single row repeated for every layer."""
    rows = init.view(1, -1) if init.dim() == 1 else init
    wanted = 1 if level == "input" else score.num_layers
    if rows.dim() != 2 or rows.size(0) not in (1, wanted):
        rows_wanted = "1 row" if wanted == 1 else f"1 or {wanted} rows"
        raise InputError(f"`init` must have {rows_wanted} at level={level!r}, got shape {list(init.shape)}.")
    return rows.expand(wanted, -1)
