// All that left a device, as this page received it: every message in words and as bytes, the newest first.

import { day, draw, make, number, put, seconds } from "./dom.js";
import { Plot } from "./lanes.js";

const EACH = 5;
const MOST_WAITING = 200;
const MOST_SHOWN = 300;
const STRIP = 38;
const LEFT = ["frame", "window", "points", "status", "policy"];

export const leaves = (kind) => LEFT.includes(kind);

// Messages of a stream on the axis of time of what is drawn above them; one that is chosen shows its bytes.
export class Messages {
  constructor(left) {
    Object.assign(this, { left, all: [], at: null, range: null });
    this.picture = draw("svg", { class: "plot", "aria-hidden": "true" });
    this.canvas = make("div", { class: "canvas strip", role: "img", tabindex: 0, onkeydown: (event) => this.step(event), onclick: (event) => this.choose(this.nearest(event.offsetX)) }, this.picture);
    this.open = make("ol", { class: "frames" });
    this.root = make("figure", { class: "chart messages", hidden: true }, make("figcaption", {}, "Messages: choose one for its bytes"), this.canvas, this.open);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get first() { return this.all[0]?.at ?? Infinity; }
  get last() { return this.all.at(-1)?.at ?? -Infinity; }

  take(some) {
    const heard = new Set(this.all.map(({ bytes }) => bytes));
    const chosen = this.all[this.at];
    this.all.push(...some.filter(({ time, bytes }) => time && !heard.has(bytes)).map((one) => ({ ...one, at: Date.parse(one.time) / 1000 })));
    this.all = this.all.sort((one, other) => one.at - other.at).slice(-MOST_SHOWN);
    this.at = chosen ? this.all.indexOf(chosen) : null;
    this.root.hidden = !this.all.length;
  }

  align(range, beside) {
    Object.assign(this, { range, beside });
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!this.range || !width) return;
    this.plot = new Plot({ height: STRIP, span: this.range, marks: [], range: [0, 1], levels: [] }, width, this.beside);
    const inside = this.all.filter(({ at }) => at >= this.range[0] && at <= this.range[1]);
    const mark = ({ at }) => `M${this.plot.x(at).toFixed(1)} 8V30`;
    const chosen = this.all[this.at];
    this.picture.setAttribute("viewBox", `0 0 ${width} ${STRIP}`);
    this.picture.replaceChildren(draw("path", { class: "sent", d: inside.map(mark).join("") }), draw("path", { class: "sent chosen", d: chosen ? mark(chosen) : "" }));
    this.canvas.setAttribute("aria-label", `${number(inside.length)} messages. Arrow keys go through them and show their bytes.`);
  }

  nearest(x) {
    if (!this.plot || !this.all.length) return null;
    const away = ({ at }) => Math.abs(this.plot.x(at) - x);
    return this.all.reduce((best, one, i) => (away(one) < away(this.all[best]) ? i : best), 0);
  }

  choose(i) {
    this.at = i;
    if (i === null) return;
    const item = this.left.item(this.all[i], "", true, day);
    item.querySelector("details").open = true;
    this.open.replaceChildren(item);
    this.draw();
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.all.length) return;
    event.preventDefault();
    this.choose(Math.min(Math.max((this.at ?? this.all.length) + by, 0), this.all.length - 1));
  }
}

export class Left {
  constructor() {
    this.described = new Map();
    this.waiting = [];
    this.sent = 0;
    this.bytes = 0;
    this.drawn = -Infinity;
    this.total = make("p", { class: "quiet small" }, "nothing since this page was opened");
    this.frames = make("ol", { class: "frames" });
    this.root = make("section", { class: "card left", "aria-labelledby": "left" }, make("h2", { id: "left" }, "What left this device"), this.total,
      make("div", { class: "messages", tabindex: 0, role: "region", "aria-label": "Messages, the newest first" }, this.frames));
  }

  describe(stream, told) {
    this.described.set(stream, told);
  }

