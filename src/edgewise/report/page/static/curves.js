// Lines between spots, in units of the figure: where nodes stand is decided by the library (report/page/page_scene.py).

// A line from one spot to another, `room` away from both and bent to the right; `room` and `tip` in units.
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
