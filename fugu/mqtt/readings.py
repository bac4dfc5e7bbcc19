"""Typed readings for subscribers, and their decoder.

Times are in UTC. Times and names of a device's own releases come from its stream's description. They are `None` where
the description does not cover the policy version that made the release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fugu.contract.descriptions import DescribedVersion, Description
from fugu.contract.errors import FrameError, FuguError, Reason, TopicError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Point
from fugu.contract.reports import Estimate, ReleaseFrame, WindowCount, decode_estimate
from fugu.contract.topics import Topic, parse_topic

__all__ = [
    "CountReading",
    "Decoder",
    "DescriptionReading",
    "Descriptions",
    "EstimateReading",
    "PointReading",
    "Reading",
    "ReleaseReading",
    "SymbolReading",
    "WindowReading",
    "symbol_states",
]


class SymbolReading(NamedTuple):
    """One randomised symbol. It is not the state: on its own it says little of the state, by design.

    Tick numbers are `shift` ahead of the wall clock. `label` is the name of the state with the symbol's number, where
    there are as many symbols as states. The symbol is randomised, and so is its label.
    """

    device: str
    stream: str
    tick: int
    symbol: int
    shift: int = 0
    time: datetime | None = None
    label: str | None = None


class PointReading(NamedTuple):
    """One released point of a measured stream: not the measurement, but drawn around it, in steps of the lattice.

    Latitude and longitude, in degrees, are those of the point, if the stream measures places.
    """

    device: str
    stream: str
    tick: int
    table: int
    point: Point
    shift: int = 0
    time: datetime | None = None
    latitude: float | None = None
    longitude: float | None = None


class WindowReading(NamedTuple):
    """Noisy counts of a window, as its device has released them: of all `states` together, or one count for each.

    Only the `observed` ticks of the window, at which the device ran, are counted. With noise, a count may be negative,
    or above `observed`.
    """

    device: str
    stream: str
    window: str
    first: int
    length: int
    observed: int
    counts: tuple[int, ...]
    shift: int = 0
    since: datetime | None = None
    time: datetime | None = None
    states: tuple[str, ...] | None = None


class EstimateReading(NamedTuple):
    """The gateway's estimate: of states, of a place, or of another measurement."""

    device: str
    stream: str
    estimate: Estimate


class CountReading(NamedTuple):
    """The gateway's report of a window that the device has counted: the same noisy counts, with intervals."""

    device: str
    stream: str
    window: WindowCount


class ReleaseReading(NamedTuple):
    """A noisy statistic of a window, as the gateway has released it."""

    name: str
    release: ReleaseFrame


class DescriptionReading(NamedTuple):
    """Description of a stream."""

    device: str
    stream: str
    description: Description


Reading = (
    SymbolReading | PointReading | WindowReading | EstimateReading | CountReading | ReleaseReading | DescriptionReading
)

VERSIONS = 4
"""Descriptions that are kept of a stream: frames of an older version may still come when a new one is described."""
MOST_STREAMS = 1024
MOST_BYTES = 1 << 24
"""Of all stored messages together; decoded they take several times as much."""


class _Version(NamedTuple):
    """A described version, and its message; `payload` is empty if another version's message described it as well."""

    description: DescribedVersion
    payload: bytes


