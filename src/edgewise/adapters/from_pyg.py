"""from_pyg(): PyG's explainers inside Edgewise; they write into model and themselves, so each target gets copies of both."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import AttentionExplainer, CaptumExplainer, Explainer, ExplainerAlgorithm, PGExplainer
from torch_geometric.explain.config import ExplainerConfig, ModelConfig

from edgewise.adapters.heal import heal
from edgewise.adapters.own_draws import OwnDraws
from edgewise.adapters.pyg_call import CalledByPyG, loops_last
from edgewise.algorithms.registry import Method
from edgewise.arguments import shown
from edgewise.contract import checked
from edgewise.errors import EdgewiseError, ModelError, SettingError
from edgewise.graph.copies import side_by_side
from edgewise.model.call import ModelCall
from edgewise.question import PosedQuestion
from edgewise.question.target import predicted_classes, read_index
from edgewise.score import SparseScores


@checked
def from_pyg(algorithm: ExplainerAlgorithm, *, train: Any = None) -> Method:
    """A PyG explainer as a method of `explain`: GNNExplainer, PGExplainer, GraphMask, Attention, Captum, or your own.

    It runs as in PyG, on the whole graph, one target after another, each on a fresh copy of the model and of the
    algorithm; what an earlier run of PyG left in the model is repaired in the copy. Learned masks follow PyG's objective
    whatever `of` is; `CaptumExplainer` attributes the explained number itself. What it draws with torch comes from a
    generator of its own that starts at `seed + index` for each target; Python's and numpy's generators are left alone.

    Args:
        algorithm: The explainer; it is left as it is.
        train: For a `PGExplainer` that is not trained yet: the nodes (or graphs) to train it on, as an `index` of `explain`.

    Returns:
        An object for `explain(..., method=...)`, at input level.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.explain import GNNExplainer
    >>> from torch_geometric.nn import GCN; from edgewise import explain
    >>> data = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    >>> why = explain(GCN(2, 4, 2, 3), data, index=3, method=from_pyg(GNNExplainer(epochs=5)))
    >>> why.method, why.scores.shape
    ('GNNExplainer', torch.Size([3]))
    """
    if not isinstance(algorithm, ExplainerAlgorithm):
        raise SettingError(
            f"`algorithm` must be an ExplainerAlgorithm of PyG, got {shown(algorithm)}. Use "
            f"torch_geometric.explain.GNNExplainer(epochs=100), for example."
        )
    if train is not None and not isinstance(algorithm, PGExplainer):
        raise SettingError(f"`train` is for PGExplainer; {type(algorithm).__name__} needs no training. Leave it out.")
    # PyG keeps some coefficients on the class, where the next instance changes them: copy them now.
    coefficients = dict(getattr(algorithm, "coeffs", {}))

    def outside(question: PosedQuestion, *, seed: int) -> Iterator[tuple[int, SparseScores]]:
        question = question.uncut()  # PyG's random starts depend on the number of nodes and edges
        own: Any = _copied(algorithm)
        if coefficients:
            own.coeffs = dict(coefficients)
        if isinstance(own, PGExplainer) and question.types is None:
            _trained(question, own, train, seed)
        return run_of(question, own, seed).results()

    return Method(
        name_of(algorithm),
        None,
        "as in PyG, one target after another",
        "torch_geometric.explain",
        levels=("input",),
        seeded=True,
        outside=outside,
        notes={"algorithm": _description(algorithm, coefficients)},
    )


def _description(algorithm: ExplainerAlgorithm, coefficients: dict[str, Any]) -> str:
    """The name and the numbers of an algorithm, such as `GNNExplainer(epochs=100, lr=0.01)`, for the settings."""
    own = {key: value for key, value in vars(algorithm).items() if not key.startswith("_")}
    own = {**own, **own.get("kwargs", {}), **coefficients}
    plain = {key: value for key, value in own.items() if isinstance(value, (int, float, str))}
    numbers = ", ".join(f"{key}={value}" for key, value in plain.items() if key not in ("training", "is_hetero"))
    return f"{name_of(algorithm)}({numbers})"


def _trained(question: PosedQuestion, algorithm: PGExplainer, train: Any, seed: int) -> None:
    """Train a copy of a PGExplainer if that was asked for; refuse one that is not trained."""
    wanted = algorithm.epochs
    done = getattr(algorithm, "_curr_epoch", wanted - 1) + 1  # without PyG's private counter, trust the user
    if train is not None and done > 0 and hasattr(algorithm, "_curr_epoch"):
        raise SettingError(f"The PGExplainer is already trained ({done} epochs). Leave train out.")
    if train is not None:
        ExplainerRun(question, algorithm, seed).train(train)
    elif done < wanted:
        raise SettingError(
            f"The PGExplainer is not trained ({done} of {wanted} epochs). Use ew.from_pyg(algorithm, train=range(100)) to "
            f"train it on some targets, or train it first with algorithm.train(epoch, model, x, ...)."
        )


# --- One PyG explainer on one question, target after target, on fresh copies -------------------------------------------


_MODES = {"multiclass": "multiclass_classification", "binary": "binary_classification", "regression": "regression"}


def name_of(algorithm: ExplainerAlgorithm) -> str:
    """The name of the method: that of the class, for Captum with the attribution method behind it."""
    name = type(algorithm).__name__
    if isinstance(algorithm, CaptumExplainer):
        return f"{name}({algorithm.attribution_method_class.__name__})"
    return name


def run_of(question: PosedQuestion, algorithm: ExplainerAlgorithm, seed: int) -> "ExplainerRun":
    """One algorithm on a question about nodes, graphs, or nodes of a typed graph."""
    from edgewise.adapters.typed_explainer_run import TypedExplainerRun  # it is one of these

    return (ExplainerRun if question.types is None else TypedExplainerRun)(question, algorithm, seed)


class ExplainerRun:
    """One algorithm on one question; model and algorithm are copied anew for each target.

    PyG asks for a kind of explanation ("model" or "phenomenon"), a mode and, for a phenomenon, the class of every row; these
    are worked out from the question, so that the class explained is always the question's.
    """

    def __init__(self, question: PosedQuestion, algorithm: ExplainerAlgorithm, seed: int) -> None:
        self.question, self.algorithm, self.seed = question, algorithm, seed
        self.name = name_of(algorithm)
        if question.task == "link" or (question.types is not None and question.task == "graph"):
            what = "links" if question.task == "link" else "whole typed graphs"
            raise SettingError(
                f"{self.name} cannot explain {what} through from_pyg. Use a method of ew.methods(), 'gradient' say."
            )
        with question.loan.taken():
            self._call = replace(question.call, model=_copied(question.call.model))
        heal(self._call.model)
        self._captum = isinstance(algorithm, CaptumExplainer)
        mode = "regression" if self._captum else _MODES[question.target.mode]
        self._config = ModelConfig(mode=mode, task_level=question.task, return_type="raw")
        self._kind = self._find_kind()

    def _find_kind(self) -> str:
        """`"phenomenon"`, for which a class can be given, or `"model"` (the prediction) for algorithms that take only that."""
        target, kind = self.question.target, "model"
        if not isinstance(self.algorithm, AttentionExplainer):
            with suppress(ValueError):
                config = ExplainerConfig(explanation_type="phenomenon", edge_mask_type="object")
                _copied(self.algorithm).connect(config, self._config)
                kind = "phenomenon"
        asked = kind == "model" and target.mode != "regression"
        if asked and not torch.equal(predicted_classes(target.truth, target.mode), target.column):
            raise SettingError(f"{self.name} explains the predicted class only. Leave target out.")
        return kind

    def results(self) -> Iterator[tuple[int, SparseScores]]:
        """The masks of all targets, one after another, as (number of targets done, scores)."""
        for position, index in enumerate(self.question.index.tolist()):
            with self._guarded(index):
                place = int(self.question.places(torch.tensor([position]))[0])
                mask = self._mask(position, place)
            column = mask.nonzero().view(-1)
            none = torch.zeros_like(column)
            yield 1, SparseScores(none + position, none, self.question.columns(column), mask[column], of_self=False)

    @contextmanager
    def _guarded(self, index: int) -> Iterator[None]:
        """Draw random numbers of our own for this target, and turn PyG's errors into `ModelError`."""
        with OwnDraws(self.seed + index), torch.enable_grad():
            try:
                yield
            except EdgewiseError:
                raise
            except Exception as error:
                of = self.question.task
                text = f"{self.name} raised {type(error).__name__} on {of} {index}: {error}"
                raise ModelError(f"{text} See PyG's documentation for the models and settings it takes.") from error

    def _mask(self, position: int, index: int) -> Tensor:
        """`[E]`: the edge mask of one target, in the columns of its graph."""
        graph, order = loops_last(self._graph(index))
        of_node = self.question.task == "node"
        column = int(self.question.target.column[position])
        target = self._targets(graph, index if of_node else 0, column)
        explainer = self._explainer(graph, _copied(self.algorithm), column)
        given = target if self._kind == "phenomenon" else None
        found = explainer(graph.x, graph.edge_index, target=given, index=index if of_node else None).get("edge_mask")
        if found is None or found.numel() != len(order):
            raise ModelError(
                f"{self.name} must give a mask with a number for each of the {len(order)} edges, but did not."
            )
        mask = torch.empty_like(found.detach())
        mask[order] = found.detach()
        return mask.to(self.question.target.truth.dtype)

    def _graph(self, index: int) -> Data:
        """The graph of a target: the one graph of a node task, or a batch of the one graph that is explained."""
        if self.question.task == "node":
            return self.question.graphs[0]
        return side_by_side([self.question.graphs[index]]).data

    def _fresh_call(self) -> ModelCall:
        return replace(self._call, model=_copied(self._call.model))

    def _explainer(self, graph: Data, algorithm: ExplainerAlgorithm, column: int) -> Explainer:
        """PyG's `Explainer` on a fresh copy of the model; Captum gets the explained number itself, as a regression."""
        explained = None
        if self._captum:
            rows = graph.num_nodes if self.question.task == "node" else 1
            explained = replace(self.question.target, column=self.question.target.column.new_full((rows,), column))
        called = CalledByPyG(self._fresh_call(), graph, explained).eval()
        return Explainer(called, algorithm, self._kind, self._config, edge_mask_type="object")

    def _targets(self, graph: Data, row: int, column: int | None) -> Tensor:
        """What PyG calls the target: the class of every row (that of `row` may be given), or the outputs of a regression."""
        output = self.question.trace.output.detach()
        if self.question.task == "graph":
            with torch.no_grad():
                output = self._call(graph)
        if self.question.target.mode == "regression":
            return output
        classes = predicted_classes(output, self.question.target.mode)
        if column is not None:
            classes[row] = column
        return classes

    # --- PGExplainer --------------------------------------------------------------------------------------------------

    def train(self, on: Any) -> None:
        """Train a PGExplainer by PyG's own loop: in every epoch, every node (or graph) of `on` once."""
        question, of_node = self.question, self.question.task == "node"
        size = question.graphs[0].num_nodes if of_node else len(question.graphs)
        index = read_index(on, size, question.task)[0].tolist()
        algorithm: Any = self.algorithm
        algorithm.optimizer = torch.optim.Adam(algorithm.mlp.parameters(), lr=algorithm.lr)  # of this copy's network
        with self._guarded(0), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad")  # PyG's way to return the loss
            call, questions = self._fresh_call(), []
            for number in index[:1] if of_node else index:
                graph, _ = loops_last(self._graph(number))
                called = CalledByPyG(call, graph, None).eval()
                questions.append((called, graph.x, graph.edge_index, self._targets(graph, 0, None)))
            Explainer(questions[0][0], algorithm, self._kind, self._config, edge_mask_type="object")  # it connects them
            for epoch, number in product(range(algorithm.epochs), range(len(index))):
                called, x, edge_index, target = questions[0 if of_node else number]
                row = index[number] if of_node else None
                algorithm.train(epoch, called, x, edge_index, target=target, index=row)


def _copied(model: Any) -> Any:
    """A copy of a model; PyG 2.5's `Linear` draws weights for it, which are then those of nobody."""
    with OwnDraws(0):
        return copy.deepcopy(model)
