"""A window of a group at the gateway, from both sides of each boundary, on a clock that the test sets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from fugu.contract.envelope import Envelope, sign
from fugu.contract.errors import FuguError
from fugu.contract.frames import sequence_name
from fugu.contract.group_frames import OpeningAnswer, Report, SealedMasks, header, pack_numbers
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.timeline import Drawn
from fugu.contract.topics import topic_of
from fugu.host.database import DatabaseError
from gateway.estimates.catalogue import Catalogue
from gateway.parts import Message
from gateway.releases.allowance import joint_loss
from gateway.releases.audit import TrustedPolicies, verify
from gateway.releases.charges import units_above
from gateway.releases.config import Audience, ReleaseConfig, ScheduledRelease
from gateway.releases.entries import Entry, Release
from gateway.releases.jobs import Job, jobs
from gateway.releases.ledger import Ledger
from gateway.releases.maker import Maker
from gateway.releases.statistics import noise_variance
from gateway.releases.sums import SumReleases
from gateway.store.coverage import Span
from gateway.store.engine import LedgerError
from gateway.store.location import Server
from tests.support.groups import HELPER, Member, group, member_policy, signed
from tests.support.opening import DOCUMENT, HOMES, Helper
from tests.support.scenes import policy
from tests.support.summing import ANSWER, DUE, NUMBER, WINDOW, Site, settled, take

CLOCK_SET_BACK = [Span(0, 0, 59), Span(40, 60, 99)]
"""At number 60 the clock was set back by 40 ticks."""


def unopened(name: str, document: GroupDocument, ciphertext: bytes) -> SealedMasks:
    """Signed masks that no helper could open."""
    head = header("home", name, document.digest, bytes(32), NUMBER)
    return Member(name).signed(bytes(32), head, ciphertext)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with closing(Site(tmp_path)) as opened:
        yield opened


@pytest.fixture
def helper() -> Helper:
    return Helper()


def altered(answer: bytes, **changes: Any) -> bytes:
    """The helper's answer with other words in it, signed by the helper as well."""
    from dataclasses import replace

    opening = OpeningAnswer.decode(Envelope.decode(answer).payload)
    return sign("answer", replace(opening, **changes).encode(), [HELPER]).encode()


def test_a_window_is_settled_at_its_deadline_and_opens_as_the_sum(site: Site, helper: Helper) -> None:
    for place in range(5):
        site.report(place, helper, place)
    assert site.owed == [home.name for home in HOMES[:5]]
    coverage, _ = site.recorder.coverage_of(HOMES[0].name, sequence_name("power", DOCUMENT.name))
    assert coverage.end == NUMBER
    site.now_us = DUE - 1
    assert site.round() == []
    site.now_us = DUE
    asked = site.round()
    assert [report.device for report in asked[0].reports] == [home.name for home in HOMES[:5]]
    site.answer(take(helper, asked))
    (frame,) = site.released()
    assert frame.values == (10.0,)
    assert (frame.devices, frame.observed, frame.honest, frame.charge) == (5, 50, 3, 0.0)
    assert frame.standard_errors == pytest.approx([(5 / 3 * noise_variance(Fraction(frame.scale))) ** 0.5])
    assert site.ledger.progress("street") == 10 * (NUMBER + 1)
    assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == []
    assert site.store.sums.openings() == []


