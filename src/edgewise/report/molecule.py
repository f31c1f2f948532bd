"""A molecule, drawn by RDKit, with its bonds and atoms highlighted by their scores."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import FileError, InputError
from edgewise.report.colours import rgb, signed_colour
from edgewise.report.compounds import MUTAG_ATOMS, MUTAG_BONDS, chemistry, from_labels, from_smiles
from edgewise.report.figure import title_of
from edgewise.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgewise.explanation import Explanation

PALER = 0.62  # of the full colours: bonds and letters are read on top of them
LEGEND_HEIGHT, BAR_WIDTH, BAR_STEPS = 84, 200, 40  # in pixels; steps of colour


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
    look = _Look(drawn, bond_scores, atom_scores, tuple(plain_line(line) for line in lines), size)
    return MoleculePicture(look.svg(), look.png(), bond_scores, atom_scores)


def plain_line(line: str) -> str:
    """Without RDKit's own markup for lowered and raised letters.

    >>> plain_line("a<sub>b</sub>")
    'a< sub>b< /sub>'
    """
    return re.sub(r"<(?=/?su[bp]>)", "< ", line)


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
    merged = explanation.merged(undirected)
    ends = merged.edge_index.t().tolist()
    return {
        (min(pair), max(pair)): score
        for pair, score in zip(ends, merged.edge_scores().tolist(), strict=True)
        if pair[0] != pair[1]
    }


def _atom_scores(explanation: Explanation) -> dict[int, float]:
    own = explanation.self_scores
    if own is None:
        return {}
    total = own if own.dim() == 1 else own.sum(dim=0)
    return {node: score for node, score in enumerate(total.tolist()) if score == score}  # NaN: it cannot be separated


def _legend(undirected: str, *, own: bool) -> str:
    return f"bonds: {undirected} of both directions" + ("; atoms: self scores" if own else "")


@dataclass(frozen=True)
class _Look:
    """One drawing, for either of RDKit's canvases."""

    compound: Any
    bonds: Mapping[tuple[int, int], float]
    atoms: Mapping[int, float]
    lines: tuple[str, ...]
    size: tuple[int, int]

    def svg(self) -> str:
        from rdkit.Chem.Draw import rdMolDraw2D

        canvas = rdMolDraw2D.MolDraw2DSVG(*self.size, self.size[0], self.size[1] - LEGEND_HEIGHT)
        return str(self._drawn_on(canvas))

    def png(self) -> bytes:
        from rdkit.Chem.Draw import rdMolDraw2D

        canvas = rdMolDraw2D.MolDraw2DCairo(*self.size, self.size[0], self.size[1] - LEGEND_HEIGHT)
        return bytes(self._drawn_on(canvas))

    @property
    def largest(self) -> float:
        return max((abs(score) for score in (*self.bonds.values(), *self.atoms.values())), default=0.0)

    def _colour(self, score: float) -> tuple[float, ...]:
        return tuple(1 - PALER * (1 - part / 255) for part in rgb(signed_colour(score, self.largest)))

    def _drawn_on(self, canvas: Any) -> Any:
        from rdkit.Chem.Draw import rdMolDraw2D

        compound = rdMolDraw2D.PrepareMolForDrawing(self.compound, kekulize=False, addChiralHs=False)
        options = canvas.drawOptions()
        options.useBWAtomPalette()
        options.fixedFontSize, options.padding, options.fixedBondLength = 15, 0.07, 60
        options.highlightBondWidthMultiplier = 11
        bonds = {compound.GetBondBetweenAtoms(*pair).GetIdx(): score for pair, score in self.bonds.items() if score}
        atoms = {atom: score for atom, score in self.atoms.items() if score}
        canvas.DrawMolecule(
            compound,
            highlightAtoms=list(atoms),
            highlightAtomColors={atom: self._colour(score) for atom, score in atoms.items()},
            highlightBonds=list(bonds),
            highlightBondColors={bond: self._colour(score) for bond, score in bonds.items()},
            highlightAtomRadii=dict.fromkeys(atoms, 0.32),
        )
        self._write_legend(canvas)
        canvas.FinishDrawing()
        return canvas.GetDrawingText()

    def _write_legend(self, canvas: Any) -> None:
        from rdkit.Geometry import Point2D

        top, middle = self.size[1] - LEGEND_HEIGHT + 6, self.size[0] / 2
        if self.largest > 0:
            self._draw_bar(canvas, top, middle - BAR_WIDTH / 2)
        canvas.SetColour((0.0, 0.0, 0.0))
        lines = self.lines if self.largest > 0 else (self.lines[0], "Every score is zero.")
        for number, line in enumerate(lines):
            canvas.DrawString(line, Point2D(middle, top + 34 + 22 * number), 0, True)

    def _draw_bar(self, canvas: Any, top: float, left: float) -> None:
        from rdkit.Geometry import Point2D

        step = BAR_WIDTH / BAR_STEPS
        canvas.SetFillPolys(True)
        for number in range(BAR_STEPS):
            share = (2 * number + 1) / BAR_STEPS - 1
            canvas.SetColour(self._colour(share * self.largest))
            start = left + number * step
            canvas.DrawRect(Point2D(start, top), Point2D(start + step, top + 14), True)
        canvas.SetColour((0.0, 0.0, 0.0))
        for text, x, align in (
            (f"opposes {-self.largest:.3g}", left - 14, 2),
            (f"{self.largest:+.3g} supports", left + BAR_WIDTH + 14, 1),
        ):
            canvas.DrawString(text, Point2D(x, top + 7), align, True)
