"""The links of a chain: how the steps of a graph task's program are read as sums over edges, matrices and ReLUs."""

from dataclasses import dataclass

from torch import Tensor

from edgewise.program.bends import rectifier
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.operations import plain_name


@dataclass(frozen=True, eq=False)
class ChainLink:
    """A step of the chain: h ↦ relu(M (Σ_e c_e h_u + (r + l_v) h_v) + R h_v + b), or without the sum M h + b."""

    layer: AffineLayer
    """Its matrix, own term and bias; without a call only its matrix and bias count."""
    call: int
    """The number of its call; −1: it sums up nothing."""
    below: float = 1.0
    """The slope below zero of the ReLU behind it; 1: there is none."""


def links_of(program: Program) -> tuple[list[ChainLink], list[RowStep] | None]:
    """The links that a program begins with, and the steps behind them; None: it is no such chain."""
    links: list[ChainLink] = []
    made = -1
    for place, step in enumerate(program.steps):
        link = _link(step, made, links)
        if link is None:
            behind = [other for other in program.steps[place:] if isinstance(other, RowStep)]
            return links, behind if len(behind) == len(program.steps) - place else None
        links, made = link, step.output
    return links, None


def _link(step: RowStep | MessageStep, made: int, links: list[ChainLink]) -> list[ChainLink] | None:
    """The links with another step, which must read the value `made` alone; None if it does not continue them."""
    if isinstance(step, MessageStep):
        first = not links and isinstance(step.source, Rows) and step.source.own_call is None
        if type(step.layer) is not AffineLayer or step.receiver is not None or not (first or step.source == Ref(made)):
            return None
        return [*links, ChainLink(step.layer, step.call)]
    if not links or step.sources != [Ref(made)]:
        return None
    below = rectifier([step])
    if below is not None:
        last = links[-1]
        return None if last.below != 1 else [*links[:-1], ChainLink(last.layer, last.call, below)]
    args, kwargs = step.arguments
    if plain_name(step.function) != "linear" or kwargs or not 2 <= len(args) <= 3 or args[0] != Ref(made):
        return None
    matrix, bias = args[1], args[2] if len(args) == 3 else None
    if not isinstance(matrix, Tensor) or matrix.dim() != 2 or not (bias is None or isinstance(bias, Tensor)):
        return None
    return [*links, ChainLink(AffineLayer(None, matrix, bias=bias), -1)]


def last_made(program: Program, behind: list[RowStep] | None) -> int:
    """The value that the last link makes: the one before the steps behind it."""
    return program.steps[len(program.steps) - len(behind or ()) - 1].output


def widths_of(features: int, links: list[ChainLink]) -> list[int]:
    """`[links + 1]`: how many numbers nodes have before the first link, and behind each."""
    found = [features]
    for link in links:
        found.append(found[-1] if link.layer.matrix is None else link.layer.matrix.size(0))
    return found
