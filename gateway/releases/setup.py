"""A store and its ledger, and what is released with them: in a gateway, or once by hand outside of one.

Neither store nor ledger can be replaced or restored unnoticed: each has a random identity, and holds that of the other.
The store also holds the number of the newest entry that may have been published, and each stream's last released tick.
A release is written in one order: its charge in the ledger, then its number in the store, then it is published. So the
ledger's newest entry is never older than the store's. If it is, the ledger was restored, and what it has forgotten was
told to somebody. Where the two do not fit, the only way on is `resume`: nothing is released any more about ticks that
may have been.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError, PolicyError
from fugu.contract.history import History, Noise, history_of
from fugu.contract.policy import Clock
from fugu.contract.reports import ReleaseFrame
from fugu.contract.sentences import instant, instant_text, unix_us
from fugu.contract.topics import topic_of
from fugu.host.database import DatabaseError
from fugu.mqtt import Broker, LinkError
from fugu.mqtt.probe import deliver, listen
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import classes_of
from gateway.releases.config import Audience, ReleaseConfig, load_readers
from gateway.releases.entries import NO_PAST, Allowance, Entry, Past, State, Stream
from gateway.releases.jobs import Job, allowances, jobs, streams_together
from gateway.releases.ledger import Ledger, no_release_before
from gateway.releases.maker import Maker
from gateway.releases.tables import KIND
from gateway.releases.worth import not_useful
from gateway.store.engine import Lease, LedgerError
from gateway.store.location import Location, ledger_beside
from gateway.store.opening import is_there
from gateway.store.store import KIND as STORE_KIND
from gateway.store.store import Released, Store

__all__ = [
    "ReleaseRecord",
    "Releases",
    "histories_in",
    "history_in_store",
    "ledger_problem",
    "open_releases",
    "release_now",
    "resume_ledger",
    "set_progress",
]


_LISTEN_SECONDS = 3.0
"""Retained messages follow a subscription at once."""
_RESUME = "put back the one that belongs to it, or begin after what was published: fugu gateway ledger resume"


class Beginning(NamedTuple):
    """The first tick of a stream that releases may be about."""

    device: str
    stream: str
    first: int


class ReleaseRecord:
    """The store's side."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._releases = store.releases

    def open(self, ledger: Location, lease: Lease | None = None) -> Ledger:
        """Open the store's ledger, a new one only if the store has published nothing. LedgerError if that fails."""
        if self._releases.charged().entry and not is_there(ledger, KIND):
            raise LedgerError(
                f"there is no ledger {ledger.name}, and releases of this store were charged to one: {_RESUME}"
            )
        return Ledger(ledger, lease=lease)

    def bind(self, ledger: Ledger) -> None:
        """Check that a ledger is the store's own and newest one; both learn of each other if neither has published.

        Raises LedgerError, one line that says what to do, if it is another's, another one or was restored.
        """
        own, _, entry = self._releases.charged()
        if not entry and not ledger.newest:
            ledger.begin((), ledger.binding.identity, own)
            with self._store.transaction():
                self._releases.begin(ledger.binding.identity, 0)
            return
        if problem := self.problem(ledger):
            raise LedgerError(f"{problem}: {_RESUME}")
        self.note(ledger, ledger.newest)

    def problem(self, ledger: Ledger) -> str:
        """Why a ledger and this store do not fit, empty if they do; of a gateway that runs, too."""
        own, identity, entry = self._releases.charged()  # before the ledger is looked at, which goes ahead
        if not entry and not ledger.newest:
            return ""
        if entry and ledger.binding.identity != identity:
            return "the ledger is not the one that this store's releases were charged to"
        if ledger.binding.store != own:
            return "the ledger has charged releases of another store"
        if ledger.newest < entry:
            return f"the ledger ends with entry {ledger.newest}, and entry {entry} may have been published: it is old"
        return ""

    def note(self, ledger: Ledger, number: int) -> None:
        """Write down that entries up to a number may be published; durable before it returns, and before they are.

        After LedgerError (the store has another ledger by now) or DatabaseError nothing may be published.
        """
        _, identity, noted = self._releases.charged()
        if identity != ledger.binding.identity:
            raise LedgerError("the store has begun another ledger meanwhile: start the gateway again")
        if number <= noted:
            return
        with self._store.transaction():
            for entry in ledger.entries(noted, number - noted):
                shifts = ledger.shifts(entry.number).items()
                ends = [Released(device, entry.stream, entry.last + by) for device, by in shifts]
                self._releases.note(entry.number, ends)

    def newest_us(self, ledger: Ledger) -> int:
        """The end of the newest release that the store or a ledger has, in microseconds of Unix time; 0 without one."""
        ends = [ledger.newest_end_us()]
        clocks = _clocks(self._store.policy_documents())
        for device, stream, last in self._releases.released():
            ends += [clock.epoch_us + (last + 1) * clock.period_us for clock in clocks.get((device, stream), ())]
        return max(ends)

    def resume(self, ledger: Ledger, not_before_us: int | None = None) -> list[Beginning]:
        """Let a store and a ledger go on together, after all ticks that either may have released; where streams begin.

        `not_before_us` replaces the time before which no window of any stream may begin, unless it is `None`. After a
        DatabaseError do it once more.
        """
        lasts = {(account.key.device, account.key.stream): -1 for account in ledger.accounts()}
        for device, stream, last in [*self._releases.released(), *ledger.released()]:
            lasts[device, stream] = max(last, lasts.get((device, stream), -1))
        own, ledger_identity, entry = self._releases.charged()
        complete = not entry or (ledger.binding.identity == ledger_identity and ledger.newest >= entry)
        identity = secrets.token_hex(16)  # no copy of the old ledger fits any more
        begins = [(*key, last + 1) for key, last in lasts.items()]
        ledger.begin(begins, identity, own, not_before_us, complete=complete)
        with self._store.transaction():
            self._releases.begin(identity, ledger.newest)
        return [Beginning(*key, ledger.beginning(key[:1], key[1])) for key in sorted(lasts)]


