// One question: what it asks, how each configuration did, one tree or two side by side.

async function questionView(part, state, question) {
  performance.mark("question asked");
  const sides = [["a", "node"], ["b", "nodeb"]].map(([name, node]) => {
    const setting = findConfiguration(part, state[name]);
    return {name, node, setting, row: setting && question.byConfiguration.get(setting.index)};
  }).filter((side) => side.setting !== null);
  const trees = await Promise.all(sides.map(async ({row}) =>
    row?.tree ? readTree(await treeOf(row), pageIndex.feature_names) : null));
  const compared = trees.length === 2 && trees[0] !== null && trees[1] !== null ? differences(trees[0], trees[1]) : null;
  const only = compared === null ? [null, null] : [compared.onlyLeft, compared.onlyRight];
  const views = trees.map((tree, side) => tree === null ? null : treeView(tree, {
    label: `Search tree of ${sides[side].setting.name}`,
    onlyHere: only[side],
    choose: (id) => note({[sides[side].node]: id}),
  }));
  const element = el("article", {class: "question"},
    questionHead(part, state, question),
    compared === null ? null : differenceLine(compared, views),
    trees.some((tree) => tree !== null) ? scoreLegend() : null,
    el("div", {class: views.length === 2 ? "panels two" : "panels"},
      sides.map((side, number) => panel(question, side, trees[number], views[number]))));
  return {element, shown() {
    // Nodes of the address; the left one gets the focus.
    const nodes = sides.map(({node}) => Number(state[node]));
    for (const side of [1, 0]) if (views[side] && nodes[side] > 0) views[side].reveal(nodes[side]);
    if (!(nodes[0] > 0)) views[0]?.focus();
    document.documentElement.scrollTop = 0;
    performance.measure("open question", "question asked");
  }};
}

function questionHead(part, state, question) {
  const listed = selectQuestions(part, state).map((entry) => entry.question);
  const at = listed.indexOf(question);
  const step = (label, other, key) => el("a", {class: "button", "aria-keyshortcuts": key, id: `go-${label.toLowerCase()}`,
    href: other === undefined ? null : linkTo({question: other.key, node: "", nodeb: ""}),
    "aria-disabled": other === undefined ? "true" : null}, label);
  const menu = (name, label, none) => el("label", {}, label, el("select", {name,
    on: {change: (event) => go({[name]: event.target.value, node: "", nodeb: ""})}},
    none ? el("option", {value: ""}, none) : null,
    part.configurations.map((setting) => {
      const row = question.byConfiguration.get(setting.index);
      return el("option", {value: setting.key, selected: state[name] === setting.key},
        `${row === undefined ? " " : verdict(row).mark} ${setting.name}`);
    })));
  return el("section", {class: "question-head"},
    el("p", {class: "steps"},
      el("a", {class: "button", href: linkTo(toView("questions"))}, "← Questions"),
      step("Previous", at > 0 ? listed[at - 1] : undefined, "["),
      step("Next", at >= 0 ? listed[at + 1] : undefined, "]"),
      el("span", {class: "note"}, shortLine(question.key, 80),
        question.notes.map(([name, value]) => ` · ${shortLine(name, 40)} ${shortLine(value, 80)}`))),
    el("h2", {class: "question-text"}, question.text === null ? shortLine(question.id, 80) : modelText(question.text)),
    el("p", {}, "Right answer: ", el("b", {}, shortLine(question.gold, 200))),
    el("div", {class: "filters"}, menu("a", "Show", null), menu("b", "beside", "nothing")));
}

function panel(question, {setting, row}, tree, view) {
  const facts = row === undefined ? [] : [
    ["status", visible(row.status)], ["steps", String(row.steps)], ["candidates", formatNumber(row.candidates)],
    ["tokens", `${formatNumber(row.tokens)} (policy ${formatNumber(row.generated)}, PRM ${formatNumber(row.prm_computed)})`],
    ["FLOPs", formatLarge(row.flops)], ["seconds", row.seconds.toFixed(3)],
  ];
  return el("section", {class: "panel", "aria-label": setting.name},
    el("h3", {}, el("span", {class: "swatch", style: {"background-color": setting.color}}), setting.name),
    row === undefined ? el("p", {class: "note"}, "This configuration did not search the question.") : [
      el("p", {}, outcomeOf(row, tree)),
      tree === null ? null : fateOf(tree),
      row.reason === "" ? null : el("p", {class: "note"}, shortLine(row.reason, 500)),
      el("dl", {class: "facts"}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ],
    tree === null || row === undefined
      ? row === undefined ? null : el("p", {class: "note"}, "The run has no search tree of it: recipes with \"trees: true\" write them.")
      : [stepTable(tree), view.element]);
}

// Where there is a tree, the sentence on the right path says more than the row.
function outcomeOf(row, tree) {
  const {mark, word, kind} = verdict(row);
  return [el("span", {class: `verdict ${kind}`}, mark), ` ${word}`,
    row.answer === null ? "" : [": ", el("b", {}, shortLine(row.answer, 200))],
    tree === null && !row.correct && row.covered ? el("span", {class: "note"}, " · another finished path has the right answer") : null];
}

// What became of the right path, and how that is known; a remark at the question has no line of its own.
function fateOf(tree) {
  return [
    el("p", {class: "fate"}, shortLine(tree.fate.sentence, 1000), remarkBadge(tree.remark(0))),
    el("p", {class: "note"}, tree.fate.knowledge),
  ];
}

function stepTable(tree) {
  const steps = stepsOf(tree);
  const most = steps.reduce((found, step) => Math.max(found, step.sampled), 1);
  let spent = 0;
  return el("details", {class: "step-table"},
    el("summary", {}, `Budget over ${plural(steps.length, "step")}: ${plural(tree.size, "candidate")}` +
      (tree.numDecisions > 0 ? `, ${plural(tree.numDecisions, "decision")}` : "")),
    el("div", {class: "scroll"}, el("table", {},
      el("thead", {}, el("tr", {}, ["Step", "Sampled", "", "Kept", "Finished", "Invalid", "Tokens", "so far"]
        .map((name) => el("th", {scope: "col", class: name === "" ? null : "number"}, name)))),
      el("tbody", {}, steps.map((step, index) => {
        spent += step.tokens;
        return el("tr", {}, numberCell(index + 1), numberCell(step.sampled),
          el("td", {class: "bar", "aria-hidden": true},
            el("span", {class: "sampled", style: {width: `${(100 * step.sampled) / most}%`}},
              el("span", {class: "kept", style: {width: `${(100 * step.kept) / Math.max(step.sampled, 1)}%`}}))),
          numberCell(step.kept), numberCell(step.finished), numberCell(step.invalid), numberCell(step.tokens), numberCell(spent));
      })))));
}

function differenceLine(compared, views) {
  const {first, steps, answers} = compared;
  if (first === null) return el("p", {class: "difference"}, "Both keep the same paths at every step.");
  const {both, left, right} = steps[first];
  const go = () => {
    const nodes = [compared.onlyLeft, compared.onlyRight].map((set) => [...set][0]);
    views.forEach((view, side) => nodes[side] !== undefined && view.reveal(nodes[side]));
  };
  return el("p", {class: "difference"},
    `Kept paths first differ at step ${first + 1}: ${plural(both, "path")} on both sides, ${formatNumber(left)} only left, ${formatNumber(right)} only right. `,
    answers === null ? "" : `The paths of the answers part at step ${answers + 1}. `,
    el("button", {type: "button", on: {click: go}}, "Go there"));
}
