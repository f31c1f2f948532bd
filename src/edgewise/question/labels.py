"""What the data say about the targets: `y` of nodes and graphs, `edge_label` of pairs.

What a model returns is never guessed from labels, so that scores do not change with them. But labels that contradict what was
understood are a mistake that would give wrong signs: then `check_mode` refuses, and names the mode that they look like.
"""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import OutputWarning, SettingError
from edgewise.question.target import Target

_ALL = 2**16
"""Labels that are all looked at; of more, every so many-th."""
SOME = 2**12
MISSING = -1
_MEANINGS = {
    "multiclass": "logits of as many classes",
    "multilabel": "as many labels",
    "binary": "a class",
    "regression": "values",
}


def read_labels(y: Any, count: int, width: int = 1) -> Tensor | None:
    """`[count]` or `[count, tasks]`: labels as a tensor, of numpy and of lists, too; None if there is none for each.

    Rows of `width` columns may also lie one after the other, or have a third dimension of 1.

    >>> read_labels(torch.ones(3, 1), 3).shape, read_labels([0, 1, 1], 3).shape, read_labels(torch.ones(3), 4)
    (torch.Size([3]), torch.Size([3]), None)
    >>> read_labels(torch.ones(6), 3, width=2).shape
    torch.Size([3, 2])
    """
    y = as_tensor(y)
    if y is None or y.dim() == 0:
        return None
    if y.dim() == 1 and width > 1 and len(y) == count * width != count:
        y = y.view(count, width)
    while y.dim() > 1 and y.size(-1) == 1:
        y = y.squeeze(-1)
    return y if y.dim() <= 2 and len(y) == count else None


def as_tensor(y: Any) -> Tensor | None:
    """Numbers as a tensor; None for text, for rows of different lengths, and for what has no order."""
    if isinstance(y, (list, tuple, np.ndarray, np.generic, bool, int, float)):
        try:
            y = torch.as_tensor(y if isinstance(y, (list, tuple)) else np.asarray(y))
        except (TypeError, ValueError, RuntimeError):
            return None
    if not isinstance(y, Tensor) or y.is_complex() or y.layout != torch.strided:
        return None
    return y.detach()


def joined_labels(labels: list[Any]) -> Tensor | None:
    """The same of graphs, each with a number, numbers, or a tensor `[1]`, `[tasks]` or `[1, tasks]`.

    >>> joined_labels([torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]])]).shape, joined_labels([torch.tensor(1), 0])
    (torch.Size([2, 2]), tensor([1, 0]))
    """
    if all(type(one) is Tensor for one in labels) and len({(one.shape, one.dtype, one.device) for one in labels}) == 1:
        rows = torch.stack(labels).cpu()
        return read_labels(rows.view(len(labels), -1), len(labels)) if rows.numel() else None
    read = [as_tensor(one) for one in labels]
    if (
        not read
        or len({0 if one is None else one.numel() for one in read}) > 1
        or read[0] is None
        or not read[0].numel()
    ):
        return None
    return read_labels(torch.stack([one.reshape(-1).cpu() for one in read if one is not None]), len(read))


def unread(y: Any, read: Tensor | None, width: int) -> str:
    """Why labels that the data have are not compared with what the model gives; empty if they are, or if there are none.

    >>> unread(["a", "b"], None, 2), unread(None, None, 2)
    ('y is a list, in which no label is found for each', '')
    >>> unread(torch.ones(2, 3), torch.ones(2, 3), 4)
    'y has 3 columns, and the model gives 4'
    """
    if y is None or (read is not None and read.dim() == 1):
        return ""
    if read is None:
        shape = f" {list(y.shape)}" if isinstance(y, (Tensor, np.ndarray)) else ""
        return f"y is a {type(y).__name__}{shape}, in which no label is found for each"
    return "" if read.size(1) == width else f"y has {read.size(1)} columns, and the model gives {width}"


def labels_of_pairs(labels: Any, known: Any, pairs: Tensor, num_nodes: int) -> Tensor | None:
    """`[T]`: the label of each pair `[T, 2]`, from those of `known` `[2, n]`; NaN where there is none."""
    if not isinstance(known, Tensor) or known.dim() != 2 or known.size(0) != 2:
        return None
    labels = read_labels(labels, known.size(1))
    if labels is None or labels.dim() != 1 or len(labels) == 0:
        return None
    key, order = (known[0].cpu() * num_nodes + known[1].cpu()).sort(stable=True)
    asked = pairs[:, 0].cpu() * num_nodes + pairs[:, 1].cpu()
    place = torch.searchsorted(key, asked).clamp(max=len(key) - 1)
    found = labels.detach().cpu()[order[place]].double()
    return found.masked_fill(key[place] != asked, torch.nan)


