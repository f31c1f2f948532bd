"""EiG-Search (Lu et al., ICML 2024): linear gradients as edge scores, and the search for the best subgraph along them.

The first phase, `eig_search`, is a method of `explain`: how far the explained number falls per unit of edge weight. The
second, `best_subgraph`, takes the scores of any method and tries the strongest 1, 2, 3, … edges.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.occlusion import Repeated, edge_drops
from edgewise.algorithms.occlusion_drops import lowered_drops
from edgewise.arguments import whole_number
from edgewise.arrays import asked_index, occurrence, plain_index
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.question import PosedQuestion, pose
from edgewise.question.memory import blocks, read_batch_size, read_memory
from edgewise.results.explanation import Explanation
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.score import CopyScores, Score, SparseScores
from edgewise.text import counted


def eig_search(score: Score, level: str, *, w_base: float, undirected: bool) -> CopyScores:
    """Score edges by (z(1) − z(ω_e = w_base)) / |1 − w_base|; for w_base = 0 that is occlusion (the paper, section 5).

    `undirected` lets an edge and its reverse, which are then one edge with one score, change together, as the authors' code
    does. The search for the best subgraph is `ew.best_subgraph`.

    >>> from edgewise.examples import path_score
    >>> eig_search(path_score(gains=[2.0, 3.0]), "input", w_base=0.5, undirected=False).edge     # z = 6·ω₀·ω₁
    tensor([6., 6.])
    """
    partner = reverses(score.ends(), score.owner, score.edge_id) if undirected else None
    return CopyScores(edge_drops(score, level, w_base, partner) / abs(1 - w_base))


def lowered_eig_search(
    question: PosedQuestion, level: str, memory: int, *, w_base: float, undirected: bool
) -> Iterator[tuple[int, SparseScores]] | None:
    """EiG-Search for all targets of a lowered model where it is occlusion; None otherwise."""
    if w_base != 0 or undirected:
        return None
    return lowered_drops(question, level, memory, of_self=(False,))


def reverses(ends: Tensor, owner: Tensor, column: Tensor) -> Tensor:
    """`[M]`: the copy of v → u for each copy of u → v of the same target, itself if there is none.

    Of several parallel edges the first is the reverse of the first, and so on; a loop is its own reverse.

    >>> import torch
    >>> reverses(torch.tensor([[0, 1, 0], [1, 0, 2]]), torch.zeros(3).long(), torch.arange(3))
    tensor([1, 0, 2])
    """
    if owner.numel() == 0:
        return owner
    size = int(ends.max()) + 1
    there, back = (
        (owner * size + a) * size + b for a, b in (ends, ends.flip(0))
    )  # (target, u, v), (target, v, u): [M]
    in_order = column.argsort(stable=True)
    turn = torch.empty_like(owner)  # [M]: the number of a copy among parallel edges
    turn[in_order] = occurrence(there[in_order])
    order = in_order[there[in_order].argsort(stable=True)]
    place = torch.searchsorted(there[order], back) + turn  # [M]: where the reverse would stand
    found = order[place.clamp(max=len(order) - 1)]
    is_reverse = (place < len(order)) & (there[found] == back)
    return torch.where(is_reverse, found, torch.arange(len(owner), device=owner.device))


# --- Scores that `explain` gave, laid on the edge copies of a `Score` -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KnownScores:
    """Scores of T targets that are not zero, n of them, and what was asked then."""

    index: Tensor
    """`[T]`: the explained nodes or graphs."""
    target: Tensor
    """`[T]`: the explained classes."""
    settings: Mapping[str, Any]
    graphs: Sequence[tuple[Tensor, int]]
    """Per graph: `edge_index` and the number of nodes."""
    row: Tensor
    """`[n]`: the target of a score, 0 to T − 1."""
    column: Tensor
    """`[n]`: its column of `edge_index`."""
    score: Tensor
    """`[n]`."""

    def check_graphs(self, question: PosedQuestion) -> None:
        """Refuse another graph than the explained one."""
        for position, (edge_index, _) in enumerate(self.graphs):
            if not torch.equal(question.source_edge_index(position).cpu(), edge_index.cpu()):
                raise InputError(
                    "`data` must be the explained graph, but its edge_index differs. Use the data of explain(...)."
                )

    def of_copies(self, score: Score) -> Tensor:
        """`[M]`: the score of each edge copy, 0 where there is none."""
        width = max(edge_index.size(1) for edge_index, _ in self.graphs) + 1
        known, order = (self.row * width + self.column).sort()
        wanted = score.positions[score.owner.cpu()] * width + score.edge_id.cpu()
        place = torch.searchsorted(known, wanted).clamp(max=max(len(known) - 1, 0))
        values = self.score[order]
        if len(known) == 0:
            return values.new_zeros(len(wanted))
        return torch.where(known[place] == wanted, values[place], 0.0)


def read_scores(found: Any) -> KnownScores:
    """The scores of an explanation or of a set, at input level; anything else is refused."""
    if not isinstance(found, (Explanation, ExplanationSet)):
        raise InputError(f"`found` must be what ew.explain(...) gave, got {type(found).__name__}.")
    if found.level != "input":
        raise InputError(
            f"`found` must have one score per edge, got level {found.level!r}. Use ew.explain(..., level='input')."
        )
    found = found.flat if isinstance(found, TypedExplanation) else found  # columns are then those of the union
    if isinstance(found, Explanation):
        column = found.scores.nonzero().view(-1).cpu()
        index, target = torch.tensor([found.index]), torch.tensor([found.target])
        graphs = ((found.edge_index, found.num_nodes),)
        return KnownScores(
            index, target, found.settings, graphs, torch.zeros_like(column), column, found.scores.cpu()[column]
        )
    if found.edges is None:
        raise InputError(
            "Random scores are drawn on demand and make no subgraph. Use ew.explain(...) with another method."
        )
    entries = found.edges
    return KnownScores(
        found.index, found.target, found.settings, found.graphs, entries.rows(), entries.place, entries.score
    )


# --- The second phase: the best of the subgraphs that the strongest 1, 2, 3, … edges make --------------------------------


@dataclass(frozen=True, eq=False)
class BestSubgraph:
    """Edges of one target: with them alone the explained number stays as high, without them it falls as low, as possible."""

    columns: Tensor
    """Columns of `edge_index`, strongest first."""
    index: int
    """The explained node or graph."""
    target: int
    """The explained class."""
    alone: float
    """The explained number with these edges only."""
    without: float
    """The explained number without them."""

    @property
    def gain(self) -> float:
        """What the search maximises: `alone − without`, which is fidelity+ minus fidelity−."""
        return self.alone - self.without

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        values = f"alone {self.alone:.4g}, without {self.without:.4g}"
        return f"BestSubgraph(index={self.index}, target={self.target}, {counted(len(self), 'edge')}: {values})"


@checked
def best_subgraph(
    model: nn.Module,
    data: Any,
    found: Explanation | ExplanationSet,
    *,
    max_edges: int | None = None,
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
) -> BestSubgraph | list[BestSubgraph]:
    """The linear search of EiG-Search, along the scores of any method: of the best 1, 2, 3, … edges, the best subgraph.

    Every k takes two forward passes: with the k highest scores alone, and without them. The best k maximises the
    difference of the two explained numbers, which is fidelity+ minus fidelity−; of several best ones the smallest is
    taken. An edge that is left out has weight `w_base` (0 if the explanation has no such setting). Edges with score 0 are
    never chosen. With `undirected=True` in the settings an edge and its reverse come together.

    Args:
        model: The model that was explained.
        data: The data that was explained.
        found: What `explain` gave, at input level.
        max_edges: The largest subgraph to try (two directions of an undirected edge count as one); `None` for all edges.
        forward: As in `explain`.
        device: As in `explain`.
        memory: As in `explain`.
        batch_size: As in `explain`.

    Returns:
        A `BestSubgraph` for an `Explanation`, a list of them for an `ExplanationSet`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> from edgewise.api.explain import explain
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [2.0], [0.0]]), edge_index=torch.tensor([[0, 1, 2], [3, 3, 3]]))
    >>> best_subgraph(conv, data, explain(conv, data, index=3, target=1, method="eig_search")).columns
    tensor([2, 0])
    """
    max_edges = whole_number("max_edges", max_edges, at_least=1, or_none="for all edges", such_as=20)
    asked = read_scores(found)
    settings = asked.settings
    question = pose(
        model,
        data,
        asked_index(asked.index),
        target=asked.target,
        task=settings.get("task", "node"),
        mode=settings.get("mode"),
        of=settings.get("of", "logit"),
        forward=forward,
        device=device,
        without_itself=settings.get("without_itself", False),
    )
    asked.check_graphs(question)
    results: list[BestSubgraph] = []
    with question.borrowed(), torch.no_grad():
        for positions in blocks(question, read_memory(memory), read_batch_size(batch_size)):
            results += _search(Score.of_block(question, positions), asked, max_edges)
    return results if isinstance(found, ExplanationSet) else results[0]


def _search(score: Score, asked: KnownScores, max_edges: int | None) -> list[BestSubgraph]:
    """The best subgraph of each target of a block.

    `rank` `[M]` numbers the edges of a target by their strength, `count` `[T]` is how many it has. The values of all
    sizes are `[sizes, T]`; sizes that a target does not have are masked, and the empty one if there are edges.
    """
    rank = _ranks(score, asked).to(score.owner.device)
    count = torch.zeros(score.num_targets, dtype=torch.long, device=rank.device)
    count.scatter_reduce_(0, score.owner, rank + 1, "amax")
    longest = min(int(count.max()) if count.numel() else 0, max_edges or len(rank) + 1)
    alone, without = _values(score, rank, longest, float(asked.settings.get("w_base", 0.0)))
    tried = torch.arange(longest + 1, device=rank.device).view(-1, 1)
    # [sizes, T]
    gain = (alone - without).masked_fill((tried > count) | ((tried == 0) & (count > 0)), -torch.inf)
    best = gain.argmax(dim=0)  # the first of equals
    chosen = ((rank >= 0) & (rank < best[score.owner])).nonzero().view(-1)  # copies, then ordered by target and rank
    chosen = chosen[(score.owner[chosen] * (len(rank) + 1) + rank[chosen]).argsort(stable=True)]
    columns = score.edge_id[chosen].split(torch.bincount(score.owner[chosen], minlength=score.num_targets).tolist())
    numbers = (part.gather(0, best.view(1, -1))[0].tolist() for part in (alone, without))
    about = zip(columns, plain_index(score.index), score.target.column.tolist(), *numbers, strict=True)
    return [BestSubgraph(column.cpu(), *rest) for column, *rest in about]


def _ranks(score: Score, asked: KnownScores) -> Tensor:
    """`[M]`: how many stronger edges a copy's target has, −1 for edges without a score; two directions may share a rank."""
    value, owner = asked.of_copies(score), score.owner.cpu()
    first = torch.arange(len(owner))
    if asked.settings.get("undirected", False):
        partner = reverses(score.ends().cpu(), owner, score.edge_id.cpu())
        first = torch.minimum(first, partner)
        value = torch.where(value == 0, value[partner], value)  # one direction alone may reach the target
    leads = ((value != 0) & (first == torch.arange(len(owner)))).nonzero().view(-1)
    leads = leads[score.edge_id.cpu()[leads].argsort(stable=True)]  # ties: the lower column first
    leads = leads[value[leads].argsort(descending=True, stable=True)]
    rank = torch.full_like(owner, -1)
    rank[leads] = occurrence(owner[leads])
    return rank[first]


def _values(score: Score, rank: Tensor, longest: int, w_base: float) -> tuple[Tensor, Tensor]:
    """`[longest + 1, targets]` each: the explained numbers with the strongest 0, 1, … edges alone, and without them."""
    repeated = Repeated(score, 2 * (longest + 1))
    found = []
    for part in torch.arange(2 * (longest + 1), device=rank.device).split(repeated.times):
        size, remove = part // 2, part % 2 == 1
        chosen = (rank >= 0) & (rank < size.view(-1, 1))
        on = (chosen ^ remove.view(-1, 1)).to(score.target.truth.dtype)
        weight = (on + (1 - on) * w_base).unsqueeze(1).expand(-1, score.num_layers, -1)
        found.append(repeated.rows(repeated.score(repeated.weights(weight)), len(part)))
    both = torch.cat(found)
    return both[0::2], both[1::2]
