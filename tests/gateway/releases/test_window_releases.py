"""Releases from the windows that devices made noisy themselves: what is counted, what it is charged, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Baseline
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.windows import Composing, Window
from fugu.planning.window_plan import WantedWindow, joint_plan
from gateway.releases.audit import verify
from gateway.releases.config import ReleaseConfig
from gateway.releases.entries import AccountKey, Release
from gateway.releases.jobs import jobs
from gateway.store.engine import LedgerError
from tests.support.ledgers import drawn
from tests.support.release_scenes import PUBLIC, Bench, scheduled, write_config
from tests.support.scenes import catalogue, frames, policy

TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")
BARS = Window(name="bars", length=20, stride=5, states="histogram", scale="200")
NOISY = NoiseTable.binary(2_100_000_000, 2_100_000_000)


def noisy(device: str, *windows: Window) -> Policy:
    """A policy whose symbols say little, with windows beside them."""
    return policy(1, device=device, table=NOISY, windows=windows)


def only(device: str, *windows: Window) -> Policy:
    """A policy of windows without symbols."""
    fields = policy(1, device=device, windows=windows).model_dump(exclude={"table", "frame_ticks", "windows_guarantee"})
    return Policy(**fields)


def counted(index: int, *counts: int, name: str = "ten", observed: int = 10) -> WindowFrame:
    """A window of ten ticks, or of twenty."""
    length, stride = (10, 10) if name == "ten" else (20, 5)
    return WindowFrame(1, name, index - 1, index, index * stride, length, observed, counts)


def two(folder: Path, *releases: str) -> Bench:
    """Two devices with symbols and windows, 20 ticks of each."""
    bench = Bench(folder, *releases, fleet=(noisy("watch", TEN, BARS), noisy("ring", TEN, BARS)))
    for seed, device in enumerate(("watch", "ring")):
        counts = counted(0, 300 + seed), counted(1, -20), counted(0, 7, 100 + seed, name="bars", observed=20)
        bench.scene.record(*counts, *frames([10] * 3, seed=seed), device=device)
    return bench


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["chain", "mqm-exact", "mqm-approx"])
def test_an_audience_with_the_promise_of_a_window_is_told_it_by_the_same_mechanism(
    tmp_path: Path, mechanism: Composing
) -> None:
    """The base of an account, by its own rule, is all that the rule allows, and not more.

    Where its plan leaves 2^-10 of epsilon to changes of policy, that much is left.
    """
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    plan = joint_plan(chains, 1.0, "ignorant", [WantedWindow("ten", 10, (1,))], mechanism=mechanism)
    only_watch = only("watch", TEN).model_copy(update={"chains": chains, "windows": plan.windows})
    ignorant = PUBLIC.replace("informed", "ignorant")
    bench = Bench(tmp_path, scheduled(mechanism=mechanism), audiences=ignorant, fleet=(only_watch,))
    (frame,) = bench.work(counted(0, 300), counted(1, -20))
    assert (frame.mechanism, frame.noise, frame.charge, frame.scale) == (
        *(mechanism, "device-windows", 0.0, plan.windows[0].scale),
    )
    account = bench.ledger.account(AccountKey("watch", "hr", "public"))
    assert account.allowance * (1.0 - 2**-10 - 1e-6) < account.base <= account.allowance
    assert verify(bench.ledger).problems == ()


@pytest.mark.long
def test_windows_of_a_device_whose_clock_went_back_are_windows_of_wall_time(tmp_path: Path) -> None:
    """After tick 39 it is tick 25 again: numbers go on with 45, and the first whole window is that from 50 on."""
    bench = Bench(tmp_path, scheduled(), fleet=(only("watch", TEN),))
    assert [frame.first for frame in bench.work(*(counted(index, 100 * index) for index in range(4)))] == [0, 20]
    (tmp_path / "later").mkdir()
    later = Bench(tmp_path / "later", scheduled(), fleet=(only("watch", TEN),))
    later.scene.record(*(counted(index, 100 * index) for index in range(3)))
    after = [replace(counted(index, 100 * index), shift=20) for index in range(5, 10)]
    released = later.work(replace(after[0], previous=2), *after[1:])
    assert [(frame.first, frame.values[0]) for frame in released] == [(0, 100.0), (40, 1300.0), (60, 1700.0)]
    assert later.counters["releases_empty"] == 1  # in the window from 20 on, the clock was set
    assert [later.ledger.shifts(frame.entry) for frame in released] == [{"watch": 0}, {"watch": 20}, {"watch": 20}]
    assert verify(later.ledger).problems == ()


def test_a_group_is_counted_from_its_windows_and_charged_them_once(tmp_path: Path) -> None:
    """A release is the sum of the devices' releases: nothing is drawn, and nothing more is charged."""
    bench = two(tmp_path, scheduled(), scheduled("again"), scheduled("share", query="frequency"))
    first, again, share = bench.work()
    assert first.values == again.values == (300.0 - 20 + 301 - 20,)
    assert share.values == (561.0 / 40,)
    assert (first.noise, first.scale, first.charge, first.observed, first.devices) == (
        *("device-windows", "20", 0.0, 40, 2),
    )
    spread = 2 * 20**2
    assert first.standard_errors[0] == pytest.approx((4 * spread) ** 0.5, rel=1e-3)
    account = bench.ledger.account(AccountKey("watch", "hr", "public"))
    assert (account.runs, account.spent) == (0, 0)
    assert account.base == 10**12 // 20 + 10**12 * 4 * 2 // 200
    assert "the base of their accounts" in bench.ledger.entries()[0].reason
    assert verify(bench.ledger).problems == ()


