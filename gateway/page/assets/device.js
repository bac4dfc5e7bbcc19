// A device: its newest values and their history, what is promised, what an attacker makes of it, and what left it.

import { Attack } from "./attack.js";
import { Budget } from "./budget.js";
import { between, Chart, written } from "./chart.js";
import { ago, chances, clock, day, draw, duration, LARGEST_PROTECTED, loss, make, mark, number, odds, percent, PREFIX, put, round, troubles } from "./dom.js";
import { leaves, MessageStrip, SentMessages } from "./messages.js";
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
  const sent = new SentMessages();
  const map = make("p", {}, make("a", { href: `${PREFIX}/place/${encodeURIComponent(name)}` }, "Where it may be, on a map"));
  const buttons = SPANS.map(([words], index) => make("button", { type: "button", "aria-pressed": "false", onclick: () => choose(index) }, words));
  const spans = make("div", { class: "spans", role: "group", "aria-label": "How far back", hidden: true }, ...buttons);
  const shown = make("div", {});
  main.append(make("h1", {}, name), make("p", {}, condition), facts, spans, shown);
  listen(`/events/device/${encodeURIComponent(name)}`, { state, update });

  function choose(index) {
    chosen = true;
    look(index);
  }

  function look(index) {
    if (span === index) return;
    span = index;
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === index)));
    for (const stream of streams.values()) stream.look(index);
  }

  function state({ member, about }) {
    view = about.ledger;
    if (!member) return put(facts, "This account may not read the device's status.");
    condition.replaceChildren(mark(member.condition), ...(member.seen ? [" · last heard ", ago(member.seen * 1000)] : []));
    const unsent = member.outbox ? `${number(member.outbox)} frames waiting` : "nothing waiting";
    put(facts, [...troubles(member), member.agent && `agent ${member.agent}`, unsent].filter(Boolean).join(" · "));
    facts.className = member.condition === "sick" ? "bad" : "quiet";
  }

  function update(messages) {
    for (const message of messages) {
      if (message.kind === "description") sent.describe(message.stream, message);
      if (message.kind === "description" && message.place) facts.after(map);
      if (leaves(message.kind)) sent.take(message);
      if (message.kind === "budget") {
        budgets = { ...message, view };
        for (const stream of streams.values()) stream.budget.take(budgets);
      }
      if (!message.stream) continue;
      if (!streams.has(message.stream)) {
        streams.set(message.stream, new Stream(message.stream, sent));
        shown.append(streams.get(message.stream).root);
        if (budgets) streams.get(message.stream).budget.take(budgets);
      }
      streams.get(message.stream).take(message);
    }
    if (!sent.root.isConnected) main.append(sent.root); // below the streams, which it would else be pushed by
    const series = [...streams.values()].flatMap((stream) => [...stream.series.values()]);
    spans.hidden = !series.length;
    if (!chosen && series.length) look(series.some(({ first, last, tiers }) => last - first > HOUR && tiers[0].length > FEW) ? 1 : 0);
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
  constructor(name, sent) {
    this.described = null;
    this.messages = new MessageStrip(sent);
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

  take(message) {
    if (message.kind === "description") this.describe(message);
    else if (message.kind === "estimate" || message.kind === "count") this.report(message);
    else if (message.kind === "history") Object.assign(this.of(message), { tiers: message.tiers });
    else if (message.kind === "attack") this.attack.take(message);
    else if (message.kind === "stored") {
      for (const stored of message.series) this.of(stored).recall(stored.rows);
      for (const report of message.counts) this.report(report);
      this.messages.take(message.messages);
    } else if (leaves(message.kind)) this.messages.take([message]);
    else return;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  look(span) {
    this.span = span;
    this.draw();
  }

  // Room for all that is to come, so that nothing moves when it does.
  expect(description) {
    for (const { name, blocks } of description.windows) if (!blocks) this.of({ of: name, unit: "share" });
    if (["symbols", "both"].includes(description.of) && !description.place) this.of({ of: "", unit: "share" });
    this.attack.chart.root.hidden = description.of === "points" || description.windows.some(({ blocks }) => blocks);
    this.messages.root.hidden = false;
  }

  // The series of a report, by its window.
  of(report) {
    let series = this.series.get(report.of);
    if (!series) {
      series = new Series(report.of ? title(report, this.described) : report.unit === "share" ? "The gateway's estimate: probability over time" : "The gateway's estimate over time");
      this.series.set(report.of, series);
      if (report.of) this.charts.prepend(series.chart.root);
      else this.charts.append(series.chart.root);
    }
    if (report.names) series.begin(report);
    return series;
  }

  report(report) {
    if (report.kind === "count") {
      if (!(Date.parse(this.counts.get(report.window)?.time) > Date.parse(report.time))) this.counts.set(report.window, report);
    } else this.newest = report;
    if (report.numbers) this.of(report.numbers).add(report.numbers);
  }

  describe(description) {
    this.described = description;
    this.budget.describe(description);
    this.attack.describe(description);
    this.expect(description);
    put(this.class, `A tick every ${duration(description.period_seconds)}, ${number(description.frame_ticks)} to a message; policy ${description.version}${description.confirmed ? "" : " (not confirmed by the device)"}.`);
    const [headline, more] = promised(description);
    this.promise.replaceChildren(...more);
    this.longer.replaceChildren("What is promised ", make("span", {}, headline));
    const bounds = description.bounds;
    put(this.who, bounds && bounds.high - bounds.low < 0.995
      ? `Dashed: whatever comes, the promise keeps the probability of “${bounds.state}” between ${percent(bounds.low)} and ${percent(bounds.high)} for ${ADVERSARIES.ignorant}.` : "");
  }

  draw() {
    this.drawing = 0;
    const description = this.described;
    this.wait.hidden = this.counts.size > 0 || this.newest !== null;
    if (description) this.wait.replaceChildren(...waiting(description));
    this.counted.replaceChildren(...[...this.counts.values()].map(counted));
    const estimate = this.newest;
    this.now.classList.toggle("guess", estimate?.useful === false);
    if (estimate && "state" in estimate) this.drawStates(estimate);
    else if (estimate && "latitude" in estimate) this.drawPlace(estimate);
    else if (estimate) this.drawValues(estimate);
    const range = this.range();
    const step = STEPS[Math.max(this.span - 1, 0)];
    const frame = description ? description.frame_ticks * description.period_seconds : Infinity;
    for (const [of, series] of this.series) {
      const window = description?.windows.find(({ name }) => name === of);
      const bounds = !of && description?.bounds;
      series.edges = bounds ? [bounds.low, bounds.high] : [];
      if (bounds && !this.who.isConnected) series.chart.root.append(this.who);
      series.draw(this.span, range, 2.5 * Math.max(window?.every ?? frame, step));
    }
    this.attack.draw(...range, 2.5 * Math.max(description?.windows[0]?.every ?? frame, step));
    const charts = [...[...this.series.values()].map(({ chart }) => chart), this.attack.chart];
    const beside = Math.max(...charts.map((chart) => chart.needs()));
    for (const chart of charts) chart.align(beside);
    this.messages.align(range, beside);
  }

  // Of all that is drawn of the stream: the last hours or days, or as far back as the newest go.
  range() {
    const drawn = [...this.series.values(), this.attack, this.messages];
    const seconds = SPANS[this.span][1];
    const last = Math.max(...drawn.map(({ last }) => last));
    const now = Date.now() / 1000;
    if (last === -Infinity) return [now - (seconds ?? HOUR), now];
    const to = seconds && Math.abs(now - last) < seconds ? Math.max(now, last) : last;
    const begins = this.series.size ? [...this.series.values()].map((series) => series.newest()[0]?.[0] ?? Infinity) : drawn.map(({ first }) => first);
    const from = seconds ? to - seconds : Math.min(...begins);
    return from < to ? [from, to] : [to - 30, to + 30];
  }

  drawStates(estimate) {
    this.now.replaceChildren(make("strong", {}, estimate.state), make("span", { class: "quiet" }, `with probability ${percent(estimate.probability)}, the gateway's estimate at ${clock(estimate.time)}${guess(estimate)} · `, ago(estimate.time)));
    const shares = Object.keys(estimate).filter((key) => key.startsWith("share_")).map((key) => `${key.slice(6)} ${percent(estimate[key])}`);
    put(this.shared, `Shares of the time in the last message, ${duration((Date.parse(estimate.time) - Date.parse(estimate.since)) / 1000)}: ${shares.slice(0, 8).join(", ")}`);
  }

  drawPlace(estimate) {
    this.now.replaceChildren(make("strong", {}, `${estimate.latitude.toFixed(5)}°, ${estimate.longitude.toFixed(5)}°`),
      make("span", { class: "quiet" }, `within ${number(Math.round(estimate.accuracy))} m, hidden among ${estimate.protection} · `, ago(estimate.time)));
    const place = this.described?.place;
    if (!place) return;
    if (this.map?.place !== place) this.charts.replaceChildren((this.map = new PlaceMap(place)).root);
    this.map.show(estimate.where, []);
  }

  drawValues(estimate) {
    const ends = Object.keys(estimate).filter((key) => key.startsWith("value")).map((key) => key.slice(5));
    const text = (end) => `${round(estimate[`low${end}`])} to ${round(estimate[`high${end}`])}`;
    this.now.replaceChildren(make("strong", {}, `${ends.map((end) => round(estimate[`value${end}`])).join(", ")}${estimate.unit ? ` ${estimate.unit}` : ""}`),
      make("span", { class: "quiet" }, `${ends.map(text).join("; ")} with 95 %${guess(estimate)} · `, ago(estimate.time)));
  }
}

const title = ({ of, unit }, description) => {
  const window = description?.windows.find(({ name }) => name === of);
  return `${unit === "share" ? "Share" : `Counts in ${unit}`} of ${window ? `each ${duration(window.seconds)}` : "the time"} (window “${of}”)`;
};

// When the first value comes, of whatever kinds the stream has.
function waiting(description) {
  const windows = description.windows.map((window) => `The first count (window “${window.name}”) comes when the device has run for a whole ${duration(window.seconds)}: at most ${duration(window.every + window.seconds)} after its start, then one every ${duration(window.every)}.`);
  const estimates = description.of === "windows" ? [] : [`The first estimate comes with the first message: one has ${number(description.frame_ticks)} ticks, so at most ${duration(description.frame_ticks * description.period_seconds)} after the device's start.`];
  return [...windows, ...estimates, "This page shows what has come since it began."].map((text) => make("span", { class: "line" }, text));
}

// The promise in odds, for the stretch that it is about and others; whom it holds against and epsilons are folded.
function promised(description) {
  const { epsilon, adversary, stretches, stretch_ticks: ticks } = description.guarantee;
  const span = (length) => (length === 1 ? `${duration(description.period_seconds)} (one tick)` : duration(length * description.period_seconds));
  const lines = epsilon === null ? [] : [[ticks, epsilon]];
  for (const stretch of stretches) if (stretch.ticks !== ticks && stretch.ticks > 1) lines.push([stretch.ticks, stretch.epsilon]);
  const isProtected = (loss) => loss !== null && loss <= LARGEST_PROTECTED;
  const protectedLines = lines.filter(([, loss]) => isProtected(loss));
  const [unprotected] = lines.filter(([, loss]) => !isProtected(loss)).map(([length]) => `${span(length)} or longer`);
  const facts = [["against", ADVERSARIES[adversary]], ["for", description.chain_class]];
  if (description.point_epsilon !== null) facts.unshift(["epsilon of a point", loss(description.point_epsilon, "")]);
  facts.push(...description.flips);
  if (description.guarantee.when) facts.push(["when", description.guarantee.when]);
  for (const stretch of stretches) if (isProtected(stretch.floor)) facts.push([stretch.name, `${loss(stretch.epsilon)}; ${loss(stretch.floor, "")} if the attacker already knows the rest`]);
  const headline = protectedLines.length ? `Any ${span(protectedLines[0][0])}: ${chances(protectedLines[0][1])}.` : "Not protected.";
  return [`${headline} Not hidden: ${["habits", ...(unprotected ? [unprotected] : [])].join(", and ")}.`, [
    ...protectedLines.map(([length, loss]) => make("p", { class: "small" }, `Any ${span(length)}: ${chances(loss)} (${odds(loss)})`)),
    unprotected ? make("p", { class: "bad small" }, `Not protected: ${unprotected}`) : null,
    description.guarantee.when ? make("p", { class: "bad small" }, `This is ${description.guarantee.when}.`) : null,
    make("p", { class: "small" }, description.protects), make("p", { class: "small bad" }, description.does_not_protect),
    make("dl", { class: "small" }, ...facts.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)])),
  ].filter(Boolean)];
}

