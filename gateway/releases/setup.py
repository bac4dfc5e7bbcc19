"""A store and its ledger, and releases with them: in a gateway, or once by hand outside of one.

Neither store nor ledger can be replaced or restored unnoticed: each has a random identity, and holds the other's. The
store also holds the number of the newest entry that may have been published, and each stream's last released tick. The
order is always the same: a release's charge in the ledger, its number in the store, publication. So the ledger's newest
entry is never older than the store's. If it is, an old ledger was restored, and entries that it lacks were published.
Nor is the store's older than a published one, unless an old store was restored.
If store and ledger do not fit, the only way on is `resume`. Then nothing more is released about ticks that may have
been released.
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
from gateway.releases.entries import NO_PAST, Allowance, Entry, State, Stream, StreamPast
from gateway.releases.jobs import Job, allowances, jobs, streams_together
from gateway.releases.ledger import Ledger, no_release_before
from gateway.releases.maker import Maker
from gateway.releases.tables import KIND
from gateway.releases.worth import useless_releases
from gateway.store.engine import Lease, LedgerError
from gateway.store.location import Location, ledger_beside
from gateway.store.opening import is_there
from gateway.store.store import KIND as STORE_KIND
from gateway.store.store import ReleasedTick, Store

__all__ = [
    "Releases",
    "histories_in",
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
    """A store's record of its releases and of the ledger that they are charged to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._releases = store.releases

    def open(self, ledger: Location, lease: Lease | None = None) -> Ledger:
        """Open the store's ledger, or create it if the store has published nothing. LedgerError if that fails."""
        if self._releases.ledger_record().entry and not is_there(ledger, KIND):
            raise LedgerError(
                f"there is no ledger {ledger.name}, and releases of this store were charged to one: {_RESUME}"
            )
        return Ledger(ledger, lease=lease)

    def bind(self, ledger: Ledger) -> None:
        """Check that a ledger is the store's own and newest one; if neither has published, write each into the other.

        Raises LedgerError, one line that says what to do, if the ledger is not the store's, or one is an old copy.
        """
        store_identity, _, noted_entry = self._releases.ledger_record()
        if not noted_entry and not ledger.newest_entry:
            ledger.begin((), ledger.binding.identity, store_identity)
            with self._store.transaction():
                self._releases.begin(ledger.binding.identity, 0)
            return
        if problem := self.problem(ledger):
            raise LedgerError(f"{problem}: {_RESUME}")
        self.note(ledger, ledger.newest_entry)

    def problem(self, ledger: Ledger) -> str:
        """Say why a ledger and this store do not fit, or ''. A gateway may be running."""
        published = max(ledger.newest_published(0), default=0)  # read first: the store is ahead of what is published
        store_identity, identity, noted_entry = self._releases.ledger_record()  # next: the ledger is ahead of the store
        if not noted_entry and not ledger.newest_entry:
            return ""
        if noted_entry and ledger.binding.identity != identity:
            return "the ledger is not the one that this store's releases were charged to"
        if ledger.binding.store != store_identity:
            return "the ledger has charged releases of another store"
        if (newest := ledger.newest_entry) < noted_entry:
            return f"the ledger ends with entry {newest}, and entry {noted_entry} may have been published: it is old"
        if noted_entry < published:
            return (
                f"the store knows of releases up to entry {noted_entry}, and entry {published} was published: it is old"
            )
        return ""

    def note(self, ledger: Ledger, entry_number: int) -> None:
        """Record durably in the store that entries up to a number may be published from now on.

        After LedgerError (the store has another ledger by now) or DatabaseError nothing may be published.
        """
        _, identity, noted_entry = self._releases.ledger_record()
        if identity != ledger.binding.identity:
            raise LedgerError("the store has begun another ledger meanwhile: start the gateway again")
        if entry_number <= noted_entry:
            return
        with self._store.transaction():
            for entry in ledger.entries(noted_entry, entry_number - noted_entry):
                shifts = ledger.shifts(entry.number).items()
                released_ticks = [ReleasedTick(device, entry.stream, entry.last + shift) for device, shift in shifts]
                self._releases.note(entry.number, released_ticks)

    def newest_us(self, ledger: Ledger) -> int:
        """The end of the newest release that store or ledger knows, in microseconds of Unix time; 0 without any."""
        ends = [ledger.newest_end_us()]
        clocks = _clocks(self._store.policy_documents())
        for device, stream, last in self._releases.released_ticks():
            ends += [clock.epoch_us + (last + 1) * clock.period_us for clock in clocks.get((device, stream), ())]
        return max(ends)

    def resume(self, ledger: Ledger, not_before_us: int | None = None) -> list[Beginning]:
        """Bind store and ledger to each other, and refuse releases of all ticks that either may have released.

        `not_before_us` replaces the time before which no window of any stream may begin, unless it is `None`. Returns
        the first tick of each stream that may be released. After a DatabaseError call it once more.
        """
        last_ticks = {account.key[:2]: -1 for account in ledger.accounts()}
        for device, stream, last_tick in [*self._releases.released_ticks(), *ledger.released_ticks()]:
            last_ticks[device, stream] = max(last_tick, last_ticks.get((device, stream), -1))
        store_identity, ledger_identity, noted_entry = self._releases.ledger_record()
        complete = not noted_entry or (
            ledger.binding.identity == ledger_identity and ledger.newest_entry >= noted_entry
        )
        identity = secrets.token_hex(16)  # from now on no copy of the old ledger fits
        beginnings = [(*key, last_tick + 1) for key, last_tick in last_ticks.items()]
        ledger.begin(beginnings, identity, store_identity, not_before_us, complete=complete)
        with self._store.transaction():
            self._releases.begin(identity, ledger.newest_entry)
        return [Beginning(*key, ledger.beginning(key[:1], key[1])) for key in sorted(last_ticks)]


