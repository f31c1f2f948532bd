"""Fidelity over the size of the explanation, and the area under it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import SettingError
from edgewise.metrics.agreement import Explained
from edgewise.metrics.choosing import SIGNS, read_choice
from edgewise.metrics.faithful import OUTSIDE, changes, check_number
from edgewise.metrics.formulas import area, characterization
from edgewise.metrics.intervening import Options, intervene
from edgewise.metrics.measured import Conditions, Measured, MeasuredTable, plain, with_reasons
from edgewise.metrics.rows import as_set

FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class FidelityCurve(MeasuredTable):
    """Fidelity+ and fidelity− at several sizes; prints its areas as a table."""

    x: Tensor
    """`[points]`: the sizes, as shares or as numbers of edges."""
    plus: Tensor
    """`[targets, points]`: fidelity+; NaN where undefined."""
    minus: Tensor
    """`[targets, points]`: fidelity−."""
    area_plus: Measured
    """The mean height of the fidelity+ curve."""
    area_minus: Measured
    area_characterization: Measured
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON."""
        points = {"x": plain(self.x.tolist()), "plus": plain(self.plus.tolist()), "minus": plain(self.minus.tolist())}
        return {**points, **super().to_dict()}

    def mean(self) -> tuple[Tensor, Tensor]:
        """The two curves, averaged over the targets that have a number: `[points]` each."""
        return self.plus.nanmean(dim=0), self.minus.nanmean(dim=0)


def fidelity_curve(
    explained: Explained,
    model: nn.Module,
    data: Any,
    *,
    fractions: Sequence[float] | None = None,
    ks: Sequence[int] | None = None,
    by: str = "support",
    how: str = "masking",
    of: str = "value",
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
) -> FidelityCurve:
    """Fidelity at growing sizes of the explanation, strongest edges first, and the areas under the curves.

    A size beyond the edges that have the sign of `by` takes all of them, so a curve may end flat. Size 0 is the empty
    explanation: fidelity+ is 0 there, fidelity− what all edges together are worth.

    Args:
        explained: A result of `explain`.
        model: The model that was explained; left as it was.
        data: The data that was explained.
        fractions: Sizes as shares of the edges that can reach a target, ascending; without `ks`, 0 to 1 in eight steps.
        ks: Sizes as numbers of edges instead.
        by: `"support"`, `"opposition"` or `"magnitude"`.
        how: As in `fidelity`.
        of: As in `fidelity`.
        forward: As in `explain`.
        device: As in `explain`.
        memory: As in `explain`.
        batch_size: As in `explain`.

    >>> from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> from edgewise import explain
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(1.0)
    >>> data = Data(x=torch.tensor([[4.0], [2.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> curve = fidelity_curve(explain(conv, data, index=2, target=1), conv, data, ks=[0, 1, 2])
    >>> curve.plus, curve.minus
    (tensor([[0., 4., 6.]]), tensor([[6., 2., 0.]]))
    >>> curve.area_plus.value                                     # (0/2 + 4 + 6/2) / 2
    tensor([3.5000])
    """
    if by not in SIGNS[:-1]:
        raise SettingError(f"by is {by!r}; a curve ranks edges by {', '.join(SIGNS[:-1])}.")
    sizes, name = _read_sizes(fractions, ks)
    found, options = as_set(explained, "fidelity_curve"), Options(how, forward, device, memory, batch_size)
    check_number(found, of)
    outcomes = intervene(found, model, data, [read_choice(**{name: size}, by=by) for size in sizes], options)
    plus, minus = (torch.stack(part, dim=1) for part in zip(*(changes(o, of) for o in outcomes), strict=True))
    x = torch.tensor(sizes, dtype=plus.dtype)
    areas = _areas(x, plus, minus, found.index, [condition for outcome in outcomes for condition in outcome.undefined])
    hole = torch.stack([torch.stack([c for c, _ in o.undefined]).any(dim=0) for o in outcomes], dim=1)
    plus, minus = (part.masked_fill(hole, torch.nan) for part in (plus, minus))
    return FidelityCurve(x, plus, minus, *areas, f"fidelity by {how} at {len(sizes)} sizes ({name})")


def _areas(
    x: Tensor, plus: Tensor, minus: Tensor, index: Tensor, undefined: Conditions
) -> tuple[Measured, Measured, Measured]:
    both = characterization(plus, minus)
    outside = (both.isnan().any(dim=1), OUTSIDE)
    return (
        with_reasons("area of fidelity+", area(x, plus), index, undefined),
        with_reasons("area of fidelity-", area(x, minus), index, undefined, "lower"),
        with_reasons("area of characterization", area(x, both), index, [*undefined, outside]),
    )


def _read_sizes(fractions: Sequence[float] | None, ks: Sequence[int] | None) -> tuple[list[float], str]:
    if fractions is not None and ks is not None:
        raise SettingError("fractions and ks were both given; choose one.")
    sizes = list(ks if ks is not None else fractions if fractions is not None else FRACTIONS)
    if len(sizes) < 2 or any(b <= a for a, b in pairwise(sizes)):
        raise SettingError(f"The sizes are {sizes}; needed are at least two, ascending, such as [0.0, 0.1, 0.5, 1.0].")
    return sizes, "fraction" if ks is None else "k"
