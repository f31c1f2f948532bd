"""The same question in float64, on the CPU: margins near 0 are then told apart, and rounding errors can be bounded.

The model is a copy whose float32 numbers became float64 numbers, unchanged; what it computes of them (normalised degrees,
attention) is computed in float64.
"""

import copy
import logging
import warnings
from typing import Any

import torch

from edgewise.arrays import asked_index, plain_index
from edgewise.errors import EdgewiseError, StaleQuestionError
from edgewise.model.twin import make_twin
from edgewise.question import PosedQuestion, pose

log = logging.getLogger("edgewise")
_NEAR = 1e-3


def double_question(question: PosedQuestion) -> PosedQuestion:
    """The question about a copy in float64; the question itself if it is that already, or if there can be no such copy."""
    truth = question.target.truth
    if truth.dtype == torch.float64 and truth.device.type == "cpu":
        return question
    twin = make_twin(question.subject.user_model)
    if twin.borrowed:
        return question
    asked, types = question.asked, question.types
    data = question.data if types is None else question.typed_data
    index = asked_index(question.index) if types is None else types.asked(plain_index(question.index))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has seen them
            found = pose(
                twin.model.double().cpu(), _in_double(data), index, target=asked.target, task=question.task,
                mode=question.target.mode, of=question.target.of, output=asked.output, forward=asked.forward,
                without_itself=asked.without_itself,
            )  # fmt: skip
    except StaleQuestionError:
        raise
    except (EdgewiseError, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as reason:
        log.debug("the model does not run in float64: %s", reason)
        return question
    off = (found.target.truth - truth.double().cpu()).abs().max()
    return found if bool(off <= _NEAR * truth.abs().max().clamp(min=1)) else question


def _in_double(data: Any) -> Any:
    """A graph, or graphs, with floating-point attributes in float64, on the CPU; the user's stay as they are."""
    if not hasattr(data, "apply"):
        return [_in_double(graph) for graph in data]
    return copy.copy(data).apply(lambda part: part.double().cpu() if part.is_floating_point() else part.cpu())
