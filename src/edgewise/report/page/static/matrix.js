// How alike the methods are, and the molecule.

const MEASURES = { cosine: "cosine of the scores", spearman: "rank correlation (Spearman)", overlap: "overlap of the 10 strongest",
  sign: "share of edges with the same sign" };

function showAgreement(position, state) {
  const measure = element("measure").value;
  const found = DATA.agreement.find((one) => one.level === state.level && one.layer === state.layer && one.measure === measure);
  element("agreement").hidden = DATA.agreement.length === 0;
  if (!found) return;
  const size = DATA.methods.length;
  const all = element("scope").value === "all";
  const each = floats(found.each);
  const value = (a, b) => (all ? found.mean[a][b] : each[(position * size + a) * size + b]);
  const signedScale = measure === "cosine" || measure === "spearman";
  const head = make("tr", null, {}, [make("td", ""), ...DATA.methods.map((name) => make("th", name, { scope: "col" }))]);
  const rows = DATA.methods.map((name, a) => make("tr", null, {}, [make("th", name, { scope: "row" }),
    ...DATA.methods.map((_, b) => cell(value(a, b), signedScale))]));
  element("matrix").replaceChildren(make("thead", null, {}, [head]), make("tbody", null, {}, rows));
  const where = state.level === "input" ? "input level" : state.layer === null ? "layer level, all layers" : `layer ${state.layer}`;
  const over = all && DATA.targets.length > 1 ? `mean over ${DATA.targets.length} targets` : "this target";
  element("matrix-note").textContent = `The ${MEASURES[measure]}, ${where}, ${over}; only edges that can matter to a target `
    + "count. Hatched: undefined, for example where all scores are zero.";
}

function cell(value, signedScale) {
  if (value === null || Number.isNaN(value)) return make("td", "–", { class: "undefined" });
  const colour = signedColour(Math.sign(value) * value * value, 1);
  const dark = Math.abs(value) > 0.55;
  return make("td", value.toFixed(2).replace("-", "−"), { style: { background: signedScale || value >= 0 ? colour : "#fff",
    color: dark ? "#fff" : "#000" } });
}

// Bonds have the sum of both directions, atoms their self scores; the colours are variables of the drawing.
function drawMolecule(t, state) {
  const box = element("molecule");
  if (!t.molecule) return;
  if (box.dataset.of !== String(t.index)) {
    const parsed = new DOMParser().parseFromString(t.molecule.svg, "image/svg+xml");
    box.replaceChildren(document.importNode(parsed.documentElement, true));
    box.dataset.of = String(t.index);
  }
  const bondKey = (one, other) => `${Math.min(one, other)} ${Math.max(one, other)}`;
  const bonds = new Map(t.molecule.bonds.map(([one, other]) => [bondKey(one, other), 0]));
  t.column.forEach((_, e) => {
    const key = bondKey(t.source[e], t.receiver[e]);
    if (bonds.has(key)) bonds.set(key, bonds.get(key) + (edgeScore(t, state.level, state.method, state.layer, e) || 0));
  });
  const atoms = t.molecule.atoms.map((node) => {
    const s = t.ownNode.indexOf(node);
    return s < 0 ? 0 : ownScore(t, state.level, state.method, state.layer, s) || 0;
  });
  const largest = Math.max(...[...bonds.values(), ...atoms].map(Math.abs), 0);
  [...bonds.values()].forEach((score, b) => box.style.setProperty(`--b${b}`, signedColour(score, largest, 0.62)));
  atoms.forEach((score, a) => box.style.setProperty(`--a${a}`, signedColour(score, largest, 0.62)));
  return { largest, hasAtoms: atoms.some((score) => score !== 0) };
}
