"""Duties of a process of a site: its connection, its places in the store, and the parts of its loop.

This module has the process that does everything; `gateway.cluster` has the processes that share the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import topic_of
from fugu.mqtt import Link, Will
from gateway.config import GatewayConfig
from gateway.estimates.catalogue import Catalogue
from gateway.health.contradictions import Contradictions
from gateway.health.monitor import Elsewhere, Monitor
from gateway.health.shared_subscriptions import SharedSubscriptions
from gateway.loop.inbox import Usage
from gateway.loop.publisher import Publisher
from gateway.loop.recorder import Recorder
from gateway.loop.retention import Retention
from gateway.parts import Part
from gateway.parts.describe import Describing
from gateway.store.engine import Lease
from gateway.store.store import Store

if TYPE_CHECKING:
    from gateway.fleet.enrolled import Enrolled
    from gateway.loop.release_part import Releasing
    from gateway.releases.schedule import StoreProgress

__all__ = ["Alone", "Loop", "NotArrangedError", "frame_topics"]


class NotArrangedError(FuguError):
    """The process cannot start yet: another number of processes shares the devices."""


class Loop(NamedTuple):
    """The objects that parts are made with, and the list of parts, in the order of a round.

    `enrolled` is None for a site without a fleet of signed documents. `make_monitor` makes the monitor, given the
    devices whose frames are stored.
    """

    store: Store
    link: Link
    catalogue: Catalogue
    counters: Counter[str]
    usage: Usage
    enrolled: Enrolled | None
    make_monitor: Callable[[list[str]], Monitor]
    parts: list[Part]


class Alone:
    """The duty of a site's only process: it takes frames, and does the work that a site does once.

    Attributes:
        broker: the broker, with the account of this process.
        client_id: the process's name at the broker.
        will: the message that the broker publishes when the process is gone.
        status_store: the store beside whose file the process's health is served.
        elsewhere: the other processes that it speaks for; `None` without any.
        shares: whether other processes store the frames.
        says_to: receives the process's health, in place of the topic `health`.
        resources: closes what the duty has opened beside store and parts.
    """

    shares = False

    def __init__(self, settings: GatewayConfig) -> None:
        if settings.policies is None and settings.signed is None:
            raise FuguError("no policies: give a directory of policy files, or a fleet's registry")
        self._settings = settings
        self._releasing: Releasing | None = None
        self.broker, self.status_store = settings.broker, settings.store
        self.client_id = f"gateway-{settings.fleet}"
        self.will: Will | None = Will(topic_of("health", settings.fleet), Health(online=False).encode())
        self.elsewhere: Elsewhere | None = None
        self.says_to: Callable[[Mapping[str, Any]], None] | None = None
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

    def open(self, loop: Loop) -> Recorder | None:
        """Make the parts. Return the recorder, `None` where others take frames. Raises FuguError for a wrong file."""
        loop.link.subscribe(frame_topics(self._settings.fleet))
        recorder, monitor = self._add_frame_parts(loop, self._needed_ticks, lambda: True)

        def progress() -> StoreProgress:
            from gateway.releases.schedule import StoreProgress

            return StoreProgress(loop.store, recorder.coverage_of)

        self._add_site_parts(loop, monitor, progress)
        return recorder

    def _needed_ticks(self) -> dict[tuple[str, str], int]:
        return {} if self._releasing is None else self._releasing.needed_ticks()

    def _seal(self, store: Store) -> None:
        """Seal the frames of the journal, before other processes own the devices."""
        catalogue = Catalogue(self._settings.fleet)
        catalogue.retire(store.policy_documents())
        Recorder(store, catalogue, self._settings.lag, Counter()).seal(now=True)

    def _add_frame_parts(
        self, loop: Loop, needed_ticks: Callable[[], dict[tuple[str, str], int]], may_forget: Callable[[], bool]
    ) -> tuple[Recorder, Monitor]:
        """Make the parts that take frames. Return the recorder and the monitor."""
        settings, enrolled = self._settings, loop.enrolled
        store, link, catalogue, counters = loop.store, loop.link, loop.catalogue, loop.counters
        catalogue.retire(store.policy_documents())
        recorder = Recorder(store, catalogue, settings.lag, counters, loop.usage)
        monitor = loop.make_monitor([device for device in catalogue.names() if recorder.has_frames(device)])
        table_bytes, key_of = (None, None) if enrolled is None else (enrolled.table_bytes, enrolled.key)
        stopping = None
        if settings.on_conflict != "alarm" and (enrolled is None or (stopping := enrolled.stopping) is None):
            raise FuguError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        contradictions = Contradictions(settings.fleet, store, link, monitor, stopping)
        recorder.conflict = contradictions.record
        if enrolled is not None or catalogue.measured_streams():
            from gateway.parts.place_tables import TableSender

            loop.parts.append(TableSender(store, catalogue, recorder.points, link, counters, table_bytes=table_bytes))
        if stopping is not None:
            loop.parts.append(contradictions)
        publisher = Publisher(link, settings.fleet, store, recorder, counters, key_of=key_of)
        callbacks = publisher.born, monitor.note_refusal, monitor.note_frames
        if enrolled is not None or catalogue.groups():
            from gateway.loop.sums import Reports

            loop.parts.append(Reports(store, catalogue, recorder, counters, *callbacks))
        loop.parts.append(publisher)
        retention_args = settings.keep, store, catalogue, recorder, needed_ticks, settings.lag, counters
        loop.parts.append(Retention(*retention_args, may_forget=may_forget))
        return recorder, monitor

    def _add_site_parts(self, loop: Loop, monitor: Monitor, progress: Callable[[], StoreProgress]) -> None:
        """Make the parts of which a site has one: descriptions, documents, Home Assistant, releases and sums."""
        settings, enrolled = self._settings, loop.enrolled
        store, link, catalogue, counters = loop.store, loop.link, loop.catalogue, loop.counters
        has_left = (lambda _device: False) if enrolled is None else enrolled.has_left
        is_enrolled = (lambda _device: False) if enrolled is None else enrolled.has
        hold_refusals = partial(monitor.hold, AlarmCode.POLICY_REFUSED)
        describing_args = (link, catalogue, store.versions, counters, has_left, hold_refusals, is_enrolled)
        describing = Describing(*describing_args, shared=self.shares)
        loop.parts.append(describing)
        loop.parts.append(SharedSubscriptions(catalogue, partial(monitor.hold, AlarmCode.SUBSCRIPTIONS)))
        if enrolled is not None and settings.signed is not None:
            callbacks = monitor.clock_ahead, partial(monitor.hold, AlarmCode.CLOCK), monitor.note_refusal
            from gateway.fleet.service import FleetService

            operator = Link(settings.operator, client_id=f"operator-{settings.fleet}")
            loop.parts.append(FleetService(settings.signed, operator, link, enrolled, counters, *callbacks))
        if settings.home_assistant or store.discovered.all_components():  # documents from before are cleared
            from gateway.parts.home_assistant import HomeAssistant

            described = describing.described if settings.home_assistant else None
            home_assistant = HomeAssistant(
                *(settings.fleet, link, store, described, counters),
                page_url=settings.page_url,
                knows=lambda device: catalogue.has(device) or is_enrolled(device),
            )
            loop.parts.append(home_assistant)
            describing.on_changed = home_assistant.renew
        if settings.releases is not None:
            from gateway.loop.release_part import Releasing

            self._releasing = Releasing(
                *(settings.releases, settings, link, store, catalogue, progress(), counters),
                monitor=monitor,
                shared=self.shares,
                history=describing.in_force.history,
            )
            loop.parts.append(self._releasing)
        if enrolled is not None or catalogue.groups():
            from gateway.loop.sums import Sums

            note_lost = partial(monitor.note, AlarmCode.RELEASE_REFUSED)
            loop.parts.append(Sums(store, catalogue, link, self._releasing, counters, note_lost))


def frame_topics(fleet: str, device: str = "+") -> tuple[str, ...]:
    """Return the topics of frames of one device, or of all devices."""
    return tuple(topic_of(kind, fleet, device, "+") for kind in ("symbols", "window", "report"))
