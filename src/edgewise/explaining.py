"""explain(): the front door for edge scores."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.registry import Method, find_method, read_settings
from edgewise.algorithms.scores import CopyScores, SparseScores
from edgewise.blocks import blocks, read_batch_size, read_memory
from edgewise.collection import ExplanationSet
from edgewise.entries import Entries, Part, strongest
from edgewise.errors import SettingError
from edgewise.explanation import Explanation
from edgewise.problem import Problem, pose
from edgewise.progress import progress_bar
from edgewise.score import Score
from edgewise.settings import Settings

log = logging.getLogger("edgewise")


def explain(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    method: str | Method = "gradient",
    level: str = "input",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    forward: Callable[..., Tensor] | None = None,
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
    **settings: Any,
) -> Explanation | ExplanationSet:
    """Why the model predicts what it predicts: a signed score for every edge, or every layer and edge.

    Args:
        model: A `torch.nn.Module` with PyG message-passing layers; it is explained in eval mode and left as it was.
        data: A `torch_geometric.data.Data`; for `task="graph"` also a list of them or a `Dataset`.
        index: The node or graph: an int gives an `Explanation`; a sequence, tensor, slice or mask an `ExplanationSet`;
            `None` means all of them.
        method: A name of `ew.methods()`, or an object that `ew.from_pyg` made.
        level: `"input"`, one weight per edge shared by all layers, or `"layer"`, one per layer and edge.
        target: The class, one or one for each index; `None` is the predicted one.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"` (one logit), `"regression"`, or `None` to infer it from the width of the output.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        top: Keep only the strongest entries of each target.
        memory: A budget for one block of targets, such as `"2GB"`.
        batch_size: Targets in a block, instead of `memory`.
        device: Where to compute, such as `"cuda"`; the model and the data stay where they are.
        seed: Of the methods that draw random numbers; per target, whatever the order.
        progress: Show a progress bar.
        **settings: The method's own settings, such as `epochs=100`.

    Returns:
        An `Explanation` for one int (or one graph), otherwise an `ExplanationSet`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> explain(conv, data, index=2, target=1).scores        # the logit is 2·1 + 2·(−3)
    tensor([ 2., -6.])
    """
    chosen = find_method(method, level)
    own_settings = read_settings(chosen, settings)
    budget, batch_size = read_memory(memory), read_batch_size(batch_size)
    _check_numbers(seed, top)
    problem = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    parts = _Parts(problem, chosen, level, top)
    with problem.borrowed(), progress_bar(progress, len(problem.index), f"{chosen.name} ({level})") as advance:
        direct, way = _direct(chosen, problem, level, budget, own_settings, seed)
        if direct is not None:
            log.debug("%s of %d targets: %s", chosen.name, len(problem.index), way)
            for done, entries in direct:
                parts.add_sparse(entries, way)
                advance(done)
        else:
            for positions in blocks(problem, budget, batch_size, alike=chosen.by_edge) if chosen.function else ():
                parts.add(positions, *_run(chosen, problem, positions, level, own_settings, seed))
                advance(len(positions))
        if chosen.is_drawn:
            advance(len(problem.index))  # drawn when looked at
    notes = {
        "of": problem.target.of,
        "mode": problem.target.mode,
        "task": task,
        "seed": seed,
        "top": top,
        "way": parts.way,
        "bypass": problem.trace.bypass,
        "hops": problem.hops,
        "flow": problem.trace.flow,
    }
    found = parts.assemble({**own_settings, **chosen.notes, **notes})
    return found[0] if problem.single else found


def _check_numbers(seed: Any, top: Any) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SettingError(f"seed is {seed!r}; needed is a whole number.")
    if top is not None and (not isinstance(top, int) or isinstance(top, bool) or top < 1):
        raise SettingError(f"top is {top!r}; needed is a whole number of at least 1, or None for all edges.")


def _direct(
    method: Method, problem: Problem, level: str, memory: int, settings: dict[str, Any], seed: int
) -> tuple[Iterator[tuple[int, SparseScores]] | None, str]:
    """All targets at once, if the method knows how to for this problem; and the way it takes."""
    seeded = {"seed": seed} if method.seeded else {}
    if method.outside is not None:
        return method.outside(problem, **settings, **seeded), "outside"
    if method.walking is not None:
        return method.walking(problem, level, memory, **settings), "lowered"
    if method.lowered is not None and problem.lowering is not None:
        return method.lowered(problem, level, memory, **settings, **seeded), "lowered"
    return None, ""


def _run(
    method: Method, problem: Problem, positions: Tensor, level: str, settings: dict[str, Any], seed: int
) -> tuple[Score, CopyScores]:
    assert method.function is not None
    score = Score.of_block(problem, positions)
    log.debug("%s of %d targets: %s", method.name, len(positions), score.way)
    seeded = {"seed": seed} if method.seeded else {}
    return score, method.function(score, level, **settings, **seeded)


class _Parts:
    """Results of blocks, sparse from the start."""

    def __init__(self, problem: Problem, method: Method, level: str, top: int | None) -> None:
        self.problem, self.method, self.level, self.top = problem, method, level, top
        self.edges: list[Part] = []
        self.own: list[Part] = []
        self.errors: list[Part] = []
        self.ways: list[str] = []

    def _went(self, way: str) -> None:
        if way not in self.ways:
            self.ways.append(way)

    @property
    def way(self) -> str:
        """How the model was run; several ways if blocks differed."""
        return ", ".join(self.ways) or "none"

    def add(self, positions: Tensor, score: Score, found: CopyScores) -> None:
        """The scores of one block."""
        self._went(score.way)
        copies = (score.owner, score.edge_id, score.num_edges)
        self.edges += self._parts(positions, copies, found.edge, score.edges_of, self.top)
        if found.error is not None:
            self.errors += self._parts(positions, copies, found.error, score.edges_of, None)
        if found.own is not None:
            copies = (score.self_owner, score.self_node, score.num_nodes)
            self.own += self._parts(positions, copies, found.own, score.pairs_of, self.top)

    def add_sparse(self, found: SparseScores, way: str) -> None:
        """Entries that belong to targets already."""
        self._went(way)
        nodes, edges = self.problem.sizes(found.position.cpu())
        width = (nodes if found.of_self else edges).to(found.item.device)
        part = self._strongest(found.position, found.layer * width + found.item, found.score)
        (self.own if found.of_self else self.edges).append(part)

    def _parts(
        self,
        positions: Tensor,
        copies: tuple[Tensor, Tensor, Tensor],
        found: Tensor,
        counts: list[int] | None,
        top: int | None,
    ) -> Iterator[Part]:
        """What is not zero of scores `[copies]` or `[L, copies]`; only the first `counts[layer]` copies can matter."""
        owner, column, width = copies
        rows = found.detach().reshape(1 if self.level == "input" else self.problem.num_layers, len(owner))
        pieces = []
        for layer, scores in enumerate(rows):
            scores = scores if counts is None or self.level == "input" else scores[: counts[layer]]
            copy = scores.nonzero().view(-1)
            row = owner.index_select(0, copy)
            place = column.index_select(0, copy)
            if layer:
                place = place + layer * (width[0] if len(width) == 1 else width[row])
            pieces.append((positions.to(row.device)[row], place, scores.index_select(0, copy)))
        if top is None:
            return (Part(*(t.cpu() for t in piece)) for piece in pieces)
        return iter([self._strongest(*(torch.cat(column) for column in zip(*pieces, strict=True)))])

    def _strongest(self, row: Tensor, place: Tensor, score: Tensor) -> Part:
        if self.top is not None:
            kept = strongest(row, score.abs(), self.top)
            row, place, score = row[kept], place[kept], score[kept]
        return Part(row.cpu(), place.cpu(), score.cpu())

    def assemble(self, settings: dict[str, Any]) -> ExplanationSet:
        """Everything as one set."""
        problem = self.problem
        nodes, _ = problem.sizes(torch.arange(len(problem.index)))
        graphs = [(problem.source_edge_index(i).clone(), count) for i, count in enumerate(nodes.tolist())]
        missing = tuple(i for i, separable in enumerate(problem.separable) if not separable)
        init = settings.get("init")
        if init is not None:
            settings["init"] = f"given {list(init.shape)}" if isinstance(init, Tensor) else "given"
        return ExplanationSet(
            index=problem.index,
            target=problem.target.column.cpu(),
            value=problem.target.value(problem.target.truth).detach().cpu(),
            method=self.method.name,
            level=self.level,
            num_layers=problem.num_layers,
            graphs=tuple(graphs),
            edges=None if self.method.is_drawn else self._entries(self.edges),
            own=self._entries(self.own) if self.own else None,
            own_missing=missing if self.own else (),
            settings=Settings(settings),
            errors=Entries(self.errors, len(problem.index)) if self.errors else None,
        )

    def _entries(self, parts: list[Part]) -> Entries:
        if (
            self.top is not None and len(parts) > 1 and (self.method.lowered or self.method.walking)
        ):  # blocks of edges: a target's best are spread
            together = [torch.cat(column) for column in zip(*((p.row, p.place, p.score) for p in parts), strict=True)]
            parts = [self._strongest(*together)]
        return Entries(parts, len(self.problem.index))
