// The index of the page as objects; see cats_jax/page/index.py for what it holds.

function readIndex(index) {
  return {...index, parts: index.parts.map((part, number) => readPart(part, number))};
}

function readPart(part, number) {
  const severalSeeds = new Set(part.configurations.map((setting) => setting[3])).size > 1;
  const configurations = part.configurations.map(([strategy, n, prm, seed], index) => {
    const [label, title, color] = part.strategies[strategy];
    const key = `${label}|${n}|${prm ?? "-"}|${seed}`;
    const rest = `N=${n}${prm === null ? "" : `, PRM ${visible(prm)}`}${severalSeeds ? `, seed ${seed}` : ""}`;
    return {index, key, name: `${visible(title)} ${rest}`, rest, strategy, label, title, color, n, prm, seed};
  });
  const severalSets = new Set(part.questions.map((question) => question.dataset)).size > 1;
  const keys = new Set();
  const questions = part.questions.map((question, index) => {
    // An address can't hold half of a surrogate pair, and two long ids may begin alike.
    const name = (question.dataset ? `${question.dataset}/${question.id}` : question.id).replace(/\p{Cs}/gu, "\ufffd");
    const key = keys.has(name) ? `${name} (${index + 1})` : name;
    keys.add(key);
    return {...question, index, key, rows: []};
  });
  const columns = part.rows;
  columns.question.forEach((question, index) => {
    const row = {};
    for (const [name, values] of Object.entries(columns)) row[name] = values[index];
    row.correct = row.correct === 1;
    row.covered = row.covered === 1;
    questions[question].rows.push(row);
  });
  for (const question of questions) {
    question.byConfiguration = new Map(question.rows.map((row) => [row.configuration, row]));
    question.searched = [question.key, question.text === null ? "" : beginning(question.text), question.gold,
      ...new Set(question.rows.map((row) => row.answer ?? ""))].join("\n").toLowerCase();
  }
  return {...part, number, configurations, questions, severalSeeds, severalSets};
}

async function treeOf(row) {
  const [block, place] = row.tree;
  return (await openBlock(`trees-${block}`))[place];
}

// Marks of a row: right, wrong or failed, never by colour alone.
function verdict(row) {
  if (row.status === "failed") return {mark: "!", word: "failed", kind: "failed"};
  if (row.correct) return {mark: "✓", word: "right", kind: "right"};
  return row.answer === null
    ? {mark: "–", word: "no answer", kind: "wrong"}
    : {mark: "✗", word: "wrong", kind: "wrong"};
}

// Items with equal keys together, in order of first appearance.
function grouped(items, keyOf) {
  const found = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(item);
  }
  return [...found.values()];
}
