// What colours and lines mean, below each figure.

// A short grey line with the dashes of an edge type.
function lineSample(dash) {
  const stops = [];
  let at = 0;
  (dash.length ? dash : [1, 0]).forEach((part, i) => {
    const colour = i % 2 ? "transparent" : "#808080";
    stops.push(`${colour} ${at}px`, `${colour} ${at += 2 * part}px`);
  });
  return make("i", null, { class: "line", style: { background: `repeating-linear-gradient(90deg, ${stops.join(", ")})` } });
}

const dot = (colour) => make("i", null, { class: "dot", style: { background: colour } });
// An edge type: its line between the colours of its two ends.
const kindSample = (kind) => make("span", null, {}, [dot(kind.ends[0]), lineSample(kind.dash), dot(kind.ends[1]), kind.name]);

function scaleSample(largest, theme, full = 1) {
  const stops = Array.from({ length: 41 }, (_, i) => signedColour(i / 20 - 1, 1, full, theme));
  return make("span", null, {}, [`${SIGNS.minus} ${signed(-largest, 3)}`, make("i", null,
    { class: "scale", style: { background: `linear-gradient(90deg, ${stops.join(", ")})` } }), `${signed(largest, 3)} ${SIGNS.plus}`]);
}

const NOT_LINEAR = "not linear: colours follow the square root, widths the score";

function showLegend(id, t, shown, nodes, extra) {
  const parts = [];
  if (shown.length) parts.push(scaleSample(largestOf(shown), looks()), make("span", NOT_LINEAR, { class: "aside" }));
  if (explainedNodes(t).length) {
    const style = { background: t.rootFill };
    parts.push(make("span", null, {}, [make("i", null, { class: "square", style }), t.ends ? "ends of the link" : "explained node"]));
  }
  if (t.ends && id === "graph-legend") parts.push(make("span", null, {}, [make("i", null, { class: "dashes" }), "the pair"]));
  const used = new Set(nodes.map((node) => t.fill[node]));
  for (const [name, colour] of t.groups.filter((group) => used.has(group[1]))) parts.push(make("span", null, {}, [dot(colour), name]));
  const kinds = new Set(shown.map((one) => kindOf(t, one)));
  parts.push(...DATA.kinds.filter((one) => kinds.has(one)).map(kindSample));
  if (extra) parts.push(make("span", null, {}, [make("i", null, { class: "dashes" }), extra]));
  element(id).replaceChildren(...parts);
}

function showMoleculeLegend(molecule) {
  const parts = [];
  if (molecule.largest > 0) parts.push(make("span", "bonds:"), scaleSample(molecule.largest, LIGHT, PALER));
  if (molecule.ofAtoms > 0) parts.push(make("span", "atoms, on a scale of their own:"), scaleSample(molecule.ofAtoms, LIGHT, 0.8 * PALER));
  if (parts.length) parts.push(make("span", "not linear: colours follow the square root", { class: "aside" }));
  element("graph-legend").replaceChildren(...parts);
}
