"""`ew.walk_relevance` and `ew.subgraph_relevance`: the relevance of given walks, and of all walks inside a set of nodes.

Both ask about walks that are given, not searched for. They share their checks (`_check_single`, `_check_nodes`); the
arithmetic is in `edgewise/walk/sums.py`.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import index as whole
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import one_of, shown
from edgewise.arrays import read_tensor
from edgewise.contract import checked
from edgewise.errors import InputError
from edgewise.model.call import Forward
from edgewise.question import PosedQuestion, pose
from edgewise.question.block_growth import DEFAULT_MEMORY
from edgewise.results.walk_set import Walk, WalkSet
from edgewise.walk.sums import inside, relevance
from edgewise.walk.target_blocks import RelevanceRule, TargetBlock, read_rule, target_blocks


@checked
def walk_relevance(
    model: Any,
    data: Any,
    index: Any = None,
    *,
    walks: Any,
    rule: str = "gradient",
    epsilon: float = 1e-9,
    gamma: float | Sequence[float] = 0.25,
    attention: str = "full",
    norm: str | None = None,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Forward | None = None,
    device: Any = None,
) -> Tensor:
    """The relevance of given walks of one target.

    Args:
        model: The model, as for `explain`.
        data: The graph.
        index: The explained node (or graph).
        walks: Sequences of nodes, from the source to the explained node, one more than there are layers; or a `WalkSet`. A
            node of a typed graph is a pair (type, number).
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: The ε of `"lrp-epsilon"`, absolute.
        gamma: The γ of `"lrp-gamma"`, a number or one per layer.
        attention: `"full"` differentiates attention too, `"fixed"` holds it.
        norm: `"fixed"` holds the statistics of norms over whole graphs.
        target: The class; `None` is the predicted one.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: How to call the model, as for `explain`.
        device: Where to compute, such as `"cuda"`.

    Returns:
        One number per walk, float64; 0 for a walk that the model cannot take.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])
    >>> walk_relevance(model, data, 2, walks=[(0, 1, 2), (1, 1, 2)])
    tensor([6., 0.], dtype=torch.float64)
    """
    how = read_rule(rule, epsilon, gamma, attention, norm)
    one_of("task", task, ("node", "graph"))
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device
    )
    _check_single(question, "walk_relevance scores the walks of one target")
    (block,) = _blocks(question, how)
    nodes = question.local_nodes(_read_walks(walks, question, block).to(question.device))  # [n, L + 1]
    root = nodes[:, -1] if block.of_graphs else torch.zeros(len(nodes), dtype=torch.long, device=nodes.device)
    return relevance(block.network, block.front, root, nodes).cpu()


@checked
def subgraph_relevance(
    model: Any,
    data: Any,
    index: Any = None,
    *,
    nodes: Any,
    rule: str = "gradient",
    epsilon: float = 1e-9,
    gamma: float | Sequence[float] = 0.25,
    attention: str = "full",
    norm: str | None = None,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Forward | None = None,
    device: Any = None,
) -> Tensor:
    """The sum of the relevance of all walks inside a set of nodes, without enumerating them (sGNN-LRP, Xiong et al. 2022).

    Args:
        model: The model, as for `explain`.
        data: The graph.
        index: The explained nodes (or, in a graph task, one graph).
        nodes: The set: node numbers, or a mask; of a typed graph pairs (type, number).
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: The ε of `"lrp-epsilon"`, absolute.
        gamma: The γ of `"lrp-gamma"`, a number or one per layer.
        attention: `"full"` differentiates attention too, `"fixed"` holds it.
        norm: `"fixed"` holds the statistics of norms over whole graphs.
        target: The class; `None` is the predicted one.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: How to call the model, as for `explain`.
        device: Where to compute, such as `"cuda"`.

    Returns:
        One number per target, float64.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])
    >>> subgraph_relevance(model, data, [2], nodes=[0, 1, 2])
    tensor([6.], dtype=torch.float64)
    """
    how = read_rule(rule, epsilon, gamma, attention, norm)
    one_of("task", task, ("node", "graph"))
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device
    )
    if task == "graph":
        _check_single(question, "`nodes` are numbered within one graph")
    found = torch.zeros(len(question.index), dtype=torch.double)
    for block in _blocks(question, how):
        listed = nodes if question.types is None else [_number(node, question) for node in nodes]
        allowed = _read_nodes(listed, _num_nodes(question)).to(question.device)  # [N], bool
        allowed = allowed[question.nodes(torch.arange(block.network.num_nodes, device=question.device))]
        sums = inside(block.network, block.front, allowed)  # one per end of the front
        found[block.positions] = sums.new_zeros(block.num_targets).index_add_(0, block.owner, sums).cpu()
    return found


def _num_nodes(question: PosedQuestion) -> int:
    """Nodes of the user's graph (of the one graph, in a graph task)."""
    return int(question.sizes(torch.zeros(1, dtype=torch.long))[0][0])


