// Plain HTML: tables of edges and walks. Texts go in as text, never as markup.

const unbroken = (attributes) => attributes.replaceAll(" = ", "\u00a0=\u00a0"); // a line never ends at the sign
const element = (id) => document.getElementById(id);

function make(tag, text, attributes = {}, children = []) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A table whose rows can be chosen, by mouse or keyboard.
function choices(table, heads, rows, chosen, choose) {
  const body = rows.map((cells, i) => {
    const row = make("tr", null, { tabindex: i === Math.max(chosen, 0) ? "0" : "-1", "aria-selected": String(i === chosen) },
      cells.map((cell) => (cell instanceof Node ? cell : make("td", cell))));
    row.addEventListener("click", () => choose(i === chosen ? -1 : i));
    row.addEventListener("keydown", (event) => onKey(event, row, () => choose(i === chosen ? -1 : i)));
    return row;
  });
  const head = make("thead", null, {}, [make("tr", null, {}, heads.map((name) =>
    (name instanceof Node ? name : make("th", name, { scope: "col" }))))]);
  const hadFocus = table.contains(document.activeElement);
  table.replaceChildren(...(rows.length ? [head, make("tbody", null, {}, body)] : []));
  if (hadFocus && body.length) body[Math.max(chosen, 0)].focus();
}

function onKey(event, row, choose) {
  const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
  if (next) next.focus();
  else if (event.key === "Enter" || event.key === " ") choose();
  else return;
  event.preventDefault();
}

// The edges of the picture, with their attributes; a bar says how strong each is beside the strongest.
function showEdges(t, state, scene, choose) {
  const edges = scene.edges.toReversed();
  const largest = largestOf(edges);
  const heads = ["", "Edge", make("th", DATA.methods[state.method], { scope: "col", class: "number" })];
  const rows = edges.map((one, i) => [String(i + 1),
    make("td", edgeName(t, one), { class: "text" }, aboutCell(t, one.e)),
    make("td", null, { class: "number" }, [barOf(one.score, largest), make("span", signed(one.score), { class: "figures" })])]);
  const chosen = edges.findIndex((one) => one.e === state.edge);
  choices(element("edges-table"), heads, rows, chosen, (i) => choose(i < 0 ? -1 : edges[i].e));
  element("edges-meaning").textContent = edges.length ? meaningOf(state) : "";
  const { count, sum } = scene.rest;
  element("edges-rest").textContent = count > 0
    ? `${counted(count)} more edge${count === 1 ? "" : "s"}, ${signed(sum, 3)} together.` : "";
  if (element("expert").open) showNumbers(t, state, edges);
}

// What a number in the table says, in words.
function meaningOf(state) {
  const what = IS_VALUE ? "the value" : `the model's score for “${DATA.classes[readTarget(state.target).target]}”`;
  return DATA.methods[state.method] === "occlusion" && state.level === "input" && (IS_VALUE || DATA.of === "logit")
    ? `The number says how far ${what} falls without the edge.`
    : IS_VALUE ? "Above zero an edge raises the value, below zero it lowers it." : "Above zero an edge supports the answer, below zero it opposes it.";
}

const aboutCell = (t, e) => (t.attributes?.[e]?.length ? [make("small", unbroken(t.attributes[e].join(", ")))] : []);

function barOf(score, largest) {
  return make("i", null, { class: "strength", "aria-hidden": "true",
    style: { width: `${Math.max(2, Math.round((46 * Math.abs(score)) / largest))}px`, background: score > 0 ? looks().supports : looks().opposes } });
}

// The same edges under every method.
function showNumbers(t, state, edges) {
  const kind = (m) => ({ class: m === state.method ? "number current" : "number" });
  const head = make("tr", null, {}, [make("th", "Edge", { scope: "col" }),
    ...DATA.methods.map((name, m) => make("th", name.replaceAll("_", " "), { scope: "col", ...kind(m) }))]);
  const rows = edges.map((one) => make("tr", null, {}, [make("th", edgeName(t, one), { scope: "row" }),
    ...DATA.methods.map((_, m) => make("td", signed(edgeScore(t, state.level, m, state.layer, one.e)), kind(m)))]));
  element("numbers-table").replaceChildren(...(rows.length
    ? [make("thead", null, {}, [head]), make("tbody", null, {}, rows)] : []));
}

function showWalks(t, state, choose) {
  const rows = t.walks.map((walk, rank) => [
    make("td", null, {}, [make("i", null, { class: "swatch", style: { borderColor: walkColour(rank) } }), String(rank + 1)]),
    make("td", signed(walk.score), { class: "number" }), walkName(t, walk)]);
  choices(element("walks-table"), ["Walk", make("th", "Relevance", { scope: "col", class: "number" }), "From features to output"],
    rows, state.walk, choose);
  element("walks-note").textContent = walksNote(t);
  const walk = state.walk < 0 ? null : t.walks[state.walk];
  element("walk").textContent = walk ? `Walk ${state.walk + 1} of ${t.walks.length}: ${walkName(t, walk)}, ${signed(walk.score)}`
    : t.walks.length ? `Step through ${t.walks.length === 1 ? "the walk" : `${t.walks.length} walks`}` : "no walks";
  element("previous").disabled = state.walk < 0;
  element("next").disabled = state.walk >= t.walks.length - 1;
}

function walksNote(t) {
  if (DATA.noWalks) return DATA.noWalks;
  if (!t.walks.length) return IS_VALUE ? "No walk raises the value." : "No walk supports the explained class.";
  const proof = t.certain ? "Proven to be the best." : `Not proven: another walk may reach ${signed(t.bound)}.`;
  return `${proof} The relevance of a walk is what its source's features contribute to the explained number along it.`;
}
