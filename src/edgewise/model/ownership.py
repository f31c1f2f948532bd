"""From labels to owners: which column, or which node's self edge, owns each message of one `propagate` call.

Every owner is checked twice: the label says which column a message is on, and the labels of the rows at its two ends must
be that column's two nodes. What has no owner for certain is refused with an error that names the layer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.nn import HGTConv, MessagePassing

from edgewise.arrays import Slots
from edgewise.errors import ModelError
from edgewise.model.axis_labels import blank, join
from edgewise.model.column_selection import GivenColumns
from edgewise.model.shadow import EDGE, FRESH, LOST, MIXED, NODE, Mark, same_vector
from edgewise.pyg_internals import plain

_OWN_TABLES = (HGTConv,)
"""Layers that put the features of all senders into one table of their own, a block for each edge type."""


@dataclass(frozen=True)
class OwnedMessages:
    """The messages of one call: `slots` and `backward` [messages], the nodes of the senders' and receivers' rows."""

    slots: Slots
    sender_rows: Tensor
    receiver_rows: Tensor
    backward: Tensor


@dataclass(frozen=True)
class HandedColumns:
    """What the `forward` of a layer was given: the labels [columns] of an edge_index, and the rows of doubtful loops in it."""

    labels: Tensor
    doubtful: Tensor

    @classmethod
    def of(cls, edge_index: Tensor, labels: Tensor) -> "HandedColumns":
        """From an edge_index and its labels; a loop is doubtful if its owner is not certain."""
        uncertain = edge_index[:, labels < FRESH]
        return cls(labels, uncertain[0][uncertain[0] == uncertain[1]])


@dataclass(frozen=True)
class Propagation:
    """One `propagate` call, before it runs: its arguments and how to look up what is known of them."""

    layer: str
    module: MessagePassing
    edge_index: Any
    size: Any
    kwargs: dict[str, Any]
    handed: list[HandedColumns] | None
    """What the layer's `forward` was given, `None` if that was not seen (the module was not called, or holds its edges)."""
    columns: GivenColumns
    read: Callable[[Tensor], Mark]

    def owned(self) -> OwnedMessages:
        """The owner of every message."""
        edge_index = self._edge_index()
        labels = self._labels(edge_index)
        sending = 0 if self.module.flow == "source_to_target" else 1
        rows, others = self._rows(sending), self._rows(1 - sending)
        if rows is None and type(self.module) in _OWN_TABLES:
            rows = self._senders_by_use(labels, edge_index[sending], sending)
        if rows is None:
            self._refuse_unknown_rows()
        numbers = edge_index if sending == 0 else edge_index.flip(0)  # [2, messages]: senders, receivers
        if others is rows:
            ends = _looked_up(rows, numbers)
        else:
            senders = _looked_up(rows, numbers[0])
            if others is None:
                others = self._rows_by_use(labels, senders, numbers[1], self._num_rows(1 - sending))
            ends = torch.stack([senders, _looked_up(others, numbers[1])])
        self._refuse_doubtful_rows(numbers[0], labels)
        return self._checked(labels, ends, rows, others)

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
        if bool((labels < FRESH).any()):
            self._refuse_if(
                labels == MIXED, "sends {} messages that belong to several columns of data.edge_index at once"
            )
            self._refuse_if(
                labels == LOST,
                "sends {} messages on edges that were computed inside the model, so they belong to no column of "
                "data.edge_index",
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
                if known is not None and len(known) != len(rows):
                    self._refuse_unknown_rows()
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
        """What `propagate` was given of one side: `query` belongs to the receivers if messages read `query_i` alone."""
        values = list(self._of_side(side)) or list(self._beside_messages())
        for value in values:
            table = value[side] if isinstance(value, (tuple, list)) and len(value) == 2 else value
            if isinstance(table, Tensor) and table.dim() and not self.read(plain(table)).has_edges:
                yield plain(table)

    def _of_side(self, side: int) -> Iterator[Any]:
        """Arguments that messages read on this side; a pair has a table for each."""
        read = self.module.inspector.get_flat_param_names(["message"])
        ends = "ij" if self.module.flow == "source_to_target" else "ji"  # receivers are the second row of edge_index
        return (value for name, value in self.kwargs.items() if f"{name}_{ends[1 - side]}" in read)

    def _beside_messages(self) -> Iterator[Any]:
        """Arguments that messages do not read as they are: those have a row for each message."""
        read = self.module.inspector.get_flat_param_names(["message"])
        return (value for name, value in self.kwargs.items() if name not in read)

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
        return self._refuse_unknown_rows()

    def _senders_by_use(self, labels: Tensor, used: Tensor, sending: int) -> Tensor | None:
        """The same for senders, several rows of which may be one node; only of layers that are known to build such tables."""
        if bool((labels < 0).any()):
            return None
        rows = torch.full((int(used.max()) + 1 if len(used) else 0,), LOST, device=labels.device)
        sender = self.columns.ends[sending][labels]
        rows[used] = sender
        return rows if same_vector(rows[used], sender) else None

    # --- owners ---

    def _checked(self, labels: Tensor, ends: Tensor, sender_rows: Tensor, receiver_rows: Tensor) -> OwnedMessages:
        """The cross-check; `ends` [2, messages] are the nodes of the rows that each message joins."""
        owned = labels >= 0
        true = self.columns.ends[:, labels.clamp(min=0)] if self.columns.num_edges else ends
        backward = owned & (ends != true).any(0)
        if bool(backward.any()):
            self._refuse_if(
                backward & (ends != true.flip(0)).any(0),
                "sends {} messages between rows of x that are not the two nodes of the column they come from",
            )
        slots = labels if bool(owned.all()) else self._with_added_loops(labels, ends, ~owned)
        return OwnedMessages(slots, sender_rows, receiver_rows, backward)

    def _with_added_loops(self, labels: Tensor, ends: Tensor, fresh: Tensor) -> Slots:
        """The slots [messages]: a loop made anew belongs to an explicit one that the layer was handed, else to its node."""
        sender, receiver = ends
        if bool((fresh & ((sender != receiver) | (sender < 0))).any()):
            self._refuse_if(fresh & (ends < 0).any(0), "adds {} edges to rows of x that are no nodes of data")
            self._refuse_if(
                fresh & (sender != receiver), "sends {} messages on edges between different nodes that the model added"
            )
        owner = self.columns.num_edges + sender
        if self.columns.has_loops:
            explicit = self._explicit_loops()[sender.clamp(min=0)]
            self._refuse_doubtful_loops(fresh & (explicit < 0), sender, len(labels))
            owner = torch.where(explicit >= 0, explicit, owner)
        return torch.where(fresh, owner, labels)

    def _explicit_loops(self) -> Tensor:
        """For each node the last explicit loop among the columns that the layer was handed, or `FRESH`, [nodes]."""
        columns = self.columns
        last = torch.full((columns.num_nodes,), FRESH, device=columns.ends.device)
        given = torch.cat([part.labels for part in self.handed]) if self.handed else last[:0]
        given = given[given >= 0]
        given = given[columns.is_loop[given]]
        if len(given) == 0:
            return last
        last.scatter_reduce_(0, columns.ends[0][given], torch.arange(len(given), device=given.device), "amax")
        return torch.where(last >= 0, given[last.clamp(min=0)], last)

    def _refuse_doubtful_rows(self, senders: Tensor, labels: Tensor) -> None:
        for part in self.handed or []:
            if len(part.doubtful):
                doubtful = (labels == FRESH) & torch.isin(senders, part.doubtful)
                self._refuse_if(
                    doubtful, "puts {} self-loops in the place of loops that belong to no single column of data"
                )

    def _refuse_doubtful_loops(self, unowned: Tensor, node: Tensor, num_messages: int) -> None:
        """Loops made anew on nodes whose explicit loop went another way: only a known weight, or none, is certain."""
        looped = torch.isin(node, self.columns.ends[0][self.columns.is_loop]) & unowned
        for weight in self._message_tensors(num_messages):
            mark = self.read(weight)
            own = mark.labels.get((0, EDGE))
            lost = own < FRESH if own is not None else torch.full_like(looped, mark.reach > 0 and not mark.labels)
            self._refuse_if(looped & lost, "adds {} self-loops whose weights may come from explicit self-loops of data")
        if self.handed is None:
            self._refuse_if(
                looped,
                "adds {} self-loops to nodes that have explicit ones, and the edge_index that it was given is not known",
            )

    # --- refusals ---

    def _refuse_if(self, wrong: Tensor, what: str) -> None:
        if bool(wrong.any()):
            count = int(wrong.sum())
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
    if numbers.numel():
        low, high = numbers.aminmax()
        if int(low) < 0 or int(high) >= len(rows):
            return torch.full_like(numbers, LOST)
    return rows[numbers]
