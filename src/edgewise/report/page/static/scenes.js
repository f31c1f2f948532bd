// What the two figures show: nodes with places, lines between them; not yet how large they are. Places come with the data.

function graphScene(t, state) {
  const edges = edgesOf(t, state);
  const walk = state.walk < 0 ? null : t.walks[state.walk];
  const wanted = new Set(edges.flatMap((one) => [one.receiver, one.source]));
  for (const node of [...(walk ? walk.nodes : []), ...(t.ends ?? [])]) wanted.add(node);
  if (state.edge >= 0) [t.receiver[state.edge], t.source[state.edge]].forEach((node) => wanted.add(node));
  const place = t.root === null ? new Map(t.place.map((spot, node) => [node, spot])) : placesOf(t, state, wanted);
  const drawn = new Set(edges.flatMap((one) => [`${one.source} ${one.receiver}`, `${one.receiver} ${one.source}`]));
  const lines = t.root === null ? t.context : waysOf(t, wanted);
  return {
    edges: edges.toReversed(), // the strongest on top
    place,
    context: lines.filter(([one, other]) => !drawn.has(`${one} ${other}`)),
    marked: new Set(walk ? walk.nodes : []),
    rest: restOf(edges, t.totals[viewOf(state)][state.method]),
  };
}

// The wanted nodes, the root, and those on the ways between, where the layout of this view has them; else where all nodes stand.
function placesOf(t, state, wanted) {
  const view = t.views[viewOf(state)]?.[state.method];
  const nodes = new Set([t.root, ...wanted, ...waysOf(t, wanted).map(([node]) => node)]);
  return new Map([...nodes].map((node) => [node, view?.get(node) ?? t.place[node]]));
}

// The part of the tree of ways that the wanted nodes need.
function waysOf(t, wanted) {
  const parent = new Map(t.ways);
  const needed = new Set();
  for (let node of wanted) {
    while (node !== t.root && parent.has(node) && !needed.has(node)) {
      needed.add(node);
      node = parent.get(node);
    }
  }
  return t.ways.filter(([node]) => needed.has(node));
}

// Spots are `[column, node]`, under the key `column node`.
function layersScene(t, state) {
  const steps = DATA.levels.includes("layer") ? stepsOf(t, state) : [];
  const walk = state.walk < 0 ? null : t.walks[state.walk];
  const routes = t.walks.map((one, rank) => ({ ...one, rank })).filter((one) => one === walk || one.rank === state.walk
    || (steps.length === 0 && state.walk < 0));
  const spots = new Map();
  const visit = (column, node) => spots.set(`${column} ${node}`, [column, node]);
  for (const node of explainedNodes(t)) visit(DATA.layers, node);
  for (const one of steps) { visit(one.layer, one.source); visit(one.layer + 1, one.receiver); }
  for (const route of routes) route.nodes.forEach((node, column) => visit(column, node));
  const used = new Set([...spots.values()].map(([, node]) => node));
  const row = new Map([...t.rows].filter((node) => used.has(node)).map((node, i) => [node, -i]));
  const place = new Map([...spots].map(([key, [column, node]]) => [key, [column, row.get(node)]]));
  const marked = new Set(walk ? walk.nodes.map((node, column) => `${column} ${node}`) : []);
  return { steps: steps.toReversed(), place, spots, row, routes, marked };
}

// The explained node, or both ends of an explained link.
const explainedNodes = (t) => t.ends ?? (DATA.task === "node" ? [t.root] : []);

// Numbers under every method, as the figures' tooltips read them, and lines about features below.
function numbersOf(title, number, more) {
  const texts = { edge: title, more };
  DATA.methods.forEach((name, m) => { texts[`n${m}`] = name; texts[`m${m}`] = signed(number(m)); });
  return texts;
}

function aboutEdge(t, state, one, level, layer) {
  const where = level === "input" ? "" : layer === null ? " (sum over layers)" : ` (layer ${layer})`;
  const parallel = Array.from(t.column).filter((_, e) => t.source[e] === one.source && t.receiver[e] === one.receiver
    && (!t.kind || t.kind[e] === t.kind[one.e]));
  const which = parallel.length > 1 ? ` [edge ${t.column[one.e]}]` : "";
  return numbersOf(edgeName(t, one) + which + where, (m) => edgeScore(t, level, m, layer, one.e), attributeLines(t, one.e));
}

function aboutNode(t, level, layer, node) {
  const s = t.ownNode.indexOf(node);
  const where = level === "input" ? "" : layer === null ? " (sum over layers)" : ` (layer ${layer})`;
  return numbersOf(`${nodeName(t, node)} to itself${where}`, (m) => (s < 0 ? NaN : ownScore(t, level, m, layer, s)),
    featureLines(t, node));
}
