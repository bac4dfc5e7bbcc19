// What audiences were told, with its noise, its guarantee and its entry in the ledger.

import { chances, day, loss, make, number, table as tabulated, tableRow } from "./dom.js";

const COLUMNS = ["Release", "Window", "Value, with its interval", "Guarantee", "Ledger"];

export function releases(main, listen) {
  const { rows, root: table } = tabulated("Releases", COLUMNS);
  const none = make("p", { class: "quiet" }, "The broker has no release for an audience of this account.");
  main.append(make("h1", {}, "Releases"), make("p", { class: "quiet" }, "Noisy statistics of windows, the newest first."), none, table);
  listen("/events/releases", { all: (page) => {
    none.hidden = page.releases.length > 0;
    table.hidden = !page.releases.length;
    rows.replaceChildren(...page.releases.map(row));
  } });
}

function row(release) {
  const values = release.values.map((value, i) => {
    const state = release.values.length > 1 ? `${release.states[i]}: ` : "";
    return make("div", {}, `${state}${round(value)} (${round(release.low_values[i])} to ${round(release.high_values[i])})`);
  });
  return tableRow(COLUMNS, {},
    [make("strong", {}, release.name), make("div", { class: "small quiet" }, `for ${release.audience}`)],
    [`${day(release.since)} to ${day(release.time)}`, make("div", { class: "small quiet" }, `${number(release.devices)} devices`)],
    [...values, make("div", { class: "small quiet" }, `${release.query} of ${release.states.join(", ")}; noise of scale ${release.scale}`)],
    [`${release.stretch_ticks > 1 ? `any ${number(release.stretch_ticks)} ticks in a row` : "any single tick"}: ${chances(release.epsilon)}`, make("div", { class: "small quiet" }, `${loss(release.epsilon)}, ${release.adversary}, ${release.mechanism}`), release.condition && make("div", { class: "bad small" }, release.condition)],
    [`#${release.entry}`, make("div", { class: "small quiet" }, `adds ${round(release.charge)}`)]);
}

const round = (value) => String(Number(Number(value).toPrecision(4)));
