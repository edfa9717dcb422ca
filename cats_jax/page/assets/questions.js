// The table of questions: filters, order, and a mark for each configuration.

const FIRST_QUESTIONS = 200; // drawn at once; the next ones follow when the reader comes to the end
const MOST_MARKS = 60;
const MOST_ANSWERS = 4; // configurations whose answers are shown; with more there is a mark for each

const OUTCOMES = [
  ["", "any outcome"],
  ["wrong", "some wrong"], ["all-wrong", "all wrong"],
  ["right", "some right"], ["all-right", "all right"],
  ["mixed", "some right, some wrong"],
  ["lost", "a right path that was not chosen"],
];

const DIFFERENCES = [
  ["", "all questions"],
  ["correct", "where right and wrong differ"],
  ["first", "first right, second wrong"], ["second", "first wrong, second right"],
  ["answer", "where the answers differ"],
];

// The configurations that the filters leave.
function shownConfigurations(part, state) {
  return part.configurations.filter((setting) =>
    (state.strategy === "" || setting.label === state.strategy) &&
    (state.n === "" || String(setting.n) === state.n) &&
    (state.prm === "" || (setting.prm ?? "-") === state.prm) &&
    (state.seed === "" || String(setting.seed) === state.seed));
}

function findConfiguration(part, key) {
  return part.configurations.find((setting) => setting.key === key) ?? null;
}

// The questions that the filters leave, in the order asked for; each with its rows that count.
function selectQuestions(part, state) {
  const shown = new Set(shownConfigurations(part, state).map((setting) => setting.index));
  const [a, b] = [findConfiguration(part, state.a), findConfiguration(part, state.b)];
  const words = state.text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const found = [];
  for (const question of part.questions) {
    if (state.dataset !== "" && question.dataset !== state.dataset) continue;
    if (state.level !== "" && question.level !== state.level) continue;
    if (!words.every((word) => question.searched.includes(word))) continue;
    const rows = question.rows.filter((row) =>
      shown.has(row.configuration) && (state.status === "" || row.status === state.status));
    if (rows.length === 0 || !hasOutcome(rows, state.outcome)) continue;
    const rowA = a && question.byConfiguration.get(a.index);
    const rowB = b && question.byConfiguration.get(b.index);
    if (!differsAs(rowA, rowB, state.differ)) continue;
    const mean = (value) => rows.reduce((sum, row) => sum + value(row), 0) / rows.length;
    found.push({question, rows, share: mean((row) => (row.correct ? 1 : 0)), tokens: mean((row) => row.tokens)});
  }
  return sorted(found, state.sort);
}

function hasOutcome(rows, outcome) {
  const right = rows.filter((row) => row.correct).length;
  switch (outcome) {
    case "wrong": return right < rows.length;
    case "all-wrong": return right === 0;
    case "right": return right > 0;
    case "all-right": return right === rows.length;
    case "mixed": return right > 0 && right < rows.length;
    case "lost": return rows.some((row) => row.covered && !row.correct);
    default: return true;
  }
}

function differsAs(rowA, rowB, how) {
  if (how === "") return true;
  if (!rowA || !rowB) return false;
  if (how === "answer") return rowA.answer !== rowB.answer;
  if (how === "first") return rowA.correct && !rowB.correct;
  if (how === "second") return !rowA.correct && rowB.correct;
  return rowA.correct !== rowB.correct;
}

const ORDERS = {
  order: (entry) => entry.question.index,
  question: (entry) => beginning(entry.question.text ?? entry.question.id),
  level: (entry) => entry.question.level ?? "",
  gold: (entry) => entry.question.gold,
  right: (entry) => entry.share,
  tokens: (entry) => entry.tokens,
};

function sorted(found, sort) {
  const down = sort.startsWith("-");
  const key = ORDERS[down ? sort.slice(1) : sort] ?? ORDERS.order;
  const compare = (one, two) => {
    const [x, y] = [key(one), key(two)];
    const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", {numeric: true});
    return (down ? -order : order) || one.question.index - two.question.index;
  };
  return found.sort(compare);
}

function questionsView(part, state) {
  return el("div", {class: "questions"}, filterBar(part, state), questionTable(part, state));
}

