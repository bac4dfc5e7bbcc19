// The form of the first run: three steps, each with one button; the program answers on the page.

import { make } from "/dom.js";
import { Lanes } from "/lanes.js";

const form = document.getElementById("ask");
const offers = document.getElementById("offers");
const stretches = document.getElementById("stretches");
const results = document.getElementById("results");
const what = document.getElementById("what");
const { file, sure, epsilon } = form.elements;
let offered = "";
let reached = 1;  // of the steps, before the program has said so

const post = (path, body) => fetch(path, { method: "POST", body }).catch(() => {});  // the page says what came of it

function send(step) {
  what.open &&= step !== "plan";
  if (step === "plan") results.classList.add("awaited"); // room at once, so that nothing moves later
  const fields = [...new FormData(form)].filter(([, value]) => typeof value === "string");
  post("/ask", JSON.stringify({ ...Object.fromEntries(fields), do: step }));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send("plan");
});

for (const button of form.querySelectorAll("button[type=button]")) button.addEventListener("click", () => send(button.value));

file.addEventListener("change", () => {
  const [chosen] = file.files;
  if (!chosen) return;
  results.classList.add("awaited");
  what.open = true;
  what.hidden = false;
  unfold(reached = 2);
  post(`/upload?name=${encodeURIComponent(chosen.name)}`, chosen);
});

// An epsilon as a chance; one that is typed or offered has its own.
function chance() {
  const percent = 100 / (1 + Math.exp(-epsilon.value));
  if (![...sure.options].some(({ value }) => value === epsilon.value)) sure.add(new Option(`${percent.toFixed(Number(percent >= 95))} % sure`, epsilon.value));
  sure.value = epsilon.value;
}
sure.addEventListener("change", () => { epsilon.value = sure.value; });
epsilon.addEventListener("change", chance);

const choose = (options) => () => {
  for (const [name, value] of Object.entries(options)) if (form.elements[name]) form.elements[name].value = value;
  chance();
  send("plan");
};

function offer({ words, more, options }, at) {
  return make("li", {}, make("button", { type: "button", class: at ? "" : "primary", onclick: choose(options) }, words), make("p", { class: "quiet" }, (more ?? "").replaceAll(" %", "\u00a0%")));
}

// A stretch to hide, what that costs, and a picture of what would leave.
function card({ name, words, at, options }) {
  const root = make("article", {}, make("h3", {}, name), ...words.map((text) => make("p", {}, text)));
  if (at !== null) {
    const lanes = new Lanes(["leaves"]);
    root.append(lanes.root);
    fetch(`/lanes-${at}.json`).then((response) => response.json()).then((picture) => lanes.show([{ ...picture.lanes[1], head: "" }]));
  }
  if (Object.keys(options).length) root.append(make("button", { type: "button", onclick: choose(options) }, "Choose this instead"));
  return root;
}

function unfold(step) {
  [...form.querySelectorAll(":scope > section")].forEach((section, at) => section.classList.toggle("later", at >= step));
}

export function ask(state) {
  form.hidden = !state.ask;
  if (state.ask && !form.contains(results)) form.querySelector(":scope > section:nth-of-type(2)").after(results); // below what was decided
  if (state.stalled) reached = 1;
  unfold(Math.max(state.step ?? 1, reached));
  if (state.understood?.length || state.stalled) what.hidden = !state.understood?.length;
  const cards = state.stretches ?? [];
  const now = JSON.stringify([state.offers, state.understood, cards]);
  if (now === offered) return;
  offered = now;
  stretches.hidden = !cards.length;
  stretches.replaceChildren(...cards.map(card));
  offers.replaceChildren(...(state.offers ?? []).map(offer));
  document.getElementById("understood").replaceChildren(...(state.understood ?? []).map((line) => make("li", {}, line)));
}
