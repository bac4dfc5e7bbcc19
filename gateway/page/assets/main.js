// Which page is shown, and the one stream of events of this tab.

import { device } from "./device.js";
import { make, PREFIX, put } from "./dom.js";
import { fleet } from "./fleet.js";
import { ledger } from "./ledger.js";
import { place } from "./place.js";
import { releases } from "./releases.js";

const main = document.getElementById("main");
const view = document.getElementById("view");
let source = null;
let about = null;

// Opens the tab's stream; handlers by the name of an event.
function listen(path, handlers) {
  source?.close();
  source = new EventSource(PREFIX + path);
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      if (data.about) say(data.about);
      handle(data);
    });
  }
  source.addEventListener("expired", () => location.assign(`${PREFIX}/login#expired`));
  source.onerror = () => {
    lost("The page has lost its server. What you see is old.");
    if (source.readyState === EventSource.CLOSED) check(path);
  };
}

// A stream that is refused does not say why: asked once more, the server does.
async function check(path) {
  const asked = source;
  const asking = new AbortController();
  try {
    const { status } = await fetch(PREFIX + path, { cache: "no-store", signal: asking.signal });
    asking.abort();
    if (source !== asked) return;
    if (status === 401) location.assign(`${PREFIX}/login#expired`);
    else if (status === 404) missing();
    else setTimeout(() => source === asked && show(), 3000);
  } catch {
    setTimeout(() => source === asked && check(path), 3000);
  }
}

function say(state) {
  about = state;
  put(document.getElementById("fleet"), ` / ${state.fleet}`);
  if (!state.connected) return lost(`No connection to the broker (${state.error || "connecting"}). What you see is old.`);
  view.className = "";
  const account = state.account ? `● live, as account ${state.account} may read it` : "● live, no login";
  put(view, state.ledger ? `${account}; ledger ${state.ledger}` : account);
}

function lost(text) {
  view.className = "lost";
  put(view, `▲ ${text}`);
}

function show() {
  const path = location.pathname.slice(PREFIX.length);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  const pages = { "/": fleet, "/releases": releases, "/ledger": ledger };
  const match = path.match(/^\/(device|place)\/([^/]+)$/);
  const name = match && decoded(match[2]);
  if (name) (match[1] === "device" ? device : place)(main, listen, name);
  else if (pages[path]) pages[path](main, listen);
  else missing();
  document.title = `${main.querySelector("h1").textContent} – Fugu`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

// For an address that names nothing: a device is called by letters, digits, _ and -.
function missing() {
  source?.close();
  source = null;
  lost("Nothing is shown here.");
  main.replaceChildren(make("h1", {}, "Not found"), make("p", {}, `There is no page ${location.pathname.slice(PREFIX.length)}, or that is no name of a device.`),
    make("p", {}, make("a", { href: `${PREFIX}/` }, "All devices")));
  document.title = "Not found – Fugu";
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a");
  if (!link || link.origin !== location.origin || link.hash || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show();
  scrollTo(0, 0);
  main.focus();
});
addEventListener("popstate", show);
show();
