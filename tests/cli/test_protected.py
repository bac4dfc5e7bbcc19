"""`fugu policy check` says what of a tick is protected."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.discretisers import ON_OFF, Baseline, Cells, Discretiser, Thresholds
from tests.support.command import Fugu
from tests.support.measured import measure_policy
from tests.support.scenes import policy

BANDS = {"edges": (-5.0,), "states": ("low", "high")}
MEAN = "one's own running mean of 300 ticks"
START = ", not the reading; the first 300 ticks after every start have no state"


@pytest.mark.parametrize(
    ("discretiser", "sentence"),
    [
        (Thresholds(edges=(70.5,), states=("calm", "awake")), "which of calm, awake a tick is in (edge 70.5)"),
        (ON_OFF, "which of off, on a tick is in"),
        (
            Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=((0, 0), (1, 0)), states=("west", "east")),
            "which of west, east a tick is in",
        ),
        (Baseline(baseline_ticks=300, lowest=30.0, highest=220.0), f"being above {MEAN} at a tick{START}"),
        (
            Baseline(baseline_ticks=300, lowest=30.0, highest=220.0, **BANDS),
            f"which of low, high a tick is in (difference from {MEAN}: edge -5){START}",
        ),
        (
            Baseline(baseline_ticks=300, lowest=0.0, highest=9.0, compare="multiple", edges=(1.5,)),
            f"which of below, above a tick is in (multiple of {MEAN}: edge 1.5){START}",
        ),
    ],
)
def test_what_is_protected(fugu: Fugu, tmp_path: Path, discretiser: Discretiser, sentence: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(policy().model_copy(update={"discretiser": discretiser}).to_json())
    assert f"  protected is {sentence}\n" in fugu("policy", "check", file).out
    assert fugu("policy", "check", file, "--json").json()["protected"] == f"protected is {sentence}"


def test_what_is_protected_by_points(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    states = tuple(f"s{state}" for state in range(9))
    cells = Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=tuple((x, 0) for x in range(9)), states=states)
    file.write_text(measure_policy(3, discretiser=cells).to_json())
    assert "  protected is which of 9 states a tick is in\n" in fugu("policy", "check", file).out
