"""What is asked: a subject, the targets in it, and their classes. `pose` checks the question and gives a `PosedQuestion`."""

from typing import Any

import torch

from edgewise.arguments import one_of
from edgewise.graph.inputs import TASKS
from edgewise.model.call import Forward
from edgewise.model.global_state import refuse_autocast, thread_kept
from edgewise.model.head import check_output
from edgewise.question.graph_question import GraphQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.posed_question import KEPT, Asked, PosedQuestion, sub_target

__all__ = ["KEPT", "GraphQuestion", "NodeQuestion", "PosedQuestion", "pose", "sub_target"]


def pose(
    model: Any,
    data: Any,
    index: Any,
    *,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Forward | None = None,
    device: Any = None,
) -> PosedQuestion:
    """The question, checked and proved before any long work."""
    one_of("task", task, TASKS)
    refuse_autocast()
    asked = Asked(target, mode, of, check_output(output), forward, device)
    with thread_kept(), torch.inference_mode(mode=False):  # what is kept must be usable for gradients
        return (NodeQuestion if task == "node" else GraphQuestion)(model, data, index, asked)
