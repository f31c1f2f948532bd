"""What is explained: which nodes or graphs (`read_index`), and which number of each (`choose_target`).

The number is the column of the output, and the logit, the log-probability or the probability of it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.arguments import shown
from edgewise.arrays import read_tensor
from edgewise.errors import InputError, ModelError, SettingError

MODES = ("multiclass", "binary", "multilabel", "regression")
NUMBERS = ("logit", "log_prob", "prob")


@dataclass(frozen=True)
class Target:
    """One class (or column) per explained row; rows are the model's outputs for the targets."""

    column: Tensor
    mode: str
    of: str
    truth: Tensor
    """`[targets, columns]`: the model's own output, at ω = 1."""

    def __len__(self) -> int:
        return self.column.numel()

    def select(self, positions: Tensor) -> "Target":
        """The same question for some of the targets."""
        return Target(self.column[positions], self.mode, self.of, self.truth[positions])

    def says(self) -> Tensor:
        """What the model says of each target: its class, or of several labels yes (1) or no (0) for the explained column."""
        if self.mode == "multilabel":
            return (self.truth.gather(1, self.column.view(-1, 1)).view(-1) > 0).long()
        return predicted(self.truth, self.mode)

    def value(self, rows: Tensor) -> Tensor:
        """The explained number of every row, `[targets]`."""
        return self.number(rows, self.of)

    def slope(self, rows: Tensor) -> Tensor:
        """The gradient of each row's explained number by the row, `[targets, columns]`."""
        if self.of == "logit":
            signs = torch.where(self.column == 1, 1, -1).view(-1, 1) if self.mode == "binary" else None
            if signs is not None:
                return signs.to(rows.dtype)
            return torch.zeros_like(rows).scatter_(1, self.column.view(-1, 1), 1.0)
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.value(leaf).sum(), leaf)
        return found

    def loss(self, rows: Tensor) -> Tensor:
        """What GNNExplainer minimises, `[targets]`: cross-entropy, or the squared error to the model's own output."""
        if self.mode == "regression":
            return (rows - self.truth).square().mean(dim=1)
        return -self.number(rows, "log_prob")

    def number(self, rows: Tensor, of: str) -> Tensor:
        """The logit, the log-probability or the probability of the class, `[targets]`."""
        if self.mode == "binary":
            rows = torch.where(self.column == 1, rows[:, 0], -rows[:, 0])  # class 0 is the negated logit
            return _one_logit(rows, of)
        if self.mode == "multilabel":
            return _one_logit(rows.gather(1, self.column.view(-1, 1)).view(-1), of)
        if of != "logit":
            rows = rows.log_softmax(dim=1) if of == "log_prob" else rows.softmax(dim=1)
        return rows.gather(1, self.column.view(-1, 1)).view(-1)


def _one_logit(rows: Tensor, of: str) -> Tensor:
    """The number of a class that has a logit of its own."""
    return {"logit": lambda r: r, "log_prob": functional.logsigmoid, "prob": torch.sigmoid}[of](rows)


def predicted(rows: Tensor, mode: str) -> Tensor:
    """The class that each row of the model's output says."""
    return (rows[:, 0] > 0).long() if mode == "binary" else rows.argmax(dim=1)


def choose_target(
    truth: Tensor, target: Any, mode: str | None, of: str, output: str = "logit", *, several: bool = False
) -> Target:
    """The target of `explain`: given classes, or the predicted ones.

    `truth` are logits (or values). `output` is what the model returns; `several` says that each column has a sigmoid of its
    own. A model that is said to return probabilities of several classes, without a head that could be seen, has no logits:
    `output` is then `"prob, unseen"` or `"log_prob, unseen"`.
    """
    if mode is not None and mode not in MODES:
        raise SettingError(f"mode is {shown(mode)}; known are {', '.join(MODES)}, or None to infer it from the output.")
    if of not in NUMBERS:
        raise SettingError(f"of is {shown(of)}; known are {', '.join(NUMBERS)}.")
    width = truth.size(1)
    if mode is None and output == "value":
        mode = "regression"
    mode = mode or ("binary" if width == 1 else "multilabel" if several else "multiclass")
    if output.endswith("unseen") and width > 1 and of == "logit":
        raise SettingError(
            "`of` must be 'log_prob' or 'prob' where the model returns probabilities of several classes: the softmax cannot "
            "be seen, so its logits are lost. Use of='log_prob'."
        )
    if mode == "binary" and width != 1:
        raise InputError(f"mode='binary' needs one logit, the model gives {width} columns. Use mode='multiclass'.")
    if mode == "regression" and of != "logit":
        raise SettingError(f"of={of!r} needs classes; a regression's output is explained as it is: leave `of` out.")
    if not bool(torch.isfinite(truth).all()):
        raise ModelError(
            "The model's output has NaN or infinite entries for the explained rows, so there is nothing to "
            "explain. Check the features and the weights."
        )
    classes = 2 if mode == "binary" else width
    column = predicted_classes(truth, mode) if target is None else _given(target, len(truth), classes, mode)
    return Target(column.to(truth.device), mode, of, truth)


def predicted_classes(truth: Tensor, mode: str) -> Tensor:
    """The class of each row; 0, the only column, of a regression."""
    if mode != "regression":
        return predicted(truth, mode)
    if truth.size(1) > 1:
        raise InputError(f"The regression has {truth.size(1)} outputs; say which column to explain: target=0.")
    return torch.zeros(len(truth), dtype=torch.long)


