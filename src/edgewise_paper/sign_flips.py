"""Sign flips as the paper counts them: gradients that change their sign while one edge's weight goes from 1 to 0.

Two counts. Proposition 2 speaks of the varied edge's *own* gradient. The paper's figure counts, for each prediction, the share
of all non-zero gradients that change their sign for some weight of some edge (*any*). `edgewise.trust.sign_flips` has the own
gradients of every edge, for all weights at once; *any* needs the other edges' gradients at each weight too, from a start that
need not be 1 (the authors' script starts at 0.73), and one rule for both about what is noise. So both are counted here.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.gradient import weight_gradients
from edgewise.score import Score
from edgewise.trust.flips import WEIGHTS
from edgewise_paper.context import Context
from edgewise_paper.similarity import CODE, TrainedModel
from edgewise_paper.task import Row, Task

THROUGH_SIGMOID = tuple(1 / (1 + math.exp(-weight)) for weight in WEIGHTS)
"""What the authors' scripts set: 0.73, …, 0.50, because PyG's mask setter applies a sigmoid by default."""
NOISE = 1e-6  # of a target's largest gradient; below it a sign says nothing in float32
COPIES_AT_ONCE = 2**19


@dataclass(frozen=True)
class FlipShares:
    """Shares of the non-zero gradients that change their sign, means over the targets."""

    all: float
    """The sum of the two others."""
    to_negative: float
    to_positive: float
    targets: int
    """Targets that have a gradient other than zero."""
    varied: int
    """(target, edge) pairs that were varied."""


def edges_to_vary(score: Score, columns: Tensor) -> list[Tensor]:
    """For each target of a node task, those of `columns` that can reach it.

    Args:
        score: All targets.
        columns: Columns of `edge_index`.
    """
    owner, edge = score.owner.cpu(), score.edge_id.cpu()
    chosen = torch.isin(edge, columns)
    order = owner[chosen].argsort(stable=True)
    counts = torch.bincount(owner[chosen], minlength=score.num_targets)
    return list(edge[chosen][order].split(counts.tolist()))


def work(score: Score, varied: Sequence[Tensor]) -> Tensor:
    """`[T]`: how many gradients have to be computed for one weight: edges of the target × edges that are varied."""
    copies = torch.bincount(score.owner.cpu(), minlength=score.num_targets)
    return copies * torch.tensor([len(edges) for edges in varied])


def count_flips(
    model: nn.Module,
    data: Any,
    index: Tensor,
    varied: Sequence[Tensor],
    *,
    weights: Sequence[float] = WEIGHTS,
    task: str = "node",
    device: str = "cpu",
) -> tuple[FlipShares, FlipShares]:
    """The shares for the varied edge's own gradient, and for any gradient of the same target.

    Args:
        model: A trained network.
        data: A graph, or a list of graphs.
        index: Targets, `[T]`.
        varied: Columns to vary, one at a time, for each target.
        weights: Weights of the varied edge; every other edge stays at `weights[0]`.
        task: `"node"` or `"graph"`.
        device: Where to compute.
    """
    everyone = Score(model, data, index, task=task, device=device)
    copies = torch.bincount(everyone.owner.cpu(), minlength=len(index))  # [T]: edges that reach each target
    # Pair p varies edge[p] for the target at row[p].
    row = torch.arange(len(index)).repeat_interleave(torch.tensor([len(edges) for edges in varied]))
    edge = torch.cat([torch.zeros(0, dtype=torch.long), *varied])
    tally = _Tally(len(index), int(everyone.num_edges.max()))
    for pairs in _chunks(copies[row]):
        target = everyone.target.column.cpu()[row[pairs]]
        score = Score(model, data, index[row[pairs]], target=target, task=task, device=device)
        tally.add(score, row[pairs].to(score.owner.device), edge[pairs].to(score.owner.device), weights)
    untouched = (copies > 0) & ~torch.isin(torch.arange(len(index)), row)  # they have gradients, and none can change
    return tally.own(), tally.any(untouched)


def _chunks(copies: Tensor) -> Iterator[Tensor]:
    """Numbers of pairs, in blocks of about `COPIES_AT_ONCE` edge copies; `copies[p]` is how many pair p has."""
    if len(copies):
        block = (copies.cumsum(0) - 1).div(COPIES_AT_ONCE, rounding_mode="floor")
        sizes = torch.bincount(block - block[0])
        yield from torch.arange(len(copies)).split(sizes[sizes > 0].tolist())


class _Tally:
    """Flags of (target, edge) pairs over all varied edges: has a gradient, went below zero, went above, was varied itself.

    A pair is a key, `target · width + edge`; the same key comes again for each edge that was varied for its target.
    """

    def __init__(self, num_targets: int, width: int) -> None:
        self.num_targets, self.width, self.pairs = num_targets, max(width, 1), 0
        self.keys = [torch.zeros(0, dtype=torch.long)]
        self.flags = [torch.zeros(4, 0, dtype=torch.bool)]

    def add(self, score: Score, row: Tensor, edge: Tensor, weights: Sequence[float]) -> None:
        """Vary `edge[p]` for copy p of a target, which stands at `row[p]` of all targets; P copies, M edges of them."""
        chosen = score.edge_id == edge[score.owner]  # [M]
        weight = score.ones() * weights[0]
        first = _gradient(score, weight)  # [M]
        down, up = torch.zeros_like(chosen), torch.zeros_like(chosen)
        for value in weights[1:]:
            weight[:, chosen] = value
            now = _gradient(score, weight)
            down |= (first > 0) & (now < 0)
            up |= (first < 0) & (now > 0)
        self.pairs += len(row)
        self.keys.append((row[score.owner] * self.width + score.edge_id).cpu())
        self.flags.append(torch.stack([first != 0, down, up, chosen]).cpu())

    def own(self) -> FlipShares:
        """Shares of the varied edges' own gradients."""
        keys, flags = torch.cat(self.keys), torch.cat(self.flags, dim=1)
        return self._flips(keys[flags[3]], flags[:3, flags[3]], torch.zeros(self.num_targets, dtype=torch.bool))

    def any(self, untouched: Tensor) -> FlipShares:
        """Shares of all gradients of a target, whichever edge was varied; untouched targets count with a share of 0."""
        keys, place = torch.cat(self.keys).unique(return_inverse=True)
        flags = torch.zeros(3, len(keys), dtype=torch.uint8)
        flags.scatter_reduce_(1, place.expand(3, -1), torch.cat(self.flags, dim=1)[:3].to(torch.uint8), "amax")
        return self._flips(keys, flags.bool(), untouched)

    def _flips(self, keys: Tensor, flags: Tensor, untouched: Tensor) -> FlipShares:
        """Mean over targets of the shares of their keys; `flags` is `[3, keys]`: has a gradient, down, up."""
        row = keys.div(self.width, rounding_mode="floor")
        counted, down, up = (torch.bincount(row[flag], minlength=self.num_targets).double() for flag in flags)
        known = (counted > 0) | untouched
        shares = [float((part / counted.clamp(min=1))[known].mean()) for part in (down, up)]  # NaN if none is known
        return FlipShares(sum(shares), shares[0], shares[1], targets=int(known.sum()), varied=self.pairs)


