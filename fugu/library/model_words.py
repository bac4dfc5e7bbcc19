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
from fugu.planning.joint_recording import JointRecording
from fugu.privacy.chain_model import Attacked, ChainModel, Stretches
from fugu.privacy.transitions import LikelihoodRatio, clopper_pearson
from fugu.recordings.places import Traces

__all__ = ["fitted_chain", "fitted_grid"]


_CONFIDENCE = 0.95
_NOTABLE = 0.01
_MOST_CELLS = 6


def fitted_chain(model: ChainModel, recording: JointRecording) -> Result:
    """A chain: its streams, its estimates, tests of what it assumes, and its class."""
    return Result(model.to_json(), _report(model, recording), warnings=(model.warning,))


def fitted_grid(model: GridModel, traces: Traces, document: dict[str, Any], order: int, output: Path | None) -> Result:
    """A chain over cells, with its document, and the file that it was written to."""
    report = [*_grid(model, traces)]
    if order == 2:
        pairs, count = len(document["shows"]), len(document["names"])
        report.append(Line(f"Order 2: {pairs} pairs of a cell before and a cell now that come back, of {count} cells."))
    if output is not None:
        report.append(Line(f'chain written to {output}; plan with it by: transition = "{output.name}"'))
    return Result(document, report, warnings=(WARNING,))


def _report(model: ChainModel, recording: JointRecording) -> Iterator[Part]:
    single = len(model.streams) == 1 and model.order == 1
    yield from _chain(model, recording.streams[0].missing) if single else _joint(model, recording.left_out)
    if model.independent is not None:
        yield _tested(
            "Independent?",
            model.independent,
            "the streams move on their own, as far as this shows; declared together they are safe all the same",
            "they move together: what they tell together is not what each tells",
        )
    yield _tested(
        f"Order {model.order}?",
        model.more,
        f"order {model.order} is enough, as far as this shows",
        f"a tick further back tells something as well; the size of it is the gain per step"
        f"{' (--order 2 fits pairs)' * single}",
    )
    if model.stretches:
        yield _stretches(model.stretches)
    if model.attacked is not None:
        yield _attacked(model.attacked)
        yield Line(model.attacked.words)
    yield Line(f"No class: {model.refused}." if model.refused else f"Class: {model.class_words}.")


def _chain(model: ChainModel, missing: int) -> Iterator[Part]:
    """One stream by itself; `missing` rows have no reading."""
    (stream,) = model.streams
    yield Line(f"{stream.source}: column {stream.column}, {model.n} rows, {stream.states} states{_period(model)}")
    if model.segments > 1:
        yield Line(f"{model.segments} segments without a gap, the longest of {model.longest_segment} rows")
    if isinstance(stream.discretiser, Thresholds):
        yield Line(f"state 1 is a value of at least {stream.discretiser.edges[0]:g}")
    elif isinstance(stream.discretiser, Baseline):
        yield Line(f"state 1 is a value above the running mean of {stream.discretiser.baseline_ticks} ticks")
    if missing:
        if stream.missing_state is None:
            yield Line(f"{missing} rows without a reading were left out; no transition is counted across them")
        else:
            yield Line(
                f"{missing} rows ({stream.missing_share:.1%}) have no reading, which is more than 1 %: state "
                f"{stream.missing_state} stands for that, and a policy made of this chain protects it like the others"
            )
    yield _estimates(model)
    if model.initial is not None:
        yield Line("Stationary distribution: " + "  ".join(f"{x}: {p:.4f}" for x, p in enumerate(model.initial)))
    yield Line(f"Intervals: Clopper-Pearson, level {_CONFIDENCE:g}, each for itself.")
    yield Line("")


def _period(model: ChainModel) -> str:
    return "" if model.period_seconds is None else f", one tick every {model.period_seconds:g} s"


def _stretches(stretches: Sequence[Stretches]) -> Table:
    """How the chain changes over a recording."""
    return Table(
        "Transitions over stretches of the recording (scatter: 1 for a chain that does not change)",
        ("ticks", "stretches", "scatter", "changes", "odds ratio that covers them", "in the class"),
        [
            (
                *(str(one.ticks), str(one.stretches), f"{max(map(max, one.dispersion)):.1f}"),
                *("yes" if one.changes else "no", f"{one.odds_ratio:.4g}", f"{one.covered:.1%}"),
            )
            for one in stretches
        ],
    )


def _attacked(attacked: Attacked) -> Table:
    """The classes that were tried, and what attackers reached."""
    return Table(
        f"{attacked.attackers} attackers on what would be released, at epsilon {attacked.epsilon:g}, universal",
        ("odds ratio", "noise of a count", "strongest", "right", "interval", "without", "allowed"),
        [
            (
                *(f"{one.odds_ratio:.4g}", f"{one.count_scale:.3g}", one.attacker, f"{one.success:.3f}"),
                *(f"{one.low:.3f} to {one.high:.3f}", f"{one.guess:.3f}", f"{one.ceiling:.3f}"),
            )
            for one in attacked.steps
        ],
    )


def _estimates(model: ChainModel) -> Table:
    k = len(model.shows)
    names = {(0, 1): "q = Pr(0 -> 1)", (1, 0): "r = Pr(1 -> 0)"} if k == 2 else {}
    wanted = names or {(x, y): f"Pr({x} -> {y})" for x in range(k) for y in range(k)}
    if k > _MOST_CELLS:
        wanted = {cell: name for cell, name in wanted.items() if model.counts[cell[0]][cell[1]]}
    rows = []
    for (x, y), name in wanted.items():
        seen, of = model.counts[x][y], sum(model.counts[x])
        low, high = clopper_pearson(seen, of, _CONFIDENCE)
        rows.append((name, str(seen), str(of), f"{model.transition[x][y]:.5f}", f"{low:.5f} .. {high:.5f}"))
    return Table("Transitions", ("", "count", "of", "estimate", "interval"), rows)


def _tested(question: str, test: LikelihoodRatio, yes: str, no: str) -> Line:
    """A test, with what it means if the simpler model is enough, and if it is not."""
    p_value = f"{test.p_value:.2g}" if test.p_value > 0.0 else "below 1e-300"
    figures = f"G = {test.statistic:.1f}, df {test.degrees}, p = {p_value}, {test.nats_per_step:.2g} nats per step"
    fine = test.p_value > _NOTABLE
    return Line(f"{question} {figures}: {yes if fine else no}.")


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


def _joint(model: ChainModel, left_out: int) -> Iterator[Part]:
    """Several streams, or pairs of states of one; some stream has no state for the rows that were `left_out`."""
    for one in model.streams:
        yield Line(
            f"{one.name}: {one.source}, column {one.column}, {one.states} states; {protected_sentence(one.discretiser)}"
        )
        if one.missing_state is not None:
            yield Line(
                f"  {one.missing_share:.1%} of its rows have no reading: state {one.missing_state} stands for that"
            )
    what = "pairs of states, before and now" if model.order == 2 else "joint states"
    yield Line(f"{model.n} ticks that all have{_period(model)}; {left_out} rows left out; {len(model.shows)} {what}")
    if len(model.shows) <= _MOST_ROWS:
        yield Table(
            "Steps of the joint chain (rows: from, columns: to)",
            ("state", "shows", *(str(x) for x in range(len(model.shows)))),
            [
                (str(x), ",".join(map(str, shown)), *(f"{p:.4f}" for p in row))
                for x, (shown, row) in enumerate(zip(model.shows, model.transition, strict=True))
            ],
        )
