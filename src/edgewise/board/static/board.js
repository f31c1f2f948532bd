const page = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const KINDS = ["method", "registered", "PyG", "walks", "yardstick"];
const shown = new Set(KINDS);

// A standing is a list: data set, method, order, metric, mean, low, high, target low, target high, networks, targets, best, worst.
const standings = page.standings.map(([data, method, order, metric, mean, low, high, targetLow, targetHigh, networks, targets, best, worst]) =>
  ({ data, method, order, metric, mean, low, high, targetLow, targetHigh, networks, targets, best, worst }));
const seconds = new Map(page.seconds.map(([data, method, value]) => [`${data} ${method}`, value]));

const timed = seconds.size > 0;
byId("plot").closest("section").hidden = !timed;
byId("timed").hidden = timed;

const digits = (value) => (value === null ? "–" : value.toFixed(3));
const span = (low, high) => (low === null ? "–" : `${low.toFixed(3)} … ${high.toFixed(3)}`);
const ranks = (one) => (one.best === null ? "–" : one.best === one.worst ? `${one.best}` : `${one.best}–${one.worst}`);

function time(value) {
  if (value === undefined || value === null) return "–";
  if (value < 0.001) return `${(1e6 * value).toFixed(0)} µs`;
  return value < 1 ? `${(1000 * value).toPrecision(3)} ms` : `${value.toPrecision(3)} s`;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(select, names, chosen) {
  names.forEach((name, place) => select.append(new Option(name, place, false, place === chosen)));
}

const state = () => ({ data: +byId("data").value, metric: +byId("metric").value, order: +byId("order").value });
const ofMethod = (one) => page.methods[one.method];
const found = ({ data, metric, order }) =>
  standings
    .filter((one) => one.data === data && one.metric === metric && one.order === order && shown.has(ofMethod(one).kind))
    .sort((a, b) => b.mean - a.mean);

// --- The sentence at the top, and the table ---

function say(rows, asked) {
  const name = page.data[asked.data].name, metric = page.metrics[asked.metric].title;
  const first = rows.filter((one) => one.best === 1 && ofMethod(one).kind !== "yardstick");
  const yardsticks = rows.filter((one) => one.best === 1 && ofMethod(one).kind === "yardstick");
  let text = `${name}, ${metric}: `;
  if (!rows.length) text += "nothing was measured.";
  else if (rows[0].best === null) text += `${ofMethod(rows[0]).name} has the highest mean, ${digits(rows[0].mean)}; ranks need three networks.`;
  else if (yardsticks.length) text += `it cannot be told from ${yardsticks.map((one) => ofMethod(one).name).join(", ")}, which knows nothing: this measure says little here.`;
  else if (first.length === 1) text += `${ofMethod(first[0]).name} is first, for sure.`;
  else text += `${first.length} of ${rows.length} methods may be first: ${first.map((one) => ofMethod(one).name).join(", ")}.`;
  byId("verdict").textContent = text;
  const about = page.data[asked.data];
  byId("about").textContent = `${page.metrics[asked.metric].about} ${about.networks} networks, ${about.targets} targets in all, mean accuracy ${(100 * about.accuracy).toFixed(1)}%.`;
}

function meter(one, low, high) {
  const place = (value) => `${Math.max(0, Math.min(100, (100 * (value - low)) / (high - low || 1)))}%`;
  const box = element("span", undefined, `meter k-${ofMethod(one).kind}`);
  if (one.low !== null) {
    const line = element("i");
    line.style.left = place(one.low);
    line.style.right = `calc(100% - ${place(one.high)})`;
    box.append(line);
  }
  const mark = element("b");
  mark.style.left = place(one.mean);
  box.append(mark);
  return box;
}

function named(one) {
  const cell = element("td");
  cell.append(element("span", undefined, `dot k-${ofMethod(one).kind}`), ofMethod(one).name);
  return cell;
}

function table(rows, asked) {
  byId("table-title").textContent = `${page.data[asked.data].name}: ${page.metrics[asked.metric].title}, edges ranked by ${page.orders[asked.order]}`;
  const heads = ["method", "mean", "rank", "", "95% over networks", "95% over targets", ...(timed ? ["time for a target"] : []), "networks", "targets"];
  const head = element("tr");
  heads.forEach((name) => head.append(element("th", name)));
  const low = Math.min(0, ...rows.map((one) => one.mean)), high = Math.max(...rows.map((one) => one.mean), 0);
  const body = element("tbody");
  rows.forEach((one) => {
    const line = element("tr", undefined, `${ofMethod(one).kind} ${one.best === 1 ? "tied" : ""}`);
    const bar = element("td");
    bar.append(meter(one, low, high));
    line.append(named(one), element("td", digits(one.mean)), element("td", ranks(one)), bar, element("td", span(one.low, one.high)),
      element("td", span(one.targetLow, one.targetHigh)), ...(timed ? [element("td", time(seconds.get(`${one.data} ${one.method}`)))] : []), element("td", one.networks), element("td", one.targets));
    body.append(line);
  });
  const top = element("thead");
  top.append(head);
  byId("table").replaceChildren(top, body);
}

// --- All data sets at once ---

function matrix(asked) {
  const mine = standings.filter((one) => one.metric === asked.metric && one.order === asked.order && shown.has(ofMethod(one).kind));
  const sets = page.data.map((_, place) => place).filter((place) => mine.some((one) => one.data === place));
  const cells = new Map(mine.map((one) => [`${one.data} ${one.method}`, one]));
  const methods = [...new Set(mine.map((one) => one.method))];
  const mean = (method) => {
    const places = sets.map((data) => cells.get(`${data} ${method}`)).filter(Boolean).map((one) => (one.best ?? 0) + (one.worst ?? 0));
    return places.reduce((a, b) => a + b, 0) / places.length;
  };
  methods.sort((a, b) => mean(a) - mean(b));
  const head = element("tr");
  ["method", ...sets.map((place) => page.data[place].name)].forEach((name) => head.append(element("th", name)));
  const body = element("tbody");
  methods.forEach((method) => {
    const line = element("tr", undefined, page.methods[method].kind);
    line.append(named({ method }));
    sets.forEach((data) => {
      const one = cells.get(`${data} ${method}`);
      const cell = element("td", one ? digits(one.mean) : "–", one && one.best === 1 ? "low" : "");
      if (one) cell.append(element("small", ranks(one)));
      line.append(cell);
    });
    body.append(line);
  });
  const top = element("thead");
  top.append(head);
  byId("matrix").replaceChildren(top, body);
}

// --- Quality against cost ---

const SVG = "http://www.w3.org/2000/svg";
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
}