function filterBar(part, state) {
  const distinct = (values) => [...new Set(values)];
  const numeric = (one, two) => one.localeCompare(two, "en", {numeric: true});
  const menu = (name, label, options) => options.length <= 2 && state[name] === "" ? null
    : el("label", {}, label, el("select", {name, on: {change: (event) => go({[name]: event.target.value})}},
      options.map(([value, text]) => el("option", {value, selected: value === state[name]}, shortLine(text, 60)))));
  const all = (text, values) => [["", text], ...values.map((value) => [value, value])];
  const settings = part.configurations.map((setting) => [setting.key, setting.name]);
  const search = el("input", {type: "search", name: "text", id: "search", value: state.text,
    placeholder: "question, id, answer", autocomplete: "off", spellcheck: "false"});
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      note({text: search.value});
      renderTable();
    }, 120);
  });
  return el("form", {class: "filters", role: "search", on: {submit: (event) => event.preventDefault()}},
    el("label", {class: "wide"}, "Search", search),
    menu("strategy", "Strategy", [["", "all"], ...part.strategies.map(([label, title]) => [label, title])]),
    menu("n", "N", all("all", distinct(part.configurations.map((setting) => String(setting.n))).sort(numeric))),
    menu("prm", "PRM", [["", "all"], ...distinct(part.configurations.map((setting) => setting.prm ?? "-"))
      .map((prm) => [prm, prm === "-" ? "none" : prm])]),
    menu("seed", "Seed", all("all", distinct(part.configurations.map((setting) => String(setting.seed))).sort(numeric))),
    menu("dataset", "Data set", all("all", distinct(part.questions.map((question) => question.dataset)))),
    menu("level", "Level", all("all", distinct(part.questions.map((question) => question.level ?? "")).filter((level) => level !== "").sort(numeric))),
    menu("status", "Status", all("any", distinct(part.rows.status))),
    menu("outcome", "Outcome", OUTCOMES),
    part.configurations.length < 2 ? null : [
      menu("a", "Compare", [["", "nothing"], ...settings]),
      menu("b", "with", [["", "nothing"], ...settings]),
      state.a === "" || state.b === "" ? null : menu("differ", "Show", DIFFERENCES),
    ],
    el("a", {class: "button", href: hashOf({...DEFAULTS, view: "questions", part: state.part})}, "Clear"));
}

function questionTable(part, state) {
  const found = selectQuestions(part, state);
  const shown = shownConfigurations(part, state);
  const compared = [findConfiguration(part, state.a), findConfiguration(part, state.b)].filter((setting) => setting !== null);
  const answering = compared.length > 0 ? compared : shown.length <= MOST_ANSWERS ? shown : [];
  const hasLevels = part.questions.some((question) => question.level !== null);
  const columns = [
    ["order", "#", true], ["question", "Question"], ...(hasLevels ? [["level", "Level", true]] : []),
    ["gold", "Right answer"], ["right", "Right", true, "configurations with the right answer, of those searched"],
    shown.length === 1 ? ["tokens", "Tokens", true]
      : ["tokens", "Mean tokens", true, "mean over the configurations that the filters leave"],
  ];
  const head = columns.map(([name, label, isNumber, title]) => {
    const direction = state.sort === name ? "ascending" : state.sort === `-${name}` ? "descending" : null;
    const next = state.sort === name ? `-${name}` : name;
    return el("th", {scope: "col", class: isNumber ? "number" : null, "aria-sort": direction},
      el("button", {type: "button", class: "sort", title, on: {click: () => go({sort: next})}},
        label, el("span", {"aria-hidden": true}, direction === "ascending" ? " ▲" : direction === "descending" ? " ▼" : "")));
  });
  const body = el("tbody");
  const end = el("p", {class: "note"});
  let drawn = 0;
  const draw = () => {
    body.append(...found.slice(drawn, drawn + FIRST_QUESTIONS)
      .map((entry) => questionRow(part, entry, {answering, shown, hasLevels})));
    drawn = Math.min(drawn + FIRST_QUESTIONS, found.length);
    replaceChildren(end, drawn < found.length ? el("button", {type: "button", on: {click: draw}},
      `${formatNumber(found.length - drawn)} more questions`) : null);
  };
  draw();
  if (typeof IntersectionObserver === "function") {
    new IntersectionObserver((seen) => {
      if (drawn < found.length && seen.some((entry) => entry.isIntersecting)) draw();
    }).observe(end);
  }
  const marksTitle = answering.length > 0
    ? answering.map((setting) => el("th", {scope: "col"}, visible(setting.title), el("br"), el("small", {}, setting.rest)))
    : el("th", {scope: "col", class: "marks-head"}, marksLegend(shown));
  return el("div", {id: "question-table"},
    el("p", {class: "count", role: "status"},
      `${formatNumber(found.length)} of ${plural(part.questions.length, "question")}, ${plural(shown.length, "configuration")}`),
    found.length === 0 ? el("p", {class: "note"}, "No question fits these filters.")
      : el("div", {class: "scroll", tabindex: "-1"}, el("table", {class: "questions-table"},
        el("thead", {}, el("tr", {}, head, marksTitle)), body)),
    end);
}

