"""Both engines come to the same state, row for row, whatever a recorder is sent and however often it starts anew."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.windows import Window
from gateway.loop.inbox import Received
from gateway.store.location import Location, Server
from gateway.store.store import KIND
from tests.support.scenes import OTHER, Scene, frames, policy

HIGH = Window(name="high", length=10, stride=10, start=3, states=(1,), scale="20")
POLICIES = (policy(1, windows=(HIGH,)), policy(2, table=OTHER), policy(1, device="ring"))
STEPS = 60
MOST = 12


def rows(scene: Scene) -> dict[str, list[Any]]:
    """Everything that is stored, but for what is random."""
    database = scene.store._db
    with scene.store.snapshot():
        tables = {
            name: sorted(database.execute(f"SELECT * FROM intact_{name}"), key=repr)
            for name in re.findall(r"CREATE TABLE (\w+)", KIND.schema)
        }
    del tables["release_record"]
    return tables


def frames_of(device: str) -> list[Received]:
    """Frames with gaps, under two policies, some of which contradict others; and windows."""
    gaps, versions = (0, 0, 7), (1, 1, 1, 2) if device == "watch" else (1,)
    sequence = frames([13, 10, 31] * MOST, gaps=gaps, versions=versions, seed=len(device))
    others = [replace(frame, symbols=bytes(1 - value for value in frame.symbols)) for frame in sequence[::7]]
    received = [Received(device, "hr", frame) for frame in (*sequence, *others)]
    if device == "watch":
        counts = [WindowFrame(1, "high", i - 1, i, 3 + 10 * i, 10, 10, (i - 4,)) for i in range(MOST)]
        received += [Received(device, "hr", frame) for frame in (*counts, replace(counts[3], counts=(9,)))]
    return received


@pytest.mark.long
@pytest.mark.processes
def test_both_engines_come_to_the_same_state(tmp_path: Path, server: Server) -> None:
    drawn = random.Random(18)
    sent = [received for device in ("watch", "ring") for received in frames_of(device)]
    places: tuple[Location, ...] = (tmp_path / "s.sqlite", server)
    scenes = [Scene(place, policies=POLICIES) for place in places]  # type: ignore[arg-type]
    for _ in range(STEPS):
        batch = drawn.sample(sent, drawn.randint(1, MOST))
        sealed, again = drawn.random() < 0.2, drawn.random() < 0.1
        for scene in scenes:
            scene.receive(batch)
            if sealed:
                scene.recorder.seal(now=True)
            if again:
                scene.reopen()
    file, database = scenes
    assert rows(file) == rows(database)
    assert file.counters == database.counters
    assert file.counters > Counter(stored=50, late=20, duplicate=50, conflict=5), "everything has happened"
    for device in ("watch", "ring"):
        assert file.committed(device) == database.committed(device)
    forgotten = []
    for scene in scenes:
        with scene.store.transaction():
            forgotten.append(scene.store.aged.forget("watch"))
    assert forgotten[0] == forgotten[1]
    assert rows(file) == rows(database)
    for scene in scenes:
        scene.store.close()
