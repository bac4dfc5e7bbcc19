"""A private stream as a Python iterator: subscribe, decode, drop what was seen, hand out typed readings."""

from __future__ import annotations

import queue
import secrets
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from contract.errors import FuguError, TopicError
from contract.frames import decode_estimate, decode_symbols
from contract.measure_frames import MEASURE, MEASURE_ESTIMATE, Point, decode_measure, decode_measure_estimate
from contract.release_frames import ReleaseFrame, decode_release
from contract.topics import estimate_topic, parse_topic, release_topic, symbols_topic, window_topic
from contract.window_frames import decode_window, sequence_name
from mqtt_link.link import Broker, Link

__all__ = [
    "EstimateReading",
    "MeasureEstimateReading",
    "MeasureReading",
    "ReleaseReading",
    "Subscription",
    "SymbolReading",
    "WindowReading",
    "estimate_readings",
]

_POLL_SECONDS = 0.2
_REMEMBERED_FRAMES = 1024
_MAX_PAYLOAD = 11 << 20
"""The largest message: an estimate of 8,192 ticks in 255 states."""
_MOST_WAITING_BYTES = 1 << 26


class SymbolReading(NamedTuple):
    """One randomised symbol.

    Attributes:
        shift: by how many ticks the numbers are ahead of the wall clock: it happened at wall tick tick - shift.
    """

    device: str
    stream: str
    tick: int
    symbol: int
    shift: int = 0


class EstimateReading(NamedTuple):
    """The gateway's belief about one tick.

    Attributes:
        shift: as for symbols.
    """

    device: str
    stream: str
    tick: int
    probabilities: tuple[float, ...]
    most_likely: int
    shift: int = 0


class MeasureReading(NamedTuple):
    """One released point of a measured stream, in steps of its lattice, and the number of the table it is from.

    Attributes:
        shift: as for symbols.
    """

    device: str
    stream: str
    tick: int
    table: int
    point: Point
    shift: int = 0


class MeasureEstimateReading(NamedTuple):
    """The gateway's estimate of a measurement at one tick.

    Attributes:
        mean: d numbers, in the policy's unit.
        covariance: the entries on and above the diagonal of the covariance, row by row.
        protection: the least number of possible states that any one is hidden among; 0 if nothing was released.
        lag: ticks of later points that it has seen; each tick is told with and without.
        shift: as for symbols.
    """

    device: str
    stream: str
    tick: int
    mean: tuple[float, ...]
    covariance: tuple[float, ...]
    protection: int
    lag: int
    shift: int = 0


class ReleaseReading(NamedTuple):
    """A noisy statistic of a window, and all that is known about it."""

    name: str
    release: ReleaseFrame


class WindowReading(NamedTuple):
    """Noisy counts of a window, as its device has released them.

    Attributes:
        first, length: the window's ticks.
        observed: so many of them are counted; the device was not running at the others.
        counts: ticks in the counted states, or in each state, with noise: one may be negative, or above `observed`.
        shift: as for symbols.
    """

    device: str
    stream: str
    window: str
    first: int
    length: int
    observed: int
    counts: tuple[int, ...]
    shift: int = 0


Reading = SymbolReading | EstimateReading | ReleaseReading | WindowReading | MeasureReading | MeasureEstimateReading


def estimate_readings(device: str, stream: str, payload: bytes) -> list[EstimateReading] | list[MeasureEstimateReading]:
    """The readings in a message about a stream of a device.

    Raises:
        FuguError: it is no valid estimate.
    """
    if payload[:1] == bytes([MEASURE_ESTIMATE]):
        measured = decode_measure_estimate(payload)
        rows = zip(measured.means, measured.covariances, measured.protection, strict=True)
        first, lag = measured.first, measured.lag
        seen = (lag, measured.shift)
        return [MeasureEstimateReading(device, stream, tick, *row, *seen) for tick, row in enumerate(rows, first)]
    estimate = decode_estimate(payload)
    return [
        EstimateReading(device, stream, estimate.first + i, row, estimate.most_likely[i], estimate.shift)
        for i, row in enumerate(estimate.probabilities)
    ]