class Descriptions:
    """The newest descriptions of each stream: the last to come is in force, and an empty message removes all."""

    def __init__(self) -> None:
        self._in_force: dict[tuple[str, str], Description] = {}
        self._streams: dict[tuple[str, str], dict[int, _Version]] = {}
        self._bytes = 0

    def __iter__(self) -> Iterator[Description]:
        return iter([*self._in_force.values()])

    def find(self, device: str, stream: str, version: int) -> DescribedVersion | None:
        """Return the description of a stream under a version of its policy; `None` if it is not known."""
        stored_version = self._streams.get((device, stream), {}).get(version)
        return stored_version and stored_version.description

    def store(self, topic: Topic, payload: bytes) -> Description | None:
        """Store a message on a stream's topic. Return a new description; `None` for an empty or repeated message.

        FrameError: it is no valid description, or too much is stored already. TopicError: it is another stream's.
        """
        stream_key = topic.device, topic.stream
        versions = self._streams.get(stream_key, {})
        if not payload:
            self._bytes -= _payload_bytes(versions)
            self._streams.pop(stream_key, None)
            self._in_force.pop(stream_key, None)
            return None
        if versions and [*versions.values()][-1].payload == payload:
            return None
        update = Description.decode(payload)
        if (update.fleet, update.device, update.stream) != (topic.fleet, *stream_key):
            raise TopicError(f"a description of {update.device}/{update.stream} under {topic.device}/{topic.stream}")
        other_versions = versions | {description.version: _Version(description, b"") for description in update.others}
        other_versions.pop(update.version, None)
        next_versions = other_versions | {update.version: _Version(update, payload)}
        for version in [*next_versions][:-VERSIONS]:
            del next_versions[version]
        growth_bytes = _payload_bytes(next_versions) - _payload_bytes(versions)
        if (not versions and len(self._streams) >= MOST_STREAMS) or self._bytes + growth_bytes > MOST_BYTES:
            raise FrameError("more descriptions than are remembered", Reason.WRONG_LENGTH)
        self._bytes += growth_bytes
        self._streams[stream_key] = next_versions
        self._in_force[stream_key] = update
        return update


def _payload_bytes(versions: Mapping[int, _Version]) -> int:
    return sum(len(version.payload) for version in versions.values())


_REMEMBERED = 1024


