"""Smoothing whole histories as one pass over all ticks, however they are cut, stored and shared out, also by Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Clock
from gateway.estimates.beliefs import Model, model_of
from gateway.history.export import export_history
from gateway.history.learning import learn_class
from gateway.history.parquet import ExportedHistory
from gateway.history.smoothing import SmoothedStream, smooth_history
from gateway.history.stored import Span, stored_history
from gateway.history.tasks import Source, open_tasks
from tests.support.command import Fugu
from tests.support.histories import ALWAYS, fill_store
from tests.support.scenes import OTHER, Scene, frames, policy

SLOW = Clock(epoch_us=1_700_000_000_000_000, period_us=3 * 3_600_000_000)
CHAIN = BinaryChains(q=(0.2, 0.2), r=(0.3, 0.3))
STICKY = BinaryChains(q=(0.03, 0.03), r=(0.1, 0.1))
FLEET = tuple(
    version.model_copy(update={"clock": SLOW})
    for version in (
        policy(1, chains=CHAIN),
        policy(2, table=OTHER, chains=STICKY),
        policy(1, device="ring", chains=CHAIN),
    )
)
MODELS = {version.version: model_of(version) for version in FLEET[:2]}


def at_once(some: Iterable[SymbolFrame], models: dict[int, Model] = MODELS) -> dict[int, NDArray[np.float64]]:
    """Every tick's marginals from one pass forward and one back over all ticks, with a matrix for each step."""
    frames = list(some)
    first, last = frames[0].first, frames[-1].last
    model = [models[1]] * (last - first + 1)
    weights = np.ones((last - first + 1, len(models[1].initial)))
    version = frames[-1].policy_version
    holding = {tick: frame for frame in frames for tick in range(frame.first, frame.last + 1)}
    for tick in range(last, first - 1, -1):  # a step belongs to the policy of the next symbol
        if (frame := holding.get(tick)) is not None:
            version = frame.policy_version
            weights[tick - first] = models[version].emission[:, frame.symbols[tick - frame.first]]
        model[tick - first] = models[version]
    forward, backward = [model[0].initial * weights[0]], [np.ones(weights.shape[1])]
    for t in range(1, len(weights)):
        step = forward[-1] @ model[t].transition * weights[t]
        forward.append(step / step.sum())
    for t in range(len(weights) - 1, 0, -1):
        step = model[t].transition @ (weights[t] * backward[-1])
        backward.append(step / step.sum())
    both = np.array(forward) * np.array(backward[::-1])
    both /= both.sum(axis=1, keepdims=True)
    return {tick: both[tick - first] for tick in holding}


def smoothed(scene: Scene, span: Span = ALWAYS, device: str = "watch") -> dict[int, NDArray[np.float64]]:
    """The same by days, from the store."""
    with stored_history(scene.path) as history:
        (stream,) = (stream for stream in history.streams() if stream.device == device)
        smoothed = SmoothedStream(history, stream, span)
        for day in reversed(smoothed.days):
            smoothed.look_back(day)
        rows = [
            (some.first + i, row)
            for day in smoothed.days
            for some in smoothed.day(day)
            for i, row in enumerate(some.probabilities)
        ]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def close(beliefs: dict[int, NDArray[np.float64]], wanted: dict[int, NDArray[np.float64]]) -> None:
    assert beliefs.keys() == wanted.keys()
    np.testing.assert_allclose([beliefs[tick] for tick in wanted], list(wanted.values()), rtol=0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("versions", [[1, 1, 2], [2, 1]])
@pytest.mark.parametrize("gaps", [[0], [0, 3, 0, 0, 1], [0, 70, 5, 400]])
def test_days_blocks_gaps_and_new_policies_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaps: list[int], versions: list[int]
) -> None:
    cells = 10
    monkeypatch.setattr("gateway.history.smoothing._CELLS", cells)
    scene = Scene(tmp_path / "s.sqlite", policies=FLEET)
    sequence = frames([5, 1, 9, 2, 13] * 4, gaps=gaps, versions=versions)
    scene.record(*sequence)
    close(smoothed(scene), at_once(sequence))


