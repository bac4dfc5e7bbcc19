"""Duties of a process of a site: its connection, its places in the store, and the parts of its loop.

This module has the process that does everything; `gateway.cluster` has the processes that share the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fugu.contract.errors import FuguError
from fugu.contract.reports import Health
from fugu.contract.topics import topic_of
from fugu.mqtt import Link, Will
from gateway.config import GatewayConfig
from gateway.estimates.catalogue import Catalogue
from gateway.health.contradictions import Contradictions
from gateway.health.monitor import Monitor
from gateway.health.shared_subscriptions import SharedSubscriptions
from gateway.loop.inbox import Usage
from gateway.loop.publisher import Publisher
from gateway.loop.recorder import Recorder
from gateway.loop.retention import Retention
from gateway.parts import Loop
from gateway.parts.describe import Describer
from gateway.store.engine import Lease
from gateway.store.store import Store

if TYPE_CHECKING:
    from gateway.loop.release_part import ReleasePart
    from gateway.releases.schedule import StoreProgress

__all__ = ["NotArrangedError", "SoleProcess", "frame_topics"]


class NotArrangedError(FuguError):
    """The process cannot start yet: another number of processes shares the devices."""


class SoleProcess:
    """The duty of a site's only process: it takes frames, and does the work that a site does once.

    Attributes:
        broker: the broker, with the account of this process.
        client_id: the process's name at the broker.
        will: the message that the broker publishes when the process is gone.
        status_store: the store beside whose file the process's health is served.
        shares: whether other processes store the frames.
        resources: closes what the duty has opened beside store and parts.
    """

    shares = False

    def __init__(self, settings: GatewayConfig) -> None:
        if settings.policies is None and settings.signed is None:
            raise FuguError("no policies: give a directory of policy files, or a fleet's registry")
        self._settings = settings
        self._releasing: ReleasePart | None = None
        self.broker, self.status_store = settings.broker, settings.store
        self.client_id = f"gateway-{settings.fleet}"
        self.will: Will | None = Will(topic_of("health", settings.fleet), Health(online=False).encode())
        self.resources = ExitStack()

    def owns(self, device: str) -> bool:
        """Return whether the process has to know a device."""
        return True

    def store(self) -> Store:
        """Open the store, with this process's lease. Raises StoreError."""
        return Store(self._settings.store, lease=Lease())

    def details(self) -> dict[str, object]:
        """Return this process's share of the gateway's health details."""
        return {}

    def await_turn(self) -> None:
        """Raise NotArrangedError while another number of processes shares the devices."""

    def arrange(self, store: Store) -> None:
        """Take over the devices of all former processes. Raises DatabaseError."""
        store.arrange(1, lambda: self._seal(store))

    def open(self, loop: Loop, monitor: Monitor, usage: Usage) -> Recorder | None:
        """Make the parts. Return the recorder, `None` where others take frames. Raises FuguError for a wrong file."""
        loop.link.subscribe(frame_topics(self._settings.fleet))
        recorder = self._add_frame_parts(loop, monitor, usage, self._needed_ticks, lambda: True)

        def progress() -> StoreProgress:
            from gateway.releases.schedule import StoreProgress

            return StoreProgress(loop.store, recorder.coverage_of)

        self._add_site_parts(loop, progress)
        return recorder

    def _needed_ticks(self) -> dict[tuple[str, str], int]:
        return {} if self._releasing is None else self._releasing.needed_ticks()

    def _seal(self, store: Store) -> None:
        """Seal the frames of the journal, before other processes own the devices."""
        catalogue = Catalogue(self._settings.fleet)
        catalogue.retire(store.policy_documents())
        Recorder(store, catalogue, self._settings.lag, Counter()).seal(now=True)

    def _add_frame_parts(
        self,
        loop: Loop,
        monitor: Monitor,
        usage: Usage,
        needed_ticks: Callable[[], dict[tuple[str, str], int]],
        may_forget: Callable[[], bool],
    ) -> Recorder:
        """Make the parts that take frames. Return the recorder."""
        settings, catalogue, stopping = self._settings, loop.catalogue, None
        catalogue.retire(loop.store.policy_documents())
        recorder = Recorder(loop.store, catalogue, settings.lag, loop.counters, usage)
        monitor.expected_devices.update(filter(recorder.has_frames, catalogue.names()))
        if settings.on_conflict != "alarm" and (stopping := loop.registered.stopping) is None:
            raise FuguError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        contradictions = Contradictions(loop, monitor, stopping)
        recorder.conflict = contradictions.record
        if settings.signed is not None or catalogue.measured_streams():
            from gateway.parts.place_tables import TableSender

            loop.parts.append(TableSender(loop, recorder.points))
        if stopping is not None:
            loop.parts.append(contradictions)
        publisher = Publisher(loop, recorder)
        if settings.signed is not None or catalogue.groups():
            from gateway.loop.sums import Reports

            loop.parts.append(Reports(loop, recorder, publisher.born))
        loop.parts.extend([publisher, Retention(loop, settings, recorder, needed_ticks, may_forget)])
        return recorder

    def _add_site_parts(self, loop: Loop, progress: Callable[[], StoreProgress]) -> None:
        """Make the parts of which a site has one: descriptions, documents, Home Assistant, releases and sums."""
        settings = self._settings
        describing = Describer(loop, shared=self.shares)
        loop.parts.extend([describing, SharedSubscriptions(loop)])
        if settings.signed is not None:
            from gateway.fleet.enrolled import EnrolledDevices
            from gateway.fleet.service import FleetService

            assert isinstance(loop.registered, EnrolledDevices)
            operator = Link(settings.operator, client_id=f"operator-{settings.fleet}")
            loop.parts.append(FleetService(loop, settings.signed, operator, loop.registered))
        if settings.home_assistant or loop.store.discovered.all_components():  # documents from before are cleared
            from gateway.parts.home_assistant import HomeAssistant

            described = describing.described if settings.home_assistant else None
            home_assistant = HomeAssistant(loop, described, settings.page_url)
            loop.parts.append(home_assistant)
            describing.on_changed = home_assistant.renew
        if settings.releases is not None:
            from gateway.loop.release_part import ReleasePart

            part_fields, history = (loop, settings.releases, settings, progress()), describing.in_force.history
            self._releasing = ReleasePart(*part_fields, shared=self.shares, history=history)
            loop.parts.append(self._releasing)
        if settings.signed is not None or loop.catalogue.groups():
            from gateway.loop.sums import Sums

            loop.parts.append(Sums(loop, self._releasing))


def frame_topics(fleet: str, device: str = "+") -> tuple[str, ...]:
    """Return the topics of frames of one device, or of all devices."""
    return tuple(topic_of(kind, fleet, device, "+") for kind in ("symbols", "window", "report"))
