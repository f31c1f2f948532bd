"""Which targets are audited: a few that depend on what is asked about, and not on the order in which it is asked."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise import random_numbers

if TYPE_CHECKING:
    from edgewise.question.posed_question import PosedQuestion

_SEED = 20261118
_NODES, _GRAPHS = 2, 8
"""Random ones, besides the first and the last."""


_LOOKED_AT = 64
"""Graphs in which nodes without edges are looked for."""


def audited_positions(question: "PosedQuestion") -> Tensor:
    """Positions of some targets, ascending: the first and the last by number, random ones, and graphs that are special.

    Special are graphs without edges, those of one node, and those with a node that no edge touches: the first of each.
    """
    everyone = torch.arange(len(question.index))
    if len(everyone) <= 2:
        return everyone
    keys = question.keys(everyone)
    of_graphs = question.task == "graph"
    drawn = random_numbers.uniform(_SEED, keys).argsort()[: _GRAPHS if of_graphs else _NODES]
    chosen = [drawn, keys.argmin().view(1), keys.argmax().view(1)]
    if of_graphs:
        chosen += _special(question, keys)
    return torch.cat(chosen).unique()


def _special(question: "PosedQuestion", keys: Tensor) -> list[Tensor]:
    """`[1]` each, the first by number of its sort."""
    nodes, edges = (part.cpu() for part in question.sizes(torch.arange(len(keys))))
    alone = torch.zeros(len(keys), dtype=torch.bool)
    for position in random_numbers.uniform(_SEED, keys).argsort()[:_LOOKED_AT].tolist():
        alone[position] = _has_alone(question, position)
    found = []
    for sort in (edges == 0, nodes == 1, alone):
        at = sort.nonzero().view(-1)
        if len(at):
            found.append(at[keys[at].argmin()].view(1))
    return found


def _has_alone(question: "PosedQuestion", position: int) -> bool:
    """Whether a node of the target's graph has no edge."""
    graph = question.graphs[int(question.index[position])]
    return len(graph.edge_index.unique()) < int(graph.num_nodes or 0)
