"""A lowered program in the few operations that interval arithmetic knows.

`Plan` translates a program into the operations of `interval_operations.py`, in float64, with the tensors of the model as they
are; what is not piecewise linear (attention apart) raises `NotCertifiable` with the reason. `values_at_one.py` runs a plan.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.program.domains import Domain, interpret
from edgewise.program.intervals import TwoSided
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.layers.transformer import TransformerLayer
from edgewise.program.operations import Kind, kind_of, plain_name
from edgewise.trust.attention_operation import Attention, attention_of
from edgewise.trust.interval_operations import EdgeMessages, Join, Messages, Rectify
from edgewise.trust.plan_operations import NotCertifiable, Operation, PlanOperations

__all__ = ["NotCertifiable", "Operation", "Plan"]
_FLOATING = ("float", "double")
_SCATTERS = ("scatter_add", "scatter_reduce")


@dataclass
class Plan(PlanOperations, Domain[Any]):
    """A program as operations in order; `constants` are values that no edge weight changes, such as the features.

    The program of a two-layer GCN with ReLU becomes Messages (0 → 1), Rectify (1 → 2), Messages (2 → 3): value 0 is a
    constant, value 3 the output. As a domain, what it makes of a step of the program is a reference to a value of the plan, a
    tuple of them for a stack, or a tensor that only took the shape of a value.
    """

    @staticmethod
    def of(program: Program, num_nodes: int, owner: Tensor | None = None, num_graphs: int = 0) -> "Plan":
        """Translate a program, or raise `NotCertifiable` with the reason; `owner` `[N]` is the graph of each node."""
        if not program.is_chain:
            raise NotCertifiable("its layers have several message-passing calls side by side")
        plan = Plan(num_nodes, owner, num_graphs)
        found = interpret(program.steps, plan, {})[program.output]
        if not isinstance(found, Ref):
            raise NotCertifiable("what the model returns is a stack of values")
        plan.output = found.value
        return plan

    @property
    def is_affine(self) -> bool:
        """Whether every call is affine in what it receives."""
        return not any(isinstance(operation, (Attention, EdgeMessages)) for operation in self.operations)

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Ref:
        """A new value that no weight changes."""
        value = self._new()
        self.constants[value] = source.tensor.detach().double()
        return Ref(value)

    def messages(self, step: MessageStep, source: Any, receiver: Any = None) -> Ref:
        """A message-passing call: one that is affine in what it receives, has a kink on each edge, or attention."""
        layer = step.layer
        if receiver is not None:
            raise NotCertifiable(f"call {step.call} reads two tables of features ({type(layer).__name__})")
        if isinstance(layer, (AttentionLayer, TransformerLayer)):
            output = self._new()
            self.operations.append(attention_of(layer, self._value(source).value, output, step.call))
            return Ref(output)
        if isinstance(layer, EdgeReluLayer):
            one = torch.ones((), dtype=torch.double, device=layer.edge_features.device)
            kink, features = Rectify(-1, -1, torch.zeros_like(one), one), layer.edge_features.detach().double()
            return self._add(
                EdgeMessages, self._value(source).value, step.call, features, layer.root.double().view(()), kink
            )
        if not isinstance(layer, AffineLayer):
            raise NotCertifiable(f"call {step.call} ({type(layer).__name__}) is not known to be piecewise linear")
        exact = _double(layer)
        root = TwoSided.of(exact.root) if isinstance(exact.root, Tensor) else None
        matrix = None if exact.matrix is None else TwoSided.of(exact.matrix)
        return self._add(Messages, self._value(source).value, step.call, exact, matrix, root)

    def operation(self, step: RowStep, sources: list[Any]) -> Any:
        """An operation between calls, by its name and kind; a `Ref` among the arguments stands for a value of the plan."""
        args, kwargs = step.filled(sources)
        name, kind = plain_name(step.function), kind_of(step.function, args)
        try:
            found = self._by_name(name, args, kwargs)
            return self._by_kind(step.function, name, kind, args, kwargs) if found is None else found
        except (IndexError, KeyError, AttributeError, TypeError) as error:
            raise NotCertifiable(f"{name} is called in a way that is not followed ({error})") from error

    def _by_name(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation with a meaning of its own makes; None for any other."""
        if name in _SCATTERS:
            return self._scatter(name, *args, **kwargs)
        if name == "expand_as" and isinstance(args[0], Tensor):
            return args[0]  # the same numbers, in the shape of a value
        if name == "softshrink":
            return self._soft_shrink(*args, **kwargs)
        if name == "hardsigmoid":
            return self._hard_sigmoid(args[0])
        if name == "stack" and kwargs.get("dim", args[1] if len(args) > 1 else 0) in (-1, 1, 2):
            return tuple(self._value(part) for part in args[0])
        return None

    def _by_kind(self, function: Any, name: str, kind: Kind | None, args: Any, kwargs: Any) -> Any:
        followed = {
            Kind.RECTIFIER: lambda: self._bent(function, args, kwargs),
            Kind.LINEAR: lambda: self._linear(name, *args, **kwargs),
            Kind.SCALE: lambda: self._product(name, *args, **kwargs),
            Kind.SUM: lambda: self._sum_of(name, *args, **kwargs),
            Kind.JOIN: lambda: self._add(Join, tuple(self._value(part).value for part in args[0])),
            Kind.NORM: lambda: self._batch_norm(args, kwargs),
            Kind.POOL: lambda: self._pool_of(name, *args, **kwargs),
            Kind.UNCHANGED: lambda: self._value(args[0]),  # between float32 and float64; else it is no step
        }
        other = {Kind.JOIN: name == "stack", Kind.NORM: name != "batch_norm", Kind.UNCHANGED: name not in _FLOATING}
        if kind is None or kind not in followed or other.get(kind):
            raise NotCertifiable(f"{name or function} is not known to be piecewise linear")
        return followed[kind]()


def _double(layer: AffineLayer) -> AffineLayer:
    """The layer in float64, exactly: every float32 number is a float64 number."""
    names = ("coefficient", "matrix", "loop", "root", "bias")
    given = {name: getattr(layer, name) for name in names}
    return replace(layer, **{n: t.detach().double() for n, t in given.items() if isinstance(t, Tensor)})