def test_what_was_set_and_what_lies_outside_the_span_count_for_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", policies=FLEET)
    frames = [
        SymbolFrame(1, first - 1, first, bytes([0, 1] * 5), shift=9 * (first >= 20)) for first in range(0, 40, 10)
    ]
    scene.record(*frames)
    close(smoothed(scene), at_once(frames[:2]) | at_once(frames[2:]))
    span = Span(SLOW.epoch_us + 5 * SLOW.period_us, SLOW.epoch_us + 10 * SLOW.period_us)
    inside = SymbolFrame(1, 4, 5, bytes([1, 0, 1, 0, 1]))
    close(smoothed(Scene(scene.path, policies=FLEET), span), at_once([inside]))


def read(folder: Path) -> pd.DataFrame:
    smoothed_rows = pd.read_parquet(folder / "smoothed")
    names = dict.fromkeys(("device", "stream", "state", "date"), str)
    return smoothed_rows.astype(names).sort_values(["device", "tick"]).reset_index(drop=True)


def history_of(scene: Scene) -> Path:
    """Two devices' symbols, exported."""
    scene.record(*frames([5, 1, 9, 2] * 4, gaps=[0, 0, 2, 0, 40], versions=[1, 1, 1, 2]))
    scene.record(*frames([7] * 9, seed=2), device="ring")
    export_history(scene.path, None, ALWAYS, scene.path.with_name("exported"))
    return scene.path.with_name("exported")


@pytest.mark.long
def test_an_exported_folder_is_smoothed_as_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 16
    monkeypatch.setattr("gateway.history.parquet._ROWS", rows)
    monkeypatch.setattr("gateway.history.parquet._GROUP_ROWS", rows)
    monkeypatch.setattr("gateway.history.export._MOST_PIECES", rows)
    monkeypatch.setattr("gateway.history.tasks._MOST_STREAMS", 1)
    scene = Scene(tmp_path / "s.sqlite", policies=FLEET)
    exported = history_of(scene)
    for name, path in (("a", scene.path), ("b", exported)):
        smooth_history(Source(path, ALWAYS), tmp_path / name)
    pd.testing.assert_frame_equal(read(tmp_path / "a"), read(tmp_path / "b"))
    content = read(tmp_path / "a")
    for device in ("watch", "ring"):
        mine = content[content["device"] == device].set_index("tick")
        for tick, row in smoothed(scene, device=device).items():
            np.testing.assert_array_equal(mine.loc[tick, "probabilities"], row.astype(np.float32))
    assert len(content) == sum(len(pd.read_parquet(part)) for part in (exported / "symbols").rglob("*.parquet"))
    some = {path.name for path in (tmp_path / "a" / "smoothed").rglob("*.parquet")}
    assert some == {"part-0-0-0.parquet", "part-1-0-0.parquet"}


