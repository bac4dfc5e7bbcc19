"""A fleet whose devices several shards store is read as one: whoever reads it cannot tell how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.windows import Window
from gateway.history.export import export_history
from gateway.history.learning import learn_class
from gateway.history.tasks import Source
from gateway.store.journal import Received
from gateway.store.location import Location, Server
from gateway.store.shards import Shard, owner
from tests.support.histories import ALWAYS, CLOCK
from tests.support.measured import measure_policy
from tests.support.scenes import OTHER, Scene, frames, policy

DEVICES = tuple(f"d{i}" for i in range(5))
HIGH = Window(name="high", length=5, stride=5, start=0, states=(1,), scale="2")


def filled(store: Location, shards: int) -> Location:
    """Symbols under two policies, windows and points of devices, the last first, each stored by its shard.

    Some is sealed by one shard while the others have more in the journal.
    """
    for number, device in reversed(list(enumerate(DEVICES))):
        fleet = [policy(1, device=device, windows=(HIGH,)), policy(2, device=device, table=OTHER)]
        some = [policy_.model_copy(update={"clock": CLOCK}) for policy_ in fleet]
        points = measure_policy().model_copy(update={"device": device, "clock": CLOCK})
        shard = None if shards == 1 else Shard(owner(device, shards), shards)
        scene = Scene(store, policies=(*some, points), shard=shard)  # type: ignore[arg-type]
        sequence = frames([30, 7, 400] * 3, gaps=[0, 2, 50], versions=[1, 1, 2], seed=number)
        scene.record(*sequence[:5], device=device)
        if number % 2:
            scene.recorder.seal(now=True)
        walk = tuple(Released(0, (number % 3, tick % 2)) for tick in range(10))
        others = [Received(device, "hr", WindowFrame(1, "high", -1, 0, 0, 5, 5, (number,)))]
        others += [Received(device, "place", MeasureFrame(1, -1, 0, 2, walk))]
        scene.receive([Received(device, "hr", frame) for frame in sequence[5:]] + others)
        scene.store.close()
    return store


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.processes
def test_what_is_exported_learned_and_watched_is_the_same(tmp_path: Path, server: Server) -> None:
    single, many = filled(tmp_path / "one.db", 1), filled(server, 3)
    counted = [
        export_history(store, None, ALWAYS, tmp_path / name) for store, name in ((single, "one"), (many, "many"))
    ]
    assert contents(tmp_path / "one") == contents(tmp_path / "many")
    assert counted[0] == counted[1]
    names = {"symbols", "estimates", "windows", "points", "measurements", "policies"}
    assert {name for name, count in counted[0].items() if count} == names
    assert counted[0]["symbols"] == len(DEVICES) * 3 * 437
    learned = [learn_class(Source(store, ALWAYS)).model_copy(update={"source": ""}) for store in (single, many)]
    assert learned[0] == learned[1]
    assert learned[0].devices == len(DEVICES)
