// A tree as the page holds it (columns, see cats_jax/page/trees.py) with ways to ask about its nodes.

const KEPT = 1;
const DONE = 2;

function readTree(raw, featureNames) {
  const size = raw.parent.length;
  const value = (column, index) => (Array.isArray(column) ? column[index] : column);
  const scaled = (column, id, unit) => {
    const found = value(column, id - 1);
    return found === null ? null : found / unit;
  };
  const answers = new Map(raw.answers);
  const invalid = new Map(raw.invalid);
  const remarks = new Map(raw.fate.remarks);
  const children = Array.from({length: size + 1}, () => []);
  // A rewrite begins at the question; it is drawn below the answer that it rewrites.
  const rewrites = new Map(raw.rewrites);
  const above = (id) => rewrites.get(id) ?? raw.parent[id - 1];
  raw.parent.forEach((_, index) => children[above(index + 1)].push(index + 1));
  const decisions = new Map();
  raw.decisions.node.forEach((node, index) => {
    if (!decisions.has(node)) decisions.set(node, []);
    decisions.get(node).push(index);
  });
  const tree = {
    size,
    ends: new Set(raw.ends),
    text: (id) => raw.texts[raw.text[id - 1]],
    // The first node with an equal path; nodes with the same one are drawn as one line.
    first: (id) => value(raw.first, id - 1) || id,
    parent: (id) => raw.parent[id - 1],
    step: (id) => value(raw.step, id - 1),
    phase: (id) => value(raw.phase, id - 1),
    tokens: (id) => value(raw.tokens, id - 1),
    score: (id) => scaled(raw.score, id, 10000),
    pathScore: (id) => scaled(raw.path_score, id, 10000),
    logProb: (id) => scaled(raw.log_prob, id, 100),
    kept: (id) => (value(raw.flags, id - 1) & KEPT) !== 0,
    done: (id) => (value(raw.flags, id - 1) & DONE) !== 0,
    answer: (id) => (answers.has(id) ? raw.texts[answers.get(id)] : null),
    invalid: (id) => (invalid.has(id) ? raw.texts[invalid.get(id)] : null),
    remark: (id) => remarks.get(id) ?? null, // 0 is the question
    fate: raw.fate,
    children: (id) => children[id],
    decisionsAt: (ids) => ids.flatMap((id) => decisions.get(id) ?? []).map((index) => decisionAt(raw.decisions, index, featureNames))
      .sort((one, two) => one.phase - two.phase),
    numDecisions: raw.decisions.node.length,
  };
  const upwards = (id, next) => {
    const path = [];
    for (let at = id; at > 0; at = next(at)) path.push(at);
    return path.reverse();
  };
  tree.pathTo = (id) => upwards(id, tree.parent);
  // The drawn nodes from the question to a node.
  tree.wayTo = (id) => upwards(id, above);
  tree.chosen = new Set(raw.chosen === null ? [] : tree.pathTo(raw.ends[raw.chosen]));
  tree.leadsOn = (id) => tree.kept(id) || tree.chosen.has(id) || remarks.has(id) || children[id].length > 0;
  return tree;
}

function decisionAt(columns, index, featureNames) {
  const value = (column) => (Array.isArray(column) ? column[index] : column);
  const names = columns.features.length === featureNames.length ? featureNames
    : columns.features.map((_, feature) => `feature ${feature + 1}`);
  return {
    phase: columns.phase[index],
    extra: columns.num_extra[index],
    retain: columns.num_retain[index],
    granted: columns.granted[index],
    temperature: value(columns.temperature),
    topP: value(columns.top_p),
    topK: columns.top_k[index],
    reward: columns.reward[index] === null ? null : columns.reward[index] / 10000,
    features: names.map((name, feature) => [name, value(columns.features[feature])]),
  };
}

// What each step of the search sampled, kept and cost.
function stepsOf(tree) {
  const steps = [];
  for (let id = 1; id <= tree.size; id += 1) {
    const step = tree.step(id);
    while (steps.length <= step) steps.push({sampled: 0, kept: 0, finished: 0, invalid: 0, tokens: 0});
    const entry = steps[step];
    entry.sampled += 1;
    entry.tokens += tree.tokens(id);
    if (tree.kept(id)) entry.kept += 1;
    if (tree.ends.has(id)) entry.finished += 1;
    if (tree.invalid(id) !== null) entry.invalid += 1;
  }
  return steps;
}
