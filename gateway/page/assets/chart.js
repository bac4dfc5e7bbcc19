// Values over time: a line for each name, with a band where it has an interval; the values where one points, in words.

import { clock, css, day, draw, make, number, percent, round } from "./dom.js";

const HEIGHT = 200;
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
const COLOURS = 4;
const charts = new Set();

// Colours follow what a person has chosen; on paper all is as in the light.
function repaint() {
  for (const one of charts) {
    if (one.root.isConnected) one.plot?.redraw();
    else charts.delete(one);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
for (const [event, paper] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => { document.documentElement.classList.toggle("paper", paper); repaint(); });
}

// Of rows [time, value, low, high, ...]; `ends` draws the intervals' ends as lines, for values that have no middle.
export class Chart {
  constructor(title, { colour = 0, ends = false } = {}) {
    this.colour = colour;
    this.ends = ends;
    this.title = title;
    this.range = [0, 1];
    this.canvas = make("div", { class: "canvas", role: "img", "aria-label": title, tabindex: 0, onkeydown: (event) => this.step(event), onblur: () => this.point(null) });
    this.read = make("p", { class: "read small" });
    this.root = make("figure", { class: "chart" }, make("figcaption", {}, title), this.canvas, this.read);
    charts.add(this);
  }

  // `edges`: two constants that are drawn dashed. `gap`: seconds between rows above which something is missing.
  show({ names, unit, rows, edges = [], gap = Infinity, from = null, to = null }) {
    const key = JSON.stringify([names, unit, edges.length]);
    if (this.key !== key) this.make(key, names, unit, edges);
    Object.assign(this, { names, unit, rows: [] });
    for (const row of rows) {
      const last = this.rows.at(-1);
      if (last && row[0] - last[0] > gap) this.rows.push([(last[0] + row[0]) / 2]);
      this.rows.push(row);
    }
    this.range = [from ?? this.rows[0]?.[0] ?? 0, to ?? this.rows.at(-1)?.[0] ?? 1];
    if (this.range[1] <= this.range[0]) this.range = [this.range[0] - 30, this.range[0] + 30];
    const column = (i) => this.rows.map((row) => row[i] ?? null);
    this.plot.setData([column(0), ...edges.map((edge) => this.rows.map(() => edge)), ...names.flatMap((_, i) => [column(3 * i + 3), column(3 * i + 2), column(3 * i + 1)])]);
    this.say();
  }

  make(key, names, unit, edges) {
    this.key = key;
    this.plot?.destroy();
    const share = unit === "share";
    const colour = (i) => css(`--c${(this.colour + i) % COLOURS}`);
    const points = { show: (plot, series) => plot.data[series].filter((one) => one !== null).length < 60, size: 4 };
    const line = (i, width) => ({ stroke: () => colour(i), width, dash: DASHES[Math.floor(i / COLOURS) % 4], points: width ? points : { show: false } });
    const axis = { stroke: () => css("--quiet"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false } };
    const wide = () => this.range[1] - this.range[0] > 2 * 86400;
    this.plot = new uPlot({
      width: 200, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
      scales: { x: { range: () => this.range }, y: share ? { range: [0, 1] } : {} },
      series: [{}, ...edges.map(() => ({ stroke: () => css("--quiet"), width: 1, dash: [3, 3], points: { show: false } })),
        ...names.flatMap((_, i) => [line(i, this.ends ? 1.5 : 0), line(i, this.ends ? 1.5 : 0), line(i, 2)])],
      bands: names.length > COLOURS ? [] : names.map((_, i) => ({ series: [1 + edges.length + 3 * i, 2 + edges.length + 3 * i], fill: () => `${colour(i)}33` })),
      axes: [{ ...axis, space: 80, size: 30, values: (_, times) => times.map((time) => (wide() ? DATE : clock)(time * 1000)) },
        { ...axis, size: 58, values: (_, values) => values.map((value) => (share ? percent(value) : number(value))) }],
      hooks: { setCursor: [() => this.say()], destroy: [() => observer.disconnect()] },
    }, [[], ...edges.map(() => []), ...names.flatMap(() => [[], [], []])], this.canvas);
    const observer = new ResizeObserver(() => { if (this.canvas.clientWidth > 0) this.plot.setSize({ width: this.canvas.clientWidth, height: HEIGHT }); });
    observer.observe(this.canvas);
  }

  // In words what is pointed at, and otherwise the newest.
  say() {
    const pointed = this.plot?.cursor.idx;
    const row = this.rows?.[pointed ?? this.rows.length - 1];
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

  point(i) {
    this.plot?.setCursor(i === null ? { left: -10, top: -10 } : { left: this.plot.valToPos(this.rows[i][0], "x"), top: 10 });
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !this.rows?.length) return;
    event.preventDefault();
    this.point(Math.min(Math.max((this.plot.cursor.idx ?? this.rows.length - 1) + by, 0), this.rows.length - 1));
  }
}

const DATES = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric" });
const DATE = (time) => DATES.format(new Date(time));
export const written = (value, unit) => (unit === "share" ? percent(value) : `${round(value)}${unit && ` ${unit}`}`);
export const between = (low, high, unit = "share") => (written(low, unit) === written(high, unit) ? written(low, unit) : `${unit === "share" ? percent(low) : round(low)} to ${written(high, unit)}`);