def _blocks(question: PosedQuestion, how: RelevanceRule) -> Iterator[TargetBlock]:
    """The targets with their networks; sums need no bounds, and one prefix of a target at a time."""
    return target_blocks(question, how, DEFAULT_MEMORY, beam=1, bounded=False)


def _check_single(question: PosedQuestion, why: str) -> None:
    """Refuse more than one target."""
    if len(question.index) != 1:
        raise InputError(f"{why}, got {len(question.index)} targets. Use index=0, for example, or another int.")


def _check_nodes(name: str, nodes: Tensor, size: int) -> None:
    """Refuse numbers that are no nodes of the graph."""
    outside = nodes[(nodes < 0) | (nodes >= size)]
    if len(outside):
        raise InputError(f"`{name}` must name nodes 0 to {size - 1} of the graph, got {int(outside[0])}.")


def _read_walks(walks: Any, question: PosedQuestion, block: TargetBlock) -> Tensor:
    """`[n, L + 1]`: given walks as rows of nodes, source first."""
    listed = walks.walks if isinstance(walks, WalkSet) else walks
    length = block.network.num_calls + 1
    try:
        given = [walk.nodes if isinstance(walk, Walk) else walk for walk in listed]
        given = [[_number(node, question) for node in islice(walk, length + 1)] for walk in given]
        nodes = torch.tensor([list(map(whole, walk)) for walk in given], dtype=torch.long).view(-1, length)
        if any(len(walk) != length for walk in given):
            raise ValueError
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`walks` must be sequences of {length} nodes (one more than the {length - 1} layers), from the source to the "
            f"explained node. Use walks=[({', '.join(['0'] * length)})], for example."
        ) from error
    _check_nodes("walks", nodes, _num_nodes(question))
    if not block.of_graphs and bool((nodes[:, -1] != question.index[0]).any()):
        raise InputError(
            f"`walks` must end at the explained node, {int(question.index[0])}: the source comes first, got "
            f"{tuple(nodes[nodes[:, -1] != question.index[0]][0].tolist())}."
        )
    return nodes


def _number(node: Any, question: PosedQuestion) -> Any:
    """A node as a number; of a typed graph it is a pair (type, number), and becomes a number of the union."""
    types = question.types_of(0)
    if types is None:
        return node
    if not isinstance(node, tuple) or len(node) != 2 or node[0] not in types.node_types:
        example = (types.explained, 0)
        raise InputError(
            f"A node of a typed graph is a pair (node type, number), such as {example}, got {shown(node)}."
        )
    known = types.node_range(node[0])
    if not 0 <= whole(node[1]) < len(known):
        raise InputError(f"There is no {node[0]!r} {node[1]}: it has the nodes 0 to {len(known) - 1}.")
    return known.start + whole(node[1])


def _read_nodes(nodes: Any, size: int) -> Tensor:
    """`[N]`: a set of nodes, given as numbers or as a mask, as a mask."""
    try:
        chosen = read_tensor(list(nodes) if isinstance(nodes, (set, range)) else nodes)
    except (TypeError, ValueError, RuntimeError):
        chosen = torch.empty(0, 0)  # refused below
    if chosen.dtype == torch.bool and chosen.shape == (size,):
        return chosen
    if chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool or chosen.dim() != 1:
        raise InputError(
            f"`nodes` must be node numbers, or a mask of length {size}, got {shown(nodes)}. Use nodes=[0, 1], for example."
        )
    _check_nodes("nodes", chosen, size)
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[chosen.long()] = True
    return allowed
