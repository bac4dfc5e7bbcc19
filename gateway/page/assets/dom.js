// Elements made of values. Text is only ever set as text: what a device or a broker says is never markup.

const SVG = "http://www.w3.org/2000/svg";

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

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => NUMBER.format(value);
export const percent = (share) => `${Math.round(share * 100)} %`;
export const round = (value) => String(Number(Number(value).toPrecision(3)));

export const LARGEST_PROTECTED = 10;
// An epsilon, rounded up; without digits where it protects nothing.
export const loss = (value, before = "epsilon ") => {
  if (value === null || value > LARGEST_PROTECTED) return "not protected";
  const unit = value > 0 ? 10 ** (Math.floor(Math.log10(value)) - 2) : 1;
  return before + round(Math.ceil(value / unit * (1 - 1e-12)) * unit);
};

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
export const clock = (time) => CLOCK.format(new Date(time));
export const day = (time) => DAY.format(new Date(time));

const CONDITIONS = { sick: ["▲", "needs attention"], away: ["○", "away"], well: ["●", "well"] };
export const conditionText = (condition) => CONDITIONS[condition].join(" ");
export function mark(condition) {
  const [shape, text] = CONDITIONS[condition];
  return make("span", { class: `mark ${condition}` }, make("span", { "aria-hidden": "true" }, shape), ` ${text}`);
}
