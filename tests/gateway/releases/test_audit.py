"""A change of a ledger behind its back is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.releases.ledger import Ledger
from tests.support.ledgers import ALLOWED, charges_replayed, open_ledger, release, reserve


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring", allowance=ALLOWED)
    for first in range(0, 50, 10):
        reserve(ledger, release(first, first + 19, ALLOWED // 2, "watch", "ring"), bytes([0, first]))
    assert charges_replayed(ledger).problems == ()
    return ledger


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE runs SET charge=charge-1 WHERE first=0", "charges are not those of its entries"),
        ("DELETE FROM runs WHERE account=1", "watch/hr, audience public: its charges are not those"),
        ("UPDATE runs SET last=last+1", "charges are not those of its entries"),
        ("DELETE FROM entries WHERE number=3", "entry 3: is missing"),
        ("UPDATE entries SET last=last+30 WHERE number=1", "ticks 10..29 reached|ticks 20..39 reached"),
        ("UPDATE members SET charge=charge-1", "charges are not those of its entries"),
        ("UPDATE members SET charge=0 WHERE device='ring'", "charges nothing and does not say why"),
        ("DELETE FROM members", "entry 1: has no devices"),
        ("UPDATE accounts SET allowance=allowance+1", "its allowance is not the last one recorded"),
        ("UPDATE accounts SET base=1", "its allowance is not the last one recorded"),
        ("UPDATE allowances SET allowance=1", "reached"),
        ("UPDATE accounts SET exclusive=2", "its exclusive release is not that of its entries"),
        ("INSERT INTO runs VALUES (77, 0, 9, 1)", "account 77: has charges and does not exist"),
        ("UPDATE entries SET exclusive=1 WHERE number=2", "does not compose"),
    ],
)
def test_a_change_is_found(ledger: Ledger, change: str, problem: str) -> None:
    ledger._db.execute(change)
    problems = charges_replayed(ledger).problems
    assert any(part in line for line in problems for part in problem.split("|")), problems
    assert all("\n" not in problem for problem in problems)


def test_what_was_seen_published_must_be_in_the_ledger_as_it_was(ledger: Ledger) -> None:
    assert charges_replayed(ledger, {1: bytes([0, 0]), 2: bytes([0, 10])}).problems == ()
    assert charges_replayed(ledger, {1: bytes([0, 1])}).problems == ("entry 1: is not what was published",)
    assert charges_replayed(ledger, {6: bytes([0, 50])}).problems == ("entry 6: is not what was published",)
