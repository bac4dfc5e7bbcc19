"""What targets enumerate cleverly, against plain enumeration; location traces that a user gives."""

from __future__ import annotations

import csv
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from gateway.reproduce.bdp import success
from tests.support.command import runner


@pytest.mark.parametrize(("theta", "rho", "ticks"), [(0.1, 0.38, 5), (0.3, 0.2, 4), (0.02, 0.45, 6), (0.4, 0.1, 1)])
def test_success_is_that_of_all_outputs(theta: float, rho: float, ticks: int) -> None:
    middle, total = (ticks - 1) // 2, 0.0
    for symbols in product((0, 1), repeat=ticks):
        weights = [0.0, 0.0]
        for states in product((0, 1), repeat=ticks):
            weight = 0.5
            for a, b in pairwise(states):
                weight *= theta if a != b else 1 - theta
            for state, symbol in zip(states, symbols, strict=True):
                weight *= rho if state != symbol else 1 - rho
            weights[states[middle]] += weight
        total += max(weights)
    assert success(theta, rho, ticks).all_symbols == pytest.approx(total, abs=1e-14)
    assert success(theta, rho, ticks).one_symbol == 1 - rho


def walked(path: Path, places: int) -> Path:
    """Two traces that walk between 2 x 4 places 500 m apart."""
    generator = np.random.default_rng(5)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("user", "latitude", "longitude"))
        for user in (1, 2):
            at = np.array([1, 1])
            for _ in range(places):
                at = np.clip(at + generator.integers(-1, 2, 2), 0, (1, 3))
                writer.writerow((user, 47.0 + 0.0045 * at[0], 8.0 + 0.0066 * at[1]))
    return path


@pytest.mark.long
def test_traces_of_a_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = walked(tmp_path / "walk.csv", 60)
    done = runner(capsys)("reproduce", "dphmm-traces", "--quick", "--traces", file, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    with (tmp_path / "out" / "rows.csv").open(newline="") as written:
        rows = {row["quantity"]: row for row in csv.DictReader(written)}
    assert (rows["cells"]["ours"], rows["side of a cell, metres"]["ours"]) == ("8", "400.0")
    assert int(rows["runs of 24 places inside the cells"]["ours"]) == 4
    assert 1 < float(rows["epsilon 1, G_util: degree of protection"]["ours"]) <= 8
    assert rows["epsilon 1: degree of protection of G_trs over that of G_util"]["status"] == "agrees"


def test_traces_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    for name in ("bad.csv", "none.csv"):
        out = tmp_path / "out"
        done = runner(capsys)("reproduce", "dphmm-traces", "--traces", tmp_path / name, "-o", out)
        assert done.code == 1
        assert name in done.err
        assert not out.exists()