def test_blocks_of_a_day_are_released_each_under_a_name_that_no_group_has(tmp_path: Path) -> None:
    blocks = {"zone": "UTC", "seconds": 21_600, "offsets": ((0, 0),)}
    document = group(blocks=blocks, length=86_400)
    names = document.release_names
    assert names == ("street-0", "street-1", "street-2", "street-3")
    for name in names:
        with pytest.raises(ValidationError, match="does not end in - and digits"):
            group(name=name)
    homes = [home.name for home in HOMES[:3]]
    with closing(Site(tmp_path, document, homes)) as site:
        site.now_us = document.begins_us(NUMBER + 1)
        for place, name in enumerate(homes):
            sealed = unopened(name, document, bytes(1168))
            parts = pack_numbers([place, 10 * place, 0, 1])
            report = Report(1, document.name, -1, NUMBER, document.digest, (9, 9, 9, 9), parts, sealed)
            site.reports.heard(Message(topic_of("report", "home", name, "power"), report.encode()))
        site.reports.pump()
        site.now_us = document.due_us(NUMBER)
        (asked,) = site.round()
        window = document.digest, NUMBER, asked.request
        answer = OpeningAnswer("home", document.name, *window, "", b"\xe0", pack_numbers([0, 5, 0, 0]))
        site.answer(sign("answer", answer.encode(), [HELPER]).encode())
        assert [(frame.name, frame.values) for frame in site.released()] == [
            *(("street-0", (3.0,)), ("street-1", (35.0,)), ("street-2", (0.0,)), ("street-3", (3.0,)))
        ]
        (day,) = site.store.versions.timeline(homes[0], "power").intervals
        assert day.absent == 86_400 - 36, "a tick is in one block: its ticks count, not those of one block"


PRESS: Adversary = "universal"


def config_of(**audiences: float) -> ReleaseConfig:
    """Audiences that are told the sums of the group, with their epsilons."""
    every = audiences.items()
    return ReleaseConfig(
        audiences={name: Audience(epsilon=most, adversary=PRESS, sums=("street",)) for name, most in every}
    )


@pytest.fixture(scope="module")
def least() -> float:
    """The epsilon of an audience that a home of the group leaves just enough to be told of its sums."""
    policy = member_policy("home-0", WINDOW)
    return joint_loss(policy.chains, units_above(policy.window_rate), PRESS)


def test_an_audience_may_be_told_and_another_may_not(tmp_path: Path, helper: Helper, least: float) -> None:
    releases = config_of(press=least * 1.001, street=least * 0.999)
    with closing(Site(tmp_path, releases=releases)) as site:
        site.answer(take(helper, settled(site, helper)))
        own, press = site.released()
        assert (own.audience, press.audience) == ("site", "press")
        assert (press.values, press.epsilon, press.adversary) == ((10.0,), least * 1.001, PRESS)
        assert press.condition == own.condition == WINDOW.condition
        (refused,) = site.releasing.refused
        assert refused.keys() == {"street"}
        assert site.releasing.impossible.keys() == {"street"}
        assert "power, audience street: nothing can be released" in site.releasing.impossible["street"]
        assert site.releasing.topics == {
            f"fugu/2/home/release/{audience}/street" for audience in ("site", "press", "street")
        }
        policies = TrustedPolicies(member_policy(home.name, WINDOW) for home in HOMES)
        assert verify(site.ledger, policies=policies).problems == ()


def test_a_window_of_which_nobody_may_be_told_is_not_asked_for(tmp_path: Path, helper: Helper, least: float) -> None:
    with closing(Site(tmp_path, releases=config_of(press=least * 2))) as site:
        site.ledger.begin([(HOMES[4].name, "power", WINDOW.group.start + 60)], "other", "store")
        assert settled(site, helper) == []
        ((group, why),) = site.lost
        assert (group, site.store.sums.reports(DOCUMENT.digest, NUMBER)) == ("street", [])
        assert "ticks 50..59 are refused" in why
        assert site.counters["sums_asked"] == 0


def test_killed_between_two_audiences_a_sum_is_released_to_both_or_none(
    tmp_path: Path, helper: Helper, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Site(tmp_path, releases=config_of(press=least * 2))) as site:
        good = take(helper, settled(site, helper))
        reserve, calls = Ledger.reserve, list[str]()

        def killed(self: Ledger, release: Release, *rest: Any, **more: Any) -> Entry:
            calls.append(release.audience)
            if len(calls) == 2:
                raise DatabaseError("killed")
            return reserve(self, release, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "reserve", killed)
            with pytest.raises(DatabaseError):
                site.answer(good)
        assert (calls, site.released()) == (["site", "press"], [])
        site.sums._answers.clear()  # the process that begins anew has none
        site.answer(good)
        assert [frame.audience for frame in site.released()] == ["site", "press"]
        assert site.lost == []


