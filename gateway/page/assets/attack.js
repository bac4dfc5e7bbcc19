// What a named attacker makes of a stream: a gauge of its best guess between the marks of the promise; folded: over time.

import { between, Chart } from "./chart.js";
import { clock, draw, LARGEST_PROTECTED, loss, make, odds, percent, put } from "./dom.js";
import { icon } from "./lanes.js";

const ROOM = 0.2; // for the words of a mark
const sure = (epsilon) => 1 / (1 + Math.exp(-epsilon));

export class Attack {
  constructor() {
    this.gauge = make("div", { class: "gauge" });
    this.words = make("p", { class: "small" }, "Waiting for messages.");
    this.beyond = make("p", { class: "bad", hidden: true }, "▲ It got beyond what the promise allows: the stream's description states a smaller epsilon than its table keeps. See fugu check statement.");
    this.chart = new Chart("How sure an attacker is: the promise keeps it between the dashed lines", { colour: 3, ends: true, height: 140 });
    this.chart.root.classList.add("guesses");
    this.chart.root.hidden = true;
    this.allowed = make("p", { class: "small" });
    this.who = make("p", { class: "small quiet" });
    this.more = make("details", { hidden: true }, make("summary", {}, "About this attacker"), this.allowed, this.who);
    this.root = make("div", { class: "card attack" }, make("h3", {}, icon("attacker"), " Best guess of an attacker"), this.gauge, this.words, this.beyond, this.more);
  }

  // Until an attacker has read something, the gauge has what the promise allows who began with even odds.
  describe({ guarantee }) {
    const { epsilon } = guarantee;
    const isProtected = epsilon !== null && epsilon <= LARGEST_PROTECTED;
    if (this.beliefs) return;
    this.point(isProtected ? [1 - sure(epsilon), sure(epsilon)] : [0, 1], null, "no", "yes");
    put(this.words, isProtected ? "Waiting for messages. The marks show what the promise allows, from even odds." : "Not protected. Waiting for messages.");
  }

  point([least, most], guess, no, yes) {
    const mark = (at, kind) => draw("path", { class: kind, d: `M${(100 * at).toFixed(1)} 0V16` });
    const texts = most - least < ROOM ? [[(least + most) / 2, between(least, most)]] : [[least, percent(least)], [most, percent(most)]];
    const marks = (least > 0 || most < 1 ? texts : []).map(([at, words]) => {
      const element = make("span", { class: "at" }, words);
      element.style.left = `${100 * Math.min(Math.max(at, ROOM / 2), 1 - ROOM / 2)}%`;
      return element;
    });
    this.gauge.replaceChildren(
      make("div", { class: "marks small quiet" }, ...marks),
      draw("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { y: 5, width: 100, height: 6 }),
        draw("rect", { class: "allowed", x: 100 * least, y: 5, width: 100 * (most - least), height: 6 }), mark(least, "mark"), mark(most, "mark"),
        ...(guess ? [draw("rect", { class: "guess", x: 100 * guess[0], y: 2, width: Math.max(2, 100 * (guess[1] - guess[0])), height: 12 })] : [])),
      make("div", { class: "scale small quiet" }, make("span", {}, no), make("span", {}, yes)));
  }

  take(beliefs) {
    if (beliefs.waits) return;
    this.more.hidden = Boolean(beliefs.none);
    this.beyond.hidden = !beliefs.beyond;
    if (beliefs.none) this.chart.root.hidden = true;
    if (beliefs.none) return put(this.words, `What the promise allows, from even odds. ${beliefs.none}`);
    const { states } = beliefs;
    const last = states.map((state, i) => [state, beliefs.low[i].at(-1), beliefs.high[i].at(-1), i]);
    const [state, low, high, i] = last.reduce((best, candidate) => (candidate[2] > best[2] ? candidate : best));
    const limit = beliefs.epsilon === null || beliefs.epsilon > LARGEST_PROTECTED ? "no useful limit" : `at most ${percent(beliefs.most[i])}; had it been 50 % before, at most ${percent(sure(beliefs.epsilon))}`;
    const guess = beliefs.guesses.length > 1 ? `${beliefs.guesses.map(quoted).join(" or ")} (this depends on the chain)` : quoted(beliefs.guesses[0]);
    this.beliefs = beliefs;
    this.chart.root.hidden = false;
    this.point([beliefs.least[i], beliefs.most[i]], [low, high], `not ${quoted(state)}`, quoted(state));
    put(this.words, `Was it ${quoted(state)} at ${clock(beliefs.times.at(-1) * 1000)}? An attacker who knows the habits says ${between(beliefs.low_before[i], beliefs.high_before[i])}; with what left this device, ${between(low, high)}, and guesses ${guess}. Promised: ${limit}.`);
    put(this.allowed, beliefs.epsilon === null ? "The promise has no bound for this stream."
      : beliefs.epsilon > LARGEST_PROTECTED ? "The promise protects nothing at a single tick."
        : `The promise for a single tick, ${loss(beliefs.epsilon)} (${odds(beliefs.epsilon)}), keeps it (dashed): ${states.map((name, n) => `${quoted(name)} ${between(beliefs.least[n], beliefs.most[n])}`).join("; ")}.`);
    const chains = beliefs.believes === "the typical chain" ? "believes the typical chain of its class, the only one that it names"
      : beliefs.believes === 1 ? "believes the one chain of its class" : `believes one chain of its class: the band holds what ${beliefs.believes} of them lead to, the ends of the class among them`;
    const alone = states.map((name, n) => `${quoted(name)} ${between(beliefs.low_alone[n], beliefs.high_alone[n])}`).join("; ");
    put(this.who, `Attacker “${beliefs.attacker}” knows the public description, ${chains}, and weighs ${beliefs.read}. It knows no true state. Attacker “${beliefs.alone}” reads ${beliefs.alone_read}: ${alone}. Attackers that learn are run over recordings, by fugu check attack.`);
  }

  get first() { return this.beliefs?.times[0] ?? Infinity; }
  get last() { return this.beliefs?.times.at(-1) ?? -Infinity; }

  // Over a range of time, the same as of what was released.
  draw(from, to, gap) {
    const { beliefs } = this;
    if (!beliefs) return this.chart.empty(from, to);
    const rows = beliefs.times.map((time, t) => [time, ...beliefs.states.flatMap((_, i) => [null, beliefs.low[i][t], beliefs.high[i][t]])]);
    this.chart.show({ names: beliefs.states, unit: "share", rows: rows.filter(([time]) => time >= from), edges: beliefs.states.length === 1 ? [beliefs.least[0], beliefs.most[0]] : [], gap, from, to });
  }
}

const quoted = (text) => `“${text}”`;