def _given(target: Any, rows: int, classes: int, mode: str) -> Tensor:
    try:
        column = read_tensor(target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"target is {shown(target)}; needed is a class, or one class for each of the {rows} targets."
        ) from error
    if column.is_floating_point() or column.is_complex() or column.dtype == torch.bool:
        raise InputError(f"target is {shown(target)}; classes are whole numbers, 0 to {classes - 1}.")
    if column.dim() > 1 or (column.dim() == 1 and column.numel() != rows):
        raise InputError(f"target has shape {list(column.shape)}; needed is one class, or {rows}, one for each index.")
    column = column.long().expand(rows).clone()
    if rows and (int(column.min()) < 0 or int(column.max()) >= classes):
        bad = int(column[(column < 0) | (column >= classes)][0])
        of = "column" if mode == "regression" else "class"
        raise InputError(f"target names {of} {bad}; the model has {classes}, 0 to {classes - 1}.")
    return column


def read_index(index: Any, size: int, of: str) -> tuple[Tensor, bool]:
    """Positions `[targets]` and whether a single integer was passed; `of` is what they are positions of, "node" or "graph".

    >>> read_index(2, 3, "node")
    (tensor([2]), True)
    >>> read_index([True, False, True], 3, "node")
    (tensor([0, 2]), False)
    >>> read_index([0, 7], 3, "node")
    Traceback (most recent call last):
    edgewise.errors.InputError: `index` must be between 0 and 2 (3 nodes), got 7.
    """
    if type(index) is int and 0 <= index < size:
        return torch.tensor([index]), True
    if index is None:
        return torch.arange(size), False
    if isinstance(index, slice):
        return _in_range(torch.tensor(_sliced(index, size), dtype=torch.long), size, of), False
    _refuse_long_range(index, size, of)
    single = isinstance(index, int) and not isinstance(index, bool)
    try:
        positions = read_tensor(list(index) if isinstance(index, (range, set, tuple)) else index)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`index` must be integers (an int, a list, a range, a slice or a tensor) or a mask of length {size}, "
            f"got {_short(index)}. Use index=[3, 42], for example."
        ) from error
    if positions.dtype == torch.bool or (positions.dtype == torch.uint8 and positions.numel() == size):
        positions = _from_mask(positions, size, of)
    if positions.numel() == 0:
        raise _nothing_named(size, of)
    if positions.is_floating_point() or positions.is_complex() or positions.dim() > 1:
        raise InputError(
            f"`index` must be integers in one dimension, got {_short(index)}. Use index=[3, 42], for example."
        )
    single = single or positions.dim() == 0
    return _in_range(positions.long().view(-1), size, of), single


def named_part(data: Any, index: Any, task: str) -> Any:
    """The mask that a name means: `"test"` is `data.test_mask`, of a typed graph `("paper", "test")`; else the index itself.

    >>> from torch_geometric.data import Data
    >>> named_part(Data(test_mask=torch.tensor([False, True])), "test", "node")
    tensor([False,  True])
    """
    kind = index[0] if isinstance(index, tuple) and len(index) == 2 and isinstance(index[1], str) else None
    name = index if kind is None else index[1]
    if not isinstance(name, str) or task != "node":
        return index
    known = kind is None or kind in getattr(data, "node_types", ())
    store = (data if kind is None else data[kind]) if known else {}
    masks = [key for key in store.keys() if str(key).endswith("_mask")] if hasattr(store, "keys") else []  # noqa: SIM118
    found = next((store[key] for key in (f"{name}_mask", name) if key in masks), None)
    if not isinstance(found, Tensor):
        listed = ", ".join(repr(key.removesuffix("_mask")) for key in masks) or "none"
        raise InputError(
            f"`index` must be whole numbers or the name of a mask, got {name!r}, and the data has no {name}_mask. Its masks "
            f"are: {listed}. Use one of them, or index=[3, 42], for example."
        )
    if found.dim() != 1:
        raise InputError(
            f"`index` names the part {name!r}, of which the data has {found.size(-1)} splits. Say which: "
            f"index=data.{name}_mask[:, 0]."
        )
    return found.bool() if kind is None else (kind, found.bool())


def _sliced(index: slice, size: int) -> range:
    """The positions of a slice, backwards too."""
    try:
        return range(size)[index]
    except (TypeError, ValueError) as error:
        raise InputError(f"`index` is {shown(index)}, which is no slice of positions ({error}).") from error


def _short(index: Any) -> str:
    """What came as an index, with its type, in at most 80 characters."""
    return shown(index)


def _from_mask(mask: Tensor, size: int, of: str) -> Tensor:
    """The positions at which a mask `[size]` is true."""
    if mask.dim() != 1 or mask.numel() != size:
        raise InputError(
            f"`index` as a mask must have one entry for each of the {size} {of}s, got shape {list(mask.shape)}. "
            f"Use mask[:, 0] to pick one of several columns."
        )
    return mask.bool().nonzero().view(-1)


def _in_range(positions: Tensor, size: int, of: str) -> Tensor:
    """The positions, if there is at least one and all are from 0 to size − 1."""
    if positions.numel() == 0:
        raise _nothing_named(size, of)
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= size:
        raise _outside(low if low < 0 else high, size, of)
    return positions


def _refuse_long_range(index: Any, size: int, of: str) -> None:
    """Refuse a range of more numbers than there are positions, of which one end is none, before it becomes a list."""
    if isinstance(index, range) and index[size:]:
        raise _outside(next(end for end in (index[0], index[-1]) if not 0 <= end < size), size, of)


def _outside(position: int, size: int, of: str) -> InputError:
    """The refusal of a position that there is not."""
    return InputError(
        f"`index` must be between 0 and {size - 1} ({size} {of if size == 1 else of + 's'}), got {position}."
    )


def _nothing_named(size: int, of: str) -> InputError:
    """The refusal of an empty selection."""
    return InputError(
        f"`index` must name at least one {of} (0 to {size - 1}), got an empty selection. Leave `index` out for all."
    )
