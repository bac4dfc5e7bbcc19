"""Chains as tables and sentences: fitted to states and over cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fugu.contract.discretisers import Baseline, Thresholds
from fugu.contract.sentences import protected_sentence
from fugu.library.report import Line, Part, Result, Table
from fugu.planning.grid_model import WARNING, GridModel
from fugu.privacy.chain_model import Attacked, ChainModel, JointModel, LikelihoodRatio, Stretches, clopper_pearson
from fugu.recordings.places import Traces

__all__ = ["fitted_chain", "fitted_grid", "fitted_streams"]


_CONFIDENCE = 0.95
_NOTABLE = 0.01
_MOST_CELLS = 6


def fitted_chain(model: ChainModel, missing: int) -> Result:
    """A chain: estimates with intervals, a test of its order, and its class; `missing` rows have no reading."""
    return Result(model.to_json(), _chain(model, missing), warnings=(model.warning,))


def fitted_streams(model: JointModel, left_out: int) -> Result:
    """A joint chain; some stream has no state for the rows that were `left_out`."""
    return Result(model.to_json(), _joint(model, left_out), warnings=(model.warning,))


def fitted_grid(model: GridModel, traces: Traces, document: dict[str, Any], order: int, output: Path | None) -> Result:
    """A chain over cells, with its document, and the file that it was written to."""
    report = [*_grid(model, traces)]
    if order == 2:
        pairs, count = len(document["shows"]), len(document["names"])
        report.append(Line(f"Order 2: {pairs} pairs of a cell before and a cell now that come back, of {count} cells."))
    if output is not None:
        report.append(Line(f'chain written to {output}; plan with it by: transition = "{output.name}"'))
    return Result(document, report, warnings=(WARNING,))


def _chain(model: ChainModel, missing: int) -> Iterator[Part]:
    period = "" if model.period_seconds is None else f", one tick every {model.period_seconds:g} s"
    yield Line(f"{model.source}: column {model.column}, {model.n} rows, {model.states} states{period}")
    if model.segments > 1:
        yield Line(f"{model.segments} segments without a gap, the longest of {model.longest_segment} rows")
    if isinstance(model.discretiser, Thresholds):
        yield Line(f"state 1 is a value of at least {model.discretiser.edges[0]:g}")
    elif isinstance(model.discretiser, Baseline):
        yield Line(f"state 1 is a value above the running mean of {model.discretiser.baseline_ticks} ticks")
    if missing:
        if model.missing_state is None:
            yield Line(f"{missing} rows without a reading were left out; no transition is counted across them")
        else:
            yield Line(
                f"{missing} rows ({model.missing_share:.1%}) have no reading, which is more than 1 %: state "
                f"{model.missing_state} stands for that, and a policy made of this chain protects it like the others"
            )
    yield from _estimates(model)
    yield Line(f"Intervals: Clopper-Pearson, level {_CONFIDENCE:g}, each for itself.")
    yield Line("")
    yield from tell(
        "First order?",
        model.order,
        "a first-order chain is enough, as far as this shows",
        "the state before the last one tells something as well; the size of it is the gain per step (--order 2 "
        "fits pairs)",
    )
    yield from _show_class(model)


def _show_class(model: ChainModel) -> Iterator[Part]:
    """Print the class that covers the recording, and what attackers reached."""
    yield from show_stretches(model.stretches)
    if model.attacked is not None:
        yield from show_attacked(model.attacked)
    yield Line(f"No class: {model.refused}" if model.refused else f"Class: {model.class_words}.")


def show_stretches(stretches: Sequence[Stretches]) -> Iterator[Part]:
    """Print how the chain changes over a recording."""
    if stretches:
        rows = []
        for one in stretches:
            scatter, changes = f"{max(map(max, one.dispersion)):.1f}", "yes" if one.changes else "no"
            covers = f"{one.odds_ratio:.4g}", f"{one.covered:.1%}"
            rows.append((str(one.ticks), str(one.stretches), scatter, changes, *covers))
        title = "Transitions over stretches of the recording (scatter: 1 for a chain that does not change)"
        yield Table(
            title, ("ticks", "stretches", "scatter", "changes", "odds ratio that covers them", "in the class"), rows
        )


def show_attacked(attacked: Attacked) -> Iterator[Part]:
    """Print the classes that were tried, and what attackers reached."""
    rows = []
    for one in attacked.steps:
        reached = f"{one.success:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.guess:.3f}", f"{one.ceiling:.3f}"
        rows.append((f"{one.odds_ratio:.4g}", f"{one.count_scale:.3g}", one.attacker, *reached))
    title = f"{attacked.attackers} attackers on what would be released, at epsilon {attacked.epsilon:g}, universal"
    columns = ("odds ratio", "noise of a count", "strongest", "right", "interval", "without", "allowed")
    yield Table(title, columns, rows)
    yield Line(attacked.words)


def _estimates(model: ChainModel) -> Iterator[Part]:
    k = model.states
    names = {(0, 1): "q = Pr(0 -> 1)", (1, 0): "r = Pr(1 -> 0)"} if k == 2 else {}
    wanted = names or {(x, y): f"Pr({x} -> {y})" for x in range(k) for y in range(k)}
    if k > _MOST_CELLS:
        wanted = {cell: name for cell, name in wanted.items() if model.counts[cell[0]][cell[1]]}
    rows = []
    for (x, y), name in wanted.items():
        seen, of = model.counts[x][y], sum(model.counts[x])
        low, high = clopper_pearson(seen, of, _CONFIDENCE)
        rows.append((name, str(seen), str(of), f"{model.transition[x][y]:.5f}", f"{low:.5f} .. {high:.5f}"))
    yield Table("Transitions", ("", "count", "of", "estimate", "interval"), rows)
    if model.initial is not None:
        yield Line("Stationary distribution: " + "  ".join(f"{x}: {p:.4f}" for x, p in enumerate(model.initial)))


def tell(question: str, test: LikelihoodRatio, yes: str, no: str) -> Iterator[Part]:
    """Print a test, with what it means if the simpler model is enough, and if it is not."""
    p_value = f"{test.p_value:.2g}" if test.p_value > 0.0 else "below 1e-300"
    figures = f"G = {test.statistic:.1f}, df {test.degrees}, p = {p_value}, {test.nats_per_step:.2g} nats per step"
    fine = test.p_value > _NOTABLE
    yield Line(f"{question} {figures}: {yes if fine else no}.")


def _grid(model: GridModel, traces: Traces) -> Iterator[Part]:
    size = len(model.cells)
    columns, rows = (model.cells.max(axis=0) + 1).tolist()
    period = "" if model.period_seconds is None else f", one place every {model.period_seconds:g} s"
    found, apart = traces.rows - traces.missing, len(set(traces.trace.tolist()))
    yield Line(f"{traces.source}: {traces.rows} rows, {found} places of {apart} traces")
    if traces.missing:
        if model.missing is None:
            yield Line(f"{traces.missing} rows without a place were left out; no transition is counted across them")
        else:
            x, y = model.cells[model.missing].tolist()
            yield Line(
                f"{traces.missing} rows ({traces.missing / traces.rows:.1%}) have no place, which is more than 1 %: "
                f"the most visited cell, x{x}y{y}, stands in for them, here and on a device with a policy made of this"
            )
    if traces.silences:
        yield Line(f"{traces.silences} silences of more than two periods count as one step each; --period cuts there")
    moves = model.counts.sum() - np.trace(model.counts)
    yield Table(
        f"Cells of {model.metres:g} m{period}",
        ("", ""),
        [
            ("cells of the chain", f"{size}, within {columns} columns and {rows} rows"),
            ("cells visited in all", f"{model.visited} ({model.outside} places lie outside the chain)"),
            ("transitions counted", f"{model.counts.sum()}, {moves / model.counts.sum():.1%} of them to another cell"),
            ("different transitions", f"{np.count_nonzero(model.counts)} of {size * size}"),
            ("south-west corner", f"{model.origin[0]:.6f}, {model.origin[1]:.6f}"),
            ("a cell in degrees", f"{model.step[0]:.6g} high, {model.step[1]:.6g} wide"),
        ],
    )
    yield Line("The chain lives on the largest set of cells that can all be reached from one another.")
    yield Line("Transitions that were not seen count as impossible; the adversary is taken to know that.")


_MOST_ROWS = 12


def _joint(model: JointModel, left_out: int) -> Iterator[Part]:
    period = "" if model.period_seconds is None else f", one tick every {model.period_seconds:g} s"
    for one in model.streams:
        yield Line(
            f"{one.name}: {one.source}, column {one.column}, {one.states} states; {protected_sentence(one.discretiser)}"
        )
        if one.missing_state is not None:
            yield Line(
                f"  {one.missing_share:.1%} of its rows have no reading: state {one.missing_state} stands for that"
            )
    what = "pairs of states, before and now" if model.order == 2 else "joint states"
    yield Line(f"{model.n} ticks that all have{period}; {left_out} rows left out; {len(model.shows)} {what}")
    if len(model.shows) <= _MOST_ROWS:
        yield Table(
            "Steps of the joint chain (rows: from, columns: to)",
            ("state", "shows", *(str(x) for x in range(len(model.shows)))),
            [
                (str(x), ",".join(map(str, shown)), *(f"{p:.4f}" for p in row))
                for x, (shown, row) in enumerate(zip(model.shows, model.transition, strict=True))
            ],
        )
    if model.independent is not None:
        yield from tell(
            "Independent?",
            model.independent,
            "the streams move on their own, as far as this shows; declared together they are safe all the same",
            "they move together: what they tell together is not what each tells",
        )
    yield from tell(
        f"Order {model.order}?",
        model.more,
        f"order {model.order} is enough, as far as this shows",
        "a tick further back tells something as well; the size of it is the gain per step",
    )
    yield from show_stretches(model.stretches)
    if model.attacked is not None:
        yield from show_attacked(model.attacked)
    if model.odds_ratio is None:
        yield Line(f"No class that covers the stretches: {model.refused}.")
        return
    lengths = [each.ticks for each in model.stretches]
    over = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
    yield Line(
        f"Class: joint steps of odds ratios up to {model.odds_ratio:.4g}, which may change from tick to tick; it "
        f"covers stretches of {over} ticks."
    )
