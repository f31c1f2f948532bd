"""A lowered program in the few operations that interval arithmetic knows, and its bounds at ω = 1.

`Plan` translates a program into the operations of `interval_operations.py`, in float64, with the tensors of the model as they
are; what is not piecewise linear raises `NotCertifiable` with the reason. `AtOne` runs the plan once, on the whole graph.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.operations import Place, RowFunction, plain_name
from edgewise.program.perturbation import Differences
from edgewise.trees import tree_unflatten
from edgewise.trust.interval_operations import ROUNDED, Affine, Join, Messages, Operation, Rectify, Sum
from edgewise.trust.intervals import Interval, TwoSided


class NotCertifiable(Exception):  # noqa: N818 (it names a state of affairs; users read it as `reason`)
    """The reason why nothing can be proved about a model this way."""


@dataclass
class Plan:
    """A program as operations in order; `constants` are values that no edge weight changes, such as the features.

    The program of a two-layer GCN with ReLU becomes Messages (0 → 1), Rectify (1 → 2), Messages (2 → 3): value 0 is a
    constant, value 3 the output.
    """

    operations: list[Operation] = field(default_factory=list)
    constants: dict[int, Tensor] = field(default_factory=dict)
    output: int = -1
    _name: dict[int, int] = field(default_factory=dict)
    """Value of the program → value of the plan: an operation that changes nothing makes no new one."""
    _count: int = 0

    @staticmethod
    def of(program: Program) -> "Plan":
        """Translate a program, or raise `NotCertifiable` with the reason."""
        plan = Plan()
        for step in program.steps:
            if isinstance(step, MessageStep):
                plan._name[step.output] = plan._messages(step)
            else:
                plan._name[step.output] = plan._row_step(step)
        plan.output = plan._name[program.output]
        return plan

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _constant(self, rows: Tensor) -> int:
        """The number of a new value that no weight changes."""
        value = self._new()
        self.constants[value] = rows.double()
        return value

    def _value(self, source: Ref | Rows) -> int:
        """The number of the value that a step of the program reads."""
        return self._name[source.value] if isinstance(source, Ref) else self._constant(source.tensor)

    def _messages(self, step: MessageStep) -> int:
        """A message-passing call; only layers that are affine in what they receive are followed."""
        if not isinstance(step.layer, AffineLayer):
            raise NotCertifiable(f"call {step.call} is not affine in what it receives ({type(step.layer).__name__})")
        layer = _double(step.layer)
        root = TwoSided.of(layer.root) if isinstance(layer.root, Tensor) else None
        matrix = None if layer.matrix is None else TwoSided.of(layer.matrix)
        source, output = self._value(step.source), self._new()
        self.operations.append(Messages(source, output, step.call, layer, matrix, root))
        return output

    def _row_step(self, step: RowStep) -> int:
        """An operation between calls: a torch function, or the inner network of a layer."""
        leaves = [self._value(leaf) if isinstance(leaf, (Ref, Rows)) else leaf for leaf in step.leaves]
        marked = [
            Place(value) if isinstance(leaf, (Ref, Rows)) else leaf
            for value, leaf in zip(leaves, step.leaves, strict=True)
        ]
        args, kwargs = tree_unflatten(marked, step.form)
        if isinstance(step.function, RowFunction):
            return self._network(step.function, args[0].value)
        return self._operation(step.function, list(args), dict(kwargs))

    def _network(self, network: RowFunction, source: int) -> int:
        """The inner network of a layer (such as GIN's), operation by operation."""
        values = [source]
        for function, leaves, form in network.operations:
            marked = [Place(values[leaf.value]) if isinstance(leaf, Place) else leaf for leaf in leaves]
            args, kwargs = tree_unflatten(marked, form)
            values.append(self._operation(function, list(args), dict(kwargs)))
        return values[-1]

    def _operation(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> int:
        """One row-wise operation; a `Place` stands for a value of the plan."""
        if isinstance(function, partial):
            function, kwargs = function.func, {**function.keywords, **kwargs}
        name = plain_name(function)
        known = {
            **dict.fromkeys(("dropout", "alpha_dropout", "contiguous", "clone"), self._unchanged),
            **dict.fromkeys(("relu", "leaky_relu"), self._rectify),
            **dict.fromkeys(("linear", "matmul"), self._linear),
            **dict.fromkeys(("add", "radd", "sub"), self._sum),
            **dict.fromkeys(("cat", "concat"), self._join),
            "batch_norm": self._batch_norm,
        }
        if name not in known:
            raise NotCertifiable(f"{name or function} is not known to be piecewise linear")
        try:
            return known[name](name, args, kwargs)
        except (IndexError, KeyError, AttributeError, TypeError) as error:
            raise NotCertifiable(f"{name} is called in a way that is not followed ({error})") from error

    def _unchanged(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        value: int = args[0].value
        return value

    def _rectify(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        slope = 0.0
        if name == "leaky_relu":
            slope = float(args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01))
        if not 0 <= slope <= 1:
            raise NotCertifiable(f"leaky_relu with negative_slope={slope} is not between 0 and 1")
        output = self._new()
        self.operations.append(Rectify(args[0].value, output, slope))
        return output

    def _linear(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        matrix = args[1] if len(args) > 1 else kwargs["weight"]
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        if name == "matmul":
            matrix = matrix.t()
        two_sided, shift = TwoSided.of(matrix.detach().double()), None if bias is None else _point(bias)
        return self._affine(args[0].value, matrix=two_sided, shift=shift)

    def _affine(self, source: int, **parts: Any) -> int:
        output = self._new()
        self.operations.append(Affine(source, output, **parts))
        return output

    def _batch_norm(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        scale = (given["running_var"].detach().double() + given.get("eps", 1e-5)).rsqrt()
        if given.get("weight") is not None:
            scale = scale * given["weight"].detach().double()
        shift = _point(-given["running_mean"]).times(scale).outward(ROUNDED)
        if given.get("bias") is not None:
            shift = shift + _point(given["bias"])
        return self._affine(given["input"].value, scale=scale, shift=shift)

    def _sum(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        first, second = args
        if kwargs.get("alpha", 1) != 1:
            raise NotCertifiable(f"{name} with alpha")
        if not isinstance(first, Place) and name != "sub":
            first, second = second, first
        if isinstance(second, Place):
            output = self._new()
            self.operations.append(Sum((first.value, second.value), output, -1.0 if name == "sub" else 1.0))
            return output
        shift = torch.as_tensor(second)
        return self._affine(first.value, shift=_point(-shift if name == "sub" else shift))

    def _join(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        output = self._new()
        self.operations.append(Join(tuple(part.value for part in args[0]), output))
        return output


def _point(rows: Tensor) -> Interval:
    return Interval.point(rows.detach().double())


def _double(layer: AffineLayer) -> AffineLayer:
    """The layer in float64, exactly: every float32 number is a float64 number."""
    names = ("coefficient", "matrix", "loop", "root", "bias")
    given = {name: getattr(layer, name) for name in names}
    return replace(layer, **{n: t.detach().double() for n, t in given.items() if isinstance(t, Tensor)})


# --- Bounds of every value of every node at ω = 1: the model itself, up to rounding ------------------------------------


_OTHER_TERMS = 4  # added to the messages that a node receives: its own terms, the bias, its weighted edge


class AtOne:
    """`value[v]` are the bounds of a value, `[N, width]`; `sent[call]` those of what every node sends in a call."""

    def __init__(self, plan: Plan, graph: Differences) -> None:
        self.plan, self.graph = plan, graph
        self._in_edges = graph.lowering.in_edges
        self.num_nodes = self._in_edges.num_nodes
        self.most = int(self._in_edges.start.diff().max()) + _OTHER_TERMS
        self.value = {value: Interval.point(rows) for value, rows in plan.constants.items()}
        self.sent: dict[int, Interval] = {}
        for operation in plan.operations:
            self.value[operation.output] = self._run(operation)

    def _run(self, operation: Operation) -> Interval:
        if isinstance(operation, Messages):
            return self._received(operation)
        rows = [self.value[value] for value in operation.reads]
        if isinstance(operation, Rectify):
            return operation(rows[0])
        if isinstance(operation, Sum):
            return rows[0] + (rows[1] if operation.sign > 0 else -rows[1])
        if isinstance(operation, Join):
            return Interval.join(rows)
        found = operation.linear(rows[0])
        return found if operation.shift is None else found + operation.shift

    def _received(self, step: Messages) -> Interval:
        """What every node receives in a call, with own terms and bias."""
        rows, graph = self.value[step.source], self._in_edges
        everyone = torch.arange(self.num_nodes, device=graph.edge.device)
        sent = self.sent[step.call] = step.sent(rows)
        messages = sent.outward(self.most).rows(graph.sender).scaled(step.coefficients(graph.edge))
        total = messages.sums(torch.repeat_interleave(everyone, graph.start.diff()), self.num_nodes)
        for extra in (step.own(sent, rows, everyone), _shift(step.layer.bias)):
            total = total if extra is None else total + extra
        return total


def _shift(bias: Tensor | None) -> Interval | None:
    return None if bias is None else Interval.point(bias)
