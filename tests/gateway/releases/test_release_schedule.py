"""Which windows are released, once each, and past which no device moves a group; and what a configuration may say."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame
from fugu.host.database import AwayError
from gateway.releases.audit import verify
from gateway.releases.config import ReleaseConfig
from gateway.releases.entries import AccountKey, Entry, Release
from gateway.releases.jobs import jobs
from gateway.releases.setup import set_progress
from gateway.store.engine import Lease, LedgerError
from gateway.store.store import Store, StoreError
from tests.support.brokers import wait_until
from tests.support.release_scenes import PUBLIC, Bench, scheduled, write_config
from tests.support.scenes import BINARY, BOUNDED, OTHER, TERNARY, catalogue, frames, policy

WATCH_ONLY = {"devices": ["watch"]}


def present(some: Sequence[SymbolFrame]) -> int:
    """The ticks that have a symbol."""
    return sum(len(frame.symbols) for frame in some)


def starts(bench: Bench) -> list[int]:
    return [frame.first for frame in bench.frames]


def test_a_window_is_due_once_its_ticks_are_past_on_every_device(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    watch, ring = frames([10] * 4), frames([10] * 4, seed=2)
    bench.scene.record(*watch)
    bench.scene.record(*ring[:2], device="ring")  # tick 19 is the last of the window
    bench.work()
    assert starts(bench) == []
    bench.work(SymbolFrame(1, 19, 20, bytes(1)), device="ring")
    assert starts(bench) == [0]
    assert bench.frames[0].devices == 2
    bench.work()
    bench.reopen()
    bench.work()
    assert starts(bench) == [0]


def test_a_missing_frame_is_waited_for_however_far_the_stream_has_gone_on(tmp_path: Path) -> None:
    """After a restart the broker may deliver the newest frames first: no window is empty because of that."""
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    sequence = frames([10] * 20)
    bench.work(*sequence[:2], *sequence[10:])
    assert starts(bench) == [0]
    bench.now += 29.0
    bench.work(sequence[2])  # of the window's two frames the second is missing
    assert starts(bench) == [0]
    bench.work(*sequence[3:10])
    assert starts(bench) == list(range(0, 180, 20))
    assert [frame.observed for frame in bench.frames] == [present(sequence[i : i + 2]) for i in range(0, 18, 2)]


@pytest.mark.parametrize(("comes", "first"), [(True, 0), (False, 20)])
def test_a_schedule_waits_for_frames_before_the_first_that_came(tmp_path: Path, comes: bool, first: int) -> None:
    """A gateway that is killed as it starts may get its very first frame last."""
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    sequence = frames([10] * 8)
    bench.work(*sequence[1:])
    bench.now += 29.0
    bench.work()
    assert starts(bench) == []
    bench.now += 1.0
    bench.work(*sequence[: int(comes)])
    assert starts(bench) == list(range(first, 60, 20))


def test_windows_begin_at_multiples_of_the_stride_after_the_first_symbol(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(scale="40", stride=15, **WATCH_ONLY))
    bench.work(*frames([10] * 10, gaps=[7, 0, 0, 0, 0]))
    assert starts(bench) == [15, 30, 45, 60, 75, 90]  # the first symbol is at tick 7, the last at 113
    assert [frame.length for frame in bench.frames] == [20] * 6
    account = bench.ledger.account(AccountKey("watch", "hr", "public"))
    assert account.spent == 2 * max(bench.ledger.charges(1).values())
    assert (account.first, account.last) == (15, 109)


def test_a_gap_of_a_billion_ticks_is_passed_over_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    near, far = frames([10, 10]), SymbolFrame(1, 19, 1_000_000_007, bytes([1] * 60))
    bench.work(*near, far)
    assert starts(bench) == [0, 1_000_000_000, 1_000_000_020, 1_000_000_040]
    assert bench.frames[1].observed == 13
    assert bench.counters["releases_empty"] == 1
    assert bench.counters["releases"] == 4


def test_ticks_without_a_symbol_are_not_observed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled("plain", "site", scale="1/10", **WATCH_ONLY))
    some = [part for t in range(0, 20, 4) for part in ((t, b"\0\1"), (t + 3, b"\1"))]  # one tick of four is left out
    ends = [-1, *(first + len(symbols) - 1 for first, symbols in some)]
    (frame,) = bench.work(
        *(SymbolFrame(1, end, *part) for end, part in zip(ends, [*some, (25, bytes(10))], strict=True))
    )
    assert frame.observed == 15
    rho0, rho1 = (weight / 2**32 for weight in BINARY.flip_weights)
    assert frame.values[0] == pytest.approx((10 - 15 * rho0) / (1 - rho0 - rho1))  # noise of scale 1/10 is nearly none
    assert (frame.charge, frame.epsilon, frame.adversary) == (0.0, 50.0, "informed")
    assert bench.ledger.entries()[0].reason.startswith("post-processing")
    assert bench.ledger.accounts() == []


def test_what_the_ledger_refuses_is_counted_and_never_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY), scheduled("more", share=0.5, **WATCH_ONLY))
    bench.work(*frames([10] * 9))
    assert [frame.name for frame in bench.frames] == ["active"] * 4
    assert (bench.counters["releases"], bench.counters["releases_refused"]) == (4, 4)
    lines = [record.getMessage() for record in caplog.records if "too much" in record.getMessage()]
    assert len(lines) == 4
    assert all("\n" not in line and "watch/hr, audience public: ticks" in line for line in lines)
    bench.reopen()
    bench.work()
    assert bench.counters["releases_refused"] == 4
    assert verify(bench.ledger).problems == ()


def test_a_window_that_does_not_answer_is_refused_and_charged_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, scheduled(query="dwell", **WATCH_ONLY))
    bench.work(*(SymbolFrame(1, max(tick - 2, -1), tick, bytes(1)) for tick in range(0, 30, 2)))
    assert (bench.frames, bench.counters["releases_refused"]) == ([], 1)
    assert "no two consecutive ticks of the window have symbols" in caplog.text
    assert [account.spent for account in bench.ledger.accounts()] == [0]


def test_shares_of_one_together_are_granted_for_ever(tmp_path: Path) -> None:
    shares = [scheduled(f"part-{i}", share=share, **WATCH_ONLY) for i, share in enumerate((0.5, 0.25, 0.25))]
    bench = Bench(tmp_path, *shares)
    bench.work(*frames([10] * 21))
    assert (bench.counters["releases"], bench.counters["releases_refused"]) == (30, 0)
    (account,) = bench.ledger.accounts()
    assert account.runs == 1
    assert account.remaining * 10**6 < account.allowance


def test_one_release_per_device_each_with_its_own_noise_and_charge(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(per_device=True))
    bench.scene.record(*frames([30]))
    bench.work(*frames([30], seed=2), device="ring")
    assert [(frame.name, frame.devices) for frame in bench.frames] == [("active-ring", 1), ("active-watch", 1)]
    assert bench.frames[0].scale != bench.frames[1].scale  # their tables differ
    assert [account.spent > 0 for account in bench.ledger.accounts()] == [True, True]


def test_a_file_that_fails_delays_a_release_and_loses_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    bench.scene.record(*frames([10] * 5))
    with sqlite3.connect(tmp_path / "l.sqlite", isolation_level=None) as other:
        bench.ledger._db.execute("PRAGMA busy_timeout=1")
        other.execute("BEGIN IMMEDIATE")
        while bench.counters["ledger_errors"] == 0:
            bench.schedule.pump(idle=True)
        assert bench.frames == []
        assert not bench.schedule.busy  # not tried again at once
        other.execute("ROLLBACK")
    other.close()
    wait_until(lambda: bench.schedule.busy)
    bench.work()
    assert starts(bench) == [0, 20]
    assert bench.counters["ledger_errors"] == 1


def test_a_release_that_was_kept_by_a_server_whose_answer_was_lost_is_made_once_and_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    bench.scene.record(*frames([10] * 7))
    reserve = bench.ledger.reserve
    with monkeypatch.context() as patched:

        def lost(release: Release, *arguments: Any, **more: Any) -> Entry:
            entry = reserve(release, *arguments, **more)
            if release.first == 20:
                raise AwayError("the connection broke")
            return entry

        patched.setattr(bench.ledger, "reserve", lost)
        while bench.counters["ledger_errors"] == 0:
            bench.schedule.pump(idle=True)
    wait_until(lambda: bench.schedule.busy)
    bench.work()
    assert starts(bench) == [0, 20, 40]
    assert bench.counters["releases_refused"] == 0


@pytest.mark.parametrize(
    ("release", "text"),
    [
        (scheduled(share=None), "needs either scale or share"),
        (scheduled(scale="5", share=0.5), "needs either scale or share"),
        (scheduled(share=1.5), r"releases.0.share: must be at most 1"),
        (scheduled(scale="0"), "releases.0.scale"),
        (scheduled(scale="1/20"), "scale of release active must lie in"),
        (scheduled(audience="press"), "for audience press, which is not configured"),
        (scheduled(audience="site"), "no allowance to share"),
        (scheduled(query="mean"), "releases.0.query"),
        (scheduled(query="histogram"), "a histogram names no states"),
        (scheduled(states=[]), "any other query names some"),
        (scheduled(states=["level 1", "level 1"]), "names a state twice"),
        (scheduled(length=0), "releases.0.length"),
        (scheduled(length="20"), "releases.0.length: must be a whole number"),
        (scheduled(colour="red"), "releases.0.colour: unknown key"),
        (scheduled() + scheduled(), "two releases have the same name"),
        ("[[releases]]\nname = ", "is not TOML"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(tmp_path: Path, release: str, text: str) -> None:
    with pytest.raises(FuguError, match=text) as refused:
        ReleaseConfig.load(write_config(tmp_path, release))
    assert "\n" not in str(refused.value)
    assert "releases.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("release", "text"),
    [
        (scheduled(stream="noise"), "no device has a stream noise"),
        (scheduled(devices=["band"]), "no policy for stream band/hr"),
        (scheduled(devices=["watch", "watch"]), "names a device twice"),
        (scheduled(states=["high"]), "stream hr has no state 'high'"),
        (scheduled(states=["level 0", "level 1"]), "asks for all states together"),
        (scheduled(name="x" * 62, per_device=True), "longer than 64"),
        (scheduled(per_device=True) + scheduled(name="active-ring"), "the same topic"),
    ],
)
def test_a_configuration_that_does_not_fit_the_policies_is_refused(tmp_path: Path, release: str, text: str) -> None:
    config = ReleaseConfig.load(write_config(tmp_path, release))
    with pytest.raises(FuguError, match=text):
        jobs(config, catalogue([policy(1), policy(1, device="ring")]))


def test_the_site_has_no_epsilon_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FuguError, match="site sees the symbols"):
        ReleaseConfig.load(write_config(tmp_path, scheduled(), audiences=PUBLIC.replace("public", "site")))
    with pytest.raises(FuguError, match="policy cannot be the name of an audience"):
        ReleaseConfig.load(write_config(tmp_path, scheduled(), audiences=PUBLIC.replace("public", "policy")))
    for epsilon in ("9e-10", "1.1e6"):
        with pytest.raises(FuguError, match=r"audience public: epsilon must lie in 1e-9\.\.1e6"):
            ReleaseConfig.load(
                write_config(tmp_path, audiences=PUBLIC.replace("epsilon = 1.0", f"epsilon = {epsilon}"))
            )
    with pytest.raises(FuguError, match=r"cannot read .*none\.toml"):
        ReleaseConfig.load(tmp_path / "none.toml")


FAR = 2**52
SECOND = 1_000_000


def steady(first: int, last: int, size: int = 5) -> list[SymbolFrame]:
    """Frames side by side, of the ticks first..last."""
    return [SymbolFrame(1, tick - 1, tick, bytes(size)) for tick in range(first, last + 1, size)]


def test_a_device_that_is_ahead_ends_nobodys_patience(tmp_path: Path) -> None:
    """A device's ticks that have not come, within the difference of clocks, are not the time."""
    bench = Bench(tmp_path, scheduled(patience=10))
    bench.now_us = 20 * SECOND
    bench.scene.record(*steady(0, 79))
    bench.work(*steady(0, 9), device="ring")
    assert starts(bench) == []
    bench.work(*steady(10, 24), device="ring")
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2)]
    bench.now_us = 50 * SECOND - 1
    bench.work()
    assert starts(bench) == [0]
    bench.now_us = 50 * SECOND  # tick 39 is the window's last: more than 10 ticks ago
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2)]


