"""Molecules with named atom features: which atoms, and which of their features, made the model say "mutagenic"?

Molecules are made up: rings and chains of carbon with some groups attached, and every nitro group (a nitrogen with two
oxygens) makes the molecule mutagenic. Run this file once: it writes molecules.pt and atom_weights.pt. Then one command
makes the page, and another one names the atom features:

    edgewise explain --model molecules:Classifier --weights atom_weights.pt --data molecules.pt --index 0-2 --page atoms.html
    edgewise features --model molecules:Classifier --weights atom_weights.pt --data molecules.pt --index 0-2
"""

import random

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool

import edgewise as ew

FEATURES = ["is C", "is N", "is O", "neighbours", "hydrogens", "charge"]
VALENCE = {"C": 4, "N": 3, "O": 2}
CLASSES = ["not mutagenic", "mutagenic"]


class Classifier(torch.nn.Module):
    """Two layers, a sum over the atoms, two classes."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        widths = [(len(FEATURES), hidden), (hidden, hidden)]
        inner = [torch.nn.Sequential(torch.nn.Linear(*width), torch.nn.ReLU()) for width in widths]
        self.first, self.second = (GINConv(network) for network in inner)
        self.head = torch.nn.Linear(hidden, len(CLASSES))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        """A row of logits for each molecule."""
        return self.head(global_add_pool(self.second(self.first(x, edge_index), edge_index), batch))


def molecule(draw: random.Random) -> Data:
    """A ring or a chain of carbon, with groups; `atoms` are its symbols, `nitro` the nitrogens of its nitro groups."""
    size, atoms, charge = draw.randint(4, 7), list[str](), {}
    atoms += ["C"] * size
    bonds = [(number, number + 1) for number in range(size - 1)] + ([(size - 1, 0)] if draw.random() < 0.5 else [])
    nitro = []
    for group in draw.choices(["OH", "NH2", "CH3", "NO2"], weights=[3, 3, 2, 2], k=draw.randint(1, 2)):
        place, first = draw.randrange(size), len(atoms)
        atoms.append({"OH": "O", "NH2": "N", "CH3": "C", "NO2": "N"}[group])
        bonds.append((place, first))
        if group == "NO2":
            atoms += ["O", "O"]
            bonds += [(first, first + 1), (first, first + 2)]
            charge |= {first: 1.0, first + 1: -1.0}
            nitro.append(first)
    edge_index = torch.tensor(bonds + [(other, one) for one, other in bonds]).t().contiguous()
    degree = torch.bincount(edge_index[1], minlength=len(atoms)).tolist()
    spare = [0 if number in charge else max(VALENCE[symbol] - degree[number], 0) for number, symbol in enumerate(atoms)]
    x = [
        [*(float(symbol == one) for one in VALENCE), float(degree[n]), float(spare[n]), charge.get(n, 0.0)]
        for n, symbol in enumerate(atoms)
    ]
    return Data(
        x=torch.tensor(x), edge_index=edge_index, y=torch.tensor([int(bool(nitro))]), feature_names=FEATURES,
        atoms=atoms, nitro=nitro, node_names=[f"{symbol}{number}" for number, symbol in enumerate(atoms)],
    )  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    draw = random.Random(0)
    molecules = sorted((molecule(draw) for _ in range(120)), key=lambda one: -int(one.y))  # the mutagenic ones first
    model, every = Classifier(), Batch.from_data_list(molecules)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        logits = model(every.x, every.edge_index, every.batch)
        torch.nn.functional.cross_entropy(logits, every.y).backward()
        optimizer.step()
    torch.save(molecules, "molecules.pt")
    torch.save(model.state_dict(), "atom_weights.pt")
    right = float((logits.argmax(dim=1) == every.y).float().mean())
    print(f"accuracy {right:.0%}; written: molecules.pt, atom_weights.pt")
    for why in ew.features(model, molecules, [0, 1, 2], task="graph"):
        score, atom, _, feature = why.top(1)[0]
        print(
            f"molecule {why.index}, {CLASSES[why.target]}: {feature} of {molecules[why.index].atoms[atom]}{atom} ({score:+.2f})"
        )
    page = ew.write_page(
        "nitro.html", model, molecules, [0, 1, 2], task="graph", class_names=CLASSES, title="Nitro groups",
        node_names=[one.atoms for one in molecules], check=False,
    )  # fmt: skip
    print(f"written: {page}")


if __name__ == "__main__":
    main()
