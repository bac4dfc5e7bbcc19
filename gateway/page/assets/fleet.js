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
      for (const tile of tiles) tile.button.setAttribute("aria-pressed", String(tile.condition === condition));
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
    make("div", { class: "tiles", role: "group", "aria-label": "Filter by health" }, ...tiles.map((tile) => tile.button)),
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

  function show(state) {
    for (const { condition, count, words, text } of tiles) {
      put(count, number(condition ? state.counts[condition] : state.total));
      put(words, condition === "well" && state.unnamed ? `${text}, or with an alarm that names none` : text);
    }
    const first = state.page * 50;
    put(place, state.matching ? `${number(first + 1)}–${number(first + state.rows.length)} of ${number(state.matching)}` : "no device");
    query.page = state.page;
    table.hidden = pages.hidden = false;
    back.disabled = state.page === 0;
    on.disabled = state.page + 1 >= state.pages;
    gateway.replaceChildren(...complaints(state.gateway));
    const shares = state.policies.map((policy) => `${number(policy.devices)} ${policy.devices === 1 ? "device runs" : "devices run"} policy document ${policy.version}`);
    put(rollout, [...shares, ...(state.waiting ? [`${number(state.waiting)} have not answered the newest`] : [])].join(" · "));
    nobody.hidden = state.total > 0;
    unnamed.hidden = !state.unnamed;
    put(unnamed, `▲ At least ${number(state.unnamed)} more devices have an alarm. The report does not name them, so they are not counted or marked here. fugu gateway status names more of them.`);
    waves.hidden = !state.waves.length;
    waves.replaceChildren(...state.waves.map((version) => wave(version, state.total)));
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    rows.replaceChildren(...state.rows.map(row));
    if (focused) rows.querySelector(`tr[data-name="${CSS.escape(focused)}"] a`)?.focus();
  }
}

function complaints(gateway) {
  if (!gateway) return [];
  if (!gateway.online) return [make("p", { class: "alarm" }, "The gateway is not connected: nothing is estimated.")];
  return gateway.alarms.map((alarm) => {
    const names = alarm.names.join(", ") + (alarm.others ? ` and ${number(alarm.others)} more` : "");
    return make("p", { class: "alarm" }, make("strong", {}, `▲ ${alarm.code}`), names ? ` ${names}. ` : " ", alarm.advice);
  });
}

// A version that devices were sent: how many follow it, in words, and as a bar of all devices.
function wave(version, total) {
  const others = total - version.sent;
  const parts = [["runs", version.runs, "run it"], ["refused", version.refused, "refused it"], ["silent", version.silent, "have not answered"], ["away", version.away, "are away"]];
  const words = parts.filter(([, count]) => count).map(([, count, text]) => `${number(count)} ${text}`);
  let from = 0;
  const bars = parts.map(([name, count]) => {
    const bar = draw("rect", { class: name, x: from, y: 0, width: count, height: 10 });
    from += count;
    return bar;
  });
  return make("div", { class: "wave" },
    make("p", { class: "small" }, make("strong", {}, `Document ${version.version}`), `, sent to ${number(version.sent)} of ${number(total)} devices: ${words.join(", ")}${others > 0 ? `; ${number(others)} were sent another or none` : ""}`),
    draw("svg", { viewBox: `0 0 ${Math.max(1, total)} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars));
}

const COLUMNS = ["Device", "Health", "Newest value", "What is promised", "Policy", "Heard"];

function row(device) {
  const wrong = troubles(device);
  const running = device.running ?? [...new Set(device.streams.map(([, version]) => version))].join(", ");
  const cells = [
    [make("a", { href: `${PREFIX}/device/${encodeURIComponent(device.name)}` }, device.name)],
    [mark(device.condition), ...wrong.map((text) => make("div", { class: `small ${device.condition === "sick" ? "bad" : "quiet"}` }, text))],
    device.newest.map(newest),
    device.newest.map(promise),
    [running ? `policy ${running}` : "none", device.outbox ? make("div", { class: "small quiet" }, `${number(device.outbox)} frames unsent`) : null],
    [device.seen ? ago(device.seen * 1000) : ""],
  ];
  return tableRow(COLUMNS, { "data-name": device.name }, ...cells);
}

// A stream's newest value: of several names the largest.
function newest({ stream, newest: numbers, place, state }) {
  if (place) return make("div", {}, `${stream}: within ${number(Math.round(place.accuracy))} m, `, make("span", { class: "small quiet" }, ago(place.time * 1000)));
  if (!numbers) return make("div", { class: "quiet small" }, `${stream}: no value yet`);
  const all = state && !numbers.of ? [[state.state, state.probability, null]] : numbers.names.map((name, i) => [name, ...numbers.row.slice(1 + 3 * i, 4 + 3 * i)]);
  const [name, value, low, high] = all.reduce((best, candidate) => (candidate[1] > best[1] ? candidate : best));
  const of = numbers.of || numbers.unit !== "share" ? "" : " likely";
  return make("div", { class: numbers.useful ? "" : "guess" }, `${stream}: `, make("strong", {}, name && `${name} `, make("span", { class: "whole" }, `${written(value, numbers.unit)}${of}`)),
    low === null ? "" : make("span", { class: "whole" }, ` (${between(low, high, numbers.unit)})`), make("span", { class: "small quiet" }, numbers.useful ? " " : " maybe no better than a guess · ", ago(numbers.row[0] * 1000)));
}

function promise({ stream, promise: guarantee }) {
  if (!guarantee) return make("div", { class: "quiet small" }, `${stream}: not described`);
  const about = guarantee.ticks > 1 ? `any ${(guarantee.name ?? duration(guarantee.ticks * guarantee.period)).replace(/^1 /, "")}` : `any ${duration(guarantee.period)}`;
  const when = guarantee.when ? make("div", { class: "bad small" }, guarantee.when) : null;
  const conditions = guarantee.conditions.map((text) => make("div", { class: "bad small" }, text));
  return make("div", { title: `${loss(guarantee.epsilon)}; ${odds(guarantee.epsilon)}` }, `${about}: ${chances(guarantee.epsilon)}`, when, ...conditions);
}