def test_a_histogram_takes_every_so_many_of_windows_that_overlap(tmp_path: Path) -> None:
    bench = Bench(
        *(tmp_path, scheduled(query="histogram", states=[], length=40, stride=20), scheduled("high", length=20)),
        fleet=(only("watch", BARS),),
    )
    for index in range(13):
        bench.scene.record(counted(index, 1000 + index, 10 * index, name="bars", observed=20))
    both = {(frame.name, frame.first): frame.values for frame in bench.work()}
    assert both["active", 0] == (1000.0 + 1004.0, 40.0)
    assert both["active", 20] == (1004.0 + 1008.0, 120.0)
    assert both["high", 20] == (40.0,)


def test_symbols_are_counted_where_they_say_more_or_where_windows_do_not_fit(tmp_path: Path) -> None:
    bench = two(
        tmp_path,
        scheduled("symbols", source="symbols", share=0.3),
        scheduled("dwell", query="dwell", share=0.3),
        scheduled("odd", length=15, share=0.2),
    )
    released = bench.work()
    assert {frame.name for frame in released} == {"symbols", "dwell", "odd"}
    assert {frame.noise for frame in released} == {"discrete-laplace"}
    assert all(frame.charge > 0.0 for frame in released)


def test_both_are_weighed_and_symbols_are_charged_beside_the_windows(tmp_path: Path) -> None:
    bench = two(tmp_path, scheduled("both", source="both"))
    (frame,) = bench.work()
    assert (frame.noise, frame.observed) == ("mixed", 40)
    assert frame.charge > 0.0
    account = bench.ledger.account(AccountKey("ring", "hr", "public"))
    assert account.base + account.spent <= account.allowance
    assert account.spent == round(frame.charge * 10**12)
    assert frame.standard_errors[0] < (4 * 2 * 20**2) ** 0.5
    assert verify(bench.ledger).problems == ()


def test_a_group_of_unlike_devices_takes_of_each_what_there_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(), fleet=(only("watch", TEN), noisy("ring")))
    bench.scene.record(counted(0, 40), counted(1, 2))
    (frame,) = bench.work(*frames([10] * 3), device="ring")
    assert (frame.noise, frame.devices, frame.observed) == ("mixed", 2, 40)
    assert bench.ledger.charges(1)["watch"] == 0 < bench.ledger.charges(1)["ring"]
    assert verify(bench.ledger).problems == ()


