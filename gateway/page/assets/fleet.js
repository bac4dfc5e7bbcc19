// The fleet: how many devices are how, what the gateway complains of, and pages of devices, the sick first.

import { clock, draw, make, mark, number, put } from "./dom.js";

const TILES = [["", "devices"], ["sick", "▲ need attention"], ["away", "○ away"], ["well", "● well"]];

export function fleet(main, listen) {
  const query = { search: "", condition: "", page: 0 };
  const ask = () => listen(`/events/fleet?${new URLSearchParams(query)}`, { all: show });
  const tiles = TILES.map(([condition, text]) => {
    const count = make("strong", {}, "–");
    const choose = () => {
      Object.assign(query, { condition, page: 0 });
      for (const one of tiles) one.button.setAttribute("aria-pressed", String(one.condition === condition));
      ask();
    };
    const button = make("button", { type: "button", "aria-pressed": String(condition === ""), onclick: choose }, count, make("span", {}, text));
    return { condition, count, button };
  });
  const gateway = make("div", {});
  const rollout = make("p", { class: "small quiet" });
  const nobody = make("p", { hidden: true }, "This account has heard of no device. The broker may let it read none: an account of an audience reads ", make("a", { href: "/releases" }, "its releases"), ".");
  const unnamed = make("p", { class: "bad" });
  const waves = make("section", { "aria-label": "Policies on their way", hidden: true });
  const rows = make("tbody");
  const place = make("span", { class: "small quiet", role: "status" });
  const turn = (by) => () => { query.page += by; ask(); };
  const back = make("button", { type: "button", onclick: turn(-1) }, "Previous");
  const on = make("button", { type: "button", onclick: turn(1) }, "Next");
  let later;
  const search = make("input", { id: "search", type: "search", maxlength: 64, oninput: () => {
    clearTimeout(later);
    later = setTimeout(() => { Object.assign(query, { search: search.value, page: 0 }); ask(); }, 150);
  } });
  const heads = ["Device", "Health", "What is wrong"].map((text) => make("th", { scope: "col" }, text));
  heads.push(...["Streams", "Policy", "Unsent", "Heard"].map((text) => make("th", { scope: "col", class: "wide" }, text)));
  main.append(
    make("h1", {}, "Fleet"),
    make("div", { class: "tiles", role: "group", "aria-label": "Filter by health" }, ...tiles.map((one) => one.button)),
    nobody,
    gateway,
    unnamed,
    rollout,
    waves,
    make("div", { class: "bar" }, make("div", {}, make("label", { for: "search" }, "Search by name"), search), make("div", {}, place)),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Devices" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), rows)),
    make("div", { class: "bar" }, back, on),
  );
  ask();

  function show(told) {
    for (const { condition, count } of tiles) put(count, number(condition ? told.counts[condition] : told.total));
    const first = told.page * 50;
    put(place, told.found ? `${number(first + 1)}–${number(first + told.rows.length)} of ${number(told.found)}` : "no device");
    query.page = told.page;
    back.disabled = told.page === 0;
    on.disabled = told.page + 1 >= told.pages;
    gateway.replaceChildren(...complaints(told.gateway));
    const shares = told.policies.map((one) => `${number(one.devices)} run policy ${one.version}`);
    put(rollout, [...shares, ...(told.waiting ? [`${number(told.waiting)} have not answered the newest`] : [])].join(" · "));
    nobody.hidden = told.total > 0;
    unnamed.hidden = !told.unnamed;
    put(unnamed, `▲ At least ${number(told.unnamed)} more devices have an alarm whose report does not name them: they are neither counted nor marked here. fugu gateway status names more of them.`);
    waves.hidden = !told.waves.length;
    waves.replaceChildren(...told.waves.map((one) => wave(one, told.total)));
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    rows.replaceChildren(...told.rows.map(row));
    if (focused) rows.querySelector(`tr[data-name="${CSS.escape(focused)}"] a`)?.focus();
  }
}

function complaints(gateway) {
  if (!gateway) return [];
  if (!gateway.online) return [make("p", { class: "alarm" }, "The gateway is not connected: nothing is estimated.")];
  return gateway.alarms.map((one) => {
    const names = one.names.join(", ") + (one.others ? ` and ${number(one.others)} more` : "");
    return make("p", { class: "alarm" }, make("strong", {}, `▲ ${one.code}`), names ? ` ${names}. ` : " ", one.advice);
  });
}

// A version that devices were sent: how many follow it, in words, and as a bar of all devices.
function wave(one, total) {
  const others = total - one.sent;
  const parts = [["runs", one.runs, "run it"], ["refused", one.refused, "refused it"], ["silent", one.silent, "have not answered"], ["away", one.away, "are away"]];
  const words = parts.filter(([, count]) => count).map(([, count, text]) => `${number(count)} ${text}`);
  let from = 0;
  const bars = parts.map(([name, count]) => {
    const bar = draw("rect", { class: name, x: from, y: 0, width: count, height: 10 });
    from += count;
    return bar;
  });
  return make("div", { class: "wave" },
    make("p", { class: "small" }, make("strong", {}, `Document ${one.version}`), `, sent to ${number(one.sent)} of ${number(total)} devices: ${words.join(", ")}${others > 0 ? `; ${number(others)} were sent another or none` : ""}`),
    draw("svg", { viewBox: `0 0 ${Math.max(1, total)} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars));
}

function row(one) {
  const wrong = [...one.codes, one.refusal, one.stale ? "policy out of date" : ""].filter(Boolean).join(", ");
  const running = one.running ?? [...new Set(one.streams.map(([, version]) => version))].join(", ");
  return make("tr", { "data-name": one.name },
    make("td", { class: "name" }, make("a", { href: `/device/${encodeURIComponent(one.name)}` }, one.name)),
    make("td", {}, mark(one.condition)),
    make("td", { class: "bad" }, wrong),
    make("td", { class: "wide" }, one.streams.map(([name]) => name).join(", ")),
    make("td", { class: "wide" }, `${running}${one.waits ? ` (${one.wanted ?? "another"} is wanted)` : ""}`),
    make("td", { class: "wide" }, number(one.outbox)),
    make("td", { class: "wide" }, one.seen ? clock(one.seen * 1000) : ""));
}
