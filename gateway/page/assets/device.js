// A device: its newest values and their history, what is promised, what an attacker makes of it, and what left it.

import { Attack } from "./attack.js";
import { Budget } from "./budget.js";
import { between, Chart, written } from "./chart.js";
import { ago, chances, clock, day, draw, duration, LARGEST_PROTECTED, loss, make, mark, number, odds, percent, PREFIX, put, round, troubles } from "./dom.js";
import { Left, leaves, Messages } from "./left.js";
import { PlaceMap } from "./place.js";

const POINTS = 300;
const HOUR = 3600;
const FEW = 12;
const SPANS = [["Newest", null], ["24 hours", 24 * HOUR], ["7 days", 7 * 24 * HOUR]];
const STEPS = [300, 1800];
const ADVERSARIES = {
  ignorant: "somebody who knows the class of chains, and no reading",
  informed: "somebody who also knows any other readings",
  universal: "somebody who may know anything else about the readings",
};

export function device(main, listen, name) {
  const condition = make("span", {}, "");
  const facts = make("p", { class: "quiet" }, "waiting for what the device says …");
  const streams = new Map();
  let budgets = null;
  let view = null;
  let span = null;
  let chosen = false;
  const left = new Left();
  const map = make("p", {}, make("a", { href: `${PREFIX}/place/${encodeURIComponent(name)}` }, "Where it may be, on a map"));
  const buttons = SPANS.map(([text], i) => make("button", { type: "button", "aria-pressed": "false", onclick: () => choose(i) }, text));
  const spans = make("div", { class: "spans", role: "group", "aria-label": "How far back", hidden: true }, ...buttons);
  const shown = make("div", {});
  main.append(make("h1", {}, name), make("p", {}, condition), facts, spans, shown);
  listen(`/events/device/${encodeURIComponent(name)}`, { state, update });

  function choose(i) {
    chosen = true;
    look(i);
  }

  function look(i) {
    if (span === i) return;
    span = i;
    buttons.forEach((one, n) => one.setAttribute("aria-pressed", String(n === i)));
    for (const stream of streams.values()) stream.look(i);
  }

  function state({ member, about }) {
    view = about.ledger;
    if (!member) return put(facts, "This account may not read the device's status.");
    condition.replaceChildren(mark(member.condition), ...(member.seen ? [" · last heard ", ago(member.seen * 1000)] : []));
    const unsent = member.outbox ? `${number(member.outbox)} frames waiting` : "nothing waiting";
    put(facts, [...troubles(member), member.agent && `agent ${member.agent}`, unsent].filter(Boolean).join(" · "));
    facts.className = member.condition === "sick" ? "bad" : "quiet";
  }

  function update(all) {
    for (const one of all) {
      if (one.kind === "description") left.describe(one.stream, one);
      if (one.kind === "description" && one.place) facts.after(map);
      if (leaves(one.kind)) left.take(one);
      if (one.kind === "budget") {
        budgets = { ...one, view };
        for (const stream of streams.values()) stream.budget.take(budgets);
      }
      if (!one.stream) continue;
      if (!streams.has(one.stream)) {
        streams.set(one.stream, new Stream(one.stream, left));
        shown.append(streams.get(one.stream).root);
        if (budgets) streams.get(one.stream).budget.take(budgets);
      }
      streams.get(one.stream).take(one);
    }
    if (!left.root.isConnected) main.append(left.root); // below the streams, which it would else be pushed by
    const series = [...streams.values()].flatMap((stream) => [...stream.series.values()]);
    spans.hidden = !series.length;
    if (!chosen && series.length) look(series.some((one) => one.last - one.first > HOUR && one.tiers[0].length > FEW) ? 1 : 0);
  }
}

// What is drawn of a window, or of the estimates: the newest as they come, and of each step of two spans the newest.
class Series {
  constructor(title) {
    this.chart = new Chart(title);
    this.live = [];
    this.tiers = [[], []];
  }

  get first() { return Math.min(...[this.live, ...this.tiers].map((rows) => rows[0]?.[0] ?? Infinity)); }
  get last() { return Math.max(...[this.live, ...this.tiers].map((rows) => rows.at(-1)?.[0] ?? -Infinity)); }

  begin({ names, unit }) {
    if (this.names && (String(this.names) !== String(names) || this.unit !== unit)) Object.assign(this, { live: [], tiers: [[], []] });
    Object.assign(this, { names, unit });
  }

  add({ row, ...about }) {
    this.begin(about);
    if (this.live.length && row[0] <= this.live.at(-1)[0]) return;
    this.live.push(row);
    if (this.live.length > POINTS) this.live.shift();
    this.tiers.forEach((rows, i) => {
      while (rows.length && Math.floor(rows.at(-1)[0] / STEPS[i]) >= Math.floor(row[0] / STEPS[i])) rows.pop();
      rows.push(row);
    });
  }

