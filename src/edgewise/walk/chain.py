"""A program cut into a chain of states: what a node hands on from one call to the next.

Walks move from state to state. Usually a state is what the next call reads. Where a residual stream runs beside it, it is the
stream; where no single value stands between two calls (JumpingKnowledge), there is no order of layers for a walk to follow.
"""

from dataclasses import dataclass

from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.walk.tangents import Moving

_WHY_NOT = (
    "The model carries {what} past later layers (JumpingKnowledge, or another long skip), so its walks have different "
    "lengths and a walk of one node per layer does not describe them. Explain its edges instead: "
    "ew.explain(model, data, ..., level='layer')."
)


class _EscapeError(Exception):
    """A value does not depend on the given ones alone."""


@dataclass(frozen=True, eq=False)
class Link:
    """Row-wise steps, in order, that lead to a value."""

    steps: tuple[RowStep, ...]
    output: int


@dataclass(frozen=True, eq=False)
class Chain:
    """Per call: the messages, how its senders' features come from their states, and how the next states come to be."""

    messages: tuple[MessageStep, ...]
    states: tuple[int | None, ...]
    """Per call: the value that is its senders' state; None for the first (features)."""
    sending: tuple[Link | None, ...]
    """Per call: from the state to what the call reads; None: the same."""
    receiving: tuple[Link, ...]
    """Per call: from what it summed up (and its own state, through a residual) to the next state; the last: to the output."""

    @property
    def num_calls(self) -> int:
        """How many calls there are."""
        return len(self.messages)


def refuse_skips(bypass: tuple[str, ...]) -> None:
    """Long skips that the recorded pass shows already."""
    if bypass:
        raise ModelError(_WHY_NOT.format(what=f"features of early layers ({bypass[0]})"))


def cut(program: Program, moving: Moving) -> Chain:
    """The chain of a program, or an error that says why there is none."""
    cutter = _Cutter(program)
    messages = cutter.messages
    states: list[int | None] = [None, *(cutter.state(call) for call in range(1, len(messages)))]
    sending: list[Link | None] = [None]
    receiving = []
    try:
        for call in range(1, len(messages)):
            link = cutter.link(_source(messages[call]), {states[call]})
            sending.append(link if link.steps else None)
        for call, message in enumerate(messages):
            following = states[call + 1] if call + 1 < len(messages) else None
            end = program.output if following is None else following
            receiving.append(cutter.link(end, {message.output, states[call]}))
    except _EscapeError as error:
        raise ModelError(_WHY_NOT.format(what="features of an early layer")) from error
    _check_constants(moving, receiving, sending)
    return Chain(messages, tuple(states), tuple(sending), tuple(receiving))


def _check_constants(moving: Moving, receiving: list[Link], sending: list[Link | None]) -> None:
    """Only what follows the first call may read what the features became before it, and only row by row."""
    for number, link in enumerate([*receiving, *(link for link in sending if link is not None)]):
        for leaf in (leaf for step in link.steps for leaf in step.leaves):
            late = isinstance(leaf, Tensor) or (isinstance(leaf, Rows) and number > 0)
            tensor = leaf.tensor if isinstance(leaf, Rows) else leaf
            if late and moving.tangent(tensor) is not None:
                raise ModelError(_WHY_NOT.format(what="the input features"))


def _source(message: MessageStep) -> int:
    if not isinstance(message.source, Ref):
        raise ModelError(_WHY_NOT.format(what="the input features"))
    return message.source.value


class _Cutter:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.messages = tuple(step for step in program.steps if isinstance(step, MessageStep))
        self.maker = {step.output: step for step in program.steps}
        self.place = {step.output: place for place, step in enumerate(program.steps)}

    def link(self, output: int, stops: "set[int | None]") -> Link:
        """The steps from some values to another."""
        needed: set[int] = set()
        self._collect(output, stops, needed)
        return Link(tuple(self.maker[v] for v in sorted(needed, key=self.place.__getitem__)), output)  # type: ignore[misc]

    def _collect(self, value: int, stops: "set[int | None]", needed: set[int]) -> None:
        if value in stops or value in needed:
            return
        step = self.maker[value]
        if isinstance(step, MessageStep):
            raise _EscapeError
        needed.add(value)
        for source in step.sources:
            if isinstance(source, Ref):
                self._collect(source.value, stops, needed)

    def state(self, call: int) -> int:
        """The last value between two calls through which alone everything later depends on what came before."""
        begin, end = self.place[self.messages[call - 1].output], self.place[self.messages[call].output]
        crossing = {value for step in self.program.steps[end:] for value in _reads(step) if self.place[value] < end}
        between = [step.output for step in self.program.steps[begin:end]]
        for candidate in [_source(self.messages[call]), *reversed(between)]:
            try:
                for value in crossing:
                    self.link(value, {candidate})
            except _EscapeError:
                continue
            return candidate
        raise ModelError(_WHY_NOT.format(what="features of an early layer"))


def _reads(step: RowStep | MessageStep) -> list[int]:
    sources = [step.source] if isinstance(step, MessageStep) else step.sources
    return [source.value for source in sources if isinstance(source, Ref)]
