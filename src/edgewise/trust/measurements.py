"""From what was measured to what a `Report` says, layer by layer, with the reason where a number is missing.

`api/check.py` fills in `Measurements`; the functions here turn them into the findings of `report.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric import nn as pyg

from edgewise.question import PosedQuestion
from edgewise.results.metric_result import Measured, with_reasons
from edgewise.trust.activity import Activity
from edgewise.trust.certificate import Certificate
from edgewise.trust.completeness import SATURATED, Balance, Pull, probability
from edgewise.trust.flips import SignFlips
from edgewise.trust.gradient_vs_occlusion import Effects
from edgewise.trust.reliance import Reliance, reliance_of
from edgewise.trust.report import (
    PER_LAYER,
    TOGETHER,
    AskedQuestion,
    FlipFindings,
    LayerFindings,
    Number,
    SoftmaxFindings,
)
from edgewise.trust.target_edges import Draw, proportion

_PER_LAYER = Number(float("nan"), PER_LAYER)


@dataclass(frozen=True, eq=False)
class Measurements:
    """Everything that was measured; dicts are by level, `"layer"` and `"input"`."""

    balance: Balance
    effects: dict[str, Effects]
    flips: dict[str, SignFlips]
    proofs: dict[str, Certificate]
    paths: Tensor
    """`[4, T]`: gradients while all edges are weakened together; see `path_of`."""
    activity: list[Activity]
    """For each call."""
    pull: Pull
    pairs: int
    """(target, edge) pairs in all computation graphs."""

    def reliance(self, positions: Sequence[int] | None = None) -> Reliance:
        """Whether gradients can be relied on, for some targets or all of them together."""
        return reliance_of(self.effects["input"], self.flips["input"], self.paths, positions)


def asked_question(question: PosedQuestion, found: Measurements, draw: Draw, no_walks: str) -> AskedQuestion:
    """What was asked, for the head of the report."""
    modules = [call.module for call in question.trace.calls]
    return AskedQuestion(
        task=question.task,
        mode=question.target.mode,
        of=question.target.of,
        dtype=str(question.target.truth.dtype).removeprefix("torch."),
        targets=len(question.index),
        num_layers=question.num_layers,
        edges=found.pairs,
        chance=draw.chance,
        bypass=tuple(question.trace.bypass),
        local=question.hops is not None or question.task == "graph",
        other_layers=tuple(dict.fromkeys(type(module).__name__ for module in modules if not _sums_messages(module))),
        no_walks=no_walks,
    )


def _sums_messages(module: Any) -> bool:
    """Whether a layer is known to sum (or average) messages that are linear in their senders, as in the paper."""
    if not isinstance(module, (pyg.GCNConv, pyg.SGConv, pyg.SAGEConv, pyg.GraphConv, pyg.GINConv)):
        return False
    changed = getattr(module, "project", False) or (isinstance(module, pyg.SAGEConv) and module.normalize)
    return module.aggr in ("add", "sum", "mean") and not changed


def layer_findings(question: PosedQuestion, found: Measurements, layer: int) -> LayerFindings:
    """The findings of one layer."""
    calls, balance, active = question.trace.calls_of(layer), found.balance, found.activity[layer]
    inseparable = "" if question.separable[layer] else "its own term cannot be told apart from its edges"
    weight, gap = float(balance.value.abs().sum()), balance.gap[:, layer]
    missing = float(gap.sum()) / weight if weight else torch.nan
    parts = (balance.edges, balance.own, balance.constant, balance.rest)
    edges, own, constant, rest = (
        _number(float(balance.share(part)[layer]), inseparable or "the explained numbers are all 0") for part in parts
    )
    return LayerFindings(
        layer=layer,
        name=", ".join(dict.fromkeys(f"{call.name} ({type(call.module).__name__})" for call in calls)),
        gap=_measured("gap", gap, question.index, inseparable, "lower"),
        missing=_number(missing, inseparable or "the explained numbers are all 0"),
        edges=edges,
        own=own,
        constant=constant,
        rest=rest,
        unevenness=_number(float(balance.unevenness()[layer]), "without half of its edges nothing changes"),
        rate=_number(active.rate, "no ReLU or LeakyReLU follows"),
        fixed=_number(active.fixed_share, "no ReLU or LeakyReLU follows"),
        activations=tuple(active.names),
        **_about_edges(question, found, "layer", layer),
    )


def whole_findings(question: PosedQuestion, found: Measurements) -> LayerFindings:
    """The findings with one weight per edge, shared by all layers; what is measured per layer is left out."""
    nothing = _measured("gap", torch.full((len(question.index),), torch.nan), question.index, PER_LAYER, "lower")
    names = tuple(dict.fromkeys(name for active in found.activity for name in active.names))
    parts = ("missing", "edges", "own", "constant", "rest", "unevenness", "rate", "fixed")
    per_layer: dict[str, Any] = dict.fromkeys(parts, _PER_LAYER)
    about = _about_edges(question, found, "input", 0)
    size = float(found.paths[2].sum())
    together = float(found.paths[1].sum()) / size if size else torch.nan
    about["flips"] = replace(about["flips"], together=_number(together, "every gradient is 0"))
    return LayerFindings(layer=None, name="all layers", gap=nothing, activations=names, **per_layer, **about)


def _about_edges(question: PosedQuestion, found: Measurements, level: str, group: int) -> dict[str, Any]:
    """The findings about single edges: gradient against occlusion, and sign flips."""
    effects = found.effects[level]
    none = effects.products[1, :, group] == 0
    undefined = [
        (none, "the gradients are all zero"),
        (effects.products[2, :, group] == 0, "the occlusions are all zero"),
    ]
    difference = effects.difference[:, group]
    return {
        "cosine": with_reasons("gradient ~ occlusion", effects.cosine()[:, group], question.index, undefined),
        "difference": _number(float(difference.max()) if effects.worst[group] else torch.nan, "there is no edge"),
        "worst": effects.worst[group],
        "flips": _flips(found.flips[level], found.proofs[level], group if level == "layer" else None),
    }


def _flips(flips: SignFlips, proof: Certificate, layer: int | None) -> FlipFindings:
    """Sampled flips and proofs of one layer, or (None) of one weight per edge."""

    def row(part: Tensor) -> Tensor:
        return part if layer is None else part[layer]

    counted, alive = row(flips.counted), ~row(proof.vanishes)
    kept, broken = row(proof.keeps), row(proof.flips)
    why, nothing = proof.reason or "every gradient is proved to be 0", "no edge that was asked about has a gradient"

    def sampled(part: Tensor) -> Number:
        return _number(proportion(row(part), counted), nothing)

    def proved(part: Tensor) -> Number:
        return _number(torch.nan if proof.reason else proportion(part, alive), why)

    return FlipFindings(
        edges=int(counted.sum()),
        share=sampled(flips.flipped),
        to_negative=sampled(flips.to_negative),
        to_positive=sampled(flips.to_positive),
        kept=proved(kept),
        broken=proved(broken),
        unknown=proved(~(kept | broken)),
        together=Number(torch.nan, TOGETHER),
    )


def softmax_findings(question: PosedQuestion, found: Measurements) -> SoftmaxFindings:
    """How flat the softmax or sigmoid is at the predictions."""
    likely, pull = probability(question.target), found.pull
    if likely is None:
        why = "a regression has no probability"
        nothing = _measured("probability", torch.full((len(question.index),), torch.nan), question.index, why, "")
        return SoftmaxFindings(nothing, *[Number(torch.nan, why)] * 3)
    weak = pull.weak / pull.positive if pull.positive else torch.nan
    opposed = pull.opposed / pull.edges if pull.edges else torch.nan
    return SoftmaxFindings(
        _measured("probability", likely, question.index, "", ""),
        Number(float((likely > SATURATED).double().mean())),
        _number(weak, "no edge has a positive gradient"),
        _number(opposed, "no edge has a gradient"),
    )


def _number(value: float, reason: str) -> Number:
    """A number; the reason is dropped unless the number is NaN."""
    return Number(value, reason if value != value else "")


def _measured(name: str, value: Tensor, index: Tensor, reason: str, better: str) -> Measured:
    """Numbers `[T]` of which every NaN has the same reason."""
    return with_reasons(name, value, index, [(value.isnan(), reason)], better)
