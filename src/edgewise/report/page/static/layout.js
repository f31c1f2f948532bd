// Where things stand, in units of the figure; the same rules as the library's pictures.

// Rings around the root: a node's distance is its ring, its leaves decide how wide its wedge is; strays stand outside.
function rings(root, ways, strays) {
  const children = new Map();
  for (const [node, parent] of ways) children.set(parent, [...(children.get(parent) ?? []), node]);
  const order = [root];
  for (const node of order) order.push(...(children.get(node) ?? []));
  const leaves = new Map();
  for (const node of order.toReversed()) {
    leaves.set(node, (children.get(node) ?? []).reduce((sum, child) => sum + leaves.get(child), 0) || 1);
  }
  const place = new Map([[root, [0, 0]]]);
  const wedges = [[root, 0, 2 * Math.PI, 0]];
  let deepest = 0;
  while (wedges.length) {
    const [node, begin, width, depth] = wedges.shift();
    deepest = depth;
    let start = begin;
    for (const child of children.get(node) ?? []) {
      const share = (width * leaves.get(child)) / leaves.get(node);
      place.set(child, onRing(depth + 1, start + share / 2));
      const narrowed = Math.min(share, Math.PI);
      wedges.push([child, start + (share - narrowed) / 2, narrowed, depth + 1]);
      start += share;
    }
  }
  strays.forEach((node, i) => place.set(node, onRing(deepest + 1, (2 * Math.PI * i) / strays.length)));
  return place;
}

function onRing(ring, angle) {
  return [(ring + 0.5) * Math.sin(angle), (ring + 0.5) * Math.cos(angle)];
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

// A line from one spot to another, `room` away from both, bent to the right of its way; `unit` is pixels per unit.
function bentLine(start, end, bend, room, tip) {
  const [dx, dy] = [end[0] - start[0], end[1] - start[1]];
  const middle = [(start[0] + end[0]) / 2 + bend * dy, (start[1] + end[1]) / 2 - bend * dx];
  return trimmed([start, middle, end], room, tip);
}

// Out of the spot and back into it, away from the centre.
function loopLine(spot, centre, size, room, tip) {
  let away = [spot[0] - centre[0], spot[1] - centre[1]];
  const length = Math.hypot(...away);
  away = length > 1e-9 ? away.map((part) => part / length) : [0, 1];
  const bulge = (side) => [0, 1].map((i) => spot[i] + size * (away[i] + side * 0.6 * [-away[1], away[0]][i]));
  return trimmed([spot, bulge(1), bulge(-1), spot], room, tip);
}

// A level line that leaves and arrives horizontally.
function smoothLine(start, end) {
  const points = Array.from({ length: 25 }, (_, i) => {
    const share = (1 - Math.cos((Math.PI * i) / 24)) / 2;
    return [start[0] + ((end[0] - start[0]) * i) / 24, start[1] + (end[1] - start[1]) * share];
  });
  return { xs: points.map((p) => p[0]), ys: points.map((p) => p[1]) };
}

function bezier(corners, share) {
  let points = corners;
  while (points.length > 1) {
    points = points.slice(1).map((p, i) => p.map((part, axis) => (1 - share) * points[i][axis] + share * part));
  }
  return points[0];
}

// A Bézier curve without the ends that nodes cover, and the triangle at its end; `room` and `tip` in units.
function trimmed(corners, room, tip) {
  const points = Array.from({ length: 49 }, (_, i) => bezier(corners, i / 48));
  const [first, last] = [points[0], points[48]];
  const far = (p, from, room_) => Math.hypot(p[0] - from[0], p[1] - from[1]) >= room_;
  let begin = points.findIndex((p) => far(p, first, room));
  let stop = points.findLastIndex((p) => far(p, last, room + tip));
  if (begin < 0 || stop <= begin) [begin, stop] = [0, 48];
  const kept = points.slice(begin, stop + 1);
  const base = points[stop];
  const aim = [last[0] - base[0], last[1] - base[1]];
  const length = Math.hypot(...aim) || 1;
  const along = aim.map((part) => (part / length) * tip);
  const aside = [-along[1] * 0.42, along[0] * 0.42];
  return {
    xs: kept.map((p) => p[0]),
    ys: kept.map((p) => p[1]),
    headXs: [base[0] + aside[0], base[0] + along[0], base[0] - aside[0]],
    headYs: [base[1] + aside[1], base[1] + along[1], base[1] - aside[1]],
  };
}
