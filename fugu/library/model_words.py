"""Describe fitted chains, over states or over cells, as tables and sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fugu.contract.sentences import protected_sentence
from fugu.library.report import JsonObject, Line, Report, Result, Table
from fugu.planning.grid_model import WARNING, GridModel
from fugu.planning.joint_recording import JointRecording
from fugu.privacy.chain_model import ChainModel
from fugu.recordings.places import Traces

__all__ = ["chain_result", "grid_result"]

_NOTABLE = 0.01
_MOST_ROWS = 12


def chain_result(model: ChainModel, recording: JointRecording) -> Result:
    """Describe a chain fitted to states: its streams, its estimates, a test of its order, and its class."""
    return Result(model.to_json(), _chain_report(model, recording), warnings=(model.warning,))


def grid_result(model: GridModel, traces: Traces, document: JsonObject, order: int, output: Path | None) -> Result:
    """Describe a chain over cells; `document` is the chain for JSON, `output` the file it was written to, if any."""
    report = [*_grid_report(model, traces)]
    if order == 2:
        pairs_words, cells_words = f"{len(document['shows'])} pairs", f"{len(document['names'])} cells"
        report.append(Line(f"Order 2: {pairs_words} of a cell before and a cell now that come back, of {cells_words}."))
    if output is not None:
        report.append(Line(f'chain written to {output}; plan with it by: transition = "{output.name}"'))
    return Result(document, report, warnings=(WARNING,))


def _chain_report(model: ChainModel, recording: JointRecording) -> Report:
    for stream, readings in zip(model.streams, recording.streams, strict=True):
        yield Line(
            f"{stream.name}: {stream.source}, column {stream.column}, {stream.states} states; "
            f"{protected_sentence(stream.discretiser)}"
        )
        yield from (Line(f"  {note}") for note in readings.notes)
    period_words = "" if model.period_seconds is None else f", one every {model.period_seconds:g} s"
    states_words = "pairs of states, before and now" if model.order == 2 else "states of the chain"
    yield Line(
        f"{len(recording.states)} ticks that have states{period_words}; {recording.left_out} left out; the longest "
        f"segment without a gap has {model.longest_segment}; {len(model.shows)} {states_words}"
    )
    if len(model.shows) <= _MOST_ROWS:
        yield Table(
            "Steps of the chain (rows: from, columns: to)",
            ("state", "shows", "steps", *(str(state) for state in range(len(model.shows)))),
            [
                (str(state), ",".join(map(str, shown_states)), str(sum(steps)), *(f"{p:.5f}" for p in probabilities))
                for state, (shown_states, steps, probabilities) in enumerate(
                    zip(model.shows, model.counts, model.transition.tolist(), strict=True)
                )
            ],
        )
    yield _order_line(model)
    if model.attacked is not None:
        yield Line(model.attacked.words)
    yield Line(f"No class: {model.refused}." if model.refused else f"Class: {model.class_words}.")


def _order_line(model: ChainModel) -> Line:
    """Report the test of the chain against a chain that depends on one tick more of the past."""
    test, is_single = model.more, len(model.streams) == 1 and model.order == 1
    p_text = f"{test.p_value:.2g}" if test.p_value > 0.0 else "below 1e-300"
    figures_text = f"G = {test.statistic:.1f}, df {test.degrees}, p = {p_text}, {test.nats_per_step:.2g} nats per step"
    advice = f"order {model.order} is enough, as far as this shows"
    if test.p_value <= _NOTABLE:
        advice = "a tick further back tells something as well; the size of it is the gain per step"
        advice += " (--order 2 fits pairs)" * is_single
    return Line(f"Order {model.order}? {figures_text}: {advice}.")


def _grid_report(model: GridModel, traces: Traces) -> Report:
    cell_count = len(model.cells)
    column_count, row_count = (model.cells.max(axis=0) + 1).tolist()
    period_words = "" if model.period_seconds is None else f", one place every {model.period_seconds:g} s"
    place_rows, trace_count = traces.rows - traces.missing, len(set(traces.trace.tolist()))
    yield Line(f"{traces.source}: {traces.rows} rows, {place_rows} places of {trace_count} traces")
    if traces.missing:
        if model.missing is None:
            yield Line(f"{traces.missing} rows without a place were left out; no transition is counted across them")
        else:
            x, y = model.cells[model.missing].tolist()
            yield Line(
                f"{traces.missing} rows ({traces.missing / traces.rows:.1%}) have no place, which is more than 1 %. "
                f"The most visited cell, x{x}y{y}, stands in for them, here and on a device with a policy made of this"
            )
    if traces.silences:
        yield Line(f"{traces.silences} silences of more than two periods count as one step each; --period cuts there")
    moves = model.counts.sum() - np.trace(model.counts)
    yield Table(
        f"Cells of {model.metres:g} m{period_words}",
        ("", ""),
        [
            ("cells of the chain", f"{cell_count}, within {column_count} columns and {row_count} rows"),
            ("cells visited in all", f"{model.visited} ({model.outside} places lie outside the chain)"),
            ("transitions counted", f"{model.counts.sum()}, {moves / model.counts.sum():.1%} of them to another cell"),
            ("different transitions", f"{np.count_nonzero(model.counts)} of {cell_count * cell_count}"),
            ("south-west corner", f"{model.origin[0]:.6f}, {model.origin[1]:.6f}"),
            ("a cell in degrees", f"{model.step[0]:.6g} high, {model.step[1]:.6g} wide"),
        ],
    )
    yield Line("The chain lives on the largest set of cells that can all be reached from one another.")
    yield Line("Transitions that were not seen count as impossible; the adversary is taken to know that.")
