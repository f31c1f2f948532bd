// The answer on top: sentences that came with the data, put where they are read first.

function showAnswer(t) {
  const { verdict, explained, none, change, trust } = t.answer;
  const onlyLowered = IS_VALUE && t.answer.reasons.length === 0; // then the first card has what there is to say
  const [reasons, against] = onlyLowered ? [t.answer.against, []] : [t.answer.reasons, t.answer.against];
  element("verdict").textContent = verdict;
  element("explained").textContent = explained;
  showPrediction(t);
  element("reasons-title").textContent = t.answer.explained ? "What speaks for it"
    : !IS_VALUE ? "What made it so" : onlyLowered && reasons.length ? "What lowers the value" : "What raises the value";
  element("reasons").replaceChildren(...reasons.map((one) => reasonItem(one)));
  element("against-title").textContent = IS_VALUE ? "What lowers it" : "What speaks against it";
  element("against-title").hidden = against.length === 0;
  element("against").replaceChildren(...against.map((one) => reasonItem(one)));
  element("none").textContent = none || (reasons.length ? "" : `Nothing ${IS_VALUE ? "raises it" : "speaks for it"} among the strongest edges.`);
  element("weak-reasons").textContent = weakReasons(t);
  element("feature-reason").textContent = featureReason(t);
  element("change").textContent = change.text.replaceAll(" %", "\u00a0%"); // no line ends before the sign
  element("trust-word").textContent = trust.word;
  element("trust").replaceChildren(...trust.lines.map(([mark, text]) => make("li", text, { class: mark })));
}

const atFirst = (count) => ({ ...state, method: DATA.first, level: DATA.levels[0], layer: null, count });

// Whether the reasons on top are others than the first supporting edges of the table, or in another order.
function isOrderedOtherwise(t) {
  if (IS_VALUE) return false;
  const supporting = edgesOf(t, atFirst(40)).filter((one) => one.score > 0);
  return t.answer.reasons.some((one, rank) => one.edge !== supporting[rank]?.e);
}

// Where the strongest edges are a small part of all: that it is many together, not these.
function weakReasons(t) {
  const total = t.totals[DATA.levels[0]]?.[DATA.first];
  if (!total || t.answer.reasons.length < 3) return "";
  const few = edgesOf(t, atFirst(3));
  const share = few.reduce((sum, one) => sum + Math.abs(one.score), 0) / total[1];
  return share < 0.1 ? `No edge decides alone: ${counted(total[0])} edges add up, and the three strongest are ${shareWords(share)} of them.` : "";
}

// One edge: its name, what is written on it, and what the model says without it. Choosing it marks it in the picture.
function reasonItem(one) {
  const name = one.edge >= 0 ? make("a", one.name, { href: "#picture", class: "link", title: "Show it in the picture" })
    : make("span", one.name);
  if (one.edge >= 0) name.addEventListener("click", () => chooseEdge(one.edge));
  return make("li", null, { class: one.flips ? "flips" : "" }, [name, ...(one.about ? [make("small", one.about)] : []),
    make("span", one.without, { class: "without" })]);
}

// The strongest feature that speaks for it, by gradient × input.
function featureReason(t) {
  if (!t.features) return "";
  const all = t.features.flatMap((told, node) => told.map(([feature, value, score]) => ({ node, feature, value, score })));
  const best = all.filter((one) => one.score > 0).sort((a, b) => b.score - a.score)[0];
  if (!best) return "";
  return `The feature that ${IS_VALUE ? "raises it" : "speaks for it"} most: ${featureNames.get(best.feature)} = ${plainNumber(best.value)} `
    + `of ${nodeName(t, best.node)}.`;
}

function showPrediction(t) {
  const chances = t.chances;
  const order = DATA.classes.map((_, c) => c).sort((a, b) => t.logits[b] - t.logits[a]);
  const shown = order.filter((c, rank) => rank < 4 || c === t.target);
  const parts = shown.map((c) => make("span", null, { class: c === t.target ? "class explained" : "class" }, [
    make("span", DATA.classes[c]),
    ...(chances ? [make("span", null, { class: "bar" }, [make("i", null, { style: { width: `${100 * chances[c]}%` } })])] : []),
    make("span", chances ? `${(100 * chances[c]).toFixed(1)}%` : plainNumber(t.logits[c])),
  ]));
  const rest = order.filter((c) => !shown.includes(c));
  const together = chances && DATA.mode !== "multilabel"
    ? ` (${(100 * rest.reduce((sum, c) => sum + chances[c], 0)).toFixed(1)}% together)` : "";
  if (rest.length) parts.push(make("span", `and ${rest.length} more${together}`, { class: "class" }));
  element("prediction").replaceChildren(...parts);
  element("prediction").classList.toggle("lone", IS_VALUE && DATA.classes.length === 1); // the sentence says it
  const number = { logit: "logit", log_prob: "log-probability", prob: "probability" }[DATA.of];
  const what = IS_VALUE ? `${DATA.classes[t.target]}, ${plainNumber(t.value)}`
    : `the ${number} of “${DATA.classes[t.target]}”, ${signed(t.value)}`;
  element("edges-order").textContent = isOrderedOtherwise(t)
    ? `By their scores for “${DATA.classes[t.target]}” alone; on top they are ordered by how sure the model is without each.` : "";
  element("question").textContent = `${t.title}: the scores below explain ${what}.`;
}
