// A device: what left it, beside what can be concluded from that.

import { Attack } from "./attack.js";
import { chart } from "./chart.js";
import { Budget } from "./budget.js";
import { clock, day, draw, LARGEST_PROTECTED, loss, make, mark, number, percent, put, round } from "./dom.js";
import { Left, leaves } from "./left.js";
import { PlaceMap } from "./place.js";

const POINTS = 300;
const ADVERSARIES = {
  ignorant: "somebody who knows the class of chains, and no reading",
  informed: "whoever also knows any of the other readings",
  universal: "whoever knows anything else of the readings, or half knows it",
};

export function device(main, listen, name) {
  const condition = make("span", {}, "");
  const facts = make("p", { class: "quiet small" }, "waiting for what the device says …");
  const streams = new Map();
  let budgets = null;
  let view = null;
  const left = new Left();
  const map = make("p", {}, make("a", { href: `/place/${encodeURIComponent(name)}` }, "Where it may be, on a map"));
  main.append(make("h1", {}, name), make("p", {}, condition), facts, left.root);
  listen(`/events/device/${encodeURIComponent(name)}`, { state, update });

  function state({ member, about }) {
    view = about.ledger;
    if (!member) return put(facts, "This account has heard nothing of the device itself.");
    condition.replaceChildren(mark(member.condition));
    const wrong = [...member.codes, member.refusal].filter(Boolean);
    put(facts, [...wrong, `agent ${member.agent}`, `frames unsent: ${number(member.outbox)}`].join(" · "));
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
        streams.set(one.stream, new Stream(one.stream));
        main.append(streams.get(one.stream).root);
        if (budgets) streams.get(one.stream).budget.take(budgets);
      }
      streams.get(one.stream).take(one);
    }
  }
}

class Stream {
  constructor(name) {
    this.described = null;
    this.times = [];
    this.shares = [];
    this.newest = null;
    this.attack = new Attack();
    this.budget = new Budget(name);
    this.class = make("p", { class: "quiet small" });
    this.now = make("div", { class: "now estimate" }, make("span", { class: "quiet" }, "waiting for an estimate …"));
    this.chart = make("div", { class: "chart", role: "img", "aria-label": "Probability over time" });
    this.who = make("p", { class: "small quiet" });
    this.shared = make("div", {});
    this.counted = make("div", {});
    this.promise = make("div", {}, make("p", { class: "quiet" }, "not described yet"));
    this.root = make("section", { class: "stream", "aria-label": `Stream ${name}` },
      make("h2", {}, name), this.class,
      make("div", { class: "sides" },
        this.attack.root,
        make("div", { class: "card" }, make("h3", {}, "What a subscriber gets"), this.now, this.chart, this.who, this.shared, this.counted),
        this.budget.root,
        make("div", { class: "card" }, make("h3", {}, "What is promised"), this.promise)));
  }

  take(one) {
    if (one.kind === "description") this.describe(one);
    else if (one.kind === "estimate") this.estimate(one);
    else if (one.kind === "count") this.count(one);
    else if (one.kind === "attack") this.attack.take(one);
    else return;
    if (!this.drawing) this.drawing = requestAnimationFrame(() => this.draw());
  }

