"""The ledger as the page shows it: entries and budgets of one audience, or of all."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from fugu.contract.errors import FuguError
from fugu.contract.sentences import instant, instant_text
from fugu.host.database import DatabaseError
from gateway.page import Fields
from gateway.releases.charges import nats
from gateway.releases.entries import SITE, Account, Promise, base_problem
from gateway.releases.ledger import Ledger, no_release_before
from gateway.store.location import Location

__all__ = ["LedgerView"]


PAGE_ENTRIES = 50
_ENTRY_FIELDS = (
    *("number", "name", "audience", "stream", "time", "mechanism", "noise", "scale"),
    *("first", "last", "reason", "state"),
)
_FRESH_SECONDS = 1.0
"""Age of an answer at which the ledger is read again."""
_MAX_ANSWERS = 64
_NO_LEDGER = (
    "This page has no ledger: the gateway beside it makes no releases, or fugu gateway dashboard was started without "
    "--ledger."
)


class LedgerView:
    """Opens the ledger for each answer, so that a missing, restored or damaged ledger is noticed.

    `location` is `None` if the page has no ledger. `audience` is `None` if the page shows all audiences.
    """

    def __init__(self, location: Location | None, audience: str | None = None) -> None:
        self.audience = audience
        self._location = location
        self._lock = threading.Lock()
        self._answers: dict[object, tuple[float, Fields]] = {}

    @property
    def view(self) -> str | None:
        """The audience whose ledger is shown, in words; `None` without a ledger."""
        if self._location is None:
            return None
        return "of all audiences" if self.audience is None else f"of audience {self.audience}"

    def page(self, audience: str, below_number: int) -> Fields:
        """Return entries below a number, newest first, or the fault in `problem`; an empty `audience` means all."""
        query = (audience, below_number)
        return self._cached(("page", *query), lambda ledger: self._read_page(ledger, *query))

    def budgets(self, device: str) -> Fields:
        """Return each audience's used and remaining budget for a device's streams, or the fault in `problem`."""
        return self._cached(("budgets", device), lambda ledger: self._read_budgets(ledger, device))

    def _cached(self, query_key: object, query: Callable[[Ledger], Fields]) -> Fields:
        with self._lock:
            read_at, answer = self._answers.pop(query_key, (-math.inf, {}))
            if time.monotonic() - read_at >= _FRESH_SECONDS:
                answer = self._ask_ledger(query)
                read_at = time.monotonic()
            self._answers[query_key] = read_at, answer
            if len(self._answers) > _MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
            return answer

    def _ask_ledger(self, query: Callable[[Ledger], Fields]) -> Fields:
        if self._location is None:
            return {"problem": _NO_LEDGER}
        try:
            with closing(Ledger(self._location, read_only=True)) as ledger:
                return query(ledger)
        except FuguError as error:
            return {"problem": f"The ledger cannot be read: {error}."}
        except DatabaseError as error:
            return {"problem": f"The ledger cannot be read: {error}. The page tries again."}

    def _read_page(self, ledger: Ledger, audience: str, below_number: int) -> Fields:
        shown_audience = self.audience or audience or None
        with ledger.snapshot() as snapshot:
            all_entries = snapshot.newest_entries(shown_audience, below_number, PAGE_ENTRIES + 1)
            entries = all_entries[:PAGE_ENTRIES]
            groups = {group_number: snapshot.group(group_number) for group_number in {entry[-1] for entry in entries}}
            audiences = [self.audience] if self.audience else sorted({*snapshot.audiences(), SITE})
        return {
            "audiences": audiences,
            "entries": [self._entry_fields(entry, groups[entry[-1]]) for entry in entries],
            "more": len(all_entries) > PAGE_ENTRIES,
            "limit": no_release_before(not_before_us) if (not_before_us := ledger.binding.not_before_us) else "",
        }

    def _entry_fields(self, entry: tuple[Any, ...], group: tuple[int, str, int]) -> Fields:
        devices, device, charge = group
        return {
            **dict(zip(_ENTRY_FIELDS, entry, strict=False)),
            **{"time": instant_text(instant(entry[4])), "devices": devices, "charge": nats(charge)},
            # An audience learns how many devices a release is about, and not which.
            "device": device if devices == 1 and self.audience is None else "",
        }

    def _read_budgets(self, ledger: Ledger, device: str) -> Fields:
        with ledger.snapshot():
            budgets = [
                _budget_fields(account, ledger.promise_of(account.key.audience))
                for account in ledger.accounts_of(device)
                if self.audience in (None, account.key.audience)
            ]
        return {"budgets": budgets}


def _budget_fields(account: Account, promise: Promise | None) -> Fields:
    epsilon, adversary, seconds = promise or (None, "", 0)
    return {
        **{"stream": account.key.stream, "audience": account.key.audience, "epsilon": epsilon},
        **{"adversary": adversary, "seconds": seconds},
        **{"allowance": nats(account.allowance), "base": nats(account.base), "spent": nats(account.spent_together)},
        **{"remaining": nats(account.remaining), "first": account.first, "last": account.last},
        "problem": base_problem(account.key, account.allowance, account.base),
        **{"together": account.together, "alone": account.exclusive, "mechanism": account.mechanism},
    }
