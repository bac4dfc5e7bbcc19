"""The work of `fugu plan model` with several streams, or with a chain of order 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fugu.cli.commands.arguments import StateRules, baseline_ticks, positive, state_edge
from fugu.cli.errors import CommandError, CommandLineError
from fugu.cli.view.joint_model import show_joint_model
from fugu.cli.view.terminal import warn, working
from fugu.planning.joint_recording import JointRecording, StreamRule, named, read_joint
from fugu.planning.true_class import attack_streams
from fugu.privacy.joint_fit import fit_joint, fit_order_two, joint_states
from fugu.privacy.joint_model import MOST_STREAMS, StreamStates

__all__ = ["fit_streams"]

_SEED = 20201


def fit_streams(
    files: Sequence[Path], given: StateRules, epsilon: float | None, output: Path | None, *, as_json: bool
) -> None:
    """Fit a joint chain to recordings, print it, and write it if a file is named.

    Raises:
        FuguError: something cannot be read, or there is no such chain.
        OSError: a file cannot be read or written.
    """
    if given.decimate < 1:
        raise CommandError(f"decimate must be at least 1, got {given.decimate}")
    wanted = None if epsilon is None else positive(epsilon, "epsilon")
    rules = _rules(files, given)
    if given.order == 2 and len(rules) > 1:
        raise CommandLineError("--order 2 is for one stream")
    if not 1 <= len(rules) <= MOST_STREAMS:
        raise CommandLineError(f"at most {MOST_STREAMS} streams have a joint chain, these are {len(rules)}")
    if given.decimate > 1 and any(rule.baseline is not None for rule in rules):
        raise CommandLineError("--baseline makes the states of every reading: without --decimate")
    with working(f"fitting {' and '.join(dict.fromkeys(file.name for file in files))}") as told:
        recording = read_joint(rules)
        names = named(None if given.name is None else _words(given.name), rules, recording.streams)
        streams = _streams(rules, names, recording)
        if given.order == 2:
            model = fit_order_two(
                recording.states[:, 0],
                recording.segments,
                streams[0],
                decimate=given.decimate,
                period_seconds=recording.period_seconds,
            )
        else:
            model = fit_joint(
                recording.states,
                recording.segments,
                streams,
                decimate=given.decimate,
                period_seconds=recording.period_seconds,
            )
            if wanted is not None and model.odds_ratio is not None:
                told("attacking its class")
                _, joint, segments = joint_states(recording.states, recording.segments, given.decimate)
                model = attack_streams(model, joint, segments, wanted, np.random.default_rng(_SEED))
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    if as_json:
        print(model.to_json(), end="")
    else:
        show_joint_model(model, recording.left_out)
    warn(model.warning)


def _rules(files: Sequence[Path], given: StateRules) -> list[StreamRule]:
    columns = _words(given.column or "-")
    number = max(len(files), len(columns))
    if len(files) not in (1, number):
        raise CommandLineError(f"there are {len(files)} files and {number} columns")
    parts = [
        _each(words, number, what)
        for words, what in (
            (columns, "column"),
            (_words(given.threshold or "-"), "threshold"),
            (_words(given.baseline or "-"), "baseline"),
        )
    ]
    paths = list(files) * (number if len(files) == 1 else 1)
    rules = [
        StreamRule(path, column, state_edge(edge), baseline_ticks(ticks))
        for path, column, edge, ticks in zip(paths, *parts, strict=True)
    ]
    if any(rule.threshold is not None and rule.baseline is not None for rule in rules):
        raise CommandLineError("a stream has either a threshold or a baseline: write - for the other")
    return rules


def _each(words: list[str], number: int, what: str) -> list[str | None]:
    """One word for each stream; one for all stands for each."""
    if len(words) not in (1, number):
        raise CommandLineError(f"--{what} has {len(words)} parts for {number} streams")
    return [None if word == "-" else word for word in words * (number if len(words) == 1 else 1)]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _streams(rules: Sequence[StreamRule], names: Sequence[str], recording: JointRecording) -> list[StreamStates]:
    return [
        StreamStates(
            name=name,
            source=rule.path.name,
            column=one.column,
            discretiser=one.discretiser,
            states=max(int(one.states.max()) + 1, 2),
            missing_state=one.missing_state,
            missing_share=one.missing_share,
        )
        for name, rule, one in zip(names, rules, recording.streams, strict=True)
    ]
