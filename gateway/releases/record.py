"""The store's record of its ledger, so that neither can be replaced or restored unnoticed.

Store and ledger each have a random identity, and hold that of the other; the store also holds the number of the newest
entry that may have been published, and for every stream the last tick of one. A release is written in one order: its
charge in the ledger, then its number in the store, then it is published. So the ledger's newest entry is never older
than the store's; if it is, the ledger was restored, and what it has forgotten was told to somebody. Where the two do
not fit, the only way on is `resume`: nothing is released any more about ticks that may have been.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import NamedTuple

from fugu.host.database import DatabaseError
from gateway.location import Location
from gateway.releases.entries import KIND, LedgerError
from gateway.releases.ledger import Ledger
from gateway.store.engine import Lease
from gateway.store.opening import is_there
from gateway.store.store import KIND as STORE_KIND
from gateway.store.store import Released, Store

__all__ = ["ReleaseRecord", "ledger_problem", "resume_ledger", "set_progress"]

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

    @property
    def identity(self) -> str:
        """Of the store, random."""
        return self._releases.charged().identity

    @property
    def entry(self) -> int:
        """The newest entry that may have been published, 0 if none was."""
        return self._releases.charged().entry

    def open(self, ledger: Location, lease: Lease | None = None) -> Ledger:
        """Open the store's ledger, a new one only if the store has published nothing. LedgerError if that fails."""
        if self.entry and not is_there(ledger, KIND):
            raise LedgerError(
                f"there is no ledger {ledger.name}, and releases of this store were charged to one: {_RESUME}"
            )
        return Ledger(ledger, lease=lease)

    def bind(self, ledger: Ledger) -> None:
        """Check that a ledger is the store's own and newest one; both learn of each other if neither has published.

        Raises LedgerError, one line that says what to do, if it is another's, another one or was restored.
        """
        if not self.entry and not ledger.newest:
            ledger.begin((), ledger.identity, self.identity)
            with self._store.transaction():
                self._releases.bind(ledger.identity)
            return
        if problem := self.problem(ledger):
            raise LedgerError(f"{problem}: {_RESUME}")
        self.note(ledger, ledger.newest)

    def problem(self, ledger: Ledger) -> str:
        """Why a ledger and this store do not fit, empty if they do; of a gateway that runs, too."""
        _, known, entry = self._releases.charged()  # before the ledger is looked at, which goes ahead
        if not entry and not ledger.newest:
            return ""
        if entry and ledger.identity != known:
            return "the ledger is not the one that this store's releases were charged to"
        if ledger.store != self.identity:
            return "the ledger has charged releases of another store"
        if ledger.newest < entry:
            return f"the ledger ends with entry {ledger.newest}, and entry {entry} may have been published: it is old"
        return ""

    def note(self, ledger: Ledger, number: int) -> None:
        """Write down that entries up to a number may be published; durable before it returns, and before they are.

        After LedgerError (the store has another ledger by now) or DatabaseError nothing may be published.
        """
        _, known, noted = self._releases.charged()
        if known != ledger.identity:
            raise LedgerError("the store has begun another ledger meanwhile: start the gateway again")
        if number <= noted:
            return
        with self._store.transaction():
            for entry in ledger.entries(noted):
                if entry.number <= number:
                    shifts = ledger.shifts(entry.number).items()
                    self._releases.note([Released(device, entry.stream, entry.last + by) for device, by in shifts])
            self._releases.note_entry(number)

    def resume(self, ledger: Ledger, after: int = -1) -> list[Beginning]:
        """Let a store and a ledger go on together, after all ticks that either may have released; where streams begin.

        `after` is a tick of every stream that was released, although neither has it. After a DatabaseError do it once
        more.
        """
        lasts = {(account.key.device, account.key.stream): after for account in ledger.accounts()}
        for device, stream, last in [*self._releases.released(), *ledger.released()]:
            lasts[device, stream] = max(last, lasts.get((device, stream), after))
        identity = secrets.token_hex(16)  # no copy of the old ledger fits any more
        ledger.begin([(*key, last + 1) for key, last in lasts.items()], identity, self.identity)
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
            known = ", ".join(opened.schedules()) or "none"
            raise LedgerError(f"the ledger {ledger.name} has no schedule {name}; it has: {known}")
        try:
            opened.set_progress(name, first)
        except DatabaseError as error:
            raise LedgerError(f"cannot use the ledger {ledger.name}: {error}") from None
        return before


def resume_ledger(ledger: Location, store: Location, after: int = -1) -> list[Beginning]:
    """Let a store and a ledger that do not belong together go on, after all that may have been published.

    One of the two, if lost, is begun anew. `after` is as for `ReleaseRecord.resume`. Returns where each stream begins.
    Raises FuguError with one line, also if a gateway runs.
    """
    if not (is_there(ledger, KIND) or is_there(store, STORE_KIND)):
        raise LedgerError(f"there is neither a ledger {ledger.name} nor a store {store.name}")
    with closing(Store(store, lease=Lease())) as opened, closing(Ledger(ledger)) as resumed:
        try:
            return ReleaseRecord(opened).resume(resumed, after)
        except DatabaseError as error:
            raise LedgerError(f"cannot use the ledger {ledger.name} or the store {store.name}: {error}") from None
