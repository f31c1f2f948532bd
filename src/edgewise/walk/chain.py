"""A program cut into a chain of states: what a node hands on from one call to the next.

Walks move from state to state. Usually a state is what the next call reads. Where a residual stream runs beside it, it is the
stream; where no single value stands between two calls (JumpingKnowledge), there is no order of layers for a walk to follow.

Example: conv₀ → relu → conv₁ → linear. The program's values are a = conv₀(x), b = relu(a), c = conv₁(b), d = linear(c).

    call   state   sending   receiving
    0      -       -         a → b by relu
    1      b       -         c → d by linear

With a residual, conv₁(relu(b)) + b, the state before call 1 is still b: sending is b → relu(b), receiving (c, b) → c + b.
"""

from dataclasses import dataclass

from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.walk.tangents import Moving

WHY_NOT = (
    "The model carries {what} past later layers (JumpingKnowledge, or another long skip), so its walks have different "
    "lengths and a walk of one node per layer does not describe them. Explain its edges instead: "
    "ew.explain(model, data, ..., level='layer')."
)


class _EscapeError(Exception):
    """A value does not depend on the given ones alone."""


@dataclass(frozen=True, eq=False)
class Link:
    """Row-wise steps, in order, that lead from given values to one value of the program."""

    steps: tuple[RowStep, ...]
    """Empty: the output is one of the given values."""
    output: int
    """The number of the value that the last step makes."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Per call: the messages, how its senders' features come from their states, and how the next states come to be."""

    messages: tuple[MessageStep, ...]
    """The calls themselves, in order."""
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
    """Refuse a model with long skips that the recorded pass shows already; `bypass` names what goes past later layers."""
    if bypass:
        raise ModelError(WHY_NOT.format(what=f"features of early layers ({bypass[0]})"))


def cut(program: Program, moving: Moving) -> Chain:
    """Cut a program into a chain; raise a `ModelError` that says why if there is none.

    `moving` knows which constants of the program depend on the features.
    """
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
        raise ModelError(WHY_NOT.format(what="features of an early layer")) from error
    _check_constants(moving, receiving, sending)
    return Chain(messages, tuple(states), tuple(sending), tuple(receiving))


def _check_constants(moving: Moving, receiving: list[Link], sending: list[Link | None]) -> None:
    """Refuse links that read, beside their inputs, something that depends on the features.

    Only the link behind the first call may do so (a residual around it), and only row by row.
    """
    for number, link in enumerate([*receiving, *(link for link in sending if link is not None)]):
        for leaf in (leaf for step in link.steps for leaf in step.leaves):
            late = isinstance(leaf, Tensor) or (isinstance(leaf, Rows) and number > 0)
            tensor = leaf.tensor if isinstance(leaf, Rows) else leaf
            if late and moving.tangent(tensor) is not None:
                raise ModelError(WHY_NOT.format(what="the input features"))


def _source(message: MessageStep) -> int:
    """The number of the value that a later call reads; a later call that reads the features is refused."""
    if not isinstance(message.source, Ref):
        raise ModelError(WHY_NOT.format(what="the input features"))
    return message.source.value


class _Cutter:
    """Finds states and links: which step makes each value of a program, and at which place."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.messages = tuple(step for step in program.steps if isinstance(step, MessageStep))
        self.maker = {step.output: step for step in program.steps}
        self.place = {step.output: place for place, step in enumerate(program.steps)}

    def link(self, output: int, stops: "set[int | None]") -> Link:
        """The steps that lead from the values `stops` to `output`; raises `_EscapeError` if another call is on the way."""
        needed: set[int] = set()
        self._collect(output, stops, needed)
        return Link(tuple(self.maker[v] for v in sorted(needed, key=self.place.__getitem__)), output)  # type: ignore[misc]

    def _collect(self, value: int, stops: "set[int | None]", needed: set[int]) -> None:
        """Go back from a value to the stops and note every value on the way."""
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
        """The value between two calls through which alone everything later depends on what came before.

        Candidates are what the call reads, then the values before it, last first. A candidate fits if every earlier value
        that is read from the call on (`crossing`) can be made from it without a message step.
        """
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
        raise ModelError(WHY_NOT.format(what="features of an early layer"))


def _reads(step: RowStep | MessageStep) -> list[int]:
    """The numbers of the values that a step reads."""
    sources = [step.source] if isinstance(step, MessageStep) else step.sources
    return [source.value for source in sources if isinstance(source, Ref)]
