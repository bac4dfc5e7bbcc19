"""A store and a ledger as Parquet files: everything once, under its time and name, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from gateway.estimates.history import StateRow, ValueRow, estimates_between
from gateway.history.export import export_history
from gateway.history.smoothing import smooth_history
from gateway.history.stored import Span
from gateway.history.tasks import Source
from gateway.loop.inbox import ReceivedFrame
from gateway.store.store import StoreError
from tests.support.command import Fugu
from tests.support.histories import ALWAYS
from tests.support.measured import measure_policy
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import POLICIES, Scene, frames, policy

LAG = 3
HOUR = 3_600_000_000
SIX_HOURS = Clock(epoch_us=1_700_000_000_000_000, period_us=6 * HOUR)


def hourly(*some: Policy) -> tuple[Policy, ...]:
    """Policies whose ticks are six hours apart."""
    return tuple(device.model_copy(update={"clock": SIX_HOURS}) for device in some)


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / name)


def exported(scene: Scene, folder: Path, span: Span = ALWAYS) -> Path:
    """A folder, exported while the scene's store is open."""
    export_history(scene.path, None, span, folder, lag=LAG)
    return folder


def place(frame: pd.DataFrame) -> list[tuple[str, str, int]]:
    return list(zip(frame["device"], frame["stream"], frame["tick"], strict=True))


def test_every_symbol_and_every_estimate_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = 7
    monkeypatch.setattr("gateway.history.export._MOST_PIECES", page)
    monkeypatch.setattr("gateway.history.parquet._GROUP_ROWS", page)
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    sequence = frames([5, 1, 9, 2] * 8, gaps=[0, 0, 2, 0, 40, 0, 9_000], versions=[1, 1, 1, 2, 2])
    for i, frame in enumerate(sequence):
        scene.record(frame)
        if i in (9, 20):
            scene.recorder.seal(now=True)
    other = frames([40], seed=2)
    scene.record(*other, device="ring")
    folder = exported(scene, tmp_path / "out")
    symbols = table(folder, "symbols")
    wanted = {
        (device, "hr", tick): [symbol, frame.policy_version]
        for device, sent in (("watch", sequence), ("ring", other))
        for frame in sent
        for tick, symbol in enumerate(frame.symbols, frame.first)
    }
    columns = place(symbols), symbols["symbol"], symbols["policy_version"]
    assert {where: row for where, *row in zip(*columns, strict=True)} == wanted
    assert len(symbols) == len(wanted)
    assert (symbols["time"] == pd.to_datetime(symbols["tick"], unit="s", utc=True)).all()
    assert symbols["date"].astype(str).equals(symbols["time"].dt.date.astype(str))

    estimates = table(folder, "estimates")
    assert len(set(place(estimates))) == len(estimates)
    by_place = dict(zip(place(estimates), estimates["probabilities"], strict=True))
    for device in ("watch", "ring"):
        for row in estimates_between(scene.path, device, "hr", lag=LAG):
            assert isinstance(row, StateRow)
            np.testing.assert_allclose(by_place.pop((device, "hr", row.tick)), row.probabilities, atol=1e-6)
    # Beside those: the newest, which later symbols may still change, and those of ticks that end at the lag's edge.
    assert all(any(tick + LAG >= end for end in ends(sequence, other)[device]) for device, _, tick in by_place)
    smooth_history(Source(scene.path, ALWAYS), tmp_path / "smoothed")  # they have seen every later symbol
    smoothed = table(tmp_path / "smoothed", "smoothed")
    by_all = dict(zip(place(smoothed), smoothed["probabilities"], strict=True))
    assert len(by_place) == 2 * LAG
    for where, probabilities in by_place.items():
        np.testing.assert_allclose(probabilities, by_all[where], atol=1e-6)
    most = estimates["probabilities"].map(max)
    np.testing.assert_array_equal(estimates["probability"], most)
    labels = estimates["probabilities"].map(lambda row: f"level {np.argmax(row)}")
    assert estimates["state"].astype(str).equals(labels)


def ends(watch: list[SymbolFrame], ring: list[SymbolFrame]) -> dict[str, list[int]]:
    """The last tick of each device."""
    return {"watch": [watch[-1].last], "ring": [ring[-1].last]}


