"""Counters for Prometheus: plain numbers over HTTP, where somebody asks for them, and nowhere else.

No label names a device, a stream or an audience: a series that comes and goes tells of its device. What labels say is
fixed beforehand. Threads answer a few requests at a time, and only read: no scrape can stop the gateway, nor another.
"""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from fugu.contract.errors import FuguError, Reason, cause
from fugu.contract.reports import AlarmCode, Health

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Metrics", "Reading"]

_log = logging.getLogger(__name__)
_PREFIX = "fugu_gateway_"
_PATIENCE_SECONDS = 5.0
_MOST_SCRAPES = 16
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


class MetricsError(FuguError):
    """Metrics cannot be served."""


class Reading(NamedTuple):
    """Values of a scrape; `round_seconds` are since the worker has finished a round, `inbox` messages wait."""

    health: Health
    counters: Counter[str]
    connected: bool
    round_seconds: float
    inbox: int
    store_bytes: int


class Metrics:
    """Serves what `read` finds at each scrape, in its own thread. Raises MetricsError without library or address."""

    def __init__(self, listen: tuple[str, int], read: Callable[[], Reading]) -> None:
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
        except ModuleNotFoundError:
            raise MetricsError("metrics need prometheus-client: pip install 'fugu-edge[metrics]'") from None
        self._read = read
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server = _Server(listen)
        except OSError as error:
            reason = cause(error)
            raise MetricsError(f"metrics cannot be served at {listen[0]}:{listen[1]}: {reason}") from None
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="gateway-metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more."""
        if self._thread.is_alive():
            self._server.shutdown()
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
        found = {alarm.code: max(1, len(alarm.names) + alarm.others) for alarm in health.alarms}
        named = GaugeMetricFamily(
            _PREFIX + "release_refused", "Releases with an alarm, which says why on the page", labels=["release"]
        )
        for alarm in health.alarms:
            for release in alarm.names if alarm.code is AlarmCode.RELEASE_REFUSED else ():
                named.add_metric([release], 1)
        yield named
        for code in AlarmCode:
            alarms.add_metric([code], found.get(code, 0))
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


class _Handler(WSGIRequestHandler):
    """One request of somebody who may be slow, and who is not written down."""

    timeout = _PATIENCE_SECONDS

    def log_message(self, *_: Any) -> None:
        """Nothing: the log is for what goes wrong."""

    def get_stderr(self) -> io.StringIO:
        """Nowhere: tracebacks of whoever stops reading."""
        return io.StringIO()


class _Server(ThreadingMixIn, WSGIServer):
    """Listens, and asks no name server who it is. A scrape that takes long, or the oldest of too many, is ended."""

    daemon_threads = True

    def __init__(self, listen: tuple[str, int]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        super().__init__(listen, _Handler)

    def server_bind(self) -> None:
        """Take the address."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        self._give_up(_MOST_SCRAPES - 1)
        with self._lock:
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Look now and then whether somebody is slow."""
        self._give_up(_MOST_SCRAPES)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection whose answer was sent, or that has ended."""
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)

    def _give_up(self, most: int) -> None:
        """End what began long ago, and the oldest beyond so many; its thread finds that it has, and closes it."""
        with self._lock:
            begun = time.monotonic() - _PATIENCE_SECONDS
            for request, since in list(self._open.items()):
                if since < begun or len(self._open) > most:
                    del self._open[request]
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """A line; a scraper that goes away, or sends what is no HTTP, is not an error of the gateway."""
        _log.info("a scrape of the metrics has failed: %s", cause(sys.exception()))
