"""Pairs (slot, node): what a missing message (the slot) has changed so far."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """Numbered pairs; `key` is slot · N + node."""

    key: Tensor
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
    """Gives pairs numbers by a table over slots × nodes, without sorting."""

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
        """Every key once, numbered from 0; earlier numbers are forgotten."""
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
