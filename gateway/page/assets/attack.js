// What a named attacker makes of a stream: a gauge of its best guess between the marks of the promise; folded: over time.

import { between, Chart } from "./chart.js";
import { clock, draw, LARGEST_PROTECTED, loss, make, odds, percent, put } from "./dom.js";
import { icon } from "./lanes.js";

const ROOM = 0.2; // for the words of a mark
const sure = (epsilon) => 1 / (1 + Math.exp(-epsilon));

export class Attack {
  constructor() {
    this.gauge = make("div", { class: "gauge" });
    this.said = make("p", { class: "small" }, "Waiting for messages.");
    this.beyond = make("p", { class: "bad", hidden: true }, "▲ It got beyond what the promise allows: the stream's description states a smaller epsilon than its table keeps. See fugu check statement.");
    this.chart = new Chart("How sure an attacker is: the promise keeps it between the dashed lines", { colour: 3, ends: true, height: 140 });
    this.chart.root.classList.add("guesses");
    this.chart.root.hidden = true;
    this.allowed = make("p", { class: "small" });
    this.who = make("p", { class: "small quiet" });
    this.more = make("details", { hidden: true }, make("summary", {}, "About this attacker"), this.allowed, this.who);
    this.root = make("div", { class: "card attack" }, make("h3", {}, icon("attacker"), " Best guess of an attacker"), this.gauge, this.said, this.beyond, this.more);
  }

  // Until an attacker has read something, the gauge has what the promise allows who began with even odds.
  describe({ guarantee }) {
    const { epsilon } = guarantee;
    const held = epsilon !== null && epsilon <= LARGEST_PROTECTED;
    if (this.told) return;
    this.point(held ? [1 - sure(epsilon), sure(epsilon)] : [0, 1], null, "no", "yes");
    put(this.said, held ? "Waiting for messages. The marks show what the promise allows, from even odds." : "Not protected. Waiting for messages.");
  }

  point([least, most], guess, no, yes) {
    const mark = (at, kind) => draw("path", { class: kind, d: `M${(100 * at).toFixed(1)} 0V16` });
    const written = most - least < ROOM ? [[(least + most) / 2, between(least, most)]] : [[least, percent(least)], [most, percent(most)]];
    const marks = (least > 0 || most < 1 ? written : []).map(([at, words]) => {
      const made = make("span", { class: "at" }, words);
      made.style.left = `${100 * Math.min(Math.max(at, ROOM / 2), 1 - ROOM / 2)}%`;
      return made;
    });
    this.gauge.replaceChildren(
      make("div", { class: "marks small quiet" }, ...marks),
      draw("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { y: 5, width: 100, height: 6 }),
        draw("rect", { class: "allowed", x: 100 * least, y: 5, width: 100 * (most - least), height: 6 }), mark(least, "mark"), mark(most, "mark"),
        ...(guess ? [draw("rect", { class: "guess", x: 100 * guess[0], y: 2, width: Math.max(2, 100 * (guess[1] - guess[0])), height: 12 })] : [])),
      make("div", { class: "scale small quiet" }, make("span", {}, no), make("span", {}, yes)));
  }

  take(told) {
    if (told.waits) return;
    this.more.hidden = Boolean(told.none);
    this.beyond.hidden = !told.beyond;
    if (told.none) this.chart.root.hidden = true;
    if (told.none) return put(this.said, `What the promise allows, from even odds. ${told.none}`);
    const { states } = told;
    const last = states.map((state, i) => [state, told.low[i].at(-1), told.high[i].at(-1), i]);
    const [state, low, high, i] = last.reduce((best, one) => (one[2] > best[2] ? one : best));
    const limit = told.epsilon === null || told.epsilon > LARGEST_PROTECTED ? "no useful limit" : `at most ${percent(told.most[i])}; had it been 50 % before, at most ${percent(sure(told.epsilon))}`;
    const guess = told.guesses.length > 1 ? `${told.guesses.map(quoted).join(" or ")} (this depends on the chain)` : quoted(told.guesses[0]);
    this.told = told;
    this.chart.root.hidden = false;
    this.point([told.least[i], told.most[i]], [low, high], `not ${quoted(state)}`, quoted(state));
    put(this.said, `Was it ${quoted(state)} at ${clock(told.times.at(-1) * 1000)}? An attacker who knows the habits says ${between(told.low_before[i], told.high_before[i])}; with what left this device, ${between(low, high)}, and guesses ${guess}. Promised: ${limit}.`);
    put(this.allowed, told.epsilon === null ? "The promise has no bound for this stream."
      : told.epsilon > LARGEST_PROTECTED ? "The promise protects nothing at a single tick."
        : `The promise for a single tick, ${loss(told.epsilon)} (${odds(told.epsilon)}), keeps it (dashed): ${states.map((one, n) => `${quoted(one)} ${between(told.least[n], told.most[n])}`).join("; ")}.`);
    const chains = told.believes === "the typical chain" ? "believes the typical chain of its class, the only one that it names"
      : told.believes === 1 ? "believes the one chain of its class" : `believes one chain of its class: the band holds what ${told.believes} of them lead to, the ends of the class among them`;
    const alone = states.map((one, n) => `${quoted(one)} ${between(told.low_alone[n], told.high_alone[n])}`).join("; ");
    put(this.who, `Attacker “${told.attacker}” knows the public description, ${chains}, and weighs ${told.read}. It knows no true state. Attacker “${told.alone}” reads ${told.alone_read}: ${alone}. Attackers that learn are run over recordings, by fugu check attack.`);
  }

  get first() { return this.told?.times[0] ?? Infinity; }
  get last() { return this.told?.times.at(-1) ?? -Infinity; }

  // Over a range of time, the same as of what was released.
  draw(from, to, gap) {
    const { told } = this;
    if (!told) return this.chart.empty(from, to);
    const rows = told.times.map((time, t) => [time, ...told.states.flatMap((_, i) => [null, told.low[i][t], told.high[i][t]])]);
    this.chart.show({ names: told.states, unit: "share", rows: rows.filter(([time]) => time >= from), edges: told.states.length === 1 ? [told.least[0], told.most[0]] : [], gap, from, to });
  }
}

const quoted = (text) => `“${text}”`;
