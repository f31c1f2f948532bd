// Colours and numbers as words; the colours of a screen that is dark, unless the page is printed.

const darkScreen = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const LIGHT = { paper: "#ffffff", ink: "#1b1b1b", soft: "#5a5a5a", supports: DATA.colours.supports, opposes: DATA.colours.opposes };
const DARK = { paper: "#17181d", ink: "#ececf1", soft: "#b0b0bd", supports: "#b79df2", opposes: "#f29c4b" };
const looks = () => (darkScreen.matches && !printing ? DARK : LIGHT);

// What the two signs do: a class is supported or opposed, a value goes up or down.
const IS_VALUE = DATA.mode === "regression";
const SIGNS = IS_VALUE ? { plus: "raises it", minus: "lowers it" } : { plus: "supports", minus: "opposes" };

function signed(value, digits = 4) {
  if (value === null || !Number.isFinite(value)) return "–";
  const text = String(Number(Math.abs(value).toPrecision(digits)));
  return (value < 0 ? "−" : "+") + text;
}

const plainNumber = (value) => (value === null ? "–" : String(Number(value.toPrecision(4))).replace("-", "−"));
const counted = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
const rgb = (colour) => [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));

// Purple at `largest`, orange at `-largest`, faint near zero, by the square root; `full` below 1 is paler.
function signedColour(score, largest, full = 1, theme = looks()) {
  const share = largest > 0 ? Math.sqrt(Math.min(Math.abs(score) / largest, 1)) : 0;
  const amount = (share > 0 ? DATA.colours.faintest + (1 - DATA.colours.faintest) * share : 0) * full;
  const [end, base] = [rgb(score > 0 ? theme.supports : theme.opposes), rgb(theme.paper)];
  return "#" + end.map((part, i) => Math.round((1 - amount) * base[i] + amount * part).toString(16).padStart(2, "0")).join("");
}

function widthOf(score, largest) {
  const { thinnest, widest } = DATA.colours;
  return 1.33 * (thinnest + (widest - thinnest) * (largest > 0 ? Math.min(Math.abs(score) / largest, 1) : 0));
}

const largestOf = (shown) => shown.reduce((most, one) => Math.max(most, Math.abs(one.score)), 0) || 1;
const walkColour = (rank) => DATA.colours.walks[rank % DATA.colours.walks.length];
