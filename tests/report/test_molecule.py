"""Molecules: each bond has its two edges' score, in the colour of its sign."""

import sys

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

from edgewise import Explanation, FileError, InputError, MissingExtraError, SettingError
from edgewise.report import molecule
from edgewise.report.molecule import MUTAG_ATOMS, MUTAG_BONDS, from_labels

BONDS = [(0, 1), (1, 2), (1, 3)]  # a nitro group on a carbon
EDGES = torch.tensor([*BONDS, *((b, a) for a, b in BONDS)]).t()
SCORES = torch.tensor([1.0, -4.0, 0.0, 2.0, 1.0, 0.0])
NITRO = Data(x=torch.eye(7)[[0, 1, 2, 2]], edge_index=EDGES, edge_attr=torch.eye(4)[[1, 2, 2, 1, 2, 2]], num_nodes=4)
SMILES = "C[N+](=O)[O-]"


def explanation(scores=SCORES, **changes):
    return Explanation(scores, changes.pop("edge_index", EDGES), changes.pop("num_nodes", 4), 0, 1, 2.5, **changes)


@pytest.mark.parametrize(("undirected", "expected"), [("sum", [3.0, -3.0]), ("mean", [1.5, -1.5]), ("max", [2.0, 1.0])])
def test_a_bond_has_the_merged_score_of_its_two_edges(undirected, expected):
    drawn = molecule(explanation(), smiles=SMILES, undirected=undirected)
    assert [drawn.bonds[pair] for pair in BONDS] == [*expected, 0.0]


@pytest.mark.parametrize("given", [{"smiles": SMILES}, {"data": NITRO}, {"data": Data(smiles=SMILES, num_nodes=4)}])
def test_support_is_purple_and_opposition_orange(given):
    scores = torch.zeros(6)
    blank = molecule(explanation(scores), **given).svg
    for score, more in ((1.0, 2), (-1.0, 0)):  # of red, green, blue: purple has most blue, orange most red
        scores[0] = score
        added = _fills(molecule(explanation(scores), **given).svg) - _fills(blank) - _bar(given)
        assert added
        assert all(max(range(3), key=lambda part: int(fill[2 * part + 1 : 2 * part + 3], 16)) == more for fill in added)


def _fills(svg):
    return {part[:7].lower() for part in svg.split("fill:")[1:] if part.startswith("#")}


def _bar(given):
    """The colours of the scale itself, from a drawing whose only highlight has no colour."""
    from edgewise.report.molecule_canvas import BAR_STEPS, MoleculeCanvas

    look = MoleculeCanvas(None, {(0, 1): 1.0}, {}, (), (1, 1))
    shades = (look.colour((2 * number + 1) / BAR_STEPS - 1) for number in range(BAR_STEPS))
    return {"#" + "".join(f"{int(255 * part):02x}" for part in shade) for shade in shades}


def test_atoms_have_the_self_scores_and_unknown_ones_none():
    own = torch.tensor([0.5, torch.nan, -1.0, 0.0])
    assert molecule(explanation(self_scores=own), smiles=SMILES).atoms == {0: 0.5, 2: -1.0, 3: 0.0}
    layered = explanation(torch.stack([SCORES, SCORES]), level="layer", self_scores=torch.stack([own, own]))
    drawn = molecule(layered, smiles=SMILES)
    assert drawn.atoms == {0: 1.0, 2: -2.0, 3: 0.0}
    assert drawn.bonds[0, 1] == 6.0


def test_at_layer_level_the_layers_are_summed_before_the_directions_are_merged():
    layers = torch.tensor([[1.0, 0, 0, -5.0, 0, 0], [-3.0, 0, 0, 4.0, 0, 0]])  # max of the sums -2 and -1
    assert molecule(explanation(layers, level="layer"), smiles=SMILES, undirected="max").bonds[0, 1] == -1.0


def test_scores_that_are_not_finite_and_scores_of_zero_are_drawn_without_colour():
    scores = SCORES.clone()
    scores[1] = torch.nan
    assert set(molecule(explanation(scores), smiles=SMILES).bonds) == {(0, 1), (1, 3)}
    assert molecule(explanation(torch.zeros(6)), smiles=SMILES).png.startswith(b"\x89PNG")


def test_labels_without_charges_make_the_atoms_and_bonds_that_they_name():
    made = from_labels(NITRO, MUTAG_ATOMS, MUTAG_BONDS)  # a nitrogen with five bonds: it must not be sanitised
    assert [atom.GetSymbol() for atom in made.GetAtoms()] == ["C", "N", "O", "O"]
    assert [made.GetBondBetweenAtoms(*pair).GetBondTypeAsDouble() for pair in BONDS] == [1.0, 2.0, 2.0]


def test_a_molecule_of_mutag_is_drawn(raw_data, tmp_path):
    graph = TUDataset(raw_data("MUTAG"), "MUTAG")[0]
    scores = torch.linspace(-1, 1, graph.num_edges)
    why = Explanation(scores, graph.edge_index, graph.num_nodes, 0, 1, 2.5, settings={"task": "graph", "of": "logit"})
    drawn = molecule(why, data=graph)
    assert len(drawn.bonds) == graph.num_edges // 2
    drawn.save(tmp_path / "mutag.svg")
    drawn.save(tmp_path / "mutag.png")
    assert (tmp_path / "mutag.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "mutag.png").read_bytes().startswith(b"\x89PNG")
    assert drawn._repr_svg_() == drawn.svg


def test_text_from_the_user_is_no_markup():
    svg = molecule(explanation(), smiles=SMILES, title="<script>alert(1)</script>").svg
    assert "<script" not in svg


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "once"),
        ({"smiles": SMILES, "data": NITRO}, "once"),
        ({"smiles": "not a molecule"}, "that RDKit can read, got 'not a molecule'"),
        ({"smiles": "CCCCCCCC"}, "8 atoms"),
        ({"smiles": "CCCC"}, "order of the nodes"),
        ({"data": Data(x=torch.eye(7), num_nodes=7)}, "4 nodes like the explanation, got 7"),
        ({"data": Data(x=torch.ones(4, 3), edge_index=EDGES)}, "atoms="),
        ({"data": NITRO, "atoms": ("C", "Qq", "O", "F", "I", "Cl", "Br")}, "element symbols, got 'Qq'"),
        ({"data": NITRO, "bonds": ("a", "b", "c", "d")}, "names among single"),
    ],
)
def test_a_molecule_that_does_not_fit_is_refused(given, match):
    with pytest.raises(InputError, match=match):
        molecule(explanation(), **given)


def test_unknown_merges_and_endings_are_refused(tmp_path):
    with pytest.raises(SettingError, match="undirected"):
        molecule(explanation(), smiles=SMILES, undirected="median")
    with pytest.raises(FileError, match=r"\.svg or \.png"):
        molecule(explanation(), smiles=SMILES).save(tmp_path / "a.pdf")


def test_without_rdkit_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(MissingExtraError, match=r"edgewise\[chem\]"):
        molecule(explanation(), smiles=SMILES)
