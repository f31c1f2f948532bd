// The state of the page, its controls, and the one function that shows a state.

const state = { target: 0, method: DATA.first, level: DATA.levels[0], layer: null, count: null, walk: -1, edge: -1 };

function options(select, names, values) {
  select.replaceChildren(...names.map((name, i) => make("option", name, { value: String(values ? values[i] : i) })));
}

function prepare() {
  element("heading").textContent = DATA.title;
  options(element("target"), DATA.targets.map((_, i) => targetOption(i)));
  element("target-field").hidden = DATA.targets.length === 1;
  options(element("method"), DATA.methods);
  element("method").value = String(state.method);
  const levels = { input: "input: one score per edge", layer: "layer: one per layer and edge" };
  options(element("level"), DATA.levels.map((level) => levels[level]), DATA.levels);
  const layers = Array.from({ length: DATA.layers }, (_, l) => l);
  options(element("layer"), ["sum over layers", ...layers.map((l) => `layer ${l}`)], ["", ...layers]);
  options(element("measure"), Object.values(MEASURES), Object.keys(MEASURES));
  options(element("scope"), ["this target", `all ${DATA.targets.length} targets (mean)`], ["one", "all"]);
  element("scope-field").hidden = DATA.targets.length === 1;
}

function targetOption(i) {
  const { title, target, value } = DATA.targets[i];
  return `${title}: ${IS_VALUE && DATA.classes.length === 1 ? plainNumber(value) : DATA.classes[target]}`;
}

function listen() {
  const on = (id, kind, change) => element(id).addEventListener(kind, (event) => { change(event.target.value); show(); });
  on("target", "change", (value) => Object.assign(state, { target: Number(value), walk: -1, edge: -1 }));
  on("method", "change", (value) => { state.method = Number(value); });
  on("level", "change", (value) => Object.assign(state, { level: value, layer: null }));
  on("layer", "change", (value) => { state.layer = value === "" ? null : Number(value); });
  on("count", "input", (value) => { state.count = Number(value); });
  on("measure", "change", () => {});
  on("scope", "change", () => {});
  element("previous").addEventListener("click", () => chooseWalk(state.walk - 1));
  element("next").addEventListener("click", () => chooseWalk(state.walk + 1));
  for (const button of document.getElementsByName("drawn-as")) button.addEventListener("change", show);
  element("expert").addEventListener("toggle", openExpert);
  darkScreen.addEventListener("change", show);
  for (const [kind, now] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(kind, () => { printing = now; if (darkScreen.matches) show(); });
  }
}

let isWaiting = false;

// Once for all that changed before the next frame.
function showSoon() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => { isWaiting = false; show(); });
}

function drawAgainWhenResized(name) {
  for (const side of ["inner_width", "inner_height"]) plots[name].properties[side].change.connect(showSoon);
}

// The unrolled figure is made when somebody wants to see it.
let opening = null;

async function openExpert() {
  opening ??= element("expert").open ? embedFigure("layers").then(() => drawAgainWhenResized("layers")) : null;
  await opening;
  show();
  if (plots.layers) document.body.dataset.layers = "ready";
}

function chooseWalk(rank) {
  Object.assign(state, { walk: rank, edge: -1 });
  show();
}

function chooseEdge(edge) {
  Object.assign(state, { edge, walk: -1 });
  show();
}

function show() {
  const t = readTarget(state.target);
  element("layer").disabled = state.level !== "layer";
  element("layer").value = state.layer === null ? "" : String(state.layer);
  const able = Math.max(1, Math.min(DATA.edges, DATA.layers * (t.column.length + t.ownNode.length)));
  element("count").max = String(able);
  const shown = { ...state, count: state.count === null ? null : Math.min(state.count, able) };
  showAnswer(t);
  element("picture").classList.toggle("nothing", t.column.length === 0 && t.place.length < 2);
  element("absent").textContent = DATA.absent.filter(([name, level]) => name === DATA.methods[state.method] && level === state.level)
    .map(([name, level, reason]) => `${name} has no scores at ${level} level: ${reason}`).join(" ");
  showFigures(t, shown);
  if (!element("expert").open) return; // what nobody sees need not be made
  showWalks(t, shown, chooseWalk);
  showFeatures(t);
  showAgreement(state.target, shown);
}

function showFigures(t, shown) {
  const asMolecule = t.molecule !== null && document.querySelector("[name=drawn-as]:checked").value === "molecule";
  element("drawn-as").hidden = t.molecule === null;
  element("molecule").hidden = !asMolecule;
  element("graph").hidden = asMolecule;
  const where = shown.level === "input" ? "" : shown.layer === null ? ", sum over layers" : `, layer ${shown.layer}`;
  element("graph-title").textContent = `${asMolecule ? "Molecule" : "Graph"}: ${DATA.methods[shown.method]}${where}`;
  const scene = drawGraph(t, shown);
  element("count").value = String(scene.edges.length);
  element("count-value").textContent = String(scene.edges.length);
  const molecule = drawMolecule(t, shown);
  if (asMolecule) showMoleculeLegend(molecule);
  else showLegend("graph-legend", t, scene.edges, [...scene.place.keys()], "");
  element("graph-key").hidden = asMolecule;
  element("graph-note").textContent = asMolecule
    ? `Bonds: the sum of both directions${molecule.ofAtoms > 0 ? "; atoms: their self scores" : ""}.`
    : sentence(scene.edges, t.totals[viewOf(shown)][shown.method], "edges");
  element("graph-hint").hidden = scene.edges.length === 0;
  element("tip").hidden = true;
  const about = [...(scene.marked.size ? ["a walk is highlighted"] : []), element("graph-note").textContent].join("; ");
  element("graph").setAttribute("aria-label", `${element("graph-title").textContent}: ${about}`);
  element("molecule").setAttribute("aria-label", `${t.title}. ${element("graph-note").textContent}`);
  showEdges(t, shown, scene, chooseEdge);
  if (plots.layers) showLayers(t, shown);
}

function showLayers(t, shown) {
  const layers = drawLayers(t, shown);
  element("layers-title").textContent = `Layer by layer${DATA.levels.includes("layer") ? `: ${DATA.methods[shown.method]}` : ""}`;
  const stays = layers.steps.some((one) => one.e < 0) ? "stays on the node (self score)" : "";
  showLegend("layers-legend", t, layers.steps, [...layers.row.keys()], stays);
  element("layers-note").textContent = DATA.levels.includes("layer")
    ? sentence(layers.steps, t.totals.steps[shown.method], "steps")
    : "The page was made without layer level: only walks are drawn.";
  element("layers").setAttribute("aria-label", `Layer by layer: ${element("layers-note").textContent}`);
}

prepare();
embedFigure("graph").then(() => {
  listen();
  drawAgainWhenResized("graph");
  show();
  document.body.dataset.ready = "yes";
});
