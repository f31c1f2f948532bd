// Long names beside the nodes of the graph: level, never on one another; a line leads to a name that stands away from its node.
// A node whose name finds no room gets a number, and a list below the picture says whose it is.

const LETTER = 6.9; // pixels, about, of a name
const LINE = 15;
const shortName = (name) => (name.length > 22 ? `${name.slice(0, 13)}…${name.slice(-8)}` : name); // names often differ at the end
const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

// Where a name may stand, in pixels around its node: close by first, then farther out.
function* spotsAround([x, y], radius, width, outwards) {
  const angles = [0, 1, -1, 2, -2, 3, -3, 4].map((step) => outwards + (step * Math.PI) / 4);
  for (const far of [radius + 4, radius + 20, radius + 38, radius + 60]) {
    for (const angle of angles) {
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      const left = cos > 0.3 ? x + far * cos : cos < -0.3 ? x + far * cos - width : x - width / 2;
      const middle = y + (far + (Math.abs(cos) > 0.3 ? 0 : LINE / 2)) * sin;
      yield { left, right: left + width, top: middle - LINE / 2, bottom: middle + LINE / 2, far, middle };
    }
  }
}

// The room of a text that is centred at its place.
function boxOfText({ x, y, text }, pixel) {
  const [across, down] = pixel([x, y]);
  const half = (text.length * LETTER) / 2 + 2;
  return { left: across - half, right: across + half, top: down - LINE / 2, bottom: down + LINE / 2 };
}

// Texts, leading lines and numbered nodes; `pixel` turns a place into pixels, `back` a pixel into a place.
function placeLabels(t, names, scene, radius, order, taken, { pixel, back, width, height }) {
  const boxes = [...scene.place.values()].map((spot) => {
    const [x, y] = pixel(spot);
    return { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius };
  });
  boxes.push(...taken.map((one) => boxOfText(one, pixel)));
  const middle = pixel(scene.place.get(t.root ?? order[0]) ?? [0, 0]);
  const found = { texts: [], leaders: [], keyed: new Map() };
  for (const node of order.filter((one) => names[one])) {
    const name = shortName(names[node]);
    const at = pixel(scene.place.get(node));
    const away = at[0] === middle[0] && at[1] === middle[1] ? Math.PI / 2 : Math.atan2(at[1] - middle[1], at[0] - middle[0]);
    const room = [...spotsAround(at, radius, name.length * LETTER + 4, away)].find((box) => box.left >= 0 && box.right <= width
      && box.top >= 0 && box.bottom <= height && !boxes.some((other) => meets(box, other)));
    if (!room) {
      if (t.outside) found.keyed.set(node, found.keyed.size + 1); // a number beside numbers would name the wrong node
      continue;
    }
    boxes.push(room);
    const [x, y] = back([room.left + 2, room.middle]);
    found.texts.push({ x, y, text: name, size: "12px", color: looks().ink, back: looks().paper, align: "left", baseline: "middle" });
    if (room.far > radius + 12) {
      const near = [Math.min(Math.max(at[0], room.left), room.right), Math.min(Math.max(at[1], room.top), room.bottom)];
      const [p, q] = [scene.place.get(node), back(near)];
      found.leaders.push({ xs: [p[0], q[0]], ys: [p[1], q[1]], color: "#8a8a8a", width: 1, alpha: 0.8, dash: "solid" });
    }
  }
  return found;
}

// Nodes in the order in which they need a name most: the explained ones, then those of strong edges.
function byImportance(t, scene) {
  const strong = scene.edges.toReversed().flatMap((one) => [one.source, one.receiver]);
  return [...new Set([...explainedNodes(t), ...strong, ...scene.place.keys()])].filter((node) => scene.place.has(node));
}

function showKey(t, keyed) {
  element("graph-key").replaceChildren(...[...keyed].map(([node, number]) =>
    make("span", null, {}, [make("b", String(number)), ` ${nodeName(t, node)}`])));
}

// What is left out of the picture, as one more place beside the explained node where there is room; else in the corner.
function restLook(t, scene, radius, view) {
  if (t.root === null || scene.rest.count < 1) return { lines: [], texts: [] };
  const text = `${counted(scene.rest.count)} more edge${scene.rest.count === 1 ? "" : "s"}, ${signed(scene.rest.sum, 3)} together`;
  const look = { text, size: "12px", color: looks().soft, back: looks().paper, align: "center", baseline: "middle" };
  const root = scene.place.get(t.root);
  const place = restPlaces(root, [...scene.place.values()].filter((spot) => spot !== root))
    .find(([x, y]) => isFree(boxOfText({ x, y, text }, view.pixel), scene, radius, view));
  if (place) {
    return { lines: [{ xs: [root[0], place[0]], ys: [root[1], place[1]], color: "#8a8a8a", width: 2, alpha: 0.9, dash: [2, 4] }],
      texts: [{ x: place[0], y: place[1], ...look }] };
  }
  const [x, y] = view.back([(text.length * LETTER) / 2 + 4, view.height - LINE]);
  return { lines: [], texts: [{ x, y, ...look }] };
}

// In the three widest gaps between the nodes around the root, near it and farther out.
function restPlaces([x, y], others) {
  if (!others.length) return [];
  const around = others.map((spot) => Math.atan2(spot[1] - y, spot[0] - x)).sort((a, b) => a - b);
  const gaps = around.map((angle, i) => [(around[i + 1] ?? around[0] + 2 * Math.PI) - angle, angle]).sort((a, b) => b[0] - a[0]);
  const near = Math.min(...others.map((spot) => Math.hypot(spot[0] - x, spot[1] - y)));
  return [1, 1.4, 0.65].flatMap((far) => gaps.slice(0, 3).map(([gap, start]) =>
    [x + far * near * Math.cos(start + gap / 2), y + far * near * Math.sin(start + gap / 2)]));
}

function isFree(box, scene, radius, { pixel, width, height }) {
  const inside = box.left >= 0 && box.right <= width && box.top >= 0 && box.bottom <= height;
  return inside && [...scene.place.values()].map(pixel).every(([x, y]) =>
    !meets(box, { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }));
}
