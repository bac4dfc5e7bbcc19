// Lanes on one axis of time, drawn from numbers: what stays, what leaves, what an attacker can say.
// `lanes.py` of the command line draws the same numbers as a file; a test compares their points.

import { draw, make, put } from "./dom.js";

const [LEFT, TOP, FOOT, AXIS_FOOT] = [8, 14, 10, 30];
const LETTER = 7.6;
const HEIGHTS = { stays: 140, leaves: 174, attacker: 190 }; // before anything has come, so that nothing moves when it does
const ICONS = {
  stays: "M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  leaves: "M4 12 12 4M6 4h6v6",
  attacker: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8ZM8 6.3a1.7 1.7 0 1 0 0 3.4 1.7 1.7 0 0 0 0-3.4",
};
export const icon = (look) => draw("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, draw("path", { d: ICONS[look] }));

const places = (...all) => all.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
const longest = (marks) => LETTER * Math.max(0, ...marks.map(([, words]) => words.length));

// What the words of all levels need; one axis of time has one width in all lanes.
export const roomBeside = (lanes) => 14 + longest(lanes.flatMap(({ levels }) => levels));

// Places of a lane's numbers in a picture of some width.
export class Plot {
  constructor(lane, width, beside) {
    this.lane = lane;
    this.right = width - beside;
    const foot = lane.marks.length ? AXIS_FOOT : FOOT;
    this.height = lane.height || this.right - LEFT + TOP + foot; // a map is as wide as high
    this.bottom = this.height - foot;
  }

  x(at) {
    const [first, last] = this.lane.span;
    return LEFT + (at - first) / (last - first) * (this.right - LEFT);
  }

  y(value) {
    const [low, high] = this.lane.range;
    return this.bottom - (Math.min(Math.max(value, low), high) - low) / (high - low) * (this.bottom - TOP);
  }

  path({ kind, points }) {
    const [x, y] = [(at) => this.x(at), (at) => this.y(at)];
    const joined = (text, i) => `${i ? "L" : "M"}${text}`;
    switch (kind) {
      case "line": return points.map(([a, b], i) => joined(places([x(a), y(b)]), i)).join("");
      case "dots": return points.map(([a, b]) => `M${places([x(a), y(b)])}h0`).join("");
      case "range": return points.map(([a, low, high], i) => joined(places([x(a), y(low)], [x(a), y(high)]), i)).join("");
      case "band": return points.length ? `M${places(...points.map(([a, , high]) => [x(a), y(high)]), ...points.map(([a, low]) => [x(a), y(low)]).reverse())}Z` : "";
      case "bars": return points.map(([a, b, low, high]) => `M${places([x(a), y(low)], [x(a), y(high)], [x(b), y(high)], [x(b), y(low)])}Z`).join("");
      case "level": return `M${places([LEFT, y(points[0][0])], [this.right, y(points[0][0])])}`;
      default: return `M${places([LEFT, y(points[0][0])], [LEFT, y(points[0][1])], [this.right, y(points[0][1])], [this.right, y(points[0][0])])}Z`;
    }
  }

  // Every so many of the words along the level axis, so that none is on another.
  marks() {
    const { marks, middles } = this.lane;
    const every = Math.max(1, Math.ceil((longest(marks) + 12) * marks.length / (this.right - LEFT)));
    const begin = middles ? Math.floor((every - 1) / 2) : every - 1;
    const shown = marks.filter((_, i) => i >= begin && (i - begin) % every === 0).map(([at, words]) => [this.x(at), words]);
    return shown.filter(([x, words]) => x >= 0.5 * LETTER * words.length);
  }

  drawing() {
    const text = (x, y, words, look = "") => draw("text", { x: x.toFixed(1), y: y.toFixed(1), class: look }, words);
    const { levels, shapes } = this.lane;
    return [
      ...levels.flatMap(([value, words]) => [draw("path", { class: "grid", d: `M${places([LEFT, this.y(value)], [this.right, this.y(value)])}` }), text(this.right + 8, this.y(value) + 4, words)]),
      ...this.marks().map(([x, words]) => text(x, this.height - 8, words, "mark")),
      ...shapes.map((shape) => draw("path", { class: `shape ${shape.look}`, d: this.path(shape) })),
      ...shapes.filter(({ words }) => words).map(({ points, words, look }) => {
        const [value, at] = [...points[0]].reverse();
        const [x, y] = [at === undefined ? LEFT : this.x(at) + 3, this.y(value)];
        return text(x + 4, y > TOP + 16 ? y - 6 : y + 17, words, `words ${look}`);
      }),
    ];
  }
}

// One lane: its words, and its picture, which follows the width that it has.
class Strip {
  constructor(look) {
    const name = look[0].toUpperCase() + look.slice(1); // until its lane has come
    this.number = make("div", { class: "number" });
    this.words = make("p", {});
    this.title = make("h2", {}, icon(look), make("span", {}, name));
    this.head = make("figcaption", {});
    this.picture = draw("svg", { class: "plot", role: "img", "aria-label": name, height: HEIGHTS[look] });
    this.root = make("section", { class: `lane ${look}` }, make("div", { class: "beside" }, this.title, this.number, this.words), make("figure", {}, this.head, this.picture));
    new ResizeObserver(() => this.draw()).observe(this.root);
  }

  show(lane, beside) {
    const key = JSON.stringify([lane, beside]);
    if (key === this.key) return;
    Object.assign(this, { key, lane, beside });
    put(this.title.lastChild, lane.title);
    put(this.number, lane.number);
    put(this.words, lane.words);
    put(this.head, lane.head);
    this.picture.setAttribute("aria-label", `${lane.title}: ${lane.number} ${lane.words}. ${lane.head}`);
    this.width = 0;
    this.draw();
  }

  draw() {
    const width = this.picture.parentNode.clientWidth;
    if (!this.lane || !width || width === this.width) return;
    this.width = width;
    const plot = new Plot(this.lane, width, this.beside);
    for (const [name, value] of [["viewBox", `0 0 ${width} ${plot.height}`], ["height", plot.height]]) this.picture.setAttribute(name, value);
    this.picture.replaceChildren(...plot.drawing());
  }
}

export class Lanes {
  constructor(looks = ["stays", "leaves", "attacker"]) {
    this.strips = new Map(looks.map((look) => [look, new Strip(look)]));
    this.root = make("div", { class: "lanes" }, ...[...this.strips.values()].map(({ root }) => root));
  }

  show(lanes) {
    const beside = roomBeside(lanes);
    this.root.classList.toggle("maps", !lanes[0].height);
    for (const lane of lanes) this.strips.get(lane.look)?.show(lane, beside);
  }
}
