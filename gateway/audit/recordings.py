"""Draws that a device and a gateway have really made, taken from what was published and what is known of it.

Put on other paths, the chain that makes a class worst is attacked with the randomness of the real device. The gateway
counts symbols: where these are recorded, its noise is known without any truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fugu.attackers.mechanisms import Recorded
from fugu.chains.arrays import Ints
from fugu.contract.errors import FrameError, FuguError, TopicError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import Kind, parse_topic, topic_of
from fugu.planning.recorded_policy import Truth
from gateway.audit.mechanism import Definition
from gateway.releases.statistics import two_valued

__all__ = ["Message", "Published", "read_messages", "stream_topics"]


_MAX_ROUNDING = 1e-3
"""Largest distance of a count of symbols from a whole number, after the arithmetic of its estimate."""


def window_noise(definition: Definition, frames: Iterable[WindowFrame], states: Ints, begin: int) -> dict[str, Ints]:
    """The noise of a device's counts, in their order, of which every tick has a state, by name of the count.

    `states` are (n,) true states from the wall clock's tick `begin` on, -1 where there is none.
    """
    noises: list[list[int]] = [[] for _ in definition.groups]
    for frame in frames:
        low = frame.first - frame.shift - begin
        window_states = states[low : low + frame.length] if low >= 0 else states[:0]
        if window_states.size != frame.length or (window_states < 0).any():
            continue
        for noise, group, count in zip(noises, definition.groups, frame.counts, strict=True):
            noise.append(count - int(np.isin(window_states, group).sum()))
    return {name: np.array(noise, np.int64) for name, noise in zip(definition.names, noises, strict=True) if noise}


def release_noise(
    policy: Policy, definition: Definition, frames: Iterable[ReleaseFrame], symbols: Ints, begin: int
) -> dict[str, Ints]:
    """The noise of a gateway's counts of the symbols of one device, if all these symbols were heard.

    `symbols` are (n,) from the wall clock's tick `begin` on, -1 where none was heard.
    """
    noises = []
    for frame in sorted(frames, key=lambda frame: frame.entry):
        low = frame.first - begin
        span = symbols[low : low + frame.length] if low >= 0 else symbols[:0]
        missing = frame.length - frame.observed
        if definition.part or frame.devices != 1 or span.size != frame.length or (span < 0).sum() != missing:
            continue
        labels = policy.discretiser.states
        rule = None
        if policy.table is not None and frame.asked.single and definition.symbols:
            rule = two_valued(policy.table, tuple(map(labels.index, frame.states)))
        if rule is None or frame.observed == 0:
            continue
        value = frame.values[0] * frame.asked.divisor(frame.observed)
        count = (value - rule.b * frame.observed) / rule.a
        if abs(count - round(count)) < _MAX_ROUNDING:
            noises.append(round(count) - int(np.isin(span, definition.groups[0]).sum()))
    return {definition.names[0]: np.array(noises, np.int64)} if noises else {}


Message = tuple[str, bytes]


def stream_topics(policy: PolicyHeader) -> list[str]:
    """All topics that tell of a stream, whoever they are for."""
    address = (policy.fleet, policy.device, policy.stream)
    kinds: tuple[Kind, ...] = ("symbols", "window", "estimate", "count")
    return [*(topic_of(kind, *address) for kind in kinds), topic_of("release", policy.fleet, "+", "+")]


def read_messages(path: Path) -> list[Message]:
    """Read lines of a topic, a space, and the payload in hexadecimal digits. FuguError if a line is anything else."""
    messages = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        topic, _, digits = line.partition(" ")
        try:
            messages.append((topic, bytes.fromhex(digits)))
        except ValueError:
            raise FuguError(f"{path}: line {number} is no topic with a payload in hexadecimal digits") from None
    return messages


class Published(NamedTuple):
    """Messages of a stream beside its truth, from the wall clock's tick `begin` on.

    Attributes:
        states, segments: (n,) as read, -1 where there is no state, or no truth at all.
        symbols: (n,), -1 where none was heard.
        counts: of the device's windows, by name and index.
        releases: of the gateway, by entry.
    """

    policy: Policy
    begin: int
    states: Ints
    segments: Ints
    symbols: Ints
    counts: dict[tuple[str, int], WindowFrame]
    releases: dict[int, ReleaseFrame]

    @classmethod
    def read(cls, policy: Policy, messages: Iterable[Message], truth: Truth | None, *, loop: bool) -> Published:
        """Read messages; with `loop` the ticks of the truth begin anew after the last."""
        frames: list[SymbolFrame] = []
        windows: list[WindowFrame] = []
        release_frames: list[ReleaseFrame] = []
        names = (policy.fleet, policy.device, policy.stream)
        for topic, payload in messages:
            try:
                if topic == topic_of("symbols", *names):
                    frames.append(SymbolFrame.decode(payload))
                elif topic == topic_of("window", *names):
                    windows.append(WindowFrame.decode(payload))
                elif _is_release(topic, policy.fleet):
                    release_frames.append(ReleaseFrame.decode(payload))
            except FrameError as error:
                raise FuguError(f"{topic}: {error}") from None
        frames = [frame for frame in frames if frame.policy_version == policy.version]
        counts = {(frame.window, frame.index): frame for frame in windows if frame.policy_version == policy.version}
        releases = {release.entry: release for release in release_frames if release.stream == policy.stream}
        all_frames: list[SymbolFrame | WindowFrame] = [*frames, *counts.values()]
        begin = min((frame.first - frame.shift for frame in all_frames), default=0)
        end = max((frame.last - frame.shift + 1 for frame in all_frames), default=0)
        states, segments = np.full(end - begin, -1, dtype=np.int64), np.zeros(end - begin, dtype=np.int64)
        if truth is not None and all_frames:
            states, segments = truth.numbered(begin, end).at(np.arange(begin, end), loop=loop)
        return cls(policy, begin, states, segments, _symbol_array(policy, frames, end - begin, begin), counts, releases)

    def windows(self, name: str) -> list[WindowFrame]:
        """The counts of a window through which the device ran, in their order."""
        indices = sorted(index for window, index in self.counts if window == name)
        return [frame for index in indices if (frame := self.counts[name, index]).observed == frame.length]

    def draws(self, definitions: Iterable[Definition]) -> Recorded:
        """Draws by their source: as far as there is a truth those of the device, and those of releases."""
        noises: dict[str, Ints] = {}
        for definition in definitions:
            if definition.kind == "release":
                names = (definition.name, f"{definition.name}-{self.policy.device}")
                frames = [frame for frame in self.releases.values() if frame.name in names]
                noises |= release_noise(self.policy, definition, frames, self.symbols, self.begin)
            else:
                noises |= window_noise(definition, self.windows(definition.name), self.states, self.begin)
        has_symbol = self.symbols >= 0
        by_state = [self.symbols[(self.states == x) & has_symbol] for x in range(len(self.policy.discretiser.states))]
        return Recorded(by_state, noises)


def _is_release(topic: str, fleet: str) -> bool:
    try:
        parsed = parse_topic(topic)
    except TopicError:
        return False
    return parsed.kind == "release" and parsed.fleet == fleet


def _symbol_array(policy: Policy, frames: Sequence[SymbolFrame], ticks: int, begin: int) -> Ints:
    """Symbols (ticks,) from the tick `begin` of the wall clock on, -1 where there is none."""
    symbols = np.full(ticks, -1, dtype=np.int64)
    for frame in frames:
        offset = frame.first - frame.shift - begin
        symbols[offset : offset + len(frame.symbols)] = np.frombuffer(frame.symbols, dtype=np.uint8)
    if frames and policy.table is None:
        raise FuguError("the recording has symbols, and the policy none")
    if policy.table is not None and symbols.max(initial=-1) >= policy.table.symbols:
        raise FuguError(f"the recording has a symbol {symbols.max()}, and the policy's table {policy.table.symbols}")
    return symbols