function questionRow(part, entry, {answering, shown, hasLevels}) {
  const {question, rows, share, tokens} = entry;
  const right = rows.filter((row) => row.correct).length;
  const title = question.text === null ? question.id : question.text;
  return el("tr", {on: {click: (event) => {
    if (event.target.closest("a, button") === null) event.currentTarget.querySelector("a").click();
  }}},
    el("td", {class: "number"}, String(question.index + 1)),
    el("td", {class: "title"}, el("a", {class: "open", href: linkToQuestion(part, question, entry), "data-question": question.key},
      shortLine(title, 160))),
    hasLevels ? el("td", {class: "number"}, question.level === null ? "–" : shortLine(question.level, 20)) : null,
    el("td", {class: "answer"}, shortLine(question.gold, 40)),
    el("td", {class: "number"}, rows.length === 1 ? (right ? "✓" : "✗") : `${right}/${rows.length}`,
      el("span", {class: "share", "aria-hidden": true}, el("span", {style: {width: `${100 * share}%`}}))),
    numberCell(Math.round(tokens)),
    answering.length > 0 ? answering.map((setting) => answerCell(question.byConfiguration.get(setting.index)))
      : el("td", {class: "marks"}, marksOf(question, rows, shown)));
}

function answerCell(row) {
  if (row === undefined) return el("td", {class: "note"}, "not searched");
  const {mark, word, kind} = verdict(row);
  return el("td", {class: `answer ${kind}`}, el("span", {class: "verdict", title: word}, mark), " ",
    shortLine(row.answer ?? word, 40));
}

// Configurations of one strategy and PRM, whose marks stand together.
function markGroups(shown) {
  return grouped(shown.slice(0, MOST_MARKS), (setting) => `${setting.strategy}|${setting.prm ?? "-"}`);
}

// Which configuration each mark stands for: groups and marks from left to right.
function marksLegend(shown) {
  const left = shown.length - MOST_MARKS;
  return [
    el("span", {}, "✓ right, ✗ wrong, – no answer, ! failed, · no row; from left to right:"),
    el("ol", {class: "marks-legend"}, markGroups(shown).map((settings) => {
      const [{title, color, prm}] = settings;
      const sizes = [...new Set(settings.map((setting) => setting.n))].join(", ");
      const seeds = new Set(settings.map((setting) => setting.seed)).size;
      return el("li", {}, el("span", {class: "swatch", style: {"background-color": color}}), visible(title),
        prm === null ? "" : ` ${visible(prm)}`, ` N=${sizes}${seeds > 1 ? `, ${seeds} seeds each` : ""}`);
    })),
    left > 0 ? el("span", {}, `${left} more have no mark: choose by the filters.`) : null,
  ];
}

function marksOf(question, rows, shown) {
  const counted = new Map(rows.map((row) => [row.configuration, row]));
  return markGroups(shown).map((settings) => el("span", {class: "mark-group"}, settings.map((setting) => {
    const row = counted.get(setting.index);
    const {mark, word, kind} = row === undefined ? {mark: "·", word: "no row", kind: "none"} : verdict(row);
    const text = `${setting.name}: ${word}`;
    return row === undefined ? el("span", {class: "verdict none", role: "img", title: text, "aria-label": text}, mark)
      : el("a", {class: `verdict ${kind}`, title: text, "aria-label": text, tabindex: "-1",
        href: linkTo({question: question.key, a: setting.key, b: "", node: "", nodeb: ""})}, mark);
  })));
}

// Opens what is compared, otherwise the first configuration shown that has a tree.
function linkToQuestion(part, question, entry) {
  const state = readState();
  const first = entry.rows.find((row) => row.tree !== null) ?? entry.rows[0];
  return linkTo({question: question.key, a: state.a || part.configurations[first.configuration].key, node: "", nodeb: ""});
}
