"""The experiment on theory: each proposition and corollary on random networks in float64, with the worst deviation seen.

A statement is a function from a seed to a deviation that is zero, up to rounding, if the statement holds on the network and
graph of that seed (`draw`). `CHECKS` lists them; where one does not hold as printed, the corrected one stands beside it.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import edgewise as ew
from edgewise.random_numbers import seeded
from edgewise_paper.context import Context
from edgewise_paper.task import PaperOptions, Task, TaskOutcome

NAME = "theorems"
TRIALS, QUICK_TRIALS = 50, 5


def tasks(options: PaperOptions) -> list[Task]:
    """One task for each statement."""
    trials = QUICK_TRIALS if options.quick else TRIALS
    return [Task(NAME, name, {"trials": trials, "seed": 0}, trials / 10) for name in CHECKS]


def run(task: Task, _context: Context) -> TaskOutcome:
    """The worst deviation over many random networks: zero up to rounding, or the statement does not hold."""
    check, trials = CHECKS[task.part], task.settings["trials"]
    start = time.perf_counter()
    worst = max(check(trial) for trial in range(trials))
    seconds = time.perf_counter() - start
    return TaskOutcome([task.row("worst deviation", worst, method=task.part, count=trials, seconds=seconds)])


# --- Random networks and graphs ----------------------------------------------------------------------------------------


class TheoremNetwork(nn.Module):
    """Layers with sum aggregation, as in the paper's statements, and one logit.

    Args:
        widths: Numbers of features, of neurons in each hidden layer, and of outputs.
        relu: Whether there is a ReLU between the layers; else the network is linear.
        bias: Whether layers have biases.
        root: Whether a node also receives its own features, with a matrix of their own.
    """

    def __init__(self, widths: list[int], *, relu: bool, bias: bool = False, root: bool = False) -> None:
        super().__init__()
        pairs = pairwise(widths)
        self.convs = nn.ModuleList(SAGEConv(*pair, aggr="sum", bias=bias, root_weight=root) for pair in pairs)
        self.act = nn.ReLU() if relu else nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, `[N, 1]`."""
        for conv in list(self.convs)[:-1]:
            x = self.act(conv(x, edge_index))
        found: Tensor = self.convs[-1](x, edge_index)
        return found

    def weights(self) -> list[Tensor]:
        """The matrix of each layer, `[out, in]`."""
        return [conv.get_parameter("lin_l.weight").detach() for conv in self.convs]


def draw(seed: int, layers: int, width: int = 4, nodes: int = 8, **settings: Any) -> tuple[TheoremNetwork, Data]:
    """A random network and a random graph without self-loops, in float64, with three features; every node has a sender.

    `settings` are those of `TheoremNetwork`. The same seed draws the same.

    >>> model, data = draw(0, layers=2, nodes=5)
    >>> model(data.x, data.edge_index).shape
    torch.Size([5, 1])
    """
    with seeded(seed):
        model = TheoremNetwork([3, *[width] * (layers - 1), 1], relu=settings.pop("relu", False), **settings).double()
        dense = torch.rand(nodes, nodes) < 0.35
        dense |= torch.eye(nodes, dtype=torch.bool).roll(1, 0)
        dense.fill_diagonal_(False)
        data = Data(x=torch.randn(nodes, 3, dtype=torch.double), edge_index=dense.nonzero().t().contiguous())
    return model.eval(), data


def explain(model: TheoremNetwork, data: Data, method: str, level: str = "layer") -> Tensor:
    """Scores for class 1 of all nodes, `[N, E]` or `[N, L, E]`; if the network has them, self scores `[…, N]` are appended."""
    found = ew.explain(model, data, method=method, level=level, target=1)
    assert isinstance(found, ew.ExplanationSet)
    return torch.stack(
        [torch.cat([w.scores, w.scores[..., :0] if w.self_scores is None else w.self_scores], -1) for w in found]
    )


@torch.no_grad()
def logits(model: TheoremNetwork, data: Data, edge_index: Tensor | None = None) -> Tensor:
    """Logits of all nodes, `[N]`; on other edges than the graph's if `edge_index` says so."""
    return model(data.x, data.edge_index if edge_index is None else edge_index).view(-1)


# --- The statements ----------------------------------------------------------------------------------------------------


