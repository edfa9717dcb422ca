// A tree as nested lists that open on demand: what is folded is not in the document.

const FIRST_KEPT = 6; // kept children drawn at once; the others are folded
const FIRST_DROPPED = 2;
const NEXT_FOLDED = 100;

// Returns {element, reveal(id), focus()}. `options`: label, onlyHere (set of nodes or null), choose(id).
function treeView(tree, options) {
  const list = el("ul", {role: "tree", "aria-label": options.label, class: "tree"});
  let selected = null;

  function select(item) {
    if (selected === item) return;
    if (selected !== null) {
      selected.setAttribute("aria-selected", "false");
      selected.tabIndex = -1;
      selected.querySelector(":scope > .detail")?.remove();
    }
    selected = item;
    item.setAttribute("aria-selected", "true");
    item.tabIndex = 0;
    if (item.dataset.node !== undefined) {
      item.querySelector(":scope > .line").after(detailOf(tree, item.nodes));
      options.choose(item.dataset.node);
    }
  }

  function focusOn(item) {
    select(item);
    item.focus({preventScroll: true});
    item.querySelector(":scope > .line").scrollIntoView({block: "nearest"});
  }

  function toggle(item, open = item.getAttribute("aria-expanded") === "false") {
    if (item.dataset.fold !== undefined) return unfold(item);
    if (!item.hasAttribute("aria-expanded")) return undefined;
    item.setAttribute("aria-expanded", String(open));
    item.querySelector(":scope > [role=group]")?.remove();
    if (!open) {
      if (selected !== null && !list.contains(selected)) focusOn(item);
      return undefined;
    }
    const items = childItems(item.nodes, Number(item.getAttribute("aria-level")) + 1);
    item.append(el("ul", {role: "group"}, items));
    // A path without other ways opens as a whole.
    const ways = items.filter((child) => child.hasAttribute("aria-expanded"));
    if (ways.length === 1) toggle(ways[0], true);
    return undefined;
  }

  function unfold(item) {
    const [first, rest] = [item.folded.slice(0, NEXT_FOLDED), item.folded.slice(NEXT_FOLDED)];
    const drawn = first.map((ids) => nodeItem(ids, item.level));
    const next = rest.length > 0 ? [foldItem(rest, item.level, item.word)] : [];
    const hadFocus = selected === item;
    item.replaceWith(...drawn, ...next);
    if (hadFocus) focusOn(drawn[0]);
  }

  // `ids`: nodes with equal paths, the one that speaks for them first.
  function nodeItem(ids, level) {
    const [id] = ids;
    const opens = ids.some((one) => tree.children(one).length > 0) || tree.decisionsAt(ids).length > 0;
    const item = el("li", {role: "treeitem", tabindex: -1, "aria-level": level, "aria-selected": "false",
      "aria-expanded": opens ? "false" : null, "data-node": id,
      class: tree.chosen.has(id) ? "chosen" : tree.kept(id) ? "kept" : "dropped"});
    item.nodes = ids;
    const opener = el("span", {class: "opener", "aria-hidden": true});
    const line = lineOf(tree, ids, options.onlyHere);
    line.prepend(opener);
    line.addEventListener("click", (event) => {
      if (event.target.closest("button, summary") !== null) return;
      select(item);
      if (event.target === opener || event.detail === 2) toggle(item);
    });
    item.append(line);
    return item;
  }

  function foldItem(folded, level, word) {
    const item = el("li", {role: "treeitem", tabindex: -1, "aria-level": level, "aria-selected": "false",
      class: "fold", "data-fold": word});
    Object.assign(item, {folded, level, word});
    item.append(el("div", {class: "line", on: {click: () => {
      select(item);
      unfold(item);
    }}}, el("span", {class: "opener", "aria-hidden": true}), describeFolded(tree, folded.flat(), word)));
    return item;
  }

  function childItems(parents, level) {
    const best = (ids) => Math.max(...ids.map((id) => tree.pathScore(id) ?? -1));
    const byScore = (one, two) => best(two) - best(one) || one[0] - two[0];
    const first = (one, two) => tree.chosen.has(two[0]) - tree.chosen.has(one[0]) ||
      (remarkAmong(tree, two) !== null) - (remarkAmong(tree, one) !== null) || byScore(one, two);
    const lines = equalPaths(tree, parents.flatMap(tree.children));
    const leading = lines.filter((ids) => ids.some(tree.leadsOn)).sort(first);
    const dropped = lines.filter((ids) => !ids.some(tree.leadsOn)).sort(byScore);
    const items = grouped(tree.decisionsAt(parents), JSON.stringify).map(decisionItem);
    for (const [found, first, word] of [[leading, FIRST_KEPT, "kept"], [dropped, FIRST_DROPPED, "dropped"]]) {
      // A fold of one line would save nothing.
      const shown = found.length <= first + 1 ? found.length : first;
      items.push(...found.slice(0, shown).map((ids) => nodeItem(ids, level)));
      if (shown < found.length) items.push(foldItem(found.slice(shown), level, word));
    }
    return items;
  }

  function itemOf(group, id) {
    for (;;) {
      const items = [...group.children].filter((child) => child.getAttribute("role") === "treeitem");
      const found = items.find((item) => item.nodes?.includes(id));
      if (found !== undefined) return found;
      const fold = items.find((item) => item.folded?.some((ids) => ids.includes(id)));
      if (fold === undefined) return null;
      unfold(fold);
    }
  }

  // Opens the way to a node and returns its line.
  function itemFor(id) {
    let group = list;
    let item = null;
    for (const node of tree.wayTo(id)) {
      if (item !== null) {
        if (item.getAttribute("aria-expanded") !== "true") toggle(item, true);
        group = item.querySelector(":scope > [role=group]");
      }
      item = itemOf(group, node);
      if (item === null) return null;
    }
    return item;
  }

  list.append(...childItems([0], 1));
  list.addEventListener("keydown", (event) => treeKey(event, {list, focusOn, toggle}));
  list.addEventListener("focusin", (event) => {
    if (event.target.getAttribute("role") === "treeitem") select(event.target);
  });
  const first = list.querySelector("[role=treeitem]");
  if (first !== null) first.tabIndex = 0;
  const best = tree.chosen.size > 0 ? [...tree.chosen].at(-1) : [...tree.ends][0];
  if (best !== undefined) itemFor(best);
  return {
    element: list,
    reveal(id) {
      const item = id >= 1 && id <= tree.size ? itemFor(id) : null;
      if (item !== null) focusOn(item);
      return item !== null;
    },
    focus() {
      const item = selected ?? list.querySelector("[role=treeitem]");
      if (item !== null) focusOn(item);
    },
  };
}

