// The ledger: what was charged to whom, for what, the newest first.

import { day, make, number, put, round } from "./dom.js";

const STATES = { published: "published", reserved: "charged, not known to be published", abandoned: "charged, never published" };

export function ledger(main, listen) {
  const query = { audience: "", before: "" };
  const newer = [];
  const ask = () => listen(`/events/ledger?${new URLSearchParams(query)}`, { all: show });
  const view = make("p", { class: "quiet" }, "Every charge of a release stands here before it is published.");
  const problem = make("p", { class: "alarm", hidden: true });
  const filter = make("select", { id: "audience", onchange: () => {
    Object.assign(query, { audience: filter.value, before: "" });
    newer.length = 0;
    ask();
  } }, make("option", { value: "" }, "all"));
  const place = make("span", { class: "small quiet", role: "status" });
  const rows = make("tbody");
  const heads = ["Entry", "For", "Stream and ticks", "Charged", "When", "What"].map((text) => make("th", { scope: "col" }, text));
  const table = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Entries" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), rows));
  const back = make("button", { type: "button", disabled: true, onclick: () => { query.before = newer.pop(); ask(); } }, "Newer");
  const on = make("button", { type: "button", disabled: true, onclick: () => { newer.push(query.before); query.before = rows.lastChild.dataset.number; ask(); } }, "Older");
  main.append(make("h1", {}, "Ledger"), view, problem,
    make("div", { class: "bar" }, make("div", {}, make("label", { for: "audience" }, "Audience"), filter), make("div", {}, place)),
    table, make("div", { class: "bar" }, back, on));
  ask();

  function show(told) {
    problem.hidden = !told.problem;
    put(problem, told.problem ?? "");
    if (told.about.ledger) put(view, `The ledger ${told.about.ledger}. Every charge of a release stands here before it is published.`);
    if (told.problem) return;
    const known = [...filter.options].slice(1).map((one) => one.value);
    if (known.join() !== told.audiences.join()) {
      filter.replaceChildren(make("option", { value: "" }, "all"), ...told.audiences.map((name) => make("option", { value: name }, name)));
      filter.value = query.audience;
    }
    const { entries } = told;
    put(place, entries.length ? `entries ${number(entries.at(-1).number)} to ${number(entries[0].number)}, ${entries.length} of them shown` : "no entry");
    back.disabled = !newer.length;
    on.disabled = !told.more;
    rows.replaceChildren(...entries.map(row));
  }
}

function row(one) {
  const whom = one.device || (one.devices === 1 ? "one device" : `${number(one.devices)} devices`);
  const charged = one.charge ? `${round(one.charge)} nats a tick` : "nothing";
  return make("tr", { "data-number": one.number },
    make("td", {}, `#${one.number}`),
    make("td", { class: "name" }, make("strong", {}, one.audience), make("div", { class: "small quiet" }, whom)),
    make("td", { class: "name" }, one.stream, make("div", { class: "small quiet" }, `ticks ${number(one.first)} to ${number(one.last)}`)),
    make("td", {}, charged, one.reason ? make("div", { class: "small quiet" }, one.reason) : null),
    make("td", {}, day(one.time), make("div", { class: "small quiet" }, STATES[one.state] ?? one.state)),
    make("td", { class: "name" }, make("strong", {}, one.name), make("div", { class: "small quiet" }, `${one.mechanism}; noise ${one.noise} of scale ${one.scale}`)));
}
