"""A lowered program in the few operations that interval arithmetic knows, and its bounds at ω = 1.

`Plan` translates a program into the operations of `intervals.py`, in float64, with the tensors of the model as they are; what
is not piecewise linear raises `NotCertifiable` with the reason. `AtOne` runs the plan once, on the whole graph.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.program.bends import bends
from edgewise.program.domains import Domain, interpret
from edgewise.program.intervals import Interval, TwoSided
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.operations import Kind, kind_of, plain_name
from edgewise.program.perturbation import Differences
from edgewise.trust.interval_operations import Affine, Join, Messages, Operation, Rectify, Sum

_FLOATING = ("float", "double")


class NotCertifiable(Exception):  # noqa: N818 (it names a state of affairs; users read it as `reason`)
    """The reason why nothing can be proved about a model this way."""


@dataclass
class Plan(Domain[Ref]):
    """A program as operations in order; `constants` are values that no edge weight changes, such as the features.

    The program of a two-layer GCN with ReLU becomes Messages (0 → 1), Rectify (1 → 2), Messages (2 → 3): value 0 is a
    constant, value 3 the output. As a domain, what it makes of a step of the program is a reference to a value of the plan.
    """

    operations: list[Operation] = field(default_factory=list)
    constants: dict[int, Tensor] = field(default_factory=dict)
    output: int = -1
    _count: int = 0

    @staticmethod
    def of(program: Program) -> "Plan":
        """Translate a program, or raise `NotCertifiable` with the reason."""
        if not program.is_chain:
            raise NotCertifiable("its layers have several message-passing calls side by side")
        plan = Plan()
        plan.output = interpret(program.steps, plan, {})[program.output].value
        return plan

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, kind: Any, *args: Any, **parts: Any) -> Ref:
        """A new operation; a reference to the value that it makes. The first argument is what it reads."""
        reads, *rest = args
        output = self._new()
        self.operations.append(kind(reads, output, *rest, **parts))
        return Ref(output)

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Ref:
        """A new value that no weight changes."""
        value = self._new()
        self.constants[value] = source.tensor.detach().double()
        return Ref(value)

    def messages(self, step: MessageStep, source: Ref, receiver: Ref | None = None) -> Ref:
        """A message-passing call; only layers that are affine in what they receive are followed."""
        if not isinstance(step.layer, AffineLayer):
            raise NotCertifiable(f"call {step.call} is not affine in what it receives ({type(step.layer).__name__})")
        layer = _double(step.layer)
        root = TwoSided.of(layer.root) if isinstance(layer.root, Tensor) else None
        matrix = None if layer.matrix is None else TwoSided.of(layer.matrix)
        return self._add(Messages, source.value, step.call, layer, matrix, root)

    def operation(self, step: RowStep, sources: list[Ref]) -> Ref:
        """An operation between calls, by its kind; a `Ref` among the arguments stands for a value of the plan."""
        args, kwargs = step.filled(sources)
        name, kind = plain_name(step.function), kind_of(step.function, args)
        followed = {
            Kind.RECTIFIER: lambda: self._bent(step.function, args, kwargs),
            Kind.LINEAR: lambda: self._linear(name, *args, **kwargs),
            Kind.SCALE: lambda: self._product(name, *args, **kwargs),
            Kind.SUM: lambda: self._sum_of(name, *args, **kwargs),
            Kind.JOIN: lambda: self._add(Join, tuple(part.value for part in args[0])),
            Kind.NORM: lambda: self._batch_norm(args, kwargs),
            Kind.UNCHANGED: lambda: self._value(args[0]),  # between float32 and float64; else it is no step
        }
        other = {Kind.JOIN: name == "stack", Kind.NORM: name != "batch_norm", Kind.UNCHANGED: name not in _FLOATING}
        if kind not in followed or other.get(kind):
            raise NotCertifiable(f"{name or step.function} is not known to be piecewise linear")
        try:
            return followed[kind]()
        except (IndexError, KeyError, AttributeError, TypeError) as error:
            raise NotCertifiable(f"{name} is called in a way that is not followed ({error})") from error

    @staticmethod
    def _value(given: Any) -> Ref:
        if not isinstance(given, Ref):
            raise TypeError("what it reads is not a value of the model")
        return given

    def _bent(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        """A function with kinks, one after the other: each is a kink at 0, with shifts around it."""
        name = plain_name(function)
        if name in ("maximum", "minimum", "max", "min") and self._is_fixed(args[0]):
            args = (args[1], args[0])
        found = bends(function, args, kwargs)
        if found is None:
            raise NotCertifiable(f"{name} has a jump, or is not followed with these arguments")
        value = self._value(found[0])
        for bend in found[1]:
            at = self._plain(bend.at)
            shifted = value if at is None else self._sum(value, at, -1)
            below, above = (_double_of(part) for part in (bend.below, bend.above))
            bent = self._add(Rectify, shifted.value, below, above, bend.is_off_at_kink, bend.is_on_at_kink)
            value = bent if at is None else self._sum(bent, at, 1)
        return value

    def _plain(self, given: Any) -> Any:
        """A number, tensor or value; None if it is 0 wherever it is read."""
        numbers = self.constants.get(given.value) if isinstance(given, Ref) else _double_of(given)
        return None if numbers is not None and not bool(numbers.any()) else given

    def _linear(self, name: str, input: Any, weight: Any, bias: Any = None) -> Ref:  # noqa: A002 (torch's name)
        matrix = weight.detach().double()
        two_sided = TwoSided.of(matrix.t() if name == "matmul" else matrix)
        return self._affine(input, matrix=two_sided, shift=None if bias is None else _point(bias))

    def _affine(self, source: Any, **parts: Any) -> Ref:
        return self._add(Affine, self._value(source).value, **parts)

    def _product(self, name: str, input: Any, other: Any = -1, rounding_mode: Any = None) -> Ref:  # noqa: A002
        """A value times, or divided by, what no edge weight changes."""
        if rounding_mode is not None:
            raise NotCertifiable(f"{name} with rounding_mode has jumps")
        if name not in ("neg", "div", "divide", "truediv", "true_divide") and self._is_fixed(input):
            input, other = other, input  # noqa: A001
        if not self._is_fixed(other) or self._is_fixed(input):
            raise NotCertifiable(f"{name} of two values that edges change is not piecewise linear")
        factor = self._numbers(other)
        return self._affine(input, scale=factor if name in ("neg", "mul", "rmul", "multiply") else 1 / factor)

    def _is_fixed(self, given: Any) -> bool:
        """Whether no edge weight changes it."""
        return not isinstance(given, Ref) or given.value in self.constants

    def _numbers(self, given: Any) -> Tensor:
        """A constant in float64: one number, `[width]`, or `[N, width]`."""
        if isinstance(given, Ref):
            return self.constants[given.value]
        found = _double_of(given)
        if found.dim() > 2 or (found.dim() == 2 and len(found) != 1):
            raise TypeError(f"a constant of shape {list(found.shape)}")
        return found.view(-1) if found.numel() > 1 else found.view(())

    def _sum_of(self, name: str, input: Any, other: Any, alpha: float = 1) -> Ref:  # noqa: A002 (torch's names)
        """A sum or difference of values and constants."""
        if alpha != 1:
            raise NotCertifiable(f"{name} with alpha")
        if name == "rsub":
            return self._sum(other, input, -1)
        return self._sum(input, other, -1 if name in ("sub", "isub", "subtract") else 1)

    def _sum(self, first: Any, second: Any, sign: int) -> Ref:
        """First + sign · second, where one of them may be a constant."""
        if isinstance(first, Ref) and isinstance(second, Ref):
            return self._add(Sum, (first.value, second.value), sign)
        if isinstance(first, Ref):
            return self._affine(first, shift=Interval.point(sign * self._numbers(second)))
        scale = torch.tensor(float(sign), dtype=torch.double)
        return self._affine(second, scale=scale, shift=Interval.point(self._numbers(first)))

    def _batch_norm(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ref:
        """With the statistics of training: a number for each column, and a shift."""
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        scale = (given["running_var"].detach().double() + given.get("eps", 1e-5)).rsqrt()
        if given.get("weight") is not None:
            scale = scale * given["weight"].detach().double()
        centred = self._affine(given["input"], shift=_point(-given["running_mean"]))
        return self._affine(centred, scale=scale, shift=None if given.get("bias") is None else _point(given["bias"]))


def _double_of(given: Any) -> Tensor:
    """A number or tensor in float64; a Python number must not go through torch's default float32."""
    return given.detach().double() if isinstance(given, Tensor) else torch.tensor(float(given), dtype=torch.double)


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
        self._everyone = torch.arange(self.num_nodes, device=self._in_edges.edge.device)
        for operation in plan.operations:
            self.value[operation.output] = found = self._run(operation)
            self._check_width(operation, found)

    def _check_width(self, operation: Operation, found: Interval) -> None:
        """Refuse a value whose rows are repeated to fit another: gradients would have to be added up on the way back."""
        if isinstance(operation, (Messages, Join)) or (isinstance(operation, Affine) and operation.matrix is not None):
            return
        for value in operation.reads:
            before, after = self.value[value].lo.size(1), found.lo.size(1)
            if before != after and value not in self.plan.constants:
                raise NotCertifiable(f"a row of {before} numbers is repeated to fit {after}")

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
        found = operation.linear(rows[0], self._everyone)
        return found if operation.shift is None else found + operation.shift

    def _received(self, step: Messages) -> Interval:
        """What every node receives in a call, with own terms and bias."""
        rows, graph, everyone = self.value[step.source], self._in_edges, self._everyone
        sent = self.sent[step.call] = step.sent(rows)
        messages = sent.outward(self.most).rows(graph.sender).scaled(step.coefficients(graph.edge))
        total = messages.sums(torch.repeat_interleave(everyone, graph.start.diff()), self.num_nodes)
        for extra in (step.own(sent, rows, everyone), _shift(step.layer.bias)):
            total = total if extra is None else total + extra
        return total


def _shift(bias: Tensor | None) -> Interval | None:
    return None if bias is None else Interval.point(bias)
