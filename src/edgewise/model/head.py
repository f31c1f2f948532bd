"""What the model returns: logits, log-probabilities, probabilities or values, read off its last operation or stated.

A `log_softmax`, `softmax`, `sigmoid` or `logsigmoid` at the very end (the `Head`) says what the model returns. What is
explained as the logit is then the tensor that goes *into* it. The head is found in the recorded pass, looked for through
operations that change no number (a `squeeze`, say), move columns, or make 1 − p of p, and its input is picked up in every later
pass. Where probabilities are made in a way that is not understood (`probability_trail.py`), a warning asks. `read_output`
decides; `ModelOutput` is what was decided.
"""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgewise.arguments import one_of, shown
from edgewise.errors import OutputWarning, SettingError
from edgewise.model.data_flow import Operation, keys_of
from edgewise.model.probability_trail import trail_of
from edgewise.program.operations import Kind, kind_of, moves_columns, plain_name
from edgewise.torch_internals import no_functions

if TYPE_CHECKING:
    from edgewise.model.call import ModelCall
    from edgewise.model.data_flow import Key
    from edgewise.model.trace import Trace

_MANY = 16
"""Rows of one column that say something when they all lie in [0, 1]."""
_DIGITS = 1e-2
"""How far a probability may be from the one that a head makes: layers may round to few digits in between."""
OUTPUTS = ("logit", "log_prob", "prob", "value")
_NAMES = {
    "softmax": "prob",
    "log_softmax": "log_prob",
    "sigmoid": "prob",
    "special_expit": "prob",
    "logsigmoid": "log_prob",
    "log_sigmoid": "log_prob",
}
_RENAMES = {"exp": ("log_prob", "prob"), "log": ("prob", "log_prob"), "rsub": ("prob", "prob")}
"""What an operation behind a head makes of what; `rsub` is 1 − p."""


@dataclass(frozen=True)
class Head:
    """A function that makes probabilities of logits, and what of its columns the model returns."""

    function: str
    """`"softmax"`, `"log_softmax"`, `"sigmoid"`, …"""
    output: str
    """What the model returns: `"prob"` or `"log_prob"`."""
    later: int = 0
    """How often the function is called again behind it, for other outputs: those of other node types, say."""
    columns: tuple[int, ...] | None = None
    """The columns of its input that are returned, in order; None: all of them."""
    is_flipped: bool = False
    """Whether 1 − p is returned."""

    @property
    def is_sigmoid(self) -> bool:
        """Whether every column is a probability by itself."""
        return "softmax" not in self.function

    def logits(self, rows: Tensor) -> Tensor:
        """`[rows, columns]`: the logits of what the model returns, from what goes into the function.

        Of one column of a softmax it is the logit against all others.

        >>> Head("softmax", "prob", columns=(1,)).logits(torch.tensor([[1.0, 3.0]]))
        tensor([[2.]])
        >>> Head("sigmoid", "prob", is_flipped=True).logits(torch.tensor([[1.0], [3.0]]))
        tensor([[-1.],
                [-3.]])
        """
        if self.columns is not None:
            chosen = rows.index_select(1, torch.tensor(self.columns, device=rows.device))
            if len(self.columns) == 1 < rows.size(1) and not self.is_sigmoid:
                others = [column for column in range(rows.size(1)) if column not in self.columns]
                chosen = chosen - rows[:, others].logsumexp(dim=1, keepdim=True)
            rows = chosen
        return rows.neg() if self.is_flipped else rows

    def makes(self, output: Tensor, rows: Tensor) -> bool:
        """Whether it makes what the model returned of what goes into it, up to the digits of float16.

        >>> head = Head("sigmoid", "prob")
        >>> head.makes(torch.tensor([[0.5]]), torch.zeros(1, 1)), head.makes(torch.tensor([[0.5, 3.0]]), torch.zeros(1, 1))
        (True, False)
        """
        prob = rows.sigmoid() if self.is_sigmoid else rows.softmax(dim=1)
        prob = prob if self.columns is None else prob[:, list(self.columns)]
        prob, given = 1 - prob if self.is_flipped else prob, output.exp() if self.output == "log_prob" else output
        if prob.shape != given.shape:
            return False
        return torch.allclose(prob.to(given.dtype), given, rtol=0, atol=_DIGITS, equal_nan=True)


def logits_given(function: Any, args: Any, kwargs: Any) -> Tensor | None:
    """A copy of what goes into a function that makes probabilities, which may be changed in place later; None of others."""
    if plain_name(function) not in _NAMES:
        return None
    given = args[0] if args else kwargs.get("input")
    with no_functions():  # who numbers the operations of a pass must not count this one
        return given.clone() if isinstance(given, Tensor) else None