@pytest.mark.long
def test_a_span_of_time_holds_what_the_whole_holds_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=hourly(*POLICIES))
    for i, frame in enumerate(frames([5, 1, 9, 2] * 3, gaps=[0, 0, 2, 0, 7], versions=[1, 1, 2])):
        scene.record(frame)
        if i == 8:
            scene.recorder.seal(now=True)
    whole = exported(scene, tmp_path / "whole")
    for span, name in product(((0, 30), (13, 14), (11, 27), (5, 400)), ("symbols", "estimates")):
        if not (part := tmp_path / f"{span}").exists():
            exported(scene, part, Span(*(SIX_HOURS.epoch_us + 6 * HOUR * tick for tick in span)))
        everything = table(whole, name).sort_values("tick").drop(columns="date")
        inside = everything[(everything["tick"] >= span[0]) & (everything["tick"] < span[1])]
        rows = table(part, name).sort_values("tick").drop(columns="date")
        if name == "estimates":
            probabilities = [np.array(rows.pop("probabilities").tolist()) for rows in (rows, inside)]
            np.testing.assert_allclose(*probabilities, rtol=0, atol=1e-6)
            rows, inside = rows.drop(columns="probability"), inside.drop(columns="probability")
        pd.testing.assert_frame_equal(
            rows.astype({"device": str, "stream": str}).reset_index(drop=True),
            inside.astype({"device": str, "stream": str}).reset_index(drop=True),
        )


@pytest.mark.parametrize("oldest", [0, 13])
def test_each_number_is_told_once_where_a_clock_went_back(tmp_path: Path, oldest: int) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=hourly(policy(1)))
    for first, shift in ((0, 0), (10, 0), (20, 12), (30, 12), (40, 13)):
        scene.record(SymbolFrame(1, first - 1, first, bytes([0, 1] * 5), shift=shift))
    scene.store.put_shifts(scene.store.number_of("watch", "hr"), [], oldest)  # the others are forgotten
    folder = exported(scene, tmp_path / "out")
    for name in ("symbols", "estimates"):
        rows = table(folder, name)
        assert sorted(rows["tick"]) == list(range(50))
        shift = np.where(rows["tick"] < 20, 0, np.where(rows["tick"] < 40, 12, 13))
        times = pd.to_datetime(SIX_HOURS.epoch_us + (rows["tick"] - shift) * SIX_HOURS.period_us, unit="us", utc=True)
        assert (rows["time"] == times).all()
    distributions = dict(
        zip(table(folder, "estimates")["tick"], table(folder, "estimates")["probabilities"], strict=True)
    )
    np.testing.assert_array_equal(distributions[20], distributions[0])  # what is before is forgotten there


def test_each_number_is_told_once_where_a_clock_was_changed(tmp_path: Path) -> None:
    other = SIX_HOURS.model_copy(update={"epoch_us": SIX_HOURS.epoch_us - 2 * HOUR, "period_us": 3 * HOUR})
    scene = Scene(
        tmp_path / "s.sqlite", lag=LAG, policies=(*hourly(policy(1)), policy(2).model_copy(update={"clock": other}))
    )
    for first in (0, 10, 20, 30):
        scene.record(SymbolFrame(1 + (first >= 20), first - 1, first, bytes([0, 1] * 5)))
    folder = exported(scene, tmp_path / "out")
    for name in ("symbols", "estimates"):
        rows = table(folder, name)
        assert sorted(rows["tick"]) == list(range(40))
        assert (rows["policy_version"] == np.where(rows["tick"] < 20, 1, 2)).all()
        clocks = [SIX_HOURS if tick < 20 else other for tick in rows["tick"]]
        times = [clock.epoch_us + tick * clock.period_us for clock, tick in zip(clocks, rows["tick"], strict=True)]
        assert (rows["time"] == pd.to_datetime(times, unit="us", utc=True)).all()