// Nodes with equal paths, together: one on the answer's path first, then those kept.
function equalPaths(tree, ids) {
  const rank = (id) => 2 * tree.chosen.has(id) + tree.kept(id);
  return grouped(ids, tree.first).map((same) => same.sort((one, two) => rank(two) - rank(one) || one - two));
}

function remarkAmong(tree, ids) {
  return ids.map(tree.remark).find((remark) => remark !== null) ?? null;
}

// "×4, 2 kept": four equal steps, of which two were kept.
function timesOf(tree, ids) {
  const kept = ids.filter(tree.kept).length;
  return `×${formatNumber(ids.length)}${kept > 0 && kept < ids.length ? `, ${formatNumber(kept)} kept` : ""}`;
}

function lineOf(tree, ids, onlyHere) {
  const [id] = ids;
  const invalid = tree.invalid(id);
  const [mark, word] = invalid !== null ? ["×", "invalid"] : tree.chosen.has(id) ? ["★", "on the answer's path"]
    : tree.kept(id) ? ["●", "kept"] : ["○", "dropped"];
  const answer = tree.answer(id);
  return el("div", {class: "line"},
    el("span", {class: "mark", role: "img", "aria-label": word, title: word}, mark),
    invalid === null ? scoreChip(tree.pathScore(id), "path score") : null,
    el("span", {class: "text"}, modelText(tree.text(id)),
      ids.length > 1 ? el("span", {class: "badge times"}, timesOf(tree, ids)) : null,
      invalid === null ? null : el("span", {class: "badge invalid"}, `invalid: ${shortLine(invalid, 40)}`),
      tree.done(id) ? el("span", {class: "badge finished"}, ids.some((one) => tree.ends.has(one)) ? "⚑ " : "", "→ ",
        answer === null ? "no answer" : shortLine(answer, 80)) : null,
      remarkBadge(remarkAmong(tree, ids)),
      ids.some((one) => onlyHere?.has(one)) ? el("span", {class: "badge only"}, "kept only here") : null));
}

