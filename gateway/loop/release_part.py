"""Releases as a part of the gateway's loop: the ledger's accounts follow the policies of the fleet.

Where other processes have the devices, this part reads what they have stored, and tells them what releases still need.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument
from fugu.contract.history import History
from fugu.contract.reports import AlarmCode
from fugu.host.database import AwayError, DatabaseError, is_lost
from fugu.mqtt import Link
from gateway.config import GatewayConfig
from gateway.estimates.catalogue import Catalogue
from gateway.health.monitor import Monitor
from gateway.parts import Part
from gateway.releases.schedule import ReleaseSchedule, StoreProgress
from gateway.releases.setup import open_releases
from gateway.releases.sums import SumReleases, SumWindow
from gateway.releases.worth import mechanism_notes
from gateway.store.engine import Lease
from gateway.store.journal import Heard
from gateway.store.location import ledger_beside
from gateway.store.store import Store

__all__ = ["Releasing"]


_log = logging.getLogger(__name__)
_FEW_ACCOUNTS = 200
_LEAST_RATIO = 10
"""With more than `_FEW_ACCOUNTS` accounts, the least ratio of the time between renewals to the time of one."""


class Releasing(Part):
    """Makes the releases of the file `releases`; `progress` gives the ticks that devices have accounted for.

    If shards have the devices (`shared`), the ledger's lease is taken from any former holder. `history` gives the
    history of a device's stream; by default it is read from the store.
    """

    def __init__(
        self,
        releases: Path,
        settings: GatewayConfig,
        link: Link,
        store: Store,
        catalogue: Catalogue,
        progress: StoreProgress,
        counters: Counter[str],
        *,
        monitor: Monitor,
        shared: bool = False,
        history: Callable[[str, str], History] | None = None,
    ) -> None:
        ledger_path = settings.ledger or ledger_beside(settings.store)
        lease = None if isinstance(ledger_path, Path) else Lease("releases", take=shared)
        self._releases = site = open_releases(releases, ledger_path, store, catalogue, lease=lease, history=history)
        self._monitor = monitor
        self._schedule = ReleaseSchedule(
            *(site, progress, link, counters), refused=partial(monitor.note, AlarmCode.RELEASE_REFUSED)
        )
        self._counters = counters
        self._catalogue, self._store, self._shared = catalogue, store, shared
        self._sums = SumReleases(site.maker, site.audiences, {job.plan.name for job in site.jobs})
        for release_name, comparison in mechanism_notes(site.jobs).items():
            _log.info("release %s: %s", release_name, comparison)
        for release_name, reason in site.useless.items():
            _log.warning("release %s: %s", release_name, reason)
        self._report_impossible()
        self._to_renew = self._halted = False
        self._renew_at = 0.0
        self._charges = catalogue.charges

    def close(self) -> None:
        """Close the ledger."""
        self._releases.ledger.close()

    @property
    def busy(self) -> bool:
        """True if there is a release to work on."""
        return not (self._halted or self._must_renew) and self._schedule.busy

    @property
    def finished(self) -> bool:
        """True if no release is on its way to the broker."""
        return self._halted or self._schedule.finished

    def details(self) -> dict[str, object]:
        """Return under `next_releases` the first tick of each release's next window, where it is known."""
        return {"next_releases": {} if self._halted else self._schedule.next_windows()}

    def needed(self) -> dict[tuple[str, str], int]:
        """Return by device and stream the first tick that a coming release needs. Raises DatabaseError, LedgerError."""
        return {} if self._halted else self._schedule.needed_ticks()

    def stored(self, newest_frames: Sequence[Heard] = ()) -> None:
        """Note that new frames are in the store. If shards have the devices, read the versions that have run."""
        if self._shared:  # other processes have received the frames
            for version in self._store.policy_versions():
                self._catalogue.note_run(*version)
        self._schedule.has_changed = True

    def wait_again(self) -> None:
        """Note that a shard has come back."""
        self._schedule.wait_again()

    def publish_sums(self, groups: Iterable[GroupDocument]) -> None:
        """Publish the sums of these groups, in place of those of the last call."""
        self._schedule.other_topics = self._sums.topics(groups)

    def refusal(self, window: SumWindow) -> str:
        """Return the reason why no audience may get the sum of a window; '' if one may. Raises DatabaseError."""
        self._renew_if_due()
        return self._sums.refusal(window)

    def release(self, window: SumWindow, window_sums: Sequence[tuple[int, int]]) -> None:
        """Release the sums of a window, unless that was done before. Raises LedgerError or DatabaseError."""
        self._renew_if_due()
        for audience, reason in self._sums.reserve(window, window_sums).items():
            self._counters["releases_refused"] += 1
            _log.warning("audience %s is not told of ticks from %d on: %s", audience, window.first, reason)
            self._monitor.note(AlarmCode.RELEASE_REFUSED, window.group.name, reason)
        self._schedule.note_release()

    def connected(self, *, begun_anew: bool) -> None:
        """Publish again the releases that the broker may have lost."""
        self._schedule.connected(begun_anew=begun_anew)

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Take the broker's answer. Raises DatabaseError if the ledger is lost."""
        try:
            self._schedule.acknowledged(message_id, accepted)
        except DatabaseError as error:  # the release counts as not published, and is published again at the next start
            if is_lost(error):
                raise
            self._counters["ledger_errors"] += 1

    def renew(self) -> None:
        """Let the ledger's accounts be renewed before the next release: new policies may allow less."""
        self._to_renew = True

    def pump(self, *, idle: bool = False) -> None:
        """Bring the ledger's accounts up to date, then work on releases for a short while.

        Raises DatabaseError if the ledger's server is away (a later call tries again), or another process has taken the
        ledger.
        """
        if self._must_renew:
            if time.monotonic() >= self._renew_at:
                self._renew()
        elif not self._halted:
            self._schedule.pump(idle=idle)

    def _renew_if_due(self) -> None:
        if self._must_renew:
            self._renew()
        self._sums.site_only = self._halted

    @property
    def _must_renew(self) -> bool:
        return self._to_renew or self._charges != self._catalogue.charges

    def _renew(self) -> None:
        charges, start_time = self._catalogue.charges, time.monotonic()
        try:
            self._releases.renew()
            self._report_impossible()
        except (FuguError, DatabaseError) as error:
            if isinstance(error, AwayError) or is_lost(error):
                raise
            _log.error("releases wait, because a policy cannot be accounted for: %s", error)
            self._counters["ledger_errors"] += 1
            self._halted = True
        else:
            if self._halted:
                _log.warning("releases go on")
            self._halted = False
        self._to_renew, self._charges = False, charges
        now, account_count = time.monotonic(), sum(len(job.question.devices) for job in self._releases.jobs)
        self._renew_at = now + _LEAST_RATIO * (now - start_time) if account_count > _FEW_ACCOUNTS else now

    def _report_impossible(self) -> None:
        self._monitor.hold(AlarmCode.RELEASE_REFUSED, self._releases.impossible)
