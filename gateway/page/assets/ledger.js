// The ledger: what was charged to whom, for what, the newest first.

import { day, make, number, put, round, table as tabulated, tableRow } from "./dom.js";

const STATES = { published: "published", reserved: "charged, not known to be published", abandoned: "charged, never published" };

const COLUMNS = ["Entry", "For", "Stream and ticks", "Charged", "When", "What"];

export function ledger(main, listen) {
  const query = { audience: "", before: "" };
  const newer = [];
  const ask = () => listen(`/events/ledger?${new URLSearchParams(query)}`, { all: show });
  const view = make("p", { class: "quiet" }, "Every charge of a release stands here before it is published.");
  const problem = make("p", { class: "alarm", hidden: true });
  const limit = make("p", { class: "quiet", hidden: true });
  const filter = make("select", { id: "audience", onchange: () => {
    Object.assign(query, { audience: filter.value, before: "" });
    newer.length = 0;
    ask();
  } }, make("option", { value: "" }, "all"));
  const place = make("span", { class: "small quiet", role: "status" });
  const { rows, root: table } = tabulated("Entries", COLUMNS);
  const back = make("button", { type: "button", disabled: true, onclick: () => { query.before = newer.pop(); ask(); } }, "Newer");
  const on = make("button", { type: "button", disabled: true, onclick: () => { newer.push(query.before); query.before = rows.lastChild.dataset.number; ask(); } }, "Older");
  main.append(make("h1", {}, "Ledger"), view, problem, limit,
    make("div", { class: "bar" }, make("div", {}, make("label", { for: "audience" }, "Audience"), filter), make("div", {}, place)),
    table, make("div", { class: "bar" }, back, on));
  ask();

  function show(told) {
    problem.hidden = !told.problem;
    put(problem, told.problem ?? "");
    limit.hidden = !told.limit;
    put(limit, told.limit ? `N${told.limit.slice(1)}.` : "");
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
  return tableRow(COLUMNS, { "data-number": one.number },
    [`#${one.number}`],
    [make("strong", {}, one.audience), make("div", { class: "small quiet" }, whom)],
    [one.stream, make("div", { class: "small quiet" }, `ticks ${number(one.first)} to ${number(one.last)}`)],
    [charged, one.reason ? make("div", { class: "small quiet" }, one.reason) : null],
    [day(one.time), make("div", { class: "small quiet" }, STATES[one.state] ?? one.state)],
    [make("strong", {}, one.name), make("div", { class: "small quiet" }, `${one.mechanism}; noise ${one.noise} of scale ${one.scale}`)]);
}
