"""From labels to owners: which column, or which node's self edge, owns each message of one `propagate` call.

Every owner is checked twice: the label says which column a message is on, and the labels of the rows at its two ends must
be that column's two nodes. What has no owner for certain is refused with an error that names the layer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from edgewise.errors import ModelError
from edgewise.model.axis_labels import blank, join
from edgewise.model.column_selection import GivenColumns
from edgewise.model.shadow import EDGE, FRESH, LOST, MIXED, NODE, Mark, plain, same_vector
from edgewise.shapes import Slots


@dataclass(frozen=True)
class OwnedMessages:
    """The messages of one call: `slots` and `backward` [messages], the nodes of the senders' and receivers' rows."""

    slots: Slots
    sender_rows: Tensor
    receiver_rows: Tensor
    backward: Tensor


@dataclass(frozen=True)
class Propagation:
    """One `propagate` call, before it runs: its arguments and how to look up what is known of them."""

    layer: str
    module: MessagePassing
    edge_index: Any
    size: Any
    kwargs: dict[str, Any]
    handed: list[Tensor] | None
    """Labels of the columns that the layer's `forward` was given, `None` if it was not called through the module."""
    columns: GivenColumns
    read: Callable[[Tensor], Mark]

    def owned(self) -> OwnedMessages:
        """The owner of every message."""
        edge_index = self._edge_index()
        labels = self._labels(edge_index)
        sending = 0 if self.module.flow == "source_to_target" else 1
        senders, receivers = edge_index[sending], edge_index[1 - sending]
        sender_rows, receiver_rows = self._rows(sending), self._rows(1 - sending)
        if sender_rows is None:
            self._refuse_unknown_rows()
        used = _looked_up(sender_rows, senders)
        if receiver_rows is None:
            receiver_rows = self._rows_by_use(labels, used, receivers, self._num_rows(1 - sending))
        ends = torch.stack([used, _looked_up(receiver_rows, receivers)])
        return OwnedMessages(self._slots(labels, ends), sender_rows, receiver_rows, self._backward(labels, ends))

    # --- columns ---

    def _edge_index(self) -> Tensor:
        edge_index = self.edge_index
        if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            raise ModelError(
                f"Layer {self.layer} was given a sparse adjacency matrix, so it sends no messages that could be weighted. "
                f"Call it with edge_index, a [2, edges] tensor."
            )
        return plain(edge_index)

    def _labels(self, edge_index: Tensor) -> Tensor:
        """The column of each message, or `FRESH`, [messages]."""
        mark = self.read(edge_index)
        labels = mark.labels.get((1, EDGE))
        if labels is None:
            labels = blank(edge_index, mark, edge_index.size(1), EDGE)
        labels = self._with_weights(labels)
        if self.columns.dropped and mark.contracted:
            self._refuse("passes messages between merged nodes, and edges were dropped after the merge")
        self._refuse_if(labels == MIXED, "sends {} messages that belong to several columns of data.edge_index at once")
        self._refuse_if(
            labels == LOST,
            "sends {} messages on edges that were computed inside the model, so they belong to no column of data.edge_index",
        )
        return labels

    def _with_weights(self, labels: Tensor) -> Tensor:
        """Labels [messages] after a look at the weights: a loop made anew may carry the weight of an explicit one."""
        for weight in self._message_tensors(len(labels)):
            own = self.read(weight).labels.get((0, EDGE))
            if own is not None and own is not labels:
                clash = (own >= 0) & (labels >= 0) & (own != labels)
                labels = torch.where(clash, MIXED, torch.where((labels == FRESH) & (own >= 0), own, labels))
        return labels

    def _message_tensors(self, num_messages: int) -> Iterator[Tensor]:
        for value in self.kwargs.values():
            if isinstance(value, Tensor) and value.dim() and value.size(0) == num_messages:
                yield plain(value)

    # --- rows ---

    def _rows(self, side: int) -> Tensor | None:
        """The node of each row of the table on one side, [rows], `None` if that is not known."""
        known: Tensor | None = None
        of_data = False
        for table in self._tables(side):
            mark = self.read(table)
            rows = mark.labels.get((self.module.node_dim % table.dim(), NODE))
            if rows is not None and self._num_rows(side) in (None, len(rows)):
                known = join(known, rows)
            of_data |= mark.of_nodes or mark.reach > 0
        if known is None and not of_data and self._num_rows(side) in (None, self.columns.num_nodes):
            return self._numbered(side)
        return known

    def _numbered(self, side: int) -> Tensor | None:
        """Constants as features (an embedding, ones): one row per node in the order of the nodes, as the ends must confirm."""
        count = self.columns.num_nodes
        sizes = [table.size(self.module.node_dim % table.dim()) for table in self._tables(side)]
        return torch.arange(count, device=self.columns.ends.device) if not sizes or count in sizes else None

    def _tables(self, side: int) -> Iterator[Tensor]:
        for value in self.kwargs.values():
            table = value[side] if isinstance(value, (tuple, list)) and len(value) == 2 else value
            if isinstance(table, Tensor) and table.dim() and not self.read(plain(table)).has_edges:
                yield plain(table)

    def _num_rows(self, side: int) -> int | None:
        return None if self.size is None else self.size[side]

    def _rows_by_use(self, labels: Tensor, used: Tensor, receivers: Tensor, num_rows: int | None) -> Tensor:
        """Rows of receivers that the layer was given no table of (`x=(x, None)`): the node that their columns point to."""
        if bool((labels == FRESH).any()):
            self._refuse_unknown_rows()
        size = num_rows or (int(receivers.max()) + 1 if len(receivers) else 0)
        for sender, receiver in (self.columns.ends, self.columns.ends.flip(0)):
            rows = torch.full((size,), LOST, device=labels.device)
            rows[receivers] = receiver[labels]
            one_to_one = len(rows[rows >= 0].unique()) == int((rows >= 0).sum())
            if one_to_one and same_vector(used, sender[labels]) and same_vector(rows[receivers], receiver[labels]):
                return rows
        self._refuse_unknown_rows()

    # --- owners ---

    def _slots(self, labels: Tensor, ends: Tensor) -> Slots:
        """Owners [messages]; `ends` [2, messages] are the nodes of the rows that each message joins."""
        fresh = labels == FRESH
        self._cross_check(labels, ends, ~fresh)
        if not bool(fresh.any()):
            return labels.clone()
        self._refuse_if(fresh & (ends < 0).any(0), "adds {} edges to rows of x that are no nodes of data")
        self._refuse_if(fresh & (ends[0] != ends[1]), "sends {} messages on edges between different nodes that the model added")
        explicit = self._explicit_loops()[ends[0].clamp(min=0)]
        if self.columns.has_loops:
            self._refuse_doubtful_loops(fresh & (explicit < 0), ends[0], len(labels))
        added = torch.where(explicit >= 0, explicit, self.columns.num_edges + ends[0])
        return torch.where(fresh, added, labels)

    def _explicit_loops(self) -> Tensor:
        """For each node the last explicit loop among the columns that the layer was handed, or `FRESH`, [nodes]."""
        columns = self.columns
        loops = torch.full((columns.num_nodes,), FRESH, device=columns.ends.device)
        if columns.has_loops and self.handed:
            given = torch.cat(self.handed)
            given = given[given >= 0]
            given = given[columns.is_loop[given]]
            last = torch.full_like(loops, FRESH)
            last.scatter_reduce_(0, columns.ends[0][given], torch.arange(len(given), device=given.device), "amax")
            loops = torch.where(last >= 0, given[last.clamp(min=0)] if len(given) else last, loops)
        return loops

    def _refuse_doubtful_loops(self, unowned: Tensor, node: Tensor, num_messages: int) -> None:
        """Loops made anew on nodes whose explicit loop went another way: only a known weight, or none, is certain."""
        looped = torch.isin(node, self.columns.ends[0][self.columns.is_loop]) & unowned
        for weight in self._message_tensors(num_messages):
            mark = self.read(weight)
            own = mark.labels.get((0, EDGE))
            lost = own < FRESH if own is not None else torch.full_like(looped, mark.reach > 0 and not mark.labels)
            self._refuse_if(looped & lost, "adds {} self-loops whose weights may come from explicit self-loops of data")
        if self.handed is None:
            self._refuse_if(looped, "adds {} self-loops, and was not called as a module, so its edge_index is not known")

    def _cross_check(self, labels: Tensor, ends: Tensor, owned: Tensor) -> None:
        true = self.columns.ends[:, labels.clamp(min=0)] if self.columns.num_edges else ends
        fits = (ends == true).all(0) | (ends == true.flip(0)).all(0)
        self._refuse_if(
            owned & ~fits, "sends {} messages between rows of x that are not the two nodes of the column they come from"
        )

    def _backward(self, labels: Tensor, ends: Tensor) -> Tensor:
        if not self.columns.num_edges:
            return torch.zeros_like(labels, dtype=torch.bool)
        return (labels >= 0) & (ends != self.columns.ends[:, labels.clamp(min=0)]).any(0)

    # --- refusals ---

    def _refuse_if(self, wrong: Tensor, what: str) -> None:
        count = int(wrong.sum())
        if count:
            self._refuse(what.format(count).replace(" 1 messages", " 1 message").replace(" 1 edges", " 1 edge"))

    def _refuse_unknown_rows(self) -> NoReturn:
        self._refuse("reads features whose rows cannot be traced to nodes of data")

    def _refuse(self, what: str) -> NoReturn:
        raise ModelError(
            f"Layer {self.layer} {what}. Edgewise weights the edges of the given graph: do this before the model, "
            f"so that data holds the graph that the layers use, or call the layer with (a selection of) data.edge_index."
        )


def _looked_up(rows: Tensor, numbers: Tensor) -> Tensor:
    """`rows[numbers]`, and `LOST` where there is no such row (the layer itself will say so)."""
    inside = (numbers >= 0) & (numbers < len(rows))
    return rows[numbers] if bool(inside.all()) else torch.full_like(numbers, LOST)
