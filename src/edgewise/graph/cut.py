"""Cuts: the part of a graph that some targets can see, with the numbers that its nodes and columns have in the graph.

Explaining one node of a large graph needs its neighbourhood and nothing else. A cut is a graph of its own: its nodes and
columns keep their order, so that ties are broken as in the whole graph; `node_id` and `edge_id` say which they are there.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import StaleQuestionError
from edgewise.graph.computation_graph import InEdges

_SMALL = 2**17
"""Numbers (features and ends of edges) of a graph that is not worth cutting."""
_MOST = 0.5
"""A cut that keeps more than this share of the edges is no gain."""
_STRANGERS = 5
_TINY = 48
"""Columns of the cut on which depth and rim are found."""


@dataclass(frozen=True)
class Cut:
    """A part of a graph, or all of it (`node_id` and `edge_id` are then None)."""

    data: Data
    num_nodes: int
    """Of the whole graph."""
    num_edges: int
    node_id: Tensor | None = None
    """`[n]`: the node of the whole graph, ascending."""
    edge_id: Tensor | None = None
    """`[m]`: the column of the whole graph, ascending."""
    left_out: int = 0
    """Edges that a sample does not have."""
    inner: Tensor | None = None
    """The nodes of the whole graph that have all their columns in the cut, where that is known."""
    flow: str | None = None
    """The direction in which those were followed; None: both."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off."""
        return self.node_id is None

    def has_all(self, ends: Tensor) -> bool:
        """Whether `ends`, an `edge_index` of the whole graph, still holds the same columns at the inner nodes of the cut.

        >>> path = Data(x=torch.eye(8), edge_index=torch.tensor([range(7), range(1, 8)]))
        >>> cut = cut_out(path, torch.tensor([5]), 2, flow="source_to_target")
        >>> [cut.has_all(torch.cat([path.edge_index, torch.tensor([[0], [node]])], dim=1)) for node in (2, 4)]
        [True, False]
        """
        if self.inner is None or self.edge_id is None:
            return True
        if ends.dim() != 2 or len(ends) != 2 or not is_within(ends, self.num_nodes):
            return False
        marked = torch.zeros(self.num_nodes, dtype=torch.bool, device=ends.device)
        marked[self.inner.to(ends.device)] = True
        rows = {"source_to_target": (1,), "target_to_source": (0,)}.get(str(self.flow), (0, 1))
        found = torch.cat([columns_into(marked, ends[row]) for row in rows])
        found = found if len(rows) == 1 else found.unique()
        return torch.equal(found, self.edge_id.to(found.device))

    def columns(self, local: Tensor) -> Tensor:
        """Columns of the whole graph, from columns of the cut."""
        return local if self.edge_id is None else self.edge_id.to(local.device)[local]

    def nodes(self, local: Tensor) -> Tensor:
        """Nodes of the whole graph, from nodes of the cut."""
        return local if self.node_id is None else self.node_id.to(local.device)[local]

    def places(self, nodes: Tensor) -> Tensor:
        """Nodes of the cut, from nodes of the whole graph that are known to be in it."""
        return nodes if self.node_id is None else torch.searchsorted(self.node_id, nodes.contiguous())


def is_within(ends: Tensor, num_nodes: int) -> bool:
    """Whether all are numbers of nodes."""
    low, high = ends.aminmax() if ends.numel() else (0, 0)
    return int(low) >= 0 and int(high) < max(num_nodes, 1)


def whole(graph: Data) -> Cut:
    """No cut at all."""
    return Cut(graph, graph.num_nodes, graph.edge_index.size(1))


def worth_cutting(graph: Data) -> bool:
    """Whether a graph is so large that a part of it may be much cheaper."""
    return graph.x.numel() + graph.edge_index.numel() > _SMALL


def cut_out(
    graph: Data,
    targets: Tensor,
    hops: int,
    *,
    flow: str | None,
    rim: str = "",
    in_edges: InEdges | None = None,
    received: Tensor | None = None,
) -> Cut:
    """The nodes from which a message can reach a target within some hops, and all edges into them but the farthest.

    `flow=None` follows edges both ways. With `in_edges` at hand the cost depends on the cut alone; without, each hop is one
    pass over `edge_index`. `rim` says what is added: `"nodes"`, everything one hop further; `"degrees"`, only the edges of
    that hop, so that degrees are right: they all come from one far node, whose features no target sees. `received` are the
    columns that end in a target (second row of `edge_index`), if they are known.

    >>> path = Data(x=torch.eye(8), edge_index=torch.tensor([range(7), range(1, 8)]))       # 0 → 1 → … → 7
    >>> cut = cut_out(path, torch.tensor([5]), 2, flow="source_to_target")
    >>> cut.node_id.tolist(), cut.edge_id.tolist(), cut.data.edge_index.tolist()
    ([3, 4, 5], [3, 4], [[0, 1], [1, 2]])
    """
    hops = hops + 1 if rim else hops
    received = received if flow == "source_to_target" else None
    near = (
        _by_passes(graph, targets, hops, flow, received)
        if in_edges is None
        else _by_groups(graph, in_edges, targets, hops, flow)
    )
    node_id, edge_id = torch.cat(near.nodes).sort().values, torch.cat(near.columns).sort().values
    if flow is None:
        edge_id = edge_id.unique_consecutive()
    if len(edge_id) > _MOST * graph.edge_index.size(1) and len(node_id) > _MOST * graph.num_nodes:
        return whole(graph)
    far = None
    if rim == "degrees" and flow is not None and len(near.nodes) > hops:  # there are nodes in the rim
        far = near.nodes[-1].min()
        node_id = torch.cat([*near.nodes[:-1], far.view(1)]).sort().values
    part = part_of(graph, node_id, edge_id, far)
    inner = torch.cat([targets[:0], *near.nodes[:hops]])
    return Cut(part, graph.num_nodes, graph.edge_index.size(1), node_id, edge_id, inner=inner, flow=flow)


