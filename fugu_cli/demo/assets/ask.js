// The form of the first run: three steps, each with one button; the program answers on the page.

import { make } from "/dom.js";

const form = document.getElementById("ask");
const offers = document.getElementById("offers");
const { file, sure, epsilon } = form.elements;
let offered = "";

const post = (path, body) => fetch(path, { method: "POST", body }).catch(() => {});  // the page says what came of it

function send(what) {
  const fields = [...new FormData(form)].filter(([, value]) => typeof value === "string");
  post("/ask", JSON.stringify({ ...Object.fromEntries(fields), do: what }));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send("plan");
});

for (const button of form.querySelectorAll("button[type=button]")) button.addEventListener("click", () => send(button.value));

file.addEventListener("change", () => {
  const [chosen] = file.files;
  if (chosen) post(`/upload?name=${encodeURIComponent(chosen.name)}`, chosen);
});

// An epsilon in words, and any other as a number.
sure.addEventListener("change", () => { epsilon.value = sure.value; });
epsilon.addEventListener("input", () => { sure.value = epsilon.value; });

function offer({ words, more, options }, at) {
  const choose = () => {
    for (const [name, value] of Object.entries(options)) if (form.elements[name]) form.elements[name].value = value;
    sure.value = epsilon.value;
    send("plan");
  };
  return make("li", {}, make("button", { type: "button", class: at ? "" : "primary", onclick: choose }, words), make("p", { class: "quiet" }, more ?? ""));
}

export function ask(state) {
  form.hidden = !state.ask;
  [...form.querySelectorAll(":scope > section")].forEach((section, at) => section.classList.toggle("later", at >= (state.step ?? 1)));
  const now = JSON.stringify([state.offers, state.understood]);
  if (now === offered) return;
  offered = now;
  offers.replaceChildren(...(state.offers ?? []).map(offer));
  document.getElementById("understood").replaceChildren(...(state.understood ?? []).map((line) => make("li", {}, line)));
}
