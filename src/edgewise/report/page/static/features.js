// Features: the strongest of each node beside its name, value and score, and the attributes of edges.

const featureNames = new Map(DATA.featureNames);

// A node's features in lines, for its tooltip.
function featureLines(t, node) {
  const told = t.features?.[node] ?? [];
  if (!told.length) return "";
  return ["strongest features:", ...told.map(([feature, value, score]) =>
    `${featureNames.get(feature)} = ${plainNumber(value)} (${signed(score)})`)].join("\n");
}

const attributeLines = (t, e) => (e >= 0 && t.attributes ? t.attributes[e].join("\n") : "");

// Nodes in the order of what their told features weigh; the explained ones first.
function nodesByFeatures(t) {
  const explained = explainedNodes(t);
  const weight = (node) => t.features[node].reduce((sum, one) => sum + Math.abs(one[2]), 0);
  const others = t.features.map((_, node) => node).filter((node) => !explained.includes(node) && weight(node) > 0);
  return [...explained.filter((node, i) => t.features[node].length && explained.indexOf(node) === i),
    ...others.sort((a, b) => weight(b) - weight(a))].slice(0, 12);
}

function showFeatures(t) {
  element("features").hidden = !t.features && !DATA.noFeatures;
  element("features-note").textContent = t.features
    ? "What single features of nodes add to the explained number, by gradient × input: of each node the strongest."
    : DATA.noFeatures;
  const head = ["Node", "Feature", "Value", "Score"].map((name, i) => make("th", name, { scope: "col", class: i > 1 ? "number" : "" }));
  const rows = t.features ? nodesByFeatures(t).flatMap((node) => t.features[node].map(([feature, value, score], rank) =>
    make("tr", null, {}, [make("td", rank ? "" : nodeName(t, node)), make("td", featureNames.get(feature)),
      make("td", plainNumber(value), { class: "number" }), make("td", signed(score), { class: "number" })]))) : [];
  element("features-table").replaceChildren(...(rows.length
    ? [make("thead", null, {}, [make("tr", null, {}, head)]), make("tbody", null, {}, rows)] : []));
}
