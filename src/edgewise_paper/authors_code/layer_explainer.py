"""The layerwise GNNExplainer as the authors' code has it, which is another algorithm than the text's.

`explainers/gnnexplainer_layerwise.py` of their repository, by line:

| line | what happens |
|---|---|
| 257–258 | every layer's mask starts with PyG's standard deviation, √2 · √(2 / 2N) |
| 174 | one Adam over the masks of all layers |
| 176–180 | L rounds of 100 steps, one round a layer, the last layer first; all masks move in all of them |
| 259 | until its round begins, a layer's selection is a vector of E integer zeros |
| 214–220 | in the first step of its round a layer's selection becomes the entries whose gradient is not zero |
| 284–286 | the selection indexes the masks: E integer zeros are E copies of edge 0 |
| 288 | the size term is 0.005 · Σ σ over the selections of all layers, the E copies included |
| 289–291 | the entropy is the mean over all of them: an entry counts 1 / (selected + E · layers whose round has not begun) |
| 133–140 | in the end the mask is σ on the selection and 0 elsewhere |

The copies give edge 0 a gradient wherever it is, so it is selected in every layer, also where it cannot reach the target. Here
all targets are trained side by side: Adam works entry by entry and targets share none, so each gets what it would get alone.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise import random_numbers
from edgewise.algorithms.captured_step import repeat
from edgewise.algorithms.gnn_explainer import loss_gradient, start_logits
from edgewise.question import pose
from edgewise.question.memory import blocks, room
from edgewise.results.entries import Entries, Part
from edgewise.score import Score
from edgewise_paper.authors_code.maskable import Maskable

EPOCHS, RATE, EDGE_SIZE, EDGE_ENTROPY = 100, 0.01, 0.005, 1.0
"""Lines 86 to 96: the defaults of the class, which the scripts leave as they are."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The entries of a layer's masks: M edge copies, then edge 0 of every target that has no copy of it; C in all."""

    owner: Tensor
    """`[C]`: the target of each."""
    edge: Tensor
    """`[C]`: its column of the graph, with the self-loops that masks do not reach."""
    copies: int
    """M."""
    num_edges: Tensor
    """`[T]`: E of each target's graph, with those self-loops."""

    @staticmethod
    def of(score: Score, part: Maskable | None = None) -> "Columns":
        """The columns of a score of `part`; graphs without edges have none."""
        num_edges = score.num_edges.to(score.owner.device).expand(score.num_targets)
        edge = score.edge_id
        if part is not None and part.columns is not None:
            num_edges, edge = torch.full_like(num_edges, part.whole.num_edges), part.columns.to(edge.device)[edge]
        lacking = (num_edges > 0).index_fill(0, score.owner[edge == 0], False)
        stray = lacking.nonzero().view(-1)
        owner, edge = torch.cat([score.owner, stray]), torch.cat([edge, torch.zeros_like(stray)])
        return Columns(owner, edge, len(score.owner), num_edges)

    def per_target(self, entries: Tensor) -> Tensor:
        """`[T]`: the sums of `[C]`."""
        return entries.new_zeros(len(self.num_edges)).index_add_(0, self.owner, entries)


class Selections:
    """Which entries the regularisers see, and how much: the vectors of lines 259 and 220 as multiplicities."""

    def __init__(self, columns: Columns, like: Tensor) -> None:
        self.columns = columns
        copies = columns.num_edges.to(like.dtype)[columns.owner] * (columns.edge == 0)  # E times edge 0
        self.times = copies.expand_as(like).clone()  # [L, C]
        self.counted = like.new_zeros(len(columns.num_edges))  # [T]: the length of the concatenation of line 284
        self.pull = torch.zeros_like(copies)  # [C]: what the mean entropy is divided by, inverted
        self._count()

    def _count(self) -> None:
        self.counted.copy_(self.columns.per_target(self.times.sum(dim=0)))
        self.pull.copy_(1 / self.counted.clamp(min=1)[self.columns.owner])

    def choose(self, layer: int, gradient: Tensor) -> None:
        """Line 220: from now on the layer's selection is where its gradient, `[C]`, is not zero."""
        self.times[layer] = (gradient != 0).to(self.times.dtype)
        self._count()


def train_as_coded(
    score: Score, part: Maskable | None = None, seed: int = 0, epochs: int = EPOCHS
) -> tuple[Columns, Tensor]:
    """The masks of all targets of a score, `[L, C]`, and what their columns are; `part` is the graph of the score."""
    columns = Columns.of(score, part)
    logits = _start(score, columns, seed)
    logits.grad = torch.zeros_like(logits)
    optimizer = torch.optim.Adam([logits], lr=RATE, fused=True, capturable=logits.is_cuda)
    chosen = Selections(columns, logits)

    def step() -> None:
        """Lines 181 to 194; the derivative of the entropy of σ(M) is −M σ(1 − σ)."""
        mask = logits.sigmoid()
        slope = chosen.times * (EDGE_SIZE - EDGE_ENTROPY * chosen.pull * logits)
        slope[:, : columns.copies] += loss_gradient(score, mask[:, : columns.copies])
        assert logits.grad is not None
        torch.mul(slope, mask * (1 - mask), out=logits.grad)
        optimizer.step()

    for layer in reversed(range(score.num_layers)):
        step()
        chosen.choose(layer, logits.grad[layer])
        repeat(step, epochs - 1, logits.device, recordable=score.way == "lowered")
    return columns, logits.sigmoid() * (chosen.times != 0)


def _start(score: Score, columns: Columns, seed: int) -> Tensor:
    """`[L, C]`: lines 257 and 258, with random numbers that belong to a (target, layer, edge)."""
    inside = start_logits(score, "layer", None, seed)
    owner = columns.owner[columns.copies :]
    layer = torch.arange(score.num_layers, device=owner.device).view(-1, 1)
    spread = (2.0 / score.num_nodes).sqrt().to(owner.device).expand(score.num_targets)[owner]
    drawn = random_numbers.normal(seed, score.key.to(owner.device)[owner], layer, columns.edge[columns.copies :])
    return torch.cat([inside, (drawn * spread).to(inside.dtype)], dim=1)


def coded_masks(
    like: ew.ExplanationSet,
    model: nn.Module,
    data: Any,
    index: Tensor | None,
    *,
    seed: int = 0,
    task: str = "node",
    device: str = "cpu",
    epochs: int = EPOCHS,
) -> ew.ExplanationSet:
    """The masks of all targets as explanations; `like` are layerwise explanations of the same targets."""
    part = Maskable.of(model, data)
    question = pose(model, part.data, index, task=task, device=device)
    parts = []
    for positions in blocks(question, room(question, None), None):
        score = Score.of_block(question, positions)
        columns, masks = train_as_coded(score, part, seed, epochs)
        layer, column = masks.nonzero(as_tuple=True)
        owner = columns.owner[column]
        place = layer * columns.num_edges[owner] + columns.edge[column]
        parts.append(Part(positions[owner.cpu()], place.cpu(), masks[layer, column].cpu()))
    return replace(like, method="gnn_explainer", edges=Entries(parts, len(like)), own=None)
