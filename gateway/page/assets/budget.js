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
    const about = guarantee.stretch_ticks > 1 ? `any ${guarantee.stretches.find((stretch) => stretch.ticks === guarantee.stretch_ticks)?.name ?? duration(guarantee.stretch_ticks * period)}` : "a tick";
    const promise = [`${loss(guarantee.epsilon)} of ${about}`, ...conditions].join("; ");
    this.site.replaceChildren(make("strong", {}, "site"), ` reads these messages: ${promise} by the policy, used in full by what left this device. Its other reports cost no budget.`);
  }

  take(message) {
    if (message.problem) return this.rows.replaceChildren(make("p", { class: "small quiet" }, message.problem));
    const budgets = message.budgets.filter((budget) => budget.stream === this.stream);
    this.rows.replaceChildren(...(budgets.length ? budgets.map(row) : [make("p", { class: "small quiet" }, `The ledger ${message.view} has no account for this stream, so nothing can be released from it there.`)]));
  }
}

function row(budget) {
  const share = (value) => (budget.allowance > 0 ? Math.min(1, value / budget.allowance) : 1);
  const used = share(budget.base + budget.spent);
  const parts = [budget.base ? `${round(budget.base)} for what the device itself releases` : "", budget.spent ? `${round(budget.spent)} for releases` : ""].filter(Boolean);
  const ticks = budget.first >= 0 ? `, about ticks ${number(budget.first)} to ${number(budget.last)}` : "";
  const words = [
    `Used ${percent(used)}${parts.length ? `: ${parts.join(", ")}${ticks}` : ""}; left ${round(budget.remaining)} of ${round(budget.allowance)} nats at the tick that was charged most.`,
    budget.together ? ` Together with ${budget.together}, which move together.` : "",
    budget.alone ? ` Entry ${budget.alone} does not compose: nothing else is ever released here.` : "",
  ];
  return make("div", { class: "used" },
    make("p", {}, make("strong", {}, budget.audience), budget.epsilon === null ? "" : ` ${loss(budget.epsilon)} of ${budget.seconds ? `any ${duration(budget.seconds)}` : "a tick"}, ${budget.adversary}, by ${budget.mechanism}`),
    draw("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
      draw("rect", { width: 100 * share(budget.base), height: 12 }), draw("rect", { class: "spent", x: 100 * share(budget.base), width: 100 * (used - share(budget.base)), height: 12 })),
    make("p", { class: budget.problem ? "small bad" : "small" }, budget.problem ? `▲ ${budget.problem}` : words.join("")));
}
