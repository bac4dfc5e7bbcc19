"""What the ledger says, for the page: entries, and what is used and left of budgets. It is read, and never held up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from fugu.contract.errors import FuguError
from fugu.contract.instants import instant, instant_text
from fugu.host.database import DatabaseError
from gateway.location import Location
from gateway.releases.charges import nats
from gateway.releases.entries import SITE, Account
from gateway.releases.ledger import Ledger

__all__ = ["LedgerView"]

PAGE_ENTRIES = 50
_FRESH_SECONDS = 1.0
"""For so long an answer stands for all who ask the same."""
_MOST_KNOWN = 64
_NONE = (
    "This page has no ledger: the gateway beside it makes no releases, or fugu gateway dashboard was started without "
    "--ledger."
)


class LedgerView:
    """Opens the ledger for each look, so that one that is missing, put back or damaged is seen as it is then.

    Args:
        location: of the ledger; `None` if the page has none.
        audience: whose entries and budgets are shown; `None` for those of all.
    """

    def __init__(self, location: Location | None, audience: str | None = None) -> None:
        self.audience = audience
        self._location = location
        self._lock = threading.Lock()
        self._known: dict[object, tuple[float, dict[str, Any]]] = {}

    @property
    def view(self) -> str | None:
        """Whose view it is, in words; `None` without a ledger."""
        if self._location is None:
            return None
        return "of all audiences" if self.audience is None else f"of audience {self.audience}"

    def page(self, audience: str, before: int) -> dict[str, Any]:
        """Entries, the newest first.

        Args:
            audience: only its entries; those of all that are shown if empty.
            before: only entries below this number.

        Returns:
            The page, or what is wrong in `problem`.
        """
        return self._asked(("page", audience, before), lambda ledger: self._page(ledger, audience, before))

    def budgets(self, device: str) -> dict[str, Any]:
        """What is used and left of each audience's budget of a device's streams, or what is wrong in `problem`."""
        return self._asked(("budgets", device), lambda ledger: self._budgets(ledger, device))

    def _asked(self, key: object, look: Callable[[Ledger], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            now = time.monotonic()
            if key in self._known and now - self._known[key][0] < _FRESH_SECONDS:
                return self._known[key][1]
            found = self._look(look)
            self._known.pop(key, None)
            self._known[key] = (time.monotonic(), found)
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            return found

    def _look(self, look: Callable[[Ledger], dict[str, Any]]) -> dict[str, Any]:
        if self._location is None:
            return {"problem": _NONE}
        try:
            with closing(Ledger(self._location, read_only=True)) as ledger:
                return look(ledger)
        except FuguError as error:
            return {"problem": f"The ledger cannot be read: {error}."}
        except DatabaseError as error:
            return {"problem": f"The ledger cannot be read: {error}. The page tries again."}

    def _page(self, ledger: Ledger, audience: str, before: int) -> dict[str, Any]:
        only = self.audience or audience or None
        with ledger.snapshot() as rows:
            found = rows.newest(only, before, PAGE_ENTRIES + 1)
            shown = found[:PAGE_ENTRIES]
            groups = {number: rows.group(number) for number in {row[-1] for row in shown}}
            audiences = [self.audience] if self.audience else sorted({*rows.audiences(), SITE})
        return {
            "audiences": audiences,
            "entries": [self._entry(row, groups[row[-1]]) for row in shown],
            "more": len(found) > PAGE_ENTRIES,
        }

    def _entry(self, row: tuple[Any, ...], group: tuple[int, str, int]) -> dict[str, Any]:
        number, name, audience, stream, time_us, mechanism, noise, scale, first, last, reason, state, _ = row
        devices, device, charge = group
        return {
            **{"number": number, "name": name, "audience": audience, "stream": stream, "first": first, "last": last},
            **{"time": instant_text(instant(time_us)), "mechanism": mechanism, "noise": noise, "scale": scale},
            **{"reason": reason, "state": state, "devices": devices, "charge": nats(charge)},
            # An audience is told of how many devices its releases are, and not of which.
            "device": device if devices == 1 and self.audience is None else "",
        }

    def _budgets(self, ledger: Ledger, device: str) -> dict[str, Any]:
        with ledger.snapshot():
            found = [one for one in ledger.accounts_of(device) if self.audience in (None, one.key.audience)]
            promised = {one.key.audience: ledger.promised(one.key.audience) for one in found}
        return {"budgets": [_budget(one, promised[one.key.audience]) for one in found]}


def _budget(account: Account, promised: tuple[float, str] | None) -> dict[str, Any]:
    epsilon, adversary = promised or (None, "")
    return {
        **{"stream": account.key.stream, "audience": account.key.audience, "epsilon": epsilon, "adversary": adversary},
        **{"allowance": nats(account.allowance), "base": nats(account.base), "spent": nats(account.spent_together)},
        **{"left": nats(account.remaining), "first": account.first, "last": account.last},
        **{"together": account.together, "alone": account.exclusive, "mechanism": account.mechanism},
    }
