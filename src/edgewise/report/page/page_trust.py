"""Can this be trusted? Sentences for one target, from what was measured for the page.

A line is `[mark, text]`: `"good"`, `"care"`, `"bad"`, or `"note"`, which does not count for or against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgewise.report.page.answer_words import Wording
    from edgewise.report.page.page_run import Findings, PageAbout

ALIKE, PARTLY = 0.9, 0.6
"""Cosines of gradient and occlusion from which on they agree, or agree in part."""
PROVEN = 0.95
"""The share of edges with a proven sign from which on the signs count as proven."""
FEW_FLIPS = 0.05

Lines = list[list[str]]


def trust_lines(asked: PageAbout, found: Findings, position: int, words: Wording, *, any_edges: bool) -> Lines:
    """What speaks for believing the explanation of one target, and what against it."""
    lines = [*_agreement(asked, found, position), *_signs(found), *_label(asked, position, words)]
    audit = asked.question.audit
    off = f"up to rounding ({audit.value_error:.0e})" if audit.value_error else "exactly"
    lines.append(["good", f"The numbers were checked against the model itself: they match {off}."])
    if any_edges:
        lines.append(
            [
                "note",
                "“Without it” means that the model ignores the edge and all else stays the same. Those lines are exact.",
            ]
        )
    return lines


def trust_word(lines: Sequence[Sequence[str]]) -> str:
    """One word for all lines."""
    marks = {mark for mark, _ in lines}
    if "bad" in marks:
        return "Only in part."
    return "With care." if "care" in marks else "Yes."


def _agreement(asked: PageAbout, found: Findings, position: int) -> Lines:
    """Whether gradient and occlusion tell the same story about this target."""
    names = {one.method.name: one.label for one in asked.contenders}
    if not {"gradient", "occlusion"} <= set(names):
        return []
    first, second = sorted((names["gradient"], names["occlusion"]), key=[o.label for o in asked.contenders].index)
    for level in asked.levels:
        known = found.agreements.get((first, second, level, None, "cosine"))
        if known is not None:
            break
    else:
        return []
    cosine = float(known.value[0][position])
    if cosine != cosine:
        return []
    told = f"(cosine {cosine:.2f})"
    if cosine >= ALIKE:
        return [["good", f"Two independent methods, gradient and occlusion, agree on the edges {told}."]]
    if cosine >= PARTLY:
        return [["care", f"Gradient and occlusion agree only in part {told}: trust the lines “without it” above all."]]
    return [
        ["bad", f"Gradient and occlusion disagree {told}: trust the lines “without it”, not the order of the rest."]
    ]


def _signs(found: Findings) -> Lines:
    """Whether an edge that supports would do so at any strength."""
    if found.report is None:
        return []
    flips = found.report.whole.flips
    if flips.edges == 0:
        return []
    if flips.kept.known and flips.kept.value >= PROVEN:
        kept = flips.kept.value
        every = "all edges" if kept == 1 else "nearly all edges" if kept >= 0.995 else f"{kept:.0%} of the edges"
        return [["good", f"The signs are proven: {every} keep their side, for or against, at any strength."]]
    if not flips.share.known:
        return []
    if flips.share.value <= FEW_FLIPS:
        few = "no edge changes sides" if flips.share.value == 0 else f"only {flips.share:.1%} of the edges change sides"
        return [["good", f"The signs hold: {few} when edges are weakened (sampled)."]]
    return [
        [
            "care",
            f"{flips.share:.0%} of the edges change sides when they are weakened: what supports now might oppose then.",
        ]
    ]


def _label(asked: PageAbout, position: int, words: Wording) -> Lines:
    """Whether the prediction is what the data say."""
    labels, target = asked.question.labels(), asked.question.target
    if labels is None:
        return []
    label, says = int(labels[position]), int(target.says()[position])
    if target.mode == "multilabel" and label in (0, 1):
        told = f"The data say {'yes' if label else 'no'} here"
        if label == says:
            return [["note", f"{told}, as the model does."]]
        return [["care", f"{told}: the model is wrong here, if they are right."]]
    if not 0 <= label < len(words.classes):
        return []
    if label == says:
        return [["note", f"The label in the data is also “{words.classes[label]}”."]]
    return [
        ["care", f"The label in the data is “{words.classes[label]}”: the model is wrong here, if the label is right."]
    ]