def test_a_release_that_is_called_like_a_sum_or_is_of_no_group_is_refused(tmp_path: Path, helper: Helper) -> None:
    words: dict[str, Any] = {"name": "street", "stream": "power", "query": "count", "states": ("high",), "length": 10}
    release = ScheduledRelease(**words, audience="site", scale="1")
    with closing(Site(tmp_path)) as site:
        with pytest.raises(FuguError, match="is called like the sums of a group"):
            jobs(ReleaseConfig(releases=(release,)), site.catalogue)
        other = {"press": Audience(epsilon=1.0, adversary=PRESS, sums=("stret",))}
        with pytest.raises(FuguError, match="no policy has a sum of a group stret"):
            jobs(ReleaseConfig(audiences=other), site.catalogue)
        site.releasing.sums = SumReleases(site.releasing.maker, {}, ["street"])  # its group came later
        assert settled(site, helper) == []
        assert "is called street as well" in site.lost[0][1]


def test_a_release_of_each_device_may_not_be_called_like_a_block_of_a_sum(tmp_path: Path) -> None:
    """Else the ledger would take its window for one of the block, and the sum would be lost without a word."""
    blocks = {"zone": "UTC", "seconds": 21_600, "offsets": ((0, 0),)}
    words: dict[str, Any] = {"name": "street", "stream": "hr", "query": "count", "states": ("level 1",), "length": 10}
    releases = ReleaseConfig(releases=(ScheduledRelease(**words, audience="site", scale="1", per_device=True),))
    catalogue = Catalogue("home")
    catalogue.add(policy(device="0"))
    (job,) = jobs(releases, catalogue)
    assert (job.name, job.taken_names) == ("street-0", {"street", "street-0"})
    catalogue.add(member_policy("home-0", SharedWindow.of(signed(group(blocks=blocks, length=86_400)))))
    with pytest.raises(FuguError, match="release street-0 is called like the sums of a group"):
        jobs(releases, catalogue)


@pytest.mark.processes
@pytest.mark.parametrize("shards", [1, 3])
def test_on_a_server_shards_take_reports_and_one_process_opens_their_sum(
    server: Server, tmp_path: Path, helper: Helper, shards: int
) -> None:
    with closing(Site(tmp_path, location=server, shards=shards)) as site:
        asked = settled(site, helper)
        site.report(5, helper, 5)  # late
        assert len(asked[0].reports) == 5
        site.answer(take(helper, asked))
        (frame,) = site.released()
        assert (frame.devices, frame.values) == (5, (10.0,))
        assert (site.counters["report_stored"], site.counters["report_late"]) == (5, 1)
        assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == []


def test_parts_are_in_a_file_that_nobody_copies_and_in_none_once_the_sum_is_open(
    site: Site, helper: Helper, tmp_path: Path
) -> None:
    asked = settled(site, helper)
    parts = [bytes(report.parts) for report in site.store.sums.chosen(DOCUMENT.digest, NUMBER)]
    assert len(parts) == 5

    def holding() -> set[str]:
        files = {file for file in tmp_path.iterdir() for part in parts if part in file.read_bytes()}
        return {file.name.removesuffix("-wal") for file in files}

    assert holding() == {"store-reports.sqlite"}
    site.answer(take(helper, asked))
    assert len(site.released()) == 1
    assert holding() == set()


