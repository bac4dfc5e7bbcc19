"""The ticks of a stream by the versions of its policy, and the histories of streams that move with it.

`fugu.contract.dating` says what follows from a history for promises. Tick numbers skip when a clock is set: distances
are numbers of ticks that were drawn.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple, Self, cast

from fugu.contract.chains import JointChains, Ratios
from fugu.contract.discretisers import Discretiser
from fugu.contract.frames import MAX_TICK
from fugu.contract.losses import CONTEXT, as_decimal
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.timeline import Drawn

__all__ = [
    "UNCHANGED",
    "History",
    "NamedVersion",
    "Noise",
    "RelatedStream",
    "Span",
    "forget_noise",
    "history_alone",
    "history_of",
    "largest_ratios",
    "log_ratio",
    "louder_intervals",
    "related_names",
]

Interval = tuple[int, int]
"""Ticks first..last."""


class Noise(NamedTuple):
    """The noise of a version, as far as it counts for other versions.

    Attributes:
        ratios: bounds on the likelihood ratios of all outputs of a tick.
        window_ratios: the same for the windows alone.
        discretiser_digest: states of another discretiser are other secrets.
    """

    ratios: Ratios
    window_ratios: Ratios
    discretiser_digest: str

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the noise of a policy."""
        return cls(policy.outputs.ratios, policy.window_outputs.ratios, _digest(policy.discretiser))

    def text(self) -> str:
        """Write the noise in a line, as a device keeps it."""
        return " ".join(map(str, (*self.ratios, *self.window_ratios, self.discretiser_digest)))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a line that `text` wrote. Return `None` for an empty line, which stands for unknown noise."""
        if not text:
            return None
        *ratios, digest = text.split()
        ratio_01, ratio_10, *window_ratios = map(Fraction, ratios)
        return cls((ratio_01, ratio_10), (window_ratios[0], window_ratios[1]), digest)


class Span(NamedTuple):
    """Ticks in a row that were drawn under one version of a policy.

    Attributes:
        version: 0 for ticks of which it is unknown under which version they were drawn, or whether they were.
        noise: of the version; for version 0 a bound. `None` if it is unknown.
        first: the first tick; `None` for a version that may run, without a known tick.
        last: the last tick; `None` while the span goes on.
    """

    version: int
    noise: Noise | None
    first: int | None
    last: int | None = None

    @property
    def end(self) -> int:
        """The last tick that the span may have."""
        return MAX_TICK if self.last is None else self.last

    def touches(self, intervals: Iterable[Interval]) -> bool:
        """True if the span may have a tick in one of some intervals."""
        return any(first <= self.end and (self.first or 0) <= last for first, last in intervals)


class History(NamedTuple):
    """The ticks of a stream, in order, with the versions of its policy; ticks that were not drawn are in no span.

    Attributes:
        complete: whether nothing was drawn before the first span.
        related_streams: other streams that are in the class of chains of one of its policies.
    """

    spans: tuple[Span, ...] = ()
    complete: bool = True
    related_streams: tuple[RelatedStream, ...] = ()


class RelatedStream(NamedTuple):
    """A stream that moves with another one.

    Attributes:
        name: "device/stream".
        history: of its ticks; `None` if it is unknown.
        policies: the policies that may have drawn its ticks, or may draw them.
    """

    name: str
    history: History | None
    policies: tuple[AnyPolicy, ...] = ()


UNCHANGED = History()
"""The history of a stream of which only one version is known."""


def history_alone(policy: AnyPolicy) -> History:
    """Return the history of a stream of which only the policy is known; before version 1 there was no policy."""
    names = (name for name in related_names(policy) if not name.startswith(f"{policy.device}/"))
    related_streams = tuple(RelatedStream(name, None) for name in names)
    if policy.version == 1:
        return History(related_streams=related_streams)
    noise = Noise.of(policy) if isinstance(policy, Policy) else None
    return History((Span(policy.version, noise, None),), complete=False, related_streams=related_streams)


def related_names(policy: AnyPolicy) -> tuple[str, ...]:
    """Return the other streams of a policy's class, each as "device/stream"."""
    if not isinstance(policy, Policy) or not isinstance(policy.chains, JointChains):
        return ()
    names = [_full_name(policy.device, joint_stream.name) for joint_stream in policy.chains.streams]
    return tuple(name for name in names if name != f"{policy.device}/{policy.stream}")


