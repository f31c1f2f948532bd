"""Where the values of a program stand in the rows that walks carry, if calls stand side by side.

Before the calls of a depth, a node's state is all that later steps read of it: the values of its kind that cross that line.
Behind the calls, what a node sums up is the results of the calls into its kind; those that are only added up share their
columns. A value that crosses two lines has skipped a depth, and so has no place in a walk of one node a layer.
"""

from dataclasses import dataclass, field

from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep
from edgewise.program.operations import Kind, kind_of
from edgewise.walk.chain import WHY_NOT
from edgewise.walk.tangents import Moving


@dataclass(eq=False)
class Layout:
    """Columns by value. `states[c]` are those before the calls of depth c (nothing for 0), `sums[c]` those behind them."""

    states: list[dict[int, slice]] = field(default_factory=list)
    sums: list[dict[int, slice]] = field(default_factory=list)
    shared: list[dict[int, int]] = field(default_factory=list)
    """Per depth: for each result of a call, the first one that shares its columns."""

    def width(self, depth: int) -> int:
        """How many numbers a state before the calls of a depth has."""
        return max([1, *(place.stop for place in self.states[depth].values())])

    def sum_width(self, depth: int) -> int:
        """How many numbers a node sums up in the calls of a depth."""
        return max([1, *(place.stop for place in self.sums[depth].values())])


def lay_out(program: Program, widths: dict[int, int], moving: Moving, *, share: bool) -> Layout:
    """The columns of all states and sums; raises `ModelError` if a value skips a depth.

    Args:
        program: The program.
        widths: How many columns each value has.
        moving: Which constants depend on the features.
        share: Whether results that are only added up share their columns.
    """
    _check_constants(program, moving)
    kinds = {step.output: step.kind for step in program.steps}
    found = Layout()
    for depth in range(program.num_calls):
        found.states.append(_packed(_crossing(program, depth) if depth else [], kinds, widths))
        shared = (
            _shared(program, depth, widths) if share else {step.output: step.output for step in program.calls_of(depth)}
        )
        found.shared.append(shared)
        first = _packed([value for value, rep in shared.items() if rep == value], kinds, widths)
        found.sums.append({value: first[rep] for value, rep in shared.items()})
    return found


def _packed(values: list[int], kinds: dict[int, int], widths: dict[int, int]) -> dict[int, slice]:
    """Columns for values, side by side; those of different kinds lie in rows of different nodes, so they may overlap."""
    used: dict[int, int] = {}
    found = {}
    for value in values:
        start = used.get(kinds[value], 0)
        used[kinds[value]] = start + widths[value]
        found[value] = slice(start, start + widths[value])
    return found


def _made_at(step: RowStep | MessageStep) -> int:
    """After how many calls a value is made."""
    return step.call + 1 if isinstance(step, MessageStep) else step.calls_done


def _read_at(step: RowStep | MessageStep) -> int:
    """After how many calls a step reads."""
    return step.call if isinstance(step, MessageStep) else step.calls_done


def _crossing(program: Program, depth: int) -> list[int]:
    """The values before the calls of a depth that the calls, or anything behind them, read."""
    made = {step.output: _made_at(step) for step in program.steps}
    found: dict[int, None] = {}
    for step in program.steps:
        behind = step.call >= depth if isinstance(step, MessageStep) else step.calls_done > depth
        for source in step.sources if behind else []:
            if isinstance(source, Ref) and made[source.value] <= depth:
                if made[source.value] < depth or not _goes_around(program, depth, source, step):
                    raise ModelError(WHY_NOT.format(what="features of an early layer"))
                found[source.value] = None
    return list(found)


def _goes_around(program: Program, depth: int, source: Ref, step: RowStep | MessageStep) -> bool:
    """Whether a value is read by a call of the depth, or carried around one: by its own term, or as what a call reads, too."""
    if isinstance(step, MessageStep) or source.own_call is not None:
        return _read_at(step) == depth or not isinstance(step, MessageStep)
    mine = _before(program, source.value)
    for call in program.calls_of(depth):
        for read in call.sources:
            if isinstance(read, Ref) and (read.value in mine or source.value in _before(program, read.value)):
                return True
    return False


def _before(program: Program, value: int) -> set[int]:
    """A value, and the values of which row-wise steps made it."""
    maker = {step.output: step for step in program.steps}
    found, waiting = set(), [value]
    while waiting:
        one = waiting.pop()
        found.add(one)
        step = maker[one]
        if isinstance(step, RowStep):
            waiting += [s.value for s in step.sources if isinstance(s, Ref) and s.value not in found]
    return found


def _check_constants(program: Program, moving: Moving) -> None:
    """Refuse steps behind the first calls that read something that depends on the features."""
    for step in program.steps:
        first = step.call == 0 if isinstance(step, MessageStep) else step.calls_done == 1
        leaves = step.sources if isinstance(step, MessageStep) else step.leaves
        for leaf in leaves:
            tensor = leaf.tensor if isinstance(leaf, Rows) else leaf
            late = not first or not isinstance(leaf, Rows)
            if isinstance(tensor, Tensor) and late and moving.tangent(tensor) is not None:
                raise ModelError(WHY_NOT.format(what="the input features"))


def _shared(program: Program, depth: int, widths: dict[int, int]) -> dict[int, int]:
    """For each result of a call, the first one to which it is only added: derivatives by both are the same.

    A sum of results, and of what does not depend on them, is one group if nothing else reads its parts.
    """
    segment = program.segments[depth]
    readers: dict[int, int] = {}
    for step in program.steps:
        for source in step.sources:
            if isinstance(source, Ref):
                readers[source.value] = readers.get(source.value, 0) + 1
    readers[program.output] = readers.get(program.output, 0) + 1
    group = {step.output: {step.output} for step in program.calls_of(depth)}  # value ↦ results that were added up in it
    moved = set(group)
    together = dict(group)
    for step in segment:
        refs = [source for source in step.sources if isinstance(source, Ref)]
        mine = [ref.value for ref in refs if ref.value in moved]
        if mine:
            moved.add(step.output)
        is_sum = kind_of(step.function) is Kind.SUM and step.function.__name__.strip("_") in ("add", "radd", "iadd")
        plain = is_sum and all(isinstance(leaf, (Ref, Rows)) for leaf in step.leaves)
        wide = all(widths[value] == widths[step.output] for value in mine)
        if mine and plain and wide and all(value in together and readers[value] == 1 for value in mine):
            joined: set[int] = set().union(*(together[value] for value in mine))
            together[step.output] = joined
            for value in joined:
                group[value] = joined
    widest = {
        step.output: max((g for g in together.values() if step.output in g), key=len)
        for step in program.calls_of(depth)
    }
    return {value: min(members) for value, members in widest.items()}
