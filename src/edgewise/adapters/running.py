"""One PyG explainer on one question, target after target, on fresh copies."""

import copy
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    Explainer,
    ExplainerAlgorithm,
    ExplainerConfig,
    ModelConfig,
)

from edgewise.adapters.called import Called, loops_last
from edgewise.adapters.healing import heal
from edgewise.algorithms.scores import SparseScores
from edgewise.errors import EdgewiseError, ModelError, SettingError
from edgewise.graph.copies import side_by_side
from edgewise.graph.inputs import read_index
from edgewise.model.borrow import random_state_kept
from edgewise.model.call import ModelCall
from edgewise.problem import Problem
from edgewise.target import predicted_classes

_MODES = {"multiclass": "multiclass_classification", "binary": "binary_classification", "regression": "regression"}


def name_of(algorithm: ExplainerAlgorithm) -> str:
    """What the explanations are called."""
    name = type(algorithm).__name__
    if isinstance(algorithm, CaptumExplainer):
        return f"{name}({algorithm.attribution_method_class.__name__})"
    return name


class Run:
    """One question for one algorithm: copies of both, made anew for each target."""

    def __init__(self, problem: Problem, algorithm: ExplainerAlgorithm, seed: int) -> None:
        self.problem, self.algorithm, self.seed = problem, algorithm, seed
        self.name = name_of(algorithm)
        with problem.loan.taken():
            self._call = replace(problem.call, model=copy.deepcopy(problem.call.model))
        heal(self._call.model)
        self._captum = isinstance(algorithm, CaptumExplainer)
        mode = "regression" if self._captum else _MODES[problem.target.mode]
        self._config = ModelConfig(mode=mode, task_level=problem.task, return_type="raw")
        self._kind = self._find_kind()

    def _find_kind(self) -> str:
        """A phenomenon, for which a class can be given; or the model's own prediction, for those that take nothing else."""
        target, kind = self.problem.target, "model"
        if not isinstance(self.algorithm, AttentionExplainer):
            with suppress(ValueError):
                config = ExplainerConfig(explanation_type="phenomenon", edge_mask_type="object")
                copy.deepcopy(self.algorithm).connect(config, self._config)
                kind = "phenomenon"
        asked = kind == "model" and target.mode != "regression"
        if asked and not torch.equal(predicted_classes(target.truth, target.mode), target.column):
            raise SettingError(f"{self.name} explains the predicted class only. Leave target out.")
        return kind

    def results(self) -> Iterator[tuple[int, SparseScores]]:
        """The masks of all targets, one after another."""
        for position, index in enumerate(self.problem.index.tolist()):
            with self._guarded(index):
                mask = self._mask(position, index)
            column = mask.nonzero().view(-1)
            none = torch.zeros_like(column)
            yield 1, SparseScores(none + position, none, column, mask[column], of_self=False)

    @contextmanager
    def _guarded(self, index: int) -> Iterator[None]:
        """Random numbers of this target's own, and errors of PyG under our name."""
        with random_state_kept(), torch.enable_grad():
            torch.manual_seed(self.seed + index)
            np.random.seed((self.seed + index) % 2**32)
            random.seed(self.seed + index)
            try:
                yield
            except EdgewiseError:
                raise
            except Exception as error:
                of = self.problem.task
                text = f"{self.name} raised {type(error).__name__} on {of} {index}: {error}"
                raise ModelError(f"{text} Its own documentation says which models and settings it takes.") from error

    def _mask(self, position: int, index: int) -> Tensor:
        graph, order = loops_last(self._graph(index))
        of_node = self.problem.task == "node"
        column = int(self.problem.target.column[position])
        target = self._targets(graph, index if of_node else 0, column)
        explainer = self._explainer(graph, copy.deepcopy(self.algorithm), column)
        given = target if self._kind == "phenomenon" else None
        found = explainer(graph.x, graph.edge_index, target=given, index=index if of_node else None).get("edge_mask")
        if found is None or found.numel() != len(order):
            raise ModelError(f"{self.name} gave no mask with a number for each of the {len(order)} edges.")
        mask = torch.empty_like(found.detach())
        mask[order] = found.detach()
        return mask.to(self.problem.target.truth.dtype)

    def _graph(self, index: int) -> Data:
        if self.problem.task == "node":
            return self.problem.graphs[0]
        return side_by_side([self.problem.graphs[index]]).data

    def _fresh_call(self) -> ModelCall:
        return replace(self._call, model=copy.deepcopy(self._call.model))

    def _explainer(self, graph: Data, algorithm: ExplainerAlgorithm, column: int) -> Explainer:
        """PyG's `Explainer` on a fresh copy; Captum is handed the explained number itself, as a regression."""
        explained = None
        if self._captum:
            rows = graph.num_nodes if self.problem.task == "node" else 1
            explained = replace(self.problem.target, column=self.problem.target.column.new_full((rows,), column))
        called = Called(self._fresh_call(), graph, explained).eval()
        return Explainer(called, algorithm, self._kind, self._config, edge_mask_type="object")

    def _targets(self, graph: Data, row: int, column: int | None) -> Tensor:
        """What PyG calls the target: the class of every row (one may be given), or the outputs of a regression."""
        output = self.problem.trace.output.detach()
        if self.problem.task == "graph":
            with torch.no_grad():
                output = self._call(graph)
        if self.problem.target.mode == "regression":
            return output
        classes = predicted_classes(output, self.problem.target.mode)
        if column is not None:
            classes[row] = column
        return classes

    # --- PGExplainer --------------------------------------------------------------------------------------------------

    def train(self, on: Any) -> None:
        """PyG's own loop: every epoch, every node (or graph) once."""
        problem, of_node = self.problem, self.problem.task == "node"
        size = problem.graphs[0].num_nodes if of_node else len(problem.graphs)
        index = read_index(on, size, problem.task)[0].tolist()
        algorithm: Any = self.algorithm
        algorithm.optimizer = torch.optim.Adam(algorithm.mlp.parameters(), lr=algorithm.lr)  # of this copy's network
        with self._guarded(0), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad")  # PyG's way to return the loss
            call, questions = self._fresh_call(), []
            for number in index[:1] if of_node else index:
                graph, _ = loops_last(self._graph(number))
                called = Called(call, graph, None).eval()
                questions.append((called, graph.x, graph.edge_index, self._targets(graph, 0, None)))
            Explainer(questions[0][0], algorithm, self._kind, self._config, edge_mask_type="object")  # it connects them
            for epoch, number in product(range(algorithm.epochs), range(len(index))):
                called, x, edge_index, target = questions[0 if of_node else number]
                row = index[number] if of_node else None
                algorithm.train(epoch, called, x, edge_index, target=target, index=row)
