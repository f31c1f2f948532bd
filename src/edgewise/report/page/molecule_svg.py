"""A molecule whose colours the page decides: RDKit draws every bond and atom highlighted, in colours that are variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edgewise.errors import InputError, MissingExtraError
from edgewise.report.molecule import MUTAG_ATOMS, MUTAG_BONDS, chemistry, from_labels, from_smiles
from edgewise.report.molecule_canvas import draw_highlighted

if TYPE_CHECKING:
    from torch_geometric.data import Data

SIZE = (620, 430)
_BOND, _ATOM = 0xFE, 0xFD
"""The first byte of colours that stand for numbers; no drawing has them."""


def molecule_of(data: Data) -> Any | None:
    """The RDKit molecule of a graph that carries its SMILES or MUTAG's labels; `None` for any other graph, or without RDKit.

    >>> import torch
    >>> from torch_geometric.data import Data
    >>> molecule_of(Data(x=torch.rand(2, 3), edge_index=torch.tensor([[0], [1]]))) is None
    True
    """
    try:
        chemistry()
        if isinstance(getattr(data, "smiles", None), str):
            found = from_smiles(data.smiles, data.num_nodes)
        elif getattr(data, "edge_attr", None) is None:
            return None
        else:
            found = from_labels(data, MUTAG_ATOMS, MUTAG_BONDS)
    except (InputError, MissingExtraError):
        return None
    ends = ((one, other) for one, other in data.edge_index.t().tolist() if one != other)
    return found if all(found.GetBondBetweenAtoms(*pair) is not None for pair in ends) else None


def molecule_svg(compound: Any) -> str:
    """The drawing as SVG: bond 3 has the colour `var(--b3)`, atom 5 `var(--a5)`, white until the page sets them.

    RDKit takes only colours, so every bond and atom first gets a colour that encodes its number, `#FE0003` for bond 3; those
    colours are then replaced by variables.
    """
    from rdkit.Chem.Draw import rdMolDraw2D

    canvas = rdMolDraw2D.MolDraw2DSVG(*SIZE)
    bonds = {bond.GetIdx(): _numbered(_BOND, bond.GetIdx()) for bond in compound.GetBonds()}
    atoms = {atom.GetIdx(): _numbered(_ATOM, atom.GetIdx()) for atom in compound.GetAtoms()}
    draw_highlighted(canvas, compound, bonds, atoms)
    canvas.FinishDrawing()
    svg = re.sub(r"<\?xml.*?\?>|<rect style='opacity:1.0;fill:#FFFFFF.*?</rect>", "", canvas.GetDrawingText())
    svg = re.sub(r"#(FE|FD)([0-9A-F]{4})", _variable, svg)
    return re.sub(r"\s*\n\s*", " ", svg).strip()


def atom_names(compound: Any) -> list[str]:
    """The symbol of every atom."""
    return [atom.GetSymbol() for atom in compound.GetAtoms()]


def bond_ends(compound: Any) -> list[tuple[int, int]]:
    """The two atoms of every bond."""
    return [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in compound.GetBonds()]


def _numbered(kind: int, index: int) -> tuple[float, float, float]:
    """The colour that stands for a number: red, green and blue from 0 to 1."""
    return kind / 255, (index // 256) / 255, (index % 256) / 255


def _variable(colour: re.Match[str]) -> str:
    """The variable for such a colour: `#FE0003` becomes `var(--b3,#fff)`."""
    return f"var(--{'b' if colour[1] == 'FE' else 'a'}{int(colour[2], 16)},#fff)"
