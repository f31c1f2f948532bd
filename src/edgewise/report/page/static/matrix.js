// How alike the methods are.

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
  const head = make("tr", null, {}, [make("td", ""), ...DATA.methods.map((name) => make("th", name.replaceAll("_", " "), { scope: "col" }))]);
  const rows = DATA.methods.map((name, a) => make("tr", null, {}, [make("th", name.replaceAll("_", " "), { scope: "row" }),
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
  const strong = Math.abs(value) > 0.55;
  return make("td", value.toFixed(2).replace("-", "−"), { style: { background: signedScale || value >= 0 ? colour : looks().paper,
    color: strong ? looks().paper : looks().ink } });
}
