// What is used and left of each audience's budget for a stream, as the ledger says it.

import { draw, duration, loss, make, number, percent, round } from "./dom.js";

export class Budget {
  constructor(stream) {
    this.stream = stream;
    this.site = make("p", { class: "small" });
    this.rows = make("div", {}, make("p", { class: "small quiet" }, "waiting for the ledger …"));
    this.root = make("div", { class: "card budget" }, make("h3", {}, "What audiences may still be told"), this.site, this.rows);
  }

  describe({ guarantee, conditions, period_seconds: period }) {
    const about = guarantee.stretch_ticks > 1 ? `any ${guarantee.stretches.find((one) => one.ticks === guarantee.stretch_ticks)?.name ?? duration(guarantee.stretch_ticks * period)}` : "a tick";
    const promise = [`${loss(guarantee.epsilon)} of ${about}`, ...conditions].join("; ");
    this.site.replaceChildren(make("strong", {}, "site"), ` reads these messages: ${promise} by the policy, used in full by what left this device. Its other reports cost no budget.`);
  }

  take(told) {
    if (told.problem) return this.rows.replaceChildren(make("p", { class: "small quiet" }, told.problem));
    const mine = told.budgets.filter((one) => one.stream === this.stream);
    this.rows.replaceChildren(...(mine.length ? mine.map(row) : [make("p", { class: "small quiet" }, `The ledger ${told.view} has no account for this stream, so nothing can be released from it there.`)]));
  }
}

function row(one) {
  const share = (value) => (one.allowance > 0 ? Math.min(1, value / one.allowance) : 1);
  const used = share(one.base + one.spent);
  const parts = [one.base ? `${round(one.base)} for what the device itself releases` : "", one.spent ? `${round(one.spent)} for releases` : ""].filter(Boolean);
  const ticks = one.first >= 0 ? `, about ticks ${number(one.first)} to ${number(one.last)}` : "";
  const words = [
    `Used ${percent(used)}${parts.length ? `: ${parts.join(", ")}${ticks}` : ""}; left ${round(one.left)} of ${round(one.allowance)} nats at the tick that was charged most.`,
    one.together ? ` Together with ${one.together}, which move together.` : "",
    one.alone ? ` Entry ${one.alone} does not compose: nothing else is ever released here.` : "",
  ];
  return make("div", { class: "used" },
    make("p", {}, make("strong", {}, one.audience), one.epsilon === null ? "" : ` ${loss(one.epsilon)} of ${one.seconds ? `any ${duration(one.seconds)}` : "a tick"}, ${one.adversary}, by ${one.mechanism}`),
    draw("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
      draw("rect", { width: 100 * share(one.base), height: 12 }), draw("rect", { class: "spent", x: 100 * share(one.base), width: 100 * (used - share(one.base)), height: 12 })),
    make("p", { class: one.problem ? "small bad" : "small" }, one.problem ? `▲ ${one.problem}` : words.join("")));
}