const guess = (report) => (report.useful ? "" : "; maybe no better than a guess");

// The newest count of a window: shares of the time with their bands.
function counted(report) {
  const confidence = `${percent(report.confidence)} intervals`;
  const end = Date.parse(report.time) - Date.parse(report.since) < 12 * HOUR * 1000 ? clock(report.time) : day(report.time);
  const when = make("p", { class: "small quiet" }, `From ${day(report.since)} to ${end} (window “${report.window}”), with ${confidence}${guess(report)} · `, ago(report.time));
  const look = `counted${report.useful ? "" : " guess"}`;
  if (report.blocks?.length) return make("div", { class: look }, ...profile(report), when);
  const numbers = report.numbers;
  if (!numbers) return make("div", { class: "counted" }, when);
  return make("div", { class: look }, ...numbers.names.map((name, i) => {
    const [value, low, high] = numbers.row.slice(1 + 3 * i, 4 + 3 * i);
    return make("div", { class: "now" }, make("strong", {}, written(value, numbers.unit)), make("span", { class: "quiet" }, `${numbers.unit === "share" ? "of the time " : ""}“${name}” (${between(low, high, numbers.unit)})`));
  }), when);
}

// A bar for each part of the day: its share of the time, and the band that holds it.
function profile(report) {
  const title = make("p", { class: "small" }, `${report.states.join(" or ")}, share of each part of the day`);
  if (!report.observed) return [title, make("p", { class: "small quiet" }, "The device was off the whole time.")];
  const part = report.observed / report.blocks.length;
  const shareOf = (ticks) => Math.min(Math.max(ticks / part, 0), 1);
  return [title, ...report.blocks.map((block) => {
    const [value, low, high] = ["value", "low", "high"].map((name) => shareOf(report[`${name}_${block}`]));
    return make("div", { class: "share parts" }, make("span", {}, block),
      draw("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { width: 100 * value, height: 12 }),
        draw("path", { d: `M${100 * low} 6H${100 * high}`, class: "band" })),
      make("span", {}, `${percent(value)} (${percent(low)} to ${percent(high)})`));
  })];
}
