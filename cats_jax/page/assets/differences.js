// Where two searches of one question part: by the texts of their kept paths, from the question on.

function differences(left, right) {
  // Equal numbers stand for equal texts of a whole path, in both trees.
  const numbers = new Map();
  const [one, two] = [left, right].map((tree) => keptPaths(tree, numbers));
  const steps = Math.max(one.bySteps.length, two.bySteps.length);
  const parts = [];
  for (let step = 0; step < steps; step += 1) {
    const [here, there] = [one.bySteps[step] ?? new Set(), two.bySteps[step] ?? new Set()];
    const both = [...here].filter((path) => there.has(path)).length;
    parts.push({both, left: here.size - both, right: there.size - both});
  }
  const first = parts.findIndex((part) => part.left > 0 || part.right > 0);
  return {
    first: first < 0 ? null : first,
    steps: parts,
    onlyLeft: only(left, one, two),
    onlyRight: only(right, two, one),
    answers: firstOfAnswers(left, one.numbers, right, two.numbers),
  };
}

function keptPaths(tree, known) {
  const numbers = [0];
  const bySteps = [];
  for (let id = 1; id <= tree.size; id += 1) {
    const key = `${numbers[tree.parent(id)]}|${beginning(tree.text(id))}`;
    if (!known.has(key)) known.set(key, known.size + 1);
    numbers.push(known.get(key));
    if (tree.kept(id)) {
      while (bySteps.length <= tree.step(id)) bySteps.push(new Set());
      bySteps[tree.step(id)].add(numbers[id]);
    }
  }
  return {numbers, bySteps};
}

// Kept nodes whose path the other search did not keep at that step.
function only(tree, own, other) {
  const found = new Set();
  for (let id = 1; id <= tree.size; id += 1) {
    if (tree.kept(id) && !(other.bySteps[tree.step(id)]?.has(own.numbers[id]) ?? false)) found.add(id);
  }
  return found;
}

// The step at which the answers' paths part: null if they don't, or if a search has no answer.
function firstOfAnswers(left, leftNumbers, right, rightNumbers) {
  const [one, two] = [[...left.chosen], [...right.chosen]];
  if (one.length === 0 || two.length === 0) return null;
  for (let step = 0; step < Math.max(one.length, two.length); step += 1) {
    if (leftNumbers[one[step]] !== rightNumbers[two[step]]) return step;
  }
  return null;
}