  // What came before this page was opened is known at each step of a span.
  recall(rows) {
    const before = this.live[0]?.[0] ?? Infinity;
    this.live = [...rows.filter(([time]) => time < before), ...this.live].slice(-POINTS);
  }

  newest() {
    const before = this.live[0]?.[0] ?? Infinity;
    return [...this.tiers[0].filter(([time]) => time < before), ...this.live].slice(-POINTS);
  }

  draw(span, [from, to], gap) {
    if (this.names === undefined) return this.chart.empty(from, to);
    const rows = SPANS[span][1] ? this.tiers[span - 1].filter(([time]) => time >= from) : this.newest();
    this.chart.show({ names: this.names, unit: this.unit, rows, edges: this.edges, gap, from, to });
  }
}

class Stream {
  constructor(name, left) {
    this.described = null;
    this.messages = new Messages(left);
    this.series = new Map();
    this.counts = new Map();
    this.newest = null;
    this.span = 0;
    this.attack = new Attack();
    this.budget = new Budget(name);
    this.class = make("p", { class: "quiet small" });
    this.counted = make("div", {});
    this.now = make("div", { class: "now estimate" });
    this.shared = make("div", { class: "small quiet" });
    this.wait = make("p", { class: "quiet" }, "Waiting for the stream's description.");
    this.charts = make("div", { class: "series" });
    this.who = make("p", { class: "small quiet" });
    this.promise = make("div", {}, make("p", { class: "quiet" }, "not described yet"));
    this.longer = make("summary", {}, "What is promised");
    this.root = make("section", { class: "stream", "aria-label": `Stream ${name}` },
      make("h2", {}, name),
      make("div", { class: "cards" },
        make("div", { class: "card value" }, this.wait, this.counted, this.now, this.shared),
        this.attack.root),
      make("div", { class: "charts" }, this.charts, this.attack.chart.root, this.messages.root),
      make("details", { class: "folded promise" }, this.longer, this.promise),
      make("details", { class: "folded" }, make("summary", {}, "Budget left for each audience"), this.budget.root),
      make("details", { class: "folded" }, make("summary", {}, "Technical"), this.class));
  }

