// Asks how far the night is, and shows the newest pictures; what has come stays when the demo has ended.

const DEVICE = "watch-N10";
const PAUSE = 400;
const element = (id) => document.getElementById(id);
let shown = 0;

function show(state) {
  element("view").textContent = "● live";
  if (state.windows === shown) return;
  shown = state.windows;
  element("far").textContent = `${state.windows} of ${state.of} windows of 300 heartbeats have come.`;
  for (const [at, name] of ["useful", "private"].entries()) {
    const picture = element(name);
    picture.src = `/demo/${DEVICE}/${name}.svg?${shown}`;
    picture.alt = state.said[at];
    picture.hidden = false;
    element(`${name}-said`).textContent = state.said[at];
  }
}

async function follow() {
  try {
    show(await (await fetch(`/demo/${DEVICE}`)).json());
    setTimeout(follow, PAUSE);
  } catch {
    element("view").textContent = "The demo has ended. This is what had come; report.html has the rest.";
  }
}

follow();
