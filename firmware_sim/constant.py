"""An agent whose readings stay the same, one stream for each state: everything that it publishes is its randomness.

The agent is any program that takes the path of a configuration, as `fugu-agent` does; what it does is seen at the
broker only.
"""

from __future__ import annotations

import json
import subprocess
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from firmware_sim.devices import simulate_recording
from fugu.contract.chains import BoundedChains, JointChains
from fugu.contract.discretisers import Baseline, Categories
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_FRAME_TICKS, SYMBOLS, SymbolFrame, decode_symbols
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, Point, decode_measure
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import parse_topic, symbols_topic, window_topic
from fugu.contract.window_frames import decode_window
from fugu.contract.windows import MAX_WINDOWS
from fugu.mqtt import Broker, Link

__all__ = ["ConstantError", "Outputs", "parts", "run_constant"]

_MOST_STATES = 8
_CEILING = 1e6
"""A device under test protects nobody: its readings are made up."""
_LOOK_SECONDS = 0.2
_MOST_SHORT = 100
_SHORTEST_US = 100
"""The shortest period of a stream; symbols that are closer together come from several streams of a state."""
_STATES_COUNTED = 32
"""Of a window under test, at least: a message has a count, with noise of its own, for each."""


class ConstantError(FuguError):
    """The agent cannot be run so, or published too little."""


@dataclass
class Outputs:
    """What was published of every state.

    Attributes:
        states: that there are streams of.
        symbols: by state, one byte each.
        noise: by state and window: the counts, less what was counted.
        points: by state and number of the table.
        problem: the first thing about the bytes that was not as the protocol has it; empty if there is none.
        short: frames that left before they were full, as they do after a tick that nothing was drawn for.
    """

    states: tuple[int, ...]
    symbols: dict[int, bytearray] = field(default_factory=dict)
    noise: dict[tuple[int, str], array[int]] = field(default_factory=dict)
    points: dict[tuple[int, int], list[Point]] = field(default_factory=dict)
    problem: str = ""
    short: int = 0

    @property
    def each(self) -> list[int]:
        """How many symbols, points and counts there are of every state."""
        if self.symbols or self.noise:
            return [*map(len, self.symbols.values()), *map(len, self.noise.values())]
        points = list(self.points.items())
        return [sum(len(drawn) for (state, _), drawn in points if state == one) for one in self.states]


def parts(policy: AnyPolicy) -> list[AnyPolicy]:
    """The policy, or if it has symbols and windows, one of each: counts take longer to publish."""
    if not isinstance(policy, Policy) or policy.table is None or not policy.windows:
        return [policy]
    nothing = {"windows_guarantee": None}
    return [
        policy.model_copy(update={**nothing, "windows": ()}),
        policy.model_copy(update={**nothing, "table": None, "frame_ticks": 1}),
    ]


