"""`ew.Question`: a model, a graph, targets and a number, checked and proved once, then asked in many ways.

Every public function that explains is a thin form of it: `ew.explain(model, data, index, …)` is
`ew.Question(model, data, index, …).explain(…)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from edgewise.api.preflight import brief, preflight
from edgewise.arrays import plain_index
from edgewise.contract import checked
from edgewise.errors import EdgewiseError
from edgewise.model.global_state import thread_kept
from edgewise.question import pose
from edgewise.question.memory import read_batch_size, read_memory
from edgewise.random_numbers import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from edgewise.api.method_choice import MethodChoice
    from edgewise.question import PosedQuestion
    from edgewise.results.comparison import Comparison
    from edgewise.results.counterfactual_set import Counterfactual, CounterfactualSet
    from edgewise.results.explanation import Explanation
    from edgewise.results.explanation_set import ExplanationSet
    from edgewise.results.feature_scores import FeatureScores, FeatureSet
    from edgewise.results.walk_set import WalkSet
    from edgewise.trust.report import Report


class Question:
    """What is asked: why does this model say that about these nodes, graphs or links?

    The model is recorded, lowered and proved here, on the neighbourhoods of the targets; the methods below then answer
    without doing so again. `print(question)` shows what was found out and what each method will cost.

    Before each answer the model, what its code can reach, and the data are compared with what they were, and a
    `StaleQuestionError` names what has changed. What no comparison sees (files, time, what C extensions and generators keep
    inside, code of installed packages that is changed in place) is in docs/conventions.md: after such a change, ask again.

    Args:
        model: A `torch.nn.Module` with PyG message-passing layers; it is never touched (a twin of it is run).
        data: A `torch_geometric.data.Data` or, for nodes, a `HeteroData`; for `task="graph"` also a list or a `Dataset`.
        index: The node or graph: an int for one answer; a sequence, tensor, slice or mask for a set; `None` for all. Of a
            `HeteroData`: `("paper", 3)`, `("paper", [3, 5])` or `{"paper": [3, 5]}`.
        target: The class, one or one for each index; `None` is the predicted one, `"all"` every class of each target in turn.
        task: `"node"`, `"graph"` or `"link"` (`index` is then a pair, a list of pairs, or a tensor `[2, T]`).
        mode: `"multiclass"`, `"binary"` (one logit), `"multilabel"` (a logit for each column), `"regression"`, or `None`
            to infer multiclass or binary from the width of the output; labels that contradict that are refused.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off its last operation.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        device: Where to compute, such as `"cuda"`; the model and the data stay where they are.
        without_itself: For links: take the columns u → v and v → u out of the graph of each pair first.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])            # 0 ─2→ 1 ─3→ 2, so z = 2·ω₀ · 3·ω₁
    >>> ask = Question(model, data, index=2)
    >>> ask.explain().scores, ask.walks()[0].nodes
    (tensor([6., 6.]), (0, 1, 2))
    >>> ask.of(1).explain().scores, ask.num_layers
    (tensor([0., 0.]), 2)
    """

    __slots__ = ("_batch_size", "_memory", "_posed")
    _posed: PosedQuestion
    _memory: Any
    _batch_size: int | None

    @checked
    def __init__(
        self,
        model: nn.Module,
        data: Any,
        index: Any = None,
        *,
        target: Any = None,
        task: str = "node",
        mode: str | None = None,
        of: str = "logit",
        output: str | None = None,
        forward: Callable[..., Tensor] | None = None,
        device: Any = None,
        without_itself: bool = False,
        memory: Any = None,
        batch_size: int | None = None,
    ) -> None:
        budget = None if memory is None else read_memory(memory)
        posed = pose(
            model,
            data,
            index,
            target=target,
            task=task,
            mode=mode,
            of=of,
            output=output,
            forward=forward,
            device=device,
            without_itself=without_itself,
            roomy=memory is None,
            memory=budget,
        )
        self._fill(posed, memory, read_batch_size(batch_size))

    def _fill(self, posed: PosedQuestion, memory: Any, batch_size: int | None) -> None:
        for name, value in (("_posed", posed), ("_memory", memory), ("_batch_size", batch_size)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"A question cannot be changed. Use question.of(index) for other targets, or ask a new one: {name}."
        )

    @checked
    def of(self, index: Any, target: Any = None) -> Question:
        """The same question about other targets: what was proved about the model is kept.

        One class for all targets is kept; classes that were given one for each index are not. `target` gives new ones.
        """
        self._posed.check_basis()
        other = object.__new__(Question)
        try:
            with one_thread(), thread_kept(), torch.inference_mode(mode=False):
                posed = self._posed.of(index, self._posed.asked.one_class if target is None else target)
        except EdgewiseError:
            self._posed.check_fresh()  # perhaps only because the model was trained meanwhile: then this says so
            raise
        other._fill(posed, self._memory, self._batch_size)
        return other

    # --- what was found out -------------------------------------------------------------------------------------------

    @property
    def index(self) -> Any:
        """What was asked about: an int stays an int, a pair a pair; of a typed graph `(type, number, pair or list)`."""
        listed = plain_index(self._posed.index)
        found = listed[0] if self._posed.single else listed
        types = self._posed.types
        return types.asked(found) if types is not None and types.explained else found

    @property
    def target(self) -> Tensor:
        """`[T]`: the explained classes (or columns)."""
        return self._posed.target.column.cpu()

    @property
    def value(self) -> Tensor:
        """`[T]`: the explained numbers."""
        return self._posed.target.value(self._posed.target.truth).detach().cpu()

    @property
    def num_layers(self) -> int:
        """The depth: the most message-passing calls on one path from the features to the output."""
        return self._posed.num_layers

    @property
    def way(self) -> str:
        """How the model is run: `"lowered"`, `"copies"` or `"whole graph"`."""
        if self._posed.lowering is not None:
            return "lowered"
        return self._posed.engine(torch.tensor([0])).way

    @property
    def settings(self) -> Mapping[str, Any]:
        """What every answer's settings say about the question."""
        return self._posed.notes

    def __repr__(self) -> str:
        posed = self._posed
        return f"Question({len(posed.index)} {posed.task}s, {posed.target.of} ({posed.target.mode}), {posed.num_layers} layers)"

    def __str__(self) -> str:
        return preflight(self._posed, self.way)

    def brief(
        self, asked: Sequence[tuple[str, str]] = (), total: int | None = None, explained: int | None = None
    ) -> list[str]:
        """The same in two or three sentences: task and output, agreement with `y`, seconds of some (method, level) pairs.

        `total` and `explained` are the numbers of targets, where this question is about some of them.
        """
        size = len(self._posed.index)
        return brief(self._posed, self.way, asked, total or size, explained or total or size)

    # --- answers ------------------------------------------------------------------------------------------------------

    @checked
    def explain(self, method: Any = "gradient", level: str = "input", **options: Any) -> Explanation | ExplanationSet:
        """A signed score for every edge; options as in `ew.explain`."""
        from edgewise.api.explain import explain_question

        return explain_question(self._fresh(), method=method, level=level, **{**self._sizes, **options})

    @checked
    def choose_method(self) -> MethodChoice:
        """The method that `explain(method="auto")` takes here, with the reason and what was measured."""
        from edgewise.api.method_choice import choose_method

        return choose_method(self._fresh())

    @checked
    def walks(self, k: int = 1, **options: Any) -> WalkSet | list[WalkSet]:
        """The most relevant walks; options as in `ew.walks`."""
        from edgewise.api.walks import walks_of_question

        return walks_of_question(self._fresh(), k=k, **{"memory": self._memory, **options})

    @checked
    def features(self, method: str = "gradient_x_input", **options: Any) -> FeatureScores | FeatureSet:
        """A signed score for every feature of every node; options as in `ew.features`."""
        from edgewise.api.features import features_of_question

        return features_of_question(self._fresh(), method=method, **{**self._sizes, **options})

    @checked
    def counterfactual(self, **options: Any) -> Counterfactual | CounterfactualSet:
        """The smallest set of edges without which the prediction changes; options as in `ew.counterfactual`."""
        from edgewise.api.counterfactual import counterfactual_of_question

        return counterfactual_of_question(self._fresh(), **options)

    @checked
    def check(self, **options: Any) -> Report:
        """How far explanations can be trusted here; options as in `ew.check`."""
        from edgewise.api.check import check_question

        return check_question(self._fresh(), **{**self._sizes, **options})

    @checked
    def compare(self, **options: Any) -> Comparison:
        """How alike methods are here; options as in `ew.compare`."""
        from edgewise.api.compare import compare_question

        return compare_question(self._fresh(), **{**self._sizes, **options})

    @checked
    def page(self, path: str | Path, **options: Any) -> Path:
        """One HTML file about the targets; options as in `ew.write_page`."""
        from edgewise.api.write_page import page_of_question

        return page_of_question(path, self._fresh(), **{**self._sizes, **options})

    @property
    def _sizes(self) -> dict[str, Any]:
        return {"memory": self._memory, "batch_size": self._batch_size}

    def _fresh(self) -> PosedQuestion:
        self._posed.check_fresh()
        return self._posed