def proposition_1(seed: int) -> float:
    """One linear layer: of all subsets of a node's edges, the edges with a positive gradient are the most probable one.

    Tried by brute force over all 2^d subsets of the d edges of node 0.
    """
    model, data = draw(seed, layers=1)
    gradient = explain(model, data, "gradient", "input")[0][: data.num_edges]
    terms = gradient[gradient != 0]
    subsets = torch.tensor(list(product((0.0, 1.0), repeat=len(terms))), dtype=torch.double)
    best = nn.functional.logsigmoid(subsets @ terms).max()
    return float(best - nn.functional.logsigmoid(terms.clamp(min=0).sum()))


def proposition_2(seed: int) -> float:
    """If the gradient of an edge keeps its sign for all weights in [0, 1], the most probable weight is 1 or 0.

    Every edge of node 0 is varied over a grid of G weights while the others stay 1; C copies of the node, one for each
    edge and weight, are computed at once.
    """
    model, data = draw(seed, layers=3, relu=True, root=True)
    edges = ew.Score(model, data, index=[0], target=1).edge_id
    grid = torch.linspace(0, 1, 21, dtype=torch.double)
    # [C], C = edges × G
    varied, weight = edges.repeat_interleave(len(grid)), grid.repeat(len(edges))
    score = ew.Score(model, data, index=[0] * len(varied), target=1)  # a copy of the node for each edge and weight
    own = score.edge_id == varied[score.owner]  # [M]: the varied edge of each copy
    omega = torch.where(own, weight[score.owner], 1.0).repeat(score.num_layers, 1).requires_grad_()
    values = score(omega)
    slopes = torch.autograd.grad(values.sum(), omega)[0].sum(dim=0)[own]  # [C]
    slope = torch.zeros(len(varied), dtype=torch.double).index_copy(0, score.owner[own], slopes).view(-1, len(grid))
    value = values.detach().view(-1, len(grid))  # [edges, G], as slope
    rises, falls = (slope > 0).all(dim=1), (slope < 0).all(dim=1)
    lost = torch.cat([value[rises].amax(1) - value[rises, -1], value[falls].amax(1) - value[falls, 0]])
    return float(lost.max()) if len(lost) else 0.0


def completeness(seed: int, **settings: Any) -> float:
    """Proposition 3: the layer gradients of the edges of any one layer (own terms among them) sum to the logit."""
    model, data = draw(seed, layers=3, root=True, **settings)
    total = explain(model, data, "gradient").sum(dim=-1)
    return float((total - logits(model, data).view(-1, 1)).abs().max())


def gradient_is_occlusion(seed: int, **settings: Any) -> float:
    """Corollary 1: layerwise gradients equal layerwise occlusion."""
    model, data = draw(seed, layers=3, root=True, **settings)
    return float((explain(model, data, "gradient") - explain(model, data, "occlusion")).abs().max())


def sensitivity(seed: int) -> float:
    """Sensitivity-n: removing any edges from a layer changes the logit by the sum of their layer gradients."""
    model, data = draw(seed, layers=3)
    score = ew.Score(model, data, index=[0], target=1)
    omega = score.ones().requires_grad_()
    before = score(omega).sum()
    (gradient,) = torch.autograd.grad(before, omega)
    with seeded(seed):
        layer, gone = seed % 3, torch.rand(score.edge_id.numel()) < 0.5
    without = score.ones()
    without[layer, gone] = 0
    return float((before.detach() - score(without).detach().sum() - gradient[layer, gone].sum()).abs())


def expectation(seed: int, power: int) -> float:
    """Corollary 2: if each ReLU is open with probability ρ, the expected logit is ρ^(L−1+power) times the linear network's.

    The expectation is exact: a sum over all P patterns of open and closed ReLUs.
    """
    layers, nodes, width, rho = 2 + seed % 2, 3, 2, 0.3
    model, data = draw(seed, layers, width=width, nodes=nodes)
    adjacency = torch.zeros(nodes, nodes, dtype=torch.double)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1
    weights = model.weights()
    patterns = torch.tensor(list(product((0.0, 1.0), repeat=nodes * width * (layers - 1))), dtype=torch.double)
    chance = (patterns * rho + (1 - patterns) * (1 - rho)).prod(dim=1)  # [P]
    gates = patterns.view(-1, layers - 1, nodes, width)
    rows = data.x.expand(len(patterns), -1, -1)  # [P, N, d]
    for layer, weight in enumerate(weights):
        rows = adjacency @ rows @ weight.t()
        rows = rows * gates[:, layer] if layer < layers - 1 else rows
    expected = (chance.view(-1, 1) * rows[:, :, 0]).sum(dim=0)
    return float((expected - rho ** (layers - 1 + power) * logits(model, data)).abs().max())


