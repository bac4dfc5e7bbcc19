"""Plans of streams that move together, as tables and JSON."""

from __future__ import annotations

import math
from typing import Any

from fugu.cli.view.terminal import say, show_table
from fugu.contract.sentences import protected_sentence
from fugu.planning.streams_plan import PlannedStream, StreamsPlan, stream_discretiser

__all__ = ["show_streams", "streams_document"]


def show_streams(plan: StreamsPlan) -> None:
    """Print a plan."""
    request, chains = plan.request, plan.chains
    what = f"{chains.states} {'pairs of states' if request.model.order == 2 else 'joint states'}"
    if chains.odds_ratio is None:
        say(f"Class: the fitted chain of {what}, taken as it is.")
    else:
        say(f"Class: {what}, steps of odds ratios up to {chains.odds_ratio:.4g}, which may change from tick to tick.")
    for one in request.model.streams:
        say(f"{one.name}: {protected_sentence(stream_discretiser(one))}")
    together = "" if len(plan.streams) == 1 else ", all streams together"
    achieved = f"epsilon achieved: {plan.loss.epsilon:.10f} of {request.epsilon:g}"
    say(f"{achieved} ({request.adversary}; {plan.loss.bound}){together}")
    if symbols := [one for one in plan.streams if one.utility is not None]:
        show_table(
            "Symbols, one every tick",
            ("stream", "tells of a tick", "wrong symbol", "estimate right", "a guess", "bits/reading"),
            [_symbols(one) for one in symbols],
        )
    if plan.request.windows:
        show_table(
            "Windows",
            ("stream", "window", "ticks", "scale", "off by (mean)", "off by (95 %)", "share (mean)"),
            [row for one in plan.streams for row in _windows(one)],
        )
    if plan.apart is not None:
        rates = ", ".join(f"{one.name} {one.alone:.4g}" for one in plan.streams)
        said = "without any bound" if math.isinf(plan.apart) else f"{plan.apart:.4g}"
        say(
            f"Planned one by one for epsilon {request.epsilon:g} each, they would tell {rates} nats of a tick, and "
            f"lose {said} together.",
            style="bold",
        )


def _symbols(one: PlannedStream) -> tuple[str, ...]:
    assert one.utility is not None
    assert one.table is not None
    wrong = 1.0 - max(one.table.weights()[0]) / 2.0**32
    worth = one.utility
    return (
        one.name,
        f"{one.rate:.6g} nats",
        f"{wrong:.4%}",
        f"{worth.accuracy:.2%}",
        f"{worth.majority:.2%}",
        f"{worth.bits_per_reading:.4g}",
    )


def _windows(one: PlannedStream) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            window.name,
            str(window.length),
            window.scale,
            f"{error.count_mean:.3g}",
            str(error.count_95),
            f"{error.share_mean:.1%}",
        )
        for window, error in zip(one.windows, one.errors, strict=True)
    ]


def streams_document(plan: StreamsPlan) -> dict[str, Any]:
    """A plan as JSON; `apart` is null if it is not known, and "infinite" without a bound."""
    return {
        "epsilon": plan.request.epsilon,
        "adversary": plan.request.adversary,
        "epsilon_achieved": plan.loss.epsilon,
        "bound": plan.loss.bound,
        "chains": plan.chains.model_dump(mode="json"),
        "apart": "infinite" if plan.apart == math.inf else plan.apart,
        "streams": [
            {
                "name": one.name,
                "rate": one.rate,
                "rate_alone": one.alone,
                "table": None if one.table is None else [list(row) for row in one.table.weights()],
                "windows": [window.model_dump(mode="json") for window in one.windows],
                "errors": [error._asdict() for error in one.errors],
                **({} if one.utility is None else one.utility._asdict()),
            }
            for one in plan.streams
        ],
    }
