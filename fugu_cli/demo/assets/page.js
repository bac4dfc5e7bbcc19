// Asks how far it is, and draws the newest numbers; what has come stays when the program has ended.

import { ask } from "/ask.js";
import { make, put } from "/dom.js";
import { Lanes } from "/lanes.js";

const PAUSE = 400;
const WHO = { knows: "knows the habits", learns: "learns them", ordinary: "ordinary noise" };
const element = (id) => document.getElementById(id);
const lanes = new Lanes();
let [chosen, who, drawn, shown, waits] = [0, "knows", "", null, 0];

element("replay").append(lanes.root);

function list(node, lines) {
  if (node.dataset.lines === JSON.stringify(lines)) return;
  node.dataset.lines = JSON.stringify(lines);
  node.replaceChildren(...lines.map((line) => make("li", {}, line)));
}

// Buttons of which one is pressed.
function choice(node, buttons, pressed, choose) {
  node.hidden = buttons.length < 2;
  if (node.children.length !== buttons.length) {
    node.replaceChildren(...buttons.map(([key]) => make("button", { type: "button", onclick: () => choose(key) })));
  }
  buttons.forEach(([key, words, disabled], at) => {
    const button = node.children[at];
    put(button, words);
    button.disabled = Boolean(disabled);
    button.setAttribute("aria-pressed", String(key === pressed));
  });
}

function draw() {
  if (!shown) return;
  const { attackers } = shown;
  if (!attackers[who]) who = "knows";
  const several = Object.keys(attackers).length > 1 || shown.waiting;
  const buttons = several ? Object.keys(WHO).filter((key) => key !== "ordinary" || attackers.ordinary).map((key) => [key, WHO[key], !attackers[key]]) : [];
  choice(element("who"), buttons, who, (key) => { who = key; draw(); });
  lanes.show([...shown.lanes, attackers[who]]);
  lanes.root.lastChild.classList.toggle("beyond", attackers[who].shapes.some(({ look, points }) => look === "beyond" && points.length));
}

function verdicts(lines) {
  element("verdicts").hidden = !lines?.length;
  if (element("verdicts").dataset.all === JSON.stringify(lines)) return;
  element("verdicts").dataset.all = JSON.stringify(lines);
  element("verdicts").replaceChildren(...(lines ?? []).map(([look, first, more]) => make("div", { class: `verdict ${look}` }, make("b", {}, first), make("p", {}, more.replaceAll(" %", "\u00a0%")))));
}

function timeWords(seconds) {
  if (seconds === undefined || seconds === null) return "";
  return seconds < 90 ? ` · ${Math.ceil(seconds)} s left` : ` · ${Math.ceil(seconds / 60)} min left`;
}

async function show(state) {
  put(element("stage"), `${state.ended ? "" : "● "}${state.stage ?? "starting …"}${state.ended ? "" : timeWords(state.seconds_left)}`);
  element("done").value = state.ended ? 1 : state.done ?? 0;
  const replays = state.replays ?? [];
  if (chosen >= replays.length) chosen = 0;
  const texts = { ...state, ...(replays[chosen]?.title ? replays[chosen] : {}) };  // a recording may have words of its own
  if (!shown) lanes.root.classList.toggle("maps", Boolean(state.maps));
  if (texts.title) put(element("title"), texts.title);
  document.title = `${texts.title ?? "Fugu"} – Fugu Edge`;
  for (const id of ["about", "sub", "stalled"]) {
    put(element(id), texts[id] ?? "");
    element(id).hidden = !texts[id];
  }
  if (state.unhidden) put(element("hidden").querySelector("span"), state.unhidden);
  element("hidden").querySelector("a").hidden = element("habits").hidden = Boolean(state.unhidden);
  verdicts(state.verdicts);
  element("report").hidden = !state.report;
  list(element("details").querySelector("ul"), state.details ?? []);
  element("details").hidden = !state.details?.length;
  element("replay").hidden = element("switches").hidden = !replays.length && Boolean(state.ask);
  choice(element("which"), replays.map(({ name }, at) => [at, name]), chosen, (at) => { chosen = at; follow(); });
  ["h2", "p", "pre"].forEach((part, at) => put(element("paste").querySelector(part), state.paste?.[at] ?? ""));
  element("paste").hidden = !state.paste;
  element("paste").querySelector("pre").hidden = !state.paste?.[2];
  ask(state);
  const version = `/lanes-${chosen}.json?${replays[chosen]?.drawn}`;
  if (replays[chosen]?.drawn && drawn !== version) {
    shown = await (await fetch(version)).json();
    drawn = version;
    document.querySelector("main").hidden = false;  // before it is drawn, as it has no width without
    draw();
  }
  document.querySelector("main").hidden = false;
}

// A page that somebody has come back to asks again; one whose program has ended goes on to ask, less often.
async function follow() {
  clearTimeout(waits);
  let pause = PAUSE;
  try {
    await show(await (await fetch("/state")).json());
  } catch {
    put(element("stage"), "The program has ended. This is what had come.");
    pause = 5 * PAUSE;
  }
  clearTimeout(waits);
  waits = setTimeout(follow, pause);
}

element("hidden").querySelector("a").addEventListener("click", () => { element("habits").open = true; });
addEventListener("pageshow", ({ persisted }) => persisted && follow());
follow();
