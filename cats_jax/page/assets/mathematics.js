// LaTeX between $..$, $$..$$, \(..\) and \[..\] as MathML, by KaTeX. What it refuses stays text.

const OPENERS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];
const MOST_MATHEMATICS = 1000; // characters of one formula
const MOST_NESTING = 40; // braces within braces
const MOST_MILLISECONDS = 150; // spent on one text

// Nodes of a text: text nodes and formulas. The time is linear in the text's length.
function withMathematics(text) {
  const nodes = [];
  const until = performance.now() + MOST_MILLISECONDS;
  let from = 0;
  let at = 0;
  while (at < text.length) {
    const found = text[at] === "$" || text[at] === "\\" ? formulaAt(text, at) : null;
    const element = found && performance.now() < until ? formula(found.source, found.display) : null;
    if (element === null) {
      at += found ? found.length : text[at] === "\\" ? 2 : 1;
      continue;
    }
    nodes.push(text.slice(from, at), element);
    at += found.length;
    from = at;
  }
  nodes.push(text.slice(from));
  return nodes.filter((node) => node !== "");
}

function formulaAt(text, at) {
  for (const [open, close, display] of OPENERS) {
    if (!text.startsWith(open, at)) continue;
    const start = at + open.length;
    const end = text.slice(start, start + MOST_MATHEMATICS).indexOf(close);
    if (end < 1) return null;
    const source = text.slice(start, start + end);
    const after = text[start + end + close.length] ?? "";
    // "$5 and $6" are prices: a formula touches its dollar signs, and no digit follows.
    if (open === "$" && (/^\s|\s$/.test(source) || /\d/.test(after))) return null;
    return {source, display, length: open.length + end + close.length};
  }
  return null;
}

function formula(source, display) {
  if (nesting(source) > MOST_NESTING) return null;
  const element = el("span", {class: display ? "formula display" : "formula"});
  try {
    katex.render(source, element, {
      displayMode: display, output: "mathml", trust: refuse, throwOnError: true, strict: "ignore",
      maxSize: 5, maxExpand: 200,
    });
  } catch {
    return null; // no LaTeX that KaTeX knows
  }
  return element;
}

// For links, images and HTML attributes: the formula stays text, so that the reader sees what it says.
function refuse() {
  throw new Error("not trusted");
}

function nesting(source) {
  let depth = 0;
  let most = 0;
  for (const character of source) {
    if (character === "{") most = Math.max(most, (depth += 1));
    else if (character === "}") depth -= 1;
  }
  // x^x^x needs no braces, \left( \left( neither.
  return Math.max(most, source.split("\\left").length - 1, source.split("\\begin").length - 1);
}
