"""`ew.counterfactual`: the smallest set of edges without which the model predicts otherwise, with a proof.

The question is checked, each target is searched (`edgewise/counterfactuals`), the answers become `Counterfactual`s.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import one_of, real_number, whole_number
from edgewise.arrays import plain_index
from edgewise.contract import checked
from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.double_question import double_question
from edgewise.counterfactuals.question_goals import QuestionGoals
from edgewise.counterfactuals.set_answers import LoweredAnswers, SetAnswers
from edgewise.counterfactuals.smallest_set import SmallestSet, smallest_set
from edgewise.counterfactuals.target_answers import TargetAnswers
from edgewise.model.call import Forward
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion, pose
from edgewise.random_numbers import one_thread
from edgewise.results.counterfactual_set import Counterfactual, CounterfactualSet
from edgewise.results.explanation import Settings

WAYS = ("weight", "removal")
SECONDS = 10.0
"""The limit of time for each target, unless `seconds` says otherwise."""


@dataclass(frozen=True)
class FlipRequest:
    """What is asked of the search, checked; see the arguments of `counterfactual`."""

    size: int | None
    to: Any
    threshold: Any
    by: str
    undirected: bool
    budget: int | None
    seconds: float | None

    def allowance(self) -> Allowance:
        """The work that one target may cost."""
        return Allowance(self.budget, self.seconds)


@checked
def counterfactual(
    model: Any,
    data: Any,
    index: Any = None,
    *,
    size: int | None = None,
    to: Any = None,
    threshold: float | None = None,
    by: str = "weight",
    undirected: bool = False,
    budget: int | None = None,
    seconds: float | None = SECONDS,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    output: str | None = None,
    forward: Forward | None = None,
    without_itself: bool = False,
    device: Any = None,
    progress: bool = False,
) -> Counterfactual | CounterfactualSet:
    """Find the smallest set of edges without which the model predicts another class, and prove that none is smaller.

    The search of a target ends after ten seconds: `status` is then `"open"`, and `edges` the smallest set that was found. What
    a proof means is in `settings["rounding"]`: `"bound"` where rounding errors are bounded (sums, ReLU and the like, on
    node tasks), `"tolerance"` where answers that differ by less than 10⁻¹⁰ of the largest output count as equal.

    Args:
        model: The model, as for `explain`.
        data: The graph, or for a graph task the graphs.
        index: The nodes, graphs or links, as for `explain`.
        size: Look for sets of at most so many edges; `None` for any size.
        to: The class to reach, one or one for each index; `None` is any class but the predicted one.
        threshold: For a regression: the number that the value has to cross.
        by: `"weight"` silences edges (ω = 0 in every layer; degrees and attention stay), `"removal"` takes them out of the
            graph. These are different questions.
        undirected: Both directions of an edge (and parallel columns) are taken together, and count as one.
        budget: The most sets that are tried or bounded for each target.
        seconds: The most seconds for each target, which is `"open"` after that: 10, unless you say otherwise. `None` sets no
            limit of time; with a `budget`, every machine then gives the same answer.
        target: For a regression or labels with several columns: the column. A class cannot be chosen: it is the predicted
            one.
        task: `"node"`, `"graph"` or `"link"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: How to call the model, as for `explain`.
        without_itself: As for `explain`, for links.
        device: Where the model is checked, such as `"cuda"`; the search itself runs on the CPU, in float64.
        progress: Show a progress bar.

    Returns:
        A `Counterfactual` for an int (or one graph), otherwise a `CounterfactualSet`.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])     # 0 ─2→ 1 ─3→ 2, so the logit of node 2 is 6: class 1
    >>> counterfactual(model, data, 2, mode="regression", threshold=1.0)
    Counterfactual(index=2, target=1, status='proven', edges=(0,), flips_to=0, lower_bound=1, 2 units)
    """
    own = {"size": size, "to": to, "threshold": threshold, "by": by, "undirected": undirected, "budget": budget}
    flip_request(**own, seconds=seconds)  # a wrong setting is said before the model is run
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of="log_prob" if output in _CHANCES else "logit",
        output=output, forward=forward, device=device, without_itself=without_itself,
    )  # fmt: skip
    return counterfactual_of_question(question, **own, seconds=seconds, progress=progress)


_CHANCES = ("prob", "log_prob")


@checked
def flip_request(
    *,
    size: int | None = None,
    to: Any = None,
    threshold: float | None = None,
    by: str = "weight",
    undirected: bool = False,
    budget: int | None = None,
    seconds: float | None = SECONDS,
) -> FlipRequest:
    """The arguments of the search, with the defaults of `counterfactual`."""
    return FlipRequest(
        size=whole_number("size", size, at_least=1, or_none="for sets of any size", such_as=3),
        to=to,
        threshold=threshold,
        by=one_of("by", by, WAYS),
        undirected=undirected,
        budget=whole_number("budget", budget, at_least=1, or_none="for no such limit", such_as=10_000),
        seconds=None if seconds is None else real_number("seconds", seconds, above=0, such_as=10.0),
    )


@checked
def counterfactual_of_question(
    question: PosedQuestion, *, progress: bool = False, **own: Any
) -> Counterfactual | CounterfactualSet:
    """The same for a question that is posed already; `own` are the arguments of `flip_request`."""
    asked = flip_request(**own)
    QuestionGoals.of(question, asked.to, asked.threshold)  # refused before the work in float64
    exact = double_question(question)
    search = _Targets(exact, asked)
    with one_thread(), exact.borrowed(), progress_bar(progress, len(question.index), "counterfactual") as advance:
        found = []
        for position in range(len(question.index)):
            found.append(search.answer(position))
            advance(1)
    return found[0] if question.single else CounterfactualSet(tuple(found))


class _Targets:
    """The targets of one question, one after the other."""

    def __init__(self, question: PosedQuestion, asked: FlipRequest) -> None:
        self._question, self._asked = question, asked
        self._goals = QuestionGoals.of(question, asked.to, asked.threshold)
        self._targets = TargetAnswers(question, asked.by, undirected=asked.undirected)
        self._index = plain_index(question.index)

    @torch.no_grad()
    def answer(self, position: int) -> Counterfactual:
        """Search for one target."""
        start, goal, allowance = time.perf_counter(), self._goals.goal(position), self._asked.allowance()
        answers = self._targets.of(position)
        nothing = torch.zeros(answers.num_units, dtype=torch.bool)
        if goal is None:
            found = SmallestSet(nothing, lower_bound=0)
        else:
            found = smallest_set(answers, goal, self._asked.size, allowance)
        after = None if found.found is None else answers.outputs(found.found.view(1, -1))[0]
        return self._result(position, answers, found, after, time.perf_counter() - start)

    def _result(
        self, position: int, answers: SetAnswers, found: SmallestSet, after: Tensor | None, seconds: float
    ) -> Counterfactual:
        question, types = self._question, self._question.types_of(position)
        chosen = () if found.found is None else answers.units.columns(found.found.nonzero().view(-1).tolist())
        edges = question.source_edge_index(position)
        if self._asked.undirected:
            chosen = tuple(_both_ways(unit, edges) for unit in chosen)
        units = chosen if types is None else tuple(tuple(types.edge(one) for one in unit) for unit in chosen)
        counts, _ = question.sizes(torch.tensor([position]))
        row = question.target.truth[position].double().tolist()
        index = self._index[position]
        return Counterfactual(
            index=index if types is None or not types.explained else types.asked(index),
            target=self._goals.start[position],
            status=found.status,
            edges=tuple(sorted(one for unit in units for one in unit)),
            flips_to=None if after is None else self._goals.named(after, position),
            lower_bound=found.lower_bound,
            units=units,
            num_units=answers.num_units,
            before=tuple(row),
            after=None if after is None else tuple(after.tolist()),
            settings=self._settings(position, answers, found.ended_by(answers.num_units)),
            edge_index=question.kept_edge_index(position),
            num_nodes=int(counts[0]),
            evaluations=found.evaluations,
            seconds=seconds,
            types=types,
        )

    def _settings(self, position: int, answers: SetAnswers, ended_by: str) -> Settings:
        """What a result says about how it was found."""
        asked, goals = self._asked, self._goals
        column = {} if goals.mode == "multiclass" else {"column": goals.column[position]}
        proof = "bounds" if isinstance(answers, LoweredAnswers) else "enumeration"
        return Settings(
            {
                **{"by": asked.by, "undirected": asked.undirected, "size": asked.size, "to": asked.to},
                **{"threshold": goals.threshold, "budget": asked.budget, "seconds": asked.seconds},
                **({"ended_by": ended_by} if ended_by else {}),
                **{"task": self._question.task, "mode": goals.mode, **column, "proof": proof},
                **{
                    "rounding": answers.rounding,
                    "tolerance": answers.tolerance,
                    "precision": str(self._question.target.truth.dtype).split(".")[-1],
                },
            }
        )


def _both_ways(unit: tuple[int, ...], edge_index: Tensor) -> tuple[int, ...]:
    """All columns between the two nodes of a member, also those that cannot reach the target."""
    one, other = edge_index[:, unit[0]]
    source, receiver = edge_index
    same = ((source == one) & (receiver == other)) | ((source == other) & (receiver == one))
    return tuple(same.nonzero().view(-1).tolist())
