"""Draws that a device and a gateway have really made, recovered from published messages and the truth.

On simulated paths of a class's worst chain, attacks then use the randomness of the real device. The gateway counts
symbols: if these are recorded, its noise is known without any truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from paho.mqtt.client import topic_matches_sub

from fugu.attackers.mechanisms import Recorded
from fugu.chains.arrays import Ints
from fugu.contract.errors import FrameError, FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import topic_of
from fugu.host.files import read_text
from fugu.planning.recorded_policy import Truth
from gateway.audit.access import output_topics
from gateway.audit.mechanism import Definition
from gateway.releases.statistics import two_valued_weights

__all__ = ["Message", "PublishedOutputs", "read_messages", "stream_topics"]


_MOST_TICKS = 1 << 25
_MAX_ROUNDING = 1e-3
"""Largest distance from a whole number of a count that is computed back from an estimate."""


def window_noise(definition: Definition, frames: Iterable[WindowFrame], states: Ints, begin: int) -> dict[str, Ints]:
    """Recover the noise of a device's counts, by name of the count, in the order of the frames.

    Windows with a tick of unknown state are left out. `states` are (n,) true states from the wall clock's tick `begin`
    on, -1 if unknown.
    """
    noises: list[list[int]] = [[] for _ in definition.groups]
    for frame in frames:
        offset = frame.first - frame.shift - begin
        window_states = states[offset : offset + frame.length] if offset >= 0 else states[:0]
        if window_states.size != frame.length or (window_states < 0).any():
            continue
        for noise, group, count in zip(noises, definition.groups, frame.counts, strict=True):
            noise.append(count - int(np.isin(window_states, group).sum()))
    return {name: np.array(noise, np.int64) for name, noise in zip(definition.names, noises, strict=True) if noise}


def release_noise(
    policy: Policy, definition: Definition, frames: Iterable[ReleaseFrame], symbols: Ints, begin: int
) -> dict[str, Ints]:
    """Recover the noise of a gateway's counts of one device's symbols, by name, if all these symbols were heard.

    `symbols` are (n,) from the wall clock's tick `begin` on, -1 where none was heard.
    """
    noises = []
    for frame in sorted(frames, key=lambda frame: frame.entry):
        offset = frame.first - begin
        window = symbols[offset : offset + frame.length] if offset >= 0 else symbols[:0]
        gaps = frame.length - frame.observed
        if definition.part or frame.devices != 1 or window.size != frame.length or (window < 0).sum() != gaps:
            continue
        rule, labels = None, policy.discretiser.states
        is_single_sum = frame.definition.is_single and definition.of_symbols
        if policy.table is not None and is_single_sum and {*frame.states} < {*labels}:
            rule = two_valued_weights(policy.table, tuple(map(labels.index, frame.states)))
        if rule is None or frame.observed == 0:
            continue
        value = frame.values[0] * frame.definition.divisor(frame.observed)
        count = (value - rule.b * frame.observed) / rule.a
        if abs(count - round(count)) < _MAX_ROUNDING:
            noises.append(round(count) - int(np.isin(window, definition.groups[0]).sum()))
    return {definition.names[0]: np.array(noises, np.int64)} if noises else {}


Message = tuple[str, bytes]


def stream_topics(policy: PolicyHeader) -> list[str]:
    """Return all topics about a stream, for all audiences."""
    return [*output_topics(policy), topic_of("release", policy.fleet, "+", "+")]


def read_messages(path: Path) -> list[Message]:
    """Read lines of a topic, a space and a hexadecimal payload. FuguError for another or unreadable file."""
    messages = []
    for line_number, line in enumerate(read_text(path, "the recording").splitlines(), start=1):
        topic, _, digits = line.partition(" ")
        try:
            messages.append((topic, bytes.fromhex(digits)))
        except ValueError:
            raise FuguError(f"{path}: line {line_number} is no topic with a payload in hexadecimal digits") from None
    return messages


class PublishedOutputs(NamedTuple):
    """Messages of a stream and its truth, from the wall clock's tick `begin` on.

    Attributes:
        states: (n,) true states, -1 where the state is unknown.
        segments: (n,) numbers of the truth's segments.
        symbols: (n,) symbols, -1 where none was heard.
        counts: frames of the device's windows, by name and index.
        releases: frames of the gateway, by entry.
    """

    policy: Policy
    begin: int
    states: Ints
    segments: Ints
    symbols: Ints
    counts: dict[tuple[str, int], WindowFrame]
    releases: dict[int, ReleaseFrame]

    @classmethod
    def read(cls, policy: Policy, messages: Iterable[Message], truth: Truth | None, *, loop: bool) -> PublishedOutputs:
        """Read messages. With `loop` the truth repeats after its last tick. FuguError if they do not fit the policy."""
        frames: list[SymbolFrame] = []
        windows: list[WindowFrame] = []
        release_frames: list[ReleaseFrame] = []
        address = (policy.fleet, policy.device, policy.stream)
        for topic, payload in messages:
            try:
                if topic == topic_of("symbols", *address):
                    frames.append(SymbolFrame.decode(payload))
                elif topic == topic_of("window", *address):
                    windows.append(WindowFrame.decode(payload))
                elif topic_matches_sub(topic_of("release", policy.fleet, "+", "+"), topic):
                    release_frames.append(ReleaseFrame.decode(payload))
            except FrameError as error:
                raise FuguError(f"{topic}: {error}") from None
        frames = [frame for frame in frames if frame.policy_version == policy.version]
        counts = {(frame.window, frame.index): frame for frame in windows if frame.policy_version == policy.version}
        releases = {release.entry: release for release in release_frames if release.stream == policy.stream}
        all_frames: list[SymbolFrame | WindowFrame] = [*frames, *counts.values()]
        if wrong_frames := [frame for frame in counts.values() if not _is_counted_by(policy, frame)]:
            raise FuguError(f"the policy has no window {wrong_frames[0].index} of {wrong_frames[0].window}")
        begin = min((frame.first - frame.shift for frame in all_frames), default=0)
        end = max((frame.last - frame.shift + 1 for frame in all_frames), default=0)
        if end - begin > _MOST_TICKS:
            raise FuguError(f"the recording is of ticks {begin}..{end - 1}: at most {_MOST_TICKS:,} can be attacked")
        states, segments = np.full(end - begin, -1, dtype=np.int64), np.zeros(end - begin, dtype=np.int64)
        if truth is not None and all_frames:
            states, segments = truth.between(begin, end).at(np.arange(begin, end), loop=loop)
        return cls(policy, begin, states, segments, _symbol_array(policy, frames, end - begin, begin), counts, releases)

    def windows(self, window_name: str) -> list[WindowFrame]:
        """Return the counts of a window, in order, except those during which the device did not always run."""
        indices = sorted(index for window, index in self.counts if window == window_name)
        return [frame for index in indices if (frame := self.counts[window_name, index]).observed == frame.length]

    def draws(self, definitions: Iterable[Definition]) -> Recorded:
        """Recover the device's draws at ticks with a known state, and the draws of the gateway's releases."""
        noises: dict[str, Ints] = {}
        for definition in definitions:
            if definition.kind == "release":
                release_names = (definition.name, f"{definition.name}-{self.policy.device}")
                frames = [frame for frame in self.releases.values() if frame.name in release_names]
                noises |= release_noise(self.policy, definition, frames, self.symbols, self.begin)
            else:
                noises |= window_noise(definition, self.windows(definition.name), self.states, self.begin)
        has_symbol = self.symbols >= 0
        states = range(len(self.policy.discretiser.states))
        state_symbols = [self.symbols[(self.states == x) & has_symbol] for x in states]
        return Recorded(state_symbols, noises)


def _is_counted_by(policy: Policy, frame: WindowFrame) -> bool:
    """Return True if a policy has a frame's window, with these ticks and this number of counts."""
    window = policy.window(frame.window)
    if window is None or not window.covers(frame.index, frame.first, frame.length):
        return False
    return len(frame.counts) == len(window.groups(policy.discretiser.states))


def _symbol_array(policy: Policy, frames: Sequence[SymbolFrame], ticks: int, begin: int) -> Ints:
    """Return symbols (ticks,) from the wall clock's tick `begin` on, -1 without a symbol.

    Raises FuguError if the policy's table has no such symbol.
    """
    symbols = np.full(ticks, -1, dtype=np.int64)
    for frame in frames:
        offset = frame.first - frame.shift - begin
        symbols[offset : offset + len(frame.symbols)] = np.frombuffer(frame.symbols, dtype=np.uint8)
    if frames and policy.table is None:
        raise FuguError("the recording has symbols, and the policy none")
    if policy.table is not None and symbols.max(initial=-1) >= policy.table.symbols:
        raise FuguError(f"the recording has a symbol {symbols.max()}, and the policy's table {policy.table.symbols}")
    return symbols