def find_head(trace: Trace) -> tuple[Head, Trace] | None:
    """The head of a recorded model, and the pass as it would have been without it; None if it has none that can be seen."""
    found = _head_operation(trace)
    if found is None:
        return None
    operation, behind = found
    logits = operation.logits
    if logits is None or logits.dim() not in (1, 2) or len(logits) != len(trace.output):
        return None
    if "softmax" in _name(operation) and not _over_columns(operation, logits):
        return None
    later = sum(_name(one) == _name(operation) for one in trace.operations[trace.operations.index(operation) + 1 :])
    head = _followed(Head(_name(operation), _NAMES[_name(operation)], later), behind, logits)
    rows = logits.view(-1, 1) if logits.dim() == 1 else logits
    if head is None or not head.makes(trace.output, rows):
        return None
    if head.columns is None and not head.is_flipped:
        return head, replace(trace, output=rows, output_key=operation.inputs[0])
    made = head.logits(rows)
    last = Operation(
        "head", [operation.inputs[0]], keys_of(made), function=head.logits, args=(rows,), kwargs={}, result=made
    )
    return head, replace(trace, operations=(*trace.operations, last), output=made, output_key=last.outputs[0])


def _head_operation(trace: Trace) -> tuple[Operation, list[Operation]] | None:
    """The operation that makes probabilities, and what follows it, in order, all of which keeps or names their logits."""
    makers: dict[Key, Operation] = {}
    for one in trace.operations:  # an operation that hands a tensor on as it is (dropout in eval mode) makes nothing
        makers.update({key: one for key in one.outputs if key is not None and key not in one.inputs})
    operation, behind = makers.get(trace.output_key), list[Operation]()
    while operation is not None and not operation.is_layer and _name(operation) not in _NAMES:
        if not operation.inputs or not _keeps_logits(operation):
            return None
        behind.append(operation)
        operation = makers.get(operation.inputs[0])
    return None if operation is None or operation.is_layer else (operation, behind[::-1])


def _keeps_logits(operation: Operation) -> bool:
    """Whether an operation moves whole columns, or makes p of log p, log p of p, or 1 − p of p."""
    name = _name(operation)
    if name == "rsub":
        return len(operation.args) == 2 and isinstance(operation.args[1], (int, float)) and operation.args[1] == 1
    if kind_of(operation.function) in (Kind.UNCHANGED, Kind.SHAPE) or name in _RENAMES:
        return True
    return moves_columns(operation.function, operation.args, operation.kwargs or {})


def _followed(head: Head, behind: list[Operation], logits: Tensor) -> Head | None:
    """The head with what follows it; None if the logits of the result are not those of some columns.

    Operations that move columns are made again on the numbers of the entries, which then say which column is where.
    """
    entries = torch.arange(logits.numel(), device=logits.device).view_as(logits)
    width = 1 if logits.dim() == 1 else logits.size(1)
    for operation in behind:
        name = _name(operation)
        if name in _RENAMES:
            before, after = _RENAMES[name]
            if head.output != before or (name == "rsub" and entries.numel() != len(logits) and not head.is_sigmoid):
                return None
            head = replace(head, output=after, is_flipped=head.is_flipped ^ (name == "rsub"))
        elif kind_of(operation.function) is not Kind.UNCHANGED:
            entries = operation.function(entries, *operation.args[1:], **(operation.kwargs or {}))
    if entries.dim() not in (1, 2) or len(entries) != len(logits) or len(entries) == 0:
        return None
    table = entries.view(len(logits), -1)
    columns = table[0] % width
    own = torch.arange(len(logits), device=table.device).view(-1, 1) * width
    if not torch.equal(table, own + columns):
        return None
    found = tuple(columns.tolist())
    one_of_several = len(found) == 1 < width
    if not head.is_sigmoid and not one_of_several and (head.is_flipped or sorted(found) != list(range(width))):
        return None  # of a part of a softmax's columns the others are lost
    return head if found == tuple(range(width)) else replace(head, columns=found)


def _name(operation: Operation) -> str:
    return plain_name(operation.function)


def _over_columns(operation: Operation, logits: Tensor) -> bool:
    """Whether a softmax normalises the columns of each row."""
    dim = (operation.kwargs or {}).get("dim", operation.args[1] if len(operation.args) > 1 else None)
    return logits.dim() == 2 and dim in (1, -1)


