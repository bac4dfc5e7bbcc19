"""A window of a group at the gateway, from both sides of each boundary, on a clock that the test sets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.envelope import Envelope, sign
from fugu.contract.frames import sequence_name
from fugu.contract.group_frames import OpeningAnswer, OpeningRequest, Report, packed
from fugu.contract.groups import SharedWindow
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import topic_of
from gateway.estimates.catalogue import Catalogue
from gateway.loop.recorder import Recorder
from gateway.loop.sums import Reports, Sums
from gateway.parts.part import Message
from gateway.releases.entries import LedgerError
from gateway.releases.ledger import Ledger
from gateway.releases.maker import Maker
from gateway.releases.setup import history_in_store
from gateway.releases.sums import release_sum
from gateway.store.store import Store
from tests.support.groups import HELPER, Member, member_policy, signed
from tests.support.opening import DOCUMENT, HOMES, Helper

WINDOW = SharedWindow.of(signed(DOCUMENT))
NUMBER = 5
DUE = DOCUMENT.due_us(NUMBER)
ANSWER = topic_of("group_answer", "home", DOCUMENT.name)


class Line:
    """A connection that takes everything; `said` is what was published."""

    def __init__(self) -> None:
        self.connected = True
        self.said: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        del retain
        if self.connected:
            self.said.append((topic, payload))
        return len(self.said) if self.connected else None


class Releasing:
    """The ledger of a store, and what was reserved in it."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker

    def also(self, names: Any) -> None:
        self.names = list(names)

    def release(self, opened: Any) -> None:
        release_sum(self.maker, opened)


class Site:
    """A gateway's parts that sums need, on one store; `counts` are what the homes have counted."""

    def __init__(self, folder: Path) -> None:
        self.now_us = DOCUMENT.begins_us(NUMBER)
        self.store = Store(folder / "store.sqlite")
        self.catalogue = Catalogue("home")
        for home in HOMES:
            self.catalogue.add(member_policy(home.name, WINDOW))
        self.counters: Counter[str] = Counter()
        self.recorder = Recorder(self.store, self.catalogue, 0, self.counters)
        self.owed: list[str] = []
        self.ledger = Ledger(folder / "ledger.sqlite")
        history = partial(history_in_store, self.store, self.catalogue)
        maker = Maker(self.store, self.catalogue, self.ledger, lambda below: 0, lambda: self.now_us, history)
        self.lost: list[tuple[str, str]] = []
        self.line = Line()
        self.seconds = 0.0
        now = lambda: self.now_us  # noqa: E731
        self.reports = Reports(
            *(self.store, self.catalogue, self.recorder, self.counters, self.owed.append),
            *(lambda _device, _reason: None, lambda _heard: None, now),
        )
        self.sums = Sums(
            *(self.store, self.catalogue, self.line, Releasing(maker), self.counters),  # type: ignore[arg-type]
            *(lambda name, why: self.lost.append((name, why)), now, lambda: self.seconds),
        )
        self.sums.pump()  # what was due before the group came is nobody's

    def report(
        self, place: int, helper: Helper, count: int, number: int = NUMBER, previous: int = -1, key: int | None = None
    ) -> None:
        """Let a home report a count, with the key of another if that is said; a generator gives its mask."""
        home = HOMES[place] if key is None else Member(HOMES[place].name, HOMES[key].key)
        mask = random.Random(place).getrandbits(64)
        sealed = home.sealed(helper.key, DOCUMENT, number, [mask])
        report = Report(1, DOCUMENT.name, previous, number, DOCUMENT.digest, (10,), packed([count - mask]), sealed)
        self.reports.heard(Message(topic_of("report", "home", home.name, "power"), report.encode()))
        self.reports.pump()

    def round(self) -> list[OpeningRequest]:
        """A round of work; what was asked in it."""
        before = len(self.line.said)
        for _ in range(3):
            self.sums.pump()
        return [OpeningRequest.decode(payload) for _, payload in self.line.said[before:]]

    def released(self) -> list[ReleaseFrame]:
        """The releases in the ledger."""
        return [ReleaseFrame.decode(bytes(entry.payload)) for entry in self.ledger.entries()]

    def answer(self, payload: bytes) -> None:
        self.sums.heard(Message(ANSWER, payload))
        self.sums.pump()

    def close(self) -> None:
        self.store.close()
        self.ledger.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with closing(Site(tmp_path)) as made:
        yield made


