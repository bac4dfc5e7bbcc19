"""Lines that the page reads of a ledger, in a file and on a server, while a gateway writes it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from fugu.host.database import DatabaseError
from gateway.page.ledger_view import PAGE_ENTRIES, LedgerView
from gateway.releases.entries import Content
from gateway.releases.ledger import Ledger
from gateway.store.location import Location
from tests.support.ledgers import ALLOWED, allow, key, open_ledger, release, reserve

SUMS = "70211947"


def numbers(page: dict[str, Any]) -> list[int]:
    return [row["number"] for row in page["entries"]]


def everything(view: LedgerView, *devices: str) -> str:
    """All that a view says."""
    return repr([view.page("", 2**62), *(view.budgets(device) for device in devices)])


def test_entries_come_newest_first_in_pages_and_of_one_audience(location: Location) -> None:
    view = LedgerView(location)
    with closing(open_ledger(location, "watch", "ring")) as ledger:
        allow(ledger, "watch", audiences=["lab"])
        for number in range(PAGE_ENTRIES + 3):
            ticks = (10 * number, 10 * number + 9)
            reserve(ledger, release(*ticks, ALLOWED, "watch", "ring"))
        reserve(ledger, release(0, 9, ALLOWED // 3, audience="lab", topic="fugu/2/home/release/lab/count"))
        ledger.mark(2, "published")
        first = view.page("", 2**62)
        assert numbers(first) == list(range(PAGE_ENTRIES + 4, 4, -1))
        assert first["more"]
        second = view.page("", first["entries"][-1]["number"])
        assert (numbers(second), second["more"]) == ([4, 3, 2, 1], False)
        assert [row["state"] for row in second["entries"]] == ["reserved", "reserved", "published", "reserved"]
        assert numbers(view.page("lab", 2**62)) == [PAGE_ENTRIES + 4]
        assert view.page("nobody", 2**62)["entries"] == []
        assert first["audiences"] == ["lab", "public", "site"]
    newest, before = first["entries"][:2]
    assert (newest["audience"], newest["device"], newest["devices"], newest["charge"]) == ("lab", "watch", 1, 0.1)
    assert (before["audience"], before["device"], before["devices"], before["charge"]) == ("public", "", 2, 0.3)
    assert (before["stream"], before["first"], before["last"]) == ("hr", 520, 529)
    assert before["time"] == "1970-01-01T00:00:00.000005Z"


def test_a_budget_is_what_is_charged_to_the_tick_that_was_charged_most(location: Location) -> None:
    with closing(open_ledger(location, "watch", base=ALLOWED // 4)) as ledger:
        allow(ledger, "watch", audiences=["lab"])
        allow(ledger, "ring", audiences=["lab"])
        reserve(ledger, release(0, 9, ALLOWED // 4))
        reserve(ledger, release(5, 14, ALLOWED // 4))
        remaining = ledger.account(key()).remaining
    lab, public = LedgerView(location).budgets("watch")["budgets"]
    assert (public["audience"], public["stream"], public["epsilon"], public["adversary"]) == (
        *("public", "hr", 1.0),
        "informed",
    )
    assert (public["allowance"], public["base"], public["spent"], public["remaining"]) == (0.3, 0.075, 0.15, 0.075)
    assert public["remaining"] == remaining / 10**12
    assert (public["first"], public["last"]) == (0, 14)
    assert (lab["audience"], lab["spent"], lab["remaining"], lab["first"]) == ("lab", 0.0, 0.3, -1)
    view = LedgerView(location)
    assert view.budgets("nobody") == {"budgets": []}
    assert len(view.budgets("watch")["budgets"]) == 2, "each device's own, also a moment later"


def test_a_budget_is_what_all_streams_that_move_together_have_spent(location: Location) -> None:
    with closing(open_ledger(location, "watch", "ring")) as ledger:
        ledger.charge_together([[("watch", "hr"), ("ring", "hr")]], time_us=1)
        reserve(ledger, release(0, 9, ALLOWED // 3))
    for device in ("watch", "ring"):
        (budget,) = LedgerView(location).budgets(device)["budgets"]
        assert (budget["spent"], budget["remaining"]) == (0.1, 0.2)


def test_the_view_of_an_audience_has_nothing_of_others_and_names_no_device(tmp_path: Path) -> None:
    location = tmp_path / "l.sqlite"
    with closing(open_ledger(location, "watch")) as ledger:
        allow(ledger, "watch", audiences=["lab"])
        allow(ledger, "watch", audiences=["doctor"])
        for audience in ("public", "lab", "doctor"):
            topic = f"fugu/2/home/release/{audience}/count"
            reserve(ledger, release(0, 9, ALLOWED // 3, audience=audience, topic=topic))
    view = LedgerView(location, "lab")
    assert view.view == "of audience lab"
    page = view.page("public", 2**62)  # whoever asks for another is given their own
    assert (numbers(page), page["audiences"]) == ([2], ["lab"])
    (budget,) = view.budgets("watch")["budgets"]
    assert budget["audience"] == "lab"
    text = everything(view, "watch")
    assert "public" not in text
    assert "doctor" not in text
    assert "watch" not in text
    assert "watch" in everything(LedgerView(location), "watch")


def test_sums_before_noise_and_what_was_published_are_in_no_answer(location: Location) -> None:
    with closing(open_ledger(location)) as ledger:
        inside = Content(f"payload {SUMS}".encode(), f'["{SUMS}"]'.encode(), f'[{{"sum": {SUMS}}}]'.encode())
        ledger.reserve(release(0, 9), lambda _: inside, time_us=5)
        with ledger.snapshot() as rows:
            assert SUMS in repr(list(rows.entries()))
    text = everything(LedgerView(location), "watch")
    assert "'number': 1" in text
    assert SUMS not in text


def test_a_ledger_that_is_not_there_or_damaged_is_said_and_seen_again_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.page.ledger_view._FRESH_SECONDS", 0.0)
    assert "no ledger" in LedgerView(None).page("", 2**62)["problem"]
    assert LedgerView(None).view is None
    path = tmp_path / "l.sqlite"
    view = LedgerView(path)
    assert view.page("", 2**62) == {"problem": "The ledger cannot be read: there is no ledger l.sqlite."}
    assert not path.exists()
    path.write_bytes(b"no database" * 1000)
    assert "cannot be read" in view.budgets("watch")["problem"]
    path.unlink()
    with closing(open_ledger(path)) as ledger:
        reserve(ledger, release(0, 9))
    assert numbers(view.page("", 2**62)) == [1]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cannot be read" in view.page("", 2**62)["problem"]
    path.write_bytes(
        whole[: len(whole) // 4] + b"\xff" * (len(whole) - len(whole) // 4)
    )  # it opens, and cannot be read
    assert "cannot be read" in view.page("", 2**62)["problem"]
    (tmp_path / "other.sqlite").write_bytes(b"")
    assert "is no ledger" in LedgerView(tmp_path / "other.sqlite").page("", 2**62)["problem"]


def test_who_only_reads_can_write_nothing(location: Location) -> None:
    open_ledger(location).close()
    with closing(Ledger(location, read_only=True)) as ledger:
        assert [account.key for account in ledger.accounts()] == [key()]
        with pytest.raises((DatabaseError, FuguError)):
            reserve(ledger, release(0, 9))
        with pytest.raises((DatabaseError, FuguError)):
            allow(ledger, "ring")
    with closing(Ledger(location)) as ledger:
        assert (ledger.newest_entry, len(ledger.accounts())) == (0, 1)


def test_a_file_is_read_without_a_byte_changed_and_nobody_waits(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with closing(open_ledger(path)) as ledger:
        reserve(ledger, release(0, 9))
    before = path.read_bytes()
    assert numbers(LedgerView(path).page("", 2**62)) == [1]
    assert path.read_bytes() == before
    with closing(Ledger(path)) as writer, closing(Ledger(path, read_only=True)) as reader:
        with writer.transaction():  # a look does not wait for a gateway that is writing
            assert numbers(LedgerView(path).page("", 2**62)) == [1]
        with reader.snapshot() as rows:  # nor a gateway for a look
            assert rows.entry_count() == 1
            reserve(writer, release(10, 19))
            assert rows.entry_count() == 1
        assert numbers(LedgerView(path).page("", 2**62)) == [2, 1]
