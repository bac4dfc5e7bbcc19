// Where a device may be: cells with their probabilities, released points, and the ellipse that holds the true place.

import { ago, clock, draw, make, number, percent, PREFIX, put } from "./dom.js";

const METRES = 111320; // of a degree of latitude
const POINTS = 30;
const ROWS = 12;
const MOST_TEXTS = 150;

export function place(main, listen, name) {
  const facts = make("p", { class: "quiet small" }, "waiting for a stream of places …");
  const streams = new Map();
  main.append(make("h1", {}, `Where ${name} may be`), make("p", {}, make("a", { href: `${PREFIX}/device/${encodeURIComponent(name)}` }, "All of this device")), facts);
  listen(`/events/device/${encodeURIComponent(name)}`, { state: () => {}, update });

  function update(messages) {
    for (const message of messages) {
      if (message.kind === "description") describe(message);
      streams.get(message.stream)?.take(message);
    }
  }

  function describe(description) {
    streams.get(description.stream)?.root.remove();
    streams.delete(description.stream);
    if (description.place) {
      streams.set(description.stream, new Stream(description));
      main.append(streams.get(description.stream).root);
    }
    put(facts, streams.size ? "From what left the device and what the gateway says; the true place is on the device only." : "No stream of this device that this account may read is one of places.");
  }
}

class Stream {
  constructor(description) {
    this.description = description;
    this.where = null;
    this.points = [];
    this.map = new PlaceMap(description.place);
    this.now = make("div", { class: "now" }, make("span", { class: "quiet" }, "No estimate since this page was opened."));
    this.outline = make("p", { class: "outline" });
    this.released = make("ol", { class: "small newest" });
    this.rows = make("tbody");
    this.rest = make("p", { class: "small quiet" });
    this.likely = make("div", { class: "card", hidden: true }, make("h3", {}, "Cells, the likeliest first"),
      make("table", {}, make("thead", {}, make("tr", {}, ...["Cell", "Probability", "Its middle"].map((text) => make("th", { scope: "col" }, text)))), this.rows), this.rest);
    const what = description.of === "points" ? "points" : "symbols";
    this.root = make("section", { class: "stream", "aria-label": `Stream ${description.stream}` }, make("h2", {}, description.stream), this.now, this.outline, this.map.root,
      make("p", { class: "small quiet legend" },
        key(draw("rect", { class: "cell", width: 10, height: 10 }), `one of ${number(description.place.cells.length)} cells${what === "symbols" ? ", greener where a place is likelier, with its percentage" : "; the gateway publishes no probability of each"}`),
        key(draw("path", { class: "middle", d: "M0 5h10M5 0v10" }), "the estimate"), key(draw("ellipse", { class: "where", cx: 5, cy: 5, rx: 4.5, ry: 3 }), "its ellipse"),
        key(draw("circle", { class: "released", cx: 5, cy: 5, r: 4 }), `${what} that left the device`), key(draw("circle", { class: "released newest", cx: 5, cy: 5, r: 4 }), "the newest")),
      make("div", { class: "sides" }, this.likely,
        make("div", { class: "card" }, make("h3", {}, `What left the device: ${what}`), make("p", { class: "small quiet" }, "The newest first. Each is random; it says where the device may be, not where it is."), this.released)));
  }

