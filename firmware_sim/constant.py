"""Run an agent whose readings are known, so that its outputs show its randomness alone.

Each tested state has a stream whose readings stay the same, and another stream has readings that change by a script.
The agent is any program that takes the path of a configuration; only its messages at the broker are observed.
"""

from __future__ import annotations

import random
import subprocess
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import gt
from pathlib import Path
from typing import Any

from firmware_sim.devices import simulate_recording, write_config
from fugu.contract.chains import BoundedChains
from fugu.contract.discretisers import Baseline, Categories
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_FRAME_TICKS, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Point
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from fugu.contract.queries import EACH
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.windows import MAX_WINDOWS
from fugu.mqtt import Broker, Link

__all__ = ["run_constant"]


_MAX_STATES = 8
_CEILING = 1e6
"""A device under test protects nobody: its readings are made up."""
_POLL_SECONDS = 0.2
_MAX_SHORT_FRAMES = 100
_MIN_PERIOD_US = 100
"""The shortest period of a stream; for symbols that are closer together, a state has several streams."""
_MIN_COUNTS = 32
"""Least counts of a window of a state's stream: each count in a message has noise of its own."""
_STARTS = 3
_CHANGES = "changes"
"""Prefix of the names of streams whose readings change."""
_SCRIPT_TICKS = 10_007
_HOLD_TICKS = tuple(1 << power for power in range(7))
"""Numbers of ticks for which a state may stay in the script; short ones are more likely."""
_MAX_CHANGES = 1 << 21
"""Most draws of the script that are kept, of each kind."""


@dataclass
class Outputs:
    """Outputs of an agent, by state.

    Attributes:
        script: states of the ticks of the streams that change, repeated after the last.
        symbols: symbols by state, one byte each.
        noise: by state and window, the counts minus the true counts.
        points: points by state and number of the table.
        changes: ticks and draws of the streams that change, by 0 for symbols, number of the table for points, or name
            of the window. A window has as many draws a tick as counts; they are the counts minus the true counts.
        problem: the first violation of the protocol, "" if there was none.
        short_frames: number of frames that left before they were full, as after a tick that was not drawn.
    """

    policy: AnyPolicy
    states: tuple[int, ...]
    script: tuple[int, ...]
    symbols: dict[int, bytearray] = field(default_factory=dict)
    noise: dict[tuple[int, str], array[int]] = field(default_factory=dict)
    points: dict[tuple[int, int], list[Point]] = field(default_factory=dict)
    changes: dict[str | int, tuple[array[int], list[Any]]] = field(default_factory=dict)
    problem: str = ""
    short_frames: int = 0
    _last_ticks: dict[str, int] = field(default_factory=dict)
    _points: dict[Point, Point] = field(default_factory=dict)

    @property
    def draw_counts(self) -> list[int]:
        """Numbers of draws by state: of symbols, and of counts by window, or else of points."""
        if self.symbols or self.noise:
            return [*map(len, self.symbols.values()), *map(len, self.noise.values())]
        points = list(self.points.items())
        return [sum(len(draws) for (point_state, _), draws in points if point_state == state) for state in self.states]

    @property
    def script_draw_counts(self) -> list[int]:
        """Numbers of draws of the streams that change: of symbols, of counts by window, or of points."""
        draw_counts = [len(draws) for _, draws in list(self.changes.values())]
        return draw_counts if self.symbols or self.noise else [sum(draw_counts)]

    def on_message(self, topic: str, payload: bytes, _retained: bool) -> None:
        """Read a message; one that is no frame, or is of an unknown stream, is a problem."""
        try:
            stream = parse_topic(topic).stream
            self._add_window(stream, payload) if "/window/" in topic else self._add_frame(stream, payload)
        except (FuguError, ValueError, LookupError) as error:
            self.problem = self.problem or f"{topic}: {error}"

    def _add_frame(self, stream: str, payload: bytes) -> None:
        is_script, state = stream.startswith(_CHANGES), _states_of_stream(stream, self)[0]
        is_symbols = payload[:1] == bytes([SymbolFrame.SCHEMA])
        frame = SymbolFrame.decode(payload) if is_symbols else MeasureFrame.decode(payload)
        if not self._is_new(stream, frame.first, frame.last):
            return
        self.short_frames += frame.padding > 0
        if isinstance(frame, SymbolFrame):
            if is_script:
                for tick, symbol in enumerate(frame.symbols, frame.first):
                    self._add_change(0, tick, [symbol])
            else:
                self.symbols[state] += frame.symbols
            return
        for tick, released in enumerate(frame.released, frame.first):
            point = self._points.setdefault(released.point, released.point)  # one object for equal points
            if is_script:
                self._add_change(released.table, tick, [point])
            else:
                self.points.setdefault((state, released.table), []).append(point)

    def _add_change(self, output: str | int, tick: int, draws: list[Any]) -> None:
        ticks, all_draws = self.changes.setdefault(output, (array("q"), []))
        if len(all_draws) < _MAX_CHANGES:
            ticks.append(tick)
            all_draws += draws

    def _add_window(self, stream: str, payload: bytes) -> None:
        states = _states_of_stream(stream, self)
        assert isinstance(self.policy, Policy)
        frame = WindowFrame.decode(payload)
        if not self._is_new(f"{stream}/{frame.window}", frame.index, frame.index):
            return
        window = self.policy.windows[int(frame.window[1:].partition("-")[0])]
        state = states[frame.first % len(states)]
        noise = [count - (state == index) for index, count in enumerate(frame.counts)]
        if stream.startswith(_CHANGES):
            self._add_change(window.name, frame.first, noise)
        else:
            self.noise[state, window.name].extend(noise)

    def _is_new(self, sequence: str, first_tick: int, last_tick: int) -> bool:
        """True if a frame is later than all others of its sequence; False if it comes again."""
        is_new = first_tick > self._last_ticks.get(sequence, -1)
        self._last_ticks[sequence] = max(last_tick, self._last_ticks.get(sequence, -1))
        return is_new