def ledger_problem(ledger: Ledger, store: Location) -> str:
    """Why a ledger is not the newest of a store's releases, or empty. StoreError if the store cannot be opened."""
    with closing(Store(store, create=False)) as opened:
        return ReleaseRecord(opened).problem(ledger)


def set_progress(ledger: Location, store: Location, name: str, first: int) -> int:
    """Let a schedule go on with the first window from a tick on; returns where it would have. The gateway must not run.

    The ledger refuses windows that were released, so that none is released twice, whatever is said here. Raises
    FuguError, one line, if there is no such schedule, or a gateway runs.
    """
    with closing(Store(store, create=False, lease=Lease())), closing(Ledger(ledger, create=False)) as opened:
        before = opened.progress(name)
        if before is None:
            names = ", ".join(opened.schedules()) or "none"
            raise LedgerError(f"the ledger {ledger.name} has no schedule {name}; it has: {names}")
        try:
            opened.set_progress(name, first)
        except DatabaseError as error:
            raise LedgerError(f"cannot use the ledger {ledger.name}: {error}") from None
        return before


def _clocks(documents: Iterable[str]) -> dict[tuple[str, str], list[Clock]]:
    """The clocks of all policies of a stream, by its device and name."""
    clocks: dict[tuple[str, str], list[Clock]] = {}
    for policy in map(json.loads, documents):
        clocks.setdefault((policy["device"], policy["stream"]), []).append(Clock(**policy["clock"]))
    return clocks


def _newest_at(broker: Broker, fleets: Iterable[str]) -> int:
    """The end of the newest release that a broker has, in microseconds of Unix time; LinkError if it shows none."""
    heard = listen(broker, [topic_of("release", fleet, "+", "+") for fleet in sorted(fleets)], _LISTEN_SECONDS)
    if not heard:
        raise LinkError(f"the broker {broker.address} shows this account no release: name an account of role site")
    return max(unix_us(ReleaseFrame.decode(payload).time) for _, payload in heard)