def run_constant(
    command: Sequence[str],
    policy: AnyPolicy,
    broker: Broker,
    folder: Path,
    enough: int,
    period_us: int,
    patience: float,
) -> Outputs:
    """Run an agent until it has published enough of every state.

    Its windows are histograms of one tick each, with the noise of the policy's: what is drawn for a count depends on
    neither the states that are counted nor the length. 16 of them make 512 counts a tick, or more.

    Args:
        command: the agent's program, to which the path of a configuration is added.
        folder: for its files.
        policy: with symbols, windows or points: one kind of them, as `parts` has it.
        enough: draws of every state.
        period_us: from draw to draw of any stream; several streams of a state if it takes them. An agent that is always
            late goes on drawing, and takes no acknowledgement any more: it falls silent after a while.
        patience: seconds after which nothing new is an error.

    Raises:
        ConstantError: the agent has ended or gone silent too early.
    """
    count = len(policy.discretiser.states)
    states = tuple(sorted({index * (count - 1) // (_MOST_STATES - 1) for index in range(_MOST_STATES)}))
    period_us *= len(states)
    copies = -(-_SHORTEST_US // period_us) if isinstance(policy, Policy) and policy.table is not None else 1
    streams = {
        f"state{state}-{copy}": _stream(policy, f"state{state}-{copy}", period_us * copies)
        for state in states
        for copy in range(copies)
    }
    outputs = Outputs(states)
    if isinstance(policy, Policy):
        outputs.symbols = {state: bytearray() for state in states if policy.table is not None}
        for window in policy.windows:
            outputs.noise |= {(state, window.name): array("q") for state in states}
    reader = _Reader(policy, outputs)
    names = (policy.fleet, policy.device, "+")
    link = Link(broker, f"audit-{policy.device}", (symbols_topic(*names), window_topic(*names)), on_message=reader.take)
    link.start()
    with (folder / "agent.log").open("wb") as log:
        config = _configuration(folder, streams, broker)
        process = subprocess.Popen([*command, str(config)], stdout=log, stderr=log)
        try:
            _wait(process, outputs, enough, patience, folder / "agent.log")
        finally:
            process.terminate()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            link.stop()
    return outputs


def _stream(policy: AnyPolicy, name: str, period_us: int) -> AnyPolicy:
    """The policy for one state: a stream of its own, fast ticks, and windows of a tick.

    What is drawn for a state depends on neither the class nor on how readings become states. Joint chains name their
    streams, and one with a running mean leaves its state when readings stay the same: here each has another instead.
    """
    clock = Clock(epoch_us=time.time_ns() // 1000, period_us=period_us)
    update: dict[str, Any] = {"stream": name, "clock": clock, "valid_from": 0, "valid_until": None}
    if isinstance(policy.discretiser, Baseline):
        names, missing = policy.discretiser.states, policy.discretiser.missing
        update["discretiser"] = Categories(
            categories={name: number for number, name in enumerate(names) if name != missing},
            states=names,
            missing=missing,
        )
    if isinstance(policy, Policy) and isinstance(policy.chains, JointChains):
        update["chains"] = BoundedChains(states=len(policy.discretiser.states), odds_ratio=1.0)
        update["guarantee"] = policy.guarantee.model_copy(update={"epsilon": _CEILING})
    if not isinstance(policy, Policy):
        update["clock"] = clock.model_copy(update={"period_us": max(period_us, _SHORTEST_US)})
        return policy.model_copy(update={**update, "frame_ticks": MAX_MEASURE_TICKS})
    if policy.table is not None:
        return policy.model_copy(update={**update, "frame_ticks": MAX_FRAME_TICKS})
    short = {"length": 1, "stride": 1, "start": 0, "states": "histogram"}
    windows = tuple(
        one.model_copy(update={**short, "name": f"w{number}-{copy}"})
        for number, one in enumerate(policy.windows)
        for copy in range(MAX_WINDOWS // len(policy.windows))
    )
    labels = tuple(map(str, range(max(_STATES_COUNTED, len(policy.discretiser.states)))))
    update["discretiser"] = Categories(categories={label: int(label) for label in labels}, states=labels, missing=None)
    update["chains"] = BoundedChains(states=len(labels), odds_ratio=1.0)
    update["guarantee"] = policy.guarantee.model_copy(update={"epsilon": _CEILING})
    update["clock"] = clock.model_copy(update={"period_us": period_us * len(windows) * len(labels)})
    return policy.model_copy(update={**update, "windows": windows})


def _configuration(folder: Path, streams: dict[str, AnyPolicy], broker: Broker) -> Path:
    first = next(iter(streams.values()))
    general = {"fleet": first.fleet, "device": first.device, "outbox": "outbox.sqlite", "forget": "puback"}
    limits = {"ceiling": _CEILING, "measurement_ceiling": _CEILING, "status_seconds": 3600.0, "drain_seconds": 5.0}
    lines = [*_toml({**general, **limits}), "[broker]", *_toml(asdict(broker))]
    for name, policy in streams.items():
        (folder / f"{name}.json").write_text(policy.to_json())
        simulate_recording(folder / f"{name}.csv", policy, [_state(name)] * 2)
        lines += ["[[streams]]", f'policy = "{name}.json"', "[streams.sensor]"]
        lines += _toml({"kind": "replay", "file": f"{name}.csv", "column": "value", "loop": True})
    path = folder / "agent.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _state(stream: str) -> int:
    """The state of a stream, `state{state}-{copy}`."""
    return int(stream.removeprefix("state").partition("-")[0])


def _toml(values: dict[str, object]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]


def _wait(process: subprocess.Popen[bytes], outputs: Outputs, enough: int, patience: float, log: Path) -> None:
    before, since = -1, time.monotonic()
    while min(each := outputs.each) < enough and not outputs.problem:
        if sum(each) != before:
            before, since = sum(each), time.monotonic()
        if outputs.short > _MOST_SHORT:
            raise ConstantError(f"the agent cannot keep up, after {min(each)} draws of a state: take a longer period")
        if process.poll() is not None or time.monotonic() - since > patience:
            ended = "has ended" if process.poll() is not None else f"has published nothing new for {patience:g} s"
            said = log.read_text(errors="replace").strip().splitlines()
            raise ConstantError(
                f"the agent {ended}, after {min(each)} draws of a state: {said[-1] if said else 'silent'}"
            )
        time.sleep(_LOOK_SECONDS)


class _Reader:
    """Takes what is published, in the network's thread."""

    def __init__(self, policy: AnyPolicy, outputs: Outputs) -> None:
        self._policy = policy
        self._outputs = outputs
        self._last: dict[str, int] = {}
        self._points: dict[Point, Point] = {}

    def take(self, topic: str, payload: bytes, _retained: bool) -> None:
        """Read a message; what is no frame, or of no such stream, is a problem."""
        try:
            stream = parse_topic(topic).stream
            self._window(stream, payload) if "/window/" in topic else self._frame(stream, payload)
        except (FuguError, ValueError, LookupError) as error:
            self._outputs.problem = self._outputs.problem or f"{topic}: {error}"

    def _frame(self, stream: str, payload: bytes) -> None:
        state = _state(stream)
        frame = decode_symbols(payload) if payload[:1] == bytes([SYMBOLS]) else decode_measure(payload)
        if not self._is_new(stream, frame.first, frame.last):
            return
        self._outputs.short += frame.padding > 0
        if isinstance(frame, SymbolFrame):
            self._outputs.symbols[state] += frame.symbols
        else:
            for released in frame.released:
                same = self._points.setdefault(released.point, released.point)  # millions of a few thousand points
                self._outputs.points.setdefault((state, released.table), []).append(same)

    def _window(self, stream: str, payload: bytes) -> None:
        state = _state(stream)
        assert isinstance(self._policy, Policy)
        frame = decode_window(payload)
        if not self._is_new(f"{stream}/{frame.window}", frame.index, frame.index):
            return
        window = self._policy.windows[int(frame.window[1:].partition("-")[0])]
        noise = (count - (state == place) for place, count in enumerate(frame.counts))
        self._outputs.noise[state, window.name].extend(noise)

    def _is_new(self, sequence: str, first: int, last: int) -> bool:
        """Whether a frame is after all others of its sequence; it may come twice."""
        new = first > self._last.get(sequence, -1)
        self._last[sequence] = max(last, self._last.get(sequence, -1))
        return new