def test_a_device_with_a_hole_does_not_take_the_windows_in_it_from_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(patience=10))
    bench.now_us = 135 * SECOND
    bench.scene.record(*steady(0, 4), SymbolFrame(1, 4, 180, bytes(5)))  # and nothing in between, it says
    bench.work()
    assert starts(bench) == [0]
    assert bench.counters["releases_empty"] == 1  # the window from 20 on is past, and so are those before tick 125
    bench.scene.record(*steady(100, 144), device="ring")
    bench.now_us = 190 * SECOND
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 1), (120, 1), (140, 1)]


@pytest.mark.parametrize("again", ["a connection", "another process"])
def test_what_has_piled_up_is_waited_for_after_a_new_connection(tmp_path: Path, again: str) -> None:
    bench = Bench(tmp_path, scheduled(patience=10))
    if again == "a connection":
        bench.schedule.connected(begun_anew=False)
    else:
        bench.schedule.wait_again()
    bench.scene.record(*steady(0, 99))  # all that one device has kept comes before what the other has
    bench.work()
    bench.now += 29.0
    bench.work()
    assert starts(bench) == []
    bench.work(*steady(0, 49), device="ring")
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2)]
    bench.now += 1.0
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2), (40, 2), (60, 1)]


@pytest.mark.parametrize("again", ["a connection", "another process"])
def test_a_missing_frame_is_waited_for_anew_after_a_new_connection_or_if_an_earlier_window_is_first(
    tmp_path: Path, again: str
) -> None:
    bench = Bench(tmp_path, scheduled(**WATCH_ONLY))
    bench.work(*steady(40, 49), *steady(55, 64))
    bench.now += 29.0
    if again == "a connection":
        bench.schedule.connected(begun_anew=False)
    else:
        bench.schedule.wait_again()
    bench.now += 1.0
    bench.work()
    assert starts(bench) == []
    bench.now += 28.0
    bench.work(*steady(20, 29))  # these had not come when the schedule began; now the window from 20 on is the first
    bench.now += 2.0
    bench.work()
    assert starts(bench) == []
    bench.now += 28.0
    bench.work()
    assert starts(bench) == [20, 40]


