// Keys outside of the trees; those inside are in tree_view.js.

const KEYS = [
  ["j, k or ↓, ↑", "next or previous question, or line of a tree"],
  ["Enter", "open the question; open or close a line of a tree"],
  ["→, ←", "in a tree: open or go in, close or go out"],
  ["Tab", "to the other tree"],
  ["[, ]", "previous or next question of the list"],
  ["/", "search"],
  ["s, t", "summary, table of questions"],
  ["Esc", "back"],
  ["?", "these keys"],
];

function fillHelp() {
  const dialog = document.getElementById("help");
  replaceChildren(dialog, el("h2", {}, "Keys"),
    el("dl", {class: "keys"}, KEYS.map(([key, text]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)))),
    el("form", {method: "dialog"}, el("button", {}, "Close")));
}

function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.getElementById("help").open) return;
    const state = readState();
    const typing = event.target.matches("input, select, textarea");
    if (typing) {
      if (event.key !== "Escape" && !(event.key === "Enter" && event.target.id === "search")) return;
      event.target.blur();
      if (event.key === "Enter") moveRow(1);
    } else if (!actOn(event.key, state)) {
      return;
    }
    event.preventDefault();
  });
}

function actOn(key, state) {
  const inQuestion = state.question !== "";
  switch (key) {
    case "?": document.getElementById("help").showModal(); return true;
    case "s": go(toView("summary")); return true;
    case "t": go(toView("questions")); return true;
    case "/":
      if (inQuestion || state.view !== "questions") go(toView("questions"));
      afterRender(() => document.getElementById("search")?.focus());
      return true;
    case "Escape":
      if (inQuestion) go(toView("questions"));
      else if (state.view === "questions") go(toView("summary"));
      return true;
    case "[": document.querySelector("#go-previous[href]")?.click(); return inQuestion;
    case "]": document.querySelector("#go-next[href]")?.click(); return inQuestion;
    case "j": case "ArrowDown": return moveRow(1);
    case "k": case "ArrowUp": return moveRow(-1);
    default: return false;
  }
}

// Moves the focus among the links of the table.
function moveRow(by) {
  const links = [...document.querySelectorAll("a.open, table.accuracy a")];
  if (links.length === 0) return false;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({block: "nearest"});
  return true;
}
