"""explain(): the front door for edge scores."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from edgewise.algorithms.method_settings import read_settings
from edgewise.algorithms.occlusion_audit import occlusion_problem
from edgewise.algorithms.registry import Method, find_method
from edgewise.arguments import one_of, whole_number
from edgewise.contract import checked
from edgewise.cores import many_cores, read_threads, spread
from edgewise.errors import ModelError
from edgewise.progress import progress_bar
from edgewise.question import GraphQuestion, PosedQuestion, pose
from edgewise.question.freed_memory import FreedMemory
from edgewise.question.memory import pieces, read_batch_size, read_memory, room
from edgewise.random_numbers import torch_threads
from edgewise.results.builder import SetBuilder
from edgewise.results.explanation import Explanation, Settings
from edgewise.results.explanation_set import ExplanationSet
from edgewise.score import CopyScores, RowScores, Score, SparseScores
from edgewise.walk.target_blocks import dense_bytes

_OF_SUMS = 1.4
"""Times what a search for walks holds of all edges: sums keep parallel edges and both directions apart, as measured."""
_OF_WALKS = 9
"""How often the features are held while the derivatives of all edges are made, in float64, beside the derivatives."""
log = logging.getLogger("edgewise")
_FEW_TARGETS = 16
"""Models that are run as they are take one thread for fewer than this, unless `threads` says otherwise."""


@checked
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
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    threads: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
    stopped: str | None = None,
    **settings: Any,
) -> Explanation | ExplanationSet:
    """Why the model predicts what it predicts: a signed score for every edge, or every layer and edge.

    Args:
        model: A `torch.nn.Module` with PyG message-passing layers; it is explained in eval mode and left as it was.
        data: A `torch_geometric.data.Data`; for nodes and links also a `HeteroData`, for graphs a list or a `Dataset`.
        index: The node or graph: an int gives an `Explanation`; a sequence, tensor, slice or mask an `ExplanationSet`;
            `None` means all of them. Of a `HeteroData`: `("paper", 3)`, `("paper", [3, 5])` or `{"paper": [3, 5]}`. For
            `task="link"` a pair `(u, v)`, a list of pairs, or a tensor `[2, T]`, of a `HeteroData` with the edge type, `(kind,
            (u, v))` or `{kind: pairs}`; `None` means `data.edge_label_index`.
        method: A name of `ew.methods()`, or an object that `ew.from_pyg` made.
        level: `"input"`, one weight per edge shared by all layers, or `"layer"`, one per layer and edge.
        target: The class, one or one for each index; `None` is the predicted one (of a link: 1, there is one), `"all"` every
            class, or column, of each target in turn: a set whose members carry their `target`.
        task: `"node"`, `"graph"` or `"link"`.
        mode: `"multiclass"`, `"binary"` (one logit), `"multilabel"` (a logit for each column), `"regression"`, or `None`
            to infer multiclass or binary from the width of the output; labels that contradict that are refused.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off its last operation.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`; for links `lambda model,
            data, pairs: …`.
        without_itself: For links: take the columns u → v and v → u out of the graph of each pair first.
        top: Keep only the strongest entries of each target.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.
        threads: How many cores to use, at most; `None`: as many as torch has (`torch.get_num_threads()`). Little work stays on
            one. The scores are the same for any number.
        device: Where to compute, such as `"cuda"`; the model and the data stay where they are.
        seed: Random seed; results do not depend on the order of targets.
        progress: Show a progress bar.
        stopped: `"keep"` takes autograd's number where `detach` or `no_grad` in `forward` stops gradients; `None` refuses it.
        **settings: The method's own settings, such as `epochs=100`.

    Returns:
        An `Explanation` for one int (or one graph), otherwise (and for `target="all"`) an `ExplanationSet`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> explain(conv, data, index=2, target=1).scores        # the logit is 2·1 + 2·(−3)
    tensor([ 2., -6.])
    """
    find_method(method, level)  # a wrong name is said before the model is run
    asked: dict[str, Any] = {
        "target": target,
        "task": task,
        "mode": mode,
        "of": of,
        "output": output,
        "forward": forward,
        "device": device,
        "without_itself": without_itself,
    }
    sizes: dict[str, Any] = {"memory": memory, "batch_size": batch_size}
    own: dict[str, Any] = {"seed": seed, "top": top, "progress": progress, "stopped": stopped}
    _check(method, level, settings, **own, **sizes)
    with many_cores(read_threads(threads)):
        budget = None if memory is None else read_memory(memory)
        question = pose(model, data, index, **asked, roomy=memory is None, memory=budget, held=False)
    return explain_question(question, method=method, level=level, threads=threads, **own, **sizes, **settings)


def _torch_threads(question: PosedQuestion, count: int, *, asked: bool) -> int:
    """Torch's own threads: one where targets are spread; where the model itself is run, as many as are worth it."""
    if question.lowering is not None or (not asked and len(question.index) < _FEW_TARGETS):
        return 1
    return 1 if isinstance(question, GraphQuestion) and question.is_chain else count


@checked
def explain_question(
    question: PosedQuestion,
    *,
    method: str | Method = "gradient",
    level: str = "input",
    top: int | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: bool = False,
    stopped: str | None = None,
    **settings: Any,
) -> Explanation | ExplanationSet:
    """The same for a question that is posed already."""
    count = read_threads(threads)
    with many_cores(count), torch_threads(_torch_threads(question, count, asked=threads is not None)):
        answer = partial(
            _explained, method=method, level=level, settings=settings, top=top, memory=memory, batch_size=batch_size,
            seed=seed, progress=progress, stopped=stopped,
        )  # fmt: skip
        found = answer(question)
        if isinstance(found, PosedQuestion):
            found = answer(found)
    assert isinstance(found, ExplanationSet)
    return found[0] if question.single else found


def _explained(
    question: PosedQuestion,
    method: str | Method,
    level: str,
    settings: dict[str, Any],
    *,
    top: int | None,
    memory: Any,
    batch_size: int | None,
    seed: int,
    progress: bool,
    stopped: str | None,
) -> ExplanationSet | PosedQuestion:
    chosen, own_settings = _check(method, level, settings, seed, top, stopped, memory, batch_size, progress=progress)
    if chosen.chooses:
        chosen = chosen_method(question)
        own_settings = read_settings(chosen, {})
    if chosen.differentiates and stopped != "keep":
        question.check_slopes()
    budget = _budget(question, chosen, own_settings, memory, batch_size)
    parts = SetBuilder(question, chosen, level, top)
    with question.borrowed(), progress_bar(progress, len(question.index), f"{chosen.name} ({level})") as advance:
        direct, way = _direct(chosen, question, level, budget, own_settings, seed)
        if direct is not None:
            log.debug("%s of %d targets: %s", chosen.name, len(question.index), way)
            for done in _added(parts, direct, way, budget):
                advance(done)
        else:
            parted = pieces(
                question, budget, batch_size, alike=chosen.by_edge, by_graph=chosen.by_graph, smallest=chosen.piece
            )
            stops = chosen.differentiates and stopped != "keep"
            run = partial(_run, chosen, question, level=level, settings=own_settings, seed=seed, stops=stops)
            for positions, scored in _of_blocks(parted, run, question) if chosen.function else ():
                parts.add(positions, *scored)
                advance(len(positions))
        if chosen.is_drawn:
            advance(len(question.index))  # drawn when looked at
    notes = {**question.notes, "seed": seed, "top": top, "way": parts.way, "stopped": stopped}
    found = parts.assemble({**own_settings, **chosen.notes, **notes})
    return _after_audit(question, chosen, found, parts.way)


def _added(
    parts: SetBuilder, direct: Iterator[tuple[int, SparseScores | RowScores]], way: str, budget: int
) -> Iterator[int]:
    """How many targets each part is about, once its scores are kept."""
    freed = FreedMemory(budget)
    for done, entries in direct:
        if isinstance(entries, RowScores):
            parts.add_rows(entries, way)
        else:
            parts.add_sparse(entries, way)
        yield done
        freed.give_back()


def _budget(
    question: PosedQuestion, method: Method, settings: dict[str, Any], memory: Any, batch_size: int | None
) -> int:
    """Bytes for blocks; methods made from walks hold derivatives of all edges beside them."""
    if batch_size is not None:
        return read_memory(memory)
    dense = int(_OF_SUMS * dense_bytes(question, settings["attention"])) if method.walking is not None else 0
    what = "holding the derivatives of all edges" if dense else ""
    return room(question, memory, dense, what, passes=_OF_WALKS if dense else 0)


def _after_audit(
    question: PosedQuestion, method: Method, found: ExplanationSet, way: str
) -> ExplanationSet | PosedQuestion:
    """The set, or the question to ask instead: the model itself, if losses by a program are not what it loses."""
    if method.name != "occlusion" or "lowered" not in way:
        return found
    problem = occlusion_problem(question, found)
    if not problem:
        return replace(found, settings=Settings({**found.settings, "audit": question.audit.plain()}))
    log.debug(problem)
    other = question.through_model()
    if other is None:
        raise ModelError(problem)
    return other


def chosen_method(question: PosedQuestion) -> Method:
    """The method that `"auto"` stands for here, with the reason among its notes."""
    from edgewise.api.method_choice import choose_method

    return choose_method(question).method


def _check(
    method: Any,
    level: Any,
    settings: dict[str, Any],
    seed: Any,
    top: Any,
    stopped: Any,
    memory: Any,
    batch_size: Any,
    *,
    progress: bool = False,
) -> tuple[Method, dict[str, Any]]:
    """The method and its settings; everything is checked before any work."""
    chosen = find_method(method, level)
    own_settings = read_settings(chosen, settings)
    read_memory(memory)
    read_batch_size(batch_size)
    whole_number("seed", seed)
    whole_number("top", top, at_least=1, or_none="for all edges")
    if stopped is not None:
        one_of("stopped", stopped, ("keep",), also="or None")
    return chosen, own_settings


def _direct(
    method: Method, question: PosedQuestion, level: str, memory: int, settings: dict[str, Any], seed: int
) -> tuple[Iterator[tuple[int, SparseScores | RowScores]] | None, str]:
    """All targets at once, if the method knows how to for this question; and the way it takes."""
    seeded = {"seed": seed} if method.seeded else {}
    if method.outside is not None:
        return method.outside(question, **settings, **seeded), "outside"
    if method.walking is not None:
        return method.walking(question, level, memory, **settings), "lowered"
    if method.lowered is not None and question.lowering is not None:
        return method.lowered(question, level, memory, **settings, **seeded), "lowered"
    return None, ""


def _of_blocks(
    parted: Iterator[list[Tensor]], run: Callable[[Tensor], tuple[Score, CopyScores]], question: PosedQuestion
) -> Iterator[tuple[Tensor, tuple[Score, CopyScores]]]:
    """Positions and scores, in order; the pieces of a block are worked on at the same time."""
    lowering = question.lowering

    def of_piece(positions: Tensor) -> tuple[tuple[Score, CopyScores], int]:
        with question.loan.helped():
            return run(positions), 0 if lowering is None else lowering.last_block_bytes

    for block in parted:
        if len(block) == 1:
            yield block[0], run(block[0])
            continue
        taken = 0
        for positions, (scored, size) in zip(block, spread(of_piece, block), strict=True):
            taken += size
            yield positions, scored
        if lowering is not None:
            lowering.last_block_bytes = taken


def _run(
    method: Method,
    question: PosedQuestion,
    positions: Tensor,
    *,
    level: str,
    settings: dict[str, Any],
    seed: int,
    stops: bool,
) -> tuple[Score, CopyScores]:
    """The scores of some targets; `stops`: gradients that stop on their way are refused."""
    assert method.function is not None
    score = Score.of_block(question, positions)
    log.debug("%s of %d targets: %s", method.name, len(positions), score.way)
    seeded = {"seed": seed} if method.seeded else {}
    found = method.function(score, level, **settings, **seeded)
    if stops and score.way == "copies":
        question.check_layout(positions, may_stop=score.may_stop)
    return score, found
