"""The part of a gateway that a fleet has once: documents and the time for its devices, descriptions, and releases."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import filterfalse
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import parse_topic
from fugu.host.database import AwayError, DatabaseError, is_lost
from fugu.host.process import NOTICES, first_share
from fugu.mqtt import Link
from gateway.describe import Describing, InForce
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.enrolled import Enrolled
from gateway.fleet.service import FleetService
from gateway.home_assistant import HomeAssistant
from gateway.journal.arrivals import Heard
from gateway.journal.streams import share_due_us
from gateway.releases.ledger import Ledger, ledger_beside
from gateway.releases.progress import FleetProgress
from gateway.releases.schedule import NotKnownError, ReleaseSchedule, StoreProgress
from gateway.releases.setup import Releases, open_releases
from gateway.settings import GatewaySettings
from gateway.shard_watch import ShardChannel
from gateway.store.engine import Lease
from gateway.store.store import Store

__all__ = ["FleetPart", "OfShards"]


_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5


class OfShards(NamedTuple):
    """What releases about the devices of shards need.

    The worker's thread owns `channel`; `progress` is of all shards; nothing was heard lately of the `missing` ones.
    """

    channel: ShardChannel
    progress: FleetProgress
    missing: Callable[[], tuple[int, ...]]


class FleetPart:
    """Used by the gateway's worker; made, started and closed by the thread that starts the gateway.

    `store` knows what was released, and of what Home Assistant was told, `progress` how far devices are. `hold` is told
    of all devices that refuse their newest document. `of_shards` is given where other processes have the devices.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        link: Link,
        store: Store,
        catalogue: Catalogue,
        progress: StoreProgress,
        enrolled: Enrolled | None,
        counters: Counter[str],
        hold: Callable[[AlarmCode, Iterable[str]], None],
        of_shards: OfShards | None = None,
    ) -> None:
        fleet, files = settings.fleet, settings.enrolled
        self._counters = counters
        self._of_shards = of_shards
        self._store, self._look_at = store, 0.0
        self._gone: set[int] = set()
        self._needed: dict[tuple[str, str], int] | None = None
        self._service: FleetService | None = None
        self._ledger: Ledger | None = None
        self._releases: Releases | None = None
        self._to_renew: Releases | None = None
        self._schedule: ReleaseSchedule | None = None
        self._fleet, self._hold = fleet, hold
        self._catalogue, self._greeted = catalogue, False
        self._left = (lambda _device: False) if enrolled is None else enrolled.has_left
        self._in_force = InForce(catalogue)
        self._describing = Describing(link, catalogue, self._in_force, counters, self._left)
        described = self._describing.described if settings.home_assistant else None
        self._told: HomeAssistant | None = None
        if settings.home_assistant or store.discovered.every():  # what was told before is taken back
            self._told = HomeAssistant(fleet, link, store, described, counters)
        if enrolled is not None and files is not None:
            self._service = FleetService(fleet, files, link, enrolled, counters)
        try:
            if settings.releases is not None:
                path = settings.ledger or ledger_beside(settings.store)
                self._releases = made = open_releases(
                    *(settings.releases, path, store, catalogue),
                    lease=None if isinstance(path, Path) else Lease("releases", take=of_shards is not None),
                )
                self._ledger = made.ledger
                self._schedule = ReleaseSchedule(made.jobs, made.maker, progress, made.record, link, counters)
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def topics(settings: GatewaySettings) -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this."""
        return (
            *Describing.topics(settings.fleet),
            *(FleetService.topics(settings.fleet) if settings.enrolled else ()),
            *(HomeAssistant.topics() if settings.home_assistant else ()),
        )

    def start(self) -> None:
        """Connect as the operator, in the background."""
        if self._service is not None:
            self._service.start()

    def stop(self) -> None:
        """Disconnect, and close what was opened."""
        if self._service is not None:
            self._service.stop()
        if self._ledger is not None:
            self._ledger.close()

    @property
    def busy(self) -> bool:
        """True if there is work to do now, or there may be."""
        return self._schedule is not None and self._to_renew is None and self._schedule.busy

    @property
    def finished(self) -> bool:
        """True if no release is on its way to the broker."""
        return self._schedule is None or self._schedule.finished

    def following(self) -> dict[str, int]:
        """By release: the first tick of the window that comes next, as far as that is known."""
        return {} if self._schedule is None else self._schedule.following()

    def needed(self) -> dict[tuple[str, str], int]:
        """By device and stream the first tick that a coming release needs. Raises DatabaseError, LedgerError."""
        return {} if self._schedule is None else self._schedule.needed()

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take note of a message; whether it was for nobody else."""
        if self._describing.heard(topic, payload):
            return True
        self._note_versions(topic, payload)
        if self._service is not None and self._service.heard(topic, payload):
            return True
        return self._told is not None and self._told.heard(topic, payload)

    def _note_versions(self, topic: str, payload: bytes) -> None:
        try:
            parsed = parse_topic(topic)
            if parsed.fleet != self._fleet or parsed.kind not in ("status", "policy_status"):
                return
            if parsed.kind == "status":
                changed = self._in_force.status(parsed.device, Status.decode(payload))
            else:
                changed = self._in_force.answered(parsed.device, PolicyStatus.decode(payload))
                self._hold_refusals()
        except FuguError:
            return  # whoever else reads it counts it
        if changed:
            self._renew_descriptions()

    def _hold_refusals(self) -> None:
        refusing = [device for device in self._in_force.refusals if not self._left(device)]
        self._hold(AlarmCode.POLICY_REFUSED, refusing)

    def _renew_descriptions(self) -> None:
        self._describing.renew()
        if self._told is not None:
            self._told.renew()

    def stored(self, heard: Iterable[Heard] = ()) -> None:
        """Note that new frames are in the store."""
        changed = [self._in_force.named(device, stream, version, last) for device, stream, version, last, _ in heard]
        if any(changed):
            self._renew_descriptions()
        if self._schedule is not None:
            self._schedule.stored()

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection; with `begun_anew`, what was under way will not be answered."""
        if not self._greeted:
            self._greeted = True
            NOTICES.info("connected; %s", self._first_share())
        self._describing.connected()
        if self._told is not None:
            self._told.connected()
        if self._service is not None:
            self._service.connected()
        if self._schedule is not None:
            self._schedule.connected()
            if begun_anew:
                self._schedule.begin_anew()

    def _first_share(self) -> str:
        """When the first of all devices, if it runs, has shared something."""
        streams = [
            running.policy
            for device in filterfalse(self._left, self._catalogue.names())
            for stream in self._catalogue.streams(device)
            if (running := self._in_force.running(device, stream)) is not None
        ]
        now = time.time_ns() // 1000
        return (
            first_share([share_due_us(policy, now) for policy in streams], now) if streams else "there is no policy yet"
        )

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Take the broker's answer for a message. Raises DatabaseError if a file cannot be used."""
        try:
            if self._schedule is not None:
                self._schedule.acknowledged(message_id, accepted)
        except DatabaseError as error:  # the release counts as not published, and is published again at the next start
            if is_lost(error):
                raise
            self._counters["ledger_errors"] += 1
        if self._told is not None:
            self._told.acknowledged(message_id, accepted)

    def renew(self) -> None:
        """The catalogue may have changed: new policies may allow less, and what has no account is released no more."""
        self._renew_descriptions()
        self._hold_refusals()
        self._to_renew = self._releases

    def _renew(self, releases: Releases) -> None:
        """Bring the ledger's accounts up to date, before any release.

        Raises DatabaseError if the ledger's server is away (it is tried again), or if somebody else has taken it.
        """
        try:
            releases.renew()
        except (FuguError, DatabaseError) as error:
            if isinstance(error, AwayError) or is_lost(error):
                raise
            _log.error("releases end, because a new policy cannot be accounted for: %s", error)
            self._counters["ledger_errors"] += 1
            self._schedule = self._releases = None
        self._to_renew = None

    def pumps(self, *, idle: bool) -> tuple[Callable[[], None], ...]:
        """What is to be done in every round; each may raise what a store or a ledger raises."""
        schedule, of_shards, to_renew = self._schedule, self._of_shards, self._to_renew
        return (
            *(() if self._service is None else (self._service.pump,)),
            self._describing.pump,
            *(() if self._told is None else (self._told.pump,)),
            *(() if of_shards is None else (lambda: self._look_at_shards(of_shards),)),
            *(() if to_renew is None else (lambda: self._renew(to_renew),)),
            *(() if schedule is None or to_renew is not None else (lambda: schedule.pump(idle=idle),)),
        )

    def _look_at_shards(self, shards: OfShards) -> None:
        """See what shards have stored, and tell them what releases still need."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._store.check()
        shards.channel.check()
        gone, self._gone = self._gone, set(shards.missing())
        if self._schedule is not None and shards.progress.look():
            if gone - self._gone:
                self._schedule.unsettled()
            self._schedule.stored()
        with contextlib.suppress(NotKnownError):
            if (needed := self.needed()) != self._needed:
                shards.channel.say_needed(needed)
                self._needed = needed
