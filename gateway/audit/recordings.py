"""Draws that a device and a gateway have really made, taken from what was published and what is known of it.

Put on other paths, the chain that makes a class worst is attacked with the randomness of the real device. The gateway
counts symbols: where these are recorded, its noise is known without any truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fugu.attackers.mechanisms import Recorded
from fugu.chains.arrays import Ints
from fugu.contract.errors import FrameError, TopicError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import Kind, parse_topic, topic_of
from fugu.planning.own_clock import Truth
from gateway.audit.mechanism import AuditError, Definition, windows
from gateway.releases.statistics import two_valued

__all__ = ["Message", "draws_of", "frames_of", "heard_topics", "placed", "read_messages"]


_WHOLE = 1e-3
"""Largest distance of a count of symbols from a whole number, after the arithmetic of its estimate."""


def window_noise(definition: Definition, frames: Iterable[WindowFrame], states: Ints, begin: int) -> dict[str, Ints]:
    """The noise of a device's counts, of which every tick was counted and has a state, by name of the count.

    `states` are (n,) true states from the wall clock's tick `begin` on, -1 where there is none.
    """
    found: list[list[int]] = [[] for _ in definition.groups]
    for frame in sorted(frames, key=lambda one: one.index):
        low = frame.first - frame.shift - begin
        inside = states[low : low + frame.length] if low >= 0 else states[:0]
        if frame.observed != frame.length or inside.size != frame.length or (inside < 0).any():
            continue
        for own, group, count in zip(found, definition.groups, frame.counts, strict=True):
            own.append(count - int(np.isin(inside, group).sum()))
    return {name: np.array(own, np.int64) for name, own in zip(definition.names, found, strict=True) if own}


def release_noise(
    policy: Policy, definition: Definition, frames: Iterable[ReleaseFrame], symbols: Ints, begin: int
) -> dict[str, Ints]:
    """The noise of a gateway's counts of the symbols of one device, if all these symbols were heard.

    `symbols` are (n,) from the wall clock's tick `begin` on, -1 where none was heard.
    """
    found = []
    for frame in sorted(frames, key=lambda one: one.entry):
        low = frame.first - begin
        inside = symbols[low : low + frame.length] if low >= 0 else symbols[:0]
        missing = frame.length - frame.observed
        if definition.part or frame.devices != 1 or inside.size != frame.length or (inside < 0).sum() != missing:
            continue
        labels = policy.discretiser.states
        rule = None
        if policy.table is not None and frame.asked.single and definition.symbols:
            rule = two_valued(policy.table, tuple(map(labels.index, frame.states)))
        if rule is None or frame.observed == 0:
            continue
        value = frame.values[0] * frame.asked.divisor(frame.observed)
        count = (value - rule.b * frame.observed) / rule.a
        if abs(count - round(count)) < _WHOLE:
            found.append(round(count) - int(np.isin(inside, definition.groups[0]).sum()))
    return {definition.names[0]: np.array(found, np.int64)} if found else {}


Message = tuple[str, bytes]


def heard_topics(policy: PolicyHeader) -> list[str]:
    """All topics that tell of a stream, whoever they are for."""
    name = (policy.fleet, policy.device, policy.stream)
    kinds: tuple[Kind, ...] = ("symbols", "window", "estimate", "count")
    return [*(topic_of(kind, *name) for kind in kinds), topic_of("release", policy.fleet, "+", "+")]


def read_messages(path: Path) -> list[Message]:
    """Read lines of a topic, a space, and the payload in hexadecimal digits. AuditError if a line is anything else."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        topic, _, digits = line.partition(" ")
        try:
            found.append((topic, bytes.fromhex(digits)))
        except ValueError:
            raise AuditError(f"{path}: line {number} is no topic with a payload in hexadecimal digits") from None
    return found


def frames_of(policy: Policy, messages: Iterable[Message]) -> tuple[list[SymbolFrame], list[WindowFrame]]:
    """Symbols and counts of a policy's stream and version. Raises AuditError if a payload is no frame."""
    name = (policy.fleet, policy.device, policy.stream)
    frames, counted = [], []
    for topic, payload in messages:
        try:
            if topic == topic_of("symbols", *name):
                frames.append(SymbolFrame.decode(payload))
            elif topic == topic_of("window", *name):
                counted.append(WindowFrame.decode(payload))
        except FrameError as error:
            raise AuditError(f"{topic}: {error}") from None
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
            raise AuditError(f"{topic}: {error}") from None
    return list(found.values())


def placed(policy: Policy, frames: Sequence[SymbolFrame], ticks: int, begin: int) -> Ints:
    """Symbols (ticks,) from the tick `begin` of the wall clock on, -1 where there is none."""
    if policy.table is None:
        raise AuditError("the recording has symbols, and the policy none")
    symbols = np.full(ticks, -1, dtype=np.int64)
    for frame in frames:
        at = frame.first - frame.shift - begin
        drawn = np.frombuffer(frame.symbols, dtype=np.uint8)[: max(0, ticks - at)]
        symbols[at : at + drawn.size] = drawn
    if symbols.max() >= policy.table.symbols:
        raise AuditError(f"the recording has a symbol {symbols.max()}, and the policy's table {policy.table.symbols}")
    return symbols


def draws_of(
    policy: Policy,
    messages: Iterable[Message],
    made: Sequence[Definition],
    truth: Truth | None,
    *,
    loop: bool,
) -> tuple[Recorded, Ints]:
    """Draws by their source, and symbols (n,) from the first tick on that anything is about."""
    heard = list(messages)
    frames, counted = frames_of(policy, heard)
    releases = _releases(policy, heard)
    every: list[SymbolFrame | WindowFrame] = [*frames, *counted]
    spans = [(frame.first - frame.shift, frame.last - frame.shift + 1) for frame in every]
    begin, end = min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)
    states = np.full(end - begin, -1, dtype=np.int64)
    if truth is not None:
        states, _ = truth.numbered(begin, end).at(np.arange(begin, end), loop=loop)
    symbols = placed(policy, frames, states.size, begin) if frames else np.full_like(states, -1)
    noises: dict[str, Ints] = {}
    if truth is not None:
        for one in windows(policy):
            mine = {frame.index: frame for frame in counted if frame.window == one.name}
            noises |= window_noise(one, mine.values(), states, begin)
    for one in made:
        called = (one.name, f"{one.name}-{policy.device}")
        mine_too = [frame for frame in releases if frame.name in called]
        noises |= release_noise(policy, one, mine_too, symbols, begin)
    by_state = [symbols[(states == x) & (symbols >= 0)] for x in range(len(policy.discretiser.states))]
    return Recorded(by_state, noises), symbols
