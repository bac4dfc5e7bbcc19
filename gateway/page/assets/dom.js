// Elements made of values. Text is only ever set as text: what a device or a broker says is never markup.

const SVG = "http://www.w3.org/2000/svg";

// Below which path the page is served: none, or that of a reverse proxy, such as Home Assistant's ingress.
export const PREFIX = new URL("..", import.meta.url).pathname.slice(0, -1);

export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

// Changes a text only if it differs, so that a screen reader is told what has changed and nothing else.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A table that scrolls by itself where it has no room, and whose rows are stacked on a phone; and a row of it.
export function table(label, columns) {
  const rows = make("tbody");
  const heads = columns.map((text) => make("th", { scope: "col" }, text));
  return { rows, root: make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, make("table", { class: "stacked" }, make("thead", {}, make("tr", {}, ...heads)), rows)) };
}
export const tableRow = (columns, attributes, ...cells) => make("tr", attributes, ...cells.map((children, i) => make("td", { class: i ? "" : "name", "data-label": columns[i] }, make("div", {}, ...children))));

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => NUMBER.format(value);
export const percent = (share) => `${Math.round(share * 100)} %`;
export const round = (value) => String(Number(Number(value).toPrecision(3)));

export const LARGEST_PROTECTED = 6;
// An epsilon, rounded up; without digits where it protects nothing.
export const loss = (value, before = "epsilon ") => {
  if (value === null || value > LARGEST_PROTECTED) return "not protected";
  const unit = value > 0 ? 10 ** (Math.floor(Math.log10(value)) - 2) : 1;
  return before + round(Math.ceil(value / unit * (1 - 1e-12)) * unit);
};

// An epsilon in chances: whole per cent up to 95, then tenths.
export function chances(epsilon) {
  const sure = 100 / (1 + Math.exp(-epsilon));
  return epsilon === null || epsilon > LARGEST_PROTECTED ? "not protected" : `from 50 % to at most ${sure.toFixed(Number(sure >= 95))} % sure`;
}

// By how much odds change at most, rounded up.
export const odds = (epsilon) => (epsilon === null || epsilon > LARGEST_PROTECTED ? "not protected"
  : `odds change at most ${upward(Math.exp(epsilon))} times`);
const upward = (value) => {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return number(Number((Math.ceil(value / unit * (1 - 1e-12)) * unit).toPrecision(3)));
};

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [0.001, "ms"]];
// A length of time, in at most two units.
export function duration(seconds) {
  const first = UNITS.findIndex(([unit]) => seconds >= unit * (1 - 1e-9));
  if (first < 0) return "0 s";
  const [unit, name] = UNITS[first];
  if (unit <= 1) return `${round(seconds / unit)} ${name}`;
  const [lesser, more] = UNITS[first + 1];
  const whole = Math.floor(seconds / unit + 1e-9);
  const rest = Math.round((seconds - whole * unit) / lesser);
  return `${whole} ${name}${rest ? ` ${rest} ${more}` : ""}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
export const clock = (time) => CLOCK.format(new Date(time));
export const seconds = (time) => SECONDS.format(new Date(time));
export const day = (time) => DAY.format(new Date(time));

// How long ago something was, which goes on by itself; the day and time where one points at it.
export function ago(time) {
  const element = make("time", { datetime: new Date(time).toISOString(), title: day(time) });
  age(element);
  return element;
}

function age(element) {
  const passed = (Date.now() - Date.parse(element.dateTime)) / 1000;
  put(element, passed < -5 ? `in ${coarse(-passed)}` : passed < 5 ? "now" : `${coarse(passed)} ago`);
}

function coarse(passed) {
  const [unit, name] = UNITS.find(([size]) => passed >= size) ?? [1, "s"];
  return `${number(Math.floor(passed / unit))} ${name}`;
}
setInterval(() => document.querySelectorAll("time").forEach(age), 5000);

const TROUBLES = {
  "connection-lost": "its connection has ended", link: "the broker refuses it a topic", "storage-full": "its disk is full",
  storage: "its outbox takes nothing", clock: "its clock was set back: it waits", "policy-inactive": "a policy is not valid now",
  "policy-expired": "its document has expired: it is silent", stopped: "the gateway has stopped it: another sends under its name",
  paused: "the person who is measured has paused it", "table-refused": "it refused a table of places",
  "gateway-clock": "the gateway's clock is a day ahead of its own",
};
// What is wrong with a device, in words: codes that it said, documents that it refused or has not answered.
export function troubles(device) {
  const document = device.wanted ? `document ${device.wanted}` : "the newest document";
  return [...device.codes.map((code) => `${TROUBLES[code] ?? code} (${code})`),
    device.refusal && `it refused ${document} (${device.refusal}) and goes on with ${device.running ? `document ${device.running}` : "none"}`,
    device.waits && `it has not answered ${document} yet`, device.stale && "its policy is out of date"].filter(Boolean);
}

const CONDITIONS = { sick: ["▲", "needs attention"], away: ["○", "away"], well: ["●", "well"] };
export const conditionText = (condition) => CONDITIONS[condition].join(" ");
export function mark(condition) {
  const [shape, text] = CONDITIONS[condition];
  return make("span", { class: `mark ${condition}` }, make("span", { "aria-hidden": "true" }, shape), ` ${text}`);
}