def _full_name(device: str, name: str) -> str:
    return name if "/" in name else f"{device}/{name}"


class NamedVersion(NamedTuple):
    """The version that a device names as its newest, and its first known tick under it; `None` if no tick is known."""

    version: int
    first: int | None


def history_of(
    drawn_rows: Iterable[Drawn],
    noises: Mapping[int, Noise | None],
    named_version: NamedVersion | None = None,
    *,
    may_go_back: bool = True,
    may_drop: bool = False,
) -> History:
    """Build the history of a stream from its intervals, and from the version that its device names.

    `noises` has the noise of every version that may have run; of other versions nothing is known. A device that
    `may_go_back` to an earlier version may have run a later one in any gap. If it `may_drop` frames, others may have
    received frames of the ticks begin..first-1 of an interval.
    """

    def gap_of(version: int, last: int, next_version: int, begin: int | None) -> list[Span]:
        """Return the span of the ticks after `last` and before `begin`, or none if it adds nothing to them."""
        noise = _noise_between(version, next_version, noises, may_go_back=may_go_back)
        is_same = version == next_version and (begin is None or noise == noises.get(version))
        says_no_more = is_same and (begin is None or noise is None or not may_drop)
        if says_no_more or (begin is not None and begin <= last + 1):
            return []
        return [Span(0, noise, last + 1, None if begin is None else begin - 1)]

    spans: list[Span] = []
    rows, version = sorted(drawn_rows), 0
    if may_drop and rows and rows[0].begin < rows[0].first:
        oldest = rows[0]
        own_noise = noises.get(oldest.version)
        other_noises = [noises[number] for number in noises if number < oldest.version or (may_go_back and own_noise)]
        if own_noise or other_noises:
            spans.append(Span(0, reduce(_larger_noise, other_noises, own_noise), oldest.begin, oldest.first - 1))
    for row in rows:
        noise = noises.get(row.version)
        first = row.first
        if version:
            previous = spans[-1]
            assert previous.last is not None
            if first <= previous.last:  # windows of two versions over the same ticks
                start, end = bisect_left(spans, first, key=attrgetter("end")), min(row.last, previous.last)
                spans[start:] = [part for span in spans[start:] for part in _shared_parts(span, first, end, noise)]
                if row.last <= previous.last:
                    continue
                first = previous.last + 1
            else:
                spans += gap_of(version, previous.last, row.version, row.first if may_drop else row.begin)
        version = row.version
        first_certain = max(first, row.first + row.absent)
        if row.absent:  # which ticks were not drawn is not known
            certain_end = max(first_certain, row.last - row.absent + 1)
            parts = [Span(0, noise, first, first_certain - 1), Span(row.version, noise, first_certain, certain_end - 1)]
            spans += [span for span in (*parts, Span(0, noise, certain_end, row.last)) if span.first <= span.last]  # type: ignore[operator]
        else:
            spans.append(Span(row.version, noise, first, row.last))
    complete = rows[0].begin == 0 if rows else named_version is None or noises.keys() <= {named_version.version}
    newest = max(rows, key=attrgetter("last", "version"), default=None)
    gap = gap_of(newest.version, newest.last, *named_version) if named_version and newest else []
    if named_version is not None and (newest is None or named_version.version != newest.version or gap):
        spans += [*gap, Span(named_version.version, noises.get(named_version.version), named_version.first)]
    elif spans:
        spans[-1] = spans[-1]._replace(last=None)
    return History(tuple(spans), complete)


def _shared_parts(span: Span, first: int, last: int, noise: Noise | None) -> Iterator[Span]:
    """Yield the parts of an ended span, where ticks first..last may have been drawn under another version's noise."""
    begin, end = span.first or 0, span.end + 1
    edges = (begin, *(max(begin, min(edge, end)) for edge in (first, last + 1)), end)
    for index, (begin, end) in enumerate(pairwise(edges)):
        if begin < end:
            part = span._replace(first=begin, last=end - 1)
            yield part._replace(version=0, noise=_larger_noise(span.noise, noise)) if index == 1 else part