  take(message) {
    if (message.kind === "estimate") this.estimate(message);
    else if (message.newest?.length && message.newest[0].latitude !== undefined) {
      for (const point of message.newest) this.points.push({ ...point, time: message.time });
      this.points.splice(0, this.points.length - POINTS);
    } else return;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  estimate(message) {
    if (message.where.latitude === undefined) return;
    this.where = { ...message.where, time: message.time, ticks: message.ticks };
  }

  draw() {
    this.drawing = 0;
    this.map.show(this.where, this.points);
    this.released.replaceChildren(...this.points.slice(-5).reverse().map((point) => make("li", {}, `${degrees(point)}, ${point.state ? `in the cell “${point.state}”` : "outside all cells"}${point.time ? `, ${clock(point.time)}` : ""}`)));
    if (!this.where) return;
    const { time, placed, protection, accuracy } = this.where;
    const hidden = protection === undefined ? "" : `, hidden among ${protection} cells`;
    this.now.replaceChildren(make("strong", {}, degrees(this.where)), make("span", { class: "quiet" }, `the gateway's estimate${hidden} · `, ago(time)));
    const circle = accuracy === undefined ? "" : ` A circle of ${metres(accuracy)} about the same centre is as likely to hold it.`;
    const unplaced = placed === undefined || placed > 0.9995 ? "" : ` It has no place with probability ${share(1 - placed)}.`;
    put(this.outline, `With 95 % or more the true place is in ${outline(this.where)}.${circle}${unplaced}`);
    this.drawCells();
  }

  drawCells() {
    const { cells } = this.where;
    this.likely.hidden = !cells;
    if (!cells) return;
    const order = cells.map((_, i) => i).sort((i, j) => cells[j] - cells[i] || i - j);
    this.rows.replaceChildren(...order.slice(0, ROWS).map((i) => make("tr", {}, make("td", { class: "name" }, this.description.place.labels[i]),
      make("td", {}, share(cells[i])), make("td", {}, degrees(this.map.middle(i))))));
    const others = order.slice(ROWS);
    put(this.rest, `${others.length ? `${number(others.length)} other cells: together ${share(others.reduce((sum, i) => sum + cells[i], 0))}. ` : ""}The gateway's estimate of the share of the last ${this.where.ticks === 1 ? "tick" : `${number(this.where.ticks)} ticks`} in each.`);
  }
}

// The cells of a stream of places, drawn in metres, north up.
export class PlaceMap {
  constructor(place) {
    this.place = place;
    const rows = place.cells.map(([, row]) => row);
    const columns = place.cells.map(([column]) => column);
    const extent = (indices) => indices.reduce(([least, most], index) => [Math.min(least, index), Math.max(most, index)], [Infinity, -Infinity]);
    [this.south, this.north] = extent(rows);
    [this.west, this.east] = extent(columns);
    const middle = place.origin[0] + ((this.south + this.north + 1) / 2) * place.step[0];
    this.height = place.step[0] * METRES;
    this.width = place.step[1] * METRES * Math.cos((middle * Math.PI) / 180);
    this.cells = place.cells.map(([column, row]) => draw("rect", { class: "cell", ...this.corner(column, row), width: this.width, height: this.height }));
    this.likely = place.cells.map(([column, row]) => draw("rect", { class: "likely", ...this.corner(column, row), width: this.width, height: this.height, "fill-opacity": 0 }));
    this.texts = place.cells.length > MOST_TEXTS ? [] : place.cells.map(([column, row]) => {
      const { x, y } = this.corner(column, row);
      return draw("text", { x: x + this.width / 2, y: y + this.height * 0.93 });
    });
    this.over = draw("g");
    this.scale = draw("g", { class: "scale" });
    this.svg = draw("svg", { class: "map", "aria-hidden": "true" }, ...this.cells, ...this.likely, ...this.texts, this.over, this.scale);
    this.root = make("div", { class: "mapped", role: "img", "aria-label": "Map, without an estimate yet" }, this.svg);
    this.frame([]);
  }

  corner(column, row) {
    return { x: (column - this.west) * this.width, y: (this.north - row) * this.height };
  }

  // Of an index of a cell: its middle on the earth.
  middle(i) {
    const [column, row] = this.place.cells[i];
    return { latitude: this.place.origin[0] + (row + 0.5) * this.place.step[0], longitude: this.place.origin[1] + (column + 0.5) * this.place.step[1] };
  }

  at({ latitude, longitude }) {
    const { x, y } = this.corner((longitude - this.place.origin[1]) / this.place.step[1], (latitude - this.place.origin[0]) / this.place.step[0] - 1);
    return [x, y];
  }