@pytest.mark.long
def test_only_the_streams_that_are_meant_are_smoothed(fugu: Fugu, tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", policies=FLEET)
    history_of(scene)
    done = fugu("gateway", "smooth", tmp_path / "exported", "-o", tmp_path / "out", "--device", "ring", "--json")
    assert (done.code, done.err, done.json()) == (0, "", {"smoothed": 63, "policies": 1})
    assert set(read(tmp_path / "out")["device"]) == {"ring"}
    for more, why in (
        (("--device", "none"), "has no such stream"),
        (("--stream", "none"), "has no such stream"),
        (("--to", "100"), "has no symbols of that time"),
    ):
        done = fugu("gateway", "smooth", scene.path, "-o", tmp_path / "other", *more)
        assert (done.code, why in done.err) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["exported", "out"]


def other_files(folder: Path) -> None:
    (folder / "policies").mkdir()
    (folder / "policies" / "part-0.parquet").write_bytes(bytes(100))


@pytest.mark.parametrize("spoil", [lambda _: None, other_files])
def test_a_folder_that_is_no_export_is_refused_in_a_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    (tmp_path / "folder").mkdir()
    spoil(tmp_path / "folder")
    with pytest.raises(FuguError, match="folder is no folder that fugu gateway export wrote"):
        ExportedHistory(tmp_path / "folder")


def test_an_export_with_other_columns_or_damage_is_refused_in_a_line(tmp_path: Path) -> None:
    fill_store(tmp_path / "s.sqlite", ("watch",), 1000)
    export_history(tmp_path / "s.sqlite", None, ALWAYS, tmp_path / "folder")
    symbols = min((tmp_path / "folder" / "symbols").rglob("*.parquet"))
    [policies] = (tmp_path / "folder" / "policies").rglob("*.parquet")
    whole, rows = symbols.read_bytes(), pq.ParquetFile(symbols).read()
    for other_rows in (rows.drop(["device"]), rows.drop(["symbol"]), rows.append_column("other", rows["tick"])):
        pq.write_table(other_rows, symbols)
        with pytest.raises(FuguError, match=f"folder is no folder that .* wrote: {symbols.name} has other columns"):
            ExportedHistory(tmp_path / "folder")
    symbols.write_bytes(whole[:4] + bytes(100) + whole[104:])
    with pytest.raises(FuguError, match=f"{symbols.name} in folder cannot be read: "):
        smooth_history(Source(tmp_path / "folder", ALWAYS), tmp_path / "out")
    pq.write_table(pq.read_table(policies).drop(["document"]).append_column("document", [[None]]), policies)
    with pytest.raises(FuguError, match=r"folder is no folder that fugu gateway export wrote"):
        ExportedHistory(tmp_path / "folder")


@pytest.mark.parametrize(("column", "value"), [("symbol", 200), ("symbol", None), ("tick", None), ("device", None)])
def test_an_export_with_a_symbol_or_a_missing_value_that_no_gateway_writes_is_refused_in_a_line(
    tmp_path: Path, column: str, value: int | None
) -> None:
    fill_store(tmp_path / "s.sqlite", ("watch",), 1000)
    export_history(tmp_path / "s.sqlite", None, ALWAYS, tmp_path / "folder")
    symbols = min((tmp_path / "folder" / "symbols").rglob("*.parquet"))
    rows = pq.ParquetFile(symbols).read()
    place = rows.column_names.index(column)
    values = [*rows[column].to_pylist()[:-1], value]
    pq.write_table(rows.set_column(place, rows.schema.field(place), [pa.array(values, rows[column].type)]), symbols)
    with pytest.raises(FuguError, match=r"has a symbol that policy version 1 does not have|a row has no ") as refused:
        smooth_history(Source(tmp_path / "folder", ALWAYS), tmp_path / "out")
    assert "\n" not in str(refused.value)


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.mark.soak
@pytest.mark.processes
def test_a_cluster_comes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.history.tasks._MOST_STREAMS", 1)
    fill_store(tmp_path / "s.sqlite", ("watch", "ring", "belt"), 20_000)
    source = Source(tmp_path / "s.sqlite", ALWAYS)
    shares: list[float] = []
    smooth_history(source, tmp_path / "alone", progress=lambda _, share: shares.append(share))
    with open_tasks("local") as tasks:
        smooth_history(source, tmp_path / "many", tasks=tasks, progress=lambda _, share: shares.append(share))
        assert learn_class(source, tasks=tasks) == learn_class(source)
        with pytest.raises(FuguError, match="the reason, in a line"):
            tasks.map(refuse, [(1,)])
        with pytest.raises(FuguError, match="worker died"):
            tasks.map(end_worker, [(1,)])
    assert files(tmp_path / "many") == files(tmp_path / "alone")
    assert len(files(tmp_path / "many")) == 3 * 4 + 1
    assert shares == sorted(shares[:3]) + sorted(shares[3:])
    assert shares.count(1.0) == 2


def refuse(_: int) -> None:
    raise FuguError("the reason, in a line")


def end_worker(code: int) -> None:
    os._exit(code)
