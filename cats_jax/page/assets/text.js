// Texts of models, data sets and recipes: untrusted, of any length, with any character.

// Control characters, characters that change the direction of writing or have no shape, and halves
// of characters. Each is shown as a box, so that a text can't pretend to be another one.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu;
// Marks that are drawn above and below a letter: more than a few would be drawn over other lines.
const TOWERS = /(\p{M}{6})\p{M}+/gu;
const FIRST_CHARACTERS = 1500;
const NEXT_CHARACTERS = 10000;

function visible(text) {
  return text.replace(HIDDEN, (character) =>
    character === "\n" || character === "\t" ? character : "\ufffd").replace(TOWERS, "$1\ufffd");
}

// A text as the index has it: a string, or [beginning, length] of a longer one.
function beginning(text) {
  return typeof text === "string" ? text : text[0];
}

// One line without mathematics, for tables, menus and titles.
function shortLine(text, most = 200) {
  const line = visible(beginning(text).slice(0, 4 * most)).replace(/\s+/g, " ").trim();
  return line.length <= most ? line : `${line.slice(0, most - 1)}…`;
}

// The text with its mathematics; a long one continues on demand.
function modelText(text) {
  const whole = beginning(text);
  const element = el("span", {class: "model", dir: "auto"});
  let shown = 0;
  const more = el("button", {type: "button", class: "link", on: {click: (event) => {
    event.stopPropagation();
    grow(NEXT_CHARACTERS);
  }}});
  function grow(count) {
    const part = whole.slice(shown, shown + count);
    shown += part.length;
    more.remove();
    element.append(...withMathematics(visible(part)));
    if (shown < whole.length) {
      more.textContent = `… ${formatNumber(whole.length - shown)} more characters`;
      element.append(more);
    } else if (typeof text !== "string") {
      element.append(el("span", {class: "note"},
        ` … the text goes on: it has ${formatNumber(text[1])} characters, the page holds ${formatNumber(whole.length)}`));
    }
  }
  grow(FIRST_CHARACTERS);
  return element;
}
