"""The work of `fugu plan model`: fit a chain of states to a recording, or a chain of places to traces.

All raise FuguError if an input cannot be parsed or no such chain exists, and OSError if a file cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.topics import NAME_PATTERN
from fugu.host.arguments import number, positive, split_words
from fugu.library.model_words import chain_result, grid_result
from fugu.library.report import Result
from fugu.planning.grid_model import fit_grid, grid_document, order_two_document
from fugu.planning.joint_recording import Stream, StreamRule, read_joint
from fugu.planning.true_class import attack_model
from fugu.privacy.chain_fit import fit, joint_states
from fugu.privacy.chain_model import MOST_STREAMS, StreamStates
from fugu.recordings.options import ReadOptions
from fugu.recordings.places import read_traces, resample
from fugu_cli.view.terminal import working

__all__ = ["fit_places", "fit_recordings"]

_SEED = 20201


def fit_recordings(
    files: Sequence[Path],
    reading_options: ReadOptions,
    option_texts: Mapping[str, str | None],
    names_text: str | None,
    order: Literal[1, 2],
    epsilon: float | None,
    output: Path | None,
) -> Result:
    """Fit a chain to one stream, or a joint chain to several; write it if a file is named.

    `option_texts` are columns, thresholds and baselines by option, with commas between streams.
    """
    attack_epsilon = None if epsilon is None else positive(epsilon, "epsilon")
    rules = _stream_rules(files, option_texts)
    if order == 2 and attack_epsilon is not None:
        raise UsageError("--epsilon: a chain of order 2 is taken as it is, and not widened by attacks")
    if order == 2 and len(rules) > 1:
        raise UsageError("--order 2 is for one stream")
    if len(rules) > MOST_STREAMS:
        raise UsageError(f"at most {MOST_STREAMS} streams have a joint chain, these are {len(rules)}")
    with working(f"fitting {' and '.join(dict.fromkeys(file.name for file in files))}") as progress:
        recording = read_joint(rules, reading_options)
        streams = [
            StreamStates(
                name=name,
                source=stream.readings.source,
                column=stream.readings.column,
                discretiser=stream.discretiser,
                missing_share=stream.readings.missing_share,
            )
            for name, stream in zip(_stream_names(names_text, rules, recording.streams), recording.streams, strict=True)
        ]
        states, segments = recording.states, recording.segments
        model = fit(states, segments, streams, order=order, period_seconds=recording.period_seconds)
        if attack_epsilon is not None and model.chains is not None:
            progress("attacking its class")
            _, joint_state = joint_states(states, streams)
            model = attack_model(model, joint_state, segments, attack_epsilon, np.random.default_rng(_SEED))
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    return chain_result(model, recording)


def _stream_names(names_text: str | None, rules: Sequence[StreamRule], streams: Sequence[Stream]) -> Sequence[str]:
    """Return the names of streams: the given ones, else their valid and different columns or files.

    A single stream without such a name is "readings". UsageError: the names differ in number from the streams, are
    invalid or not different, or several streams have no such names.
    """
    name_choices = [[stream.readings.column for stream in streams], [rule.path.name.split(".")[0] for rule in rules]]
    if names_text is not None:
        name_choices = [split_words(names_text)]
        if len(name_choices[0]) != len(streams):
            raise UsageError(f"there are {len(streams)} streams and {len(name_choices[0])} names")
    for candidates in name_choices:
        if len(set(candidates)) == len(candidates) and all(re.fullmatch(NAME_PATTERN, column) for column in candidates):
            return candidates
    if names_text is None and len(streams) == 1:
        return ["readings"]
    problem = "columns and files do not name the streams" if names_text is None else "these are no names of streams"
    raise UsageError(f"{problem}: give different names of letters, digits, - and _, as in --name heart,steps")


def _stream_rules(files: Sequence[Path], option_texts: Mapping[str, str | None]) -> list[StreamRule]:
    """Return how each stream is read: its file, column, and threshold or baseline."""
    columns = split_words(option_texts["column"] or "-")
    stream_count = max(len(files), len(columns))
    if len(files) not in (1, stream_count):
        raise UsageError(f"there are {len(files)} files and {stream_count} columns")
    split_texts = {option: split_words(text or "-") for option, text in option_texts.items()}
    option_words = [_word_per_stream(words, stream_count, option) for option, words in split_texts.items()]
    paths = list(files) * (stream_count if len(files) == 1 else 1)
    rules = [
        StreamRule(path, column, _state_edge(edge), _baseline_ticks(ticks))
        for path, column, edge, ticks in zip(paths, *option_words, strict=True)
    ]
    if any(rule.threshold is not None and rule.baseline is not None for rule in rules):
        raise UsageError("a stream has either a --threshold or a --baseline: leave one out, or write - for it")
    return rules


def _word_per_stream(words: list[str], stream_count: int, option: str) -> list[str | None]:
    """Return one word for each stream, None for `-`; a single word stands for all."""
    if len(words) not in (1, stream_count):
        raise UsageError(f"--{option} has {len(words)} parts for {stream_count} streams")
    return [None if word == "-" else word for word in words * (stream_count if len(words) == 1 else 1)]


_METRES = 500.0


def fit_places(file: Path, options: ReadOptions, cell: float | None, order: int, output: Path | None) -> Result:
    """Fit a chain over square cells to traces, and write it if a file is named."""
    with working(f"fitting {file.name}"):
        traces = read_traces(file, options)
        if options.period is not None:
            traces = resample(traces, options.period)
        model = fit_grid(traces, _METRES if cell is None else positive(cell, "cell"), period_seconds=options.period)
        document = grid_document(model, traces) if order == 1 else order_two_document(model, traces)
    if output is not None:
        output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return grid_result(model, traces, document, order, output)


def _state_edge(edge_text: str | None) -> float | str | None:
    """Parse an edge between two states: None, "mean", or a number."""
    return edge_text if edge_text in (None, "mean") else number(str(edge_text), "threshold")


def _baseline_ticks(ticks_text: str | None) -> int | None:
    """Parse the ticks of a running mean, None as None; FuguError unless they are a whole number from 1 on."""
    if ticks_text is None:
        return None
    if not (ticks_text.isascii() and ticks_text.isdigit() and 1 <= int(ticks_text[:9]) == int(ticks_text)):
        raise FuguError(f"baseline is a whole number of ticks, at least 1, got {ticks_text!r}")
    return int(ticks_text)
