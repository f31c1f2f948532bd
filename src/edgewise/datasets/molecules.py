"""Planted molecules: graphs of atoms in which two toxic groups, NO2 and NH2, decide the class, in the manner of Mutagenicity.

A molecule is a skeleton of carbon rings and chains with hydrogens and other atoms on it. Toxic molecules have one to three
toxic groups and more rings; others have none, but like all molecules they have what groups are made of: O, N, OH, NO, COOH, a
nitrogen in a ring, H, Cl. As in measured data, labels are not always right: some molecules of either kind have the other class.
The bonds inside the groups are the truth (as Luo et al., NeurIPS 2020, take them for Mutagenicity): N–O twice, or N–H twice.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GIN, global_add_pool

from edgewise.datasets.motifs import TRAINING_SHARE, GraphMotifs
from edgewise.random_numbers import seeded

ATOMS = ("C", "N", "O", "H", "Cl")
TOXIC = (("N", "O", "O"), ("N", "H", "H"))
"""A first atom, which is bound to the skeleton, and those bound to it."""
HARMLESS = (("O",), ("O", "H"), ("N", "O"), ("N", "H"), ("C", "O", "O"), ("C", "H", "H"), ("H",), ("Cl",), ("N",))
WRONG_LABELS = 0.15
NUM_MOLECULES, HIDDEN, NUM_LAYERS = 1000, 32, 3


class _Molecule:
    """Atoms and bonds, put together piece by piece."""

    def __init__(self) -> None:
        self.atoms: list[str] = []
        self.bonds: list[tuple[int, int]] = []
        self.planted: list[bool] = []

    def bond(self, a: int, b: int, *, planted: bool = False) -> None:
        self.bonds.append((a, b))
        self.planted.append(planted)

    def add(self, atom: str, to: int | None = None) -> int:
        self.atoms.append(atom)
        if to is not None:
            self.bond(to, len(self.atoms) - 1)
        return len(self.atoms) - 1

    def ring(self, size: int, to: int | None) -> list[int]:
        """A ring of carbons, one of them sometimes a nitrogen; bound to an atom of what is there already."""
        hetero = int(torch.randint(size, ())) if float(torch.rand(())) < 0.3 else -1
        found = [self.add("N" if place == hetero else "C") for place in range(size)]
        for place, atom in enumerate(found):
            self.bond(atom, found[(place + 1) % size])
        if to is not None:
            self.bond(to, found[0])
        return found[1:]

    def group(self, atoms: tuple[str, ...], to: int, *, planted: bool) -> None:
        first = self.add(atoms[0], to)
        for atom in atoms[1:]:
            self.atoms.append(atom)
            self.bond(first, len(self.atoms) - 1, planted=planted)

    def data(self, label: int) -> tuple[Data, Tensor]:
        """The graph, both directions of each bond, and `[E]`: which are planted."""
        ends = torch.tensor(self.bonds).t()
        kinds = torch.tensor([ATOMS.index(atom) for atom in self.atoms])
        x = F.one_hot(kinds, len(ATOMS)).float()
        planted = torch.tensor(self.planted, dtype=torch.int8)
        graph = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor([label]))
        return graph, torch.cat([planted, planted])


def _draw(toxic: int) -> tuple[Data, Tensor]:
    """One molecule, toxic (1) or not (0), from the random state that is set."""
    molecule = _Molecule()
    free: list[int] = []
    for part in range(int(torch.randint(2 + toxic, 5, ()))):
        to = _taken(free) if part else None
        if float(torch.rand(())) < 0.7:
            free += molecule.ring(int(torch.randint(5, 7, ())), to)
        else:
            last = molecule.add("C", to)
            free.append(last)
            for _ in range(int(torch.randint(1, 4, ()))):
                last = molecule.add("C", last)
                free.append(last)
    groups: list[tuple[tuple[str, ...], bool]] = []
    groups += [(TOXIC[int(torch.randint(len(TOXIC), ()))], True) for _ in range(toxic * int(torch.randint(1, 4, ())))]
    groups += [(HARMLESS[int(torch.randint(len(HARMLESS), ()))], False) for _ in range(int(torch.randint(2, 6, ())))]
    for atoms, planted in groups:
        if free:
            molecule.group(atoms, _taken(free), planted=planted)
    return molecule.data(toxic ^ int(float(torch.rand(())) < WRONG_LABELS))


def _taken(free: list[int]) -> int:
    """One of the places where something can be bound; it is free no longer."""
    return free.pop(int(torch.randint(len(free), ())))


class PooledGIN(nn.Module):
    """A GIN whose node vectors are summed, molecule by molecule, and read by a linear map."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.nodes, self.head = GIN(len(ATOMS), HIDDEN, NUM_LAYERS), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """`[graphs, classes]`: logits."""
        return self.head(global_add_pool(self.nodes(x, edge_index).relu(), batch))


@dataclass(frozen=True, eq=False, repr=False)
class Molecules(GraphMotifs):
    """Toxic molecules and others; toxic ones that are labelled so have a truth."""

    def _make(self) -> nn.Module:
        return PooledGIN()


def toxic_groups(seed: int) -> Molecules:
    """1000 molecules, half of them with toxic groups, whose bonds are the truth; 15 % of the labels are wrong."""
    with seeded(seed):
        drawn = [_draw(number % 2) for number in range(NUM_MOLECULES)]
        order = torch.randperm(NUM_MOLECULES)
    graphs, planted = [graph for graph, _ in drawn], tuple(truth for _, truth in drawn)
    training, test = order.split(int(TRAINING_SHARE * NUM_MOLECULES))
    targets = torch.tensor([bool(graph.y) and bool(truth.any()) for graph, truth in drawn]).nonzero().view(-1)
    return Molecules("toxic_groups", graphs, targets, seed, training, test.sort().values, planted)
