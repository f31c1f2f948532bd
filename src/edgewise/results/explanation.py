"""Explanation: the scores of one target, together with the graph, the class and the method they belong to; frozen.

What can be done with it (subgraphs, pictures, files, tables) is a method here, and lives in a module of its own that is
imported when it is first used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.arguments import one_of, share, shown, whole_number
from edgewise.contract import checked
from edgewise.errors import InputError, PositionError
from edgewise.results.ranked_rows import Ranked, TopEdge, TopStep
from edgewise.results.result_verbs import ResultVerbs
from edgewise.student_intervals import student_quantile
from edgewise.text import by_auto

if TYPE_CHECKING:
    from edgewise.results.subgraph import Subgraph

ORDERS = ("support", "opposition", "magnitude")
"""How edges are ranked: the most positive first, the most negative first, or the largest magnitude first."""


def strength(score: Tensor, by: str) -> Tensor:
    """How strongly each score speaks for the explained class, against it, or either; in the shape of the scores.

    >>> strength(torch.tensor([2.0, -3.0]), "opposition")
    tensor([-2.,  3.])
    """
    return {"support": score, "opposition": -score, "magnitude": score.abs()}[by]


class Settings(Mapping[str, Any]):
    """What a result was made with: read it like a dict; `dict(settings)` gives a copy to change.

    It cannot be changed, but it can be pickled, as a `MappingProxyType` cannot.

    >>> Settings({"epochs": 100})["epochs"]
    100
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({self._values})"


def refuse_other_layers(ours: int, theirs: int, settings: Mapping[str, Any]) -> None:
    """Layer scores with different numbers of rows cannot be compared; `settings` are those of the older result.

    Raises:
        InputError: If the two numbers of layers differ.
    """
    if ours != theirs:
        calls = settings.get("layers") == "calls"
        why = (
            "Edgewise 0.1.0 wrote a row for each message-passing call, not for each layer of the depth"
            if calls
            else ("they belong to models of different depth")
        )
        raise InputError(
            f"Layer scores must have the same number of layers to be compared, got {ours} and {theirs} ({why}). "
            f"{'Explain again with this version, or compare' if calls else 'Compare'} at level='input'."
        )


