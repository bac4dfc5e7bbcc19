"""The work of `fugu plan model`: a recording to a chain of states, or traces to one of places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fugu.cli.commands.arguments import StateRules, baseline_ticks, positive, state_edge
from fugu.cli.commands.joint_fit import fit_streams
from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.model import show_class, show_grid, show_model
from fugu.cli.view.terminal import answer, say, warn, working
from fugu.planning.alternatives import Alternative, alternatives
from fugu.planning.grid_model import WARNING, fit_cells, fit_grid, grid_document
from fugu.planning.grid_order_two import order_two_document
from fugu.planning.recording import read_recording
from fugu.planning.traces import read_traces, resampled
from fugu.planning.true_class import attack_model
from fugu.privacy.chain_fit import fit
from fugu.privacy.model_fit import decimate

__all__ = ["fit_places", "fit_recordings"]

_METRES = 500.0
_SEED = 20201


def fit_recordings(
    files: Sequence[Path],
    given: StateRules,
    confidence: float,
    epsilon: float | None,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Fit a chain to a recording, or one to several streams; print it, and write it if a file is named.

    Raises:
        FuguError: something cannot be read, or there is no such chain.
        OSError: a file cannot be read or written.
    """
    if given.order == 1 and len(files) == 1 and "," not in (given.column or ""):
        if given.name is not None:
            raise CommandLineError("--name: only with several streams, or --order 2")
        _fit_chain(files[0], given, confidence, epsilon, output, as_json=as_json)
        return
    if epsilon is not None and given.order == 2:
        raise CommandLineError("--epsilon: a chain of order 2 is taken as it is, and not widened by attacks")
    fit_streams(files, given, epsilon, output, as_json=as_json)


def _fit_chain(
    file: Path, given: StateRules, confidence: float, epsilon: float | None, output: Path | None, *, as_json: bool
) -> None:
    if not 0.0 < confidence < 1.0:
        raise CommandError(f"confidence must lie inside (0, 1), got {confidence:g}")
    wanted = None if epsilon is None else positive(epsilon, "epsilon")
    if given.decimate < 1:
        raise CommandError(f"decimate must be at least 1, got {given.decimate}")
    if given.baseline is not None and (given.threshold is not None or given.decimate > 1):
        raise CommandLineError("--baseline makes the states of every reading: without --threshold and --decimate")
    edge, ticks = state_edge(given.threshold), baseline_ticks(given.baseline)
    others: tuple[Alternative, ...] = ()
    with working(f"fitting {file.name}") as told:
        recording = read_recording(file, given.column, edge, ticks)
        model = fit(
            recording.states,
            recording.segments,
            decimate=given.decimate,
            period_seconds=recording.period_seconds,
            source=file.name,
            column=recording.column,
            discretiser=recording.discretiser,
            missing_state=recording.missing_state,
            missing_share=recording.missing_share,
            confidences=tuple(sorted({0.9, 0.95, 0.99, 0.999, confidence})),
        )
        if wanted is not None and model.chains is not None:
            told("attacking its class")
            decimated = decimate(recording.states, recording.segments, given.decimate)
            model = attack_model(model, *decimated, wanted, np.random.default_rng(_SEED))
            told("comparing other states and periods")
            others = alternatives(file, recording, wanted)
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    if as_json:
        print(model.to_json(), end="")
    else:
        show_model(model, confidence, recording.missing)
        show_class(model, others)
    warn(model.warning)


def fit_places(
    file: Path,
    cell: float | None,
    cells: int | None,
    period: float | None,
    order: int,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Fit a chain over square cells to traces, print it, and write it if a file is named.

    Raises:
        FuguError: something cannot be read, or there is no such chain.
        OSError: a file cannot be read or written.
    """
    if cell is not None and cells is not None:
        raise CommandLineError("give either --cell or --cells, not both")
    metres = _METRES if cell is None else positive(cell, "cell")
    with working(f"fitting {file.name}"):
        traces = read_traces(file)
        if period is not None:
            traces = resampled(traces, positive(period, "period"))
        if cells is None:
            model = fit_grid(traces, metres, period_seconds=period)
        else:
            model = fit_cells(traces, cells, period_seconds=period)
        document = grid_document(model, traces) if order == 1 else order_two_document(model, traces)
    if output is not None:
        output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    answer(as_json, lambda: document, lambda: show_grid(model, traces))
    if order == 2 and not as_json:
        pairs, count = len(document["shows"]), len(document["names"])
        say(f"Order 2: {pairs} pairs of a cell before and a cell now that come back, of {count} cells.")
    if output is not None and not as_json:
        say(f'chain written to {output}; plan with it by: transition = "{output.name}"')
    warn(WARNING)
