// What a named attacker makes of the symbols of a stream: a band over its class of chains, and what the promise allows.

import { chart } from "./chart.js";
import { clock, make, percent, put, round } from "./dom.js";

export class Attack {
  constructor() {
    this.now = make("div", { class: "now" }, make("span", { class: "quiet" }, "waiting for messages …"));
    this.guess = make("p", {});
    this.chart = make("div", { class: "attack", role: "img", "aria-label": "Probabilities over time", hidden: true });
    this.allowed = make("p", { class: "small" });
    this.beyond = make("p", { class: "bad", hidden: true }, "▲ It got beyond what the promise allows: the stream's description states a smaller epsilon than its table keeps. See fugu check statement.");
    this.who = make("p", { class: "small quiet" });
    this.root = make("div", { class: "card" }, make("h3", {}, "What an attacker makes of it"), this.now, this.guess, this.chart, this.allowed, this.beyond, this.who);
  }

  take(told) {
    if (told.waits) return;
    this.chart.hidden = Boolean(told.none);
    this.beyond.hidden = !told.beyond;
    if (told.none) {
      this.now.replaceChildren();
      put(this.guess, told.none);
      put(this.allowed, "");
      return put(this.who, "");
    }
    const { states } = told;
    const last = states.map((state, i) => [state, told.low[i].at(-1), told.high[i].at(-1)]);
    const widest = last.reduce((best, one) => (one[2] > best[2] ? one : best));
    this.now.replaceChildren(make("strong", {}, between(widest[1], widest[2])), make("span", { class: "quiet" }, `for “${widest[0]}” at ${clock(told.times.at(-1) * 1000)}`));
    put(this.guess, told.guesses.length > 1
      ? `It guesses ${told.guesses.map(quoted).join(" or ")}: that depends on the chain that it believes.`
      : `It guesses ${quoted(told.guesses[0])}, whichever chain it believes.`);
    put(this.allowed, told.epsilon === null ? "The promise has no bound for this stream."
      : `The promise, epsilon ${round(told.epsilon)}, keeps it (dashed): ${states.map((state, i) => `${quoted(state)} ${between(told.least[i], told.most[i])}`).join("; ")}.`);
    const chains = told.believes === "the typical chain" ? "believes the typical chain of its class, the only one that it names"
      : told.believes === 1 ? "believes the one chain of its class" : `believes one chain of its class: the band holds what ${told.believes} of them lead to, the ends of the class among them`;
    const alone = states.map((state, i) => `${quoted(state)} ${between(told.low_alone[i], told.high_alone[i])}`).join("; ");
    put(this.who, `Attacker “${told.attacker}” knows the public description, ${chains}, and weighs ${told.read}. It knows no true state. Attacker “${told.alone}” reads ${told.alone_read}: ${alone}. Attackers that learn are run over recordings, by fugu check attack.`);
    this.draw(told);
  }

  draw(told) {
    const constant = (value) => told.times.map(() => value);
    const edges = told.states.length === 1 ? [constant(told.least[0]), constant(told.most[0])] : [];
    const data = [told.times, ...edges, ...told.states.flatMap((_, i) => [told.high[i], told.low[i]])];
    const key = told.states.join("\n");
    if (this.plot && this.key === key) this.plot.setData(data);
    else {
      this.plot?.destroy();
      const lines = told.states.flatMap((state, i) => [[`${state}, at most`, i], [`${state}, at least`, i]]);
      const bands = told.states.map((_, i) => [1 + edges.length + 2 * i, 2 + edges.length + 2 * i]);
      this.plot = chart(this.chart, data, edges.length ? ["least allowed", "most allowed"] : [], lines, "--bad", bands);
      this.key = key;
    }
    const words = told.states.map((state, i) => `${state} now ${between(told.low[i].at(-1), told.high[i].at(-1))}`);
    this.chart.setAttribute("aria-label", `Probability over time for attacker ${told.attacker}: ${words.join("; ")}`);
  }
}

const quoted = (text) => `“${text}”`;
const between = (low, high) => (percent(low) === percent(high) ? percent(low) : `${percent(low)} to ${percent(high)}`);