def ledger_problem(ledger: Ledger, store: Location) -> str:
    """Say why a ledger does not fit a store, or ''. StoreError if the store cannot be opened."""
    with closing(Store(store, create=False)) as opened_store:
        return ReleaseRecord(opened_store).problem(ledger)


def set_progress(ledger: Location, store: Location, name: str, first: int) -> int:
    """Let a schedule go on with the first window from tick `first` on. Return the tick at which it would have gone on.

    No window is released twice, because the ledger refuses windows that were released. Raises FuguError, one line, if
    there is no such schedule, or a gateway runs.
    """
    with closing(Store(store, create=False, lease=Lease())), closing(Ledger(ledger, create=False)) as opened_ledger:
        old_tick = opened_ledger.progress(name)
        if old_tick is None:
            schedule_names = ", ".join(opened_ledger.schedules()) or "none"
            raise LedgerError(f"the ledger {ledger.name} has no schedule {name}; it has: {schedule_names}")
        with _named_errors(f"the ledger {ledger.name}"):
            opened_ledger.set_progress(name, first)
        return old_tick


@contextmanager
def _named_errors(files: str) -> Iterator[None]:
    """Raise errors of the database as LedgerError with the names of `files`."""
    try:
        yield
    except DatabaseError as error:
        raise LedgerError(f"cannot use {files}: {error}") from None


def _clocks(documents: Iterable[str]) -> dict[tuple[str, str], list[Clock]]:
    """The clocks of all policies of a stream, by device and stream."""
    clocks: dict[tuple[str, str], list[Clock]] = {}
    for policy in map(json.loads, documents):
        clocks.setdefault((policy["device"], policy["stream"]), []).append(Clock(**policy["clock"]))
    return clocks


def _newest_release_us(broker: Broker, fleets: Iterable[str]) -> int:
    """The end of the newest release that a broker retains, in microseconds of Unix time. LinkError if it shows none."""
    messages = listen(broker, [topic_of("release", fleet, "+", "+") for fleet in sorted(fleets)], _LISTEN_SECONDS)
    if not messages:
        raise LinkError(f"the broker {broker.address} shows this account no release: name an account of role site")
    return max(unix_us(ReleaseFrame.decode(payload).time) for _, payload in messages)