@pytest.mark.parametrize("patience", [None, 4])
def test_connections_that_do_not_last_delay_releases_for_ten_minutes(tmp_path: Path, patience: int | None) -> None:
    bench = Bench(tmp_path, scheduled(patience=patience) if patience else scheduled(**WATCH_ONLY))
    bench.schedule.connected(begun_anew=False)
    bench.work(*steady(40, 49), *steady(55, 84))

    def ends_after(seconds: int) -> list[int]:
        for _ in range(0, seconds, 20):
            bench.schedule.connected(begun_anew=False)
            bench.now += 20.0
            bench.work()
        return starts(bench)

    assert ends_after(600) == []
    assert ends_after(80) == [40, 60]
    bench.now += 30.0
    bench.schedule.connected(begun_anew=False)
    bench.work(*steady(90, 124))
    assert ends_after(600) == [40, 60], "a connection that lasted has ended the unsteady ones"
    assert ends_after(80) == [40, 60, 80, 100]


def test_a_device_with_a_hole_in_every_window_delays_releases_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    sequence = steady(0, 245)
    bench.scene.record(*sequence)
    bench.scene.record(*sequence[1::2], device="ring")
    bench.now_us = 199 * SECOND
    bench.work()
    assert starts(bench) == []
    bench.now += 30.0
    bench.work()
    assert starts(bench) == list(range(0, 200, 20))
    more = steady(250, 405)
    bench.scene.record(*more)
    bench.scene.record(*more[1::2], device="ring")
    bench.now_us = 399 * SECOND
    bench.work()
    assert starts(bench) == list(range(0, 200, 20))  # that was waited for, this is not yet
    bench.now += 30.0
    bench.work()
    assert starts(bench) == list(range(0, 400, 20))


