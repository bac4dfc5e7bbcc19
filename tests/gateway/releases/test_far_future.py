"""No device moves the windows of a group past what the others still fill, or stops them for ever."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from gateway.releases.audit import verify
from gateway.releases.setup import set_progress
from gateway.store.engine import Lease, LedgerError
from gateway.store.store import Store, StoreError
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import BOUNDED, OTHER, TERNARY, policy

FAR = 2**52
SECOND = 1_000_000


def starts(bench: Bench) -> list[int]:
    return [frame.first for frame in bench.frames]


def steady(first: int, last: int, size: int = 5) -> list[SymbolFrame]:
    """Frames side by side, of the ticks first..last."""
    return [SymbolFrame(1, tick - 1, tick, bytes(size)) for tick in range(first, last + 1, size)]


def test_a_device_that_is_ahead_ends_nobodys_patience(tmp_path: Path) -> None:
    """A device's ticks that have not come, within the difference of clocks, are not the time."""
    bench = Bench(tmp_path, scheduled(patience=10))
    bench.now_us = 20 * SECOND
    bench.scene.record(*steady(0, 79))
    bench.scene.record(*steady(0, 9), device="ring")
    bench.work()
    assert starts(bench) == []
    bench.scene.record(*steady(10, 24), device="ring")
    bench.work()
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


def test_what_has_piled_up_is_waited_for_after_a_new_connection(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(patience=10))
    bench.schedule.connected()
    bench.scene.record(*steady(0, 99))  # all that one device has kept comes before what the other has
    bench.work()
    bench.now += 29.0
    bench.work()
    assert starts(bench) == []
    bench.scene.record(*steady(0, 49), device="ring")
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2)]
    bench.now += 1.0
    bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2), (40, 2), (60, 1)]


def test_a_device_with_a_hole_in_every_window_delays_releases_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    sequence = steady(0, 205)
    bench.scene.record(*sequence)
    bench.scene.record(*sequence[1::2], device="ring")
    bench.now_us = 200 * SECOND
    bench.work()
    assert starts(bench) == []
    bench.now += 30.0
    bench.work()
    assert starts(bench) == list(range(0, 200, 20))
    more = steady(210, 405)
    bench.scene.record(*more)
    bench.scene.record(*more[1::2], device="ring")
    bench.now_us = 400 * SECOND
    bench.work()
    assert starts(bench) == list(range(0, 200, 20))  # that was waited for, this is not yet
    bench.now += 30.0
    bench.work()
    assert starts(bench) == list(range(0, 400, 20))


def test_a_schedule_begins_with_the_earliest_symbol_that_has_come_by_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    bench.scene.record(SymbolFrame(1, -1, 100, bytes(5)))
    bench.work()
    bench.scene.record(SymbolFrame(1, -1, 40, bytes(5)), *steady(45, 104), device="ring")
    bench.scene.record(*steady(105, 139))
    bench.work()
    bench.scene.record(*steady(105, 139), device="ring")
    bench.work()
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
