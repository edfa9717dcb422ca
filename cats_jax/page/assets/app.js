// Start, and drawing of the view that the address asks for.

let pageIndex = null;
let lastQuestion = "";
let drawing = Promise.resolve();
let asked = 0;

function presentPart(state) {
  return pageIndex.parts[Number(state.part)] ?? pageIndex.parts[0];
}

// Draws the view of the address; when several are asked for in a row, the last one stays.
function render() {
  asked += 1;
  const number = asked;
  drawing = draw(number).catch((error) => {
    if (number === asked) showError(error);
  });
  return drawing;
}

async function draw(number) {
  const state = readState();
  const part = presentPart(state);
  const question = state.question === "" ? null : part.questions.find((found) => found.key === state.question) ?? null;
  const control = document.activeElement?.name ?? "";
  let view;
  if (state.question !== "" && question === null) {
    view = {element: el("p", {class: "note"}, `This page has no question ${shortLine(state.question, 80)}.`)};
  } else if (question !== null) {
    view = await questionView(part, state, question);
  } else {
    view = {element: state.view === "questions" ? questionsView(part, state) : summaryView(part)};
  }
  if (number !== asked) return;
  drawNavigation(state);
  replaceChildren(document.getElementById("main"), view.element);
  view.shown?.();
  const back = question === null && lastQuestion !== "" ? document.querySelector(`a.open[data-question="${CSS.escape(lastQuestion)}"]`) : null;
  if (control !== "" && document.getElementsByName(control).length > 0) document.getElementsByName(control)[0].focus();
  else if (back !== null) back.focus();
  lastQuestion = state.question;
}

function renderTable() {
  const state = readState();
  document.getElementById("question-table").replaceWith(questionTable(presentPart(state), state));
}

function afterRender(action) {
  // An address that changes is drawn after its event.
  setTimeout(() => drawing.then(action), 0);
}

function drawNavigation(state) {
  const link = (label, view, current) => el("a", {href: linkTo(state.question === "" ? {view} : toView(view)),
    "aria-current": current ? "page" : null}, label);
  replaceChildren(document.getElementById("views"),
    pageIndex.parts.length < 2 ? null : el("label", {}, "Runs", el("select", {name: "part",
      on: {change: (event) => go({...DEFAULTS, view: state.view, part: event.target.value})}},
      pageIndex.parts.map((part) => el("option", {value: part.number, selected: part === presentPart(state)}, shortLine(part.name, 60))))),
    link("Summary", "summary", state.question === "" && state.view !== "questions"),
    link("Questions", "questions", state.question === "" && state.view === "questions"),
    el("button", {type: "button", class: "link", "aria-keyshortcuts": "?", on: {click: () => document.getElementById("help").showModal()}}, "Keys ?"));
}

function showError(error) {
  replaceChildren(document.getElementById("main"),
    el("p", {class: "note", role: "alert"}, `This can't be shown: ${shortLine(String(error?.message ?? error), 500)}`));
}

async function start() {
  if (typeof DecompressionStream !== "function") {
    throw new Error("the browser can't unpack gzip (DecompressionStream): use one of 2023 or newer");
  }
  pageIndex = readIndex(await openBlock("index"));
  fillHelp();
  listenForKeys();
  window.addEventListener("hashchange", render);
  await render();
  performance.mark("ready");
}

start().catch(showError);
