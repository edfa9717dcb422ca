// What the reader looks at, in the address after "#", so that links, reload and "back" restore it.

const DEFAULTS = {
  view: "summary", // or "questions"; a question is shown where "question" is set
  part: "0",
  strategy: "", n: "", prm: "", seed: "", dataset: "", level: "", status: "", outcome: "", text: "",
  a: "", b: "", differ: "",
  sort: "order", // a column, "-column" for the other direction
  question: "", // key of the question
  node: "", nodeb: "", // chosen candidate on each side
};

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = {...DEFAULTS};
  for (const name of Object.keys(DEFAULTS)) if (given.has(name)) state[name] = given.get(name);
  return state;
}

function hashOf(state) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== DEFAULTS[name]) parameters.set(name, value);
  }
  return `#${parameters}`;
}

// The address of the present state with some changes.
function linkTo(changes) {
  return hashOf({...readState(), ...changes});
}

// Go there; "back" returns.
function go(changes) {
  const hash = linkTo(changes);
  if (hash === (location.hash || "#")) render();
  else location.hash = hash;
}

// What changes on the way from a question back to a list: the one configuration that was looked at
// is no filter, two that were compared stay.
function toView(view) {
  return {view, question: "", node: "", nodeb: "", ...(readState().b === "" ? {a: ""} : {})};
}

// Note the change in the address without drawing anew and without a step for "back".
function note(changes) {
  history.replaceState(null, "", linkTo(changes));
}