class Decoder:
    """Decodes messages into readings, each message once, and stores the descriptions of streams.

    No reading waits for a description: brokers send retained messages before live ones. `rejected` counts the messages
    that were left out, by reason.
    """

    def __init__(self, *, stream: str = "+", descriptions: bool = False) -> None:
        """`stream` selects the releases to decode, "+" for all. With `descriptions` these are readings, too."""
        self.descriptions = Descriptions()
        self.rejected: Counter[str] = Counter()
        self._stream = stream
        self._tells_descriptions = descriptions
        self._seen: dict[tuple[object, ...], int] = {}
        self._decoders: dict[str, Callable[[Topic, bytes], Iterator[Reading]]] = {
            "symbols": self._decode_symbols,
            "window": self._decode_window,
            "estimate": self._decode_estimate,
            "count": self._decode_count,
            "release": self._decode_release,
            "description": self._decode_description,
        }

    def decode(self, topic: str, payload: bytes) -> list[Reading]:
        """Return the readings in one message; none if the message is invalid, or was seen before."""
        try:
            parsed_topic = parse_topic(topic)
            if parsed_topic.kind not in self._decoders:
                raise TopicError(f"no readings come under {topic[:100]!r}")
            return list(self._decoders[parsed_topic.kind](parsed_topic, payload))
        except FuguError as error:
            self.rejected[error.reason] += 1
            return []

    def _decode_symbols(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        if payload[:1] == bytes([MeasureFrame.SCHEMA]):
            yield from self._decode_points(topic, payload)
            return
        frame = SymbolFrame.decode(payload)
        if not self._is_new((frame.policy_version, frame.shift, frame.symbols), topic, frame.first):
            return
        description = self.descriptions.find(topic.device, topic.stream, frame.policy_version)
        times = _tick_times(description, frame.first, len(frame.symbols), frame.shift)
        labels = dict(enumerate(symbol_states(description)))
        for tick, (symbol, time) in enumerate(zip(frame.symbols, times, strict=True), frame.first):
            yield SymbolReading(topic.device, topic.stream, tick, symbol, frame.shift, time, labels.get(symbol))

    def _decode_points(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        frame = MeasureFrame.decode(payload)
        if not self._is_new((frame.policy_version, frame.shift, repr(frame.released)), topic, frame.first):
            return
        description = self.descriptions.find(topic.device, topic.stream, frame.policy_version)
        grid = description.place if description is not None and frame.dimensions == 2 else None
        times = _tick_times(description, frame.first, len(frame.released), frame.shift)
        for tick, (release, time) in enumerate(zip(frame.released, times, strict=True), frame.first):
            position = (None, None) if grid is None else grid.position(*release.point)
            yield PointReading(topic.device, topic.stream, tick, *release, frame.shift, time, *position)

    def _decode_window(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        frame = WindowFrame.decode(payload)
        window_content = (frame.policy_version, frame.shift, frame.observed, repr(frame.counts))
        if not self._is_new(window_content, topic, frame.window, frame.index):
            return
        description = self.descriptions.find(topic.device, topic.stream, frame.policy_version)
        begin_time, end_time = _tick_times(description, frame.first, 2, frame.shift, frame.length)
        states = _counted_states(description, frame.window, len(frame.counts))
        window_fields = (frame.window, frame.first, frame.length, frame.observed, frame.counts, frame.shift)
        yield WindowReading(topic.device, topic.stream, *window_fields, begin_time, end_time, states)

    def _decode_estimate(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        estimate = decode_estimate(payload)
        if self._is_new(payload, topic):
            yield EstimateReading(topic.device, topic.stream, estimate)

    def _decode_count(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        window_count = WindowCount.decode(payload)
        if self._is_new(payload, topic, window_count.window):
            yield CountReading(topic.device, topic.stream, window_count)

    def _decode_release(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        release = ReleaseFrame.decode(payload)
        if (release.audience, release.name) != (topic.audience, topic.name):
            raise TopicError(f"release {release.name} for {release.audience} under another's topic")
        if self._stream in ("+", release.stream) and self._is_new(payload, topic, release.entry):
            yield ReleaseReading(release.name, release)

    def _decode_description(self, topic: Topic, payload: bytes) -> Iterator[Reading]:
        description = self.descriptions.store(topic, payload)
        if description is not None and self._tells_descriptions:
            yield DescriptionReading(topic.device, topic.stream, description)

    def _is_new(self, message: object, *message_key: object) -> bool:
        """Remember a message under its key; True if the message is new, or differs from the one before.

        Frames that only account for more lost ticks are not new.
        """
        message_hash = hash(message)
        if self._seen.pop(message_key, None) == message_hash:
            self._seen[message_key] = message_hash
            return False
        self._seen[message_key] = message_hash
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True


def symbol_states(version: DescribedVersion | None) -> tuple[str, ...]:
    """Return the names of states in the order of symbols; () unless there are as many symbols as states."""
    if version is None or version.table is None or len(version.table[0]) + 1 != len(version.states):
        return ()
    return version.states


def _tick_times(
    version: DescribedVersion | None, first_tick: int, tick_count: int, shift: int, tick_stride: int = 1
) -> Sequence[datetime] | Sequence[None]:
    """Return the times of ticks from `first_tick` on, every `tick_stride` ticks; `None` for each if unknown."""
    if version is None:
        return [None] * tick_count
    begin_time = version.time_of(first_tick, shift)
    version.time_of(first_tick + (tick_count - 1) * tick_stride, shift)  # refuses what lies after the year 9999
    stride_time = timedelta(microseconds=version.period_us * tick_stride)
    return [begin_time + index * stride_time for index in range(tick_count)]


def _counted_states(version: DescribedVersion | None, window: str, count_total: int) -> tuple[str, ...] | None:
    """Return the names of the states that a window counts; `None` unless its description has as many counts."""
    description = next((match for match in version.windows if match.name == window), None) if version else None
    if version is None or description is None:
        return None
    names = description.count_names(version.states)
    if description.query.is_single and count_total == 1:
        return sum(description.groups(version.states), ())
    return names if count_total == len(names) else None
