"""Residuals and long skips in a recorded forward pass.

A residual carries a call's own input around that call, into the next call (or the output): it is a part of how the node hears
itself, so it is scaled with the self weights. What jumps past later calls (JumpingKnowledge, per-layer readouts) belongs to no
single call and is only reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from edgewise.trees import tree_leaves

Key: TypeAlias = "tuple[int, int] | None"
"""A tensor at one moment: its id and its version, because operations in place keep the id. None: not a tensor."""


def keys_of(tree: Any) -> list[Key]:
    """One key for each leaf, in the order of flattening."""
    return [(id(leaf), leaf._version) if isinstance(leaf, Tensor) else None for leaf in tree_leaves(tree)]


@dataclass(frozen=True)
class Operation:
    """One torch operation outside the layers, or one whole layer."""

    name: str
    inputs: list[Key]
    outputs: list[Key]
    position: int = -1
    """Its number among the operations outside the layers; -1 for a layer."""
    jumps: bool = False
    own_input: Key = None
    calls: range = range(0)
    function: Any = None
    """The torch function, or the layer."""
    args: Any = ()
    kwargs: Any = None
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Of the tensors that came out."""

    @property
    def is_layer(self) -> bool:
        """Whether this is a whole message-passing layer."""
        return len(self.calls) > 0


@dataclass(frozen=True)
class Residual:
    """An operation whose `arguments` (numbers of flattened leaves) are a call's own input, carried around that call."""

    position: int
    arguments: tuple[int, ...]
    call: int


def find_skips(operations: list[Operation], output: list[Key]) -> tuple[tuple[Residual, ...], tuple[str, ...]]:
    """The residuals, and the long skips in words."""
    layers = [number for number, operation in enumerate(operations) if operation.is_layer]
    residuals: list[Residual] = []
    bypass: list[str] = []
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        for use in _uses(operations, layer):
            reached = _reached(operations, use, layer)
            if following is not None and following in reached and use < following:
                goes_around = True
            else:
                goes_around = following is None and not bypass and not operations[use].jumps and _hits(reached, output)
            if goes_around and len(operations[layer].calls) == 1:
                residuals.append(_residual(operations[use], operations[layer]))
            elif _hits(reached, output):
                bypass.append(f"{operations[use].name} carries the input of {operations[layer].name} past it")
    return tuple(residuals), tuple(dict.fromkeys(bypass))


def _uses(operations: list[Operation], layer: int) -> Iterator[int]:
    """Operations that read the layer's own input, beside layers; an operation that hands it on unchanged is none."""
    own = operations[layer].own_input
    for number, operation in enumerate(operations):
        if own is not None and own in operation.inputs and own not in operation.outputs and not operation.is_layer:
            yield number


def _reached(operations: list[Operation], start: int, layer: int) -> dict[Any, None]:
    """Numbers of the operations, and keys of the tensors, that depend on an operation other than through the layer."""
    reached: dict[Any, None] = dict.fromkeys(key for key in operations[start].outputs if key is not None)
    for number in range(start + 1, len(operations)):
        if number != layer and any(key in reached for key in operations[number].inputs if key is not None):
            reached[number] = None
            reached.update(dict.fromkeys(key for key in operations[number].outputs if key is not None))
    return reached


def _hits(reached: dict[Any, None], output: list[Key]) -> bool:
    return any(key in reached for key in output if key is not None)


def _residual(operation: Operation, layer: Operation) -> Residual:
    arguments = tuple(i for i, key in enumerate(operation.inputs) if key == layer.own_input)
    return Residual(operation.position, arguments, layer.calls[0])
