"""The head of a model: the last operation, if it turns logits into probabilities.

A `log_softmax`, `softmax`, `sigmoid` or `logsigmoid` at the very end says what the model returns. What is explained as the
logit is then the tensor that goes *into* it. The head is found in the recorded pass, looked for through operations that
change no number (a `squeeze`, say), and its input is picked up in every later pass.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.model.residuals import Key, Operation

if TYPE_CHECKING:
    from edgewise.model.trace import Trace

_MANY = 16
"""Rows of one column that say something when they all lie in [0, 1]."""
OUTPUTS = ("logit", "log_prob", "prob", "value")
_NAMES = {
    "softmax": "prob",
    "log_softmax": "log_prob",
    "sigmoid": "prob",
    "logsigmoid": "log_prob",
    "log_sigmoid": "log_prob",
}
_SAME_NUMBERS = frozenset(
    [
        "view",
        "reshape",
        "squeeze",
        "unsqueeze",
        "flatten",
        "contiguous",
        "clone",
        "to",
        "type",
        "float",
        "double",
        "dropout",
    ]
)


@dataclass(frozen=True)
class Head:
    """A function that makes probabilities of logits."""

    function: str
    """`"softmax"`, `"log_softmax"`, `"sigmoid"`, …"""

    @property
    def output(self) -> str:
        """What the model returns: `"prob"` or `"log_prob"`."""
        return _NAMES[self.function]

    @property
    def is_sigmoid(self) -> bool:
        """Whether every column is a probability by itself."""
        return "sigmoid" in self.function


def find_head(trace: "Trace") -> "tuple[Head, Trace] | None":
    """The head of a recorded model, and the pass as it would have been without it; None if it has none that can be seen."""
    makers: dict[Key, Operation] = {}
    for one in trace.operations:  # an operation that hands a tensor on as it is (dropout in eval mode) makes nothing
        makers.update({key: one for key in one.outputs if key is not None and key not in one.inputs})
    operation = makers.get(trace.output_key)
    while operation is not None and _name(operation) in _SAME_NUMBERS and operation.inputs:
        operation = makers.get(operation.inputs[0])
    if operation is None or operation.is_layer or _name(operation) not in _NAMES:
        return None
    logits = operation.args[0] if operation.args else operation.kwargs.get("input")
    if not isinstance(logits, Tensor) or logits.dim() not in (1, 2) or len(logits) != len(trace.output):
        return None
    if "sigmoid" not in _name(operation) and not _over_columns(operation, logits):
        return None
    rows = logits.view(-1, 1) if logits.dim() == 1 else logits
    return Head(_name(operation)), replace(trace, output=rows, output_key=operation.inputs[0])


def _name(operation: Operation) -> str:
    return str(getattr(operation.function, "__name__", "")).strip("_")


def _over_columns(operation: Operation, logits: Tensor) -> bool:
    """Whether a softmax normalises the columns of each row."""
    dim = (operation.kwargs or {}).get("dim", operation.args[1] if len(operation.args) > 1 else None)
    return logits.dim() == 2 and dim in (1, -1)


class HeadInput(TorchFunctionMode):
    """Picks up what goes into the head: the argument of the last call of its function in a pass."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head
        self.rows: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(getattr(func, "__name__", "")).strip("_") == self.head.function:
            self.rows = args[0] if args else kwargs.get("input")
        return func(*args, **kwargs)


def looks_like_probabilities(rows: Tensor) -> bool:
    """Whether all numbers lie in [0, 1], and rows of several columns add up to 1: then `output=` was perhaps forgotten.

    >>> looks_like_probabilities(torch.tensor([[0.2, 0.8], [0.5, 0.5]])), looks_like_probabilities(torch.tensor([[0.2, 0.9]]))
    (True, False)
    """
    if len(rows) == 0 or bool((rows < 0).any()) or bool((rows > 1).any()):
        return False
    if rows.size(1) == 1:
        return len(rows) >= _MANY  # a few logits may well lie there by chance
    return bool(((rows.sum(dim=1) - 1).abs() < 1e-4).all())


def logits_of(rows: Tensor, output: str) -> Tensor:
    """Logits of rows that are said to be probabilities, where the head itself was not seen.

    One column: log p − log(1 − p). Several columns: log p, whose softmax is p again; the logits themselves are lost.

    >>> logits_of(torch.tensor([[0.5]]), "prob")
    tensor([[0.]])
    """
    log_prob = rows.log() if output == "prob" else rows
    if rows.size(1) > 1:
        return log_prob
    return log_prob - torch.log1p(-log_prob.exp())
