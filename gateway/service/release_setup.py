"""Puts together what releases need: configuration, ledger, allowances; for the gateway, and for one release by hand."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gateway.release.entries import Allowance
from gateway.release.ledger import Ledger
from gateway.service.policies import Catalogue
from gateway.service.readers import check_reader, load_readers
from gateway.service.release_config import load_releases
from gateway.service.release_jobs import Job, allowances, jobs
from gateway.service.release_maker import Maker
from gateway.service.release_record import ReleaseRecord
from gateway.service.store import Store

__all__ = ["Releases", "ledger_beside", "open_releases"]


class Releases(NamedTuple):
    """Ready to release.

    Attributes:
        renewed: the allowances as the policies of this moment give them.
    """

    ledger: Ledger
    maker: Maker
    jobs: list[Job]
    renewed: Callable[[], list[Allowance]]
    now_us: Callable[[], int]


def ledger_beside(store: Path) -> Path:
    """Where a gateway's ledger is, if nobody says otherwise: `home-ledger.db` for the store `home.db`."""
    return store.with_name(f"{store.stem}-ledger{store.suffix}")


def open_releases(
    config: Path, ledger: Path, store: Store, catalogue: Catalogue, now_us: Callable[[], int] | None = None
) -> Releases:
    """Read the configuration, open the store's ledger and bring its allowances up to date.

    Args:
        config: TOML file.
        ledger: the ledger's file; created if it is not there.
        store: holds the symbols.
        catalogue: all policies, retired ones too.
        now_us: the time in microseconds of Unix time; the system's if not given.

    Raises:
        FuguError: one line that says what is wrong.
    """
    now = now_us or (lambda: time.time_ns() // 1000)
    plan = load_releases(config)
    wanted = jobs(plan, catalogue)

    def renewed() -> list[Allowance]:
        if plan.readers is not None:
            for reader in load_readers(config.parent / plan.readers, catalogue.fleet):
                check_reader(reader, plan, catalogue)
        return allowances(plan, wanted, catalogue)

    granted = renewed()
    record = ReleaseRecord(store)
    if not ledger.exists():
        record.refuse_without_ledger(ledger.name)
    opened = Ledger(ledger)
    try:
        record.bind(opened)
        opened.set_allowances(granted, time_us=now())
    except BaseException:
        opened.close()
        raise
    maker = Maker(store, catalogue, opened, secrets.randbelow, now)
    return Releases(opened, maker, wanted, renewed, now)
