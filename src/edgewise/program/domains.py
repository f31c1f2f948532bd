"""One way to read a program: `interpret` goes through its steps, and a `Domain` says what they mean in its arithmetic.

    numbers with weights   `execution.py`, all targets; `reverse.py`, rows under autograd
    differences            `perturbation_forward.py`: what a missing message changes
    LRP and duals          `walk/lrp.py`: true numbers, the rule's derivative
    duals along features   `walk/tangents.py`: what an encoder in front of the first call makes of them
    two runs               `lift_program.py`: with and without edges, DeepLIFT's multipliers
    two streams            `stream_program.py`: what came through an edge and the rest, DEGREE
    intervals              `trust/interval_program.py`: the program as operations of interval arithmetic

A new arithmetic is a class with `constant` and `operation`, and `messages` if it goes through the calls.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from torch import Tensor

from edgewise.program.ir import MessageStep, Ref, Rows, RowStep

Value = TypeVar("Value")


class Domain(Generic[Value]):
    """What the values of a program are, and how each kind of step makes one.

    >>> import torch; from edgewise.trees import tree_flatten
    >>> class Names(Domain[str]):
    ...     def operation(self, step, sources):
    ...         return f"{step.function.__name__}({', '.join(sources)})"
    >>> leaves, form = tree_flatten(((Ref(0),), {}))
    >>> interpret([RowStep(torch.relu, tuple(leaves), form, output=1, calls_done=1)], Names(), {0: "x"})
    {0: 'x', 1: 'relu(x)'}
    """

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Value:
        """The rows of a constant that a step reads."""
        raise NotImplementedError

    def read(self, value: Value, source: Ref, step: RowStep | MessageStep) -> Value:
        """A value as a step reads it: some of its rows only, say."""
        return value

    def residual(self, value: Value, call: int, kind: int) -> Value:
        """What a node (of a kind) carries around a call; scaled by s where there is one."""
        return value

    def operation(self, step: RowStep, sources: list[Value]) -> Value:
        """The result of a row-wise step."""
        raise NotImplementedError

    def messages(self, step: MessageStep, source: Value, receiver: Value | None = None) -> Value:
        """The result of a call; `receiver` where receivers have a table of their own."""
        raise NotImplementedError


def interpret(
    steps: Iterable[RowStep | MessageStep], domain: Domain[Value], values: dict[int, Value]
) -> dict[int, Value]:
    """Every value of some steps, by its number; `values` are those that the steps start from, and is filled."""

    def sources(step: RowStep | MessageStep) -> list[Value]:
        found = []
        for source in step.sources:
            if isinstance(source, Rows):
                value = domain.constant(source, step)
            else:
                value = domain.read(values[source.value], source, step)
            found.append(value if source.own_call is None else domain.residual(value, source.own_call, step.kind))
        return found

    for step in steps:
        if isinstance(step, MessageStep):
            values[step.output] = domain.messages(step, *sources(step))
        else:
            values[step.output] = domain.operation(step, sources(step))
    return values


class RowNumbers(Domain[Tensor]):
    """Plain numbers of some rows, with or without autograd: row-wise steps alone, no calls.

    Args of the constructor: the rows of a constant, and the self weights `[rows]` of a call, by which a residual is scaled.
    """

    def __init__(self, rows_of: Callable[[Rows], Tensor], own: Callable[[int], Tensor]) -> None:
        self._rows_of, self._own = rows_of, own

    def constant(self, source: Rows, step: RowStep | MessageStep) -> Tensor:
        """The chosen rows of a constant."""
        return self._rows_of(source)

    def residual(self, value: Tensor, call: int, kind: int) -> Tensor:
        """Rows times self weights."""
        return value * self._own(call).to(value.dtype).view(-1, *[1] * (value.dim() - 1))

    def operation(self, step: RowStep, sources: list[Tensor]) -> Tensor:
        """The operation itself."""
        return step.run(sources)


def run_rows(segment: Sequence[RowStep], source: int, rows: Tensor) -> Tensor:
    """What row-wise steps make of the one value that they read, and of nothing else."""

    def nothing(asked: Any) -> Tensor:
        raise AssertionError(f"an element-wise segment reads no constants and no residuals, got {asked}")

    return interpret(segment, RowNumbers(nothing, nothing), {source: rows})[segment[-1].output]