class Subscription:
    """Iterate over the readings of a fleet's streams, as they arrive.

    Frames that arrive twice are handed out once; symbols of a tick on which the device was not running are left out.
    Of releases, those that the account may read come; the newest of each name at the beginning, because the broker
    keeps it.
    Payloads that are not valid are counted in `rejected`, by reason, and otherwise ignored; so are those for which
    64 MB of others wait to be iterated over (`not_taken`).

        with Subscription(Broker("127.0.0.1", 1883), fleet="home") as readings:
            for reading in readings:
                print(reading)

    Args:
        device, stream: names, or "+" for all.
        symbols, estimates, releases, windows: which of them to subscribe to; released points count as symbols, and
            their estimates as estimates; releases are not a device's, and come only
            if all devices are wanted.
        timeout: end the iteration after this many seconds without a reading; none waits for ever.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        fleet: str,
        device: str = "+",
        stream: str = "+",
        symbols: bool = True,
        estimates: bool = True,
        releases: bool = True,
        windows: bool = True,
        timeout: float | None = None,
    ) -> None:
        topics = []
        if symbols:
            topics.append(symbols_topic(fleet, device, stream))
        if estimates:
            topics.append(estimate_topic(fleet, device, stream))
        if windows:
            topics.append(window_topic(fleet, device, stream))
        if releases and device == "+":
            topics.append(release_topic(fleet, "+", "+"))
        self.rejected: Counter[str] = Counter()
        self.link = Link(
            broker,
            client_id=f"subscriber-{secrets.token_hex(6)}",
            subscriptions=tuple(topics),
            max_payload=_MAX_PAYLOAD,
            on_message=lambda topic, payload, _retained: self._delivered(topic, payload),
        )
        self._timeout = timeout
        self._stream = stream
        self._arrived: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._bytes_delivered = self._bytes_taken = 0  # each is written by one thread
        self._seen: dict[tuple[str, str, int], bytes] = {}

    def __enter__(self) -> Self:
        """Connect, in the background."""
        self.link.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self.link.stop()

    def __iter__(self) -> Iterator[Reading]:
        """Yield readings in the order of arrival."""
        waited = 0.0
        while True:
            self.link.maintain()
            try:
                topic, payload = self._arrived.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                waited += _POLL_SECONDS
                if self._timeout is not None and waited >= self._timeout:
                    return
                continue
            waited = 0.0
            self._bytes_taken += _size(topic, payload)
            yield from self.decode(topic, payload)

    def _delivered(self, topic: str, payload: bytes) -> None:
        """Keep a message for whoever iterates, unless too many wait; called in the network thread."""
        size = _size(topic, payload)
        if self._bytes_delivered + size - self._bytes_taken > _MOST_WAITING_BYTES:
            self.rejected["not_taken"] += 1
            return
        self._bytes_delivered += size
        self._arrived.put((topic, payload))

    def decode(self, topic: str, payload: bytes) -> list[Reading]:
        """The readings in one message; none if it is invalid or was seen before."""
        try:
            parsed = parse_topic(topic)
            if parsed.kind == "release":
                return self._releases(parsed.audience, parsed.release, payload)
            if parsed.kind == "window":
                return self._windows(parsed.device, parsed.stream, payload)
            if payload[:1] == bytes([MEASURE]) and parsed.kind == "symbols":
                return self._points(parsed.device, parsed.stream, payload)
            if parsed.kind == "estimate":
                return [*estimate_readings(parsed.device, parsed.stream, payload)]
            frame = decode_symbols(payload)
        except FuguError as error:
            self.rejected[error.reason] += 1
            return []
        if not self._is_new((parsed.device, parsed.stream, frame.first), frame.symbols):
            return []
        return [
            SymbolReading(parsed.device, parsed.stream, tick, symbol, frame.shift)
            for tick, symbol in enumerate(frame.symbols, frame.first)
        ]

    def _points(self, device: str, stream: str, payload: bytes) -> list[Reading]:
        frame = decode_measure(payload)
        if not self._is_new((device, stream, frame.first), payload):
            return []
        return [
            MeasureReading(device, stream, tick, *released, frame.shift)
            for tick, released in enumerate(frame.released, frame.first)
        ]

    def _releases(self, audience: str, name: str, payload: bytes) -> list[Reading]:
        release = decode_release(payload)
        if (release.audience, release.name) != (audience, name):
            raise TopicError(f"release {release.name} for {release.audience} under the topic of {name} for {audience}")
        if self._stream not in ("+", release.stream) or not self._is_new(
            (f"{audience}/{name}", "", release.entry), payload
        ):
            return []
        return [ReleaseReading(name, release)]

    def _windows(self, device: str, stream: str, payload: bytes) -> list[Reading]:
        frame = decode_window(payload)
        if not self._is_new((device, sequence_name(stream, frame.window), frame.index), payload):
            return []
        place = (frame.window, frame.first, frame.length, frame.observed)
        return [WindowReading(device, stream, *place, frame.counts, frame.shift)]

    def _is_new(self, key: tuple[str, str, int], content: bytes) -> bool:
        """Whether a frame was not seen before; remembers it."""
        if self._seen.get(key) == content:
            return False
        self._seen[key] = content
        if len(self._seen) > _REMEMBERED_FRAMES:
            del self._seen[next(iter(self._seen))]
        return True


def _size(topic: str, payload: bytes) -> int:
    """About what a message takes while it waits."""
    return 200 + len(topic) + len(payload)
