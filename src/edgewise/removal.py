"""The model on graphs from which edges were really taken: degrees and attention change with them.

Weighting a message with 0 (masking) and dropping its column (removing) are two questions with two answers.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import ModelError
from edgewise.graph.copies import Copies
from edgewise.problem import NodeProblem, Problem
from edgewise.subject import close, random_weight, warn_not_local


class Removal:
    """Some targets of a problem, on graphs that keep only some of their columns; nodes stay, also isolated ones."""

    def __init__(self, problem: Problem, positions: Tensor) -> None:
        self._problem = problem
        self._graphs = problem.copies(positions)
        if isinstance(problem, NodeProblem) and len(self._graphs) == 1 and problem.hops is not None:
            targets = problem.index[positions].to(problem.device)
            if not _stay_true(problem, self._graphs[0], targets):
                warn_not_local("without some edges a copy gives another output", "target is run on the whole graph")
                self._graphs = problem.subject.wholes(targets)
        several = len(self._graphs) > 1
        owner = [_column_owner(graph) + (i if several else 0) for i, graph in enumerate(self._graphs)]
        self.owner = torch.cat(owner).cpu()
        """`[columns]`: whose each column is, a position in `positions`."""
        self.edge_id = torch.cat([_column_edge(graph) for graph in self._graphs]).cpu()
        """`[columns]`: the column of the original graph."""

    def output(self, kept: Tensor) -> Tensor:
        """The model's output for every target, `[targets, width]`, on graphs that have the `kept` columns alone."""
        parts = kept.split([graph.data.edge_index.size(1) for graph in self._graphs])
        with self._problem.loan.taken(), torch.no_grad():
            rows = [_run(self._problem, g.data, part)[g.rows] for g, part in zip(self._graphs, parts, strict=True)]
        return torch.cat(rows)


def _run(problem: Problem, graph: Data, kept: Tensor) -> Tensor:
    return problem.call(graph.edge_subgraph(kept.to(graph.edge_index.device)))


def _stay_true(problem: NodeProblem, copies: Copies, targets: Tensor) -> bool:
    """Whether every copy gives its target's true output on a graph that lost half of its edges."""

    def half(columns: Tensor) -> Tensor:
        return random_weight(columns, 1, problem.trace.output)[0] < 0.5

    graph = problem.graphs[0]
    everything = torch.arange(graph.edge_index.size(1), device=problem.device)
    with problem.loan.taken(), torch.no_grad():
        try:
            whole = _run(problem, graph, half(everything))[targets]
            return close(_run(problem, copies.data, half(_column_edge(copies)))[copies.rows], whole)
        except ModelError:
            return False  # what the model says to the user's own question is shown, not what it says to this one


def _column_edge(graph: Copies) -> Tensor:
    return graph.edge_id if graph.column_edge is None else graph.column_edge


def _column_owner(graph: Copies) -> Tensor:
    return graph.owner if graph.column_owner is None else graph.column_owner
