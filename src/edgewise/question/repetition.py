"""A model that is random cannot be explained: it is run twice, and what it draws is followed to its output."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.model.generators import SystemDraws, has_state, states_of, torch_states
from edgewise.model.random_draws import reaches_output, run_seen
from edgewise.model.trace import Trace
from edgewise.question.equality import NOT_REPEATABLE, close

_TIMES = 3
_UNSEEN = (
    "forward draws numbers from a generator of Python or numpy in each pass, although the model is in eval mode. Whether they "
    "reach the output cannot be seen. Draw only in training: if self.training: p = random.random()."
)
_STAYS = " What was drawn from a generator that the whole process shares stays drawn."


class Repetition:
    """Whether a model gives the same once more, asked when it has to be.

    A pass that moved no generator needs no second one where the model is proved to be a program: a program draws nothing, and
    two passes of the model have been compared with it.
    """

    def __init__(self, record: Callable[[], Trace], run: Callable[[bool], Tensor], generators: list[Any]) -> None:
        """`run` makes a pass; with True the model gets a copy of the features, into which it may write."""
        before = torch_states(), states_of(generators)
        try:
            self.first = record()
            """What the first pass has recorded."""
        except ModelError:  # a mask that is drawn looks like anything else that is not known: its cause comes first
            _refuse_if_random(lambda: run(True), generators)
            raise
        moved = before != (torch_states(), states_of(generators))
        self.is_quiet = not moved and not any(
            one is torch.default_generator or not has_state(one) for one in generators
        )
        self._run, self._generators = lambda: run(self.first.changes_input), generators

    def check(self) -> None:
        """Run the model once more.

        Raises:
            ModelError: If the output is another one, or if something drawn can reach it.
        """
        check_repeatable(self._run, self.first.output, self._generators)


def _refuse_if_random(run: Callable[[], Tensor], generators: list[Any]) -> None:
    """Refuse a model that is random; what else a pass of it raises says nothing here."""
    with torch.no_grad():
        try:
            first = run()
        except Exception:  # whatever the user's code raises: the caller knows more of it
            return
    check_repeatable(run, first, generators)


@torch.no_grad()
def check_repeatable(run: Callable[[], Tensor], first: Tensor, generators: list[Any]) -> None:
    """Refuse a model whose output is random: `first` is what it gave before, `run` runs it once more.

    Outputs decide. Rare or tiny draws (one number of a hundred dropped) do not show there: where a generator has moved, it is
    found out whether this pass has moved it. Torch's operations are looked at one by one, in this thread alone; generators of
    Python and numpy that the code names must move in every pass. None is ever set back: other threads draw from them, too. One
    without a state (`random.SystemRandom`) has nothing to compare: there it is watched whether a pass calls it.

    Raises:
        ModelError: If the output is another one, or if something drawn can reach it or is not seen to stay away from it.
    """
    if any(one is torch.default_generator for one in generators):
        torch.rand(())  # a pass that puts it back draws the same each time, until anybody else draws
    shared, own = torch_states(), states_of(generators)
    again = run()
    moved = [a != b for a, b in zip(own, states_of(generators), strict=True)]
    is_same = again.shape == first.shape and (not len(first) or close(again, first, torch.zeros_like(first[0])))
    if not is_same or _draws_with_torch(run, shared, generators, moved):
        raise ModelError(NOT_REPEATABLE + _STAYS)
    if _draws_otherwise(run, generators, moved) or _asks_the_system(run, generators):
        raise ModelError(_UNSEEN + _STAYS)


def _draws_with_torch(run: Callable[[], Tensor], before: list[bytes], generators: list[Any], moved: list[bool]) -> bool:
    """Whether something that torch draws reaches the output; looked at only where one of its generators has moved."""
    own = any(has for has, one in zip(moved, generators, strict=True) if isinstance(one, torch.Generator))
    if torch_states() == before and not own:
        return False
    return bool(run_seen(run)[1]) and reaches_output(run)


def _draws_otherwise(run: Callable[[], Tensor], generators: list[Any], moved: list[bool]) -> bool:
    """Whether a generator of Python or numpy moves in every pass; one that other threads use moves in some."""
    moved = [has and not isinstance(one, torch.Generator) for has, one in zip(moved, generators, strict=True)]
    for _ in range(_TIMES if any(moved) else 0):
        before = states_of(generators)
        run()
        moved = [has and a != b for has, a, b in zip(moved, before, states_of(generators), strict=True)]
    return any(moved)


def _asks_the_system(run: Callable[[], Tensor], generators: list[Any]) -> bool:
    """Whether a pass calls a generator that has no state, or reads random bytes of the operating system."""
    if all(map(has_state, generators)):
        return False
    with SystemDraws(generators) as draws:
        run()
    return draws.seen
