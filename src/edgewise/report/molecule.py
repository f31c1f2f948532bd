"""A molecule, drawn by RDKit, with its bonds and atoms highlighted by their scores.

`molecule` is the way in: it makes an RDKit molecule whose atom i is node i (`from_smiles`, `from_labels`), adds the scores of
both directions of each bond, and gives a `MoleculePicture`. The drawing itself is in `molecule_canvas`. A page asks
`molecule_of` whether a graph is a molecule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from edgewise.arguments import shown
from edgewise.contract import checked
from edgewise.errors import FileError, InputError, MissingExtraError, SettingError, missing_extra
from edgewise.files import write_whole
from edgewise.report.figure import title_of
from edgewise.report.molecule_canvas import MoleculeCanvas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from edgewise.results.explanation import Explanation


# --- RDKit molecules whose atoms are the nodes of a graph: from SMILES, or from labels of atoms and bonds --------------


MUTAG_ATOMS = ("C", "N", "O", "F", "I", "Cl", "Br")
_LEAST_SIDE, _LARGEST_SIDE = 100, 10_000  # pixels; the legend needs some of them
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
        raise InputError(
            f"`smiles` must be a string that RDKit can read, got {shown(smiles)}. Use smiles='CCO', for example."
        )
    if found.GetNumAtoms() != num_nodes:
        with_hydrogens = chem.AddHs(found)
        if with_hydrogens.GetNumAtoms() != num_nodes:
            raise InputError(
                f"{smiles} has {found.GetNumAtoms()} atoms ({with_hydrogens.GetNumAtoms()} with hydrogens), the graph has "
                f"{num_nodes} nodes. Use the SMILES that the graph was made from."
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
        raise InputError(f"`bonds` must be names among {', '.join(types)}, got {unknown[0]!r}.")
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


def _atom(chem: Any, symbol: str) -> Any:
    """An RDKit atom; a symbol that is not an element is refused."""
    try:
        return chem.Atom(symbol)
    except RuntimeError as error:
        raise InputError(
            f"`atoms` must be element symbols, got {shown(symbol)}. Use atoms=('C', 'N'), for example."
        ) from error


def labels_of(name: str, given: Tensor | None, names: Sequence[str], option: str) -> list[int]:
    """The number of each row's label, from one-hot rows or from numbers.

    >>> labels_of("x", torch.tensor([[0, 1], [1, 0]]), ("C", "N"), "atoms")
    [1, 0]
    """
    if given is None:
        raise InputError(f"`data` must have {name} with labels of atoms or bonds, got none. Use smiles='…' instead.")
    rows = given.detach().cpu()
    rows = rows.view(-1) if rows.dim() == 2 and rows.size(1) == 1 else rows
    if rows.dim() == 1 and not bool(((rows < 0) | (rows >= len(names)) | (rows != rows.long())).any()):
        return [int(number) for number in rows]
    is_one_hot = (
        rows.dim() == 2 and bool(((rows == 1).sum(dim=1) == 1).all()) and bool(((rows == 0) | (rows == 1)).all())
    )
    if not is_one_hot or rows.size(1) != len(names):
        raise InputError(
            f"`data.{name}` must be a label (one-hot or a number) among the {len(names)} {option} {', '.join(names)}, got "
            f"shape {tuple(given.shape)}. Use {option}=(…) with one name per column, or smiles='…'."
        )
    return [int(number) for number in torch.argmax(rows, dim=1)]


# --- Scores on a molecule -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MoleculePicture:
    """`svg` (text) and `png` (bytes) of one drawing; a notebook shows it; `save` writes either."""

    svg: str = field(repr=False)
    png: bytes = field(repr=False)
    bonds: Mapping[tuple[int, int], float]
    """(smaller atom, larger atom) → score, as drawn."""
    atoms: Mapping[int, float]
    """Atom → self score, as drawn; empty where the method has none."""

    @checked
    def save(self, path: Any) -> None:
        """Write to `.svg` or `.png`."""
        path = Path(path)
        found = {".svg": self.svg.encode(), ".png": self.png}.get(path.suffix)
        if found is None:
            raise FileError(f"`path` must end in .svg or .png, got {path.name}. Use molecule.svg, for example.")
        write_whole(path, lambda file: file.write(found))

    def _repr_svg_(self) -> str:
        return self.svg


@checked
def molecule(
    explanation: Explanation,
    *,
    smiles: str | None = None,
    data: Any = None,
    atoms: Sequence[str] = MUTAG_ATOMS,
    bonds: Sequence[str] = MUTAG_BONDS,
    undirected: str = "sum",
    title: str = "",
    size: tuple[int, int] = (560, 480),
) -> MoleculePicture:
    """Draw the scores of a molecule on its bonds, and the self scores on its atoms.

    Args:
        explanation: The explanation of a graph whose nodes are atoms and whose edges are bonds; at layer level the sum over
            layers is drawn.
        smiles: The molecule; atom i is node i.
        data: Instead of `smiles`: the graph itself, with labels of atoms in `x` and of bonds in `edge_attr`, as in MUTAG, or
            with its SMILES in `data.smiles`. Labels carry no charges, so the molecule is drawn as it is, without sanitising.
        atoms: The symbols that the columns of `x` stand for.
        bonds: What the columns of `edge_attr` stand for.
        undirected: A bond has two edges, one in each direction; its score is their `"sum"`, `"mean"` or `"max"`.
        title: Replaces the default title: the method, the target and the explained number.
        size: Width and height in pixels.

    Purple supports the explained class, orange opposes it. Needs `edgewise[chem]`.

    >>> import torch
    >>> from edgewise import Explanation
    >>> there_and_back = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> why = Explanation(torch.tensor([1.0, 2.0, -1.0, 0.5]), there_and_back, 3, index=0, target=1, value=1.5)
    >>> molecule(why, smiles="CCO").bonds
    {(0, 1): 3.0, (1, 2): -0.5}
    """
    _check_size(size)
    drawn = _compound(explanation, smiles, data, _names("atoms", atoms), _names("bonds", bonds))
    bond_scores, atom_scores = _bond_scores(explanation, undirected), _atom_scores(explanation)
    missing = [pair for pair in bond_scores if drawn.GetBondBetweenAtoms(*pair) is None]
    if missing:
        raise InputError(
            f"The graph has an edge between nodes {missing[0][0]} and {missing[0][1]}, but the molecule has no such bond. Use "
            f"a SMILES with its atoms in the order of the nodes."
        )
    lines = [title or title_of(explanation, summed=True), _legend(undirected, own=bool(atom_scores))]
    canvas = MoleculeCanvas(drawn, bond_scores, atom_scores, tuple(lines), size)
    return MoleculePicture(canvas.svg(), canvas.png(), bond_scores, atom_scores)


def _check_size(size: tuple[int, int]) -> None:
    if len(size) != 2 or not all(isinstance(side, int) and _LEAST_SIDE <= side <= _LARGEST_SIDE for side in size):
        raise SettingError(
            f"`size` must be a width and a height, each from {_LEAST_SIDE} to {_LARGEST_SIDE} pixels, got {shown(size)}. "
            f"Use size=(560, 480)."
        )


def _names(argument: str, given: Iterable[Any]) -> tuple[str, ...]:
    """Names of labels; an iterator can be looked at only once, so it is looked at here."""
    names = tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise SettingError(f"`{argument}` must be a list (str), got {shown(names)}.")
    return names


def _compound(explanation: Explanation, smiles: Any, data: Any, atoms: Sequence[str], bonds: Sequence[str]) -> Any:
    """The RDKit molecule, from whichever of `smiles` and `data` was given."""
    chemistry()
    if (smiles is None) == (data is None):
        raise InputError(
            "The molecule must be given once: use either smiles='CCO' or data=the graph that was explained."
        )
    if data is None:
        return from_smiles(smiles, explanation.num_nodes)
    if not isinstance(data, Data):
        raise InputError(f"`data` must be the graph that was explained, got {shown(data)}.")
    if data.num_nodes != explanation.num_nodes:
        raise InputError(
            f"`data` must have {explanation.num_nodes} nodes like the explanation, got {data.num_nodes}. Use the graph that "
            f"was explained."
        )
    if isinstance(getattr(data, "smiles", None), str):
        return from_smiles(data.smiles, explanation.num_nodes)
    return from_labels(data, atoms, bonds)


def _bond_scores(explanation: Explanation, undirected: str) -> dict[tuple[int, int], float]:
    """(smaller atom, larger atom) → score, summed over layers; without scores that are NaN or infinite."""
    flat = replace(explanation, scores=explanation.edge_scores(), level="input")
    scores, ends = flat.merged(undirected).scores.tolist(), explanation.edge_index.t().tolist()
    return {
        (min(pair), max(pair)): score
        for pair, score in zip(ends, scores, strict=True)
        if pair[0] != pair[1] and isfinite(score)
    }


def _atom_scores(explanation: Explanation) -> dict[int, float]:
    """Atom → self score, summed over layers; empty if the method has none."""
    own = explanation.self_scores
    if own is None:
        return {}
    total = own if own.dim() == 1 else own.sum(dim=0)
    return {node: score for node, score in enumerate(total.tolist()) if isfinite(score)}  # NaN: it cannot be separated


def _legend(undirected: str, *, own: bool) -> str:
    """What the colours of bonds and atoms are."""
    return f"bonds: {undirected} of both directions" + ("; atoms: self scores, on a scale of their own" if own else "")
