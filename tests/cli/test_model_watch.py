"""`fugu gateway watch`: what is in a store is tested against the classes of its policies, a week at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.chains import simulate
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Baseline
from fugu.contract.frames import SymbolFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from gateway.audit.model_watch import watch_store
from gateway.store.aged import SYMBOLS
from tests.support.command import Fugu
from tests.support.scenes import Scene, policy

MINUTE = Clock(epoch_us=0, period_us=60_000_000)
WEEK = 7 * 24 * 60
BOX = BinaryChains(q=(0.08, 0.12), r=(0.1, 0.15))
TABLE = NoiseTable.binary(1_200_000_000, 1_400_000_000)
FRAME = 140


def minutes(version: int = 1, *, chains: BinaryChains = BOX, **changes: object) -> Policy:
    made = policy(version, device=str(changes.pop("device", "watch")), table=TABLE, chains=chains)
    return made.model_copy(update={"clock": MINUTE, **changes})


def frames(version: int, first: int, ticks: int, q: float, r: float, seed: int = 1) -> list[SymbolFrame]:
    """Symbols of a chain under the table."""
    rows = np.array(TABLE.weights()) / 2.0**32
    made = simulate(ticks, [0.5, 0.5], [[1 - q, q], [r, 1 - r]], rows, np.random.default_rng(seed)).symbols
    begins = range(0, ticks, FRAME)
    return [
        SymbolFrame(version, first + at - 1, first + at, bytes(made[at : at + FRAME].astype(np.uint8).tolist()))
        for at in begins
    ]


@pytest.mark.long
def test_a_departure_is_found_and_a_stream_of_the_class_is_left_alone(tmp_path: Path, fugu: Fugu) -> None:
    universal = minutes(device="band", guarantee=Guarantee(epsilon=50.0, adversary="universal"))
    lossy = minutes(device="belt", missing_share=0.1)
    scene = Scene(tmp_path / "home.db", 4, (minutes(), minutes(device="ring"), universal, lossy))
    scene.record(*frames(1, 1, WEEK, 0.1, 0.12))
    scene.record(*frames(1, 1, WEEK, 0.1, 0.12), *frames(1, 1 + WEEK, WEEK, 0.008, 0.01, 2), device="ring")
    scene.record(*frames(1, 1, WEEK, 0.001, 0.001), device="band")
    scene.record(*frames(1, 1, WEEK, 0.001, 0.001), device="belt")
    scene.store.close()
    found = {one.device: one for one in watch_store(scene.path, 0.1)}
    assert {one.threshold for one in found.values()} == {40.0}, "four streams share one false alarm in ten years"
    right, wrong = found["watch"], found["ring"]
    assert (right.alarm, right.off) == (None, None)
    assert right.evidence < 40.0
    assert wrong.alarm is not None
    assert WEEK < wrong.alarm < 2 * WEEK
    assert right.notices == wrong.notices
    assert right.notices is not None
    assert "may change at every step" in str(found["band"].off)
    assert "missing" in str(found["belt"].off)
    assert (found["band"].alarm, found["belt"].alarm) == (None, None)
    done = fugu("gateway", "watch", scene.path, "--json")
    assert done.code == 1
    assert {one["device"]: one["alarm"] for one in done.json()} == {d: one.alarm for d, one in found.items()}
    shown = fugu("gateway", "watch", scene.path)
    assert (shown.code, shown.err) == (1, "")
    text = " ".join(shown.out.split())
    assert f"at tick {wrong.alarm}" in text
    assert "off: a class whose chains may change" in text


def test_what_was_won_is_kept_when_a_policy_comes_and_lost_when_a_year_ends(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "home.db", 4, (minutes(), minutes(2)))
    scene.record(*frames(1, 1, WEEK, 0.02, 0.03))
    before = watch_store(scene.path, 0.1)[0].evidence
    scene.record(*frames(2, 1 + WEEK, WEEK, 0.1, 0.12, 2))
    after = watch_store(scene.path, 0.1)[0]
    assert after.version == 2
    assert after.alarm is not None
    assert after.evidence >= 0.9 * before > 1.0
    scene.record(*frames(2, 52 * WEEK, WEEK // 4, 0.1, 0.12, 3))
    later = watch_store(scene.path, 0.1)[0]
    assert later.alarm == after.alarm, "what was found stays found"
    assert later.evidence < 1.0
    scene.store.close()


def test_with_too_much_noise_it_is_off(tmp_path: Path) -> None:
    noisy = minutes().model_copy(update={"table": NoiseTable.binary((1 << 31) - 99, (1 << 31) - 99)})
    scene = Scene(tmp_path / "home.db", 4, (noisy,))
    scene.record(*frames(1, 1, 2 * FRAME, 0.1, 0.12))
    scene.store.close()
    (found,) = watch_store(scene.path, 0.5)
    assert found.off == "off: with so much noise no departure would be noticed in a week"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("none.db",), "there is no store none.db"),
        (("none.db", "--false-alarms", "0"), "above 0 and below 1 for a fleet and year, got 0"),
        (("none.db", "--false-alarms", "nan"), "got nan"),
    ],
)
def test_what_cannot_be_watched_is_one_line(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fugu("gateway", "watch", *words)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert complaint in done.err


def test_with_a_baseline_it_is_off(tmp_path: Path) -> None:
    """Ticks after a start have symbols of a public distribution, from no chain: an hour a day raised alarms."""
    mean = Baseline(baseline_ticks=60, lowest=0.0, highest=99.0)
    scene = Scene(tmp_path / "home.db", 4, (minutes(discretiser=mean),))
    scene.record(*frames(1, 1, 2 * FRAME, 0.1, 0.12))
    scene.store.close()
    (found,) = watch_store(scene.path, 0.5)
    assert "baseline" in str(found.off)


def test_a_week_of_which_symbols_are_gone_is_left_out_and_the_watch_says_since_when(tmp_path: Path, fugu: Fugu) -> None:
    scene = Scene(tmp_path / "home.db", 4, (minutes(),))
    made = frames(1, 0, 3 * WEEK, 0.008, 0.01)
    scene.record(*made)
    number = scene.store.stream_id("watch", "hr")
    assert number is not None
    whole = watch_store(scene.path, 0.1)[0]
    assert (whole.since, whole.alarm is None) == (0, False)
    gone = made[len(made) // 2]
    scene.store.aged.remove(SYMBOLS, number, gone.first, gone.last + 1)
    left = watch_store(scene.path, 0.1)[0]
    assert left.since == next(frame.first for frame in made if frame.first >= 2 * WEEK)
    assert 1.0 < left.evidence < whole.evidence
    scene.store.close()
    text = fugu("gateway", "watch", scene.path).out
    assert str(left.since) in text
