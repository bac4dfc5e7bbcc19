// What audiences were told, with its noise, its guarantee and its entry in the ledger.

import { chances, day, loss, make, number, table as tabulated, tableRow } from "./dom.js";

const COLUMNS = ["Release", "Window", "Value, with its interval", "Guarantee", "Ledger"];

export function releases(main, listen) {
  const { rows, root: table } = tabulated("Releases", COLUMNS);
  const none = make("p", { class: "quiet" }, "The broker has no release for an audience of this account.");
  main.append(make("h1", {}, "Releases"), make("p", { class: "quiet" }, "Noisy statistics of windows, the newest first."), none, table);
  listen("/events/releases", { all: (told) => {
    none.hidden = told.releases.length > 0;
    table.hidden = !told.releases.length;
    rows.replaceChildren(...told.releases.map(row));
  } });
}

function row(one) {
  const values = one.values.map((value, i) => {
    const state = one.values.length > 1 ? `${one.states[i]}: ` : "";
    return make("div", {}, `${state}${round(value)} (${round(one.low_values[i])} to ${round(one.high_values[i])})`);
  });
  return tableRow(COLUMNS, {},
    [make("strong", {}, one.name), make("div", { class: "small quiet" }, `for ${one.audience}`)],
    [`${day(one.since)} to ${day(one.time)}`, make("div", { class: "small quiet" }, `${number(one.devices)} devices`)],
    [...values, make("div", { class: "small quiet" }, `${one.query} of ${one.states.join(", ")}; noise of scale ${one.scale}`)],
    [`${one.stretch_ticks > 1 ? `any ${number(one.stretch_ticks)} ticks in a row` : "any single tick"}: ${chances(one.epsilon)}`, make("div", { class: "small quiet" }, `${loss(one.epsilon)}, ${one.adversary}, ${one.mechanism}`), one.condition && make("div", { class: "bad small" }, one.condition)],
    [`#${one.entry}`, make("div", { class: "small quiet" }, `adds ${round(one.charge)}`)]);
}

const round = (value) => String(Number(Number(value).toPrecision(4)));
