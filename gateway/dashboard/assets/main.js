// Which page is shown, and the one stream of events of this tab.

import { device } from "./device.js";
import { make, put } from "./dom.js";
import { fleet } from "./fleet.js";
import { ledger } from "./ledger.js";
import { releases } from "./releases.js";

const main = document.getElementById("main");
const view = document.getElementById("view");
let source = null;
let about = null;

// Opens the tab's stream; handlers by the name of an event.
function listen(path, handlers) {
  source?.close();
  source = new EventSource(path);
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      if (data.about) say(data.about);
      handle(data);
    });
  }
  source.addEventListener("expired", () => location.assign("/login#expired"));
  source.onerror = () => {
    lost("The page has lost its server. What you see is old.");
    if (source.readyState === EventSource.CLOSED) check();
  };
}

// A stream that is refused does not say why: asked once more, the server does.
async function check() {
  try {
    if ((await fetch("/assets/main.js", { cache: "no-store" })).status === 401) location.assign("/login#expired");
    else setTimeout(show, 3000);
  } catch {
    setTimeout(check, 3000);
  }
}

function say(told) {
  about = told;
  put(document.getElementById("fleet"), ` / ${told.fleet}`);
  if (!told.connected) return lost(`No connection to the broker (${told.error || "connecting"}). What you see is old.`);
  view.className = "";
  const account = told.account ? `● live, as account ${told.account} may read it` : "● live, as anybody may read it";
  put(view, told.ledger ? `${account}; ledger ${told.ledger}` : account);
}

function lost(text) {
  view.className = "lost";
  put(view, `▲ ${text}`);
}

function show() {
  const path = location.pathname;
  const found = path.match(/^\/device\/([^/]+)$/);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  if (found) device(main, listen, decodeURIComponent(found[1]));
  else if (path === "/releases") releases(main, listen);
  else if (path === "/ledger") ledger(main, listen);
  else fleet(main, listen);
  document.title = `${main.querySelector("h1").textContent} – Fugu`;
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
