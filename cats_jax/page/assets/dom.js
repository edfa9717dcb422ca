// Elements of the document. Texts become text nodes, never HTML.

// el("td", {class: "number", on: {click: f}}, "text", anotherElement, null)
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...presentIn(children));
  return element;
}

// Lists may be nested; null stands for nothing.
function presentIn(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined);
}

function replaceChildren(element, ...children) {
  element.replaceChildren(...presentIn(children));
}

// A table cell for a number, with thousands apart.
function numberCell(value, digits = 0) {
  return el("td", {class: "number"}, formatNumber(value, digits));
}

function formatNumber(value, digits = 0) {
  return value.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// 1234567 -> "1.23 M"; FLOPs go up to the peta.
function formatLarge(value) {
  const units = ["", "k", "M", "G", "T", "P", "E"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${units[unit] ? ` ${units[unit]}` : ""}`;
}

function plural(count, one, many = `${one}s`) {
  return `${formatNumber(count)} ${count === 1 ? one : many}`;
}
