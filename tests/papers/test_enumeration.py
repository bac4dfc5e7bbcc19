"""Clever enumerations of targets, against plain enumeration; location traces that a user gives."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from papers.__main__ import main
from papers.bdp import success
from papers.correlated import flip_chain_loss, ignorant_loss, least_flips
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


READINGS, FLIPS = ((9, 1), (1, 9)), ((8, 2), (3, 7))
"""Tenths: theta = .1; a flip follows no flip with rho0 = .2, and no flip a flip with rho1 = .3."""


def likelihoods(ticks: int, evidence: dict[int, int]) -> dict[tuple[int, ...], Fraction]:
    """Pr(symbols | known states) by every path of readings and flips; both chains start stationary."""

    def chance(path: tuple[int, ...], steps: tuple[tuple[int, int], tuple[int, int]]) -> Fraction:
        start = Fraction(steps[1 - path[0]][path[0]], steps[0][1] + steps[1][0])
        return start * math.prod(Fraction(steps[a][b], 10) for a, b in pairwise(path))

    paths = list(product((0, 1), repeat=ticks))
    fitting = {path: chance(path, READINGS) for path in paths if all(path[tick] == x for tick, x in evidence.items())}
    chances = dict.fromkeys(paths, Fraction(0))
    for flips in paths:
        weight = chance(flips, FLIPS)
        for path, share in fitting.items():
            chances[tuple(x ^ flip for x, flip in zip(path, flips, strict=True))] += share * weight
    total = sum(fitting.values())
    return {symbols: value / total for symbols, value in chances.items()}


def lost(ticks: int, secret: int, evidence: dict[int, int]) -> float:
    """The largest log-ratio between the states of a tick, whatever the symbols."""
    first, other = (likelihoods(ticks, {**evidence, secret: state}) for state in (0, 1))
    return max(abs(math.log(first[symbols] / other[symbols])) for symbols in first)


@pytest.mark.long
def test_the_loss_of_dependent_flips_is_that_of_all_paths() -> None:
    """Five ticks, the secret in the middle: every symbol, and every nearest known state on either side or none."""
    sides = [{}, *({at: state} for at in (0, 1) for state in (0, 1))]
    after = [{4 - tick: state for tick, state in side.items()} for side in sides]
    worst = [
        max(lost(5, 2, {**left, **right}) for left, right in pairs)
        for pairs in ([({}, {})], list(product(sides, after)))
    ]
    for informed, loss in zip((False, True), worst, strict=True):
        assert flip_chain_loss(0.1, 0.2, 0.3, informed=informed, ticks=2) == pytest.approx(loss, rel=1e-12)


def test_flips_that_depend_lose_as_much_as_others_to_the_ignorant_and_less_to_the_informed() -> None:
    limit = ignorant_loss(0.1, 0.2, 0.3)
    for rho0, rho1 in ((0.2, 0.3), (0.4, 0.6), (0.3, 0.45)):
        assert flip_chain_loss(0.1, rho0, rho1, informed=False) == pytest.approx(limit, rel=1e-9)
    losses = [flip_chain_loss(0.1, rho0, rho1, informed=True) for rho0, rho1 in ((0.2, 0.3), (0.4, 0.6))]
    assert limit < losses[0] < losses[1]
    assert [round(loss, 3) for loss in losses] == [2.834, 2.889]
    for epsilon, few, more in ((4.0, 0.313, 0.344), (6.0, 0.128, 0.217)):
        assert least_flips(0.1, epsilon, dependent=True) == pytest.approx(few, abs=5e-4)
        assert least_flips(0.1, epsilon, dependent=False) == pytest.approx(more, abs=5e-4)


def test_seven_ticks_of_dependent_flips_say_little_of_long_streams() -> None:
    assert flip_chain_loss(0.1, 0.2, 0.3, informed=False, ticks=3) == pytest.approx(1.042, abs=5e-4)
    assert flip_chain_loss(0.1, 0.2, 0.3, informed=True, ticks=3) == pytest.approx(2.564, abs=5e-4)


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
    done = runner(capsys, main)("dphmm-traces", "--quick", "--traces", file, "-o", tmp_path / "out")
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
        done = runner(capsys, main)("dphmm-traces", "--traces", tmp_path / name, "-o", out)
        assert done.code == 1
        assert name in done.err
        assert not out.exists()
