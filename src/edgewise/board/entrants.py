"""Who takes part: methods of the table, registered ones among them, explainers of PyG, searches of walks, and yardsticks.

Yardsticks know nothing of the model: all edges alike (`full`), chance (`random`), and the number of neighbours
(`node_degree`). A measure that cannot tell them from a method says nothing about that method.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.adapters.from_pyg import from_pyg
from edgewise.algorithms.registry import Method, built_in_methods, methods
from edgewise.api.question import Question
from edgewise.api.walks import SEARCHES
from edgewise.arguments import one_of
from edgewise.arrays import plain_index
from edgewise.errors import SettingError
from edgewise.metrics.runs import read_methods
from edgewise.results.entries import Entries
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_rows import as_set, rows_of, widths

YARDSTICKS = ("random", "full", "node_degree")
SETTINGS: dict[str, dict[str, Any]] = {"shapley": {"samples": 10}, "subgraphx": {"samples": 20, "beam": 8}}
"""Settings of methods that would take minutes a target with their defaults; their labels say so."""
WALKS = "walks"
SHOWN_SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
PYG_EPOCHS = 100


@dataclass(frozen=True)
class EntrantAnswer:
    """What an entrant says about the targets of a network: scores of edges, or a walk for each target."""

    explained: ExplanationSet | None = None
    walks: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class Entrant:
    """One row of the board."""

    label: str
    kind: str
    """`"method"`, `"registered"`, `"PyG"`, `"walks"` or `"yardstick"`."""
    key: str
    """Of what was computed: another key is another entrant, whatever its name."""
    answer: Callable[[Question, int], EntrantAnswer]
    """`(question, seed)` ↦ what it says."""


def read_entrants(given: Sequence[Any] | None) -> list[Entrant]:
    """The entrants that a user names, or all; yardsticks always take part.

    Names are those of `ew.methods()`, `"PyG"` for the explainers of PyG, `"walks"` for all searches of walks, `"walks:exact"`
    for one of them; pairs of a name and its settings and objects of `ew.from_pyg` are taken, too.

    >>> [one.label for one in read_entrants(["gradient", "walks:exact"])]
    ['gradient', 'walks:exact', 'random', 'full', 'node_degree']
    """
    asked = [*_all_methods(), "PyG", WALKS] if given is None else list(given)
    words = {word for word in asked if isinstance(word, str) and _is_ours(word)}
    plain = [one for one in asked if not (isinstance(one, str) and _is_ours(one))]
    plain = [one for one in plain if not (isinstance(one, str) and one in YARDSTICKS)]
    if "PyG" in words:
        plain += pyg_explainers()
    found = [_of_method(c.label, c.method, dict(c.settings)) for c in _contenders(plain)]
    searches = SHOWN_SEARCHES if WALKS in words else [w.partition(":")[2] for w in asked if w in words and ":" in w]
    found += [_of_search(search) for search in searches]
    found += [_of_method(name, methods()[name], {}) for name in YARDSTICKS[:2]]
    return [*found, Entrant("node_degree", "yardstick", "node_degree", _node_degree)]


def _is_ours(word: str) -> bool:
    """Whether a word names something that is not in the table of methods."""
    if word.startswith(f"{WALKS}:"):
        one_of("search", word.partition(":")[2], SEARCHES)
        return True
    return word in ("PyG", WALKS)


def _all_methods() -> list[Any]:
    """Every method of the table but the yardsticks; LRP with both of its rules."""
    names = [name for name in methods() if name not in YARDSTICKS]
    found: list[Any] = [(name, SETTINGS[name]) if name in SETTINGS else name for name in names if name != "lrp"]
    return [*found, ("lrp", {"rule": "lrp-epsilon"}), ("lrp", {"rule": "lrp-gamma"})]


def _contenders(plain: list[Any]) -> list[Any]:
    """Methods with their settings and labels; settings are part of the label."""
    if not plain:
        return []
    found = read_methods(plain, yardsticks=False, least=1)
    return [replace(one, label=_label(one.label, one.method, one.settings)) for one in found]


def _label(label: str, method: Method, settings: Mapping[str, Any]) -> str:
    if method.outside is not None:
        return f"PyG:{label}"
    given = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"{method.name}({given})" if given else label


def pyg_explainers() -> list[Method]:
    """The explainers of PyG that need no training: GNNExplainer and, where captum is installed, two of its methods."""
    from torch_geometric.explain import CaptumExplainer, GNNExplainer

    found = [from_pyg(GNNExplainer(epochs=PYG_EPOCHS))]
    try:
        import captum  # noqa: F401 - PyG imports it when the explainer is made
    except ImportError:
        return found
    return [*found, *(from_pyg(CaptumExplainer(name)) for name in ("IntegratedGradients", "Saliency"))]


def _of_method(label: str, method: Method, settings: dict[str, Any]) -> Entrant:
    own = method.outside is None and method.name not in built_in_methods()
    kind = "PyG" if method.outside else "registered" if own else "yardstick" if label in YARDSTICKS else "method"

    def answer(ask: Question, seed: int) -> EntrantAnswer:
        if "input" not in method.levels:
            raise SettingError(f"{method.name} has no level 'input', which the leaderboard needs.")
        return EntrantAnswer(as_set(ask.explain(method, seed=seed, **settings), "leaderboard"))

    source = fingerprint(method.function) if own and method.function else ""
    story = {**method.settings, **settings, **method.notes}
    return Entrant(label, kind, digest(method.name, story, source), answer)


def _of_search(search: str) -> Entrant:
    def answer(ask: Question, seed: int) -> EntrantAnswer:
        found: Any = ask.walks(k=1, search=search)
        return EntrantAnswer(walks=[without_loops(one[0].nodes) if len(one) else () for one in found])

    label = f"{WALKS}:{search}"
    return Entrant(label, "walks", digest(label), answer)


def without_loops(nodes: Sequence[int]) -> tuple[int, ...]:
    """The path that a walk takes, without the loops on its way: waiting, and going back and forth, change nothing.

    >>> without_loops((7, 3, 7, 3, 3, 5))
    (7, 3, 5)
    """
    path: list[int] = []
    for node in nodes:
        path = path[: path.index(node)] if node in path else path
        path.append(node)
    return tuple(path)


# --- What was computed, as a key ----------------------------------------------------------------------------------------


def digest(*parts: Any) -> str:
    """A short hash of what has a stable text."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def fingerprint(function: Callable[..., Any]) -> str:
    """A hash of somebody's function: of the file that it is in, or of its bytecode where there is no file."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)
    try:
        module = inspect.getmodule(inner)
        text = inspect.getsource(module if module is not None and module.__name__ != "__main__" else inner)
    except (OSError, TypeError):
        code = getattr(inner, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code else repr(type(inner))
    return digest(text)


# --- The yardstick of degrees -------------------------------------------------------------------------------------------


def _node_degree(ask: Question, seed: int) -> EntrantAnswer:
    """The edges of the computation graph, each with the number of edges at both its ends."""
    full = as_set(ask.explain("full"), "leaderboard")
    rows = rows_of(full)
    degree = torch.cat([_edge_degrees(*graph) for graph in full.graphs])
    shift = torch.tensor([0, *(edge_index.size(1) for edge_index, _ in full.graphs)])[:-1].cumsum(0)
    shift = shift.expand(len(full)) if len(full.graphs) == 1 else shift
    order = rows.row.argsort(stable=True)
    row, column = rows.row[order], rows.column[order]
    start = torch.cat([torch.zeros(1, dtype=torch.long), rows.count().cumsum(0)])
    score = degree[shift[row] + column].to(full.value.dtype)
    assert int(widths(full).min()) > 0 or not len(row), plain_index(full.index)
    return EntrantAnswer(replace(full, method="node_degree", edges=Entries.of_rows(start, column, score)))


def _edge_degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    """`[E]`: how many edges there are at the two ends of each.

    >>> _edge_degrees(torch.tensor([[0, 1], [1, 2]]), 3)
    tensor([3, 3])
    """
    degree = torch.bincount(edge_index.reshape(-1).cpu(), minlength=num_nodes)
    return degree[edge_index.cpu()].sum(dim=0)