def test_a_schedule_begins_with_the_earliest_symbol_that_has_come_by_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    bench.work(SymbolFrame(1, -1, 100, bytes(5)))
    bench.scene.record(SymbolFrame(1, -1, 40, bytes(5)), *steady(45, 104), device="ring")
    bench.work(*steady(105, 139))
    bench.work(*steady(105, 139), device="ring")
    assert starts(bench) == [40, 60, 80, 100]


def test_a_schedule_that_was_led_astray_goes_on_where_it_is_told_and_releases_nothing_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    for device in ("watch", "ring"):
        bench.scene.record(*steady(0, 64), device=device)
    bench.work()
    assert starts(bench) == [0, 20, 40]
    ledger, store = tmp_path / "l.sqlite", tmp_path / "s.sqlite"
    bench.ledger.set_progress("active", FAR)
    with closing(Store(store, lease=Lease())), pytest.raises(StoreError, match="another gateway runs"):
        set_progress(ledger, store, "active", 0)
    assert set_progress(ledger, store, "active", 33) == FAR  # windows begin at multiples of 20
    bench.reopen()
    for device in ("watch", "ring"):
        bench.scene.record(*steady(65, 104), device=device)
    bench.work()
    assert starts(bench) == [0, 20, 40, 60, 80]
    assert bench.counters["releases_refused"] == 1  # the window from 40 on was released
    for again in range(0, 100, 20):
        set_progress(ledger, store, "active", 0)
        bench.reopen()
        bench.work()
        assert bench.counters["releases_refused"] == 6 + again // 4
    assert starts(bench) == [0, 20, 40, 60, 80]
    assert verify(bench.ledger).problems == ()
    with pytest.raises(LedgerError, match=r"has no schedule activ; it has: active"):
        set_progress(ledger, store, "activ", 0)
    with pytest.raises(LedgerError, match=r"there is no ledger none\.sqlite"):
        set_progress(tmp_path / "none.sqlite", store, "active", 0)


