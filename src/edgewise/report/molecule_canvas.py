"""RDKit's part of a molecule's picture: highlighted bonds and atoms, and a legend drawn with the same pen.

`MoleculeCanvas` draws one explanation. `molecule_svg` draws a molecule whose colours the page decides: every bond and atom is
highlighted, in a colour that is a variable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.report.appearance import rgb, signed_colour

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE_SIZE = (620, 430)  # of a molecule on a page, in pixels
_BOND, _ATOM = 0xFE, 0xFD  # first bytes of colours that stand for numbers; no drawing has them
PALER = 0.62  # of the full colours: bonds and letters are read on top of them
LEGEND_HEIGHT, BAR_WIDTH, BAR_STEPS = 84, 200, 40  # in pixels; steps of colour


def plain_line(line: str) -> str:
    """A line without RDKit's own markup for subscripts and superscripts.

    >>> plain_line("a<sub>b</sub>")
    'a< sub>b< /sub>'
    """
    return re.sub(r"<(?=/?su[bp]>)", "< ", line)


def draw_highlighted(
    canvas: Any, compound: Any, bonds: Mapping[int, tuple[float, ...]], atoms: Mapping[int, tuple[float, ...]]
) -> None:
    """Put a molecule on one of RDKit's canvases, with colours (red, green, blue from 0 to 1) under bonds and atoms."""
    from rdkit.Chem.Draw import rdMolDraw2D

    prepared = rdMolDraw2D.PrepareMolForDrawing(compound, kekulize=False, addChiralHs=False)
    options = canvas.drawOptions()
    options.useBWAtomPalette()
    options.fixedFontSize, options.padding, options.fixedBondLength = 15, 0.07, 60
    options.highlightBondWidthMultiplier = 11
    canvas.DrawMolecule(
        prepared,
        highlightAtoms=list(atoms),
        highlightAtomColors=dict(atoms),
        highlightBonds=list(bonds),
        highlightBondColors=dict(bonds),
        highlightAtomRadii=dict.fromkeys(atoms, 0.32),
    )


@dataclass(frozen=True)
class MoleculeCanvas:
    """One drawing of a molecule with scores and a legend, for either of RDKit's canvases."""

    compound: Any
    """An RDKit molecule."""
    bonds: Mapping[tuple[int, int], float]
    """(atom, atom) → score."""
    atoms: Mapping[int, float]
    """Atom → self score."""
    lines: tuple[str, ...]
    """Below the scale: a title, and what the colours are."""
    size: tuple[int, int]
    """Width and height in pixels, the legend included."""

    def svg(self) -> str:
        """The drawing as SVG."""
        from rdkit.Chem.Draw import rdMolDraw2D

        canvas = rdMolDraw2D.MolDraw2DSVG(*self.size, self.size[0], self.size[1] - LEGEND_HEIGHT)
        return str(self._drawn_on(canvas))

    def png(self) -> bytes:
        """The drawing as the bytes of a PNG file."""
        from rdkit.Chem.Draw import rdMolDraw2D

        canvas = rdMolDraw2D.MolDraw2DCairo(*self.size, self.size[0], self.size[1] - LEGEND_HEIGHT)
        return bytes(self._drawn_on(canvas))

    @property
    def largest(self) -> float:
        """The magnitude at the ends of the colours of bonds; of atoms, if no bond has a score."""
        return max(map(abs, self.bonds.values()), default=0.0) or self.largest_atom

    @property
    def largest_atom(self) -> float:
        """The magnitude at the ends of the colours of atoms: a scale of their own, or they would drown the bonds."""
        return max(map(abs, self.atoms.values()), default=0.0)

    def colour(self, score: float) -> tuple[float, ...]:
        """The paler colour of a bond's score: red, green and blue from 0 to 1."""
        return _paler(score, self.largest)

    def _drawn_on(self, canvas: Any) -> Any:
        """Draw molecule and legend; what the canvas then holds, text or bytes. Zero scores get no colour."""
        bonds = {
            self.compound.GetBondBetweenAtoms(*pair).GetIdx(): score for pair, score in self.bonds.items() if score
        }
        atoms = {atom: score for atom, score in self.atoms.items() if score}
        draw_highlighted(
            canvas,
            self.compound,
            {bond: self.colour(score) for bond, score in bonds.items()},
            {atom: _paler(score, self.largest_atom) for atom, score in atoms.items()},
        )
        self._write_legend(canvas)
        canvas.FinishDrawing()
        return canvas.GetDrawingText()

    def _write_legend(self, canvas: Any) -> None:
        """Draw the scale and the lines below the molecule."""
        from rdkit.Geometry import Point2D

        top, middle = self.size[1] - LEGEND_HEIGHT + 6, self.size[0] / 2
        if self.largest > 0:
            self._draw_bar(canvas, top, middle - BAR_WIDTH / 2)
        canvas.SetColour((0.0, 0.0, 0.0))
        lines = self.lines if self.largest > 0 else (self.lines[0], "Every score is zero.")
        for number, line in enumerate(lines):
            canvas.DrawString(plain_line(line), Point2D(middle, top + 34 + 22 * number), 0, True)

    def _draw_bar(self, canvas: Any, top: float, left: float) -> None:
        """Draw the colour scale as a row of rectangles, with its ends in numbers."""
        from rdkit.Geometry import Point2D

        step = BAR_WIDTH / BAR_STEPS
        canvas.SetFillPolys(True)
        for number in range(BAR_STEPS):
            share = (2 * number + 1) / BAR_STEPS - 1
            canvas.SetColour(self.colour(share * self.largest))
            start = left + number * step
            canvas.DrawRect(Point2D(start, top), Point2D(start + step, top + 14), True)
        canvas.SetColour((0.0, 0.0, 0.0))
        for text, x, align in (
            (f"opposes {-self.largest:.3g}", left - 14, 2),
            (f"{self.largest:+.3g} supports", left + BAR_WIDTH + 14, 1),
        ):
            canvas.DrawString(text, Point2D(x, top + 7), align, True)


def _paler(score: float, largest: float) -> tuple[float, ...]:
    """A colour that letters can be read on: red, green and blue from 0 to 1."""
    return tuple(1 - PALER * (1 - part / 255) for part in rgb(signed_colour(score, largest)))


def molecule_svg(compound: Any) -> str:
    """The drawing as SVG: bond 3 has the colour `var(--b3)`, atom 5 `var(--a5)`, white until the page sets them.

    RDKit takes only colours, so every bond and atom first gets a colour that encodes its number, `#FE0003` for bond 3; those
    colours are then replaced by variables.
    """
    from rdkit.Chem.Draw import rdMolDraw2D

    canvas = rdMolDraw2D.MolDraw2DSVG(*PAGE_SIZE)
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
