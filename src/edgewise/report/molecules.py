"""A molecule, drawn by RDKit, with its bonds and atoms highlighted by their scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import FileError, InputError
from edgewise.report.compounds import MUTAG_ATOMS, MUTAG_BONDS, chemistry, from_labels, from_smiles
from edgewise.report.figure import title_of
from edgewise.report.molecule_canvas import MoleculeCanvas
from edgewise.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgewise.explanation import Explanation


@dataclass(frozen=True)
class MoleculePicture:
    """`svg` (text) and `png` (bytes) of one drawing; a notebook shows it; `save` writes either."""

    svg: str = field(repr=False)
    png: bytes = field(repr=False)
    bonds: Mapping[tuple[int, int], float]
    """(smaller atom, larger atom) → score, as drawn."""
    atoms: Mapping[int, float]
    """Atom → self score, as drawn; empty where the method has none."""

    def save(self, path: Any) -> None:
        """Write to `.svg` or `.png`."""
        path = Path(path)
        found = {".svg": self.svg.encode(), ".png": self.png}.get(path.suffix)
        if found is None:
            raise FileError(f"{path.name} has the ending {path.suffix!r}; known are .svg and .png.")
        write_whole(path, lambda file: file.write(found))

    def _repr_svg_(self) -> str:
        return self.svg


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
        explanation: Of a graph whose nodes are atoms and whose edges are bonds; at layer level, the sum over layers is drawn.
        smiles: The molecule; atom i is node i.
        data: Instead of `smiles`: the graph itself, with labels of atoms in `x` and of bonds in `edge_attr`, as in MUTAG, or
            with its SMILES in `data.smiles`. Labels carry no charges, so the molecule is drawn as it is, without sanitising.
        atoms: The symbols that the columns of `x` stand for.
        bonds: What the columns of `edge_attr` stand for.
        undirected: A bond has two edges, one in each direction; its score is their `"sum"`, `"mean"` or `"max"`.
        title: Instead of the method, the target and the explained number.
        size: In pixels.

    Purple supports the explained class, orange opposes it. Needs `edgewise[chem]`.

    >>> import torch
    >>> from edgewise import Explanation
    >>> there_and_back = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> why = Explanation(torch.tensor([1.0, 2.0, -1.0, 0.5]), there_and_back, 3, index=0, target=1, value=1.5)
    >>> molecule(why, smiles="CCO").bonds
    {(0, 1): 3.0, (1, 2): -0.5}
    """
    drawn = _compound(explanation, smiles, data, atoms, bonds)
    bond_scores, atom_scores = _bond_scores(explanation, undirected), _atom_scores(explanation)
    missing = [pair for pair in bond_scores if drawn.GetBondBetweenAtoms(*pair) is None]
    if missing:
        raise InputError(
            f"The graph has an edge between nodes {missing[0][0]} and {missing[0][1]}, the molecule no such bond. Write the "
            f"atoms of the SMILES in the order of the nodes."
        )
    lines = [title or title_of(explanation, summed=True), _legend(undirected, own=bool(atom_scores))]
    canvas = MoleculeCanvas(drawn, bond_scores, atom_scores, tuple(lines), size)
    return MoleculePicture(canvas.svg(), canvas.png(), bond_scores, atom_scores)


def _compound(explanation: Explanation, smiles: Any, data: Any, atoms: Sequence[str], bonds: Sequence[str]) -> Any:
    chemistry()
    if (smiles is None) == (data is None):
        raise InputError("Pass the molecule once: either smiles='CCO' or data=the graph that was explained.")
    if data is None:
        return from_smiles(smiles, explanation.num_nodes)
    if data.num_nodes != explanation.num_nodes:
        raise InputError(
            f"data has {data.num_nodes} nodes, the explanation {explanation.num_nodes}. Pass the graph that was explained."
        )
    if isinstance(getattr(data, "smiles", None), str):
        return from_smiles(data.smiles, explanation.num_nodes)
    return from_labels(data, atoms, bonds)


def _bond_scores(explanation: Explanation, undirected: str) -> dict[tuple[int, int], float]:
    """Of the sum over layers; a score that is NaN or infinite has no colour."""
    flat = replace(explanation, scores=explanation.edge_scores(), level="input")
    scores, ends = flat.merged(undirected).scores.tolist(), explanation.edge_index.t().tolist()
    return {
        (min(pair), max(pair)): score
        for pair, score in zip(ends, scores, strict=True)
        if pair[0] != pair[1] and isfinite(score)
    }


def _atom_scores(explanation: Explanation) -> dict[int, float]:
    own = explanation.self_scores
    if own is None:
        return {}
    total = own if own.dim() == 1 else own.sum(dim=0)
    return {node: score for node, score in enumerate(total.tolist()) if isfinite(score)}  # NaN: it cannot be separated


def _legend(undirected: str, *, own: bool) -> str:
    return f"bonds: {undirected} of both directions" + ("; atoms: self scores" if own else "")