@pytest.mark.long
@pytest.mark.parametrize("homes", [60, pytest.param(10_000, marks=pytest.mark.soak)])
def test_reports_of_many_homes_become_one_sum(tmp_path: Path, homes: int) -> None:
    """The helper's part is in test_helper_program.py."""
    document, names = group(honest=homes // 2, colluding=homes // 10), [f"home-{i}" for i in range(homes)]
    messages, masks, draw = list[Message](), 0, random.Random(1)
    for place, name in enumerate(names):
        mask, ciphertext = draw.getrandbits(64), draw.randbytes(1144)
        sealed = unopened(name, document, ciphertext)
        report = Report(1, document.name, -1, NUMBER, document.digest, (10,), pack_numbers([place - mask]), sealed)
        messages.append(Message(topic_of("report", "home", name, "power"), report.encode()))
        masks += mask
    with closing(Site(tmp_path, document, names)) as site:
        for some in range(0, homes, 256):
            for message in messages[some : some + 256]:
                site.reports.heard(message)
            site.reports.pump()
        site.now_us = document.due_us(NUMBER)
        asked = site.round()
        while len(asked) < asked[0].pages:
            asked += site.round()
        bitmap = ((1 << homes) - 1 << -homes % 8).to_bytes(-(-homes // 8), "big")
        window = document.digest, NUMBER, asked[0].request
        answer = OpeningAnswer("home", document.name, *window, "", bitmap, pack_numbers([masks]))
        site.answer(sign("answer", answer.encode(), [HELPER]).encode())
        (frame,) = site.released()
    assert (frame.devices, frame.values[0]) == (homes, homes * (homes - 1) / 2)


@pytest.mark.parametrize(("homes", "asks"), [(DOCUMENT.quorum - 1, False), (DOCUMENT.quorum, True)])
def test_too_few_are_lost_and_nothing_is_asked(site: Site, helper: Helper, homes: int, asks: bool) -> None:
    assert bool(settled(site, helper, homes)) == asks
    assert bool(site.lost) != asks
    assert bool(site.store.sums.reports(DOCUMENT.digest, NUMBER)) == asks


@pytest.mark.parametrize("most", [4, 5])
def test_more_homes_than_a_helper_adds_up_are_lost_at_once(
    site: Site, helper: Helper, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("gateway.loop.sums.MAX_REPORTS", most)
    assert len(settled(site, helper, 5)) == most - 4
    assert site.lost == [("street", "more than 4 homes have reported, and a helper adds up no more")][: 5 - most]
    assert len(site.store.sums.reports(DOCUMENT.digest, NUMBER)) == 5 * (most - 4)


def test_two_devices_of_one_key_are_one_member(site: Site, helper: Helper) -> None:
    for place in range(DOCUMENT.quorum - 1):
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


def test_a_report_is_late_from_the_deadline_on_also_before_its_set_is_fixed(site: Site, helper: Helper) -> None:
    for place, now_us in enumerate((DUE - 1, DUE)):
        site.now_us = now_us
        site.report(place, helper, place)
        assert site.counters["report_late"] == place
    assert len(site.store.sums.reports(DOCUMENT.digest, NUMBER)) == 1


def test_a_clock_that_was_set_years_ahead_loses_no_later_window(site: Site, helper: Helper) -> None:
    site.report(0, helper, 0)
    site.now_us += 400 * 86_400_000_000
    site.round()
    assert site.lost == [(DOCUMENT.name, f"fewer than {DOCUMENT.quorum} homes have reported")]
    site.now_us = DOCUMENT.begins_us(NUMBER + 2)
    for place in range(5):
        site.report(place, helper, place, number=NUMBER + 1)
    site.now_us = DOCUMENT.due_us(NUMBER + 1)
    assert [request.number for request in site.round()] == [NUMBER + 1]


def test_a_report_that_comes_again_is_one_and_another_is_a_conflict(site: Site, helper: Helper) -> None:
    site.report(0, helper, 0)
    reports = site.store.sums.reports(DOCUMENT.digest, NUMBER)
    site.report(0, helper, 7)
    assert site.counters["report_conflict"] == 1
    assert site.store.sums.reports(DOCUMENT.digest, NUMBER) == reports


def test_the_same_bytes_are_sent_each_minute_and_after_a_restart(site: Site, helper: Helper) -> None:
    settled(site, helper)
    first = site.line.sent[:]
    assert site.round() == []
    site.seconds += 59.0
    assert site.round() == []
    site.seconds += 2.0
    site.round()
    site.sums.connected(begun_anew=True)
    site.round()
    assert site.line.sent == first * 3


def test_without_a_connection_a_request_begins_anew_with_its_first_page(site: Site, helper: Helper) -> None:
    site.line.connected = False
    assert settled(site, helper) == []
    site.line.connected = True
    assert [request.page for request in site.round()] == [0]


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
        sign("answer", Envelope.decode(good).payload, [Ed25519PrivateKey.generate()]).encode(),
    ):
        site.answer(bad)
        assert site.released() == []
    site.answer(good)
    site.answer(altered(good, sums=bytes(8)))
    (frame,) = site.released()
    assert frame.values == (10.0,)


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
    assert site.store.sums.openings() == []


def test_a_sum_without_a_home_that_was_forgotten_opens_nothing(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper, 6))
    with site.store.transaction():
        assert site.store.aged.forget(HOMES[1].name) is not None
        site.store.sums.forget(HOMES[1].name)
    site.answer(good)
    site.answer(altered(good, bitmap=b"\xf0"))  # of homes that are there, were their places the same
    assert site.released() == []
    assert all(report.sealed.device != HOMES[1].name for report in site.store.sums.reports(DOCUMENT.digest, NUMBER))
    site.seconds += 61.0
    assert site.round() == [], "the set without it is another one, and is never asked for"
    assert site.lost == [(DOCUMENT.name, "a home of its set has been forgotten")]


@pytest.mark.parametrize("strangers", [(), (5,)])
def test_a_home_that_is_forgotten_after_the_answer_came_leaves_no_sum(
    site: Site, helper: Helper, strangers: tuple[int, ...]
) -> None:
    """Else the masks of some homes would be added to the parts of others."""
    for place in strangers:
        del helper.members[HOMES[place].name]
    good = take(helper, settled(site, helper, 6))
    site.sums.heard(Message(ANSWER, good))
    site.store.sums.forget(HOMES[1].name)
    site.round()
    assert site.released() == []
    assert site.lost == [(DOCUMENT.name, "a home of its set has been forgotten")]
    assert site.store.sums.openings() == []


def test_killed_between_ledger_and_store_it_is_released_once(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper))
    remove, site.sums._remove_set = site.sums._remove_set, lambda _asked: (_ for _ in ()).throw(LedgerError("killed"))
    with pytest.raises(LedgerError):
        site.answer(good)
    site.sums._remove_set = remove
    site.sums._answers.clear()
    site.answer(good)
    assert site.lost == []
    assert len(site.released()) == 1
    assert site.store.sums.openings() == []


def test_reports_that_no_policy_has_are_refused(site: Site, helper: Helper) -> None:
    sealed = HOMES[0].sealed(helper.key, DOCUMENT, NUMBER, [1])
    for changes in (
        {"window": "other"},
        {"policy_version": 2},
        {"document": bytes(32)},
        {"observed": (11,)},
        {"number": NUMBER + 6},  # the first that ends more than a minute ahead
        {"sealed": HOMES[1].sealed(helper.key, DOCUMENT, NUMBER, [1])},
        {"sealed": replace(sealed, member=HOMES[1].public)},  # it would take the place of the other home
        {"sealed": HOMES[0].sealed(helper.key, DOCUMENT, NUMBER - 1, [1])},
    ):
        fields = {"policy_version": 1, "window": DOCUMENT.name, "previous": -1, "number": NUMBER}
        fields |= {"document": DOCUMENT.digest, "observed": (10,), "parts": bytes(8), "sealed": sealed, **changes}
        report = Report(**fields)
        site.reports.heard(Message(topic_of("report", "home", HOMES[0].name, "power"), report.encode()))
    site.reports.pump()
    assert site.owed == []
    assert site.store.sums.waiting_windows(DOCUMENT.digest, NUMBER) == []


@pytest.mark.parametrize(("loud_ticks", "shift"), [((0, 49), 0), ((100, 149), 40)], ids=["before", "after"])
def test_a_sum_states_the_worst_of_what_its_window_may_have_been_when_a_clock_was_set_back(
    tmp_path: Path, loud_ticks: tuple[int, int], shift: int
) -> None:
    """Loud noise is next to the window under one of two shifts; the wall ticks of the window come under both."""
    home, epsilons = HOMES[0].name, []
    quiet, promise = (Guarantee(epsilon=epsilon, adversary="informed") for epsilon in (2.4, 200.0))
    loud = {"table": NoiseTable.binary(SCALE // 100, SCALE // 100), "guarantee": promise, "windows_guarantee": promise}
    for name, spans in {"plain": [Span(shift, shift, 99)], "back": CLOCK_SET_BACK}.items():
        (tmp_path / name).mkdir()
        with closing(Site(tmp_path / name)) as site:
            for each in HOMES:
                site.catalogue.add(member_policy(each.name, WINDOW, version=2, guarantee=quiet))
            site.catalogue.add(member_policy(home, WINDOW, version=3, **loud))
            with site.store.transaction():
                site.store.put_shifts(site.store.number_of(home, "power"), spans, 0)
                timeline = site.store.versions.timeline(home, "power")
                timeline.add(Drawn(0, 99, 2, 0) if shift else Drawn(50, 99, 2, 50))
                timeline.add(Drawn(*loud_ticks, 3, loud_ticks[0]))
                site.store.versions.put(home, "power", timeline, is_whole=True)
            site.answer(take(helper := Helper(), settled(site, helper, version=2)))
            epsilons.append([frame.epsilon for frame in site.released()])
    assert epsilons[0] == epsilons[1]
    assert epsilons[0][0] > 2.4


@pytest.mark.parametrize("refused", [None, 0, 40])
def test_an_audience_is_told_if_each_number_that_a_window_may_have_allows_it(
    tmp_path: Path, helper: Helper, least: float, monkeypatch: pytest.MonkeyPatch, refused: int | None
) -> None:
    home = HOMES[0].name

    def refuse(_self: Maker, _job: Job, release: Release) -> None:
        if release.shifts[home] == refused:
            raise FuguError("next to ticks of which more was told")

    monkeypatch.setattr(Maker, "refuse_leaks", refuse)
    with closing(Site(tmp_path, releases=config_of(press=least * 1.001))) as site:
        with site.store.transaction():
            site.store.put_shifts(site.store.number_of(home, "power"), CLOCK_SET_BACK, 0)
        site.answer(take(helper, settled(site, helper)))
        assert [frame.audience for frame in site.released()] == (["site", "press"] if refused is None else ["site"])


def test_while_a_policy_cannot_be_accounted_for_only_the_site_is_told(
    tmp_path: Path, helper: Helper, least: float
) -> None:
    with closing(Site(tmp_path, releases=config_of(press=least * 1.001))) as site:
        site.releasing.sums.site_only = True
        site.answer(take(helper, settled(site, helper)))
        assert [frame.audience for frame in site.released()] == ["site"]


def test_the_first_of_two_answers_counts_and_none_that_comes_under_another_name(site: Site, helper: Helper) -> None:
    good = take(helper, settled(site, helper))
    site.sums.heard(Message(topic_of("group_answer", "home", "other"), good))
    site.sums.pump()
    assert site.released() == []
    site.sums.heard(Message(ANSWER, good))
    site.sums.heard(Message(ANSWER, altered(good, reason="too-few", sums=b"")))
    site.sums.pump()
    assert (len(site.released()), site.lost) == (1, [])


def test_a_report_is_dated_in_the_numbers_of_its_stream(site: Site, helper: Helper) -> None:
    home = HOMES[0].name
    with site.store.transaction():
        site.store.put_shifts(site.store.number_of(home, "power"), [Span(0, 0, 59), Span(40, 60, 109)], 0)
    for number in (7, 8):
        site.now_us = DOCUMENT.begins_us(number + 1)
        site.report(0, helper, 1, number=number, previous=-1 if number == 7 else 7)
    assert site.store.versions.timeline(home, "power").intervals == [Drawn(110, 129, 1, 0)]
