// The fleet: how many devices are how, what the gateway complains of, and pages of devices, the sick first.

import { between, written } from "./chart.js";
import { ago, chances, draw, duration, loss, make, mark, number, odds, PREFIX, put, table as tabulated, tableRow, troubles } from "./dom.js";

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
    const words = make("span", {}, text);
    const button = make("button", { type: "button", "aria-pressed": String(condition === ""), onclick: choose }, count, words);
    return { condition, count, words, text, button };
  });
  const gateway = make("div", {});
  const rollout = make("p", { class: "small quiet" });
  const nobody = make("p", { hidden: true }, "No device is visible to this account. The broker may not let it read any: an account of an audience reads ", make("a", { href: `${PREFIX}/releases` }, "its releases"), ". Or no device has connected yet. Where the sensor is, fugu start plans and writes an agent's files, and fugu agent run connects it to this broker.");
  const unnamed = make("p", { class: "bad" });
  const waves = make("section", { "aria-label": "Policies on their way", hidden: true });
  const { rows, root: table } = tabulated("Devices", COLUMNS);
  table.hidden = true;
  const place = make("span", { class: "small quiet", role: "status" });
  const turn = (by) => () => { query.page += by; ask(); };
  const back = make("button", { type: "button", onclick: turn(-1) }, "Previous");
  const on = make("button", { type: "button", onclick: turn(1) }, "Next");
  const pages = make("div", { class: "bar", hidden: true }, back, on); // below what is to come
  let later;
  const search = make("input", { id: "search", type: "search", maxlength: 64, oninput: () => {
    clearTimeout(later);
    later = setTimeout(() => { Object.assign(query, { search: search.value, page: 0 }); ask(); }, 150);
  } });
  main.append(
    make("h1", {}, "Fleet"),
    make("div", { class: "tiles", role: "group", "aria-label": "Filter by health" }, ...tiles.map((one) => one.button)),
    make("div", { class: "bar" }, make("div", {}, make("label", { for: "search" }, "Search by name"), search), make("div", {}, place)),
    nobody,
    gateway,
    unnamed,
    rollout,
    waves,
    table,
    pages,
  );
  ask();

  function show(told) {
    for (const { condition, count, words, text } of tiles) {
      put(count, number(condition ? told.counts[condition] : told.total));
      put(words, condition === "well" && told.unnamed ? `${text}, or with an alarm that names none` : text);
    }
    const first = told.page * 50;
    put(place, told.found ? `${number(first + 1)}–${number(first + told.rows.length)} of ${number(told.found)}` : "no device");
    query.page = told.page;
    table.hidden = pages.hidden = false;
    back.disabled = told.page === 0;
    on.disabled = told.page + 1 >= told.pages;
    gateway.replaceChildren(...complaints(told.gateway));
    const shares = told.policies.map((one) => `${number(one.devices)} ${one.devices === 1 ? "device runs" : "devices run"} policy document ${one.version}`);
    put(rollout, [...shares, ...(told.waiting ? [`${number(told.waiting)} have not answered the newest`] : [])].join(" · "));
    nobody.hidden = told.total > 0;
    unnamed.hidden = !told.unnamed;
    put(unnamed, `▲ At least ${number(told.unnamed)} more devices have an alarm. The report does not name them, so they are not counted or marked here. fugu gateway status names more of them.`);
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

const COLUMNS = ["Device", "Health", "Newest value", "What is promised", "Policy", "Heard"];

function row(one) {
  const wrong = troubles(one);
  const running = one.running ?? [...new Set(one.streams.map(([, version]) => version))].join(", ");
  const cells = [
    [make("a", { href: `${PREFIX}/device/${encodeURIComponent(one.name)}` }, one.name)],
    [mark(one.condition), ...wrong.map((text) => make("div", { class: `small ${one.condition === "sick" ? "bad" : "quiet"}` }, text))],
    one.newest.map(newest),
    one.newest.map(promise),
    [running ? `policy ${running}` : "none", one.outbox ? make("div", { class: "small quiet" }, `${number(one.outbox)} frames unsent`) : null],
    [one.seen ? ago(one.seen * 1000) : ""],
  ];
  return tableRow(COLUMNS, { "data-name": one.name }, ...cells);
}

// A stream's newest value: of several names the largest.
function newest({ stream, newest: said, place, state }) {
  if (place) return make("div", {}, `${stream}: within ${number(Math.round(place.accuracy))} m, `, make("span", { class: "small quiet" }, ago(place.time * 1000)));
  if (!said) return make("div", { class: "quiet small" }, `${stream}: no value yet`);
  const all = state && !said.of ? [[state.state, state.probability, null]] : said.names.map((name, i) => [name, ...said.row.slice(1 + 3 * i, 4 + 3 * i)]);
  const [name, value, low, high] = all.reduce((best, one) => (one[1] > best[1] ? one : best));
  const of = said.of || said.unit !== "share" ? "" : " likely";
  return make("div", { class: said.useful ? "" : "guess" }, `${stream}: `, make("strong", {}, name && `${name} `, make("span", { class: "whole" }, `${written(value, said.unit)}${of}`)),
    low === null ? "" : make("span", { class: "whole" }, ` (${between(low, high, said.unit)})`), make("span", { class: "small quiet" }, said.useful ? " " : " maybe no better than a guess · ", ago(said.row[0] * 1000)));
}

function promise({ stream, promise: told }) {
  if (!told) return make("div", { class: "quiet small" }, `${stream}: not described`);
  const about = told.ticks > 1 ? `any ${(told.name ?? duration(told.ticks * told.period)).replace(/^1 /, "")}` : `any ${duration(told.period)}`;
  const when = told.when ? make("div", { class: "bad small" }, told.when) : null;
  const conditions = told.conditions.map((text) => make("div", { class: "bad small" }, text));
  return make("div", { title: `${loss(told.epsilon)}; ${odds(told.epsilon)}` }, `${about}: ${chances(told.epsilon)}`, when, ...conditions);
}
