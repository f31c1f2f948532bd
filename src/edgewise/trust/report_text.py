"""A `Report` as text and as simple HTML: the same sections, one for each question that `check` answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from edgewise.results.metric_result import Measured
from edgewise.text import columns, counted, html_table, typed_name
from edgewise.trust.report import PER_LAYER, LayerFindings, Number, Report


@dataclass(frozen=True)
class Section:
    """A table under a question; the first row is its head."""

    title: str
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()


_TWO_FLIPS = (
    "flip alone, and the proofs: one edge's weight goes from 1 to 0 and all others stay 1; shares of the edges",
    "flip together: all weights go from 1 to 0 at once; the share of the gradient, by size, whose sign changes",
)


def as_text(report: Report) -> str:
    """The tables, then what the paper says, in words."""
    parts = [_headline(report), _decision(report)]
    for section in _sections(report):
        parts.append("\n".join([section.title, columns(section.rows), *(f"- {note}" for note in section.notes)]))
    words = [f"{one.name}: {one.verdict}. {one.claim}\n  {one.why}\n  So: {one.so}" for one in report.statements]
    return "\n\n".join([*parts, "What the paper says of this model, here\n" + "\n".join(words)])


def as_html(report: Report) -> str:
    """The same as tables; every text is escaped."""
    parts = [f"<p>{escape(text)}</p>" for text in (_headline(report), _decision(report))]
    for section in _sections(report):
        parts += [f"<h4>{escape(section.title)}</h4>", html_table(section.rows[0], section.rows[1:])]
        parts += [f"<p>{escape(note)}</p>" for note in section.notes]
    rows = [(one.name, one.verdict, one.claim, one.why, one.so) for one in report.statements]
    words = html_table(("statement", "here", "claim", "why", "so"), rows)
    return "\n".join([*parts, "<h4>What the paper says of this model, here</h4>", words])


def _headline(report: Report) -> str:
    """One line: how many targets and layers, which number, which part of the edges."""
    asked = report.question
    part = f", flips and proofs on a random {asked.chance:.1%} of them" if asked.chance < 1 else ""
    way = "" if asked.local else "; the model is not local, every edge may matter"
    return (
        f"{counted(asked.targets, asked.task)}, {counted(asked.num_layers, 'layer')}, the {asked.of} of the explained class "
        f"({asked.mode}), {asked.dtype}; {counted(asked.edges, 'edge')} in all computation graphs{part}{way}"
    )


def _decision(report: Report) -> str:
    """Whether gradients can be relied on, as `method="auto"` and the page decide it."""
    sentence = report.reliance.sentence
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _sections(report: Report) -> list[Section]:
    return [_adding_up(report), _without(report), _signs(report), _activations(report), _softmax(report)]


def _adding_up(report: Report) -> Section:
    """Completeness: what edges, own terms and constants of each layer carry."""
    rows: list[tuple[str, ...]] = [("layer", "gap", "worst gap", "edges", "self edges", "biases, skips", "rest")]
    for layer in report.layers:
        shares = (f"{part:.1%}" for part in (layer.edges, layer.own, layer.constant, layer.rest))
        rows.append((_name(layer), _mean(layer.gap), _largest(layer.gap), *shares))
    notes = [*(f"a skip: {text}" for text in report.question.bypass), *_reasons(report, "gap")]
    return Section("Do the gradients of a layer add up to the explained number?", rows, tuple(notes))


def _without(report: Report) -> Section:
    """Gradient against occlusion."""
    rows = [("layer", "cosine", "halves miss by", "worst edge", "gradient", "occlusion")]
    for layer in (*report.layers, report.whole):
        worst = layer.worst
        edge = ("-", "-", "-")
        if worst is not None:
            where = f"{_node(worst.source)}→{_node(worst.receiver)} for {_node(worst.index)}"
            edge = (where, f"{worst.gradient:.4g}", f"{worst.occlusion:.4g}")
        rows.append((_name(layer), _mean(layer.cosine), f"{layer.unevenness:.2%}", *edge))
    return Section(
        "Is the gradient of an edge what is lost without it?", rows, _reasons(report, "cosine", "unevenness")
    )


def _node(node: Any) -> str:
    """A node, a graph or a link in a cell; of a typed graph `user 3`."""
    return typed_name(*node) if isinstance(node, tuple) and isinstance(node[0], str) else str(node)


def _signs(report: Report) -> Section:
    """Sign flips: of an edge alone, sampled and proved; of all edges together, sampled."""
    rows: list[tuple[str, ...]] = [
        ("layer", "edges", "flip alone", "+ → −", "− → +", "proved to keep", "to flip", "unknown", "flip together")
    ]
    for layer in (*report.layers, report.whole):
        found = layer.flips
        shares = (
            found.share,
            found.to_negative,
            found.to_positive,
            found.kept,
            found.broken,
            found.unknown,
            found.together,
        )
        rows.append((_name(layer), str(found.edges), *(f"{part:.2%}" for part in shares)))
    every = [layer.flips for layer in (*report.layers, report.whole)]
    reasons = dict.fromkeys(found.share.reason for found in every if found.share.reason)
    proofs = dict.fromkeys(f"nothing is proved: {found.kept.reason}" for found in every if found.kept.reason)
    return Section("Do gradients keep their signs while edges are weakened?", rows, (*_TWO_FLIPS, *reasons, *proofs))


def _activations(report: Report) -> Section:
    """Which activation functions follow each layer, and how often their units are on."""
    rows = [("layer", "activations", "on (ρ)", "units that never switch")]
    for layer in report.layers:
        rows.append((_name(layer), ", ".join(layer.activations) or "none", f"{layer.rate:.3f}", f"{layer.fixed:.1%}"))
    return Section("How often are the ReLU units on?", rows)


def _softmax(report: Report) -> Section:
    """How much of a gradient reaches the log-probability."""
    found = report.softmax
    rows = [
        ("mean probability", "above 0.99", "edges that pull too little", "edges pulled the other way"),
        (_mean(found.probability), f"{found.saturated:.1%}", f"{found.weak:.1%}", f"{found.opposed:.1%}"),
    ]
    reasons = dict.fromkeys(part.reason for part in (found.saturated, found.weak, found.opposed) if not part.known)
    return Section("How flat is the softmax or sigmoid?", rows, tuple(reasons))


def _name(layer: LayerFindings) -> str:
    return "all" if layer.layer is None else f"{layer.layer} {layer.name}"


def _mean(measured: Measured) -> str:
    """The mean over the targets that have a number, or a dash."""
    return f"{Number(measured.mean()):.4g}" if measured.undefined < len(measured) else "-"


def _largest(measured: Measured) -> str:
    """The largest number, or a dash."""
    known = measured.value[measured.defined]
    return f"{float(known.max()):.4g}" if len(known) else "-"


def _reasons(report: Report, *names: str) -> tuple[str, ...]:
    """Why numbers of some columns are missing, each reason once; what is measured layer by layer has none for all of them."""
    found: dict[str, None] = {}
    for layer in (*report.layers, report.whole):
        for name in names:
            part = getattr(layer, name)
            if isinstance(part, Number) and part.reason not in ("", PER_LAYER):
                found[f"{_name(layer)}: {part.reason}"] = None
            elif isinstance(part, Measured):
                found |= {
                    f"{_name(layer)}: {n} targets ({why})": None
                    for why, n in part.why_undefined().items()
                    if why != PER_LAYER
                }
    return tuple(found)