  take(one) {
    if (one.kind === "description") this.describe(one);
    else if (one.kind === "estimate" || one.kind === "count") this.report(one);
    else if (one.kind === "history") Object.assign(this.of(one), { tiers: one.tiers });
    else if (one.kind === "attack") this.attack.take(one);
    else if (one.kind === "stored") {
      for (const each of one.series) this.of(each).recall(each.rows);
      for (const each of one.counts) this.report(each);
      this.messages.take(one.messages);
    } else if (leaves(one.kind)) this.messages.take([one]);
    else return;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  look(span) {
    this.span = span;
    this.draw();
  }

  // Room for all that is to come, so that nothing moves when it does.
  expect(told) {
    for (const { name, blocks } of told.windows) if (!blocks) this.of({ of: name, unit: "share" });
    if (["symbols", "both"].includes(told.of) && !told.place) this.of({ of: "", unit: "share" });
    this.attack.chart.root.hidden = told.of === "points" || told.windows.some(({ blocks }) => blocks);
    this.messages.root.hidden = false;
  }

  // The series of a report, by its window.
  of(said) {
    let found = this.series.get(said.of);
    if (!found) {
      found = new Series(said.of ? title(said, this.described) : said.unit === "share" ? "The gateway's estimate: probability over time" : "The gateway's estimate over time");
      this.series.set(said.of, found);
      if (said.of) this.charts.prepend(found.chart.root);
      else this.charts.append(found.chart.root);
    }
    if (said.names) found.begin(said);
    return found;
  }

  report(one) {
    if (one.kind === "count") {
      if (!(Date.parse(this.counts.get(one.window)?.time) > Date.parse(one.time))) this.counts.set(one.window, one);
    } else this.newest = one;
    if (one.said) this.of(one.said).add(one.said);
  }

  describe(told) {
    this.described = told;
    this.budget.describe(told);
    this.attack.describe(told);
    this.expect(told);
    put(this.class, `A tick every ${duration(told.period_seconds)}, ${number(told.frame_ticks)} to a message; policy ${told.version}${told.confirmed ? "" : " (not confirmed by the device)"}.`);
    const [headline, more] = promised(told);
    this.promise.replaceChildren(...more);
    this.longer.replaceChildren("What is promised ", make("span", {}, headline));
    const bounds = told.bounds;
    put(this.who, bounds && bounds.high - bounds.low < 0.995
      ? `Dashed: whatever comes, the promise keeps the probability of “${bounds.state}” between ${percent(bounds.low)} and ${percent(bounds.high)} for ${ADVERSARIES.ignorant}.` : "");
  }

  draw() {
    this.drawing = 0;
    const told = this.described;
    this.wait.hidden = this.counts.size > 0 || this.newest !== null;
    if (told) this.wait.replaceChildren(...waiting(told));
    this.counted.replaceChildren(...[...this.counts.values()].map((one) => counted(one)));
    const one = this.newest;
    this.now.classList.toggle("guess", one?.useful === false);
    if (one && "state" in one) this.drawStates(one);
    else if (one && "latitude" in one) this.drawPlace(one);
    else if (one) this.drawValues(one);
    const range = this.range();
    const step = STEPS[Math.max(this.span - 1, 0)];
    const frame = told ? told.frame_ticks * told.period_seconds : Infinity;
    for (const [of, series] of this.series) {
      const window = told?.windows.find(({ name }) => name === of);
      const bounds = !of && told?.bounds;
      series.edges = bounds ? [bounds.low, bounds.high] : [];
      if (bounds && !this.who.isConnected) series.chart.root.append(this.who);
      series.draw(this.span, range, 2.5 * Math.max(window?.every ?? frame, step));
    }
    this.attack.draw(...range, 2.5 * Math.max(told?.windows[0]?.every ?? frame, step));
    const charts = [...[...this.series.values()].map(({ chart }) => chart), this.attack.chart];
    const beside = Math.max(...charts.map((one) => one.needs()));
    for (const one of charts) one.align(beside);
    this.messages.align(range, beside);
  }

  // Of all that is drawn of the stream: the last hours or days, or as far back as the newest go.
  range() {
    const all = [...this.series.values(), this.attack, this.messages];
    const seconds = SPANS[this.span][1];
    const last = Math.max(...all.map((one) => one.last));
    const now = Date.now() / 1000;
    if (last === -Infinity) return [now - (seconds ?? HOUR), now];
    const to = seconds && Math.abs(now - last) < seconds ? Math.max(now, last) : last;
    const begins = this.series.size ? [...this.series.values()].map((one) => one.newest()[0]?.[0] ?? Infinity) : all.map((one) => one.first);
    const from = seconds ? to - seconds : Math.min(...begins);
    return from < to ? [from, to] : [to - 30, to + 30];
  }

  drawStates(one) {
    this.now.replaceChildren(make("strong", {}, one.state), make("span", { class: "quiet" }, `with probability ${percent(one.probability)}, the gateway's estimate at ${clock(one.time)}${guess(one)} · `, ago(one.time)));
    const shares = Object.keys(one).filter((key) => key.startsWith("share_")).map((key) => `${key.slice(6)} ${percent(one[key])}`);
    put(this.shared, `Shares of the time in the last message, ${duration((Date.parse(one.time) - Date.parse(one.since)) / 1000)}: ${shares.slice(0, 8).join(", ")}`);
  }

  drawPlace(one) {
    this.now.replaceChildren(make("strong", {}, `${one.latitude.toFixed(5)}°, ${one.longitude.toFixed(5)}°`),
      make("span", { class: "quiet" }, `within ${number(Math.round(one.accuracy))} m, hidden among ${one.protection} · `, ago(one.time)));
    const place = this.described?.place;
    if (!place) return;
    if (this.map?.place !== place) this.charts.replaceChildren((this.map = new PlaceMap(place)).root);
    this.map.show(one.where, []);
  }

  drawValues(one) {
    const ends = Object.keys(one).filter((key) => key.startsWith("value")).map((key) => key.slice(5));
    const text = (end) => `${round(one[`low${end}`])} to ${round(one[`high${end}`])}`;
    this.now.replaceChildren(make("strong", {}, `${ends.map((end) => round(one[`value${end}`])).join(", ")}${one.unit ? ` ${one.unit}` : ""}`),
      make("span", { class: "quiet" }, `${ends.map(text).join("; ")} with 95 %${guess(one)} · `, ago(one.time)));
  }
}

const title = ({ of, unit }, told) => {
  const window = told?.windows.find(({ name }) => name === of);
  return `${unit === "share" ? "Share" : `Counts in ${unit}`} of ${window ? `each ${duration(window.seconds)}` : "the time"} (window “${of}”)`;
};

// When the first value comes, of whatever kinds the stream has.
function waiting(told) {
  const windows = told.windows.map((one) => `The first count (window “${one.name}”) comes when the device has run for a whole ${duration(one.seconds)}: at most ${duration(one.every + one.seconds)} after its start, then one every ${duration(one.every)}.`);
  const estimates = told.of === "windows" ? [] : [`The first estimate comes with the first message: one has ${number(told.frame_ticks)} ticks, so at most ${duration(told.frame_ticks * told.period_seconds)} after the device's start.`];
  return [...windows, ...estimates, "This page shows what has come since it began."].map((text) => make("span", { class: "line" }, text));
}

// The promise in odds, for the stretch that it is about and others; whom it holds against and epsilons are folded.
function promised(told) {
  const { epsilon, adversary, stretches, stretch_ticks: ticks } = told.guarantee;
  const span = (length) => (length === 1 ? `${duration(told.period_seconds)} (one tick)` : duration(length * told.period_seconds));
  const lines = epsilon === null ? [] : [[ticks, epsilon]];
  for (const one of stretches) if (one.ticks !== ticks && one.ticks > 1) lines.push([one.ticks, one.epsilon]);
  const isHeld = (loss) => loss !== null && loss <= LARGEST_PROTECTED;
  const held = lines.filter(([, loss]) => isHeld(loss));
  const [bare] = lines.filter(([, loss]) => !isHeld(loss)).map(([length]) => `${span(length)} or longer`);
  const facts = [["against", ADVERSARIES[adversary]], ["for", told.chain_class]];
  if (told.point_epsilon !== null) facts.unshift(["epsilon of a point", loss(told.point_epsilon, "")]);
  facts.push(...told.flips);
  if (told.guarantee.when) facts.push(["when", told.guarantee.when]);
  for (const one of stretches) if (isHeld(one.floor)) facts.push([one.name, `${loss(one.epsilon)}; ${loss(one.floor, "")} if the attacker already knows the rest`]);
  const headline = held.length ? `Any ${span(held[0][0])}: ${chances(held[0][1])}.` : "Not protected.";
  return [`${headline} Not hidden: ${["habits", ...(bare ? [bare] : [])].join(", and ")}.`, [
    ...held.map(([length, loss]) => make("p", { class: "small" }, `Any ${span(length)}: ${chances(loss)} (${odds(loss)})`)),
    bare ? make("p", { class: "bad small" }, `Not protected: ${bare}`) : null,
    told.guarantee.when ? make("p", { class: "bad small" }, `This is ${told.guarantee.when}.`) : null,
    make("p", { class: "small" }, told.protects), make("p", { class: "small bad" }, told.does_not_protect),
    make("dl", { class: "small" }, ...facts.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)])),
  ].filter(Boolean)];
}

