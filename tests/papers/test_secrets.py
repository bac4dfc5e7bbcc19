"""Sequences, close adversaries, random fields and kept noise, each against plain enumeration; options and refusals."""

from __future__ import annotations

import csv
import json
import math
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest

from fugu.planning.errors import PlanningError
from papers.__main__ import main
from papers.correlated import middle_posterior
from papers.mqm import strongest_influence
from papers.secrets import field
from tests.support.command import Done, runner
from tests.support.walk_tables import WALK


@pytest.mark.parametrize(
    ("alpha", "influence"), [(0.1, 1.8567860333521542), (0.3, 0.5850356263251273), (0.4, 0.24275390789085038)]
)
def test_influences_of_gk16_are_those_of_the_authors_program(alpha: float, influence: float) -> None:
    """By its formulas, evaluated by another program."""
    assert strongest_influence(alpha) == pytest.approx(influence, rel=1e-10)


@pytest.mark.parametrize("known_ticks", [(), (1,), (0, 3)])
def test_the_middle_reading_by_every_path_of_readings_and_flips(known_ticks: tuple[int, ...]) -> None:
    readings, flips = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([[0.8, 0.2], [0.4, 0.6]])
    ticks, is_told = 5, np.zeros(5, dtype=np.bool_)
    is_told[list(known_ticks)] = True

    def chance(path: tuple[int, ...], step: np.ndarray) -> float:
        start = np.array([step[1, 0], step[0, 1]]) / (step[0, 1] + step[1, 0])
        return float(start[path[0]] * math.prod(step[a, b] for a, b in pairwise(path)))

    symbols = np.array(list(product((0, 1), repeat=ticks)))
    truth = np.tile([0, 1, 1, 0, 1], (len(symbols), 1))
    posterior = middle_posterior(readings, flips, symbols, truth, is_told)
    for seen, row in zip(symbols.tolist(), posterior, strict=True):
        weights = [0.0, 0.0]
        for path in product((0, 1), repeat=ticks):
            if all(path[tick] == truth[0, tick] for tick in known_ticks):
                noise = tuple(x ^ z for x, z in zip(path, seen, strict=True))
                weights[path[2]] += chance(path, readings) * chance(noise, flips)
        assert row == pytest.approx(np.array(weights) / sum(weights), rel=1e-12)


SQUARE = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]
"""A cycle of four, with a fifth beside it: no directed network has the same independences."""


def drawn_field(seed: int) -> np.ndarray:
    """A distribution of five variables with a drawn factor for each edge."""
    generator = np.random.default_rng(seed)
    joint = np.ones((2,) * 5)
    for a, b in SQUARE:
        shape = [2 if axis in (a, b) else 1 for axis in range(5)]
        joint = joint * generator.uniform(0.5, 2.0, (2, 2)).reshape(shape)
    return np.asarray(joint / joint.sum())


def test_what_a_quilt_separates_in_a_field_is_independent() -> None:
    joint = drawn_field(1)
    network = field(joint, SQUARE)
    assert network.joint == pytest.approx(joint, rel=1e-12)
    for node, size in product(range(5), range(4)):
        for evidence in combinations([other for other in range(5) if other != node], size):
            connected = network.connected_nodes(f"x{node}", [f"x{at}" for at in evidence])
            for other in set(range(5)) - {node, *evidence}:
                axes = (node, other, *evidence)
                marginal = joint.sum(axis=tuple(set(range(5)) - set(axes)), keepdims=True)
                marginal = np.moveaxis(marginal, axes, range(len(axes))).reshape(2, 2, -1)
                apart = marginal.sum(axis=1, keepdims=True) * marginal.sum(axis=0, keepdims=True)
                dependence = np.abs(marginal * marginal.sum(axis=(0, 1), keepdims=True) - apart).max()
                assert (dependence > 1e-9) == (f"x{other}" in connected)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_noise_by_quilts_of_a_field_keeps_epsilon(seed: int) -> None:
    joint = drawn_field(seed)
    states = np.array(list(product((0, 1), repeat=5)))
    for epsilon in (0.5, 3.0):
        scale = field(joint, SQUARE).quilt_scale(epsilon).scale
        assert scale <= 5 / epsilon * (1 + 1e-9)
        density = joint.ravel()[:, None] * np.exp(-np.abs(states.sum(axis=1)[:, None] - np.arange(6)) / scale)
        for at in range(5):
            densities = [
                density[states[:, at] == x].sum(axis=0) / joint.ravel()[states[:, at] == x].sum() for x in (0, 1)
            ]
            assert np.abs(np.log(densities[0] / densities[1])).max() <= epsilon


def test_a_field_with_something_impossible_is_refused() -> None:
    with pytest.raises(PlanningError, match="above 0"):
        field(np.array([[0.5, 0.0], [0.0, 0.5]]), [(0, 1)])


def reproduced(capsys: pytest.CaptureFixture[str], out: Path, *words: object) -> tuple[Done, dict[str, float]]:
    """A run, and its rows."""
    done = runner(capsys, main)(*words, "-o", out)
    if done.code:
        return done, {}
    with (out / "rows.csv").open(newline="") as file:
        return done, {row["quantity"]: float(row["ours"]) for row in csv.DictReader(file)}


def test_sequences_of_ones_own_and_of_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = reproduced(capsys, tmp_path, "dphmm-sequences", "--between", "1,2", "2,1")
    assert rows["example 5.1, epsilon 1: what 2 points tell between states 1 2 and 2 1"] == pytest.approx(2.0, abs=1e-6)
    policy = tmp_path / "walk.json"
    policy.write_text(WALK.to_json())
    _, rows = reproduced(capsys, tmp_path, "dphmm-sequences", "--policy", policy, "--between", "0,0,0", "0,1,0")
    about = f"walk.json, epsilon {WALK.epsilon:g}: what"
    single = rows[f"{about} the first 2 of them tell"]
    assert rows[f"{about} the first 1 of them tell"] == 0.0
    assert WALK.epsilon <= single * (1 + 1e-9)
    assert rows[f"{about} 3 points tell between states 0 0 0 and 0 1 0"] == pytest.approx(single, rel=1e-9)
    for words in (("1,2", "3"), ("1,2", "3,99")):
        assert "states 0 to 5" in reproduced(capsys, tmp_path, "dphmm-sequences", "--between", *words)[0].err


def test_chains_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chains.json"
    file.write_text(json.dumps({"assumed": [[0.5, 0.5], [0.5, 0.5]], "actual": [[0.6, 0.4], [0.5, 0.5]]}))
    _, rows = reproduced(capsys, tmp_path, "mqm-adversaries", "--chains", file)
    assert rows["scale of a count for epsilon 1: the assumed chain"] == pytest.approx(1.0, rel=1e-9)
    assert rows["endless stream: lost to who believes the other, by the accountant"] > 1.0
    assert rows["Delta of 100 ticks"] > 5 * rows["Delta of 10 ticks"]
    file.write_text("{}")
    assert '"assumed"' in reproduced(capsys, tmp_path, "mqm-adversaries", "--chains", file)[0].err
