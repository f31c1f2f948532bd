"""CAM and Grad-CAM for graphs (Pope et al., CVPR 2019): scores of nodes from the maps of the last message-passing layer.

The maps F `[N, k]` are what the last layer makes of every node, behind its activation and before the readout.

    CAM        Σ_k w_k F[n, k]   where the number is w · (mean or sum of F over the nodes) + b; for a node task w · F[v] + b
    Grad-CAM   Σ_k a_k F[n, k]   with a_k the mean over the nodes of ∂z/∂F[n, k]

Both are signed here: the ReLU of the paper would hide what speaks against a class. Where the model ends with its last layer,
its maps are the output itself, so Grad-CAM takes those that go into that layer.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from edgewise.algorithms.feature_copies import with_features
from edgewise.algorithms.feature_methods import entries
from edgewise.errors import ModelError
from edgewise.graph.copies import Copies, join
from edgewise.model.hooks import OperationMode
from edgewise.program.operations import Kind, kind_of
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.equality import close
from edgewise.question.target import Target
from edgewise.results.entries import Entries

_BEHIND_A_LAYER = (Kind.RECTIFIER, Kind.ACTIVATION, Kind.ELEMENTWISE, Kind.NORM, Kind.UNCHANGED)


class _LastMaps(OperationMode):
    """Follows the output of the last layer through the activations behind it; `read` is what that layer read."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: Tensor | None = None
        self.read: Tensor | None = None

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        follows = self.maps is not None and any(part is self.maps for part in (*args, *kwargs.values()))
        if follows and kind_of(func, args) in _BEHIND_A_LAYER and isinstance(result, Tensor):
            self.maps = result if self.maps is not None and result.shape == self.maps.shape else self.maps
        return result

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self.depth == 1:
            read = kwargs.get("x", args[0] if args else None)
            self.maps = output if isinstance(output, Tensor) else None
            self.read = read if isinstance(read, Tensor) else None
        super().leave(module, args, kwargs, output)


@dataclass(frozen=True, eq=False)
class _Seen:
    """The maps of one pass and how the explained numbers depend on them."""

    maps: Tensor
    """`[rows, k]`."""
    slope: Tensor
    """`[rows, k]`: the gradient of the sum of all numbers."""
    value: Tensor
    """`[T]`."""
    ends_there: bool
    """Whether the maps are the output itself."""


def activation_scores(question: PosedQuestion, method: str, positions: Tensor, top: int | None) -> Entries:
    """Scores of nodes for a block of targets, by `"cam"` or `"grad_cam"`."""
    owners, nodes, scores = [], [], []
    start, per_graph = 0, ""
    if method == "cam":
        per_graph = _readout(question, positions[:1])
    for copies in question.copies(positions):
        part = positions[start : start + copies.num_targets]
        seen = _seen(question, copies, sub_target(question, part), before=method == "grad_cam")
        node, owner = copies.nodes
        count = torch.bincount(owner, minlength=copies.num_targets)
        if question.task == "node":
            count = torch.full_like(count, int(question.sizes(part)[0][0]))
        weight = torch.zeros(copies.num_targets, seen.slope.size(1), dtype=seen.slope.dtype, device=owner.device)
        weight = weight.index_add(0, owner, seen.slope)  # [T, k]: the gradient, added up over the nodes of each target
        if method == "grad_cam" or per_graph == "sum":
            weight = weight / count.view(-1, 1)
        found = (seen.maps * weight[owner]).sum(dim=1)
        if method == "cam" and question.task == "node":
            kept = copies.rows
        else:
            near = copies.near_hops
            kept = (
                torch.arange(len(found), device=found.device)
                if near is None
                else (near <= question.num_layers).nonzero().view(-1)
            )
        owners.append(owner[kept] + start)
        nodes.append(question.nodes(node)[kept])
        scores.append(found[kept])
        start += copies.num_targets
    owner = torch.cat(owners)
    return entries(owner, torch.cat(nodes), torch.cat(scores).detach(), len(positions), top)


def _seen(question: PosedQuestion, copies: Copies, target: Target, *, before: bool, x: Tensor | None = None) -> _Seen:
    """A pass with other features, if they are given; `before`: where the model ends with a layer, what went into it."""
    call, mode = replace(question.call, changes_input=False), _LastMaps()
    given = copies.data.x if x is None else x
    with torch.enable_grad():
        leaf = given.detach().clone().requires_grad_()
        with mode.watching(question.layers):
            rows = call(with_features(copies.data, leaf))
        value = target.value(rows[copies.rows])
        maps = mode.maps
        ends_there = maps is not None and maps.shape == rows.shape and torch.equal(maps, rows)
        maps = mode.read if ends_there and before else maps
        if maps is None or maps.dim() != 2 or len(maps) != copies.data.num_nodes or not maps.is_floating_point():
            raise _refused("its last message-passing layer does not make a row of numbers for each node")
        slope = None
        if value.requires_grad and maps.requires_grad:
            (slope,) = torch.autograd.grad(value.sum(), maps, allow_unused=True)
    if slope is None:
        raise _refused("the explained number does not depend on the maps of its last message-passing layer")
    return _Seen(maps.detach(), slope, value.detach(), ends_there)


def _refused(why: str) -> ModelError:
    return ModelError(
        f"Class activation maps cannot be made for this model: {why}. Use method='gradient_x_input', and per_node() of it."
    )


def _readout(question: PosedQuestion, position: Tensor) -> str:
    """How the number reads the maps: `"node"`, `"mean"` or `"sum"`; refused unless it is a linear function of that.

    Linear means that neither the weights nor the rest change with the features.
    """
    copies = question.copies(position)[0]
    target, x = sub_target(question, position), copies.data.x
    seen = _seen(question, copies, target, before=False)
    if seen.ends_there:
        raise _refused(
            "it ends with its last message-passing layer, so nothing reads the maps (grad_cam reads those before)"
        )
    linear = "the number must be a linear function of the last layer's maps, their mean or their sum (and of='logit')"
    for other in (0.5 * x.flip(0), 2.0 - x):
        moved = _seen(question, copies, target, before=False, x=other)
        rest, there = (part.value - (part.slope * part.maps).sum() for part in (seen, moved))
        if not close(moved.slope, seen.slope) or not close(there.view(1, 1), rest.view(1, 1)):
            raise _refused(linear)
    if question.task == "node":
        return "node"
    if not close(seen.slope, seen.slope[:1].expand_as(seen.slope)):
        raise _refused(linear)
    doubled = _seen(question, _twice(copies), target, before=False)
    for share, name in ((0.5, "mean"), (1.0, "sum")):
        if close(doubled.slope[:1], seen.slope[:1] * share):
            return name
    raise _refused(linear)


def _twice(copies: Copies) -> Copies:
    """One graph that holds a graph two times: half the weight of each node in a mean, the same in a sum."""
    graph = Data(**{key: value for key, value in copies.data.to_dict().items() if key not in ("batch", "ptr")})
    both = join([graph, graph])
    plain = Data(**{key: value for key, value in both.to_dict().items() if key not in ("batch", "ptr")})
    plain.batch, plain.num_nodes = torch.zeros_like(both.batch), 2 * copies.data.num_nodes
    return replace(copies, data=plain)
