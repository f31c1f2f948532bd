// The page's data: numbers are base64 of little-endian arrays, read when a target is first looked at.

const DATA = JSON.parse(document.getElementById("page-data").textContent);
const known = new Map();

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}

const floats = (text) => new Float32Array(bytes(text));
const integers = (text) => new Int32Array(bytes(text));

function pairs(flat) {
  return Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);
}

function eachValue(object, read) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, read(value)]));
}

const layoutOf = (nodes, place) => new Map(place.map((spot, i) => [nodes[i], spot]));

function readTarget(position) {
  if (!known.has(position)) {
    const raw = DATA.targets[position];
    const arrays = ["nodes", "rows", "source", "receiver", "column", "ownNode"];
    known.set(position, {
      ...raw,
      ...Object.fromEntries(arrays.map((name) => [name, integers(raw[name])])),
      kind: raw.kind ? integers(raw.kind) : null,
      ways: pairs(integers(raw.ways)),
      context: pairs(integers(raw.context)),
      place: pairs(floats(raw.place)),
      views: eachValue(raw.views, (layouts) => layouts.map(([nodes, place]) => layoutOf(integers(nodes), pairs(floats(place))))),
      scores: eachValue(raw.scores, floats),
      own: eachValue(raw.own, floats),
    });
  }
  return known.get(position);
}

// The name of what is shown: "input", "layer" (the sum over layers), "layer 0" ...
const viewOf = (state) => (state.layer === null ? state.level : `layer ${state.layer}`);

// Scores ---------------------------------------------------------------------------------------------------------------

// The number of item `i` of `count`; `layer` null is the sum over layers (at input level there is one).
function scoreIn(table, level, method, layer, i, count) {
  const depth = level === "input" ? 1 : DATA.layers;
  const values = table[level];
  if (values === undefined) return NaN;
  if (layer !== null) return values[(method * depth + layer) * count + i];
  let total = 0;
  for (let l = 0; l < depth; l += 1) total += values[(method * depth + l) * count + i];
  return total;
}

const edgeScore = (t, level, method, layer, e) => scoreIn(t.scores, level, method, layer, e, t.column.length);
const ownScore = (t, level, method, layer, s) => scoreIn(t.own, level, method, layer, s, t.ownNode.length);

// The strongest entries, strongest first: `most` of them, or those that make up most of the total; never a zero, NaN has no rank.
function strongest(entries, most, total) {
  const sorted = entries.filter((entry) => Math.abs(entry.score) > 0).sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
  return sorted.slice(0, most ?? enough(sorted, total));
}

const ENOUGH = 0.95; // of the total magnitude
const FEW = innerWidth < 640 ? 10 : 20; // so few are all drawn
const MOST_AT_FIRST = innerWidth < 640 ? 15 : 40;

function enough(sorted, [, magnitude]) {
  let sum = 0;
  const last = sorted.findIndex((one) => (sum += Math.abs(one.score)) >= ENOUGH * magnitude);
  return Math.min(last < 0 ? sorted.length : Math.max(last + 1, FEW), MOST_AT_FIRST, DATA.edges);
}

function edgesOf(t, state) {
  const entries = Array.from(t.column, (column, e) => ({
    e, column, source: t.source[e], receiver: t.receiver[e], layer: state.layer,
    score: edgeScore(t, state.level, state.method, state.layer, e),
  }));
  return strongest(entries, state.count, t.totals[viewOf(state)][state.method]);
}

function stepsOf(t, state) {
  const entries = [];
  for (let layer = 0; layer < DATA.layers; layer += 1) {
    for (let e = 0; e < t.column.length; e += 1) {
      entries.push({ e, layer, source: t.source[e], receiver: t.receiver[e],
        score: edgeScore(t, "layer", state.method, layer, e) });
    }
    for (let s = 0; s < t.ownNode.length; s += 1) {
      entries.push({ e: -1, s, layer, source: t.ownNode[s], receiver: t.ownNode[s],
        score: ownScore(t, "layer", state.method, layer, s) });
    }
  }
  return strongest(entries, state.count, t.totals.steps[state.method]);
}

// What is not drawn: how many, and what they add up to.
function restOf(shown, [count, , sum]) {
  return { count: count - shown.length, sum: sum - shown.reduce((part, one) => part + one.score, 0) };
}

const shareWords = (share) => (share < 0.01 ? "under 1%" : `${Math.round(100 * share)}%`);

// How much of the explanation is drawn, and what the rest adds up to.
function sentence(shown, total, noun) {
  const [count, magnitude] = total;
  if (count === 0) return `No ${noun} have a nonzero score.`;
  if (shown.length === count) {
    return count === 1 ? `The only ${noun.slice(0, -1)} with a nonzero score.` : `All ${counted(count)} ${noun} with a nonzero score.`;
  }
  const drawn = shown.reduce((sum, one) => sum + Math.abs(one.score), 0);
  const few = shown.length === 1 ? "The strongest" : `The ${shown.length} strongest`;
  const rest = restOf(shown, total);
  return `${few} of ${counted(count)} ${noun} with a nonzero score, `
    + `${shareWords(drawn / magnitude)} of the total magnitude; ${counted(rest.count)} more, ${signed(rest.sum, 3)} together.`;
}

// Names ----------------------------------------------------------------------------------------------------------------

const nodeName = (t, node) => t.names[node];
const kindOf = (t, one) => (t.kind && one.e >= 0 ? DATA.kinds[t.kind[one.e]] : null);
const walkName = (t, walk) => walk.nodes.map((node) => nodeName(t, node)).join(" → ");

function edgeName(t, one) {
  const end = one.source === one.receiver ? "itself" : nodeName(t, one.receiver);
  return `${nodeName(t, one.source)} ${kindOf(t, one)?.arrow ?? "→"} ${end}`;
}
