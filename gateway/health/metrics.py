"""Counters for Prometheus: plain numbers over HTTP, where somebody asks for them, and nowhere else.

No label names a device, a stream or an audience: a series that comes and goes tells of its device. What labels say is
fixed beforehand. Threads answer, and only read: no scrape can stop the gateway, nor another. Who says nothing for
5 seconds is given up on.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.errors import FuguError, Reason, cause
from fugu.contract.reports import AlarmCode, Health

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Metrics", "Reading"]

_log = logging.getLogger(__name__)
_PREFIX = "fugu_gateway_"
_PATIENCE_SECONDS = 5.0
_FRAMES = {"ticks": "", "windows": "windows_"}
"""Kinds of frames, and what the names of their counters begin with."""
_OF_FRAMES = {
    "frames_stored": ("stored", "Frames that were stored"),
    "frames_duplicate": ("duplicate", "Frames that were stored already"),
    "frames_conflicting": ("conflict", "Frames that contradict stored ones"),
}
_COUNTED = {
    "messages_received": ("received", "Messages that have arrived"),
    "messages_dropped": ("not_taken", "Messages for which the inbox had no room; their devices send them again"),
    "frames_unstored": ("not_stored", "Frames that the store did not take; their devices send them again"),
    "watermarks_published": ("committed", "Messages that tell a device what is durable"),
    "estimates_published": ("estimates", "Estimates that were published"),
    "estimates_coalesced": ("coalesced", "Estimates that newer ones have overtaken: they are in the store only"),
    "counts_published": ("counts", "Counts of windows that were published"),
    "descriptions_published": ("descriptions", "Descriptions of streams that were published"),
    "discovery_published": ("discovery", "Documents for Home Assistant that were published"),
    "releases_made": ("releases", "Releases that were charged in the ledger"),
    "releases_refused": ("releases_refused", "Windows that were not released"),
    "publications_refused": ("publish_refused", "Messages that the broker did not take"),
    "store_errors": ("store_errors", "Times that the store could not be used"),
    "ledger_errors": ("ledger_errors", "Times that the ledger could not be used"),
}


class Reading(NamedTuple):
    """Values of a scrape; `round_seconds` are since the worker has finished a round, `inbox` messages wait."""

    health: Health
    counters: Counter[str]
    connected: bool
    round_seconds: float
    inbox: int
    store_bytes: int


class Metrics:
    """Serves what `read` finds at each scrape, until `stop`. Raises FuguError without library or address."""

    def __init__(self, listen: tuple[str, int], read: Callable[[], Reading]) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError:
            raise FuguError("metrics need prometheus-client: pip install 'fugu-edge[metrics]'") from None
        self._read = read
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            served: Any = start_http_server(listen[1], listen[0], registry)
        except OSError as error:
            reason = cause(error)
            raise FuguError(f"metrics cannot be served at {listen[0]}:{listen[1]}: {reason}") from None
        self._server, self._thread = served
        patient = {"timeout": _PATIENCE_SECONDS, "get_stderr": lambda _handler: io.StringIO()}
        self._server.RequestHandlerClass = type("Patient", (self._server.RequestHandlerClass,), patient)
        self._server.handle_error = _say_failed

    def stop(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def collect(self) -> Iterator[Metric]:
        """Every number, as it is now; for the library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._read()
        health, counters = now.health, dict(now.counters)
        for name, about, value in (
            ("start_time_seconds", "When the gateway started, in Unix time", health.since),
            ("devices", "Devices that have policies", health.devices),
            ("devices_heard", "Of them, those that have sent a frame since the start", health.heard),
            ("connected", "Whether there is a connection to the broker", int(now.connected)),
            ("round_age_seconds", "Time since the worker has finished a round of work", now.round_seconds),
            ("inbox_messages", "Messages that wait for the worker", now.inbox),
            ("store_bytes", "What the store takes on the disk", now.store_bytes),
        ):
            yield GaugeMetricFamily(_PREFIX + name, about, value)
        alarms = GaugeMetricFamily(_PREFIX + "alarms", "Who or what has an alarm now, by its code", labels=["code"])
        counts = {alarm.code: max(1, len(alarm.names) + alarm.others) for alarm in health.alarms}
        named = GaugeMetricFamily(
            _PREFIX + "release_refused", "Releases with an alarm, which says why on the page", labels=["release"]
        )
        for alarm in health.alarms:
            for release in alarm.names if alarm.code is AlarmCode.RELEASE_REFUSED else ():
                named.add_metric([release], 1)
        yield named
        for code in AlarmCode:
            alarms.add_metric([code], counts.get(code, 0))
        yield alarms
        refused = CounterMetricFamily(_PREFIX + "messages_refused", "Messages that were refused", labels=["reason"])
        for reason in Reason:
            refused.add_metric([reason], counters.get(reason, 0))
        yield refused
        for name, (counter, about) in _OF_FRAMES.items():
            frames = CounterMetricFamily(_PREFIX + name, about, labels=["kind"])
            for kind, prefix in _FRAMES.items():
                frames.add_metric([kind], counters.get(prefix + counter, 0))
            yield frames
        for name, (counter, about) in _COUNTED.items():
            yield CounterMetricFamily(_PREFIX + name, about, value=counters.get(counter, 0))


def _say_failed(*_: object) -> None:
    """Say it in a line: a scraper that goes away, or sends what is no HTTP, is not an error of the gateway."""
    _log.info("a scrape of the metrics has failed: %s", cause(sys.exception()))