def _gradient(score: Score, weight: Tensor) -> Tensor:
    """∂z/∂ω_e with one weight for all layers, `[M]`; what rounding alone may have made is set to 0."""
    found = weight_gradients(score, weight, None)[0].sum(dim=0)
    largest = found.new_zeros(score.num_targets).scatter_reduce(0, score.owner, found.abs(), "amax")
    return found.masked_fill(found.abs() <= NOISE * largest[score.owner], 0.0)


# --- As rows -----------------------------------------------------------------------------------------------------------

BUDGET = 5e6
"""Most gradients for each weight; beyond it, a random part of the targets is counted (`count` says how many)."""
AT_LEAST = 10  # targets


def flip_rows(task: Task, context: Context, network: TrainedModel, columns: Tensor | Sequence[Tensor]) -> Iterator[Row]:
    """Both counts, with the text's weights and with those of the authors' script.

    Args:
        task: Its setting `seed` chooses the targets where they are too many.
        context: Says on which device to compute.
        network: What is explained.
        columns: Edges to vary: of the one graph of a node task, or for each graph of a graph task.
    """
    index = network.index if network.index is not None else torch.arange(len(network.data))
    score = Score(network.model, network.data, index, task=network.task, device=context.options.device)
    varied = edges_to_vary(score, columns) if isinstance(columns, Tensor) else list(columns)
    chosen = _affordable(work(score, varied), task.settings["seed"])
    for variant, weights in (("", WEIGHTS), (CODE, THROUGH_SIGMOID)):
        start = time.perf_counter()
        counts = count_flips(
            network.model, network.data, index[chosen], [varied[i] for i in chosen.tolist()],
            weights=weights, task=network.task, device=context.options.device,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        for whose, found in zip(("own gradient", "any gradient"), counts, strict=True):
            for method in ("all", "to_negative", "to_positive"):
                yield task.row(
                    "sign flips", getattr(found, method), method=method, reference=whose, variant=variant,
                    count=found.targets, seconds=seconds,
                )  # fmt: skip


def _affordable(costs: Tensor, seed: int) -> Tensor:
    """Positions of a random part of the targets whose work fits the budget: their mean estimates that of all."""
    total = float(costs.sum())
    number = len(costs) if total <= BUDGET else max(int(len(costs) * BUDGET / total), AT_LEAST)
    order = torch.randperm(len(costs), generator=torch.Generator().manual_seed(seed))
    return order[:number].sort().values