def test_windows_have_their_counts_and_intervals(tmp_path: Path) -> None:
    high = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")
    both = Window(name="both", length=10, stride=10, start=0, states="histogram", scale="3")
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=hourly(policy(1, windows=(high, both))))
    some = [WindowFrame(1, "high", i - 1, i, 5 * i, 5, 5, (4 - i,)) for i in range(4)]
    some += [WindowFrame(1, "both", i - 1, i, 10 * i, 10, 9, (7, -1)) for i in range(2)]
    scene.receive([ReceivedFrame("watch", "hr", frame) for frame in some])
    records = table(exported(scene, tmp_path / "out"), "windows")
    rows = records[["window", "index", "count", "observed"]].astype({"window": str}).to_numpy().tolist()
    wanted = [["high", i, 4 - i, 5] for i in range(4)] + [["both", i, count, 9] for i in range(2) for count in (7, -1)]
    assert sorted(rows) == sorted(wanted)
    assert {tuple(states) for states in records["states"]} == {("level 1",), ("level 0",)}
    assert ((records["time"] - records["since"]) == records["length"] * pd.Timedelta(hours=6)).all()
    assert (records["low"] < records["count"]).all()
    assert (records["count"] < records["high"]).all()
    assert set(records["epsilon"]) == {50.0}


def test_a_profile_has_a_row_for_each_block_of_the_day(tmp_path: Path) -> None:
    blocks = {"zone": "UTC", "seconds": 12 * 3600, "offsets": ((0, 0),)}
    day = Window.model_validate(
        {"name": "day", "length": 8, "stride": 8, "start": 0, "states": (1,), "scale": "2", "blocks": blocks}
    )
    scene = Scene(
        tmp_path / "s.sqlite", lag=LAG, policies=hourly(policy(1, windows=(day,), period_us=6 * 3600 * 1_000_000))
    )
    scene.receive([ReceivedFrame("watch", "hr", WindowFrame(1, "day", -1, 0, 0, 8, 8, (3, -1)))])
    records = table(exported(scene, tmp_path / "out"), "windows")
    rows = [(list(states), block, count) for states, block, count in records[["states", "block", "count"]].to_numpy()]
    assert rows == [(["level 1"], "00:00-12:00", 3), (["level 1"], "12:00-24:00", -1)]


@pytest.mark.long
def test_points_and_what_they_tell_of_measurements(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "p.sqlite", lag=LAG, policies=(measure_policy(),))
    for first in range(0, 40, 10):
        points = tuple(Released(0, (tick % 3, 1)) for tick in range(10))
        scene.receive([ReceivedFrame("watch", "place", MeasureFrame(1, first - 1, first, 2, points))])
    folder = exported(scene, tmp_path / "out")
    points = table(folder, "points")
    assert list(points["tick"]) == list(range(40))
    resolution = measure_policy().resolution
    assert [tuple(row) for row in points["values"]] == [
        (tick % 10 % 3 * resolution[0], 1 * resolution[1]) for tick in range(40)
    ]
    records = table(folder, "measurements").sort_values(["tick", "lag"])
    rows = [row for row in estimates_between(scene.path, "watch", "place", lag=LAG) if isinstance(row, ValueRow)]
    assert list(zip(records["tick"], records["lag"], strict=True)) == [(row.tick, row.lag) for row in rows]
    assert [tuple(row) for row in records["means"]] == [row.mean for row in rows]
    assert [tuple(row) for row in records["covariance"]] == [row.covariance for row in rows]


def test_releases_are_those_that_were_published(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(share=0.5), scheduled("shares", query="histogram", states=None, share=0.5))
    for device in ("watch", "ring"):
        bench.scene.record(*frames([20] * 4), device=device)
    bench.work()
    entries = bench.ledger.entries()
    assert len(entries) >= 3
    for entry in entries[1:]:
        bench.ledger.mark(entry.number, "published")
    rows = export_history(bench.scene.path, tmp_path / "l.sqlite", ALWAYS, tmp_path / "out")
    records = table(tmp_path / "out", "releases")
    published = bench.frames[1:]
    assert rows["releases"] == len(records) == sum(len(frame.values) for frame in published)
    for frame in published:
        mine = records[records["entry"] == frame.entry]
        assert tuple(mine["value"]) == frame.values
        assert (mine["time"] == pd.Timestamp(frame.time)).all()
        assert set(mine["audience"]) == {"public"}
        assert set(mine["epsilon"]) == {frame.epsilon}
        assert set(mine["scale"]) == {frame.scale}
        states = [state for row in mine["states"] for state in row]
        assert states == list(frame.states)


