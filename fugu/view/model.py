"""A fitted chain as tables and sentences."""

from __future__ import annotations

import numpy as np

from fugu.view.terminal import say, show_table
from gateway.privacy.chain_model import ChainModel, LikelihoodRatio
from gateway.privacy.model_fit import transition_matrix

__all__ = ["show_model"]

_NOTABLE = 0.01
_MOST_CELLS = 6


def show_model(model: ChainModel, confidence: float, missing: int) -> None:
    """Print a chain: estimates with intervals, both halves, the two tests, how long states last.

    Args:
        model: the chain.
        confidence: level of the intervals.
        missing: rows without a reading.
    """
    period = "" if model.period_seconds is None else f", one tick every {model.period_seconds:g} s"
    every = f", every {model.decimate}th row of each segment" if model.decimate > 1 else ""
    say(f"{model.source}: column {model.column}, {model.n} rows, {model.states} states{every}{period}")
    if model.threshold is not None:
        say(f"state 1 is a value of at least {model.threshold:g}")
    if missing:
        if model.missing_state is None:
            say(f"{missing} rows without a reading were left out; no transition is counted across them")
        else:
            say(
                f"{missing} rows ({model.missing_share:.1%}) have no reading, which is more than 1 %: state "
                f"{model.missing_state} stands for that, and a policy made of this chain protects it like the others"
            )
    _estimates(model, confidence)
    say(
        f"Intervals: Clopper-Pearson, level {confidence:g}, each for itself. Halves: first and second half of the rows."
    )
    say("")
    _tell(
        "Homogeneous in time?",
        model.homogeneity,
        "the halves follow one chain, as far as this shows",
        "the chain is NOT the same in both halves: calibrate to a class that covers both, not to a point",
    )
    _tell(
        "First order?",
        model.order,
        "a first-order chain is enough, as far as this shows",
        "the state before the last one tells something as well; the size of it is the gain per step",
    )
    _sojourns(model)


def _estimates(model: ChainModel, confidence: float) -> None:
    cells = model.cells(confidence)
    halves = [transition_matrix(np.array(half)) for half in model.halves]
    k = model.states
    names = {(0, 1): "q = Pr(0 -> 1)", (1, 0): "r = Pr(1 -> 0)"} if k == 2 else {}
    wanted = names or {(x, y): f"Pr({x} -> {y})" for x in range(k) for y in range(k)}
    if k > _MOST_CELLS:
        wanted = {cell: name for cell, name in wanted.items() if model.counts[cell[0]][cell[1]]}
    show_table(
        "Transitions",
        ("", "count", "of", "estimate", "interval", "1st half", "2nd half"),
        [
            (
                name,
                str(model.counts[x][y]),
                str(sum(model.counts[x])),
                f"{model.transition[x][y]:.5f}",
                f"{cells.low[x][y]:.5f} .. {cells.high[x][y]:.5f}",
                *(f"{half[x, y]:.5f}" if sum(model.halves[i][x]) else "-" for i, half in enumerate(halves)),
            )
            for (x, y), name in wanted.items()
        ],
    )
    if model.initial is not None:
        say("Stationary law: " + "  ".join(f"{x}: {p:.4f}" for x, p in enumerate(model.initial)))


def _tell(question: str, test: LikelihoodRatio, yes: str, no: str) -> None:
    p_value = f"{test.p_value:.2g}" if test.p_value > 0.0 else "below 1e-300"
    figures = f"G = {test.statistic:.1f}, df {test.degrees}, p = {p_value}, {test.nats_per_step:.2g} nats per step"
    fine = test.p_value > _NOTABLE
    say(f"{question} {figures}: {yes if fine else no}.", style="" if fine else "yellow")


def _sojourns(model: ChainModel) -> None:
    show_table(
        "How long a state lasts, in ticks (complete stays)",
        ("state", "stays", "mean", "median", "mean of the chain", "median of the chain"),
        [
            (
                str(state),
                str(stay.stays),
                *(
                    "-" if value is None else f"{value:.2f}"
                    for value in (stay.mean, stay.median, stay.geometric_mean, stay.geometric_median)
                ),
            )
            for state, stay in enumerate(model.sojourns)
        ],
    )
