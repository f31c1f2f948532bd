// Scenes into the sources of Bokeh's figures.

const plots = {};

async function embedFigure(name) {
  const items = JSON.parse(document.getElementById("page-figures").textContent);
  await Bokeh.embed.embed_item(items[name], name);
  plots[name] = Bokeh.documents.at(-1).get_model_by_name(name);
}

// A table of columns from a list of records; Bokeh wants every column, also of nothing.
function fill(name, part, records) {
  const source = plots[name].document.get_model_by_name(`${name}-${part}`);
  const columns = Object.keys(source.data);
  source.data = Object.fromEntries(columns.map((column) => [column, records.map((record) => record[column])]));
}

// Pixels of a figure's inside, from its upper left corner, and back.
function pixelsOf(name) {
  const { x_range: x, y_range: y, inner_width: width, inner_height: height } = plots[name];
  const [across, up] = [width / (x.end - x.start), height / (y.end - y.start)];
  return {
    width, height,
    pixel: (spot) => [(spot[0] - x.start) * across, (y.end - spot[1]) * up],
    back: (spot) => [x.start + spot[0] / across, y.end - spot[1] / up],
  };
}

// Make a box fit, with pixels around it; the answer is pixels per unit across and up.
function fit(name, [left, right, low, high], border, alike) {
  const plot = plots[name];
  const width = Math.max(plot.inner_width - border.left - border.right, 50);
  const height = Math.max(plot.inner_height - border.top - border.bottom, 50);
  let [across, up] = [width / Math.max(right - left, 1e-9), height / Math.max(high - low, 1e-9)];
  if (alike) across = up = Math.min(across, up);
  const spareX = (width - (right - left) * across) / 2;
  const spareY = (height - (high - low) * up) / 2;
  plot.x_range.setv({ start: left - (border.left + spareX) / across, end: right + (border.right + spareX) / across });
  plot.y_range.setv({ start: low - (border.bottom + spareY) / up, end: high + (border.top + spareY) / up });
  return [across, up];
}

function boxOf(spots) {
  const xs = spots.map((spot) => spot[0]);
  const ys = spots.map((spot) => spot[1]);
  return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
}

// The smallest distance between two places, in pixels.
function closest(spots, [across, up]) {
  let least = Infinity;
  spots.forEach((a, i) => spots.slice(0, i).forEach((b) => {
    least = Math.min(least, Math.hypot((a[0] - b[0]) * across, (a[1] - b[1]) * up));
  }));
  return least;
}

// 1, or less where many lines end at one place, or there are many of them: then they are thinner.
function crowding(ends) {
  const counts = new Map();
  for (const end of ends) counts.set(end, (counts.get(end) ?? 0) + 1);
  return Math.min(1, Math.sqrt(14 / Math.max(1, ...counts.values())), Math.sqrt(30 / Math.max(1, ends.length)));
}

// Lines of edge types that share both ends differ by their dashes.
function strokeOf(t, one, largest, thinner, faded) {
  const width = thinner * widthOf(one.score, largest);
  const dash = kindOf(t, one)?.dash ?? [];
  return { color: signedColour(one.score, largest), width, outline: width + 1.4, alpha: faded ? 0.22 : 1,
    dash: dash.length ? dash.map((part) => Math.max(1, Math.round(part * Math.sqrt(width)))) : "solid" };
}

// How large texts are that stand in circles, in pixels; 0 where they could not be read.
function insideSize(radius, texts) {
  const size = Math.min(12, (1.9 * radius) / (0.56 * Math.max(1, ...texts.map((text) => text.length))));
  return size >= 7 ? size : 0;
}

const headLength = (width) => 5 + 1.5 * width; // in pixels

// The graph ------------------------------------------------------------------------------------------------------------