@dataclass(frozen=True)
class _Near:
    """What lies around the targets, hop by hop."""

    nodes: list[Tensor]
    """The targets, each once, then the nodes that each hop adds."""
    columns: list[Tensor]
    """The columns into the nodes before, each once unless edges are followed both ways."""


def columns_into(marked: Tensor, receiver: Tensor) -> Tensor:
    """The columns, ascending, whose receiver is marked; `marked` is `[N]`, `receiver` `[E]`.

    >>> columns_into(torch.tensor([False, True]), torch.tensor([1, 0, 1]))
    tensor([0, 2])
    """
    if receiver.is_cuda:
        return marked[receiver].nonzero().view(-1)
    # a third of what torch takes; `.numpy()` would leave a mark on the user's tensor: its memory could not grow any more
    return torch.from_numpy(np.flatnonzero(marked.numpy()[np.from_dlpack(receiver)]))


def _by_passes(graph: Data, targets: Tensor, hops: int, flow: str | None, received: Tensor | None) -> _Near:
    """By marking nodes, one pass over all columns a hop (two if edges are followed both ways)."""
    first, second = graph.edge_index
    ways = {"source_to_target": [(first, second)], "target_to_source": [(second, first)]}
    marked = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.edge_index.device)
    near = _Near([targets.unique()], [targets[:0]])
    for hop in range(hops):
        fresh, senders = near.nodes[-1], []
        marked[fresh] = True
        new = torch.zeros_like(marked)
        new[fresh] = True
        for sender, receiver in ways.get(str(flow), [(first, second), (second, first)]):
            columns = columns_into(new, receiver) if hop or received is None else received
            near.columns.append(columns)
            senders.append(sender.index_select(0, columns))
        found = torch.cat(senders)
        found = found[~marked[found]].unique()
        if len(found) == 0:
            break
        near.nodes.append(found)
    return near


def _by_groups(graph: Data, in_edges: InEdges, targets: Tensor, hops: int, flow: str | None) -> _Near:
    """The same from edges that are grouped by receiver, on the CPU; refused if the columns are not what they were then.

    In numpy, whose calls cost a fifth of torch's: a neighbourhood is small.
    """
    ends = graph.edge_index.flip(0) if flow == "target_to_source" else graph.edge_index
    start, edge, sent_by = (part.numpy() for part in (in_edges.start, in_edges.edge, in_edges.sender))
    marked = np.zeros(graph.num_nodes, dtype=bool)
    fresh = np.unique(targets.cpu().numpy())
    nodes, columns = [fresh], [fresh[:0]]
    for _ in range(hops):
        marked[fresh] = True
        begin, count = start[fresh], start[fresh + 1] - start[fresh]  # [fresh] each
        row = np.repeat(np.arange(len(fresh)), count)  # [in-edges]
        place = np.arange(len(row)) + (begin - count.cumsum() + count)[row]
        column, sender = edge[place], sent_by[place]
        now = ends.index_select(1, torch.from_numpy(column).to(ends.device)).cpu().numpy()
        true = (now[0] == sender) & (now[1] == fresh[row])
        if in_edges.both_ways:
            true |= (now[1] == sender) & (now[0] == fresh[row])
        if not true.all():
            raise StaleQuestionError(
                "The data have changed since the question was asked: data.edge_index. Ask again: ew.Question(model, data, …)."
            )
        columns.append(column)
        fresh = np.unique(sender[~marked[sender]])
        if len(fresh) == 0:
            break
        nodes.append(fresh)
    found = ([torch.from_numpy(part).to(ends.device) for part in parts] for parts in (nodes, columns))
    return _Near(*found)


def part_of(graph: Data, node_id: Tensor, edge_id: Tensor, far: Tensor | None = None) -> Data:
    """The attributes of some nodes and columns; whatever belongs to neither is kept as it is.

    Ends that are not among the nodes become the node `far`, which is.
    """
    part = Data()
    for key in graph.keys():  # noqa: SIM118 (Data is not a dict)
        value = graph[key]
        if key in ("edge_index", "num_nodes"):
            continue
        if isinstance(value, Tensor) and graph.is_node_attr(key):
            value = value.index_select(0, node_id)
        elif isinstance(value, Tensor) and graph.is_edge_attr(key):
            value = value.index_select(0, edge_id)
        part[key] = value
    ends = graph.edge_index.index_select(1, edge_id)
    place = torch.searchsorted(node_id, ends).clamp(max=max(len(node_id) - 1, 0))
    if far is not None:
        place = torch.where(node_id[place] == ends, place, torch.searchsorted(node_id, far))
    part.edge_index = place
    part.num_nodes = len(node_id)
    return part


def first_strangers(graph: Data) -> tuple[Tensor, Tensor]:
    """The first nodes and columns of a graph."""
    sizes = (graph.num_nodes, graph.edge_index.size(1))
    nodes, columns = (torch.arange(min(_STRANGERS, size), device=graph.edge_index.device) for size in sizes)
    return nodes, columns


def cut_tiny(graph: Data, target: Tensor, received: Tensor, strangers: tuple[Tensor, Tensor]) -> Cut:
    """Some columns that end in targets, and some nodes and columns besides: enough to see which layers a model has."""
    nodes, columns = strangers
    edge_id = torch.cat([received[:_TINY], columns]).unique()
    node_id = torch.cat([graph.edge_index[:, edge_id].view(-1), target, nodes]).unique()
    return Cut(part_of(graph, node_id, edge_id), graph.num_nodes, graph.edge_index.size(1), node_id, edge_id)
