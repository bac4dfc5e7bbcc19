"""Attacks on a stream: on all that each audience may read of it as it is configured, and on what was really published.

What was published is attacked if its truth is known: on the path that was read, every kind of output by itself and the
kinds together; and its draws, put on the paths of the chain that makes the class worst, for each audience.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contract.chains import BinaryChains, FiniteChains, JointChains
from contract.errors import FrameError, FuguError, TopicError
from contract.frames import SymbolFrame, decode_symbols
from contract.policy import Policy
from contract.release_frames import ReleaseFrame, decode_release
from contract.topics import count_topic, estimate_topic, parse_topic, release_topic, symbols_topic, window_topic
from contract.window_frames import WindowFrame, decode_window
from contract.windows import Window
from gateway.attack import CountOutputs, Outputs, SymbolOutputs
from gateway.audit.access import Audience, Listed, may_read
from gateway.audit.audiences import Attacked, attack_audiences
from gateway.audit.findings import Finding
from gateway.audit.recorded import Recorded, law_problems, release_noise, window_noise
from gateway.audit.told import Definition, released, windows
from gateway.chain.arrays import Ints
from gateway.planning.attacked import Trial, tried
from gateway.planning.readings import Readings
from gateway.planning.recording import states_of
from gateway.privacy.class_watch import Bets, why_off
from gateway.service.release_config import ReleaseConfig

__all__ = [
    "StreamAudit",
    "StreamError",
    "attack_stream",
    "audit_stream",
    "heard_topics",
    "not_listed",
    "read_messages",
    "refuted",
]

Message = tuple[str, bytes]
_FALSE_ALARMS = 1e-3
"""How probable it is that symbols of the class are said to be of none."""


class StreamAudit(NamedTuple):
    """What was found of a stream.

    Attributes:
        audiences: attacks on the mechanism as it is configured, and on recorded draws.
        trials: attacks on what was published, on the path that was read; none without truth.
        findings: what is wrong.
        left: in words, what is released and not attacked.
    """

    audiences: tuple[Attacked, ...]
    trials: tuple[Trial, ...]
    findings: tuple[Finding, ...]
    left: tuple[str, ...]


def audit_stream(
    policy: Policy,
    audiences: Sequence[Audience],
    config: ReleaseConfig | None = None,
    *,
    messages: Sequence[Message] | None = None,
    readings: Readings | None = None,
    loop: bool = False,
    known: int | None = None,
    trials: int = 20_000,
    seed: int = 1,
) -> StreamAudit:
    """Attack a stream.

    Without messages the mechanism is attacked as it is configured, with simulated draws. With messages, what they show
    is also held against the configuration: whether noise is of its scale, as far as what was counted is known, and
    whether symbols can come from the class. With the truth, too, what was published is attacked.

    Args:
        audiences: who may read what: `gateway.audit.access`.
        config: of the gateway's releases.
        messages: topics and payloads that were heard.
        readings: the truth, as for `attack_stream`.
        loop, known: as for `attack_stream`.
        trials: simulated, of each of two states.
        seed: of all that is simulated.

    Raises:
        FuguError: a payload is no frame, nothing can be attacked, or the class of chains is of several streams.
    """
    made, left = released(policy, config)
    definitions = (*windows(policy), *made)
    if isinstance(policy.chains, JointChains):
        audiences, left = (
            (),
            (*left, "what audiences may read: its chains are of several streams, or of a higher order"),
        )
    found = list(attack_audiences(policy, audiences, definitions, seed=seed, trials=trials))
    findings = [_refutation(one) for one in found if one.refuted]
    attacked: tuple[Trial, ...] = ()
    if messages is not None:
        drawn, symbols = _draws(policy, messages, made, readings, loop=loop)
        findings += [Finding("noise-not-as-stated", about) for about in law_problems(drawn.noises, definitions)]
        findings += _class_findings(policy, symbols)
        if readings is not None:
            attacked = tuple(attack_stream(policy, messages, readings, loop=loop, known=known))
            again = attack_audiences(policy, audiences, definitions, seed=seed + 1, trials=10**9, recorded=drawn)
            recorded = list(again)
            findings += [_refutation(one) for one in recorded if one.refuted]
            findings += [_published(one) for one in refuted(attacked)]
            found += recorded
    return StreamAudit(tuple(found), attacked, tuple(findings), left)


def heard_topics(policy: Policy) -> list[str]:
    """All topics that tell of a stream, whoever they are for."""
    name = (policy.fleet, policy.device, policy.stream)
    own = [make(*name) for make in (symbols_topic, window_topic, estimate_topic, count_topic)]
    return [*own, release_topic(policy.fleet, "+", "+")]


def not_listed(known: Listed, account: str, messages: Iterable[Message]) -> list[Finding]:
    """What a broker has delivered to an account that its access list does not grant."""
    topics = dict.fromkeys(topic for topic, _ in messages)
    return [
        Finding("delivered-not-listed", f"{account or 'whoever gives no name'} was told {topic}, which is not granted")
        for topic in topics
        if not may_read(known.rules, account, topic)
    ]


def _refutation(one: Attacked) -> Finding:
    least = max(one.least, one.extended or 0.0)
    how = "" if one.least > one.promised else ", if draws are independent"
    promised = f"epsilon {one.promised:.6g} is promised" if one.promised else "nothing should be told"
    about = f"{one.audience}: {one.heard} ({one.draws} draws): {promised}, and it is at least {least:.4g}{how}"
    return Finding("epsilon-refuted", about)


def _published(trial: Trial) -> Finding:
    least = max(one.epsilon_low for one in trial.attacks)
    about = f"{trial.released}: epsilon {trial.epsilon:g} is promised, and it is at least {least:.3g}"
    return Finding("epsilon-refuted", about)


def _draws(
    policy: Policy,
    messages: Iterable[Message],
    made: Sequence[Definition],
    readings: Readings | None,
    *,
    loop: bool,
) -> tuple[Recorded, Ints]:
    """What was drawn, by what it was drawn of, and symbols (n,) from the first tick on that anything is about."""
    kept = list(messages)
    frames, counted = _frames(policy, kept)
    releases = _releases(policy, kept)
    every: list[SymbolFrame | WindowFrame] = [*frames, *counted]
    spans = [(frame.first - frame.shift, frame.last - frame.shift + 1) for frame in every]
    begin, end = min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)
    states = np.full(end - begin, -1, dtype=np.int64)
    if readings is not None:
        rows = states_of(policy.discretiser, readings.values, readings.segments)
        ticks = np.arange(begin, end)
        states = np.where(loop | (ticks < rows.size), rows[ticks % rows.size], -1)
    symbols = _placed(policy, frames, states.size, begin) if frames else np.full_like(states, -1)
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


def _releases(policy: Policy, messages: Iterable[Message]) -> list[ReleaseFrame]:
    found: dict[int, ReleaseFrame] = {}
    for topic, payload in messages:
        try:
            parsed = parse_topic(topic)
            if parsed.kind == "release" and parsed.fleet == policy.fleet:
                frame = decode_release(payload)
                if frame.stream == policy.stream:
                    found[frame.entry] = frame
        except TopicError:
            continue
        except FrameError as error:
            raise StreamError(f"{topic}: {error}") from None
    return list(found.values())


def _class_findings(policy: Policy, symbols: Ints) -> list[Finding]:
    """Whether symbols can come from the declared class."""
    chains = policy.chains
    watched = isinstance(chains, BinaryChains | FiniteChains) and not why_off(chains, policy.guarantee.adversary)
    if not watched or policy.table is None or not (symbols >= 0).any():
        return []
    assert isinstance(chains, BinaryChains | FiniteChains)
    weights = np.array(policy.table.weights(), dtype=np.float64)
    bets = Bets(chains, weights / weights.sum(axis=1, keepdims=True))
    bets.invest(1.0)
    bets.observe(symbols)
    if bets.most * _FALSE_ALARMS < 1:
        return []
    return [
        Finding("class-contradicted", f"the symbols are not of the class: a fair bet on it has lost {bets.most:.3g}")
    ]


class StreamError(FuguError):
    """A recording of a stream cannot be read, or has nothing to attack."""


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


def attack_stream(
    policy: Policy, messages: Iterable[Message], readings: Readings, *, loop: bool, known: int | None = None
) -> list[Trial]:
    """Attack what was published of a stream under a policy.

    Args:
        messages: topics and payloads; those of other streams and of other versions of the policy are left out.
        readings: the truth: the row of a tick's number, without the clock's shift, is its reading.
        loop: whether the rows begin anew after the last.
        known: attackers are given the true state of every so many ticks; none: no state.

    Returns:
        A trial for symbols, for each window whose counts do not overlap, and for each of these beside the symbols.

    Raises:
        StreamError: a payload is no frame, or nothing can be attacked.
    """
    frames, counted = _frames(policy, messages)
    rows = states_of(policy.discretiser, readings.values, readings.segments)
    every: list[SymbolFrame | WindowFrame] = [*frames, *counted]
    ends = [(frame.first - frame.shift, frame.last - frame.shift + 1) for frame in every]
    if not ends:
        raise StreamError("nothing in the recording is of the policy's stream and version")
    begin = min(low for low, _ in ends)
    end = max(high for _, high in ends)
    if not loop:
        end = min(end, rows.size)
    if end <= begin:
        raise StreamError(f"the ticks from {begin} on have no row in {readings.source}: does it --loop?")
    places = np.arange(begin, end) % rows.size
    states, segments = rows[places], readings.segments[places] + np.arange(begin, end) // rows.size * rows.size
    if not (states >= 0).any():
        raise StreamError(f"{readings.source}: no reading has a state under this policy")
    seen = _symbols(policy, frames, states, begin) if frames else None
    trials = []
    for what, noise, epsilon, outputs in _outputs(policy, seen, counted, states, begin):
        found = tried(states, segments, outputs, epsilon, known)
        named = f"{len(policy.discretiser.states)} states of the policy"
        trials.append(Trial(readings.source, named, "what was published", what, noise, epsilon, *found))
    if not trials:
        raise StreamError("the recording has no symbols, and no whole windows that do not overlap")
    return trials


def refuted(trials: Iterable[Trial]) -> list[Trial]:
    """Those that no epsilon as small as the promised one explains, at the confidence of the attacks."""
    return [trial for trial in trials if max(one.epsilon_low for one in trial.attacks) > trial.epsilon]


def _frames(policy: Policy, messages: Iterable[Message]) -> tuple[list[SymbolFrame], list[WindowFrame]]:
    name = (policy.fleet, policy.device, policy.stream)
    frames, counted = [], []
    for topic, payload in messages:
        try:
            if topic == symbols_topic(*name):
                frames.append(decode_symbols(payload))
            elif topic == window_topic(*name):
                counted.append(decode_window(payload))
        except FrameError as error:
            raise StreamError(f"{topic}: {error}") from None
    version = policy.version
    return [f for f in frames if f.policy_version == version], [f for f in counted if f.policy_version == version]


def _symbols(policy: Policy, frames: Sequence[SymbolFrame], states: Ints, begin: int) -> SymbolOutputs:
    """The symbols of all ticks that have a state."""
    symbols = _placed(policy, frames, states.size, begin)
    assert policy.table is not None
    weights = np.array(policy.table.weights(), dtype=np.float64)
    return SymbolOutputs(np.where(states >= 0, symbols, -1), weights / weights.sum(axis=1, keepdims=True))


def _placed(policy: Policy, frames: Sequence[SymbolFrame], ticks: int, begin: int) -> Ints:
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


def _outputs(
    policy: Policy, seen: SymbolOutputs | None, counted: Sequence[WindowFrame], states: Ints, begin: int
) -> list[tuple[str, float, float, Outputs]]:
    """What is attacked: its name, its noise, its epsilon, and the outputs."""
    found: list[tuple[str, float, float, Outputs]] = []
    if seen is not None:
        square = seen.emission.shape[0] == seen.emission.shape[1]
        noise = float(1 - seen.emission.diagonal().min()) if square else math.nan
        found.append(("symbols", noise, policy.guarantee.epsilon, seen))
    for window in policy.windows:
        mine = {frame.index: frame for frame in counted if frame.window == window.name}
        alone = _counts(policy, window, [mine[index] for index in sorted(mine)], states, begin)
        if alone is None or policy.windows_alone is None:
            continue
        scale = float(Fraction(window.scale))
        found.append((f"window {window.name}", scale, policy.windows_alone.epsilon, alone))
        if seen is not None:
            both = CountOutputs(**{**vars(alone), "beside": seen})
            found.append((f"symbols, {window.name}", scale, policy.guarantee.epsilon, both))
    return found


def _counts(
    policy: Policy, window: Window, frames: Sequence[WindowFrame], states: Ints, begin: int
) -> CountOutputs | None:
    """The counts of the whole windows of a definition, if these do not overlap."""
    names = policy.discretiser.states
    groups = tuple((x,) for x in range(len(names))) if window.states == "histogram" else (window.counted(names),)
    whole = [
        frame for frame in frames if frame.observed == frame.length and frame.last - frame.shift - begin < states.size
    ]
    if window.stride < window.length or not whole:
        return None
    return CountOutputs(
        np.array([frame.counts for frame in whole], dtype=np.int64),
        np.array([frame.first - frame.shift - begin for frame in whole], dtype=np.int64),
        window.length,
        Fraction(window.scale),
        groups,
        int(states.size),
        len(names),
        (states >= 0).astype(np.int64),
    )
