"""The part of a gateway that takes what its devices send: it says what is durable, and tells what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from fugu.contract.topics import status_topic, symbols_topic, window_topic
from fugu.mqtt import Link
from gateway.health import Monitor
from gateway.service.contradictions import Contradictions
from gateway.service.enrolled import Enrolled
from gateway.service.policies import Catalogue
from gateway.service.publisher import Publisher
from gateway.service.recorder import Recorder
from gateway.service.retention import Retention
from gateway.service.settings import GatewaySettings, SettingsError
from gateway.service.store import Store
from gateway.service.symbols.arrivals import Heard
from gateway.service.table_sender import TableSender

__all__ = ["Intake"]


class Intake:
    """Used by the gateway's worker.

    Args:
        enrolled: of a fleet with a registry.
        needed: for device and stream the first tick that a release needs which is still to be made.
        may_forget: whether that is known.

    Attributes:
        contradictions: told of every conflict.

    Raises:
        SettingsError: devices are to be stopped, and nothing is signed.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        link: Link,
        store: Store,
        catalogue: Catalogue,
        recorder: Recorder,
        monitor: Monitor,
        enrolled: Enrolled | None,
        needed: Callable[[], dict[tuple[str, str], int]],
        counters: Counter[str],
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        fleet = settings.fleet
        sealed, key = (None, None) if enrolled is None else (enrolled.sealed, enrolled.key)
        stopping = None
        if settings.on_conflict != "alarm" and (enrolled is None or (stopping := enrolled.stopping) is None):
            raise SettingsError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        self.contradictions = Contradictions(fleet, store, link, monitor, stopping)
        self._recorder = recorder
        self._may_forget = may_forget
        self._publisher = Publisher(link, fleet, store, recorder, counters, key=key)
        self._new_tables = partial(TableSender, store, catalogue, recorder, link, counters, sealed=sealed)
        self._catalogue = catalogue
        self._tables: TableSender | None = None
        self.renew()
        self._retention = Retention(settings.keep, store, catalogue, recorder, needed, settings.lag, counters)

    @staticmethod
    def topics(fleet: str, device: str = "+") -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this, of a device or of all."""
        return symbols_topic(fleet, device, "+"), window_topic(fleet, device, "+"), status_topic(fleet, device)

    @property
    def finished(self) -> bool:
        """Whether nothing is owed or under way."""
        return self._publisher.finished

    @property
    def reports_waiting(self) -> int:
        """How many frames and windows wait to be reported."""
        return self._publisher.reports_waiting

    def born(self, device: str) -> None:
        """A device has come online."""
        self._publisher.owe(device)
        if self._tables is not None:
            self._tables.born(device)

    def stored(self, heard: Iterable[Heard]) -> None:
        """Frames of streams were stored, or refused for good."""
        for one in heard:
            self._publisher.owe(one.device)
            if self._tables is not None:
                self._tables.stored(one.device, one.stream)

    def seal(self) -> None:
        """Seal what has come, at a clean end."""
        self._recorder.seal(now=True)

    def acknowledged(self, message_id: int) -> None:
        """The broker has a message."""
        self._publisher.acknowledged(message_id)

    def renew(self) -> None:
        """The catalogue may have changed: tables are sent from the first measured stream on."""
        if self._tables is not None:
            self._tables.renew()
        elif self._catalogue.measured():
            self._tables = self._new_tables()

    def connected(self, *, begun_anew: bool) -> None:
        """There is a new connection; with `begun_anew`, what was under way will not be answered."""
        self.contradictions.connected()
        if begun_anew:
            self._publisher.begin_anew()

    def pumps(self, *, idle: bool) -> tuple[Callable[[], None], ...]:
        """What is to be done in every round; each may raise what a store raises."""
        return (
            *(() if self._tables is None else (self._tables.pump,)),
            *((self.contradictions.pump,) if self.contradictions.stops else ()),
            lambda: self._publisher.pump(idle=idle),
            self._seal,
            self._forget,
        )

    def _forget(self) -> None:
        if self._may_forget():
            self._retention.pump()

    def _seal(self) -> None:
        self._recorder.seal()
