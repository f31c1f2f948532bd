"""Can this be trusted? Sentences for one target, from what was measured for the page.

A line is `[mark, text]`: `"good"`, `"care"`, `"bad"`, or `"note"`, which does not count for or against.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgewise.trust.reliance import AGREEMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgewise.report.page.answer_words import Wording
    from edgewise.report.page.page_run import Findings, PageAbout

PARTLY = 0.6
"""The cosine of gradient and occlusion from which on they agree at least in part."""

Lines = list[list[str]]


def trust_lines(asked: PageAbout, found: Findings, position: int, words: Wording, *, any_edges: bool) -> Lines:
    """What speaks for believing the explanation of one target, and what against it."""
    lines = [*_reliance(asked, found, position), *_proofs(found), *_label(asked, position, words)]
    audit = asked.question.audit
    off = f"up to rounding ({audit.value_error:.0e})" if audit.value_error else "exactly"
    lines.append(["good", f"The explained number was compared with the model itself: it matches {off}."])
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


def _reliance(asked: PageAbout, found: Findings, position: int) -> Lines:
    """Whether gradients can be relied on for this target, as `check` and `method="auto"` decide it."""
    if found.report is None:
        return _agreement(asked, found, position)
    seen = found.report.reliance_of_each[position]
    if seen.edges == 0:
        return []
    mark = "good" if seen.holds else "care" if seen.agreement >= PARTLY else "bad"
    so = "" if seen.holds else " Trust the lines “without it”, not the order of the rest."
    return [[mark, f"{seen.sentence[:1].upper()}{seen.sentence[1:]}.{so}"]]


def _agreement(asked: PageAbout, found: Findings, position: int) -> Lines:
    """Without a check: whether gradient and occlusion tell the same story about this target. Signs were not measured."""
    names = {one.method.name: one.label for one in asked.contenders}
    if not {"gradient", "occlusion"} <= set(names):
        return []
    first, second = sorted((names["gradient"], names["occlusion"]), key=[o.label for o in asked.contenders].index)
    known = [found.agreements.get((first, second, level, None, "cosine")) for level in asked.levels]
    cosine = next((float(one.value[0][position]) for one in known if one is not None), float("nan"))
    if cosine != cosine:
        return []
    told = f"(cosine {cosine:.2f}; signs were not checked)"
    if cosine >= AGREEMENT:
        return [["good", f"Gradient and occlusion agree on the edges {told}."]]
    if cosine >= PARTLY:
        return [["care", f"Gradient and occlusion agree only in part {told}: trust the lines “without it” above all."]]
    return [
        ["bad", f"Gradient and occlusion disagree {told}: trust the lines “without it”, not the order of the rest."]
    ]


def _proofs(found: Findings) -> Lines:
    """Of how many edges it is proved that they keep their side at any strength."""
    if found.report is None or not found.report.whole.flips.kept.known:
        return []
    share, targets = found.report.whole.flips.kept.value, found.report.question.targets
    told = "all edges keep" if share == 1 else f"{math.floor(1000 * share) / 10:g}% of the edges keep"
    many = " of these targets" if targets > 1 else ""
    text = f"It is proved that {told}{many} their side, for or against, at any strength of that edge alone."
    return [["note", text]]


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
