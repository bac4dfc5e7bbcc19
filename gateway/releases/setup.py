"""Configuration, ledger and allowances together, ready to release: in a gateway, or once by hand outside of one."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError, PolicyError
from fugu.contract.reports import ReleaseFrame
from fugu.host.database import DatabaseError
from fugu.mqtt import Broker, Link, LinkError
from gateway.estimates.catalogue import Catalogue
from gateway.location import Location
from gateway.releases.config import ReleaseConfigError, check_reader, load_readers, load_releases
from gateway.releases.entries import Allowance, Entry, LedgerError, State
from gateway.releases.jobs import Job, allowances, jobs, streams_together
from gateway.releases.ledger import Ledger, ledger_beside
from gateway.releases.maker import Maker
from gateway.releases.record import ReleaseRecord
from gateway.releases.worth import not_useful
from gateway.store.engine import Lease
from gateway.store.store import Store

__all__ = ["open_releases", "release_now"]


class Releases(NamedTuple):
    """Ready to release, with allowances and streams that move together as the policies of this moment give them.

    `renew` updates the ledger's accounts, and `impossible`: by its name, why a job can never release anything;
    FuguError if something cannot be accounted for; DatabaseError. `useless`: by the name of a release, how far off it
    will be, if guessing is about as good.
    """

    ledger: Ledger
    maker: Maker
    record: ReleaseRecord
    jobs: list[Job]
    impossible: dict[str, str]
    useless: dict[str, str]
    renew: Callable[[], None]


def open_releases(
    config: Path,
    ledger: Location,
    store: Store,
    catalogue: Catalogue,
    now_us: Callable[[], int] | None = None,
    lease: Lease | None = None,
) -> Releases:
    """Read the configuration, open the store's ledger and bring its allowances up to date.

    The ledger is made if it is not there and the store has published nothing. The catalogue has retired policies, too.
    Raises FuguError with one line that says what is wrong.
    """
    now = now_us or (lambda: time.time_ns() // 1000)
    plan = load_releases(config)
    wanted = jobs(plan, catalogue)
    impossible: dict[str, str] = {}

    def renewed(known: Ledger | None = None) -> tuple[list[Allowance], dict[str, str]]:
        if plan.readers is not None:
            alone = known.alone() if known else []
            for reader in load_readers(config.parent / plan.readers, catalogue.fleet):
                check_reader(reader, plan, catalogue, alone)
        return allowances(plan, wanted, catalogue)

    useless = not_useful(wanted, renewed()[0], catalogue)
    record = ReleaseRecord(store)
    opened = record.open(ledger, lease)
    try:
        opened.refuse_damage(ledger.name)
        record.bind(opened)
        maker = Maker(store, catalogue, opened, secrets.randbelow, now)

        def renew() -> None:
            (granted, problems), together = renewed(opened), streams_together(catalogue)
            opened.charge_together(together, time_us=now())
            opened.set_allowances(granted, time_us=now())
            impossible.clear()
            impossible.update(problems)

        renew()
    except BaseException:
        opened.close()
        raise
    return Releases(opened, maker, record, wanted, impossible, useless, renew)


_ANSWER_SECONDS = 20.0
_POLL_SECONDS = 0.05


def release_now(
    *,
    config: Path,
    store: Location,
    policies: Path,
    name: str,
    first: int,
    ledger: Location | None = None,
    broker: Broker | None = None,
    say: Callable[[str], None] = lambda _why: None,
) -> list[ReleaseFrame]:
    """Make a configured release for the window that begins at a tick; of one with `per_device`, for every device.

    The ledger is beside the store if not given. Without a broker nothing is published. `say` is told how far off it
    will be, if guessing is about as good, and once for which fleet and broker, if there has been no connection for 3
    seconds. Raises FuguError with one line that says what is wrong; what was charged before stays charged.
    """
    ledger = ledger or ledger_beside(store)
    fleet = _fleet(policies)
    catalogue, whose = Catalogue.load(policies, fleet), f"waiting for fleet {fleet}"
    with closing(Store(store, create=False)) as opened:
        catalogue.retire(opened.policy_documents())
        releases = open_releases(config, ledger, opened, catalogue)
        with closing(releases.ledger):
            wanted = [job for job in releases.jobs if name in (job.name, job.plan.name)]
            if not wanted:
                raise ReleaseConfigError(f"no release {name} is configured")
            if problem := next(
                (releases.impossible[job.name] for job in wanted if job.name in releases.impossible), ""
            ):
                raise LedgerError(f"release {name}: {problem}")
            entries: list[Entry] = []
            try:
                for job in wanted:
                    entries.append(_finish(releases.maker.make(job, first)))
                _hand_out(entries, releases, broker, "published", lambda why: say(f"{why}; {whose}"))
            except LinkError:
                raise
            except FuguError:
                _hand_out(entries, releases, broker, "abandoned")
                raise
            except DatabaseError as error:
                raise LedgerError(f"cannot use the ledger {ledger.name} or the store {store.name}: {error}") from None
            if why := releases.useless.get(wanted[0].plan.name):
                say(f"release {name}: {why}")
    return [ReleaseFrame.decode(entry.payload) for entry in entries]


def _hand_out(
    entries: list[Entry],
    releases: Releases,
    broker: Broker | None,
    printed: State,
    waiting: Callable[[str], None] = lambda _why: None,
) -> None:
    """Publish what was made, or record what became of it without a broker: it is printed, or nobody will see it."""
    for entry in entries:
        releases.record.note(releases.ledger, entry.number)
    for entry in entries if broker is None else _published(entries, broker, waiting):
        releases.ledger.mark(entry.number, printed if broker is None else "published")


def _published(entries: list[Entry], broker: Broker, waiting: Callable[[str], None]) -> Iterator[Entry]:
    """Publish entries one by one; yields each that the broker has accepted."""
    answered = threading.Event()
    link = Link(
        broker,
        client_id=f"release-{secrets.token_hex(6)}",
        on_published=lambda _id, accepted: answered.set() if accepted else None,
        on_absent=waiting,
    )
    link.start()
    try:
        for entry in entries:
            answered.clear()
            deadline = time.monotonic() + _ANSWER_SECONDS
            sent: int | None = None
            while not answered.wait(_POLL_SECONDS):
                link.maintain()
                sent = link.publish(entry.topic, entry.payload, retain=True) if sent is None else sent
                if time.monotonic() > deadline or link.last_error.startswith("broker refuses"):
                    raise LinkError(
                        f"{link.last_error or 'the broker does not answer'}; entry {entry.number} stays reserved and "
                        "charged, and a gateway with this ledger publishes it when it starts"
                    )
            yield entry
    finally:
        link.stop()


def _fleet(policies: Path) -> str:
    try:
        path = min(path for path in policies.iterdir() if path.suffix == ".json")
        return str(json.loads(path.read_bytes())["fleet"])
    except OSError as error:
        raise PolicyError(f"cannot read the policies: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise PolicyError("the policies directory holds no policy") from None


def _finish(work: Generator[bool, None, Entry]) -> Entry:
    """Do all the work at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            entry: Entry = done.value
            return entry
