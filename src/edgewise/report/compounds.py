"""RDKit molecules whose atoms are the nodes of a graph: from SMILES, or from labels of atoms and bonds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import InputError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

MUTAG_ATOMS = ("C", "N", "O", "F", "I", "Cl", "Br")
MUTAG_BONDS = ("aromatic", "single", "double", "triple")


def chemistry() -> Any:
    """RDKit's `Chem`, or an error that names the extra."""
    try:
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D  # noqa: F401 - the part that may be missing
    except ImportError as error:
        raise missing_extra("rdkit", "chem", "A picture of a molecule") from error
    return Chem


def from_smiles(smiles: Any, num_nodes: int) -> Any:
    """A molecule whose atom i is node i; with hydrogens if that makes the number of nodes right.

    >>> from_smiles("CO", 2).GetNumAtoms(), from_smiles("CO", 6).GetNumAtoms()
    (2, 6)
    """
    chem = chemistry()
    from rdkit import rdBase

    with rdBase.BlockLogs():
        found = chem.MolFromSmiles(smiles) if isinstance(smiles, str) else None
    if found is None:
        raise InputError(f"smiles is {smiles!r}, which RDKit cannot read. Pass a string such as smiles='CCO'.")
    if found.GetNumAtoms() != num_nodes:
        with_hydrogens = chem.AddHs(found)
        if with_hydrogens.GetNumAtoms() != num_nodes:
            raise InputError(
                f"{smiles} has {found.GetNumAtoms()} atoms ({with_hydrogens.GetNumAtoms()} with hydrogens), the graph has "
                f"{num_nodes} nodes. Pass the SMILES that the graph was made from."
            )
        return with_hydrogens
    return found


def from_labels(data: Any, atoms: Sequence[str], bonds: Sequence[str]) -> Any:
    """A molecule from one-hot (or numbered) labels; not sanitised, because such labels have no charges and no hydrogens.

    >>> from torch_geometric.data import Data
    >>> nitro = Data(x=torch.eye(7)[[1, 2, 2]], edge_index=torch.tensor([[0, 0], [1, 2]]), edge_attr=torch.eye(4)[[2, 2]])
    >>> [atom.GetSymbol() for atom in from_labels(nitro, MUTAG_ATOMS, MUTAG_BONDS).GetAtoms()]
    ['N', 'O', 'O']
    """
    chem = chemistry()
    types = {
        "single": chem.BondType.SINGLE,
        "double": chem.BondType.DOUBLE,
        "triple": chem.BondType.TRIPLE,
        "aromatic": chem.BondType.AROMATIC,
    }
    if unknown := sorted(set(bonds) - set(types)):
        raise InputError(f"bonds has {unknown}; known are {', '.join(types)}.")
    molecule = chem.RWMol()
    for number in labels_of("x", data.x, atoms, "atoms"):
        atom = _atom(chem, atoms[number])
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    attributes = getattr(data, "edge_attr", None)
    size = data.edge_index.size(1)
    kinds = ["single"] * size
    if attributes is not None:
        kinds = [bonds[number] for number in labels_of("edge_attr", attributes, bonds, "bonds")]
    for (source, receiver), kind in zip(data.edge_index.t().tolist(), kinds, strict=True):
        if source != receiver and molecule.GetBondBetweenAtoms(source, receiver) is None:
            molecule.AddBond(source, receiver, types[kind])
            molecule.GetBondBetweenAtoms(source, receiver).SetIsAromatic(kind == "aromatic")
    molecule.UpdatePropertyCache(strict=False)
    chem.FastFindRings(molecule)
    return molecule.GetMol()


def _atom(chem: Any, symbol: str) -> Any:
    try:
        return chem.Atom(symbol)
    except RuntimeError as error:
        raise InputError(
            f"atoms has {symbol!r}, which is no element. Pass symbols, such as atoms=('C', 'N')."
        ) from error


def labels_of(name: str, given: Tensor | None, names: Sequence[str], option: str) -> list[int]:
    """The number of each row's label, from one-hot rows or from numbers.

    >>> labels_of("x", torch.tensor([[0, 1], [1, 0]]), ("C", "N"), "atoms")
    [1, 0]
    """
    if given is None:
        raise InputError(f"data has no {name}; pass data with labels of atoms, or smiles='…'.")
    rows = given.detach().cpu()
    rows = rows.view(-1) if rows.dim() == 2 and rows.size(1) == 1 else rows
    if rows.dim() == 1 and not bool(((rows < 0) | (rows >= len(names)) | (rows != rows.long())).any()):
        return [int(number) for number in rows]
    is_one_hot = (
        rows.dim() == 2 and bool(((rows == 1).sum(dim=1) == 1).all()) and bool(((rows == 0) | (rows == 1)).all())
    )
    if not is_one_hot or rows.size(1) != len(names):
        raise InputError(
            f"data.{name} has shape {tuple(given.shape)} and is not a label (one-hot or a number) for each of the "
            f"{len(names)} {option} {', '.join(names)}. Pass {option}=(…) with one name per column, or smiles='…'."
        )
    return [int(number) for number in torch.argmax(rows, dim=1)]
