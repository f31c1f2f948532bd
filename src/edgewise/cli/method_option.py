"""`--method auto`: decided once, before the targets are cut into shards, so that all of them get the same method."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgewise.algorithms.registry import Method
    from edgewise.cli.read.cli_question import CliQuestion
    from edgewise.cli.terminal import Voice

_FEW = 20
"""Targets of a graph on disk that a method is chosen by."""


def method_for(question: CliQuestion, name: str, level: str, voice: Voice) -> Method:
    """The method of that name; of `auto` the one that it stands for here, which `voice` tells with the reason."""
    from edgewise.algorithms.registry import find_method

    found = find_method(name, level)
    if not found.chooses:
        return found
    import edgewise as ew

    stored = isinstance(question.graphs.data, ew.GraphStore)  # each target is a part of a large graph
    some = slice(_FEW if stored else None)
    ask = ew.Question(
        question.model, question.graphs.data, question.targets(some), target=question.classes_of(some), **question.options
    )  # fmt: skip
    chosen = ask.choose_method()
    voice.note(f"auto: {chosen.name}; {chosen.why}")
    return chosen.method
