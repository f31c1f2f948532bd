"""Is a gradient by features the derivative of what the model computes? The check of `gradient_audit.py`, along the features.

A frozen encoder under `no_grad` stops gradients on their way to the features, but none on their way to the weights ω: so the
features are moved themselves, in a copy of the model in float64, along one random direction d: x + t · d.
"""

import copy
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise import random_numbers
from edgewise.errors import EdgewiseError, ModelError
from edgewise.model.twin import make_twin
from edgewise.question.gradient_audit import STEPS, AuditedSlope, as_logit, compared, graph_in_double, is_true
from edgewise.question.posed_question import PosedQuestion, sub_target

_SEED = 20261116


def audit_feature_slopes(question: PosedQuestion, position: int = 0) -> AuditedSlope | None:
    """The slope along the features at one target, both ways; None if the model cannot be run in float64.

    Along a random direction first; where that starts at a kink, along the features themselves, too.
    """
    positions = torch.tensor([position])
    with question.borrowed():
        copies = question.copies(positions)[0]
        target = as_logit(sub_target(question, positions))
        fields = [name for name in ("x", "edge_attr") if _moves(copies.data.get(name))]
        leaves = {name: copies.data[name].detach().clone().requires_grad_() for name in fields}
        call = replace(question.call, changes_input=False)
        with torch.enable_grad():
            value = target.value(call(_moved(copies.data, leaves))[copies.rows]).sum()
        found: tuple[Tensor | None, ...] = (None,) * len(fields)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        gradients = [torch.zeros_like(i) if g is None else g for i, g in zip(leaves.values(), found, strict=True)]
        twin = make_twin(question.call.model)
        slope: AuditedSlope | None = None
        for along in (_random(leaves), {name: leaf.detach() for name, leaf in leaves.items()}):
            parts = [g.double() * along[name].double() for g, name in zip(gradients, fields, strict=True)]
            total, size = (float(sum(p.sum() for p in kind)) for kind in (parts, [p.abs() for p in parts]))
            try:
                if twin.borrowed:
                    raise ModelError(twin.borrowed)
                double = replace(call, model=twin.model.double())
                graph = graph_in_double(copies.data)
                with torch.no_grad():
                    rows = [double(_moved(graph, _stepped(graph, along, t)))[copies.rows] for t in STEPS]
                values = [float(target.value(row)[0]) for row in rows]
            except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
                return slope
            if not is_true(values[0], question, positions):
                return slope
            slope = compared(total, size, values)
            if slope.low == slope.high:
                break
        return slope


def _moves(values: object) -> bool:
    return isinstance(values, Tensor) and values.is_floating_point() and values.numel() > 0


def _random(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """A direction with a number in [−1, 1] for every feature."""
    found = {}
    for number, (name, leaf) in enumerate(leaves.items()):
        ids = torch.arange(leaf.numel(), device=leaf.device)
        drawn = random_numbers.uniform(_SEED, torch.full_like(ids, number), ids)
        found[name] = (2 * drawn - 1).to(leaf.dtype).view(leaf.shape)
    return found


def _stepped(graph: Data, along: dict[str, Tensor], step: float) -> dict[str, Tensor]:
    return {name: graph[name] + step * direction.double() for name, direction in along.items()}


def _moved(graph: Data, values: dict[str, Tensor]) -> Data:
    """The graph with other values; the model may write into them."""
    moved = copy.copy(graph)
    for name, value in values.items():
        moved[name] = value.clone()
    return moved
