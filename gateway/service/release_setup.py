"""Puts together what releases need: configuration, ledger, allowances; for the gateway, and for one release by hand."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gateway.database import Lease
from gateway.location import Location
from gateway.release.entries import Allowance
from gateway.release.ledger import Ledger
from gateway.release.together import Stream
from gateway.service.policies import Catalogue
from gateway.service.readers import check_reader, load_readers
from gateway.service.release_config import load_releases
from gateway.service.release_counts import Counting, StoreCounting
from gateway.service.release_jobs import Job, allowances, jobs
from gateway.service.release_maker import Maker
from gateway.service.release_record import ReleaseRecord
from gateway.service.store import Store
from gateway.service.streams_together import streams_together

__all__ = ["Releases", "open_releases"]


class Releases(NamedTuple):
    """Ready to release.

    Attributes:
        renewed: the allowances as the policies of this moment give them.
        together: the streams that move together, likewise.
    """

    ledger: Ledger
    maker: Maker
    record: ReleaseRecord
    jobs: list[Job]
    renewed: Callable[[], list[Allowance]]
    together: Callable[[], list[frozenset[Stream]]]
    now_us: Callable[[], int]

    def renew(self) -> None:
        """Bring the ledger's accounts up to date.

        Raises:
            FuguError: something cannot be accounted for.
            DatabaseError: the ledger cannot be used.
        """
        granted, together = self.renewed(), self.together()
        self.ledger.charge_together(together, time_us=self.now_us())
        self.ledger.set_allowances(granted, time_us=self.now_us())


def open_releases(
    config: Path,
    ledger: Location,
    store: Store,
    catalogue: Catalogue,
    now_us: Callable[[], int] | None = None,
    counting: Counting | None = None,
    lease: Lease | None = None,
) -> Releases:
    """Read the configuration, open the store's ledger and bring its allowances up to date.

    Args:
        config: TOML file.
        ledger: where it is; made if it is not there, and the store has published nothing.
        store: holds the symbols, and what is known of the ledger.
        catalogue: all policies, retired ones too.
        now_us: the time in microseconds of Unix time; the system's if not given.
        counting: counts symbols; what is in the store if not given.
        lease: of the ledger, if this process alone may have it.

    Raises:
        FuguError: one line that says what is wrong.
    """
    now = now_us or (lambda: time.time_ns() // 1000)
    plan = load_releases(config)
    wanted = jobs(plan, catalogue)

    def renewed(known: Ledger | None = None) -> list[Allowance]:
        if plan.readers is not None:
            alone = known.alone() if known else []
            for reader in load_readers(config.parent / plan.readers, catalogue.fleet):
                check_reader(reader, plan, catalogue, alone)
        return allowances(plan, wanted, catalogue)

    renewed()
    record = ReleaseRecord(store)
    opened = record.open(ledger, lease)
    try:
        opened.refuse_damage(ledger.name)
        record.bind(opened)
        maker = Maker(counting or StoreCounting(store, catalogue), opened, secrets.randbelow, now)
        releases = Releases(
            opened, maker, record, wanted, partial(renewed, opened), lambda: streams_together(catalogue), now
        )
        releases.renew()
    except BaseException:
        opened.close()
        raise
    return releases
