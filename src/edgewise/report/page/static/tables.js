// Plain HTML: prediction, legends, tables of edges and walks. Texts go in as text, never as markup.

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

function showEdges(t, state, scene, choose) {
  const edges = scene.edges.toReversed();
  const heads = ["", "Edge", ...DATA.methods.map((name, m) =>
    make("th", name, { scope: "col", class: m === state.method ? "number current" : "number" }))];
  const rows = edges.map((one, i) => [String(i + 1), edgeName(t, one), ...DATA.methods.map((_, m) =>
    make("td", signed(edgeScore(t, state.level, m, state.layer, one.e)),
      { class: m === state.method ? "number current" : "number" }))]);
  const chosen = edges.findIndex((one) => one.e === state.edge);
  choices(element("edges-table"), heads, rows, chosen, (i) => choose(i < 0 ? -1 : edges[i].e));
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
  if (!t.walks.length) return "No walk supports the explained class.";
  const proof = t.certain ? "Proven to be the best." : `Not proven: another walk may reach ${signed(t.bound)}.`;
  return `${proof} The relevance of a walk is what its source's features contribute to the explained number along it.`;
}

function showPrediction(t) {
  const explained = DATA.classes[t.target];
  const chances = t.chances;
  const order = DATA.classes.map((_, c) => c).sort((a, b) => t.logits[b] - t.logits[a]);
  const shown = order.filter((c, rank) => rank < 4 || c === t.target);
  const parts = shown.map((c) => make("span", null, { class: c === t.target ? "class explained" : "class" }, [
    make("span", DATA.classes[c]),
    ...(chances ? [make("span", null, { class: "bar" }, [make("i", null, { style: { width: `${100 * chances[c]}%` } })])] : []),
    make("span", chances ? `${(100 * chances[c]).toFixed(1)}%` : signed(t.logits[c])),
  ]));
  const rest = order.filter((c) => !shown.includes(c));
  const together = chances ? ` (${(100 * rest.reduce((sum, c) => sum + chances[c], 0)).toFixed(1)}% together)` : "";
  if (rest.length) parts.push(make("span", `and ${rest.length} more${together}`, { class: "class" }));
  element("prediction").replaceChildren(make("strong", "Prediction"), ...parts);
  const number = { logit: "logit", log_prob: "log-probability", prob: "probability" }[DATA.of];
  const what = DATA.mode === "regression" ? explained : `the ${number} of “${explained}”`;
  const said = DATA.mode === "regression" ? "" : `predicted “${DATA.classes[order[0]]}”; `;
  element("question").textContent = `${targetName(t)}: ${said}this page explains ${what}, ${signed(t.value)}.`;
}

function targetName(t) {
  if (t.ends) return `link ${nodeName(t, t.ends[0])} – ${nodeName(t, t.ends[1])}`;
  if (t.name) return t.name;
  const named = t.root !== null && DATA.task === "node" ? nodeName(t, t.root) : String(t.index);
  return `${DATA.task} ${named === String(t.index) || named.startsWith(`${t.index} `) ? named : `${t.index} (${named})`}`;
}

// A short grey line with the dashes of an edge type.
function lineSample(dash) {
  const stops = [];
  let at = 0;
  (dash.length ? dash : [1, 0]).forEach((part, i) => {
    const colour = i % 2 ? "transparent" : "#555555";
    stops.push(`${colour} ${at}px`, `${colour} ${at += 2 * part}px`);
  });
  return make("i", null, { class: "line", style: { background: `repeating-linear-gradient(90deg, ${stops.join(", ")})` } });
}

function showLegend(id, t, shown, nodes, extra) {
  const largest = largestOf(shown);
  const parts = [];
  if (shown.length) {
    const stops = Array.from({ length: 21 }, (_, i) => signedColour(i / 10 - 1, 1));
    parts.push(make("span", null, {}, [`opposes ${signed(-largest, 3)}`, make("i", null,
      { class: "scale", style: { background: `linear-gradient(90deg, ${stops.join(", ")})` } }), `${signed(largest, 3)} supports`]));
  }
  if (explainedNodes(t).length) {
    const style = { background: t.rootFill };
    parts.push(make("span", null, {}, [make("i", null, { class: "square", style }), t.ends ? "ends of the link" : "explained node"]));
  }
  if (t.ends && id === "graph-legend") parts.push(make("span", null, {}, [make("i", null, { class: "dashes" }), "the pair"]));
  const used = new Set(nodes.map((node) => t.fill[node]));
  for (const [name, colour] of t.groups.filter((group) => used.has(group[1]))) {
    parts.push(make("span", null, {}, [make("i", null, { class: "dot", style: { background: colour } }), name]));
  }
  const kinds = new Set(shown.map((one) => kindOf(t, one)));
  for (const kind of DATA.kinds.filter((one) => kinds.has(one))) {
    parts.push(make("span", null, {}, [lineSample(kind.dash), kind.name]));
  }
  if (extra) parts.push(make("span", null, {}, [make("i", null, { class: "dashes" }), extra]));
  element(id).replaceChildren(...parts);
}
