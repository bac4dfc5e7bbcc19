// What a named attacker makes of the symbols of a stream, in a sentence; folded: a band over its class of chains.

import { between, Chart } from "./chart.js";
import { clock, LARGEST_PROTECTED, loss, make, odds, put } from "./dom.js";

export class Attack {
  constructor() {
    this.said = make("p", {}, "Waiting for messages.");
    this.beyond = make("p", { class: "bad", hidden: true }, "▲ It got beyond what the promise allows: the stream's description states a smaller epsilon than its table keeps. See fugu check statement.");
    this.chart = new Chart("Probability over time, for the attacker", { colour: 3, ends: true });
    this.allowed = make("p", { class: "small" });
    this.who = make("p", { class: "small quiet" });
    this.more = make("details", { hidden: true, ontoggle: () => this.more.open && this.told && this.draw(this.told) }, make("summary", {}, "Who that is, and over time"), this.chart.root, this.allowed, this.who);
    this.root = make("div", { class: "card attack" }, make("h3", {}, "What an attacker makes of it"), this.said, this.beyond, this.more);
  }

  take(told) {
    if (told.waits) return;
    this.more.hidden = Boolean(told.none);
    this.beyond.hidden = !told.beyond;
    if (told.none) return put(this.said, told.none);
    const { states } = told;
    const last = states.map((state, i) => [state, told.low[i].at(-1), told.high[i].at(-1), i]);
    const [state, low, high, i] = last.reduce((best, one) => (one[2] > best[2] ? one : best));
    const promised = told.epsilon === null || told.epsilon > LARGEST_PROTECTED ? "no useful bound is promised" : `the promise allows ${between(told.least[i], told.most[i])}`;
    const guess = told.guesses.length > 1 ? `${told.guesses.map(quoted).join(" or ")}, by the chain that it believes` : quoted(told.guesses[0]);
    put(this.said, `At ${clock(told.times.at(-1) * 1000)} it gives ${quoted(state)} a probability of ${between(low, high)}, where ${promised}, and guesses ${guess}.`);
    put(this.allowed, told.epsilon === null ? "The promise has no bound for this stream."
      : told.epsilon > LARGEST_PROTECTED ? "The promise protects nothing at a single tick."
        : `The promise for a single tick, ${loss(told.epsilon)} (${odds(told.epsilon)}), keeps it (dashed): ${states.map((one, n) => `${quoted(one)} ${between(told.least[n], told.most[n])}`).join("; ")}.`);
    const chains = told.believes === "the typical chain" ? "believes the typical chain of its class, the only one that it names"
      : told.believes === 1 ? "believes the one chain of its class" : `believes one chain of its class: the band holds what ${told.believes} of them lead to, the ends of the class among them`;
    const alone = states.map((one, n) => `${quoted(one)} ${between(told.low_alone[n], told.high_alone[n])}`).join("; ");
    put(this.who, `Attacker “${told.attacker}” knows the public description, ${chains}, and weighs ${told.read}. It knows no true state. Attacker “${told.alone}” reads ${told.alone_read}: ${alone}. Attackers that learn are run over recordings, by fugu check attack.`);
    this.told = told;
    if (this.more.open) this.draw(told);
  }

  draw(told) {
    const rows = told.times.map((time, t) => [time, ...told.states.flatMap((_, i) => [null, told.low[i][t], told.high[i][t]])]);
    this.chart.show({ names: told.states, unit: "share", rows, edges: told.states.length === 1 ? [told.least[0], told.most[0]] : [] });
  }
}

const quoted = (text) => `“${text}”`;