def resume_ledger(
    ledger: Location, store: Location, after: int | None = None, broker: Broker | None = None
) -> list[Beginning]:
    """Let a store and a ledger that do not belong together go on, after all that may have been published.

    One of the two, if lost, is begun anew. Returns where each stream begins.

    Args:
        after: Unix time in seconds, at whose end no release is under way any more; none begins before that, of any
            stream. It is not in the future, nor before the newest release of the ledger, the store or the broker.
        broker: has the newest releases; needed if a time is to be earlier than the one that the ledger has.

    Raises FuguError with one line, also if a gateway runs.
    """
    now_us = time.time_ns() // 1000
    limit = None if after is None else (after + 1) * 10**6
    if after is not None and after * 10**6 > now_us:
        here = instant_text(instant(now_us // 10**6 * 10**6))
        raise LedgerError(
            f"the time is in the future (by this machine's clock it is {here}): say when the gateway last ran, or now"
        )
    if not (is_there(ledger, KIND) or is_there(store, STORE_KIND)):
        raise LedgerError(f"there is neither a ledger {ledger.name} nor a store {store.name}")
    with closing(Store(store, lease=Lease())) as opened, closing(Ledger(ledger)) as resumed:
        try:
            record = ReleaseRecord(opened)
            if limit is not None:
                newest = min(record.newest_us(resumed), now_us)
                if broker is not None:
                    fleets = resumed.fleets() | {
                        json.loads(document)["fleet"] for document in opened.policy_documents()
                    }
                    newest = max(newest, _newest_at(broker, fleets))
                elif limit < resumed.binding.not_before_us:
                    raise LedgerError(
                        f"{no_release_before(resumed.binding.not_before_us)}: to set an earlier time, name the broker "
                        "too (--broker): it has the newest releases"
                    )
                if limit < newest:
                    raise LedgerError(
                        f"a release is newer: it ends at {instant_text(instant(newest))}; say that time, or a later one"
                    )
            return record.resume(resumed, limit)
        except DatabaseError as error:
            raise LedgerError(f"cannot use the ledger {ledger.name} or the store {store.name}: {error}") from None


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
    audiences: Mapping[str, Audience]
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
    history: Callable[[str, str], History] | None = None,
) -> Releases:
    """Read the configuration, open the store's ledger and bring its allowances up to date.

    The ledger is made if it is not there and the store has published nothing. The catalogue has retired policies, too.
    `history` is that of a device's stream, by default as the store has it.
    Raises FuguError with one line that says what is wrong.
    """
    now = now_us or (lambda: time.time_ns() // 1000)
    plan = ReleaseConfig.load(config)
    wanted = jobs(plan, catalogue)
    impossible: dict[str, str] = {}

    def renewed(ledger: Ledger | None = None) -> tuple[list[Allowance], dict[str, str]]:
        past = partial(_past, ledger) if ledger and ledger.has_past else lambda _streams: NO_PAST
        if plan.readers is not None:
            alone = ledger.alone() if ledger else []
            for reader in load_readers(config.parent / plan.readers, catalogue.fleet):
                reader.check(plan, catalogue, alone, past)
        return allowances(plan, wanted, catalogue, past)

    useless = not_useful(wanted, renewed()[0], catalogue)
    record = ReleaseRecord(store)
    opened = record.open(ledger, lease)
    try:
        opened.refuse_damage(ledger.name)
        record.bind(opened)
        history = history or partial(history_in_store, store, catalogue)
        maker = Maker(store, catalogue, opened, secrets.randbelow, now, history)

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
    return Releases(opened, maker, record, wanted, plan.audiences, impossible, useless, renew)


def _past(ledger: Ledger, streams: Iterable[Stream]) -> Past:
    rows, lost = ledger.past(streams)
    return Past(tuple(dict.fromkeys((chains, period) for text, period in rows for chains in classes_of(text))), lost)


@contextmanager
def histories_in(location: Location, fleet: str) -> Iterator[Callable[[str, str], History]]:
    """Give the ticks of a stream, and of those that move with it, as a gateway has stored them; empty without any.

    Raises FuguError if the store cannot be read.
    """
    catalogue = Catalogue(fleet)
    with closing(Store(location, create=False)) as store:
        catalogue.retire(store.policy_documents())
        yield partial(history_in_store, store, catalogue)


def history_in_store(store: Store, catalogue: Catalogue, device: str, stream: str) -> History:
    """The ticks of a stream as a store has them, under policies that a catalogue has."""

    def own(device: str, stream: str) -> History:
        noises = {policy.version: Noise.of(policy) for policy in catalogue.policies(device, stream)}
        return history_of(store.versions.timeline(device, stream).rows, noises)

    return own(device, stream)._replace(beside=catalogue.beside(device, stream, own))


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
    will be, if guessing is about as good. If there has been no connection for 3 seconds, it is told once for which
    fleet and broker. Raises FuguError with one line that says what is wrong; what was charged before stays charged.
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
                raise FuguError(f"no release {name} is configured")
            if problem := next(
                (releases.impossible[job.name] for job in wanted if job.name in releases.impossible), ""
            ):
                raise LedgerError(f"release {name}: {problem}")
            entries: list[Entry] = []
            try:
                for job in wanted:
                    entries.append(releases.maker.make(job, first))
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
    record, ledger = releases.record, releases.ledger
    for entry in entries:
        record.note(ledger, entry.number)
    if broker is None:
        for entry in entries:
            ledger.mark(entry.number, printed)
        return
    with closing(deliver(broker, [(entry.topic, entry.payload) for entry in entries], waiting)) as answers:
        for entry in entries:
            try:
                problem = "" if next(answers) else "the broker does not take it"
            except LinkError as error:
                problem = str(error)
            if problem:
                raise LinkError(
                    f"{problem}; entry {entry.number} stays reserved and charged, and a gateway with this ledger "
                    "publishes it when it starts"
                )
            ledger.mark(entry.number, "published")


def _fleet(policies: Path) -> str:
    try:
        path = min(path for path in policies.iterdir() if path.suffix == ".json")
        return str(json.loads(path.read_bytes())["fleet"])
    except OSError as error:
        raise PolicyError(f"cannot read the policies: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise PolicyError("the policies directory holds no policy") from None