def resume_ledger(
    ledger: Location, store: Location, after: int | None = None, broker: Broker | None = None
) -> list[Beginning]:
    """Bind a store and a ledger that do not fit, and refuse releases of all ticks that may have been released.

    If one of the two was lost, it is created. Returns the first tick of each stream that may be released.

    Args:
        after: Unix time in seconds: no window of any stream that begins by then is released. It must not be in the
            future, nor before the newest release of the ledger, the store or the broker. `None` leaves the limit as is.
        broker: the broker that retains the newest releases; needed to set an earlier limit than the ledger's.

    Raises FuguError, one line, also if a gateway runs.
    """
    now_us = time.time_ns() // 1000
    not_before_us = None if after is None else (after + 1) * 10**6
    if after is not None and after * 10**6 > now_us:
        now = instant_text(instant(now_us // 10**6 * 10**6))
        raise LedgerError(
            f"the time is in the future (by this machine's clock it is {now}): say when the gateway last ran, or now"
        )
    if not (is_there(ledger, KIND) or is_there(store, STORE_KIND)):
        raise LedgerError(f"there is neither a ledger {ledger.name} nor a store {store.name}")
    with (
        closing(Store(store, lease=Lease())) as opened_store,
        closing(Ledger(ledger)) as opened_ledger,
        _named_errors(f"the ledger {ledger.name} or the store {store.name}"),
    ):
        record = ReleaseRecord(opened_store)
        if not_before_us is not None:
            newest_us = min(record.newest_us(opened_ledger), now_us)
            old_us = opened_ledger.binding.not_before_us
            if broker is not None:
                store_fleets = {json.loads(document)["fleet"] for document in opened_store.policy_documents()}
                newest_us = max(newest_us, _newest_release_us(broker, opened_ledger.fleets() | store_fleets))
            elif not_before_us < old_us:
                raise LedgerError(
                    f"{no_release_before(old_us)}: to set an earlier time, name the broker too (--broker): it has "
                    "the newest releases"
                )
            if not_before_us < newest_us:
                end = instant_text(instant(newest_us))
                raise LedgerError(f"a release is newer: it ends at {end}; say that time, or a later one")
        return record.resume(opened_ledger, not_before_us)


class Releases(NamedTuple):
    """Everything that is needed to make releases.

    Attributes:
        impossible: the reasons why jobs can never release anything, by name.
        useless: the errors, in words, of releases that are about as good as guessing, by name.
        renew: updates the ledger's accounts and `impossible` to the catalogue's policies. It raises FuguError if a
            policy cannot be accounted for, or DatabaseError.
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
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    lease: Lease | None = None,
    history: Callable[[str, str], History] | None = None,
) -> Releases:
    """Read the configuration, open the store's ledger and update its allowances.

    A missing ledger is created if the store has published nothing. Raises FuguError with one line that says what is
    wrong.

    Args:
        catalogue: the fleet's policies, retired ones, too.
        history: the history of a device's stream; by default as the store has it.
    """
    release_config = ReleaseConfig.load(config)
    configured_jobs = jobs(release_config, catalogue)
    impossible: dict[str, str] = {}

    def compute_allowances(ledger: Ledger | None = None) -> tuple[list[Allowance], dict[str, str]]:
        read_past = partial(_read_past, ledger) if ledger and ledger.has_stream_past else lambda _streams: NO_PAST
        if release_config.readers is not None:
            exclusive_keys = ledger.exclusive_keys() if ledger else []
            for reader in load_readers(config.parent / release_config.readers, catalogue.fleet):
                reader.check(release_config, catalogue, exclusive_keys, read_past)
        return allowances(release_config, configured_jobs, catalogue, read_past)

    useless = useless_releases(configured_jobs, compute_allowances()[0], catalogue)
    record = ReleaseRecord(store)
    opened_ledger = record.open(ledger, lease)
    try:
        opened_ledger.refuse_damage(ledger.name)
        record.bind(opened_ledger)
        history = history or partial(history_in_store, store, catalogue)
        maker = Maker(store, catalogue, opened_ledger, secrets.randbelow, now_us, history)

        def renew() -> None:
            (new_allowances, problems), moving_groups = compute_allowances(opened_ledger), streams_together(catalogue)
            opened_ledger.charge_together(moving_groups, time_us=now_us())
            opened_ledger.set_allowances(new_allowances, time_us=now_us())
            impossible.clear()
            impossible.update(problems)

        renew()
    except BaseException:
        opened_ledger.close()
        raise
    return Releases(opened_ledger, maker, record, configured_jobs, release_config.audiences, impossible, useless, renew)


def _read_past(ledger: Ledger, streams: Iterable[Stream]) -> StreamPast:
    """Read `Ledger.stream_past`, with classes of chains instead of JSON."""
    dated_classes, is_lost = ledger.stream_past(streams)
    classes = [(chains, period) for classes_json, period in dated_classes for chains in classes_of(classes_json)]
    return StreamPast(tuple(dict.fromkeys(classes)), is_lost)


@contextmanager
def histories_in(location: Location, fleet: str) -> Iterator[Callable[[str, str], History]]:
    """Give a function that looks up a stream's history, by device and stream, in a gateway's store.

    A history includes those of streams that move with the stream, and is empty if no ticks are stored. Raises FuguError
    if the store cannot be read.
    """
    catalogue = Catalogue(fleet)
    with closing(Store(location, create=False)) as store:
        catalogue.retire(store.policy_documents())
        yield partial(history_in_store, store, catalogue)


def history_in_store(store: Store, catalogue: Catalogue, device: str, stream: str) -> History:
    """The history of a stream and of the streams that move with it, from a store's ticks and a catalogue's policies."""

    def stream_history(device: str, stream: str) -> History:
        noises = {policy.version: Noise.of(policy) for policy in catalogue.policies(device, stream)}
        rows = store.versions.timeline(device, stream).intervals
        return history_of(rows, noises, may_go_back=catalogue.may_go_back(device), may_drop=True)

    return stream_history(device, stream)._replace(related_streams=catalogue.related(device, stream, stream_history))


def release_now(
    *,
    config: Path,
    store: Location,
    policies: Path,
    name: str,
    first: int,
    ledger: Location | None = None,
    broker: Broker | None = None,
    print_line: Callable[[str], None] = lambda _why: None,
) -> list[ReleaseFrame]:
    """Make a configured release of the window that begins at a tick; with `per_device` one for every device.

    Raises FuguError with one line that says what is wrong; charges that were made before stay.

    Args:
        policies: the folder of the fleet's policies.
        ledger: by default beside the store.
        broker: publishes the releases; with `None` they are only returned.
        print_line: called with the error, in words, of a release that is about as good as guessing; and once if the
            broker has no connection for 3 seconds.
    """
    ledger = ledger or ledger_beside(store)
    fleet = _fleet(policies)
    catalogue, wait_text = Catalogue.load(policies, fleet), f"waiting for fleet {fleet}"
    with closing(Store(store, create=False)) as opened_store:
        catalogue.retire(opened_store.policy_documents())
        releases = open_releases(config, ledger, opened_store, catalogue)
        with closing(releases.ledger):
            named_jobs = [job for job in releases.jobs if name in (job.name, job.plan.name)]
            if not named_jobs:
                raise FuguError(f"no release {name} is configured")
            for job in named_jobs:
                if job.name in releases.impossible:
                    raise LedgerError(f"release {name}: {releases.impossible[job.name]}")
            entries: list[Entry] = []
            with _named_errors(f"the ledger {ledger.name} or the store {store.name}"):
                try:
                    for job in named_jobs:
                        entries.append(releases.maker.make(job, first))
                except FuguError:
                    _publish_or_mark(entries, releases, broker, "abandoned")
                    raise
                _publish_or_mark(entries, releases, broker, "published", lambda why: print_line(f"{why}; {wait_text}"))
            if why := releases.useless.get(named_jobs[0].plan.name):
                print_line(f"release {name}: {why}")
    return [ReleaseFrame.decode(entry.payload) for entry in entries]


def _publish_or_mark(
    entries: list[Entry],
    releases: Releases,
    broker: Broker | None,
    unsent_state: State,
    print_line: Callable[[str], None] = lambda _why: None,
) -> None:
    """Publish entries, or without a broker set their state to `unsent_state`. LinkError if one is not published."""
    record, ledger = releases.record, releases.ledger
    for entry in entries:
        record.note(ledger, entry.number)
    if broker is None:
        for entry in entries:
            ledger.mark(entry.number, unsent_state)
        return
    with closing(deliver(broker, [(entry.topic, entry.payload) for entry in entries], print_line)) as answers:
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
    """The fleet of the first policy in a folder. Raises PolicyError."""
    try:
        path = min(path for path in policies.iterdir() if path.suffix == ".json")
        return str(json.loads(path.read_bytes())["fleet"])
    except OSError as error:
        raise PolicyError(f"cannot read the policies: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise PolicyError("the policies directory holds no policy") from None
