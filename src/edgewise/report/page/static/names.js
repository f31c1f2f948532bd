// Long names beside the nodes of the graph: away from the middle, turned along the ring, no longer than fits.

const LETTER = 6.4; // pixels, about, of a name
const shortName = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name);

// The direction in which a name is written: outwards, or across where lines to farther nodes go outwards.
function directionOf(t, scene, node) {
  const [x, y] = scene.place.get(node);
  const middle = t.root === null ? [0, 0] : scene.place.get(t.root);
  const outwards = Math.atan2(y - middle[1], x - middle[0]);
  const between = t.ways.some(([child, parent]) => parent === node && scene.place.has(child));
  return between ? outwards + (outwards < 0 ? Math.PI / 2 : -Math.PI / 2) : outwards;
}

// Pixels that names need beyond the box of the nodes, on each side; `unit` is pixels per unit.
function roomForNames(t, scene, [left, right, low, high], unit) {
  const border = { left: 26, right: 26, top: 26, bottom: 34 };
  for (const [node, spot] of scene.place) {
    if (node === t.root || !t.outside[node]) continue;
    const angle = directionOf(t, scene, node);
    const length = 22 + LETTER * shortName(t.outside[node]).length;
    const [dx, dy] = [length * Math.cos(angle), length * Math.sin(angle)];
    border.right = Math.max(border.right, dx - (right - spot[0]) * unit);
    border.left = Math.max(border.left, -dx - (spot[0] - left) * unit);
    border.top = Math.max(border.top, dy - (high - spot[1]) * unit + 6);
    border.bottom = Math.max(border.bottom, -dy - (spot[1] - low) * unit + 6);
  }
  return border;
}

function fillOutside(t, scene, room) {
  const source = plots.graph.document.get_model_by_name("graph-texts");
  const names = [...scene.place].filter(([node]) => t.outside[node]).map(([node, [x, y]]) => {
    const look = { text: shortName(t.outside[node]), size: "12px", color: "#1b1b1b" };
    if (node === t.root) return { x, y: y - 1.8 * room, ...look, angle: 0, align: "center", baseline: "top" };
    const angle = directionOf(t, scene, node);
    const left = Math.abs(angle) > Math.PI / 2;
    return { x: x + 1.5 * room * Math.cos(angle), y: y + 1.5 * room * Math.sin(angle), ...look, baseline: "middle",
      angle: left ? angle + Math.PI : angle, align: left ? "right" : "left" };
  });
  const columns = Object.keys(source.data);
  source.data = Object.fromEntries(columns.map((column) => [column,
    [...source.data[column], ...names.map((record) => record[column])]]));
}
