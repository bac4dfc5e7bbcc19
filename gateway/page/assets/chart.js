// Values over time: a line for each name, with a band where it has an interval; the values where one points, in words.

import { clock, day, draw, make, number, percent, round, seconds } from "./dom.js";
import { Plot, roomBeside } from "./lanes.js";

const HEIGHT = 200;
const COLOURS = 4;
const MOST_DOTS = 60;
const STEPS = [1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400];
const MOST_MARKS = 13; // a week has one of each day

// Round values from the least to the largest, and beyond both.
function rounds(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span));
  const step = [0.5, 1, 2, 5].map((factor) => factor * power).find((factor) => span / factor <= 4) ?? span;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

// Words along time, at round times of the clock that hangs on the wall: midnight has its date; no two are the same.
function times([from, to]) {
  const step = STEPS.find((size) => (to - from) / size <= MOST_MARKS) ?? STEPS.at(-1);
  const text = step < 60 ? seconds : clock;
  const aside = new Date(from * 1000).getTimezoneOffset() * 60;
  const marks = [];
  for (let at = Math.ceil((from - aside) / step) * step + aside; at <= to; at += step) marks.push([at, ((at - aside) % 86400 ? text : DATE)(at * 1000)]);
  return marks.filter(([, words], i) => words !== marks[i - 1]?.[1]);
}

// Of rows [time, value, low, high, ...]; `ends` draws the intervals' ends as lines, for values that have no middle.
export class Chart {
  constructor(title, { colour = 0, ends = false, height = HEIGHT } = {}) {
    Object.assign(this, { colour, ends, title, height, beside: 0, pointed: null });
    this.picture = draw("svg", { class: "plot", "aria-hidden": "true" });
    this.canvas = make("div", { class: "canvas", role: "img", "aria-label": title, tabindex: 0, onkeydown: (event) => this.step(event), onblur: () => this.point(null),
      onpointermove: (event) => this.point(this.nearest(event.offsetX)), onpointerleave: () => this.point(null) }, this.picture);
    this.read = make("p", { class: "read small" }, make("span", { class: "quiet" }, "nothing has come yet"));
    this.root = make("figure", { class: "chart" }, make("figcaption", {}, title), this.canvas, this.read);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // `edges`: constants that are drawn dashed. `gap`: seconds between rows above which something is missing.
  show({ names, unit, rows, edges = [], gap = Infinity, from = null, to = null }) {
    Object.assign(this, { names, unit, rows, edges, gap, width: 0 });
    this.pointed = null;
    this.range = [from ?? rows[0]?.[0] ?? 0, to ?? rows.at(-1)?.[0] ?? 1];
    if (this.range[1] <= this.range[0]) this.range = [this.range[0] - 30, this.range[0] + 30];
    this.say();
  }

  // An axis of time and shares, before anything has come.
  empty(from, to) {
    this.show({ names: [], unit: "share", rows: [], from, to });
  }

  // What the words of its levels need; charts below one another have one axis of time.
  needs() { return this.rows ? roomBeside([{ levels: this.levels() }]) : 0; }

  align(beside) {
    if (beside !== this.beside) Object.assign(this, { beside, width: 0 });
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!this.rows || !width || width === this.width) return;
    this.width = width;
    const levels = this.levels();
    const lane = { height: this.height, span: this.range, marks: times(this.range), range: [levels[0][0], levels.at(-1)[0]], levels, shapes: this.shapes() };
    this.plot = new Plot(lane, width, Math.max(this.beside, this.needs()));
    this.picture.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.picture.replaceChildren(...this.plot.drawing());
    this.cursor = this.picture.appendChild(draw("path", { class: "cursor" }));
  }

  levels() {
    if (this.unit === "share") return [0, 0.5, 1].map((share) => [share, percent(share)]);
    const numbers = [...this.edges, ...this.rows.flatMap(([, ...rest]) => rest)].filter((value) => value !== null && value !== undefined);
    return rounds(Math.min(...numbers, 0), Math.max(...numbers, 0)).map((value) => [value, number(value)]);
  }

  shapes() {
    const parts = [];
    for (const row of this.rows) {
      if (!parts.length || row[0] - parts.at(-1).at(-1)[0] > this.gap) parts.push([]);
      parts.at(-1).push(row);
    }
    const shapes = this.edges.map((edge) => ({ kind: "level", look: "edge", points: [[edge]] }));
    this.names.forEach((_, i) => {
      const look = (kind) => `${kind} c${(this.colour + i) % COLOURS} dash${Math.floor(i / COLOURS)}`;
      const add = (kind, name, column) => {
        for (const part of parts) {
          const points = part.map((row) => [row[0], ...column.map((at) => row[3 * i + at] ?? null)]).filter((row) => !row.includes(null));
          if (points.length) shapes.push({ kind, look: look(name), points });
        }
      };
      if (this.names.length <= COLOURS) add("band", "band", [2, 3]);
      if (this.ends) for (const end of [2, 3]) add("line", "end", [end]);
      else add("line", "line", [1]);
      if (!this.ends && this.rows.length < MOST_DOTS) add("dots", "dot", [1]);
    });
    return shapes;
  }

  // In words what is pointed at, and otherwise the newest.
  say() {
    const row = this.rows?.[this.pointed ?? this.rows.length - 1];
    if (!row) return;
    const value = (x) => (x === null || x === undefined ? "" : written(x, this.unit));
    const texts = this.names.map((name, i) => {
      const [middle, low, high] = row.slice(3 * i + 1, 3 * i + 4);
      if (middle === undefined) return [name, "nothing is known"];
      return [name, middle === null ? between(low, high, this.unit) : value(middle) + (low === null || low === undefined ? "" : ` (${between(low, high, this.unit)})`)];
    });
    this.read.replaceChildren(make("span", { class: "quiet" }, `${day(row[0] * 1000)}: `), ...texts.map(([name, text], i) => make("span", { class: "key" },
      draw("svg", { class: `swatch c${(this.colour + i) % COLOURS}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, draw("rect", { width: 10, height: 10 })), `${name && `${name} `}${text}`)));
    this.canvas.setAttribute("aria-label", `${this.title}; ${this.read.textContent}. Arrow keys go through the values.`);
  }

  nearest(x) {
    if (!this.plot || !this.rows.length) return null;
    const away = (row) => Math.abs(this.plot.x(row[0]) - x);
    return this.rows.reduce((best, row, i) => (away(row) < away(this.rows[best]) ? i : best), 0);
  }

  point(i) {
    this.pointed = i;
    this.cursor?.setAttribute("d", i === null ? "" : `M${this.plot.x(this.rows[i][0]).toFixed(1)} 10V${this.plot.bottom}`);
    this.say();
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.rows?.length) return;
    event.preventDefault();
    this.point(Math.min(Math.max((this.pointed ?? this.rows.length - 1) + by, 0), this.rows.length - 1));
  }
}

const DATES = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
const DATE = (time) => DATES.format(new Date(time));
export const written = (value, unit) => (unit === "share" ? percent(value) : `${round(value)}${unit && ` ${unit}`}`);
export const between = (low, high, unit = "share") => (written(low, unit) === written(high, unit) ? written(low, unit) : `${unit === "share" ? percent(low) : round(low)} to ${written(high, unit)}`);
