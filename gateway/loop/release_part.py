"""Releases as a part of the gateway's loop, with the sums of homes.

Where other processes have the devices, this part reads what they have stored, and tells them what releases still need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from fugu.contract.groups import GroupDocument
from fugu.contract.history import History
from fugu.contract.reports import AlarmCode
from gateway.config import GatewayConfig
from gateway.parts import Loop, Part
from gateway.releases.schedule import ReleaseSchedule, StoreProgress
from gateway.releases.setup import open_releases
from gateway.releases.sums import SumReleases, SumWindow
from gateway.releases.worth import mechanism_notes
from gateway.store.engine import Lease
from gateway.store.journal import NewestFrame
from gateway.store.location import ledger_beside

__all__ = ["ReleasePart"]


_log = logging.getLogger(__name__)


class ReleasePart(ReleaseSchedule, Part):
    """Makes the releases of the file `releases`; `progress` gives the ticks that devices have accounted for.

    If shards have the devices (`shared`), the ledger's lease is taken from any former holder. `history` gives the
    history of a device's stream; by default it is read from the store.
    """

    def __init__(
        self,
        loop: Loop,
        releases: Path,
        settings: GatewayConfig,
        progress: StoreProgress,
        *,
        shared: bool = False,
        history: Callable[[str, str], History] | None = None,
    ) -> None:
        Part.__init__(self, loop)
        ledger_path = settings.ledger or ledger_beside(settings.store)
        lease = None if isinstance(ledger_path, Path) else Lease("releases", take=shared)
        open_site = open_releases(releases, ledger_path, loop.store, loop.catalogue, lease=lease, history=history)
        note_refused = partial(loop.monitor.note, AlarmCode.RELEASE_REFUSED)
        ReleaseSchedule.__init__(self, open_site, progress, loop.link, loop.counters, refused=note_refused)
        self._shared = shared
        taken_names = chain.from_iterable(job.taken_names for job in open_site.jobs)
        self._sums = SumReleases(open_site.maker, open_site.audiences, taken_names)
        for release_name, comparison in mechanism_notes(open_site.jobs).items():
            _log.info("release %s: %s", release_name, comparison)
        for release_name, reason in open_site.useless.items():
            _log.warning("release %s: %s", release_name, reason)
        self._report_impossible()

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def details(self) -> dict[str, object]:
        """Return under `next_releases` the first tick of each release's next window, where it is known."""
        return {"next_releases": self.next_windows()}

    def stored(self, newest_frames: Sequence[NewestFrame] = ()) -> None:
        """Note that new frames are in the store. If shards have the devices, read the versions that have run."""
        if self._shared:  # other processes have received the frames
            for version in self._store.policy_versions():
                self._catalogue.note_run(*version)
        self.has_changed = True

    def publish_sums(self, groups: Iterable[GroupDocument]) -> None:
        """Publish the sums of these groups, in place of those of the last call."""
        self.other_topics = self._sums.topics(groups)

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
        self.note_release()

    def _renew_if_due(self) -> None:
        if self._must_renew:
            self._renew()
        self._sums.site_only = self._halted

    def _renew(self) -> None:
        super()._renew()
        self._report_impossible()

    def _report_impossible(self) -> None:
        self._monitor.hold(AlarmCode.RELEASE_REFUSED, self._releases.impossible)