  take(one) {
    this.sent += 1;
    this.bytes += one.size;
    this.waiting.push(one);
    if (this.waiting.length > MOST_WAITING) this.waiting.shift();
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.drawing = 0;
    put(this.total, `${number(this.sent)} message${this.sent === 1 ? "" : "s"}, ${number(this.bytes)} bytes came to this page; the newest ${EACH} of each kind:`);
    const quick = performance.now() - this.drawn < 1000; // what changes all the time is not shown to move
    this.drawn = performance.now();
    const newest = new Map();
    for (const one of this.waiting.splice(0)) {
      const key = `${one.kind} ${one.stream}`;
      newest.set(key, [...(newest.get(key) ?? []), one].slice(-EACH));
    }
    for (const [key, some] of newest) {
      for (const one of some) this.frames.prepend(this.item(one, key, quick));
      const shown = [...this.frames.children].filter((item) => item.dataset.key === key);
      for (const item of shown.slice(EACH)) item.remove();
    }
  }

  item(one, key, quick, written = seconds) {
    const when = one.time ? written(one.time) : `tick ${number(one.first)}`;
    const bytes = make("details", {}, make("summary", {}, `${one.size} bytes`), make("code", {}, one.bytes.replace(/../g, "$& ")));
    const [what, ...body] = this.content(one);
    const stream = one.stream ? `${one.stream}: ` : "";
    return make("li", { class: quick ? "" : "new", "data-key": key },
      make("div", { class: "top" }, make("span", {}, when), make("span", {}, `${stream}${what}`)), ...body, bytes);
  }

  content(one) {
    if (one.kind === "frame") return this.symbols(one);
    if (one.kind === "window") return [`counts of window ${one.window}`, ...counts(one)];
    if (one.kind === "points") return [`${one.points.length} points`, ...one.newest.map((point) => make("p", { class: "small" }, place(point)))];
    if (one.kind === "status") return ["status", make("p", { class: "small" }, status(one))];
    return ["status of its policies", make("p", { class: "small" }, policy(one))];
  }

  symbols({ stream, symbols }) {
    const labels = this.described.get(stream)?.labels ?? [];
    const top = Math.max(1, (labels.length || 2) - 1);
    const bars = ["", ""]; // one shape for all symbols 0, and one for the others
    symbols.forEach((symbol, x) => { bars[symbol ? 1 : 0] += `M${x + 0.08} 22v${-(3 + (17 * symbol) / top)}h.84V22z`; });
    const label = `symbols ${symbols.slice(0, 60).map((symbol) => labels[symbol] ?? symbol).join(", ")}`;
    return [`${symbols.length} symbols`, draw("svg", { viewBox: `0 0 ${symbols.length} 22`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      draw("path", { d: bars[0] }), draw("path", { d: bars[1], class: "one" }))];
  }
}

function counts(one) {
  const of = `of ${number(one.observed)} ticks that were observed`;
  if (one.noise === undefined || one.noise === null) return [make("p", { class: "small" }, `noisy count ${one.counts.join(", ")} ${of}`)];
  const text = (count, i) => `“${one.labels[i]}”: ${number(count)} ${of}, noise included; ${without(count, one)}`;
  const noise = `With ${Math.round(100 * one.confidence)} % its noise is between −${number(one.noise)} and +${number(one.noise)}.`;
  return [...one.counts.map((count, i) => make("p", { class: "small" }, text(count, i))), make("p", { class: "small quiet" }, noise)];
}

function without(count, { noise, observed }) {
  const [low, high] = [Math.max(count - noise, 0), Math.min(count + noise, observed)];
  return low > high ? "its noise was unusually large" : `without it ${number(low)} to ${number(high)}`;
}

function place(one) {
  const where = `point (${one.point.join(", ")})`;
  if (one.latitude === undefined) return where;
  const cell = one.state ? `in the cell “${one.state}”` : "in no cell of a state";
  return `${where}: ${one.latitude.toFixed(5)}°, ${one.longitude.toFixed(5)}°, ${cell}`;
}

function status(one) {
  if (!one.online) return `not connected (its last will)${codes(one)}`;
  const streams = one.streams.map(({ name, version, next }) => `${name} under policy ${version}, next tick ${number(next)}`);
  return `connected; agent ${one.agent}; ${number(one.outbox)} frames unsent${codes(one)}; ${streams.join("; ") || "no stream"}`;
}

const codes = (one) => (one.codes.length ? `; codes ${one.codes.join(", ")}` : "; no codes");

function policy(one) {
  const verdict = one.reason ? `refused the newest (${one.reason}: ${one.detail})` : one.judged ? `accepted the newest, ${one.judged}` : "was sent none";
  return `runs ${one.running ? `document ${one.running}` : "no document"}; ${verdict}; ${number(one.refused)} refused so far${one.stale ? "; out of date" : ""}`;
}