def run_constant(
    command: Sequence[str],
    policy: AnyPolicy,
    broker: Broker,
    folder: Path,
    required_draws: int,
    period_us: int,
    patience: float,
) -> Outputs:
    """Run an agent until it has published enough draws of every state; its command gets the path of a configuration.

    Its windows are histograms of one tick each, with the policy's noise, which does not depend on the counted states or
    on the length. 16 windows make 512 counts a tick, or more. After each third of the draws the agent is ended, and
    started again. The policy has one kind of draws: symbols, windows or points.

    `period_us` is the time from draw to draw, over all streams; a state gets several streams if it needs them. An agent
    that is always late goes on drawing, but reads no acknowledgements, and falls silent after a while.

    Raises:
        FuguError: the agent has ended, or nothing new came for `patience` seconds.
    """
    state_count = len(policy.discretiser.states)
    states = tuple(sorted({index * (state_count - 1) // (_MAX_STATES - 1) for index in range(_MAX_STATES)}))
    script = _script(states, random.SystemRandom())
    epoch_us = time.time_ns() // 1000
    period_us *= len(states)
    copy_count = -(-_MIN_PERIOD_US // period_us) if isinstance(policy, Policy) and policy.table is not None else 1
    streams = {
        name: _stream_policy(policy, name, epoch_us, period_us * copy_count, -(-required_draws // _STARTS))
        for prefix in (*(f"state{state}" for state in states), _CHANGES)
        for name in (f"{prefix}-{copy}" for copy in range(copy_count))
    }
    outputs = Outputs(policy, states, script)
    if isinstance(policy, Policy):
        outputs.symbols = {state: bytearray() for state in states if policy.table is not None}
        for window in policy.windows:
            outputs.noise |= {(state, window.name): array("q") for state in states}
        output_keys = (0,) if policy.table is not None else (window.name for window in policy.windows)
        outputs.changes = {output_key: (array("q"), []) for output_key in output_keys}
    topic_names = (policy.fleet, policy.device, "+")
    link = Link(
        broker,
        f"audit-{policy.device}",
        (topic_of("symbols", *topic_names), topic_of("window", *topic_names)),
        on_message=outputs.on_message,
    )
    link.start()
    with (folder / "agent.log").open("wb") as log:
        try:
            config = _write_configuration(folder, streams, outputs, broker)
            for start in range(1, _STARTS + 1):
                outputs.short_frames = -len(streams)  # the stop before has cut a frame of each stream short
                process = subprocess.Popen([*command, str(config)], stdout=log, stderr=log)
                try:
                    _wait_for_draws(process, outputs, required_draws * start // _STARTS, patience, folder / "agent.log")
                finally:
                    _end_agent(process, patience)
        finally:
            link.stop()
    return outputs


def _end_agent(process: subprocess.Popen[bytes], patience: float) -> None:
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _script(states: Sequence[int], generator: random.Random) -> tuple[int, ...]:
    """Draw a script of states: each lasts for a random number of ticks, and any other state may follow."""
    script: list[int] = [states[0]]
    while len(script) < _SCRIPT_TICKS:
        [hold_ticks] = generator.choices(_HOLD_TICKS, [hold_ticks**-0.5 for hold_ticks in _HOLD_TICKS])
        script += [generator.choice([state for state in states if state != script[-1]])] * hold_ticks
    return tuple(script[:_SCRIPT_TICKS])


def _stream_policy(policy: AnyPolicy, name: str, epoch_us: int, period_us: int, frame_ticks: int) -> AnyPolicy:
    """Make the policy of one stream: a name of its own, fast ticks, and windows of one tick.

    The draw for a state depends neither on the class nor on the discretiser. So joint chains, which name their streams,
    are replaced, and so is a running mean, which leaves its state while readings stay the same.
    """
    labels, missing_state = policy.discretiser.states, policy.discretiser.missing
    changes: dict[str, Any] = {"stream": name, "valid_from": 0, "valid_until": None}
    if isinstance(policy.discretiser, Baseline):
        categories = {label: index for index, label in enumerate(labels) if label != missing_state}
        changes["discretiser"] = Categories(categories=categories, states=labels, missing=missing_state)
    if not isinstance(policy, Policy):
        changes["frame_ticks"], period_us = min(frame_ticks, MAX_MEASURE_TICKS), max(period_us, _MIN_PERIOD_US)
    elif policy.table is not None:
        changes["frame_ticks"] = min(frame_ticks, MAX_FRAME_TICKS)
    else:
        tick_window = {"length": 1, "stride": 1, "start": 0, "states": EACH, "blocks": None}
        changes["windows"] = tuple(
            window.model_copy(update={**tick_window, "name": f"w{index}-{copy}"})
            for index, window in enumerate(policy.windows)
            for copy in range(MAX_WINDOWS // len(policy.windows))
        )
        min_labels = 0 if name.startswith(_CHANGES) else _MIN_COUNTS
        labels = tuple(map(str, range(max(min_labels, len(labels)))))
        changes["discretiser"] = Categories(categories={label: int(label) for label in labels}, states=labels)
        period_us *= len(changes["windows"]) * len(labels)
    if isinstance(policy, Policy) and (policy.table is None or policy.chains.named_streams):
        changes["chains"] = BoundedChains(states=len(labels), odds_ratio=1.0)
        changes["guarantee"] = policy.guarantee.model_copy(update={"epsilon": _CEILING})
    return policy.model_copy(update={**changes, "clock": Clock(epoch_us=epoch_us, period_us=period_us)})


def _write_configuration(folder: Path, streams: dict[str, AnyPolicy], outputs: Outputs, broker: Broker) -> Path:
    any_policy = next(iter(streams.values()))
    options = {"fleet": any_policy.fleet, "device": any_policy.device, "outbox": "outbox.sqlite", "forget": "puback"}
    limits = {"ceiling": _CEILING, "measurement_ceiling": _CEILING, "status_seconds": 3600.0, "drain_seconds": 5.0}
    sensors = {}
    for name, policy in streams.items():
        (folder / f"{name}.json").write_text(policy.to_json())
        simulate_recording(folder / f"{name}.csv", policy, _states_of_stream(name, outputs))
        sensors[f"{name}.json"] = {"kind": "replay", "file": f"{name}.csv", "column": "value", "loop": True}
    return write_config(folder, {**options, **limits}, broker, sensors)


def _states_of_stream(stream: str, outputs: Outputs) -> tuple[int, ...]:
    """Return the states of the ticks of a stream, `state{state}-{copy}` or `changes-{copy}`, to be repeated."""
    prefix = stream.partition("-")[0]
    return outputs.script if prefix == _CHANGES else (int(prefix.removeprefix("state")),) * 2


def _wait_for_draws(process: subprocess.Popen[bytes], outputs: Outputs, goal: int, patience: float, log: Path) -> None:
    last_total, last_change, first_draws = -1, time.monotonic(), outputs.draw_counts
    while not outputs.problem:
        draws, script_draws = outputs.draw_counts, min(outputs.script_draw_counts)
        if min(draws) >= goal and script_draws >= min(goal, _MAX_CHANGES) and all(map(gt, draws, first_draws)):
            return
        if sum(draws) + script_draws != last_total:
            last_total, last_change = sum(draws) + script_draws, time.monotonic()
        if outputs.short_frames > _MAX_SHORT_FRAMES:
            raise FuguError(f"the agent cannot keep up, after {min(draws)} draws of a state: take a longer period")
        if process.poll() is not None or time.monotonic() - last_change > patience:
            end_words = "has ended" if process.poll() is not None else f"has published nothing new for {patience:g} s"
            last_line = ["silent", *log.read_text(errors="replace").strip().splitlines()][-1]
            raise FuguError(f"the agent {end_words}, after {min(draws)} draws of a state: {last_line}")
        time.sleep(_POLL_SECONDS)
