"""The task decides what kind of question it is."""

from typing import Any

from edgewise.errors import SettingError
from edgewise.graph.inputs import TASKS
from edgewise.model.call import Forward
from edgewise.question.graph_question import GraphQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.question import Question


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
) -> Question:
    """The question of `explain`, checked before any long work."""
    if task not in TASKS:
        raise SettingError(f"task is {task!r}; known are {', '.join(TASKS)}.")
    if task == "node":
        return NodeQuestion(model, data, index, forward, device, (target, mode, of))
    return GraphQuestion(model, data, index, forward, device, (target, mode, of))
