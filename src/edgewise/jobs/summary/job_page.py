"""The page of a job: one HTML file about all of its targets, with the explanations of those to look at first.

It has no script and loads nothing: tables, bars and small pictures, in the style of the page about some targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import torch

from edgewise.arrays import plain_index
from edgewise.jobs.summary.job_bins import Bin, bin_table, bins_of_counts, bins_of_shares
from edgewise.jobs.summary.job_doubts import Doubts
from edgewise.jobs.summary.job_facts import NOT_SHARES
from edgewise.jobs.summary.job_picture import EDGES, picture_svg
from edgewise.jobs.summary.job_tables import lines_table, share_cells, short_number
from edgewise.report.appearance import signed_colour
from edgewise.report.page.html import static_file
from edgewise.report.scene import strongest_edges, task_of
from edgewise.text import counted, html_table, plain_text

if TYPE_CHECKING:
    from torch import Tensor

    from edgewise.jobs.job import Job
    from edgewise.jobs.summary.job_facts import JobFacts
    from edgewise.jobs.summary.job_names import JobNames
    from edgewise.results.explanation import Explanation

FREQUENT = 20
"""Of the most frequent edges and nodes."""
_FAILURES = 20
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
"""What the page may load: that of the other pages, without scripts, of which it has none."""
_LONGEST = 90


@dataclass(frozen=True, eq=False)
class JobPage:
    """Everything that a page of a job says."""

    job: Job
    facts: JobFacts
    names: JobNames
    other: Job | None
    labels: Tensor | None
    """`[n]`: the label of each explained target, −1 where there is none."""
    first: int
    """How many targets to look at first are shown."""
    title: str | None

    def html(self) -> str:
        """The text of the file."""
        heading = plain_text(self.title or f"Job {self.job.path.resolve().name}", longest=_LONGEST)
        parts = [self._cards(), self._distributions(), self._frequent(), self._first(), self._explained(), self._made()]
        return (
            "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f"<title>{escape(heading)}</title>\n<style>\n{static_file('page.css')}{static_file('job.css')}</style>\n</head>\n"
            f"<body>\n<header><h1>{escape(heading)}</h1></header>\n<main>\n<p id='verdict'>{self._verdict()}</p>\n"
            f"<p class='note'>{escape(self._status())}</p>\n</main>\n<div class='sections'>\n"
            + "\n".join(part for part in parts if part)
            + "\n</div>\n</body>\n</html>\n"
        )

    # --- what it is -----------------------------------------------------------------------------------------------------

    @property
    def _noun(self) -> str:
        return task_of(self.facts.settings)

    @property
    def _noun_of_class(self) -> str:
        return "output" if self.facts.settings.get("mode") == "regression" else "class"

    def _verdict(self) -> str:
        count = len(self.facts.targets.value)
        return escape(
            f"{count:,} {self._noun}{'s' if count != 1 else ''} explained by {self.job.method}, {self.job.level} level."
        )

    def _status(self) -> str:
        """How far the job is, in a sentence."""
        left = len(self.job) - len(self.facts.targets.value) - len(self.facts.failed)
        said = [f"{len(self.job):,} were asked for"]
        if self.facts.failed:
            said.append(f"{len(self.facts.failed):,} failed")
        if left:
            said.append(f"{left:,} are not done yet: this page is about the others")
        top = self.facts.settings.get("top")
        kept = f" Of each, the {top} strongest scores were kept, and only they are counted here." if top else ""
        return "; ".join(said) + "." + kept

    def _cards(self) -> str:
        """Counts by class, doubts, failures."""
        word = self._noun_of_class
        classes = f"<article><h2>By {word}</h2>{bin_table(self._classes())}</article>"
        doubts = [f"<li class='care'>{count:,} {escape(words)}</li>" for count, words in self.doubts.counts()]
        nothing = "<li class='good'>No target stands out by what is known about it.</li>"
        if self.labels is None and word == "class":
            doubts = [*(doubts or [nothing]), "<li>Predictions were not compared with labels.</li>"]
        trust = f"<article><h2>What stands out</h2><ul>{''.join(doubts) or nothing}</ul></article>"
        return f"<section><div class='cards'>{classes}{trust}{self._failures()}</div></section>"

    def _classes(self) -> list[Bin]:
        number, count = torch.unique(self.facts.targets.target, return_counts=True)
        order = count.argsort(descending=True, stable=True)
        return [Bin(self.names.of_class(int(number[at])), int(count[at])) for at in order]

    def _failures(self) -> str:
        """Why targets failed, and the first of them; the same reason once."""
        if not self.facts.failed:
            return "<article><h2>Failures</h2><ul><li class='good'>No target failed.</li></ul></article>"
        reasons: dict[str, list[int]] = {}
        for position, why in self.facts.failed.items():
            reasons.setdefault(why, []).append(position)
        rows = [
            f"<li class='bad'>{len(places):,}: {escape(plain_text(why, 300))}<small>{escape(self._listed(places))}</small></li>"
            for why, places in sorted(reasons.items(), key=lambda one: -len(one[1]))[:_FAILURES]
        ]
        return f"<article><h2>Failures</h2><ul>{''.join(rows)}</ul></article>"

    def _listed(self, places: list[int]) -> str:
        """The first targets of a list."""
        return ", ".join(map(self._target, places[:_FAILURES])) + (" …" if len(places) > _FAILURES else "")

    # --- distributions --------------------------------------------------------------------------------------------------

    def _distributions(self) -> str:
        facts = self.facts.targets
        if not len(facts.value):
            return ""
        complete = facts.complete[~facts.complete.isnan()]
        blocks = [
            (
                "Completeness",
                self._completeness(),
                bin_table(bins_of_shares(complete, 0.0, 2.0)) if len(complete) else "",
            ),
            (
                "Size of explanations",
                "How many edges make up 95% of the magnitude of the scores, layers summed.",
                bin_table(bins_of_counts(facts.size)),
            ),
        ]
        agreement = facts.agreement[~facts.agreement.isnan()]
        if self.other is not None:
            about = f"The cosine with {self.other.method}, from {plain_text(self.other.path.name)}."
            blocks.append(("Agreement", about, bin_table(bins_of_shares(agreement, 0.0, 1.0))))
        grid = "three" if len(blocks) == 3 else "two"
        shown = (f"<div><h2>{head}</h2><p class='note'>{escape(note)}</p>{table}</div>" for head, note, table in blocks)
        return f"<section class='{grid}'>{''.join(shown)}</section>"

    def _completeness(self) -> str:
        if self.job.method in NOT_SHARES:
            return f"Scores of {self.job.method} are no shares of the explained number: they do not add up to it."
        if bool(self.facts.targets.complete.isnan().all()):
            return "Not known: own terms of the layers cannot be separated."
        of = "layer (the one that is farthest from 1)" if self.job.level == "layer" else "target"
        return (
            f"What the scores of a {of} add up to, self scores among them, as a share of the explained number. In a linear "
            "network without biases it is 1."
        )

    # --- edges and nodes ------------------------------------------------------------------------------------------------

    def _frequent(self) -> str:
        """The edges and nodes that explain most targets."""
        if self.facts.edges is None or self.facts.nodes is None or self.facts.sample is None:
            return (
                "<section><h2>Most frequent edges</h2><p class='note'>Every target has a graph of its own, so no edge comes "
                "twice.</p></section>"
                if len(self.facts.targets.value)
                else ""
            )
        graph, total = self.facts.sample.graphs[0][0].cpu(), len(self.facts.targets.value)
        edges = [
            [self.names.edge(column, *graph[:, column].tolist()), *share_cells(count, total)]
            for column, count in self.facts.edges[:, :FREQUENT].t().tolist()
        ]
        nodes = [
            [self.names.node(node), *share_cells(count, total)]
            for node, count in self.facts.nodes[:, :FREQUENT].t().tolist()
        ]
        note = "Of how many targets it is among the edges that make up 95% of the magnitude"
        return (
            "<section class='two'>"
            f"<div><h2>Most frequent edges</h2><p class='note'>{note}.</p>"
            f"{lines_table(('Edge', 'Targets', 'Share'), edges)}</div>"
            f"<div><h2>Most frequent nodes</h2><p class='note'>{note}, at either end.</p>"
            f"{lines_table(('Node', 'Targets', 'Share'), nodes)}</div></section>"
        )

    # --- targets --------------------------------------------------------------------------------------------------------

    @cached_property
    def doubts(self) -> Doubts:
        """What is doubtful about each target."""
        return Doubts.of(self.facts.targets, self.labels)

    @cached_property
    def _chosen(self) -> list[int]:
        """The targets to look at first, as places in the facts."""
        return self.doubts.order()[: self.first].tolist()

    def _first(self) -> str:
        facts = self.facts.targets
        if not self._chosen:
            return ""
        rows = "".join(
            f"<tr><th><a href='#target-{int(facts.position[at])}'>{escape(self._target(int(facts.position[at])))}</a></th>"
            f"<td>{escape(self.names.of_class(int(facts.target[at])))}</td>"
            f"<td class='number'>{short_number(float(facts.value[at]))}</td>"
            f"<td class='number wide'>{int(facts.size[at])}</td>"
            f"<td>{escape(self._words(at))}</td></tr>"
            for at in self._chosen
        )
        of = escape(str(self.facts.settings.get("of", "value")))
        word = self._noun_of_class.capitalize()
        return (
            "<section id='first'><h2>Look at these first</h2><p class='note'>The targets about which most is doubtful; each "
            "leads to its explanation below.</p><div class='scroll bare'><table class='lines'><thead><tr>"
            f"<th>Target</th><th>{word}</th><th class='number'>{of}</th><th class='number wide'>Edges</th><th>Why</th></tr>"
            f"</thead><tbody>{rows}</tbody></table></div></section>"
        )

    def _words(self, at: int) -> str:
        return self.doubts.words(at, self.facts.targets, self.labels, self.names.classes)

    def _target(self, position: int) -> str:
        """A target in words."""
        return self.names.target(plain_index(self.job.index[position : position + 1])[0], self._noun)

    def _explained(self) -> str:
        if not self._chosen:
            return ""
        made = (
            "makes it larger, orange smaller"
            if self._noun_of_class == "output"
            else "supports the class, orange opposes it"
        )
        note = f"The {EDGES} strongest edges of each: purple {made}. The square is the target; dotted lines are other edges."
        own = "".join(map(self._own, self._chosen))
        return f"<section><h2>Their explanations</h2><p class='note'>{note}</p>{own}</section>"

    def _own(self, at: int) -> str:
        """The explanation of one target: a picture, and its strongest edges."""
        position = int(self.facts.targets.position[at])
        why: Any = self.job[position]
        flat: Explanation = getattr(why, "flat", why)
        strongest = strongest_edges(flat, EDGES)
        name, short = (self.names.node, self.names.short) if self.facts.edges is not None else (str, str)
        rows = "".join(
            f"<tr><td>{escape(self._edge(step.column, step.source, step.receiver))}</td><td class='number'>"
            f"<span class='signed' style='width:{max(2, round(60 * abs(step.score) / strongest.largest))}px;"
            f"background:{signed_colour(step.score, strongest.largest)}'></span>{short_number(step.score)}</td></tr>"
            for step in reversed(strongest.steps)
        )
        said = f"{self.names.of_class(why.target)}, {why.settings.get('of', 'value')} {short_number(why.value)}"
        return (
            f"<article class='own' id='target-{position}'><h3>{escape(self._target(position))}: {escape(said)}"
            f"<a class='back' href='#first'>back to the list</a></h3><p>{escape(self._words(at).capitalize())}. "
            f"{escape(strongest.sentence())}</p>{picture_svg(flat, name, short)}"
            f"<table class='lines'><thead><tr><th>Edge</th><th class='number'>Score</th></tr></thead><tbody>{rows}</tbody>"
            "</table></article>"
        )

    def _edge(self, column: int | None, source: int, receiver: int) -> str:
        if self.facts.edges is None or column is None:
            return f"{source} → {receiver}"
        return self.names.edge(column, source, receiver)

    # --- what made it ---------------------------------------------------------------------------------------------------

    def _made(self) -> str:
        """The settings of the job."""
        told = {"folder": str(self.job.path), **self.names.story}
        rows = [(name, plain_text(value, 200)) for name, value in told.items() if value is not None]
        one = f"ew.jobs.open({str(self.job.path)!r})[0]"
        return (
            f"<section><h2>What made this page</h2><div class='facts'>{html_table(('Setting', 'Value'), rows)}</div>"
            f"<p class='note'>{counted(len(self.job.shards), 'shard')}. Any other target in Python: <code>{escape(one)}</code>."
            "</p></section>"
        )
