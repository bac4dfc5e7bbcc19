// The form of the first run: the program gets what is chosen and written, and answers on the page.

const form = document.getElementById("ask");
const offers = document.getElementById("offers");
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

form.elements.file.addEventListener("change", ({ target }) => {
  const [file] = target.files;
  if (file) post(`/upload?name=${encodeURIComponent(file.name)}`, file);
});

function offer({ words, options }) {
  const item = document.createElement("li");
  const button = item.appendChild(document.createElement("button"));
  button.textContent = words;
  button.addEventListener("click", () => {
    for (const [name, value] of Object.entries(options)) if (form.elements[name]) form.elements[name].value = value;
    send("plan");
  });
  return item;
}

export function ask(state) {
  form.hidden = !state.ask;
  const now = JSON.stringify(state.offers ?? []);
  if (now !== offered) offers.replaceChildren(...(state.offers ?? []).map(offer));
  offered = now;
}
