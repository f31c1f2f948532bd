"""Pairs (slot, node): which nodes a missing message has changed, and how such pairs get numbers."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """Numbered pairs (slot, node): the nodes that a missing message has changed so far.

    >>> pairs = Pairs(torch.tensor([1, 5]), num_nodes=3)                 # slot 0 changed node 1, slot 1 changed node 2
    >>> pairs.slot.tolist(), pairs.node.tolist()
    ([0, 1], [1, 2])
    """

    key: Tensor
    """`[pairs]`: slot · N + node."""
    num_nodes: int
    grouped: bool = False
    """Whether they are ordered by slot."""

    @property
    def slot(self) -> Tensor:
        """The missing message of each pair."""
        return self.key // self.num_nodes

    @property
    def node(self) -> Tensor:
        """The changed node of each pair."""
        return self.key % self.num_nodes

    def __len__(self) -> int:
        return len(self.key)


class Numbering:
    """Gives pairs numbers by a table over slots × nodes, without sorting.

    >>> numbering = Numbering(2, 3, torch.device("cpu"))                 # two slots, three nodes: keys 0 to 5
    >>> numbering.number(torch.tensor([5, 1]), torch.tensor([5])).key    # each once
    tensor([1, 5])
    >>> numbering.find(torch.tensor([5, 0, 1]))
    tensor([ 1, -1,  0])
    """

    def __init__(self, num_slots: int, num_nodes: int, device: torch.device) -> None:
        self._table = torch.full((num_slots * num_nodes,), -1, dtype=torch.int32, device=device)
        self._used: list[Tensor] = []
        self.num_slots, self.num_nodes = num_slots, num_nodes

    def forget(self) -> None:
        """No key has a number any more."""
        for used in self._used:
            self._table[used] = -1
        self._used = []

    def number(self, *keys: Tensor) -> Pairs:
        """Every key once, numbered from 0; earlier numbers are forgotten.

        Every key writes its place into the table; of several equal ones the one that was written last finds its own place
        there, and is kept.
        """
        self.forget()
        key = torch.cat(keys)
        ticket = torch.arange(len(key), device=key.device, dtype=torch.int32)
        self._table[key] = ticket
        unique = key[self._table[key] == ticket]
        self._table[unique] = torch.arange(len(unique), device=key.device, dtype=torch.int32)
        self._used = [unique]
        return Pairs(unique, self.num_nodes)

    def find(self, key: Tensor) -> Tensor:
        """The number of each key, −1 if it has none."""
        return self._table[key].long()


class SortedNumbering(Numbering):
    """The same by sorting, without a table: for few pairs in a graph with many nodes.

    >>> numbering = SortedNumbering(2, 3)
    >>> numbering.number(torch.tensor([5, 1]), torch.tensor([5])).key
    tensor([1, 5])
    >>> numbering.find(torch.tensor([5, 0, 1]))
    tensor([ 1, -1,  0])
    """

    def __init__(self, num_slots: int, num_nodes: int) -> None:
        self.num_slots, self.num_nodes = num_slots, num_nodes
        self._known = torch.empty(0, dtype=torch.long)

    def forget(self) -> None:
        """No key has a number any more."""
        self._known = self._known[:0]

    def number(self, *keys: Tensor) -> Pairs:
        """Every key once, numbered from 0."""
        self._known = torch.cat(keys).unique()
        return Pairs(self._known, self.num_nodes)

    def find(self, key: Tensor) -> Tensor:
        """The number of each key, −1 if it has none."""
        if not len(self._known):
            return torch.full_like(key, -1)
        place = torch.searchsorted(self._known, key).clamp(max=len(self._known) - 1)
        return torch.where(self._known[place] == key, place, -1)