def sample(size: int, most: int = _ALL) -> Tensor:
    """Numbers of the nodes or graphs whose labels are looked at: all of them, or of more than `most` some from everywhere."""
    return torch.arange(0, size, 1 if size <= most else max(size // SOME, 1))


def classes_in(y: Tensor | None, target: Target) -> Tensor | None:
    """`[T]`: the class (or, of several labels, yes or no for the explained column) of each target; `MISSING` where unknown."""
    if y is None or target.mode == "regression":
        return None
    y = y.double().cpu()
    if y.dim() == 2:
        if y.size(1) != target.truth.size(1):
            return None
        if target.mode == "multilabel":
            y = y.gather(1, target.column.cpu().view(-1, 1)).view(-1)
        else:
            y = torch.where((y == 1).sum(dim=1) == 1, y.argmax(dim=1).double(), torch.nan)
    elif target.mode == "multilabel":
        return None
    if target.mode == "binary" and _are_signs(y):
        y = y.clamp(min=0)
    known = (y == y.round()) & (y >= 0)
    return torch.where(known, y, MISSING).long()


# --- Labels that contradict ---------------------------------------------------------------------------------------------


def check_mode(y: Tensor | None, target: Target, noun: str, *, is_prob: bool) -> None:
    """Refuse what contradicts the labels; warn where one column is taken for a class and nothing bears it out.

    `noun` is what a row speaks about, empty for no warning; `is_prob` says that an operation that makes probabilities was seen.
    """
    if y is not None and _are_classes(y, 2 if target.mode == "binary" else target.truth.size(1)):
        return
    y = None if y is None else y.double()
    known = y is not None and not bool(y.isnan().all())
    width = target.truth.size(1)
    if y is not None and known and (why := contradiction(y, width, target.mode, is_prob=is_prob)):
        raise SettingError(f"`mode` must be given, because the labels contradict the guess: {why}")
    says_nothing = y is None or not known or y.dim() == 2 or not bool((y >= 0).any())  # -1 may mark what is unknown
    if noun and width == 1 and not is_prob and says_nothing:
        warnings.warn(
            f"The model gives one number for each {noun}, which is explained as the logit of a class. Use mode='binary' to say "
            f"so, or mode='regression' if it is a value.",
            OutputWarning,
            stacklevel=2,
        )
    if noun and width > 1 and known and y is not None and y.dim() == 2 and y.size(1) != width:
        warnings.warn(
            f"The {width} columns of the model are explained as {_MEANINGS[target.mode]}, and y has {y.size(1)} columns, "
            f"so that nothing is compared with it. Use mode={target.mode!r} if that is right, or another mode.",
            OutputWarning,
            stacklevel=2,
        )


def _are_classes(y: Tensor, count: int) -> bool:
    """Whether they are just the numbers of classes, as of most data."""
    if y.dim() != 1 or y.is_floating_point() or y.dtype == torch.bool or len(y) == 0:
        return False
    low, high = y.aminmax()
    return int(low) >= 0 and int(high) < count


def contradiction(y: Tensor, width: int, mode: str, *, is_prob: bool) -> str:
    """Why labels `[n]` or `[n, tasks]` cannot belong to a model of so many columns, with the mode to use; empty if they can.

    >>> contradiction(torch.tensor([-1.67, 2.54]), 1, "binary", is_prob=False)
    "y has values such as -1.67, which is no class. Use mode='regression', or mode='binary' if y is something else."
    >>> contradiction(torch.tensor([[0.0, 1.0, 1.0]]), 3, "multiclass", is_prob=False)
    "y has several labels in a row of 3 columns. Use mode='multilabel', or mode='multiclass' if y is something else."
    >>> contradiction(torch.tensor([0.0, 1.0, torch.nan]), 1, "binary", is_prob=False)
    ''
    """
    known = y[~y.isnan()]
    between = ((known != known.round()) | known.isinf()).nonzero()
    other = f", or mode={mode!r} if y is something else."
    if y.dim() == 2:
        return _rows_contradict(y, known, width, mode, other)
    if len(between):
        if is_prob and bool(((known >= 0) & (known <= 1)).all()):
            return ""  # soft labels
        return f"y has values such as {float(known[between[0]]):.4g}, which is no class. Use mode='regression'{other}"
    low, high = int(known.min()), int(known.max())
    if (
        low < 0 and not _are_signs(known) and bool((known[known < 0] != low).any())
    ):  # one negative number marks what is unknown
        return f"y has negative numbers such as {low}, which are no classes. Use mode='regression'{other}"
    classes = 2 if width == 1 else width
    if high < classes:
        return ""
    columns = "one column, classes 0 and 1" if width == 1 else f"{width} columns, classes 0 to {width - 1}"
    return f"y names class {high}, and the model gives {columns}. Use mode='regression' if it gives values{other}"


def _rows_contradict(y: Tensor, known: Tensor, width: int, mode: str, other: str) -> str:
    """The same of several labels a row."""
    inside = bool(((known >= 0) & (known <= 1)).all())
    whole = bool((known == known.round()).all())
    if whole and known.numel() and (inside or _are_signs(known)):
        single = not bool(y.isnan().any()) and bool(((y == 1).sum(dim=1) == 1).all())
        if y.size(1) != width or mode != "multiclass" or single:
            return ""
        return f"{_odd_row(y)} of {width} columns. Use mode='multilabel'{other}"
    soft = inside and (mode == "multilabel" or bool(((y.sum(dim=1) - 1).abs() < 1e-4).all()))
    if y.size(1) == width and soft:
        return ""
    if whole and y.size(1) != width:
        return ""  # labels of other tasks
    odd = known[(known != known.round()) | (known < 0) | (known > 1)]
    return f"y has values such as {float(odd[0]):.4g} in its {y.size(1)} columns. Use mode='regression'{other}"


def _odd_row(y: Tensor) -> str:
    """What rows are that do not have exactly one label."""
    ones = (y == 1).sum(dim=1)
    if bool((ones > 1).any()):
        return "y has several labels in a row"
    return "y has no label in a row" if bool((ones == 0).any()) else "y has gaps in a row"


def _are_signs(known: Tensor) -> bool:
    """Whether all labels are −1 and 1, or 0 for what is unknown: two classes as well."""
    known = known[~known.isnan()]
    return bool((known.abs() <= 1).all()) and bool((known == known.round()).all()) and bool((known == -1).any())