  describe(told) {
    this.described = told;
    this.budget.describe(told);
    put(this.class, `A tick every ${duration(told.period_seconds)}, ${number(told.frame_ticks)} to a message; policy ${told.version}${told.confirmed ? "" : " (not confirmed by the device)"}.`);
    const { epsilon, adversary, stretches, stretch_ticks: ticks } = told.guarantee;
    const about = ticks > 1 ? `any ${number(ticks)} ticks in a row` : "a tick";
    const facts = [];
    if (epsilon !== null) {
      facts.push([`epsilon of ${about}`, loss(epsilon, "")]);
      facts.push(["against", ADVERSARIES[adversary]]);
      if (epsilon <= LARGEST_PROTECTED) facts.push(["so", `odds of what was true in ${about} change by a factor of at most ${round(Math.exp(epsilon))}: from 50 % to at most ${percent(1 / (1 + Math.exp(-epsilon)))}`]);
    }
    if (told.point_epsilon !== null) facts.push(["epsilon of a point", round(told.point_epsilon)]);
    for (const one of stretches.slice(ticks > 1 ? 0 : 1)) facts.push([one.name, `${loss(one.epsilon)}; ${loss(one.floor, "")} if all else is as it was`]);
    if (told.since_tick !== null) facts.push(["since", `tick ${number(told.since_tick)}; a stretch that begins before may lose the larger of this and the former promise`]);
    facts.push(["for", told.chain_class]);
    this.promise.replaceChildren(make("p", {}, told.protects), make("p", { class: "bad" }, told.does_not_protect),
      make("dl", {}, ...facts.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)])));
    const bounds = told.bounds;
    put(this.who, bounds
      ? `The gateway's estimate, from all messages and the policy. Whatever comes, the promise keeps the probability of “${bounds.state}” between ${percent(bounds.low)} and ${percent(bounds.high)} (shaded) for ${ADVERSARIES.ignorant}.`
      : "The gateway's estimate, from all messages and the policy.");
    this.plot?.destroy();
    this.plot = null;
  }

  estimate(one) {
    this.newest = one;
    if (!("state" in one)) return;
    const states = this.described?.states ?? Object.keys(one).filter((key) => key.startsWith("share_")).map((key) => key.slice(6));
    this.states = states.slice(0, 8);
    const shown = states.length === 2 ? [states[1]] : this.states;
    this.times.push(Date.parse(one.time) / 1000);
    this.shares.push(shown.map((state) => one[`share_${state}`]));
    if (this.times.length > POINTS) { this.times.shift(); this.shares.shift(); }
  }

  count(one) {
    const numbers = one.states.map((state) => [state, one[`value_${state}`], one[`low_${state}`], one[`high_${state}`]]).filter(([, value]) => value !== undefined);
    if (one.value !== undefined) numbers.push([one.states.join(" or "), one.value, one.low, one.high]);
    const head = make("p", { class: "small quiet" }, `Window ${one.window}, ${day(one.since)} to ${day(one.time)}, with ${percent(one.confidence)} intervals:`);
    if (one.blocks?.length) return this.counted.replaceChildren(head, ...profile(one));
    this.counted.replaceChildren(head,
      make("dl", {}, ...numbers.flatMap(([state, value, low, high]) => [make("dt", {}, state), make("dd", {}, `${round(value)} ${one.unit} (${round(low)} to ${round(high)})`)])));
  }

  draw() {
    this.drawing = 0;
    const one = this.newest;
    if (!one) return;
    if ("state" in one) this.drawStates(one);
    else if ("latitude" in one) this.drawPlace(one);
    else this.drawValues(one);
  }

  drawStates(one) {
    this.now.replaceChildren(make("strong", {}, one.state), make("span", { class: "quiet" }, `with probability ${percent(one.probability)}, at ${clock(one.time)}`));
    const shares = this.states.map((state) => share(state, one[`share_${state}`]));
    this.shared.replaceChildren(make("p", { class: "small quiet" }, `Shares of the states, ${clock(one.since)} to ${clock(one.time)}${one.useful ? "" : "; maybe no better than a guess"}:`), ...shares);
    const bounds = this.described?.bounds;
    const constant = (value) => this.times.map(() => value);
    const lines = this.shares[0].map((_, i) => this.shares.map((row) => row[i]));
    const data = [this.times, ...(bounds ? [constant(bounds.low), constant(bounds.high)] : []), ...lines];
    if (!this.plot) {
      const names = this.states.length === 2 ? [this.states[1]] : this.states;
      this.plot = chart(this.chart, data, bounds ? ["least", "most"] : [], names.map((name, i) => [name, i]), "--main", bounds ? [[2, 1]] : []);
    }
    else this.plot.setData(data);
    this.chart.setAttribute("aria-label", `Probability of ${this.states.at(-1)} over time, now ${percent(one[`share_${this.states.at(-1)}`])}`);
  }

  drawPlace(one) {
    this.now.replaceChildren(make("strong", {}, `${one.latitude.toFixed(5)}°, ${one.longitude.toFixed(5)}°`),
      make("span", { class: "quiet" }, `within ${number(Math.round(one.accuracy))} m, hidden among ${one.protection}, at ${clock(one.time)}`));
    const place = this.described?.place;
    if (!place) return;
    if (this.map?.place !== place) this.chart.replaceChildren((this.map = new PlaceMap(place)).root);
    this.map.show(one.where, []);
    this.chart.setAttribute("aria-label", this.map.root.getAttribute("aria-label"));
    put(this.shared, "The same place, with its accuracy.");
  }

  drawValues(one) {
    const values = Object.keys(one).filter((key) => key.startsWith("value")).map((key) => key.slice(5));
    const text = (end) => `${round(one[`value${end}`])} (${round(one[`low${end}`])} to ${round(one[`high${end}`])})${one.unit ? ` ${one.unit}` : ""}`;
    this.now.replaceChildren(make("strong", {}, values.map((end) => round(one[`value${end}`])).join(", ")), make("span", { class: "quiet" }, one.unit ?? ""));
    put(this.shared, `Means with 95 % intervals: ${values.map(text).join("; ")}`);
  }
}

function share(state, value) {
  return make("div", { class: "share" }, make("span", {}, state),
    draw("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { width: 100 * value, height: 12 })),
    make("span", {}, percent(value)));
}

// A bar for each part of the day: its share of the time, and the band that holds it.
function profile(one) {
  const title = make("p", { class: "small" }, `${one.states.join(" or ")}, share of each part of the day`);
  if (!one.observed) return [title, make("p", { class: "small quiet" }, "The device ran at no tick of it.")];
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

const duration = (seconds) => seconds >= 3600 ? `${round(seconds / 3600)} h` : seconds >= 60 ? `${round(seconds / 60)} min` : seconds >= 1 ? `${round(seconds)} s` : `${round(seconds * 1000)} ms`;