@dataclass(frozen=True, eq=False)
class Explanation(ResultVerbs):
    """Why the model gave one target its number: a signed score for every edge, `[E]`, or every layer and edge, `[L, E]`.

    Positive supports the explained class, negative opposes it, zero cannot reach the target or changes nothing. Columns are
    those of `edge_index`; layer 0 reads the features. It is also a set of one: `len(why)` is 1, `why[0]` is
    `why` itself, and what loops over a set takes either.

    >>> import torch
    >>> why = Explanation(torch.tensor([0.5, -2.0]), torch.tensor([[0, 1], [2, 2]]), 3, index=2, target=1, value=1.5)
    >>> why.top(1, by="magnitude")
    [(-2.0, 1, 2, 1)]
    """

    scores: Tensor
    edge_index: Tensor
    num_nodes: int
    index: Any
    """The explained node or graph, or the pair `(u, v)` of a link."""
    target: int
    value: float
    """The explained number."""
    method: str = "gradient"
    level: str = "input"
    settings: Mapping[str, Any] = field(default_factory=dict)
    self_scores: Tensor | None = field(default_factory=lambda: None)  # not of the class: it may be made later
    """`[N]` or `[L, N]`: score of each node's own term (self-loop, root weight); NaN in layers where it is not separable."""
    standard_errors: Tensor | None = None
    """Standard errors of the scores, in their shape, for methods that sample (`shapley`); NaN after a single sample.

    With eight orders and twenty edges or more they have grown by what the halves of the orders differ too much."""
    n_id: Any = None
    """`[N]`: of a batch of a `NeighborLoader`, the number of each node in the whole graph, as `top` lists it; else None."""
    e_id: Any = None
    """`[E]`: the same of each column, where the batch has it."""

    @classmethod
    def lazy(cls, make: Mapping[str, Callable[[], Any]], **fields: Any) -> "Explanation":
        """An explanation of which some fields are made when they are first read: of a large graph they are mostly zeros.

        >>> edges, make = torch.tensor([[0], [1]]), {"scores": lambda: torch.ones(1)}
        >>> why = Explanation.lazy(make, edge_index=edges, num_nodes=2, index=1, target=0, value=1.0)
        >>> why.scores
        tensor([1.])
        """
        why = cls(torch.empty(0), **fields)
        for name in make:
            del why.__dict__[name]
        why.__dict__["_make"] = make
        return why

    def __getattr__(self, name: str) -> Any:
        make = self.__dict__.get("_make", {}).get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return self.__dict__.setdefault(name, make())

    def __getstate__(self) -> dict[str, Any]:
        for name in self.__dict__.get("_make", ()):
            getattr(self, name)  # what is copied or pickled is complete
        return {name: value for name, value in self.__dict__.items() if name != "_make"}

    @checked
    def top(self, k: int = 10, by: str = "support") -> Ranked:
        """The k strongest edges, best first: `(score, source, receiver, column)`, at layer level with `layer` behind.

        Rows have these names (`row.score`); `print(why.top(5))` shows a table.

        The ends are nodes of `edge_index`, or of the whole graph (`n_id`) where this is a batch that was sampled from one.

        `by="support"` takes only positive scores, `"opposition"` only negative ones, `"magnitude"` all but zeros.
        """
        one_of("`by`", by, ORDERS)
        k = whole_number("k", k, at_least=0, such_as=10)
        strong = strength(self.scores.reshape(-1), by)
        place = (strong > 0).nonzero().view(-1)  # of a large graph most are 0
        order = place[strong[place].argsort(descending=True, stable=True)[:k]]
        return Ranked(self._entry(one) for one in order.tolist())

    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: Any) -> "Explanation":
        if range(1)[item] if isinstance(item, slice) else item in (0, -1):
            return self
        raise PositionError(f"Position {shown(item)} is outside this one explanation: why[0] is why itself.")

    def __iter__(self) -> Iterator["Explanation"]:
        yield self

    def _entry(self, place: int) -> TopEdge | TopStep:
        """One row of `top`, from a place in the flattened scores (layer · E + column)."""
        layer, column = divmod(place, self.edge_index.size(1))
        ends = self.edge_index[:, column]
        source, receiver = ends.tolist() if self.n_id is None else self.n_id[ends.cpu()].tolist()
        entry = (float(self.scores.reshape(-1)[place]), source, receiver, column)
        return TopStep(*entry, layer) if self.level == "layer" else TopEdge(*entry)

    def edge_scores(self) -> Tensor:
        """`[E]`: the scores themselves, at layer level summed over the layers."""
        return self.scores if self.level == "input" else self.scores.sum(dim=0)

    @checked
    def intervals(self, confidence: float = 0.95) -> tuple[Tensor, Tensor]:
        """Student's interval of every sampled score (`shapley`): its ends, each in the shape of the scores.

        NaN where the samples did not differ: then nothing is known about their spread. From 20 orders on, 95% intervals held
        for 94 to 97% of the edges (docs/trust.md).
        """
        if self.standard_errors is None:
            raise InputError(f"{self.method} does not sample, so its scores have no intervals. Use method='shapley'.")
        samples = int(self.settings["samples"])
        share("confidence", confidence, such_as=0.95)
        times = student_quantile((1 + confidence) / 2, samples - 1) if samples > 1 else torch.nan
        half = torch.where(self.standard_errors > 0, self.standard_errors * times, torch.nan)
        return self.scores - half, self.scores + half

    @checked
    def subgraph(
        self,
        k: int | None = None,
        *,
        by: str = "support",
        threshold: float = 0.0,
        connected: bool = False,
        undirected: str | None = None,
    ) -> "Subgraph":
        """The k strongest edges, or all that are stronger than `threshold`; `.complement()` is the rest.

        `by` as in `top`. With `connected` every edge hangs on the target through the others: they are attached one by one,
        the strongest possible first, so that the k of them may be weaker than the k strongest anywhere. With `undirected`
        the two directions of an edge are merged (see `merged`), chosen together and counted as one.
        """
        from edgewise.results.subgraph import select

        return select(self, k, by, threshold, connected=connected, undirected=undirected)

    @checked
    def merged(self, undirected: str = "sum") -> "Explanation":
        """Both directions of an edge with one score: the `"sum"`, the `"mean"` or the `"max"` (the signed one) of the two.

        Both columns carry it, so the scores still fit `edge_index`; an edge without a twin keeps its own. Of parallel edges
        the first is merged with the first, and so on.
        """
        from edgewise.results.subgraph import merge

        return merge(self, undirected)

    @checked
    def plot(
        self,
        *,
        edges: int | None = None,
        view: str | None = None,
        labels: Any = None,
        classes: Any = None,
        marked: Mapping[str, Any] | None = None,
        title: str = "",
        features: Any = None,
    ) -> Any:
        """A matplotlib figure of the strongest edges; at layer level of the computation graph, unrolled layer by layer.

        The arguments are those of `edgewise.report.draw`. Save it with `why.plot().savefig("why.png")`. Needs
        `edgewise[plot]`.
        """
        from edgewise.report import draw

        look = {"labels": labels, "classes": classes, "marked": marked, "title": title}
        return draw(self, edges=edges, view=view, **look, features=features)

    def to_pyg(self) -> Any:
        """A `torch_geometric.explain.Explanation` with `edge_mask` `[E]` and, at layer level, `layer_edge_mask` `[E, L]`."""
        from torch_geometric.explain import Explanation as PyGExplanation

        found = PyGExplanation(
            edge_mask=self.edge_scores(),
            edge_index=self.edge_index,
            num_nodes=self.num_nodes,
            index=torch.tensor([self.index]),
            target=torch.tensor([self.target]),
        )
        if self.level == "layer":
            found.layer_edge_mask = self.scores.t().contiguous()
        for name, numbers in (("n_id", self.n_id), ("e_id", self.e_id)):
            if numbers is not None:
                found[name] = numbers.to(self.edge_index.device)
        return found

    @checked
    def to_networkx(self, *, edges: int | None = None) -> Any:
        """A directed multigraph; every edge has `score` and `column`, at layer level also `layers`; nodes have `self_score`.

        With `edges` only so many of the strongest edges, and their nodes. Needs `edgewise[plot]`.
        """
        from edgewise.results.export import explanation_network

        return explanation_network(self, edges)

    @checked
    def to_graphml(
        self, path: str | Path, *, edges: int | None = None, labels: Any = None, classes: Any = None
    ) -> None:
        """Write the graph with its scores to a GraphML file, for Gephi, Cytoscape and others.

        Attributes are plain numbers and texts: at layer level `score_layer_0` and so on; `weight` is the magnitude.
        `edges` as for `to_networkx`; `labels` and `classes` as for `plot`. Needs `edgewise[plot]`.
        """
        from edgewise.results.export import write_graphml

        write_graphml(self.to_networkx(edges=edges), path, self.num_nodes, labels, classes)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.scores.shape))
        about = f"{self.level} level, index={self.index}, target={self.target}, value={self.value:.4g}, scores {shape}"
        return f"Explanation({self.method}, {about}, {int((self.scores != 0).sum())} not zero){by_auto(self.settings)}"