class HeadInput(TorchFunctionMode):
    """Picks up what goes into the head: the argument of the call of its function that is last but `later` in a pass."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head
        self._seen: deque[Any] = deque(maxlen=head.later + 1)

    @property
    def rows(self) -> Tensor | None:
        """The logits; None if the function was not called as often as in the first run."""
        return self._seen[0] if len(self._seen) > self.head.later else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if plain_name(func) == self.head.function:
            self._seen.append(logits_given(func, args, kwargs))
        return func(*args, **kwargs)


def looks_like_probabilities(rows: Tensor, *, is_seen: bool = True) -> bool:
    """Whether all numbers lie in [0, 1], and rows of several columns add up to 1: then `output=` was perhaps forgotten.

    One column needs many rows where it `is_seen` what made them, and nothing that makes probabilities.

    >>> looks_like_probabilities(torch.tensor([[0.2, 0.8], [0.5, 0.5]])), looks_like_probabilities(torch.tensor([[0.2, 0.9]]))
    (True, False)
    >>> looks_like_probabilities(torch.tensor([[0.2]])), looks_like_probabilities(torch.tensor([[0.2]]), is_seen=False)
    (False, True)
    """
    if len(rows) == 0 or bool((rows < 0).any()) or bool((rows > 1).any()):
        return False
    if rows.size(1) == 1:
        return not is_seen or len(rows) >= _MANY  # a few logits may well lie there by chance
    return bool(((rows.sum(dim=1) - 1).abs() < 1e-4).all())


def _look_like_logarithms(rows: Tensor) -> bool:
    """Whether rows of several columns are logarithms of numbers that add up to 1."""
    return rows.size(1) > 1 and bool((rows <= 1e-5).all()) and looks_like_probabilities(rows.exp().clamp(max=1))


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


@dataclass(frozen=True)
class ModelOutput:
    """What the model returns, and how its logits are come by."""

    name: str
    """`"logit"`, `"log_prob"`, `"prob"` or `"value"`."""
    head: Head | None = None
    """The operation whose input is explained as the logit."""
    stated: bool = False
    """Whether `name` was given, and no operation that says so was seen."""
    is_doubted: bool = False
    """Whether a warning asked what it is."""
    is_widened: bool = False
    """Whether some messages of the model are not in float64, as its output is: it is then explained in float32."""

    def apply(self, call: ModelCall) -> ModelCall:
        """The call that gives logits."""
        return replace(call, head=self.head, stated=self.name if self.stated else "", is_widened=self.is_widened)

    def shorten(self, trace: Trace) -> Trace:
        """A recorded pass of the same model, as far as its logits."""
        if self.head is not None:
            found = find_head(trace)
            trace = trace if found is None else found[1]
        elif self.stated:
            trace = replace(trace, output=logits_of(trace.output, self.name))
        return _narrowed(trace) if self.is_widened else trace

    @property
    def several(self) -> bool:
        """Whether every column has a sigmoid of its own."""
        return self.head is not None and self.head.is_sigmoid

    @property
    def lost(self) -> str:
        """What `choose_target` is told: probabilities of several classes without their logits are marked."""
        return f"{self.name}, unseen" if self.stated else self.name


def check_output(output: str | None) -> str | None:
    """One of the four names, or None to read it off the model."""
    return None if output is None else one_of("output", output, OUTPUTS, also="or None to read it off the model")


def read_output(trace: Trace, given: str | None, mode: str | None) -> tuple[ModelOutput, Trace]:
    """What the model returns, and the recorded pass as far as the logits."""
    output, trace = _as_returned(trace, given, mode)
    is_widened = trace.output.dtype == torch.float64 and any(call.dtype != torch.float64 for call in trace.calls)
    return (replace(output, is_widened=True), _narrowed(trace)) if is_widened else (output, trace)


def _narrowed(trace: Trace) -> Trace:
    """A recorded pass whose output is in float32, like what it is made of."""
    like = torch.zeros((), dtype=torch.float32, device=trace.output.device)  # float64 where a program is run in that
    made = trace.output.type_as(like)
    last = Operation(
        "type_as", [trace.output_key, None], keys_of(made), function=Tensor.type_as, args=(trace.output, like), kwargs={},
        shapes=[tuple(made.shape)], result=made,
    )  # fmt: skip
    return replace(trace, operations=(*trace.operations, last), output=made, output_key=last.outputs[0])


def _as_returned(trace: Trace, given: str | None, mode: str | None) -> tuple[ModelOutput, Trace]:
    """The same in the model's own precision."""
    if given == "value" or (given is None and mode == "regression"):
        return ModelOutput("value"), trace
    found = None if given == "logit" else find_head(trace)
    if given is None and found is None:
        if why := _doubt(trace):
            warnings.warn(why, OutputWarning, stacklevel=2)
        return ModelOutput("logit", is_doubted=bool(why)), trace
    if found is None:
        return (ModelOutput("logit"), trace) if given == "logit" else _stated(str(given), trace)
    head, shorter = found
    if given is not None and given != head.output:
        raise SettingError(
            f"`output` must be {head.output!r} for a model that ends with {head.function}, got {shown(given)}. Leave `output` "
            f"out, or use output='logit' to explain what the model returns as if it were logits."
        )
    return ModelOutput(head.output, head), shorter


def _doubt(trace: Trace) -> str:
    """Why what is read as logits may be none; empty if nothing speaks against it."""
    made_by, is_seen = trail_of(trace)
    if made_by:
        return (
            f"The model's output comes from {made_by}, and its logits cannot be read off, so it is explained as if it were "
            f"logits itself. Use output='prob' or 'log_prob' if it is that, 'logit' or 'value' if not."
        )
    for looks, what, name in (
        (looks_like_probabilities(trace.output, is_seen=is_seen), "probabilities", "prob"),
        (_look_like_logarithms(trace.output), "logarithms of probabilities", "log_prob"),
    ):
        if looks:
            return (
                f"The model's output looks like {what}, but the operation that makes them cannot be seen, so it is "
                f"explained as logits. Use output={name!r} (or output='logit' if these are logits)."
            )
    return ""


def _stated(name: str, trace: Trace) -> tuple[ModelOutput, Trace]:
    """Probabilities without a head that could be seen: the recorded pass gives what the call will give."""
    found = ModelOutput(name, stated=True)
    return found, found.shorten(trace)
