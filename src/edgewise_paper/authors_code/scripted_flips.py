"""Sign flips as the authors' scripts count them (`track_grads/tracking_gradients*.py`), which is not what the text says.

| line (nodes / graphs) | what happens |
|---|---|
| 76, 89 / 84, 94 | the signs to start from are those of stored gradients, at weight 1 |
| 79 / 100 | PyG's `set_masks` applies a sigmoid by default |
| 91–93 / 96–98 | so the varied edge has the weights σ(0), σ(0.05), …, σ(0.95), all others σ(1) = 0.73 |
| 96 / 105 | nodes: any change of the sign is a flip, from and to zero too; graphs: only + to − and − to + |
| 97–98 / 106–107 | + to −, and − to + |
| 50–54 | Cora and CiteSeer: 1000 random edges between nodes that are at most one step from a test node |

Averages (`nbks/real_data_plots.ipynb`, cell 3): `mask = torch.where(gi_expls != 0.)[0]` lists a target once for each of its
non-zero gradients, so node data is pooled: all flips over all non-zero gradients. Graph data is a mean over graphs. The
notebook of the linear network (`nbks/sgc_results.ipynb`, cell 3) divides the flips of every depth by the counts of five layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.gradient import weight_gradients
from edgewise.score import Score
from edgewise_paper.authors_code.maskable import Maskable
from edgewise_paper.sign_flips import edges_to_vary, work


@dataclass(frozen=True)
class Setting:
    """The weights of the varied edge, and the weight of all others."""

    weights: tuple[float, ...]
    rest: float


_ASKED = torch.arange(0, 1, 0.05)
SCRIPTED = Setting(tuple(_ASKED.sigmoid().tolist()), float(torch.tensor(1.0).sigmoid()))
CORRECTED = Setting(tuple(_ASKED.tolist()), 1.0)
"""What the text says: one weight from 0.95 to 0, all others 1."""
COPIES_AT_ONCE = 2**19
BUDGET = 5e6
"""Most gradients for each weight; beyond it a random part of the targets is counted, at least `LEAST_TARGETS`."""
LEAST_TARGETS = 10
RANDOM_EDGES = 1000


@dataclass(frozen=True, eq=False)
class FlipTally:
    """Counts for each target, `[T]`: its non-zero gradients at weight 1, and those that changed, went down, went up."""

    counted: Tensor
    changed: Tensor
    to_negative: Tensor
    to_positive: Tensor

    def pooled(self) -> dict[str, float]:
        """Shares of nodes: all flips over all non-zero gradients."""
        total = max(float(self.counted.sum()), 1.0)
        parts = {"all": self.changed, "to_negative": self.to_negative, "to_positive": self.to_positive}
        return {name: float(flips.sum()) / total for name, flips in parts.items()}

    def by_graph(self) -> dict[str, float]:
        """Shares of graphs: means over the graphs that have a gradient; flips are those between + and −."""
        known = self.counted > 0
        parts = {
            "all": self.to_negative + self.to_positive,
            "to_negative": self.to_negative,
            "to_positive": self.to_positive,
        }
        return {name: float((flips / self.counted.clamp(min=1))[known].mean()) for name, flips in parts.items()}


def flip_tally(
    model: nn.Module,
    data: Any,
    index: Tensor,
    varied: Sequence[Tensor],
    *,
    total: int,
    task: str = "node",
    setting: Setting = SCRIPTED,
    device: str = "cpu",
) -> FlipTally:
    """Count the flips of every target.

    Args:
        model: A trained network.
        data: A graph, or a list of graphs.
        index: Targets, `[T]`.
        varied: For each target the columns, among those that the script varies, that can reach it.
        total: How many columns the script varies; the others leave the target with all weights at σ(1).
        task: `"node"` or `"graph"`.
        setting: The script's weights, or the text's.
        device: Where to compute.
    """
    everyone = Score(model, data, index, task=task, device=device)
    first = _gradient(everyone, everyone.ones())  # [M]: lines 76 and 84
    flags = torch.zeros(3, len(first), dtype=torch.bool, device=first.device)
    still = torch.tensor([len(edges) < total for edges in varied]).to(first.device)[
        everyone.owner
    ]  # some varied edge leaves it alone
    _compare(flags, first, _gradient(everyone, everyone.ones() * setting.rest), still)
    places = _places(everyone)
    row = torch.arange(len(index)).repeat_interleave(torch.tensor([len(edges) for edges in varied]))
    edge = torch.cat([torch.zeros(0, dtype=torch.long), *varied])
    for pairs in _chunks(torch.bincount(everyone.owner.cpu(), minlength=len(index))[row]):
        target = everyone.target.column.cpu()[row[pairs]]
        score = Score(model, data, index[row[pairs]], target=target, task=task, device=device)
        place = places(row[pairs].to(first.device)[score.owner], score.edge_id)
        chosen = score.edge_id == edge[pairs].to(first.device)[score.owner]
        weight = score.ones() * setting.rest
        for value in setting.weights:
            weight[:, chosen] = value
            own = torch.zeros(3, len(place), dtype=torch.bool, device=first.device)
            _compare(own, first[place], _gradient(score, weight), None)
            for flag, seen in zip(flags, own, strict=True):
                flag[place[seen]] = True
    counts = [_per_target(everyone, flag) for flag in ((first != 0), *flags)]
    return FlipTally(*counts)


def _compare(flags: Tensor, first: Tensor, now: Tensor, where: Tensor | None) -> None:
    """Set the flags `[3, n]`, changed, went down, went up, of gradients that were `first` and are `now`."""
    before, after = first.sign(), now.sign()
    seen = torch.stack([before != after, before - after > 1, after - before > 1])  # lines 96 to 98
    flags |= seen if where is None else seen & where


def _gradient(score: Score, weight: Tensor) -> Tensor:
    """∂z/∂ω_e with one weight for all layers, `[M]`; signs as they come out, with no allowance for rounding."""
    return weight_gradients(score, weight, None)[0].sum(dim=0)


def _places(score: Score) -> Any:
    """A function from (target, column), `[n]` each, to the place of that copy among the copies of the score."""
    width = int(score.num_edges.max()) + 1
    key, order = (score.owner * width + score.edge_id).sort()

    def found(owner: Tensor, column: Tensor) -> Tensor:
        return order[torch.searchsorted(key, owner * width + column)]

    return found


def _per_target(score: Score, flag: Tensor) -> Tensor:
    """`[T]`: how many of the copies of each target have the flag."""
    return torch.bincount(score.owner[flag], minlength=score.num_targets).double().cpu()


def _chunks(copies: Tensor) -> Iterator[Tensor]:
    """Numbers of pairs, in blocks of about `COPIES_AT_ONCE` edge copies; `copies[p]` is how many pair p has."""
    if len(copies):
        block = (copies.cumsum(0) - 1).div(COPIES_AT_ONCE, rounding_mode="floor")
        sizes = torch.bincount(block - block[0])
        yield from torch.arange(len(copies)).split(sizes[sizes > 0].tolist())


# --- Which edges are varied, for which targets -------------------------------------------------------------------------


def scripted_columns(edge_index: Tensor, test: Tensor, num_nodes: int, *, large: bool) -> Tensor:
    """The columns that the node script varies: all, or on large graphs 1000 random ones near test nodes (lines 49 to 56)."""
    if not large:
        return torch.arange(edge_index.size(1))
    near = torch.zeros(num_nodes, dtype=torch.bool)
    near[test] = True
    near[edge_index[0][near[edge_index[1]]]] = True
    columns = (near[edge_index[0]] & near[edge_index[1]]).nonzero().view(-1)
    return columns[torch.randperm(len(columns), generator=torch.Generator().manual_seed(0))[:RANDOM_EDGES]]


def node_tally(
    model: nn.Module, data: Any, test: Tensor, columns: Tensor, setting: Setting = SCRIPTED, device: str = "cpu"
) -> tuple[FlipTally, int]:
    """The tally of the test nodes, or of a random part of them where all would be too many; and how many they are."""
    part = Maskable.of(model, data)
    score = Score(model, part.data, test)
    varied = edges_to_vary(score, part.kept(columns))
    chosen = _affordable(work(score, varied))
    some = [varied[i] for i in chosen.tolist()]
    tally = flip_tally(model, part.data, test[chosen], some, total=len(columns), setting=setting, device=device)
    return tally, len(chosen)


def graph_tally(model: nn.Module, graphs: list[Any], setting: Setting = SCRIPTED, device: str = "cpu") -> FlipTally:
    """The tally of graphs, every edge of which is varied."""
    varied = [torch.arange(graph.num_edges) for graph in graphs]
    everyone = torch.arange(len(graphs))
    return flip_tally(model, graphs, everyone, varied, total=0, task="graph", setting=setting, device=device)


def _affordable(costs: Tensor) -> Tensor:
    """Positions of a random part of the targets whose work fits the budget."""
    total = float(costs.sum())
    number = len(costs) if total <= BUDGET else max(int(len(costs) * BUDGET / total), LEAST_TARGETS)
    return torch.randperm(len(costs), generator=torch.Generator().manual_seed(0))[:number].sort().values
