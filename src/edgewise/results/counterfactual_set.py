"""Counterfactual: what `ew.counterfactual` returns for one target; CounterfactualSet: those of several."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.errors import missing_extra
from edgewise.files import write_whole
from edgewise.graph.type_table import TypeTable
from edgewise.results.explanation import Explanation, Settings
from edgewise.text import counted, for_json, plain_text, short_name, target_in_words, text_of

STATUSES = ("proven", "none", "open")


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """The smallest set of edges without which one target is predicted otherwise, and how far that is proven.

    `status` is `"proven"` (no smaller set does it), `"none"` (no set of any size does) or `"open"` (neither is proven: `edges`
    is the smallest set that was found, if any, and no set with fewer than `lower_bound` members does it). `certainty` says
    whether that is a proof with bounded rounding errors, or certified to a tolerance.
    """

    index: Any
    """The node or graph, or the pair `(u, v)` of a link."""
    target: int
    """The class that is predicted; of a regression or a label, 1 above the threshold and 0 below."""
    status: str
    edges: tuple[Any, ...]
    """The columns of `edge_index`, rising; of a typed graph pairs (edge type, column). Empty if no set was found."""
    flips_to: int | None
    """What is predicted without them, in the terms of `target`; None if no set was found."""
    lower_bound: int
    """No set with fewer members changes the prediction. Of status `"none"`: more than there are members to take."""
    units: tuple[tuple[Any, ...], ...]
    """The members of the set: single columns, or with `undirected` all columns between the same two nodes."""
    num_units: int
    """How many members could be taken: all that can reach the target."""
    before: tuple[float, ...]
    """The outputs (logits, or values) with all edges."""
    after: tuple[float, ...] | None
    """The outputs without the set."""
    settings: Settings
    edge_index: Tensor = field(repr=False)
    num_nodes: int = 0
    evaluations: int = 0
    """How many sets of edges were tried, and how many were bounded."""
    seconds: float = 0.0
    types: TypeTable | None = field(default=None, repr=False)

    @property
    def size(self) -> int | None:
        """How many members the set has; None if no set was found."""
        return len(self.units) if self.flips_to is not None else None

    @property
    def certainty(self) -> str:
        """`"proven"` (rounding errors are bounded), `"certified to a tolerance of …"`, or `"open"`."""
        tolerance = self.settings.get("tolerance")
        if self.status == "open" or tolerance is None:
            return "open" if self.status == "open" else "proven"
        return f"certified to a tolerance of {tolerance:.0e} of the largest output"

    @property
    def known(self) -> str:
        """The status in the words that texts and tables print: a set that is certified is not called proven."""
        if self.certainty in ("open", "proven"):
            return self.status
        return self.certainty if self.status == "proven" else f"{self.status}, {self.certainty}"

    def probability(self, of: str = "after") -> float | None:
        """The probability of the prediction `"before"`, or of the new one `"after"`; None for values and without a set."""
        one_of("of", of, ("before", "after"))
        row, said = (self.before, self.target) if of == "before" else (self.after, self.flips_to)
        mode = self.settings.get("mode")
        if row is None or said is None or mode == "regression":
            return None
        if mode == "multiclass":
            return float(torch.tensor(row).double().softmax(dim=0)[said])
        chance = float(torch.tensor(row).double()[self.settings.get("column", 0)].sigmoid())
        return chance if said else 1 - chance

    # --- in words -----------------------------------------------------------------------------------------------------

    @checked
    def sentence(self, *, noun: str = "edge", labels: Any = None, classes: Any = None) -> str:
        """The answer in plain words.

        For example: Without these 2 payments (Ann → Bob, Cy → Bob): clean, 71%.

        Args:
            noun: What an edge is, in the singular.
            labels: A text per node, `{node: text}` or one for every node.
            classes: A text per class, `{class: text}` or one for every class.
        """
        whole = self._class(self.target, classes)
        if self.status == "none":
            return f"No set of {noun}s changes the prediction ({whole}): all {counted(self.num_units, noun)} were considered."
        if self.flips_to is None:
            known = f"no set of fewer than {self.lower_bound} does" if self.lower_bound > 1 else "nothing is proven"
            return f"No set of {noun}s was found that changes the prediction ({whole}); {known}."
        now = self._with_chance(self._class(self.flips_to, classes))
        if not self.units:
            return f"It is {now} already: nothing has to go."
        which = f"this {noun}" if len(self.units) == 1 else f"these {len(self.units)} {noun}s"
        listed = ", ".join(self._edge(unit, labels) for unit in self.units[:_LISTED])
        listed += f" and {len(self.units) - _LISTED} more" if len(self.units) > _LISTED else ""
        proof = ""
        if self.status == "open":
            proof = f" A smaller set is not excluded; at least {counted(max(self.lower_bound, 1), noun)} must go."
        return f"Without {which} ({listed}): {now}.{proof}"

    def advice(self, option: Callable[[str, Any], str] = "{}={}".format) -> str:
        """Why a search is open, and what to type to go on; empty if it is not.

        `option` writes an argument with its value.

        For example: The search ended after 10 s. Use seconds=100 for a longer one.
        """
        ended_by = self.settings.get("ended_by")
        if ended_by in ("seconds", "budget"):
            limit = self.settings[ended_by]
            after = f"{limit:g} s" if ended_by == "seconds" else f"{limit:,} sets"
            return f"The search ended after {after}. Use {option(ended_by, f'{10 * limit:g}')} for a longer one."
        known = {
            "rounding": "Rounding hides the answer of a set; a longer search does not help.",
            "members": "There are too many members to try more than one at a time; a longer search does not help.",
            "size": f"Larger sets were not tried: {option('size', self.settings.get('size'))}.",
        }
        return known.get(str(ended_by), "")

    def _with_chance(self, name: str) -> str:
        chance = self.probability("after")
        if chance is not None:
            return f"{name}, {chance:.0%}"
        return f"{name}, {self.after[self.settings.get('column', 0)]:.4g}" if self.after else name

    def _class(self, number: int, classes: Any) -> str:
        """A class in words."""
        count = len(self.before) if self.settings.get("mode") == "multiclass" else 2
        known = text_of(classes, number, count, "classes", "class")
        if known is not None:
            return plain_text(known)
        mode = self.settings.get("mode")
        if mode == "regression":
            return f"{'above' if number else 'below'} {self.settings['threshold']:g}"
        if mode == "multilabel":
            return f"label {self.settings['column']} {'on' if number else 'off'}"
        return f"class {number}"

    def _edge(self, unit: tuple[Any, ...], labels: Any) -> str:
        """A member of the set by its ends."""
        source, receiver = (self._node(int(node), labels) for node in self.edge_index[:, self._column(unit[0])])
        return f"{source} {'–' if self.settings.get('undirected') else '→'} {receiver}"

    def _column(self, edge: Any) -> int:
        """A column of `edge_index`."""
        if self.types is None or not isinstance(edge, tuple):
            return int(edge)
        return self.types.edge_range(edge[0])[edge[1]]

    def _node(self, node: int, labels: Any) -> str:
        named: Any = node if self.types is None else self.types.node(node)
        if self.types is not None and isinstance(labels, Mapping) and named[0] in labels:  # by node type
            known = text_of(labels[named[0]], named[1], len(self.types.node_range(named[0])), "labels", "node")
        else:
            known = text_of(labels, named, self.num_nodes, "labels", "node")
        if known is not None:
            return short_name(known)
        return str(node) if self.types is None else " ".join(map(str, named))

    def __str__(self) -> str:
        task = self.settings.get("task", "node")
        typed = self.types is not None and self.types.explained
        named = target_in_words(self.index) if typed else f"{task} {self.index}"
        bound = f", at least {self.lower_bound}" if self.status == "open" else ""
        advice = self.advice()
        return f"{named} ({self.known}{bound}). {self.sentence()}{advice and ' ' + advice}"

    def __repr__(self) -> str:
        flips = "" if self.flips_to is None else f", flips_to={self.flips_to}"
        return (
            f"Counterfactual(index={self.index}, target={self.target}, status={self.status!r}, edges={self.edges}{flips}, "
            f"lower_bound={self.lower_bound}, {counted(self.num_units, 'unit')})"
        )

    # --- as data ------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON."""
        names = ("index", "target", "status", "edges", "flips_to", "size", "lower_bound", "units", "num_units")
        about = {
            name: getattr(self, name) for name in (*names, "certainty", "before", "after", "evaluations", "seconds")
        }
        chances = {"probability_before": self.probability("before"), "probability_after": self.probability("after")}
        return dict(for_json({**about, **chances, "settings": dict(self.settings)}))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each column of the set: a table of which edges go."""
        about = {"index": self.index, "target": self.target, "status": self.status, "flips_to": self.flips_to}
        about["certainty"] = self.certainty
        ends = self.edge_index
        return [
            {**about, "size": self.size, "lower_bound": self.lower_bound, "unit": number, "column": column}
            | dict(zip(("source", "receiver"), ends[:, self._column(column)].tolist(), strict=True))
            for number, unit in enumerate(self.units)
            for column in unit
        ]

    def to_frame(self) -> Any:
        """The rows of `to_rows` as a `pandas.DataFrame`. Needs `edgewise[table]`."""
        return _frame(self.to_rows())

    @checked
    def save(self, path: str | Path) -> Path:
        """Write `to_dict` to a JSON file."""
        return _save(self.to_dict(), path)

    def as_explanation(self) -> Explanation:
        """The set as an explanation: 1 for its edges, 0 for all others."""
        scores = torch.zeros(self.edge_index.size(1))
        scores[[self._column(edge) for edge in self.edges]] = 1.0
        about = {"task": self.settings.get("task", "node"), "mode": self.settings.get("mode")}
        index = self.types.number(self.index) if self.types is not None and self.types.explained else self.index
        value = float(self.before[self.settings.get("column", self.target)])
        return Explanation(
            scores, self.edge_index, self.num_nodes, index, self.target, value, "counterfactual", "input", about
        )

    @checked
    def plot(
        self,
        *,
        noun: str = "edge",
        labels: Any = None,
        classes: Any = None,
        class_names: Any = None,
        marked: Mapping[str, Any] | None = None,
        title: str = "",
    ) -> Any:
        """A matplotlib figure of the edges that go, with the sentence below it. Needs `edgewise[plot]`.

        Args:
            noun: As in `sentence`.
            labels: A text per node, as in `explanation.plot`.
            classes: A class per node, as in `explanation.plot`: the colours of the nodes.
            class_names: A text per class, for the sentence.
            marked: Groups of nodes to point out.
            title: Replaces the default title.
        """
        from edgewise.report.flip_picture import draw_counterfactual

        words = self.sentence(noun=noun, labels=labels, classes=class_names)
        return draw_counterfactual(self, words, labels=labels, classes=classes, marked=marked, title=title)


_LISTED = 6
"""Edges that a sentence names."""


@dataclass(frozen=True, eq=False, repr=False)
class CounterfactualSet(Sequence[Counterfactual]):
    """The counterfactuals of several targets, in the order of the question."""

    found: tuple[Counterfactual, ...]

    @overload
    def __getitem__(self, place: int) -> Counterfactual: ...
    @overload
    def __getitem__(self, place: slice) -> "CounterfactualSet": ...
    def __getitem__(self, place: int | slice) -> Any:
        """One of them, or a set of some."""
        return CounterfactualSet(self.found[place]) if isinstance(place, slice) else self.found[place]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Counterfactual]:
        return iter(self.found)

    def counts(self) -> dict[str, int]:
        """How many are proven, none and open."""
        counted_ = Counter(one.status for one in self.found)
        return {status: counted_[status] for status in STATUSES}

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in self.counts().items())
        return f"CounterfactualSet({counted(len(self), 'target')}: {counts})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.found))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON."""
        return {"counts": self.counts(), "targets": [one.to_dict() for one in self.found]}

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each target."""
        names = ("index", "target", "status", "size", "lower_bound", "flips_to", "edges", "num_units", "seconds")
        return [{name: getattr(one, name) for name in names} for one in self.found]

    def to_frame(self) -> Any:
        """The rows of `to_rows` as a `pandas.DataFrame`. Needs `edgewise[table]`."""
        return _frame(self.to_rows())

    @checked
    def save(self, path: str | Path) -> Path:
        """Write `to_dict` to a JSON file."""
        return _save(self.to_dict(), path)


def _frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("pandas", "table", "to_frame()") from error
    return pandas.DataFrame(rows)


def _save(content: dict[str, Any], path: str | Path) -> Path:
    text = json.dumps(content, indent=1).encode()
    write_whole(Path(path), lambda file: file.write(text))
    return Path(path)
