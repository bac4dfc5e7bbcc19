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
export class MessageStrip {
  constructor(list) {
    Object.assign(this, { list, all: [], at: null, range: null });
    this.picture = draw("svg", { class: "plot", "aria-hidden": "true" });
    this.canvas = make("div", { class: "canvas strip", role: "img", tabindex: 0, onkeydown: (event) => this.step(event), onclick: (event) => this.choose(this.nearest(event.offsetX)) }, this.picture);
    this.open = make("ol", { class: "frames" });
    this.root = make("figure", { class: "chart messages", hidden: true }, make("figcaption", {}, "Messages: choose one for its bytes"), this.canvas, this.open);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get first() { return this.all[0]?.at ?? Infinity; }
  get last() { return this.all.at(-1)?.at ?? -Infinity; }

  take(messages) {
    const seen = new Set(this.all.map(({ bytes }) => bytes));
    const chosen = this.all[this.at];
    this.all.push(...messages.filter(({ time, bytes }) => time && !seen.has(bytes)).map((message) => ({ ...message, at: Date.parse(message.time) / 1000 })));
    this.all = this.all.sort((earlier, later) => earlier.at - later.at).slice(-MOST_SHOWN);
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
    return this.all.reduce((nearest, message, i) => (away(message) < away(this.all[nearest]) ? i : nearest), 0);
  }

  choose(i) {
    this.at = i;
    if (i === null) return;
    const item = this.list.item(this.all[i], "", true, day);
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

export class SentMessages {
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

  describe(stream, description) {
    this.described.set(stream, description);
  }

  take(message) {
    this.sent += 1;
    this.bytes += message.size;
    this.waiting.push(message);
    if (this.waiting.length > MOST_WAITING) this.waiting.shift();
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.drawing = 0;
    put(this.total, `${number(this.sent)} message${this.sent === 1 ? "" : "s"}, ${number(this.bytes)} bytes came to this page; the newest ${EACH} of each kind:`);
    const quick = performance.now() - this.drawn < 1000; // what changes all the time is not shown to move
    this.drawn = performance.now();
    const newest = new Map();
    for (const message of this.waiting.splice(0)) {
      const key = `${message.kind} ${message.stream}`;
      newest.set(key, [...(newest.get(key) ?? []), message].slice(-EACH));
    }
    for (const [key, messages] of newest) {
      for (const message of messages) this.frames.prepend(this.item(message, key, quick));
      const shown = [...this.frames.children].filter((item) => item.dataset.key === key);
      for (const item of shown.slice(EACH)) item.remove();
    }
  }

  item(message, key, quick, timeWords = seconds) {
    const when = message.time ? timeWords(message.time) : `tick ${number(message.first)}`;
    const bytes = make("details", {}, make("summary", {}, `${message.size} bytes`), make("code", {}, message.bytes.replace(/../g, "$& ")));
    const [what, ...body] = this.content(message);
    const stream = message.stream ? `${message.stream}: ` : "";
    return make("li", { class: quick ? "" : "new", "data-key": key },
      make("div", { class: "top" }, make("span", {}, when), make("span", {}, `${stream}${what}`)), ...body, bytes);
  }

  content(message) {
    if (message.kind === "frame") return this.symbols(message);
    if (message.kind === "window") return [`counts of window ${message.window}`, ...counts(message)];
    if (message.kind === "points") return [`${message.points.length} points`, ...message.newest.map((point) => make("p", { class: "small" }, place(point)))];
    if (message.kind === "status") return ["status", make("p", { class: "small" }, status(message))];
    return ["status of its policies", make("p", { class: "small" }, policy(message))];
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

function counts(message) {
  const of = `of ${number(message.observed)} ticks that were observed`;
  if (message.noise === undefined || message.noise === null) return [make("p", { class: "small" }, `noisy count ${message.counts.join(", ")} ${of}`)];
  const text = (count, i) => `“${message.labels[i]}”: ${number(count)} ${of}, noise included; ${without(count, message)}`;
  const noise = `With ${Math.round(100 * message.confidence)} % its noise is between −${number(message.noise)} and +${number(message.noise)}.`;
  return [...message.counts.map((count, i) => make("p", { class: "small" }, text(count, i))), make("p", { class: "small quiet" }, noise)];
}

function without(count, { noise, observed }) {
  const [low, high] = [Math.max(count - noise, 0), Math.min(count + noise, observed)];
  return low > high ? "its noise was unusually large" : `without it ${number(low)} to ${number(high)}`;
}

function place(point) {
  const pointWords = `point (${point.point.join(", ")})`;
  if (point.latitude === undefined) return pointWords;
  const cellWords = point.state ? `in the cell “${point.state}”` : "in no cell of a state";
  return `${pointWords}: ${point.latitude.toFixed(5)}°, ${point.longitude.toFixed(5)}°, ${cellWords}`;
}

function status(status) {
  if (!status.online) return `not connected (its last will)${codes(status)}`;
  const streams = status.streams.map(({ name, version, next }) => `${name} under policy ${version}, next tick ${number(next)}`);
  return `connected; agent ${status.agent}; ${number(status.outbox)} frames unsent${codes(status)}; ${streams.join("; ") || "no stream"}`;
}

const codes = (status) => (status.codes.length ? `; codes ${status.codes.join(", ")}` : "; no codes");

function policy(status) {
  const verdict = status.reason ? `refused the newest (${status.reason}: ${status.detail})` : status.judged ? `accepted the newest, ${status.judged}` : "was sent none";
  return `runs ${status.running ? `document ${status.running}` : "no document"}; ${verdict}; ${number(status.refused)} refused so far${status.stale ? "; out of date" : ""}`;
}
