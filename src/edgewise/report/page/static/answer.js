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
  element("all-of-them").textContent = t.answer.allOfThem;
  element("change").textContent = change.text;
  element("change-edges").replaceChildren(...changeItems(change));
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
  return make("li", null, { class: one.flips ? "flips" : "" }, [edgeLink(one), ...(one.about ? [make("small", unbroken(one.about))] : []),
    make("span", one.without, { class: "without" })]);
}

function edgeLink(one) {
  if (one.edge < 0) return make("span", one.name);
  const about = one.about ? `${one.about}. ` : "";
  const link = make("a", one.name, { href: "#picture", class: "link", title: `${about}Show it in the picture` });
  link.addEventListener("click", () => chooseEdge(one.edge));
  return link;
}

// The edges of a set that changes the answer, by name alone: their attributes stand where two have one name, else in the tooltip.
function changeItems({ edges, more }) {
  const isTwice = (one) => edges.filter((other) => other.name === one.name).length > 1;
  const items = edges.map((one) => make("li", null, {}, [edgeLink(one), ...(isTwice(one) && one.about ? [make("small", unbroken(one.about))] : [])]));
  return more ? [...items, make("li", `and ${counted(more)} more`, { class: "more" })] : items;
}

// The strongest feature that speaks for it, by gradient × input.
function featureReason(t) {
  if (!t.features) return "";
  const all = t.features.flatMap((told, node) => told.map(([feature, value, score]) => ({ node, feature, value, score })));
  const best = all.filter((one) => one.score > 0).sort((a, b) => b.score - a.score)[0];
  if (!best) return "";
  return `The feature that ${IS_VALUE ? "raises it" : "speaks for it"} most is ${featureNames.get(best.feature)} = ${plainNumber(best.value)} `
    + `of ${nodeName(t, best.node)}.`;
}

// A probability beside its bar, as the sentence above says it.
function chanceWords(share) {
  return share >= 0.9995 ? "over 99.9%" : share >= 0.0005 ? `${(100 * share).toFixed(1)}%` : "under 0.1%";
}

function showPrediction(t) {
  const chances = t.chances;
  const order = DATA.classes.map((_, c) => c).sort((a, b) => t.logits[b] - t.logits[a]);
  const shown = order.filter((c, rank) => rank < 4 || c === t.target);
  const parts = shown.map((c) => make("span", null, { class: c === t.target ? "class explained" : "class" }, [
    make("span", DATA.classes[c]),
    ...(chances ? [make("span", null, { class: "bar" }, [make("i", null, { style: { width: `${100 * chances[c]}%` } })])] : []),
    make("span", chances ? chanceWords(chances[c]) : plainNumber(t.logits[c])),
  ]));
  const rest = order.filter((c) => !shown.includes(c));
  const together = chances && DATA.mode !== "multilabel"
    ? ` (${chanceWords(rest.reduce((sum, c) => sum + chances[c], 0))} together)` : "";
  if (rest.length) parts.push(make("span", `and ${rest.length} more${together}`, { class: "class" }));
  element("prediction").replaceChildren(...parts);
  element("prediction").classList.toggle("lone", IS_VALUE && DATA.classes.length === 1); // the sentence says it
  const number = { logit: "logit", log_prob: "log-probability", prob: "probability" }[DATA.of];
  const what = IS_VALUE ? `${DATA.classes[t.target]}, ${plainNumber(t.value)}`
    : `the ${number} of “${DATA.classes[t.target]}”, ${signed(t.value)}`;
  element("edges-order").textContent = isOrderedOtherwise(t)
    ? `Ordered by score; the reasons above are ordered by how much less sure the model is without each.` : "";
  element("question").textContent = `${t.title}: the scores below explain ${what}.`;
}