  // All cells, and what lies beyond them up to once their extent.
  frame(places) {
    const [wide, high] = [(this.east - this.west + 1) * this.width, (this.north - this.south + 1) * this.height];
    const within = (values, length) => [Math.max(-length, Math.min(0, ...values)), Math.min(2 * length, Math.max(length, ...values))];
    const [left, right] = within(places.map(([x]) => x), wide);
    const [top, bottom] = within(places.map(([, y]) => y), high);
    this.size = Math.max(right - left, bottom - top);
    const rim = this.size / 40;
    const under = 3 * rim; // for the scale and the arrow to north
    this.svg.setAttribute("viewBox", [left - rim, top - rim, right - left + 2 * rim, bottom - top + rim + under].join(" "));
    for (const text of this.texts) text.setAttribute("font-size", Math.min(this.height, this.width, this.size / 6) * 0.24);
    const length = nice((right - left) / 3);
    const y = bottom + 1.6 * rim;
    this.scale.replaceChildren(
      draw("path", { d: `M${left} ${y - rim / 2}v${rim / 2}h${length}v${-rim / 2}` }),
      draw("text", { x: left + length / 2, y: y + 1.3 * rim, "font-size": 1.2 * rim }, metres(length)),
      draw("path", { d: `M${right - rim / 2} ${y + rim}v${-2 * rim}m${-rim / 2} ${rim / 2}l${rim / 2} ${-rim / 2}l${rim / 2} ${rim / 2}` }),
      draw("text", { x: right - 1.8 * rim, y: y + rim / 2, "font-size": 1.4 * rim }, "N"));
  }

  show(where, points) {
    const most = Math.max(1e-9, ...(where?.cells ?? [0]));
    this.likely.forEach((cell, i) => cell.setAttribute("fill-opacity", where?.cells ? ((0.75 * where.cells[i]) / most).toFixed(3) : 0));
    this.texts.forEach((text, i) => put(text, where?.cells?.[i] >= 0.005 ? `${Math.round(100 * where.cells[i])} %` : ""));
    const drawn = points.map((point) => this.at(point));
    const round = where ? this.around(where) : [];
    this.frame([...drawn, ...round]);
    const dot = this.size / 110;
    const rings = drawn.map(([cx, cy], i) => draw("circle", { class: i === drawn.length - 1 ? "released newest" : "released", cx, cy, r: i === drawn.length - 1 ? 1.5 * dot : dot }));
    this.over.replaceChildren(...(where ? this.estimate(where, dot) : []), ...rings);
    if (where) this.root.setAttribute("aria-label", `Map of ${number(this.place.cells.length)} cells with ${number(points.length)} released points: the estimate is ${degrees(where)}, in ${outline(where)}`);
  }

  estimate(where, dot) {
    const [x, y] = this.at(where);
    return [
      draw("ellipse", { class: "where", rx: where.semi_minor, ry: where.semi_major, transform: `translate(${x} ${y}) rotate(${where.orientation})` }),
      draw("path", { class: "middle", d: `M${x - 2 * dot} ${y}h${4 * dot}M${x} ${y - 2 * dot}v${4 * dot}` }),
    ];
  }

  around(where) {
    const [x, y] = this.at(where);
    const turn = (where.orientation * Math.PI) / 180;
    const reach = (along, across) => Math.hypot(where.semi_major * along, where.semi_minor * across);
    const [u, v] = [reach(Math.sin(turn), Math.cos(turn)), reach(Math.cos(turn), Math.sin(turn))];
    return [[x - u, y - v], [x + u, y + v]];
  }
}

const key = (shape, text) => make("span", { class: "key" }, draw("svg", { class: "mini", viewBox: "0 0 10 10", "aria-hidden": "true" }, shape), text);
// The largest of 1, 2 and 5 times a power of ten that is not above a length.
const nice = (length) => {
  const unit = 10 ** Math.floor(Math.log10(length));
  return unit * (length >= 5 * unit ? 5 : length >= 2 * unit ? 2 : 1);
};
const degrees = ({ latitude, longitude }) => `${latitude.toFixed(5)}°, ${longitude.toFixed(5)}°`;
const metres = (value) => (value >= 10000 ? `${number(Math.round(value / 100) / 10)} km` : `${number(Math.round(value))} m`);
const share = (value) => (value > 0 && value < 0.005 ? "below 0.5 %" : percent(value));
const outline = ({ semi_major, semi_minor, orientation }) => `an ellipse with half-axes of ${metres(semi_major)} and ${metres(semi_minor)}, the longer one ${Math.round(orientation) % 180}° from north by east`;