// What became of the right path at a node, as cats_jax/reporting/right_path.py has it.
function remarkBadge(remark) {
  return remark === null ? null : el("span", {class: "badge remark"}, el("span", {"aria-hidden": true}, "◀ "), shortLine(remark, 200));
}

function describeFolded(tree, ids, word) {
  const scores = ids.map(tree.pathScore).filter((score) => score !== null);
  const invalid = ids.filter((id) => tree.invalid(id) !== null).length;
  const low = scores.reduce((one, two) => Math.min(one, two), 1);
  const high = scores.reduce((one, two) => Math.max(one, two), 0);
  const range = scores.length === 0 ? "" : `, path scores ${formatScore(low)} to ${formatScore(high)}`;
  return `${formatNumber(ids.length)} more ${word}${range}${invalid > 0 ? `, ${invalid} invalid` : ""}`;
}

// Facts of a node, the first of those that share its line.
function detailOf(tree, [id, ...others]) {
  const facts = [
    ["candidate", others.length === 0 ? String(id) : `${id} (and ${plural(others.length, "equal one")})`], ["step", String(tree.step(id) + 1)],
    ...(tree.numDecisions > 0 ? [["round", String(tree.phase(id))]] : []),
    ["tokens", String(tree.tokens(id))],
    ["score of the step", tree.score(id) === null ? "none" : tree.score(id).toFixed(4)],
    ["score of the path", tree.pathScore(id) === null ? "none" : tree.pathScore(id).toFixed(4)],
    ["log-probability", tree.logProb(id) === null ? "none" : `${tree.logProb(id).toFixed(2)} nats`],
  ];
  return el("dl", {class: "detail"}, facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// What the controller saw and did at nodes with equal paths, before the children that came of it;
// `same`: equal decisions.
function decisionItem(same) {
  const [decision] = same;
  const sampling = decision.extra === 0 ? "" : `, temperature ${decision.temperature}` +
    (decision.topP < 1 ? `, top-p ${decision.topP}` : "") + (decision.topK > 0 ? `, top-k ${decision.topK}` : "");
  const granted = decision.granted === decision.extra ? "" : ` (got ${decision.granted})`;
  const seen = decision.features.filter(([name, value]) => !(value === 0 && /^score_\d+$/.test(name)));
  return el("li", {role: "none", class: "decision"}, el("details", {},
    el("summary", {}, `round ${decision.phase}: `, el("b", {}, `${decision.extra} more${granted}, keep ${decision.retain}`),
      sampling, decision.reward === null ? "" : `, reward ${decision.reward.toFixed(3)}`,
      same.length > 1 ? `  ×${formatNumber(same.length)}` : ""),
    el("dl", {class: "features"}, seen.map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value === null ? "–" : String(value)))))));
}

function treeKey(event, {list, focusOn, toggle}) {
  const item = event.target;
  if (item.getAttribute("role") !== "treeitem" || event.ctrlKey || event.metaKey || event.altKey) return;
  const items = [...list.querySelectorAll("[role=treeitem]")];
  const to = (found) => found && focusOn(found);
  const at = items.indexOf(item);
  const open = item.getAttribute("aria-expanded");
  switch (event.key) {
    case "ArrowDown": case "j": to(items[at + 1]); break;
    case "ArrowUp": case "k": to(items[at - 1]); break;
    case "Home": to(items[0]); break;
    case "End": to(items.at(-1)); break;
    case "ArrowRight": case "l":
      if (open === "false" || item.dataset.fold !== undefined) toggle(item);
      else if (open === "true") to(items[at + 1]);
      break;
    case "ArrowLeft": case "h":
      if (open === "true") toggle(item, false);
      else to(item.parentElement.closest("[role=treeitem]"));
      break;
    case "Enter": case " ": toggle(item); break;
    default: return;
  }
  event.preventDefault();
  event.stopPropagation();
}