def _noise_between(
    version: int, next_version: int, noises: Mapping[int, Noise | None], *, may_go_back: bool
) -> Noise | None:
    """Bound the noise of the ticks in a gap between two versions.

    Any version between them may have run. If the device may go back, later ones may have run, too, and if it went back
    over this gap, any version.
    """
    low, high = sorted((version, next_version))
    if may_go_back:
        low, high = 0 if next_version < version else low, max(noises, default=0) + 1
    noises_between = (noise for number, noise in noises.items() if low < number < high)
    return reduce(_larger_noise, noises_between, _larger_noise(noises.get(version), noises.get(next_version)))


def _larger_noise(noise: Noise | None, other_noise: Noise | None) -> Noise | None:
    """Return the larger ratios of two noises in each direction, or `None` if these are unknown or of other states."""
    if noise is None or other_noise is None or noise.discretiser_digest != other_noise.discretiser_digest:
        return None
    ratios = largest_ratios(noise.ratios, other_noise.ratios)
    window_ratios = largest_ratios(noise.window_ratios, other_noise.window_ratios)
    return Noise(ratios, window_ratios, noise.discretiser_digest)


def louder_intervals(policy: Policy, history: History) -> list[Interval]:
    """Return the ticks at which related streams may tell more than a policy's class allows, or tell of other states.

    The intervals are in order, with gaps between them. Tick numbers are the same on one device under one clock. Numbers
    of other devices may differ: if one of their streams ever told more, all ticks are returned.
    """
    names = related_names(policy)
    merged: list[Interval] = []
    louder = (_louder_intervals(policy, stream) for stream in history.related_streams if stream.name in names)
    for first, last in sorted(chain.from_iterable(louder)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _louder_intervals(policy: Policy, related: RelatedStream) -> list[Interval]:
    """Return the ticks at which a related stream may tell more than the class of a policy allows."""
    all_ticks = [(0, MAX_TICK)]
    if related.history is None:
        return all_ticks
    spans, chains = related.history.spans, cast(JointChains, policy.chains)
    (joint_stream,) = (stream for stream in chains.streams if _full_name(policy.device, stream.name) == related.name)
    peers = [peer for peer in related.policies if isinstance(peer, Policy) and peer.chains == chains]
    if not spans and related.history.complete and related.policies and not peers:
        return all_ticks  # another policy may draw that has not been heard of yet
    digests = {_digest(peer.discretiser) for peer in peers}
    intervals = [
        (_first_tick(span, spans), span.end)
        for span in spans
        if span.noise is None
        or span.noise.discretiser_digest not in digests
        or max(map(log_ratio, span.noise.ratios)) > Decimal(joint_stream.rate)
    ]
    if not related.history.complete:
        intervals.append((0, _first_tick(spans[0], ()) - 1 if spans else MAX_TICK))
    has_same_clock = related.name.startswith(f"{policy.device}/") and all(peer.clock == policy.clock for peer in peers)
    return intervals if has_same_clock or not intervals else all_ticks


def _first_tick(span: Span, spans: Sequence[Span]) -> int:
    """Return the first tick of a span, or the earliest possible one if the first is unknown."""
    if span.first is not None:
        return span.first
    ends = [previous.last for previous in spans[: spans.index(span)] if previous.last is not None] if spans else []
    return ends[-1] + 1 if ends else 0


def forget_noise(history: History, intervals: Sequence[Interval]) -> History:
    """Return a history whose noise is unknown at the ticks of some intervals, without related streams."""
    spans = [Span(0, None, first, last) for first, last in intervals]
    for span in history.spans:
        if span.first is None:
            continue
        rest_begin = span.first
        for first, last in intervals:  # keep the parts of a span between the intervals
            if rest_begin <= last and first <= span.end:
                if rest_begin < first:
                    spans.append(span._replace(first=rest_begin, last=first - 1))
                rest_begin = last + 1
        if rest_begin <= span.end:
            spans.append(span._replace(first=rest_begin))
    unplaced_spans = [span for span in history.spans if span.first is None]
    return History((*sorted(spans, key=lambda span: span.first or 0), *unplaced_spans), history.complete)


def largest_ratios(*pairs: Ratios) -> Ratios:
    """Return the largest ratio of some pairs in each direction."""
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


@lru_cache(maxsize=1024)
def log_ratio(ratio: Fraction) -> Decimal:
    """Return the logarithm of a ratio in 50 digits."""
    with localcontext(CONTEXT):
        return as_decimal(ratio).ln()


def _digest(discretiser: Discretiser) -> str:
    return hashlib.sha256(discretiser.model_dump_json().encode()).hexdigest()[:32]