def test_windows_are_waited_for_and_symbols_take_their_place_if_they_do_not_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(share=0.5), fleet=(noisy("watch", TEN),))
    assert bench.work(*frames([10] * 4), counted(0, 40)) == []
    bench.now += 31.0
    (frame,) = bench.work()
    assert frame.noise == "discrete-laplace"
    (tmp_path / "b").mkdir()
    later = Bench(tmp_path / "b", scheduled(), fleet=(only("watch", TEN),))
    assert later.work(counted(0, 40)) == [], "half of the release's ticks are not past"
    (frame,) = later.work(counted(1, 60))
    assert (frame.values, frame.observed) == ((100.0,), 20)
    (tmp_path / "c").mkdir()
    begun = Bench(tmp_path / "c", scheduled(share=0.5), fleet=(noisy("watch", TEN.model_copy(update={"start": 20})),))
    (frame,) = begun.work(*frames([10] * 4), WindowFrame(1, "ten", -1, 0, 20, 10, 10, (40,)))
    assert (frame.first, frame.noise) == (0, "discrete-laplace"), "the device has no windows before tick 20"


@pytest.mark.long
def test_the_ticks_that_a_baseline_begins_with_are_missed_by_windows_and_still_they_are_taken(tmp_path: Path) -> None:
    mean = Baseline(baseline_ticks=6, lowest=0.0, highest=9.0)
    for observed, mechanism in ((4, "device-windows"), (3, "discrete-laplace")):
        (folder := tmp_path / str(observed)).mkdir()
        started = noisy("watch", TEN).model_copy(update={"discretiser": mean})
        bench = Bench(folder, scheduled(states=["above"], share=0.5), fleet=(started,))
        (frame,) = bench.work(counted(0, 40, observed=observed), counted(1, 60), *frames([10] * 3))
        assert (frame.noise, frame.observed) == (mechanism, 10 + observed if observed > 3 else 20)


def test_the_ledger_takes_no_charge_of_nothing_where_a_device_releases_no_windows(tmp_path: Path) -> None:
    bench = two(tmp_path, scheduled())
    bench.work()
    bench.ledger._db.execute("UPDATE accounts SET base=0")
    bench.ledger._db.execute("UPDATE allowances SET base=0")
    assert any("its device releases no windows" in problem for problem in verify(bench.ledger).problems)
    (entry,) = bench.ledger.entries()
    again = Release(
        *(entry.name, entry.audience, entry.stream, 20, 39, bench.ledger.charges(1)),
        *(entry.mechanism, entry.noise, entry.scale, entry.topic, entry.reason),
        since_us=20 * 10**6,
    )
    with pytest.raises(LedgerError, match="its device releases no windows"):
        bench.ledger.reserve(again, lambda _: drawn(b"\x06"), time_us=1)


def test_windows_that_do_not_answer_are_refused_at_the_start(tmp_path: Path) -> None:
    config = ReleaseConfig.load(write_config(tmp_path, scheduled(length=15)))
    with pytest.raises(FuguError, match="has no symbols, and no windows that a count of 15 ticks"):
        jobs(config, catalogue((only("watch", TEN),)))
    config = ReleaseConfig.load(write_config(tmp_path, scheduled(query="histogram", states=[])))
    with pytest.raises(FuguError, match="has no symbols, and no windows that a histogram"):
        jobs(config, catalogue((only("watch", TEN),)))


@pytest.mark.long
def test_the_choice_depends_on_nothing_private(tmp_path: Path) -> None:
    """The same devices are counted in the same way, with any symbols and counts."""
    seen = set()
    for part, count in enumerate((0, 10**6, -(10**6))):
        folder = tmp_path / str(part)
        folder.mkdir()
        bench = Bench(
            *(folder, scheduled("best", share=0.4), scheduled("both", source="both", share=0.4)),
            fleet=(noisy("watch", TEN),),
        )
        bench.scene.record(counted(0, count), counted(1, -count))
        symbols = bytes(np.random.default_rng(part).integers(0, 2, 30).tolist())
        seen.add(
            tuple(
                (frame.noise, frame.scale, frame.charge, frame.standard_errors)
                for frame in bench.work(SymbolFrame(1, -1, 0, symbols))
            )
        )
    assert len(seen) == 1