const guess = (one) => (one.useful ? "" : "; maybe no better than a guess");

// The newest count of a window: shares of the time with their bands.
function counted(one) {
  const confidence = `${percent(one.confidence)} intervals`;
  const end = Date.parse(one.time) - Date.parse(one.since) < 12 * HOUR * 1000 ? clock(one.time) : day(one.time);
  const when = make("p", { class: "small quiet" }, `From ${day(one.since)} to ${end} (window “${one.window}”), with ${confidence}${guess(one)} · `, ago(one.time));
  const look = `counted${one.useful ? "" : " guess"}`;
  if (one.blocks?.length) return make("div", { class: look }, ...profile(one), when);
  const shown = one.said;
  if (!shown) return make("div", { class: "counted" }, when);
  return make("div", { class: look }, ...shown.names.map((name, i) => {
    const [value, low, high] = shown.row.slice(1 + 3 * i, 4 + 3 * i);
    return make("div", { class: "now" }, make("strong", {}, written(value, shown.unit)), make("span", { class: "quiet" }, `${shown.unit === "share" ? "of the time " : ""}“${name}” (${between(low, high, shown.unit)})`));
  }), when);
}

// A bar for each part of the day: its share of the time, and the band that holds it.
function profile(one) {
  const title = make("p", { class: "small" }, `${one.states.join(" or ")}, share of each part of the day`);
  if (!one.observed) return [title, make("p", { class: "small quiet" }, "The device was off the whole time.")];
  const part = one.observed / one.blocks.length;
  const of = (ticks) => Math.min(Math.max(ticks / part, 0), 1);
  return [title, ...one.blocks.map((block) => {
    const [value, low, high] = ["value", "low", "high"].map((name) => of(one[`${name}_${block}`]));
    return make("div", { class: "share parts" }, make("span", {}, block),
      draw("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { width: 100 * value, height: 12 }),
        draw("path", { d: `M${100 * low} 6H${100 * high}`, class: "band" })),
      make("span", {}, `${percent(value)} (${percent(low)} to ${percent(high)})`));
  })];
}
