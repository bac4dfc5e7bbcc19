"""A device that is forgotten: nothing of what it sent is left in any file, and nothing is charged or asked for anew."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.windows import Window
from gateway.loop.retention import forget_device
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from gateway.store.engine import Lease, LedgerError
from gateway.store.journal import ReceivedFrame
from gateway.store.store import Store, StoreError
from tests.support.ledgers import inputs_of
from tests.support.measured import measure_policy
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import Scene, frames, newest, packed, policy
from tests.support.soak import only

MANY = 120
WINDOW = Window(name="high", length=50, stride=50, start=0, states=(1,), scale="2")
POLICIES = (
    *(policy(1, windows=(WINDOW,)), measure_policy(), policy(1, device="ring")),
    policy(1, device="ring", stream="steps"),
)


def lived_in(
    folder: Path, sealed: str = "half"
) -> tuple[Scene, list[SymbolFrame], list[MeasureFrame], list[WindowFrame]]:
    """A store with many frames of two devices, that came in no order, so that its pages were split often."""
    generator = random.Random(5)
    scene = Scene(folder / "s.sqlite", lag=4, policies=POLICIES)
    sequence = frames([64] * MANY, seed=7)
    measured = [
        MeasureFrame(
            *(1, first - 1, first, 2),
            tuple(Released(0, (generator.randrange(-(2**31), 2**31), generator.randrange(9))) for _ in range(20)),
        )
        for first in range(0, 600, 20)
    ]
    counts = [
        WindowFrame(1, "high", i - 1, i, 50 * i, 50, 50, (generator.randrange(10**8, 10**9),)) for i in range(MANY)
    ]
    batch = [ReceivedFrame("watch", "hr", frame) for frame in [*sequence, *counts]]
    batch += [ReceivedFrame("watch", "place", frame) for frame in measured]
    batch += [
        ReceivedFrame("ring", stream, frame) for stream in ("hr", "steps") for frame in frames([64] * MANY, seed=8)
    ]
    generator.shuffle(batch)
    for begin in range(0, len(batch), 40):
        scene.receive(batch[begin : begin + 40])
        if sealed == "half" and begin in (200, 400, 440):
            scene.recorder.seal(now=True)
    if sealed == "whole":
        scene.recorder.seal(now=True)
    return scene, sequence, measured, counts


def holds(folder: Path, needle: bytes) -> bool:
    """True if the store, or any file beside it, has some bytes anywhere."""
    return any(needle in path.read_bytes() for path in folder.iterdir() if path.is_file())


def with_a_gap(folder: Path, sealed: str) -> tuple[Scene, list[SymbolFrame]]:
    """A store of nine of ten frames."""
    scene, sequence = Scene(folder / "s.sqlite", lag=4), frames([10] * 10)
    scene.record(*sequence[:4])
    if sealed != "not":
        scene.recorder.seal(now=True)
    scene.record(*sequence[5:])
    if sealed == "whole":
        scene.recorder.seal(now=True)
    scene.store.close()
    scene.open()
    return scene, sequence


SEALED = pytest.mark.parametrize("sealed", ["not", "half", "whole"])


@SEALED
def test_the_bytes_of_a_forgotten_device_are_in_no_file_and_those_of_others_are(tmp_path: Path, sealed: str) -> None:
    scene, heart, measured, counts = lived_in(tmp_path, sealed)
    with closing(sqlite3.connect(scene.path)) as database:
        query = (
            "SELECT distribution FROM chunks WHERE stream=(SELECT id FROM streams WHERE device='watch' AND stream='hr')"
        )
        distributions = [distribution for (distribution,) in database.execute(query)]
        heads = [distribution for (distribution,) in database.execute(query.replace("chunks", "heads"))]
    assert (len(distributions) > 1) == (sealed != "not")
    needles = {
        "symbols": [packed(frame.symbols) for frame in heart],
        "points": [frame.encode()[-200:] for frame in measured],
        "windows": [json.dumps(frame.counts).encode() for frame in counts],
        "distributions": [distribution for distribution in distributions[1:] if distribution not in distributions[:1]],
        "heads": heads,
    }
    others = [packed(frame.symbols) for frame in frames([64] * MANY, seed=8)]
    scene.store.close()
    for kind, some in needles.items():
        assert all(holds(tmp_path, needle) for needle in some[-20:]), kind
    erased = forget_device(tmp_path / "s.sqlite", "watch")
    assert erased == (MANY * 64, 30, MANY)
    for kind, some in needles.items():
        assert not any(holds(tmp_path, needle) for needle in some), kind
    assert all(holds(tmp_path, symbols) for symbols in others)
    scene.open()
    for stream in ("hr", "steps"):
        sent = b"".join(frame.symbols for frame in frames([64] * MANY, seed=8))
        assert b"".join(frame.symbols for frame in scene.stored("ring", stream)) == sent
        assert newest(scene, "ring", stream) is not None
    assert newest(scene) is None
    with closing(sqlite3.connect(scene.path)) as database:
        for table in ("chunks", "heads", "outbox"):
            query = f"SELECT DISTINCT device FROM {table} JOIN streams ON id={table}.stream"
            assert {device for (device,) in database.execute(query)} <= {"ring"}, table
    assert forget_device(tmp_path / "s.sqlite", "watch") == (0, 0, 0)


def test_every_table_that_knows_of_a_forgotten_device_is_one_of_those_that_stay(tmp_path: Path) -> None:
    """A new table is either erased, or named here and in the manual."""
    scene, *_ = lived_in(tmp_path)
    scene.store.close()
    ts = {}
    for forgotten in (False, True):
        if forgotten:
            forget_device(scene.path, "watch")
        with closing(sqlite3.connect(scene.path)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            columns = {t: {row[1] for row in database.execute(f"PRAGMA table_info({t})")} for t in tables}
            number = "stream IN (SELECT id FROM streams WHERE device='watch')"
            where = {t: "device='watch'" if "device" in columns[t] else number for t in tables}
            queries = {
                t: f"SELECT COUNT(*) FROM {t} WHERE {where[t]}" for t in tables if columns[t] & {"device", "stream"}
            }
            ts[forgotten] = {t for t, query in queries.items() if database.execute(query).fetchone()[0]}
    stays = {"streams", "policies", "coverage", "shifts", "released", "conflicts", "stops", "versions"}
    assert ts[True] <= stays
    assert ts[False] - stays == {"chunks", "heads", "measured", "windows", "outbox"}


@pytest.mark.parametrize("sealed", only(["half"], ["not", "half", "whole"]))
def test_what_is_sent_again_after_forgetting_is_known_and_not_stored_and_what_is_new_is(
    tmp_path: Path, sealed: str
) -> None:
    scene, heart, measured, counts = lived_in(tmp_path, sealed)
    before = scene.committed()
    scene.store.close()
    forget_device(scene.path, "watch")
    scene.open()
    assert scene.committed() == before
    scene.counters.clear()
    scene.record(*heart)
    scene.receive([ReceivedFrame("watch", "place", frame) for frame in measured])
    scene.receive([ReceivedFrame("watch", "hr", frame) for frame in counts])
    assert +scene.counters == {"duplicate": len(heart) + len(measured), "windows_duplicate": len(counts)}
    scene.record(SymbolFrame(1, heart[-1].last, heart[-1].last + 1, bytes(10)))
    assert scene.counters["stored"] == 1
    last = newest(scene)
    assert last.frame.first == heart[-1].last + 1


@SEALED
def test_a_frame_that_was_missing_when_its_device_was_forgotten_is_acknowledged_and_forgotten(
    tmp_path: Path, sealed: str
) -> None:
    scene, heart = with_a_gap(tmp_path, sealed)
    scene.store.close()
    forget_device(scene.path, "watch")
    scene.open()
    assert scene.committed().streams[0].gaps
    scene.record(heart[4])
    assert scene.counters["too_old"] == 1
    assert not scene.committed().streams[0].gaps
    assert scene.stored() == []


@SEALED
def test_nobody_waits_for_dropped_frames_before_one_that_is_kept_no_longer(tmp_path: Path, sealed: str) -> None:
    """Its device sends it again, and it accounts for those by then."""
    scene, heart = with_a_gap(tmp_path, sealed)
    scene.store.close()
    forget_device(scene.path, "watch")
    for times in (1, 2):
        scene.open()
        scene.record(replace(heart[5], previous=heart[3].last))
        assert scene.counters["duplicate"] == times
        assert not scene.committed().streams[0].gaps
        scene.store.close()
    scene.open()


def test_forgetting_changes_no_charge_and_no_window_is_released_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled())
    for device in ("watch", "ring"):
        bench.scene.record(*frames([10] * 6), device=device)
    bench.work()
    before = [(entry.number, entry.payload, bench.ledger.charges(entry.number)) for entry in bench.ledger.entries()]
    assert [frame.first for frame in bench.frames] == [0, 20]
    assert all("symbols" in inputs for inputs in inputs_of(bench.ledger).values())
    bench.ledger.close()
    bench.scene.store.close()
    with pytest.raises(LedgerError, match=r"s-ledger\.sqlite is not the ledger that releases of s\.sqlite"):
        forget_device(bench.scene.path, "watch")
    Ledger(tmp_path / "other.sqlite").close()
    with pytest.raises(LedgerError, match="is not the ledger that"):
        forget_device(bench.scene.path, "watch", tmp_path / "other.sqlite")
    forget_device(bench.scene.path, "watch", tmp_path / "l.sqlite")
    bench.scene.open()
    bench.open()
    assert inputs(bench.ledger) == ["", ""]
    assert verify(bench.ledger).problems == ()
    for device in ("watch", "ring"):  # which send everything again, and go on
        bench.scene.record(*frames([10] * 9), device=device)
    bench.work()
    after = [(entry.number, entry.payload, bench.ledger.charges(entry.number)) for entry in bench.ledger.entries()]
    assert after[:2] == before
    assert [frame.first for frame in bench.frames] == [0, 20, 40, 60]
    assert [bool(text) for text in inputs(bench.ledger)] == [False, False, True, True]
    assert verify(bench.ledger).problems == ()
    bench.ledger._db.execute("UPDATE entries SET inputs='', inputs_digest='' WHERE number=3")
    assert verify(bench.ledger).problems == ("entry 3: what it was computed from was changed",)


def inputs(ledger: Ledger) -> list[str]:
    """The sums of every release, as they stand there."""
    with ledger.snapshot() as rows:
        return [row["inputs"] + row["inputs_digest"] for row in rows.entries()]


def test_sums_of_a_forgotten_device_are_in_no_file_and_those_of_others_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(per_device=True))
    for device in ("watch", "ring"):
        bench.scene.record(*frames([10] * 6), device=device)
    bench.work()
    names = [frame.name for frame in bench.frames]
    gone = [text.encode() for text, name in zip(inputs(bench.ledger), names, strict=True) if name == "active-watch"]
    assert len(gone) == 2
    bench.ledger.forget("watch", time_us=1)
    assert [bool(text) for text in inputs(bench.ledger)] == [name == "active-ring" for name in names]
    for file in tmp_path.glob("l.sqlite*"):
        assert not any(text[-64:] in file.read_bytes() or text[:-64] in file.read_bytes() for text in gone)


def test_a_store_in_use_or_without_the_device_is_refused_and_nothing_is_erased(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=4)
    scene.record(*frames([10]))
    with (
        closing(Store(scene.path, lease=Lease())),
        pytest.raises(StoreError, match=r"another gateway runs with the store s.sqlite"),
    ):
        forget_device(scene.path, "watch")
    with pytest.raises(StoreError, match=r"store s.sqlite has nothing of a device clock"):
        forget_device(scene.path, "clock")
    with pytest.raises(StoreError, match="there is no store other"):
        forget_device(tmp_path / "other.sqlite", "watch")
    assert not (tmp_path / "other.sqlite").exists()
    scene.reopen()
    assert newest(scene) is not None


def test_somebody_who_reads_the_store_meanwhile_is_named_and_it_may_be_done_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=4)
    scene.record(*frames([80, 80]))
    needle = packed(frames([80, 80])[0].symbols)
    assert holds(tmp_path, needle)
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM journal").fetchone()
        with pytest.raises(StoreError, match="do it again"):
            forget_device(scene.path, "watch")
        reader.execute("COMMIT")
    assert forget_device(scene.path, "watch").symbols == 0
    assert not holds(tmp_path, needle)
