"""The task decides what kind of question it is."""

from typing import Any

from edgewise.errors import SettingError
from edgewise.graph.inputs import TASKS
from edgewise.model.call import Forward
from edgewise.problem.base import Problem
from edgewise.problem.graphs import GraphProblem
from edgewise.problem.nodes import NodeProblem


def pose(
    model: Any,
    data: Any,
    index: Any,
    *,
    target: Any,
    task: str,
    mode: str | None,
    of: str,
    forward: Forward | None,
    device: Any,
) -> Problem:
    """The question of `explain`, checked before any long work."""
    if task not in TASKS:
        raise SettingError(f"task is {task!r}; known are {', '.join(TASKS)}.")
    if task == "node":
        return NodeProblem(model, data, index, forward, device, (target, mode, of))
    return GraphProblem(model, data, index, forward, device, (target, mode, of))