function drawGraph(t, state) {
  const scene = graphScene(t, state);
  const spots = [...scene.place.values()];
  const wide = t.outside ? Math.min(110, plots.graph.inner_width / 6) : 26;
  const scale = fit("graph", boxOf(spots), { left: wide, right: wide, top: 28, bottom: 28 }, true);
  const unit = scale[0];
  const radius = Math.max(3, Math.min(12, 0.44 * closest(spots, scale)));
  const largest = largestOf(scene.edges);
  const thinner = crowding(scene.edges.map((one) => one.receiver));
  const head = (one) => headLength(thinner * widthOf(one.score, largest)) / unit;
  const courses = coursesOf(scene, (radius + 1) / unit, unit, head);
  const faded = state.walk >= 0;
  const drawn = scene.edges.map((one) => ({ ...courses.get(one), ...strokeOf(t, one, largest, thinner, faded),
    ...aboutEdge(t, state, one, state.level, state.layer) }));
  fill("graph", "bands", []);
  fill("graph", "context", scene.context.map(([a, b]) => {
    const [p, q] = [scene.place.get(a), scene.place.get(b)];
    return { xs: [p[0], q[0]], ys: [p[1], q[1]] };
  }));
  fill("graph", "edges", drawn);
  fill("graph", "heads", drawn.map((one) => ({ ...one, xs: one.headXs, ys: one.headYs })));
  fill("graph", "halo", [...pairLine(t, scene), ...haloOf(t, state, scene, courses)]);
  fill("graph", "routes", routeInGraph(t, state, scene));
  const view = pixelsOf("graph");
  const rest = restLook(t, scene, 1.3 * radius, view);
  const names = t.outside ?? (insideSize(radius, [...scene.place.keys()].map((node) => t.inside[node])) ? null : t.inside);
  const labels = names ? placeLabels(t, names, scene, 1.15 * radius, byImportance(t, scene), rest.texts, view)
    : { texts: [], leaders: [], keyed: new Map() };
  fill("graph", "leaders", [...labels.leaders, ...rest.lines]);
  showKey(t, labels.keyed);
  putNodes("graph", t, state, [...scene.place].map(([node, spot]) => ({
    node, spot, key: node, isRoot: explainedNodes(t).includes(node), marked: scene.marked.has(node),
    about: aboutNode(t, state.level, state.layer, node),
  })), radius, scale, [...labels.texts, ...rest.texts], labels.keyed);
  return scene;
}

// Lines beside one another where both directions, or parallel edges, are drawn.
function coursesOf(scene, room, unit, head) {
  const key = (one) => `${one.source} ${one.receiver}`;
  const ways = new Set(scene.edges.map(key));
  const copies = new Map();
  const centre = [0, 1].map((axis) => [...scene.place.values()].reduce((sum, p) => sum + p[axis], 0) / scene.place.size);
  return new Map(scene.edges.map((one) => {
    const copy = (copies.get(key(one)) ?? 0) + 1;
    copies.set(key(one), copy);
    const [start, end] = [scene.place.get(one.source), scene.place.get(one.receiver)];
    if (one.source === one.receiver) return [one, loopLine(start, centre, (40 + 12 * copy) / unit, room, head(one))];
    const apart = copy - (ways.has(`${one.receiver} ${one.source}`) ? 0 : 1);
    const around = runsOver(scene, start, end, room) ? 0.3 : 0;
    return [one, bentLine(start, end, 0.11 * apart + around, room, head(one))];
  }));
}

// Whether a straight line would go through another node.
function runsOver(scene, start, end, room) {
  const [dx, dy] = [end[0] - start[0], end[1] - start[1]];
  const length = Math.hypot(dx, dy) || 1;
  return [...scene.place.values()].some((spot) => {
    const along = ((spot[0] - start[0]) * dx + (spot[1] - start[1]) * dy) / length;
    const aside = Math.abs((spot[0] - start[0]) * dy - (spot[1] - start[1]) * dx) / length;
    return spot !== start && spot !== end && along > 0 && along < length && aside < room;
  });
}

function haloOf(t, state, scene, courses) {
  if (state.edge < 0) return [];
  const shown = scene.edges.find((one) => one.e === state.edge);
  const [p, q] = [scene.place.get(t.source[state.edge]), scene.place.get(t.receiver[state.edge])];
  const line = shown ? courses.get(shown) : { xs: [p[0], q[0]], ys: [p[1], q[1]] };
  return [{ xs: line.xs, ys: line.ys, color: DATA.colours.target, width: 15, alpha: 1, dash: "solid" }];
}

// The pair that is asked about, as a dashed line behind everything else.
function pairLine(t, scene) {
  if (!t.ends || t.ends[0] === t.ends[1]) return [];
  const [p, q] = t.ends.map((node) => scene.place.get(node));
  return [{ xs: [p[0], q[0]], ys: [p[1], q[1]], color: looks().ink, width: 2.5, alpha: 0.75, dash: [7, 6] }];
}

function routeInGraph(t, state, scene) {
  if (state.walk < 0) return [];
  const spots = t.walks[state.walk].nodes.map((node) => scene.place.get(node));
  const colour = walkColour(state.walk);
  return [{ xs: spots.map((p) => p[0]), ys: spots.map((p) => p[1]), color: colour, width: 9, alpha: 0.5, dash: "solid" }];
}