@pytest.fixture
def helper() -> Helper:
    return Helper()


def take(helper: Helper, asked: Sequence[OpeningRequest]) -> bytes:
    """The helper's answer to the pages of a request."""
    (answer,) = [one for page in asked if (one := helper.group.take(page, helper.elapsed)) is not None]
    return answer


def altered(answer: bytes, **changes: Any) -> bytes:
    """The helper's answer with other words in it, signed by the helper as well."""
    from dataclasses import replace

    told = OpeningAnswer.decode(Envelope.decode(answer).payload)
    return sign("answer", replace(told, **changes).encode(), [HELPER]).encode()


def settled(site: Site, helper: Helper, homes: int = 5) -> list[OpeningRequest]:
    """A window that is due, with so many reports; what was asked."""
    for place in range(homes):
        site.report(place, helper, place)
    site.now_us = DUE
    return site.round()


def test_a_window_is_settled_at_its_deadline_and_opens_as_the_sum(site: Site, helper: Helper) -> None:
    for place in range(5):
        site.report(place, helper, place)
    assert site.owed == [home.name for home in HOMES[:5]]
    coverage, _ = site.recorder.known(HOMES[0].name, sequence_name("power", DOCUMENT.name))
    assert coverage.end == NUMBER
    site.now_us = DUE - 1
    assert site.round() == []
    site.now_us = DUE
    asked = site.round()
    assert [one.device for one in asked[0].reports] == [home.name for home in HOMES[:5]]
    site.answer(take(helper, asked))
    (frame,) = site.released()
    assert frame.values == (10.0,)
    assert (frame.devices, frame.observed, frame.honest, frame.charge) == (5, 50, 3, 0.0)
    assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == []
    assert site.store.sums.asked() == []


@pytest.mark.parametrize(("homes", "asks"), [(DOCUMENT.least - 1, False), (DOCUMENT.least, True)])
def test_too_few_are_lost_and_nothing_is_asked(site: Site, helper: Helper, homes: int, asks: bool) -> None:
    assert bool(settled(site, helper, homes)) == asks
    assert bool(site.lost) != asks
    assert bool(site.store.sums.reports(DOCUMENT.digest, NUMBER)) == asks


def test_two_devices_of_one_key_are_one_member(site: Site, helper: Helper) -> None:
    for place in range(DOCUMENT.least - 1):
        site.report(place, helper, place)
    site.report(5, helper, 5, key=0)
    site.now_us = DUE
    assert site.round() == []
    assert site.lost


def test_a_late_report_is_acknowledged_and_kept_nowhere(site: Site, helper: Helper) -> None:
    asked = settled(site, helper, 4)
    site.report(4, helper, 4)
    assert site.counters["report_late"] == 1
    assert site.owed[-1] == HOMES[4].name
    site.now_us = DUE - 1  # this machine's clock is set back
    site.report(5, helper, 5)
    assert site.counters["report_late"] == 2
    assert site.round() == []
    assert len(site.store.sums.reports(DOCUMENT.digest, NUMBER)) == len(asked[0].reports) == 4


def test_a_clock_that_was_set_years_ahead_loses_no_later_window(site: Site, helper: Helper) -> None:
    site.report(0, helper, 0)
    site.now_us += 400 * 86_400_000_000
    site.round()
    assert site.lost == [(DOCUMENT.name, f"fewer than {DOCUMENT.least} homes have reported")]
    site.now_us = DOCUMENT.begins_us(NUMBER + 2)
    for place in range(5):
        site.report(place, helper, place, number=NUMBER + 1)
    site.now_us = DOCUMENT.due_us(NUMBER + 1)
    assert [one.number for one in site.round()] == [NUMBER + 1]


def test_a_report_that_comes_again_is_one_and_another_is_a_conflict(site: Site, helper: Helper) -> None:
    site.report(0, helper, 0)
    kept = site.store.sums.reports(DOCUMENT.digest, NUMBER)
    site.report(0, helper, 7)
    assert site.counters["report_conflict"] == 1
    assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == kept


