// Scores as colour: cividis, which people with any colour vision read alike. The number is there too.

const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

function scoreColor(score) {
  const place = Math.min(Math.max(score, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, CIVIDIS.length - 1);
  const mixed = CIVIDIS[low].map((value, i) => Math.round(value + (CIVIDIS[high][i] - value) * (place - low)));
  return {background: `rgb(${mixed.join(" ")})`, text: score > 0.55 ? "#000" : "#fff"};
}

// Three digits; what rounds to 0 or 1 and is neither says so.
function formatScore(score) {
  if (score === null) return "–";
  if (score > 0 && score < 0.0005) return "<.001";
  if (score < 1 && score >= 0.9995) return ">.999";
  return score.toFixed(3).replace(/^0/, "");
}

function scoreChip(score, what) {
  if (score === null) return el("span", {class: "score none", title: `no ${what}`}, "–");
  const color = scoreColor(score);
  return el("span", {class: "score", title: `${what} ${score}`,
    style: {"background-color": color.background, color: color.text}}, formatScore(score));
}

function scoreLegend() {
  const stops = CIVIDIS.map((color) => `rgb(${color.join(" ")})`).join(", ");
  return el("p", {class: "legend"},
    [["★", "on the answer's path"], ["●", "kept"], ["○", "dropped"], ["×", "invalid"], ["⚑", "finished path"]]
      .map(([mark, word]) => el("span", {}, el("span", {class: "mark"}, mark), ` ${word}`)),
    el("span", {}, "score of the path: 0 ",
      el("span", {class: "ramp", style: {background: `linear-gradient(to right, ${stops})`}}), " 1"));
}
