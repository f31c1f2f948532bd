"""Results as networkx graphs, with scores as attributes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from edgewise.errors import missing_extra

if TYPE_CHECKING:
    from edgewise.explanation import Explanation
    from edgewise.walk.results import WalkSet


def explanation_network(why: Explanation, edges: int | None = None) -> Any:
    """Every edge of the graph, or the strongest `edges` of them and their nodes, and the explained node."""
    graph = _empty(why, method=why.method, level=why.level)
    wanted = range(why.edge_index.size(1)) if edges is None else _strongest_columns(why, edges)
    ends, total = why.edge_index.t().tolist(), why.edge_scores().tolist()
    kept = {node for column in wanted for node in ends[column]} | _explained(why)
    graph.add_nodes_from(range(why.num_nodes) if edges is None else sorted(kept))
    for column in wanted:
        layers = {"layers": why.scores[:, column].tolist()} if why.level == "layer" else {}
        graph.add_edge(*ends[column], key=column, column=column, score=total[column], **layers)
    _own_scores(graph, why)
    for node in _explained(why) & set(graph):
        graph.nodes[node]["explained"] = True
    return graph


def walks_network(walks: WalkSet) -> Any:
    """The spots `(column, node)` of all walks; every step is an edge of its own, keyed by the walk's rank."""
    graph = _empty(walks, exact=walks.exact, upper_bound=walks.upper_bound)
    for rank, walk in enumerate(walks, start=1):
        spots = list(enumerate(walk.nodes))
        graph.add_nodes_from((spot, {"column": spot[0], "node": spot[1]}) for spot in spots)
        for start, end in pairwise(spots):
            graph.add_edge(start, end, key=rank, rank=rank, layer=start[0], score=walk.score)
    for node in _explained(walks):
        for spot in [(walks.num_layers, node)] if (walks.num_layers, node) in graph else []:
            graph.nodes[spot]["explained"] = True
    return graph


def _empty(found: Explanation | WalkSet, **attributes: Any) -> Any:
    try:
        import networkx
    except ImportError as error:
        raise missing_extra("networkx", "plot", "to_networkx()") from error
    return networkx.MultiDiGraph(index=found.index, target=found.target, value=found.value, **attributes)


def _explained(found: Explanation | WalkSet) -> set[int]:
    return {found.index} if found.settings.get("task", "node") == "node" else set()


def _strongest_columns(why: Explanation, edges: int) -> list[int]:
    from edgewise.report.strongest import strongest_edges

    return sorted(step.column for step in strongest_edges(why, edges).steps if step.column is not None)


def _own_scores(graph: Any, why: Explanation) -> None:
    if why.self_scores is None:
        return
    own = why.self_scores if why.level == "input" else why.self_scores.sum(dim=0)
    total, layers = own.tolist(), why.self_scores.t().tolist() if why.level == "layer" else None
    for node, attributes in graph.nodes.items():
        attributes["self_score"] = total[node]
        if layers is not None:
            attributes["self_layers"] = layers[node]
