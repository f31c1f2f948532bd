// The molecule: RDKit's drawing, whose colours are variables; bonds have the sum of both directions, atoms their self scores.

const PALER = 0.62; // of the full colours: bonds and letters are read on top of them

function bondScores(t, state, method) {
  return t.molecule.bonds.map(([one, other]) => {
    const there = bondEdges(t, one, other).map((e) => edgeScore(t, state.level, method, state.layer, e));
    const back = bondEdges(t, other, one).map((e) => edgeScore(t, state.level, method, state.layer, e));
    const sum = (scores) => scores.reduce((total, score) => total + score, 0);
    return { there: sum(there), back: sum(back), both: sum(there) + sum(back) };
  });
}

function bondEdges(t, source, receiver) {
  return Array.from(t.column.keys()).filter((e) => t.source[e] === source && t.receiver[e] === receiver);
}

function atomScores(t, state, method) {
  return t.molecule.atoms.map((node) => {
    const s = t.ownNode.indexOf(node);
    return s < 0 ? 0 : ownScore(t, state.level, method, state.layer, s);
  });
}

function drawMolecule(t, state) {
  const box = element("molecule");
  if (!t.molecule) return null;
  if (box.dataset.of !== String(state.target)) {
    const parsed = new DOMParser().parseFromString(t.molecule.svg, "image/svg+xml");
    box.replaceChildren(document.importNode(parsed.documentElement, true));
    box.dataset.of = String(state.target);
  }
  const bonds = bondScores(t, state, state.method).map((bond) => bond.both || 0);
  const atoms = atomScores(t, state, state.method).map((score) => score || 0);
  const largest = Math.max(...bonds.map(Math.abs), 0);
  const ofAtoms = Math.max(...atoms.map(Math.abs), 0); // a scale of their own: they would drown the bonds
  bonds.forEach((score, b) => box.style.setProperty(`--b${b}`, signedColour(score, largest, PALER, LIGHT)));
  atoms.forEach((score, a) => box.style.setProperty(`--a${a}`, signedColour(score, ofAtoms, 0.8 * PALER, LIGHT)));
  markMolecule(t, state, box);
  box.onmousemove = (event) => showTip(t, state, event);
  box.onmouseleave = () => { element("tip").hidden = true; };
  return { largest, ofAtoms };
}

// An outline around the bonds (and atoms) of the chosen edge or walk.
function markMolecule(t, state, box) {
  const nodes = state.walk >= 0 ? t.walks[state.walk].nodes : state.edge >= 0 ? [t.source[state.edge], t.receiver[state.edge]] : [];
  const colour = state.walk >= 0 ? walkColour(state.walk) : DATA.colours.target;
  const steps = nodes.slice(1).map((node, i) => [nodes[i], node]);
  const mark = (shape, isMarked) => {
    if (shape) Object.assign(shape.style, { stroke: isMarked ? colour : "none", strokeWidth: isMarked ? "5px" : "0" });
  };
  t.molecule.bonds.forEach(([one, other], b) => mark(box.querySelector(`path.bond-${b}`),
    steps.some(([p, q]) => (p === one && q === other) || (p === other && q === one))));
  t.molecule.atoms.forEach((node, a) => mark(box.querySelector(`ellipse.atom-${a}`), state.walk >= 0 && nodes.includes(node)));
}

// The numbers of the bond or atom under the pointer, under every method.
function showTip(t, state, event) {
  const names = event.target.getAttribute("class") ?? "";
  const bond = names.match(/\bbond-(\d+)/);
  const atom = names.match(/\batom-(\d+)/);
  const tip = element("tip");
  tip.hidden = !bond && !atom;
  if (tip.hidden) return;
  tip.replaceChildren(bond ? bondTable(t, state, Number(bond[1])) : atomTable(t, state, Number(atom[1])));
  tip.style.left = `${event.clientX + 14}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function tipTable(heads, rows) {
  const row = (tag, cells) => make("tr", null, {}, cells.map((cell, i) => make(tag, cell, i ? { class: "number" } : {})));
  return make("table", null, {}, [row("th", heads), ...rows.map((cells) => row("td", cells))]);
}

function bondTable(t, state, bond) {
  const [one, other] = t.molecule.bonds[bond].map((node) => nodeName(t, node));
  return tipTable([`${one} – ${other}`, `${one} → ${other}`, `${other} → ${one}`, "sum"], DATA.methods.map((name, m) => {
    const { there, back, both } = bondScores(t, state, m)[bond];
    return [name, signed(there), signed(back), signed(both)];
  }));
}

function atomTable(t, state, atom) {
  const title = `${nodeName(t, t.molecule.atoms[atom])} to itself`;
  return tipTable([title, ""], DATA.methods.map((name, m) => [name, signed(atomScores(t, state, m)[atom])]));
}
