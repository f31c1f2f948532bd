"""`ew.walk_relevance` and `ew.subgraph_relevance`: from walks that somebody names, or from a set of nodes, to numbers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import InputError
from edgewise.question import Question, pose
from edgewise.results.walk_set import Walk, WalkSet
from edgewise.walk.sums import inside, relevance
from edgewise.walk.target_blocks import TargetBlock, read_view, target_blocks

_MEMORY = 2**30


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
    forward: Any = None,
    device: Any = None,
) -> Tensor:
    """The relevance of given walks of one target.

    Args:
        model: As for `walks`, like every argument that is not described here.
        data: The graph.
        index: The explained node (or graph).
        walks: Sequences of nodes, from the source to the explained node, one more than there are layers; or a `WalkSet`.
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: Of `"lrp-epsilon"`.
        gamma: Of `"lrp-gamma"`.
        attention: `"full"` or `"fixed"`.
        norm: None or `"fixed"`.
        target: Class.
        task: `"node"` or `"graph"`.
        mode: As for `explain`.
        of: As for `explain`.
        forward: As for `explain`.
        device: As for `explain`.

    Returns:
        One number per walk, float64; 0 for a walk that the model cannot take.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])
    >>> walk_relevance(model, data, 2, walks=[(0, 1, 2), (1, 1, 2)])
    tensor([6., 0.], dtype=torch.float64)
    """
    view = read_view(rule, epsilon, gamma, attention, norm)
    question = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    if len(question.index) != 1:
        raise InputError(
            f"walk_relevance scores the walks of one target; index names {len(question.index)}. Pass an int."
        )
    (block,) = target_blocks(question, view, _MEMORY, beam=1, bounded=False)
    nodes = question.local_nodes(_read_walks(walks, question, block).to(question.device))
    root = nodes[:, -1] if block.of_graphs else torch.zeros(len(nodes), dtype=torch.long, device=nodes.device)
    return relevance(block.network, block.front, root, nodes).cpu()


def _read_walks(walks: Any, question: Question, block: TargetBlock) -> Tensor:
    given = [
        walk.nodes if isinstance(walk, Walk) else walk
        for walk in (walks.walks if isinstance(walks, WalkSet) else walks)
    ]
    length = block.network.num_calls + 1
    try:
        nodes = torch.as_tensor([list(map(int, walk)) for walk in given], dtype=torch.long).view(-1, length)
        if any(len(walk) != length for walk in given):
            raise ValueError
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"walks must be sequences of {length} nodes (one more than the {length - 1} layers), from the source to the "
            f"explained node, such as [({', '.join(['0'] * length)})]."
        ) from error
    size = int(question.sizes(torch.zeros(1, dtype=torch.long))[0][0])
    if len(nodes) and (int(nodes.min()) < 0 or int(nodes.max()) >= size):
        raise InputError(f"a walk names node {int(nodes.max())}; the graph has nodes 0 to {size - 1}.")
    if not block.of_graphs and bool((nodes[:, -1] != question.index[0]).any()):
        raise InputError(
            f"a walk does not end at the explained node, {int(question.index[0])}: the source comes first."
        )
    return nodes


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
    forward: Any = None,
    device: Any = None,
) -> Tensor:
    """The sum of the relevance of all walks inside a set of nodes, without enumerating them (sGNN-LRP, Xiong et al. 2022).

    Args:
        model: As for `walks`, like every argument that is not described here.
        data: The graph.
        index: The explained nodes (or, in a graph task, one graph).
        nodes: The set: node numbers, or a mask.
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: Of `"lrp-epsilon"`.
        gamma: Of `"lrp-gamma"`.
        attention: `"full"` or `"fixed"`.
        norm: None or `"fixed"`.
        target: Class.
        task: `"node"` or `"graph"`.
        mode: As for `explain`.
        of: As for `explain`.
        forward: As for `explain`.
        device: As for `explain`.

    Returns:
        One number per target, float64.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])
    >>> subgraph_relevance(model, data, [2], nodes=[0, 1, 2])
    tensor([6.], dtype=torch.float64)
    """
    view = read_view(rule, epsilon, gamma, attention, norm)
    question = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    if task == "graph" and len(question.index) != 1:
        raise InputError("nodes are numbered within one graph: pass one graph, or an index that names one.")
    found = torch.zeros(len(question.index), dtype=torch.double)
    for block in target_blocks(question, view, _MEMORY, beam=1, bounded=False):
        allowed = _read_nodes(nodes, int(question.sizes(torch.zeros(1, dtype=torch.long))[0][0])).to(question.device)
        everyone = torch.arange(block.network.num_nodes, device=question.device)
        allowed = allowed[question.nodes(everyone)]
        sums = inside(block.network, block.front, allowed)
        found[block.positions] = sums.new_zeros(block.num_targets).index_add_(0, block.owner, sums).cpu()
    return found


def _read_nodes(nodes: Any, size: int) -> Tensor:
    chosen = torch.as_tensor(list(nodes) if isinstance(nodes, (set, range)) else nodes)
    if chosen.dtype == torch.bool and chosen.shape == (size,):
        return chosen
    if chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.dim() != 1:
        raise InputError(f"nodes is {nodes!r}; needed are node numbers, or a mask of length {size}.")
    if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= size):
        raise InputError(f"nodes names {int(chosen.max())}; the graph has nodes 0 to {size - 1}.")
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[chosen.long()] = True
    return allowed