function room(count, low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / count || 1));
  const wide = [1, 2, 5, 10].map((times) => times * step).find((size) => (high - low) / size <= count) || step * 10;
  const ticks = [];
  for (let value = Math.ceil(low / wide) * wide; value <= high + 1e-9; value += wide) ticks.push(value);
  return ticks;
}

// Names are put right of their dot, or left, above or below, where they meet no other name and no dot; else they become numbers.
function placed(marks, width, height, margin) {
  const boxes = marks.map((one) => ({ x: one.x - 6, y: one.y - 6, w: 12, h: 12 }));
  const meets = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return marks.map((one, place) => {
    const size = 7.2 * one.name.length + 4;
    const tries = [[9, -7], [-9 - size, -7], [9, 7], [-9 - size, 7], [9, -21], [-9 - size, -21], [-size / 2, -24], [-size / 2, 10], [9, 21], [-9 - size, 21]];
    const box = tries.map(([dx, dy]) => ({ x: one.x + dx, y: one.y + dy, w: size, h: 14 }))
      .find((b) => b.x > margin.left && b.x + b.w < width - 4 && b.y > 2 && b.y + 14 < height - margin.bottom && !boxes.some((other, number) => number !== place && meets(b, other)));
    if (box) boxes.push(box);
    return box;
  });
}

