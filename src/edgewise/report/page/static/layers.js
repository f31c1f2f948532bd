// The unrolled figure, and what both figures share: nodes and texts.

function drawLayers(t, state) {
  const scene = layersScene(t, state);
  const rows = scene.row.size;
  const longest = t.outside ? Math.max(0, ...[...scene.row.keys()].map((n) => (t.outside[n] ?? "").length)) : 0;
  const labels = Math.min(7 * longest, 190, plots.layers.inner_width / 3);
  const box = [0, DATA.layers, -Math.max(rows - 1, 0.5), rows > 1 ? 0 : 0.5];
  const scale = fit("layers", box, { left: 24 + labels, right: 30, top: 46, bottom: 18 }, false);
  const [across, up] = scale;
  const radius = Math.max(2.5, Math.min(12, 0.44 * up, 0.12 * across));
  const largest = largestOf(scene.steps);
  const thinner = crowding(scene.steps.map((one) => `${one.layer} ${one.receiver}`));
  const place = (column, node) => scene.place.get(`${column} ${node}`);
  const drawn = scene.steps.map((one) => {
    const [p, q] = [place(one.layer, one.source), place(one.layer + 1, one.receiver)];
    const faded = state.walk >= 0 || (state.edge >= 0 && one.e !== state.edge)
      || (state.level === "layer" && state.layer !== null && one.layer !== state.layer);
    const about = one.e < 0 ? aboutNode(t, "layer", one.layer, one.source) : aboutEdge(t, state, one, "layer", one.layer);
    const room = (radius + 1) / across;
    const stroke = strokeOf(t, one, largest, thinner, faded);
    const stays = one.e < 0 ? { dash: [5, 3], outline: 0 } : {};
    return { ...arrow([p[0] + room, p[1]], [q[0] - room, q[1]], headLength(stroke.width), scale), ...stroke, ...stays, ...about };
  });
  fill("layers", "bands", Array.from({ length: DATA.layers + 1 }, (_, x) => ({
    x, y: (box[2] + box[3]) / 2, width: 34 / across, height: box[3] - box[2] + 34 / up,
  })));
  fill("layers", "context", []);
  fill("layers", "halo", scene.steps.filter((one) => state.edge >= 0 && one.e === state.edge).map((one) => {
    const [p, q] = [place(one.layer, one.source), place(one.layer + 1, one.receiver)];
    return { xs: [p[0], q[0]], ys: [p[1], q[1]], color: DATA.colours.target, width: 13, alpha: 1, dash: "solid" };
  }));
  fill("layers", "edges", drawn);
  fill("layers", "heads", drawn.map((one) => ({ ...one, xs: one.headXs, ys: one.headYs })));
  fill("layers", "routes", scene.routes.map((route) => {
    const lines = route.nodes.slice(1).map((node, l) => smoothLine(place(l, route.nodes[l]), place(l + 1, node)));
    return { xs: lines.flatMap((line) => line.xs), ys: lines.flatMap((line) => line.ys), color: walkColour(route.rank),
      width: state.walk < 0 ? 3 : 8, alpha: state.walk < 0 ? 0.8 : 0.6, dash: route.score < 0 ? [9, 4] : "solid" };
  }));
  putNodes("layers", t, state, [...scene.spots].map(([key, [column, node]]) => ({
    node, key, spot: scene.place.get(key), isRoot: column === DATA.layers && explainedNodes(t).includes(node),
    marked: scene.marked.has(key), about: aboutNode(t, "layer", Math.min(column, DATA.layers - 1), node),
  })), radius, scale, columnTexts(t, scene, box, scale));
  return scene;
}

// A straight line and the triangle at its end; `size` in pixels.
function arrow(start, tip, size, [across, up]) {
  const [dx, dy] = [(tip[0] - start[0]) * across, (tip[1] - start[1]) * up];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const corner = (back, aside) => [tip[0] + (-ux * back - uy * aside) / across, tip[1] + (-uy * back + ux * aside) / up];
  const corners = [corner(size, 0.45 * size), tip, corner(size, -0.45 * size)];
  const base = corner(size - 1, 0);
  return { xs: [start[0], base[0]], ys: [start[1], base[1]], headXs: corners.map((p) => p[0]), headYs: corners.map((p) => p[1]) };
}

function columnTexts(t, scene, box, [across, up]) {
  const text = (x, y, words, look) => ({ x, y, text: words, size: "13px", color: looks().soft, back: null, align: "center",
    baseline: "bottom", ...look });
  const top = box[3] + 22 / up;
  const heads = [text(0, top, "features", { align: "left", x: -17 / across }),
    text(DATA.layers, top, "output", { align: "right", x: DATA.layers + 17 / across })];
  for (let l = 0; l < DATA.layers; l += 1) heads.push(text(l + 0.5, top, `layer ${l} →`));
  const names = [...scene.row].filter(([node]) => t.outside && t.outside[node]).map(([node, y]) =>
    text(-20 / across, y, shortName(t.outside[node]), { align: "right", baseline: "middle", size: "12px", color: looks().ink }));
  return [...heads, ...(up >= 10 ? names : [])];
}

function putNodes(name, t, state, spots, radius, [across, up], texts = [], keyed = new Map()) {
  const colour = state.walk >= 0 ? walkColour(state.walk) : looks().ink;
  const written = (node) => (keyed.has(node) ? String(keyed.get(node)) : t.inside[node]);
  const records = spots.map(({ node, spot, isRoot, marked, about }) => ({
    x: spot[0], y: spot[1], node: t.nodes[node], marked, fill: isRoot ? t.rootFill : t.fill[node], isRoot, ...about,
    line: marked ? colour : isRoot ? looks().ink : "#666666", stroke: marked ? 3.5 : isRoot ? 2.4 : 1,
  }));
  fill(name, "nodes", records.filter((one) => !one.isRoot).map((one) => ({ ...one, size: radius / across, height: 0 })));
  fill(name, "root", records.filter((one) => one.isRoot).map((one) => ({ ...one, size: (2.3 * radius) / across,
    height: (2.3 * radius) / up })));
  const size = insideSize(radius, spots.map(({ node }) => written(node)));
  const text = (words, x, y, look) => ({ x, y, text: words, size: `${size}px`, color: "#000000", back: null, align: "center",
    baseline: "middle", ...look });
  const fits = size > 0;
  const inside = fits ? spots.filter(({ node }) => written(node)).map(({ node, spot }) => text(written(node), ...spot)) : [];
  const beside = !fits && name === "layers" && up >= 9 && !t.outside ? leftmost(spots).map(({ node, spot }) =>
    text(t.inside[node], spot[0] - (radius + 4) / across, spot[1], { size: "10px", align: "right", color: looks().ink })) : [];
  fill(name, "texts", [...texts, ...inside, ...beside]);
}

// Of every row of the unrolled figure, the spot that comes first.
function leftmost(spots) {
  const first = new Map();
  for (const one of spots) if (!first.has(one.node) || first.get(one.node).spot[0] > one.spot[0]) first.set(one.node, one);
  return [...first.values()];
}

