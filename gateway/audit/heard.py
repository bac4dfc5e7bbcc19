"""What was heard of a stream: topics and payloads, the frames in them, and the draws that a device has really made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.errors import FrameError, FuguError, TopicError
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Policy
from fugu.contract.policy_header import PolicyHeader
from fugu.contract.release_frames import ReleaseFrame
from fugu.contract.topics import count_topic, estimate_topic, parse_topic, release_topic, symbols_topic, window_topic
from fugu.contract.window_frames import WindowFrame
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of
from gateway.audit.recorded import Recorded, release_noise, window_noise
from gateway.audit.told import Definition, windows

__all__ = ["Message", "StreamError", "draws_of", "frames_of", "heard_topics", "placed", "read_messages"]

Message = tuple[str, bytes]


class StreamError(FuguError):
    """A recording of a stream cannot be read, or has nothing to attack."""


def heard_topics(policy: PolicyHeader) -> list[str]:
    """All topics that tell of a stream, whoever they are for."""
    name = (policy.fleet, policy.device, policy.stream)
    own = [make(*name) for make in (symbols_topic, window_topic, estimate_topic, count_topic)]
    return [*own, release_topic(policy.fleet, "+", "+")]


def read_messages(path: Path) -> list[Message]:
    """A recording of topics: lines of a topic, a space, and the payload in hexadecimal digits.

    Raises:
        StreamError: a line is none.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        topic, _, digits = line.partition(" ")
        try:
            found.append((topic, bytes.fromhex(digits)))
        except ValueError:
            raise StreamError(f"{path}: line {number} is no topic with a payload in hexadecimal digits") from None
    return found


def frames_of(policy: Policy, messages: Iterable[Message]) -> tuple[list[SymbolFrame], list[WindowFrame]]:
    """Symbols and counts of a policy's stream and version.

    Raises:
        StreamError: a payload is no frame.
    """
    name = (policy.fleet, policy.device, policy.stream)
    frames, counted = [], []
    for topic, payload in messages:
        try:
            if topic == symbols_topic(*name):
                frames.append(SymbolFrame.decode(payload))
            elif topic == window_topic(*name):
                counted.append(WindowFrame.decode(payload))
        except FrameError as error:
            raise StreamError(f"{topic}: {error}") from None
    version = policy.version
    return [f for f in frames if f.policy_version == version], [f for f in counted if f.policy_version == version]


def _releases(policy: Policy, messages: Iterable[Message]) -> list[ReleaseFrame]:
    found: dict[int, ReleaseFrame] = {}
    for topic, payload in messages:
        try:
            parsed = parse_topic(topic)
            if parsed.kind == "release" and parsed.fleet == policy.fleet:
                frame = ReleaseFrame.decode(payload)
                if frame.stream == policy.stream:
                    found[frame.entry] = frame
        except TopicError:
            continue
        except FrameError as error:
            raise StreamError(f"{topic}: {error}") from None
    return list(found.values())


def placed(policy: Policy, frames: Sequence[SymbolFrame], ticks: int, begin: int) -> Ints:
    """Symbols (ticks,) from the tick `begin` of the wall clock on, -1 where there is none."""
    if policy.table is None:
        raise StreamError("the recording has symbols, and the policy none")
    symbols = np.full(ticks, -1, dtype=np.int64)
    for frame in frames:
        at = frame.first - frame.shift - begin
        drawn = np.frombuffer(frame.symbols, dtype=np.uint8)[: max(0, ticks - at)]
        symbols[at : at + drawn.size] = drawn
    if symbols.max() >= policy.table.symbols:
        raise StreamError(f"the recording has a symbol {symbols.max()}, and the policy's table {policy.table.symbols}")
    return symbols


def draws_of(
    policy: Policy,
    messages: Iterable[Message],
    made: Sequence[Definition],
    readings: Readings | None,
    *,
    loop: bool,
) -> tuple[Recorded, Ints]:
    """What was drawn, by what it was drawn of, and symbols (n,) from the first tick on that anything is about."""
    heard = list(messages)
    frames, counted = frames_of(policy, heard)
    releases = _releases(policy, heard)
    every: list[SymbolFrame | WindowFrame] = [*frames, *counted]
    spans = [(frame.first - frame.shift, frame.last - frame.shift + 1) for frame in every]
    begin, end = min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)
    states = np.full(end - begin, -1, dtype=np.int64)
    if readings is not None:
        rows = states_of(policy.discretiser, readings.values, readings.segments)
        ticks = np.arange(begin, end)
        states = np.where(loop | (ticks < rows.size), rows[ticks % rows.size], -1)
    symbols = placed(policy, frames, states.size, begin) if frames else np.full_like(states, -1)
    noises: dict[str, Ints] = {}
    if readings is not None:
        for one in windows(policy):
            mine = {frame.index: frame for frame in counted if frame.window == one.name}
            noises |= window_noise(one, mine.values(), states, begin)
    for one in made:
        called = (one.name, f"{one.name}-{policy.device}")
        mine_too = [frame for frame in releases if frame.name in called]
        noises |= release_noise(policy, one, mine_too, symbols, begin)
    by_state = [symbols[(states == x) & (symbols >= 0)] for x in range(len(policy.discretiser.states))]
    return Recorded(by_state, noises), symbols