function plot(rows, asked) {
  const box = byId("plot");
  const width = Math.max(340, Math.min(1200, box.clientWidth || 900)), height = Math.max(300, Math.min(460, width * 0.5));
  const margin = { left: 52, right: 16, top: 12, bottom: 40 };
  const some = rows.filter((one) => seconds.get(`${one.data} ${one.method}`) > 0);
  if (!some.length) return box.replaceChildren(element("p", "Nothing was measured.", "note"));
  const cost = some.map((one) => Math.log10(seconds.get(`${one.data} ${one.method}`)));
  const left = Math.floor(Math.min(...cost)), right = Math.ceil(Math.max(...cost) + 1e-9);
  const lows = some.map((one) => one.mean), bottom = Math.min(...lows), top = Math.max(...lows);
  const pad = 0.08 * (top - bottom || 1);
  const x = (value) => margin.left + ((value - left) / (right - left)) * (width - margin.left - margin.right);
  const y = (value) => height - margin.bottom - ((value - bottom + pad) / (top - bottom + 2 * pad)) * (height - margin.top - margin.bottom);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}` });
  for (let power = left; power <= right; power += 1) {
    drawn.append(shape("line", { x1: x(power), x2: x(power), y1: margin.top, y2: height - margin.bottom, class: "axis" }));
    drawn.append(shape("text", { x: x(power), y: height - margin.bottom + 16, "text-anchor": "middle", class: "tick" }, time(10 ** power).replace(/\.0+\b/, "")));
  }
  room(5, bottom - pad, top + pad).forEach((value) => {
    drawn.append(shape("line", { x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), class: "axis" }));
    drawn.append(shape("text", { x: margin.left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, +value.toFixed(3)));
  });
  drawn.append(shape("text", { x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle", class: "tick" }, "time for a target"));
  const marks = some.map((one, place) => ({ x: x(cost[place]), y: y(one.mean), name: ofMethod(one).name, one }));
  marks.forEach(({ x: across, one }) => {
    if (one.low === null) return;
    const [high, low] = [one.high, one.low].map((value) => Math.max(margin.top, Math.min(height - margin.bottom, y(value))));
    drawn.append(shape("line", { x1: across, x2: across, y1: high, y2: low, stroke: "currentColor", "stroke-width": 1.5, opacity: 0.45, class: `k-${ofMethod(one).kind}` }));
  });
  const unplaced = [];
  placed(marks, width, height, margin).forEach((where, place) => {
    const { x: across, y: up, name, one } = marks[place];
    const dot = shape("circle", { cx: across, cy: up, r: one.best === 1 ? 6 : 4.5, fill: "currentColor", class: `k-${ofMethod(one).kind}` });
    dot.append(shape("title", {}, `${name}: ${digits(one.mean)} (${span(one.low, one.high)}), rank ${ranks(one)}, ${time(seconds.get(`${one.data} ${one.method}`))} for a target`));
    drawn.append(dot);
    if (where) drawn.append(shape("text", { x: where.x + 2, y: where.y + 11 }, name));
    else unplaced.push(name);
  });
  box.setAttribute("aria-label", `${page.metrics[asked.metric].title} against the time for a target, ${some.length} methods; the numbers are in the table below.`);
  box.replaceChildren(drawn);
  if (unplaced.length) box.append(element("p", `Without room for their names: ${unplaced.join(", ")}. Point at a dot to read its name.`, "note"));
}

// --- Filters ---

function draw() {
  const asked = state(), rows = found(asked);
  say(rows, asked);
  plot(rows, asked);
  table(rows, asked);
  matrix(asked);
}

function begin() {
  fill(byId("data"), page.data.map((one) => one.name), 0);
  fill(byId("metric"), page.metrics.map((one) => one.title), 0);
  fill(byId("order"), page.orders, 0);
  KINDS.filter((kind) => page.methods.some((one) => one.kind === kind)).forEach((kind) => {
    const field = element("label"), input = element("input");
    input.type = "checkbox";
    input.checked = true;
    input.addEventListener("change", () => { shown[input.checked ? "add" : "delete"](kind); draw(); });
    field.append(input, element("span", undefined, `dot k-${kind}`), { method: "methods", registered: "registered", PyG: "PyG", walks: "walks", yardstick: "yardsticks" }[kind]);
    byId("kinds").append(field);
  });
  ["data", "metric", "order"].forEach((id) => byId(id).addEventListener("change", draw));
  byId("notes").textContent = page.notes.join(" ");
  window.addEventListener("resize", draw);
  draw();
  document.body.dataset.ready = "";
}
begin();
