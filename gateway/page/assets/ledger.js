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

  function show(page) {
    problem.hidden = !page.problem;
    put(problem, page.problem ?? "");
    limit.hidden = !page.limit;
    put(limit, page.limit ? `N${page.limit.slice(1)}.` : "");
    if (page.about.ledger) put(view, `The ledger ${page.about.ledger}. Every charge of a release stands here before it is published.`);
    if (page.problem) return;
    const audiences = [...filter.options].slice(1).map((option) => option.value);
    if (audiences.join() !== page.audiences.join()) {
      filter.replaceChildren(make("option", { value: "" }, "all"), ...page.audiences.map((name) => make("option", { value: name }, name)));
      filter.value = query.audience;
    }
    const { entries } = page;
    put(place, entries.length ? `entries ${number(entries.at(-1).number)} to ${number(entries[0].number)}, ${entries.length} of them shown` : "no entry");
    back.disabled = !newer.length;
    on.disabled = !page.more;
    rows.replaceChildren(...entries.map(row));
  }
}

function row(entry) {
  const whom = entry.device || (entry.devices === 1 ? "one device" : `${number(entry.devices)} devices`);
  const charged = entry.charge ? `${round(entry.charge)} nats a tick` : "nothing";
  return tableRow(COLUMNS, { "data-number": entry.number },
    [`#${entry.number}`],
    [make("strong", {}, entry.audience), make("div", { class: "small quiet" }, whom)],
    [entry.stream, make("div", { class: "small quiet" }, `ticks ${number(entry.first)} to ${number(entry.last)}`)],
    [charged, entry.reason ? make("div", { class: "small quiet" }, entry.reason) : null],
    [day(entry.time), make("div", { class: "small quiet" }, STATES[entry.state] ?? entry.state)],
    [make("strong", {}, entry.name), make("div", { class: "small quiet" }, `${entry.mechanism}; noise ${entry.noise} of scale ${entry.scale}`)]);
}
