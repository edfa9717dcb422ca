// The summary: what was run, a table of accuracies, figures.

function summaryView(part) {
  const figures = el("div", {class: "figures"}, el("p", {class: "note"}, "Opening the figures …"));
  openBlock(`figures-${part.number}`).then((found) => replaceChildren(figures, found.map((figure) =>
    el("figure", {}, el("img", {src: `data:image/svg+xml;base64,${figure.svg}`, alt: `figure: ${visible(figure.name)}`})))));
  return el("div", {class: "summary"},
    el("dl", {class: "facts"}, part.facts.map(([name, value]) =>
      el("div", {}, el("dt", {}, visible(name)), el("dd", {}, visible(value))))),
    accuracyTable(part),
    el("p", {class: "note"},
      "Intervals are of 95 % over the questions. The ceiling is the share of questions with a right answer among the finished paths. Figures of cost are means per question; tokens are those sampled by the policy plus those computed by the PRM."),
    figures);
}

function accuracyTable(part) {
  const names = [part.severalSets ? "Data set" : null, "Strategy", "N", "PRM", "Accuracy", "Interval",
    "", "Ceiling", "Tokens", "of the policy", "of the PRM", "FLOPs", "Seconds", "Failed"];
  const left = new Set(["Data set", "Strategy", "PRM", ""]);
  const lowest = Math.min(...part.groups.map((group) => group.accuracy[1]));
  const highest = Math.max(...part.groups.map((group) => group.accuracy[2]));
  const scale = (value) => `${(100 * (value - lowest)) / Math.max(highest - lowest, 1e-9)}%`;
  let before = null;
  const rows = part.groups.map((group) => {
    const [label, title, color] = part.strategies[group.strategy];
    const [value, low, high] = group.accuracy;
    const first = before !== null && before !== group.strategy;
    before = group.strategy;
    const link = linkTo({...DEFAULTS, view: "questions", part: String(part.number), strategy: label,
      n: String(group.num_candidates), prm: group.prm ?? "-", dataset: group.dataset});
    return el("tr", {class: first ? "section" : null},
      part.severalSets ? el("td", {}, visible(group.dataset)) : null,
      el("th", {scope: "row"}, el("span", {class: "swatch", style: {"background-color": color}}),
        el("a", {href: link, title: "its questions"}, visible(title))),
      numberCell(group.num_candidates),
      el("td", {}, group.prm === null ? "–" : visible(group.prm)),
      numberCell(value, 3),
      el("td", {class: "number"}, `${low.toFixed(3)}–${high.toFixed(3)}`),
      el("td", {class: "whisker", "aria-hidden": true},
        el("span", {class: "range", style: {left: scale(low), width: `calc(${scale(high)} - ${scale(low)})`}}),
        el("span", {class: "point", style: {left: scale(value), "background-color": color}})),
      numberCell(group.covered, 3),
      numberCell(group.tokens), numberCell(group.generated), numberCell(group.prm_computed),
      el("td", {class: "number"}, formatLarge(group.flops)),
      numberCell(group.seconds, 3), numberCell(group.failed));
  });
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Accuracy of each configuration"},
    el("table", {class: "accuracy"},
      el("thead", {}, el("tr", {}, names.filter((name) => name !== null).map((name) =>
        el("th", {scope: "col", class: left.has(name) ? null : "number"}, name)))),
      el("tbody", {}, rows)));
}