def test_a_device_under_an_old_policy_does_not_stop_the_releases_of_the_others(tmp_path: Path) -> None:
    """A device chooses the version of its policy, among all that it was ever sent; its states may be other ones."""
    old = policy(1, device="ring", table=TERNARY, chains=BOUNDED)
    fleet = (policy(2), policy(2, device="ring", table=OTHER), old)
    bench = Bench(tmp_path, scheduled(), fleet=fleet)
    for first in range(0, 105, 5):
        bench.scene.record(SymbolFrame(2, first - 1, first, bytes(5)))
        version = 1 if 20 <= first < 60 else 2
        bench.scene.record(SymbolFrame(version, first - 1, first, bytes(5), bits=3 - version), device="ring")
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 1), (40, 1), (60, 2), (80, 2)]
    assert bench.counters["releases_refused"] == 0


def test_a_window_of_two_tables_is_charged_by_the_one_that_tells_more(tmp_path: Path) -> None:
    """As the windows on both sides of it are charged, which have one table each."""
    bench = Bench(tmp_path, scheduled(scale="40", **WATCH_ONLY), fleet=(policy(1), policy(2, table=OTHER)))
    bench.work(*frames([10] * 7, versions=(1,) * 3 + (2,) * 4))
    before, mixed, after = (max(bench.ledger.charges(entry).values()) for entry in (1, 2, 3))
    assert mixed == max(before, after) > min(before, after)