def test_policies_say_what_states_are_called_and_what_is_promised(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    scene.record(*frames([4, 4], versions=[1, 2]))
    records = table(exported(scene, tmp_path / "out"), "policies")
    assert list(records["policy_version"]) == [1, 2]
    assert [list(states) for states in records["states"]] == [["level 0", "level 1"]] * 2
    assert set(records["adversary"]) == {"informed"}
    assert [Policy.from_json(text) for text in records["document"]] == list(POLICIES[:2])


def test_what_comes_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=hourly(policy(1)))
    sequence = frames([10] * 4)
    scene.record(*sequence[:2])
    days: list[str] = []

    def report(day: str, _share: float) -> None:
        days.append(day)
        if len(days) == 2:
            scene.record(*sequence[2:])

    export_history(scene.path, None, ALWAYS, tmp_path / "out", lag=LAG, progress=report)
    assert list(table(tmp_path / "out", "symbols")["tick"]) == list(range(20))
    assert len(days) == len(set(days)) > 2


def broken(*_: object) -> None:
    raise KeyboardInterrupt


def nothing(scene: Scene) -> tuple[Any, ...]:
    return scene.path, None, Span(0, 10)


def no_store(scene: Scene) -> tuple[Any, ...]:
    return scene.path.with_name("none"), None, ALWAYS


def no_ledger(scene: Scene) -> tuple[Any, ...]:
    return scene.path, scene.path.with_name("none"), ALWAYS


@pytest.mark.parametrize(
    ("arguments_of", "error", "why"),
    [
        (nothing, FuguError, "holds nothing of that time"),
        (no_store, StoreError, "there is no store"),
        (no_ledger, Exception, "there is no ledger"),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(
    tmp_path: Path, arguments_of: Callable[[Scene], tuple[Any, ...]], error: type[Exception], why: str
) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG, policies=hourly(policy(1)))
    scene.record(*frames([10]))
    with pytest.raises(error, match=why):
        export_history(*arguments_of(scene), tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        export_history(scene.path, None, ALWAYS, tmp_path / "out", progress=broken)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_folder_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    scene.record(*frames([10]))
    (tmp_path / "out").mkdir()
    exported(scene, tmp_path / "out")
    before = sorted((tmp_path / "out").rglob("*"))
    with pytest.raises(FuguError, match="out is not empty"):
        exported(scene, tmp_path / "out")
    assert sorted((tmp_path / "out").rglob("*")) == before
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


def test_a_part_and_a_group_of_rows_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.history.parquet._GROUP_ROWS", 100)
    monkeypatch.setattr("gateway.history.parquet._PART_ROWS", 250)
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    for i, device in enumerate(["watch", "ring"]):
        scene.record(*frames([50] * 10, seed=i), device=device)
    monkeypatch.setattr("gateway.history.export._MOST_PIECES", 1)
    folder = exported(scene, tmp_path / "out") / "symbols" / "date=1970-01-01"
    parts = {path.name: pq.ParquetFile(path).metadata for path in sorted(folder.iterdir())}
    assert list(parts) == [f"part-{i}-0.parquet" for i in range(4)]
    assert [part.num_rows for part in parts.values()] == [250] * 4
    assert all(part.row_group(i).num_rows <= 100 for part in parts.values() for i in range(part.num_row_groups))


def test_the_command(fugu: Fugu, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=LAG)
    scene.record(*frames([100, 100]))
    words = ("gateway", "export", scene.path, tmp_path / "out")
    done = fugu(*words, "--from", "1970-01-01T00:00:50", "--to", "150", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json() == {"symbols": 100, "estimates": 100, "policies": 1}
    records = table(tmp_path / "out", "estimates")
    assert set(records["device"]) == {"watch"}
    assert list(records["tick"]) == list(range(50, 150))
    assert list(records["probabilities"].map(sum)) == pytest.approx([1.0] * 100)
    assert fugu(*words).err == "fugu: out is not empty: name a new folder, or remove it first\n"
    assert fugu(*words, "--from", "100", "--to", "100").code == 2
