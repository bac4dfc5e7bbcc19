"""Counters for Prometheus: plain numbers over HTTP.

No label names a device, a stream or an audience: a series that comes and goes would tell of its device. The values of
labels are fixed beforehand, by this module or the file of releases. Each scrape is answered by a thread that only
reads, so that it can stop neither the gateway nor another scrape. A client that sends nothing for 5 seconds is
disconnected.
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
_FRAME_KINDS = {"ticks": "", "windows": "windows_"}
"""Kinds of frames, and the prefixes of their counters."""
_FRAME_COUNTERS = {
    "frames_stored": ("stored", "Frames that were stored"),
    "frames_duplicate": ("duplicate", "Frames that were stored already"),
    "frames_conflicting": ("conflict", "Frames that contradict stored ones"),
}
_COUNTERS = {
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
    """Values of a scrape: the worker's round began `round_seconds` ago, and `inbox` messages wait."""

    health: Health
    counters: Counter[str]
    connected: bool
    round_seconds: float
    inbox: int
    store_bytes: int


class Metrics:
    """Serves the values of `read` at each scrape, until `stop`. Raises FuguError without the library or the address."""

    def __init__(self, listen: tuple[str, int], read: Callable[[], Reading]) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError:
            raise FuguError("metrics need prometheus-client: pip install 'fugu-edge[metrics]'") from None
        self._read = read
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server_and_thread: Any = start_http_server(listen[1], listen[0], registry)
        except OSError as error:
            reason = cause(error)
            raise FuguError(f"metrics cannot be served at {listen[0]}:{listen[1]}: {reason}") from None
        self._server, self._thread = server_and_thread
        handler_fields = {"timeout": _PATIENCE_SECONDS, "get_stderr": lambda _handler: io.StringIO()}
        self._server.RequestHandlerClass = type("Patient", (self._server.RequestHandlerClass,), handler_fields)
        self._server.handle_error = _log_failure

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def collect(self) -> Iterator[Metric]:
        """Yield every number as it is now; called by the library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        reading = self._read()
        health, counters = reading.health, dict(reading.counters)
        for metric_name, help_text, value in (
            ("start_time_seconds", "When the gateway started, in Unix time", health.since),
            ("devices", "Devices that have policies", health.devices),
            ("devices_heard", "Of them, those that have sent a frame since the start", health.heard),
            ("connected", "Whether there is a connection to the broker", int(reading.connected)),
            ("round_age_seconds", "Time since the worker has finished a round of work", reading.round_seconds),
            ("inbox_messages", "Messages that wait for the worker", reading.inbox),
            ("store_bytes", "What the store takes on the disk", reading.store_bytes),
        ):
            yield GaugeMetricFamily(_PREFIX + metric_name, help_text, value)
        alarms = GaugeMetricFamily(_PREFIX + "alarms", "Who or what has an alarm now, by its code", labels=["code"])
        alarm_counts = {alarm.code: max(1, len(alarm.names) + alarm.others) for alarm in health.alarms}
        release_alarms = GaugeMetricFamily(
            _PREFIX + "release_refused", "Releases with an alarm, which says why on the page", labels=["release"]
        )
        for alarm in health.alarms:
            for release in alarm.names if alarm.code is AlarmCode.RELEASE_REFUSED else ():
                release_alarms.add_metric([release], 1)
        yield release_alarms
        for code in AlarmCode:
            alarms.add_metric([code], alarm_counts.get(code, 0))
        yield alarms
        refusals = CounterMetricFamily(_PREFIX + "messages_refused", "Messages that were refused", labels=["reason"])
        for reason in Reason:
            refusals.add_metric([reason], counters.get(reason, 0))
        yield refusals
        for metric_name, (counter, help_text) in _FRAME_COUNTERS.items():
            frame_counts = CounterMetricFamily(_PREFIX + metric_name, help_text, labels=["kind"])
            for frame_kind, prefix in _FRAME_KINDS.items():
                frame_counts.add_metric([frame_kind], counters.get(prefix + counter, 0))
            yield frame_counts
        for metric_name, (counter, help_text) in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + metric_name, help_text, value=counters.get(counter, 0))


def _log_failure(*_: object) -> None:
    """Log a failed scrape in one line: a client that goes away, or sends no HTTP, is no error of the gateway."""
    _log.info("a scrape of the metrics has failed: %s", cause(sys.exception()))
