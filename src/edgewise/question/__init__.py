"""What is asked: a subject, the targets in it, and their classes. `pose` checks the question and gives a `PosedQuestion`."""

from typing import Any

import torch
from torch_geometric.data import HeteroData

from edgewise.arguments import one_of
from edgewise.errors import SettingError
from edgewise.graph.inputs import TASKS
from edgewise.graph.neighbour_sample import Bounds
from edgewise.graph.type_table import is_typed
from edgewise.model.call import Forward
from edgewise.model.global_state import refuse_autocast, thread_kept
from edgewise.model.head import check_output
from edgewise.question.graph_question import GraphQuestion
from edgewise.question.link_question import LinkQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.posed_question import KEPT, Asked, PosedQuestion, sub_target
from edgewise.question.stored_question import pose_stored
from edgewise.question.target import named_part
from edgewise.question.typed_link_question import TypedLinkQuestion
from edgewise.question.typed_question import TypedGraphQuestion, TypedQuestion
from edgewise.random_numbers import one_thread
from edgewise.store.graph_store import GraphStore
from edgewise.store.pyg_stores import is_pyg_stores

__all__ = [
    "KEPT",
    "GraphQuestion",
    "LinkQuestion",
    "NodeQuestion",
    "PosedQuestion",
    "TypedGraphQuestion",
    "TypedQuestion",
    "pose",
    "sub_target",
]

_QUESTIONS: dict[str, type[NodeQuestion | GraphQuestion | LinkQuestion]] = {
    "node": NodeQuestion,
    "graph": GraphQuestion,
    "link": LinkQuestion,
}
_TYPED_QUESTIONS: dict[str, type[TypedQuestion | TypedLinkQuestion]] = {
    "node": TypedQuestion,
    "link": TypedLinkQuestion,
}


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
    without_itself: bool = False,
    bounds: Bounds | None = None,
    roomy: bool = False,
    memory: int | None = None,
    held: bool = True,
) -> PosedQuestion:
    """The question, checked and proved before any long work; `held=False` if it answers once and is then forgotten."""
    one_of("task", task, TASKS)
    refuse_autocast()
    if isinstance(target, str):
        one_of("target", target, ("all",), also="a class, a class for each index, or None")
        if task == "link":
            raise SettingError("`target` must be 1 or 0 for links, which have one score, got 'all'. Leave it out.")
        first = pose(
            model, data, index, target=0, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
            bounds=bounds, roomy=roomy, held=held,
        )  # fmt: skip
        return first.every_class()
    if without_itself and task != "link":
        raise SettingError(f"`without_itself` must be left out for a {task} task: it takes links out. Use task='link'.")
    asked = Asked(target, mode, of, check_output(output), forward, device, without_itself, bounds, roomy, memory, held)
    index = named_part(data.data if isinstance(data, GraphStore) else data, index, task)
    with one_thread(), thread_kept(), torch.inference_mode(mode=False):  # what is kept must be usable for gradients
        if isinstance(data, GraphStore) or is_pyg_stores(data):
            return pose_stored(model, data, index, asked, task)
        if isinstance(data, HeteroData) and task in _TYPED_QUESTIONS:
            return _TYPED_QUESTIONS[task](model, data, index, asked)
        if task == "graph" and is_typed(data):
            return TypedGraphQuestion(model, data, index, asked)
        return _QUESTIONS[task](model, data, index, asked)