def test_the_same_bytes_are_sent_each_minute_and_after_a_restart(site: Site, helper: Helper) -> None:
    settled(site, helper)
    first = site.line.said[:]
    assert site.round() == []
    site.seconds += 59.0
    assert site.round() == []
    site.seconds += 2.0
    site.round()
    site.sums.connected(begun_anew=True)
    site.round()
    assert site.line.said == first * 3


def test_without_a_connection_a_request_begins_anew_with_its_first_page(site: Site, helper: Helper) -> None:
    site.line.connected = False
    assert settled(site, helper) == []
    site.line.connected = True
    assert [one.page for one in site.round()] == [0]


def test_only_the_first_answer_to_the_very_set_opens_it(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper))
    for bad in (
        altered(good, request=bytes(32)),
        altered(good, number=NUMBER + 1),
        altered(good, group="other"),
        altered(good, fleet="away"),
        altered(good, bitmap=b"\x80"),
        altered(good, bitmap=b"\xf8\x80"),
        altered(good, sums=bytes(16)),
    ):
        site.answer(bad)
        assert site.released() == []
    site.answer(good)
    site.answer(altered(good, sums=bytes(8)))
    (frame,) = site.released()
    assert frame.values == (10.0,)


def test_an_answer_of_another_root_is_none(site: Site, helper: Helper) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    good = take(helper, settled(site, helper))
    told = Envelope.decode(good)
    site.answer(sign("answer", told.payload, [Ed25519PrivateKey.from_private_bytes(b"x" * 32)]).encode())
    assert site.released() == []
    assert site.counters["wrong_role"] == 1


def test_a_reason_is_final(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper))
    site.answer(altered(good, reason="key-gone", sums=b""))
    assert site.lost == [(DOCUMENT.name, "its helper no longer has the key that opens it")]
    site.answer(good)
    assert site.released() == []
    assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == []


def test_a_helper_that_is_silent_for_a_day_loses_the_window(site: Site, helper: Helper) -> None:
    settled(site, helper)
    site.now_us = DUE + 86_400_000_000
    site.round()
    assert site.lost == []
    site.now_us += 1
    site.round()
    assert site.lost == [(DOCUMENT.name, "its helper has not answered for a day")]
    assert site.store.sums.asked() == []


def test_a_sum_without_a_home_that_was_forgotten_opens_nothing(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper, 6))
    with site.store.transaction():
        assert site.store.aged.forget(HOMES[1].name) is not None
    site.answer(good)
    site.answer(altered(good, bitmap=b"\xf0"))  # of homes that are there, were their places the same
    assert site.released() == []
    assert all(one.sealed.device != HOMES[1].name for one in site.store.sums.reports(DOCUMENT.digest, NUMBER))


def test_killed_between_ledger_and_store_it_is_released_once(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper))
    remove, site.sums._remove = site.sums._remove, lambda _asked: (_ for _ in ()).throw(LedgerError("killed"))  # type: ignore[method-assign]
    with pytest.raises(LedgerError):
        site.answer(good)
    site.sums._remove = remove  # type: ignore[method-assign]
    site.sums._answers.clear()
    site.answer(good)
    assert site.lost == []
    assert len(site.released()) == 1
    assert site.store.sums.asked() == []


def test_reports_that_no_policy_has_are_refused(site: Site, helper: Helper) -> None:
    sealed = HOMES[0].sealed(helper.key, DOCUMENT, NUMBER, [1])
    for changes in (
        {"window": "other"},
        {"policy_version": 2},
        {"document": bytes(32)},
        {"observed": (11,)},
        {"number": NUMBER + 100},
    ):
        fields = {"policy_version": 1, "window": DOCUMENT.name, "previous": -1, "number": NUMBER}
        fields |= {"document": DOCUMENT.digest, "observed": (10,), "parts": bytes(8), "sealed": sealed, **changes}
        report = Report(**fields)  # type: ignore[arg-type]
        site.reports.heard(Message(topic_of("report", "home", HOMES[0].name, "power"), report.encode()))
    site.reports.pump()
    assert site.owed == []
    assert site.store.sums.waiting(DOCUMENT.digest, NUMBER) == []
