// Asks how far it is, and shows the newest pictures; what has come stays when the program has ended.

import { ask } from "/ask.js";

const PAUSE = 400;
const element = (id) => document.getElementById(id);
const drawn = new Map();

function text(node, words) {
  if (node.textContent !== (words ?? "")) node.textContent = words ?? "";
}

function list(node, lines) {
  if (node.children.length !== lines.length) node.replaceChildren(...lines.map(() => document.createElement("li")));
  lines.forEach((line, at) => text(node.children[at], line));
}

function replay(one, at, pictures) {
  const all = element("replays");
  if (at >= all.children.length) all.append(document.querySelector("template").content.cloneNode(true));
  const section = all.children[at];
  text(section.querySelector("h2"), one.name);
  text(section.querySelector(".live"), one.live);
  list(section.querySelector(".promise"), one.promise ?? []);
  list(section.querySelector("details ul"), one.details ?? []);
  section.querySelector("details").hidden = !one.details?.length;
  ["reading", "useful", "private"].forEach((kind, place) => {
    const figure = section.querySelectorAll("figure")[place];
    const name = `${kind}-${at}`;
    text(figure.querySelector("figcaption"), one.said?.[place]);
    figure.querySelector("img").alt = one.said?.[place] ?? "";
    figure.querySelector("img").hidden = !pictures[name];
    if (pictures[name] && drawn.get(name) !== pictures[name]) {
      drawn.set(name, pictures[name]);
      figure.querySelector("img").src = `/${name}.svg?${pictures[name]}`;
    }
  });
}

function left(seconds) {
  if (seconds === undefined || seconds === null) return "";
  return seconds < 90 ? `, about ${Math.ceil(seconds)} s left` : `, about ${Math.ceil(seconds / 60)} min left`;
}

function show(state) {
  text(element("stage"), `${state.ended ? "" : "● "}${state.stage ?? "starting …"}${state.ended ? "" : left(state.left)}`);
  element("done").value = state.ended ? 1 : state.done ?? 0;
  if (state.title) text(element("title"), state.title);
  text(element("verdict"), state.verdict);
  text(element("stalled"), state.stalled);
  element("stalled").hidden = !state.stalled;
  element("report").hidden = !state.report;
  (state.replays ?? []).forEach((one, at) => replay(one, at, state.pictures));
  ["h2", ".quiet", "pre"].forEach((part, at) => text(element("paste").querySelector(part), state.paste?.[at]));
  element("paste").hidden = !state.paste;
  ask(state);
}

async function follow() {
  try {
    show(await (await fetch("/state")).json());
    setTimeout(follow, PAUSE);
  } catch {
    text(element("stage"), "The program has ended. This is what had come.");
  }
}

follow();