def eig_search(seed: int) -> float:
    """Proposition 4: EiG-Search's linear gradient of one edge with baseline 0 is occlusion, the edge taken out of the graph."""
    model, data = draw(seed, layers=3, relu=True, bias=True, root=True)
    occlusion = explain(model, data, "occlusion", "input")[:, : data.num_edges]
    full = logits(model, data)
    kept = [torch.arange(data.num_edges) != edge for edge in range(data.num_edges)]
    score = torch.stack([(full - logits(model, data, data.edge_index[:, keep])) / 1.0 for keep in kept], dim=1)
    return float((score - occlusion).abs().max())


def algorithm_1(seed: int, layers: int) -> float:
    """Theorem 1: Algorithm 1 finds the walk with the highest score. The largest share of that score that it loses."""
    model, data = draw(seed, layers, relu=True, root=True)
    worst = 0.0
    for exact, found in zip(
        *(ew.walks(model, data, target=1, search=name) for name in ("exhaustive", "dag")), strict=True
    ):
        if len(exact):
            best = exact[0].score
            worst = max(worst, (best - (found[0].score if len(found) else 0.0)) / best)
    return worst


def goat(seed: int) -> float:
    """Proposition 5: GOAt's attribution of an edge is the sum over the walks through it of relevance / number of factors.

    A walk of L steps is a product of L weights, L − 1 activations, one feature and its distinct adjacency entries.
    """
    layers, nodes = 2, 4
    model, data = draw(seed, layers, width=3, nodes=nodes, relu=True)
    walks = ew.walks(model, data, 0, target=1, search="exhaustive", sign="magnitude", k=10**6)
    by_walks: dict[tuple[int, int], float] = {}
    for walk in walks:
        steps = set(pairwise(walk.nodes))
        for step in steps:
            by_walks[step] = by_walks.get(step, 0.0) + walk.score / (2 * layers + len(steps))
    return max(
        (abs(by_walks.get(edge, 0.0) - value) for edge, value in _goat_by_neurons(model, data).items()), default=0.0
    )


def _goat_by_neurons(model: TheoremNetwork, data: Data) -> dict[tuple[int, int], float]:
    """The same for two layers and node 0 by GOAt's definition: each scalar product, divided by its distinct factors."""
    first, second = model.weights()
    edges = {(s, r) for s, r in data.edge_index.t().tolist()}
    adjacency = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.double)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1
    gate = (adjacency @ data.x @ first.t() > 0).double()
    found = dict.fromkeys(edges, 0.0)
    for a, b in edges:
        if (b, 0) not in edges:
            continue
        for k, j in product(range(data.num_features), range(first.size(0))):
            value = float(second[0, j] * gate[b, j] * first[j, k] * data.x[a, k])
            factors = 2 + 1 + 1 + len({(a, b), (b, 0)})  # weights, activation, feature, adjacency entries
            for edge in {(a, b), (b, 0)}:
                found[edge] += value / factors
    return found


CHECKS: dict[str, Callable[[int], float]] = {
    "Proposition 1: the best subgraph of a linear layer": proposition_1,
    "Proposition 2: no flip, so the best weight is 0 or 1": proposition_2,
    "Proposition 3: contributions sum to the logit, linear": completeness,
    "Proposition 3 with ReLU, no bias: still holds": partial(completeness, relu=True),
    "Proposition 3 with ReLU and bias: does not": partial(completeness, relu=True, bias=True),
    "Corollary 1: layerwise gradient = occlusion, linear": gradient_is_occlusion,
    "Corollary 1 with ReLU: does not": partial(gradient_is_occlusion, relu=True),
    "Sensitivity-n, linear": sensitivity,
    "Corollary 2 with ρ^L, as printed: does not": partial(expectation, power=1),
    "Corollary 2 with ρ^(L−1)": partial(expectation, power=0),
    "Proposition 4: EiG-Search = occlusion": eig_search,
    "Theorem 1, two layers": partial(algorithm_1, layers=2),
    "Theorem 1, three layers: does not": partial(algorithm_1, layers=3),
    "Theorem 1, four layers: does not": partial(algorithm_1, layers=4),
    "Proposition 5: GOAt as a sum over walks": goat,
}
"""A name that ends in "does not" says that the statement, as it stands there, fails."""
TOLERANCE = 1e-9


def as_claimed(name: str, worst: float) -> bool:
    """Whether a deviation is what the statement's name says: zero, or not zero if the name ends in "does not".

    >>> as_claimed("Corollary 1 with ReLU: does not", 0.3), as_claimed("Sensitivity-n, linear", 0.3)
    (True, False)
    """
    return not math.isnan(worst) and (worst > TOLERANCE) == name.endswith("does not")
