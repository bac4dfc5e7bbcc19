"""A fleet whose devices several shards store is read as one: whoever reads it cannot tell how many there are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.window_frames import WindowFrame
from fugu.contract.windows import Window
from gateway.audit.model_watch import watch_store
from gateway.history.export import export_history
from gateway.history.learning import learn_class
from gateway.history.pieces import ALWAYS
from gateway.history.smoothing import smooth_history
from gateway.history.tasks import Source
from gateway.location import Location, Server, part_of
from gateway.service.ownership import owner
from gateway.service.store import Store, StoreError
from gateway.service.symbols.arrivals import Received
from tests.support.histories import CLOCK, fill_store
from tests.support.measured import measure_policy
from tests.support.scenes import OTHER, Scene, frames, policy

DEVICES = tuple(f"d{i}" for i in range(7))
HIGH = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")


def filled(store: Location, shards: int) -> Location:
    """Symbols under two policies, windows and points of devices, the last first, each in the store of its shard."""
    Scene(store).store.close()
    for number, device in reversed(list(enumerate(DEVICES))):
        fleet = [policy(1, device=device, windows=(HIGH,)), policy(2, device=device, table=OTHER)]
        some = [one.model_copy(update={"clock": CLOCK}) for one in fleet]
        points = measure_policy().model_copy(update={"device": device, "clock": CLOCK})
        scene = Scene(placed(store, device, shards), policies=(*some, points))  # type: ignore[arg-type]
        made = frames([30, 7, 400] * 3, gaps=[0, 2, 50], versions=[1, 1, 2], seed=number)
        scene.record(*made[:5], device=device)
        scene.recorder.seal(now=True)
        walk = tuple(Released(0, (number % 3, tick % 2)) for tick in range(10))
        others = [Received(device, "hr", WindowFrame(1, "high", -1, 0, 0, 5, 5, (number,)))]
        others += [Received(device, "place", MeasureFrame(1, -1, 0, 2, walk))]
        scene.receive([Received(device, "hr", frame) for frame in made[5:]] + others)
        scene.store.close()
    return store


def placed(store: Location, device: str, shards: int) -> Location:
    """Where what a device sends is stored."""
    return store if shards == 1 else part_of(store, f"shard-{owner(device, shards)}")


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_exports_are_the_same_bytes(tmp_path: Path, server: Server) -> None:
    counted = []
    for name, where, shards in (
        ("one", tmp_path / "one.db", 1),
        ("many", tmp_path / "many.db", 3),
        ("there", server, 3),
    ):
        counted.append(export_history(filled(where, shards), None, ALWAYS, tmp_path / name))
    assert contents(tmp_path / "one") == contents(tmp_path / "many") == contents(tmp_path / "there")
    assert counted[0] == counted[1] == counted[2]
    names = {"symbols", "estimates", "windows", "points", "measurements", "policies"}
    assert {name for name, count in counted[0].items() if count} == names
    assert counted[0]["symbols"] == len(DEVICES) * 3 * 437


@pytest.mark.long
def test_what_is_smoothed_learned_and_watched_is_the_same(tmp_path: Path) -> None:
    stores = []
    for shards in (1, 3):
        (tmp_path / str(shards)).mkdir()
        stores.append(tmp_path / str(shards) / "home.db")
        Store(stores[-1]).close()
        for device in DEVICES:
            fill_store(placed(stores[-1], device, shards), (device,), ticks=5_000)  # type: ignore[arg-type]
        smooth_history(Source(stores[-1], ALWAYS), tmp_path / f"smoothed-{shards}")
    assert contents(tmp_path / "smoothed-1") == contents(tmp_path / "smoothed-3")
    one, many = (learn_class(Source(store, ALWAYS)) for store in stores)
    assert (one.devices, one.ticks) == (len(DEVICES), 5_000 * len(DEVICES))
    assert one == many
    watched = watch_store(stores[1], 0.1)
    assert [row.device for row in watched] == sorted(DEVICES)
    assert watched == watch_store(stores[0], 0.1)


def test_a_shard_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db", 3)
    (tmp_path / "home-shard-1.db").write_bytes(b"nothing of it" * 1000)
    with pytest.raises(StoreError, match=r"home-shard-1\.db"):
        export_history(store, None, ALWAYS, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_shard_may_be_read_alone(tmp_path: Path) -> None:
    store = filled(tmp_path / "home.db", 3)
    with closing(Store(part_of(store, "shard-1"))) as shard:
        mine = [device for device in DEVICES if shard.stream_id(device, "hr") is not None]
    rows = export_history(part_of(store, "shard-1"), None, ALWAYS, tmp_path / "out")
    assert rows["symbols"] == len(mine) * 3 * 437
    assert 0 < len(mine) < len(DEVICES)
