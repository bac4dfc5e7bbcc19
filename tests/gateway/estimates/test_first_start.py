"""A gateway on a new machine: what it takes and says before any of its kernels is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from fugu.chains.kernel import compile_in_background, kernel
from gateway.estimates import beliefs, past, symbols
from gateway.store import journal
from gateway.store import symbols as stored
from tests.support.scenes import BOUNDED, TERNARY, Scene, frames, newest, policy

Jobs = list[Callable[[], bool]]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The gateway's kernels as on a machine that has none; what would compile them."""
    jobs: Jobs = []
    for module in (beliefs, past, symbols, journal, stored):
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher):
                function: Any = value.py_func
                monkeypatch.setattr(module, name, kernel(function))
    compile_in_background(jobs.append)
    yield jobs
    compile_in_background(None)


def _served(folder: Path) -> tuple[list[bytes], dict[str, int]]:
    """Take frames of two and three states, with gaps short and long, and seal; the beliefs to the bit, and counters."""
    scene = Scene(folder / "s.sqlite", policies=(policy(1), policy(3, table=TERNARY, chains=BOUNDED, stream="level")))
    states = []
    for stream, version in (("hr", 1), ("level", 3)):
        some = frames([10, 7, 1, 30, 12], gaps=(0, 3, 200), versions=(version,))
        for frame in some:
            parsed, read = journal.parse([frame.encode()])
            assert read.all()
            assert parsed.frame(0) == frame
            scene.record(frame, stream=stream)
        belief = newest(scene, stream=stream)
        assert belief.frame == some[-1]
        states.append(belief.belief.tobytes())
    scene.recorder.seal(now=True)
    scene.store.close()
    return states, dict(scene.counters)


def test_frames_are_stored_and_estimated_before_a_kernel_is_compiled_and_to_the_same_bits(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "compiled").mkdir()
    expected = _served(tmp_path / "compiled")
    jobs: Jobs = request.getfixturevalue("waiting")
    assert _served(tmp_path) == expected
    assert expected[1]["stored"] == 10
    assert 6 <= len(jobs) <= 10, "each once for one kind of arrays, whatever the models"


@pytest.mark.parametrize("states", [2, 3])
def test_what_is_looked_back_on_is_the_same_to_the_bit(states: int, request: pytest.FixtureRequest) -> None:
    generator = np.random.default_rng(states)
    transition, emission = (generator.dirichlet(np.ones(states), states) for _ in range(2))
    bank = beliefs.Bank()
    rows = np.vstack([emission.T, np.ones(states)])
    at = np.array([bank.index(beliefs.Model(transition, emission, rows, np.full(states, 1 / states), None))])
    columns = stored.Columns.of([(0, frame) for frame in frames([40], versions=(1 if states == 2 else 3,))])
    arguments = bank.arrays, at, columns, np.full((1, states), 1 / states), 5
    expected = beliefs.look_back(*arguments)
    jobs: Jobs = request.getfixturevalue("waiting")
    assert [array.tobytes() for array in beliefs.look_back(*arguments)] == [array.tobytes() for array in expected]
    assert len(jobs) == 1
