"""Report: what `check` returns, as frozen data: numbers, with the reason where there is none.

`measurements.py` fills it in, `statements.py` adds the words, `report_text.py` prints it.
"""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.results.metric_result import Measured
from edgewise.text import for_json
from edgewise.trust.gradient_vs_occlusion import WorstEdge
from edgewise.trust.reliance import Reliance

PER_LAYER = "measured layer by layer"
"""The reason why some numbers are missing for all layers together."""
TOGETHER = "measured for all layers together"
"""The reason why some numbers are missing for single layers."""


@dataclass(frozen=True)
class Number:
    """One number over all targets; NaN where it is undefined, with the reason.

    >>> f"{Number(0.25):.1%}, {Number(float('nan'), 'no ReLU'):.1%}"
    '25.0%, -'
    """

    value: float
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a number."""
        return self.value == self.value

    def __format__(self, form: str) -> str:
        return format(self.value, form) if self.known else "-"


@dataclass(frozen=True)
class FlipFindings:
    """Edges whose own gradient changes its sign while they alone are weakened: shares of those with a gradient.

    The last number is another measure: all edges are weakened together.
    """

    edges: int
    """Edges with a gradient, among those asked about."""
    share: Number
    """Flips alone: the share whose sign changes on sampled weights of the edge, while all others stay 1."""
    to_negative: Number
    """The share that goes from positive to negative."""
    to_positive: Number
    """The share that goes from negative to positive."""
    kept: Number
    """The share proved never to change its sign on [0, 1], among the edges whose gradient is not proved to be 0."""
    broken: Number
    """The share proved to change its sign, among the same edges."""
    unknown: Number
    """The share for which neither is proved, among the same edges."""
    together: Number
    """Flips together: the share of the gradient, by size, on edges whose sign changes while all weights go from 1 to 0."""


@dataclass(frozen=True, eq=False)
class LayerFindings:
    """One layer (a message-passing call); or, with `layer` None, all of them with one weight per edge."""

    layer: int | None
    name: str
    gap: Measured
    """|Σ scores + Σ self scores − z| of the gradient."""
    missing: Number
    """Σ gaps / Σ |z| over the targets."""
    edges: Number
    """The share of z that the layer's edges carry; with the next three it adds up to 1."""
    own: Number
    """The share of z that the nodes' own terms carry (self-loops, root weights)."""
    constant: Number
    """The share of z that is left with the layer silenced: biases after it, and skips around it."""
    rest: Number
    """The share of z that the gradients miss."""
    cosine: Measured
    """The cosine of gradient and occlusion."""
    difference: Number
    """The largest |gradient − occlusion|, relative to the target's largest gradient (or its |z|, if that is larger)."""
    worst: WorstEdge | None
    unevenness: Number
    """How far the loss without a random half of the edges is from the sum of their gradients; 0 if they add up."""
    flips: FlipFindings
    rate: Number
    """ρ: the share of ReLU units that are on."""
    fixed: Number
    """The share of units that are on for all nodes, or off for all of them."""
    activations: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SoftmaxFindings:
    """How flat the softmax or sigmoid is at the prediction."""

    probability: Measured
    saturated: Number
    """Share of targets with a probability above 0.99."""
    weak: Number
    """Share of the edges with a positive gradient that pull less than GNNExplainer's default size penalty pushes."""
    opposed: Number
    """Share of the edges with a gradient at which the log-probability pulls the other way."""


@dataclass(frozen=True, eq=False)
class AskedQuestion:
    """What was asked: the model, the number and the targets, as the head of the report states them."""

    task: str
    mode: str
    of: str
    dtype: str
    targets: int
    num_layers: int
    edges: int
    """(target, edge) pairs in all computation graphs."""
    chance: float
    """Each edge was asked about (flips, certificates; and occlusion, where it takes passes) with this chance."""
    bypass: tuple[str, ...]
    local: bool
    other_layers: tuple[str, ...]
    """Kinds of layers that are not known to be sums (or means) of linear messages."""
    no_walks: str = ""
    """Why `ew.walks` and LRP refuse this model, in their own words; empty if they do not."""


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and what was measured about it here."""

    name: str
    """Such as `"Proposition 2"`."""
    claim: str
    verdict: str
    """`"holds"`, `"nearly"`, `"partly"`, `"fails"`, `"does not apply"`, or `"open"` where it cannot be measured."""
    why: str
    """What was measured, in a sentence."""
    so: str
    """Which method can replace which, or which to use."""


@dataclass(frozen=True, eq=False)
class Report:
    """How far explanations of this model can be trusted, here; print it for the tables and the words.

    `layers[l]` are the findings of a layer, `whole` those of one weight per edge, `statements` what the paper says of it,
    `reliance` whether gradients can be relied on, for all targets together, and `reliance_of_each` for each.
    """

    question: AskedQuestion
    layers: tuple[LayerFindings, ...]
    whole: LayerFindings
    softmax: SoftmaxFindings
    statements: tuple[Statement, ...]
    reliance: Reliance
    reliance_of_each: tuple[Reliance, ...]

    @checked
    def statement(self, name: str) -> Statement:
        """One of the statements by its name, such as `"Proposition 2"`."""
        known = {one.name: one for one in self.statements}
        return known[one_of("statement", name, known)]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON; None where there is no number, with the reason beside it."""
        found: dict[str, Any] = _as_plain(self)
        return found

    def __str__(self) -> str:
        from edgewise.trust.report_text import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from edgewise.trust.report_text import as_html

        return as_html(self)

    def __repr__(self) -> str:
        return f"Report({self.question.targets} targets, {self.question.num_layers} layers; print it for the tables)"


def _as_plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists, numbers ready for JSON."""
    if isinstance(value, Measured):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        found = {part.name: _as_plain(getattr(value, part.name)) for part in fields(value)}
        return found | ({"holds": value.holds, "doubts": list(value.doubts)} if isinstance(value, Reliance) else {})
    if isinstance(value, (list, tuple)):
        return [_as_plain(item) for item in value]
    return for_json(value)
