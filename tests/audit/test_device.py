"""`fugu check device`: the tests find faults as they say, and no more often than they say where there is none."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.randomiser import randomiser, system_entropy
from firmware_sim.constant import run_constant
from fugu.audit.device import (
    check_draws,
    count_cells,
    dependence_alarms,
    device_tests,
    point_cells,
    symbol_distribution,
)
from fugu.contract.chains import BoundedChains
from fugu.contract.discretisers import Baseline, Thresholds
from fugu.contract.errors import FuguError
from fugu.contract.measure_table import StaircaseNoise
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import Window
from tests.support.audited import alone, planned
from tests.support.brokers import Mosquitto
from tests.support.command import Fugu
from tests.support.differential import of_order_2
from tests.support.measured import measure_policy
from tests.support.scenes import policy
from tests.support.soak import only_rows

FALSE_ALARMS = 1e-3
TABLE = NoiseTable.binary(1_200_000_000, 900_000_000)
DISTRIBUTION = symbol_distribution(TABLE, 0)
MEANS = Baseline(baseline_ticks=12, lowest=0.0, highest=1000.0)


def words(seed: int, count: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint64)


def symbols(drawn: NDArray[np.uint64], thresholds: tuple[int, ...] = tuple(TABLE.rows[0])) -> NDArray[np.int64]:
    return np.searchsorted(np.array(thresholds, dtype=np.uint64), drawn, side="right")


def names(cells: NDArray[np.int64], distribution: NDArray[np.float64] = DISTRIBUTION) -> set[str]:
    return {alarm.test for alarm in check_draws("draws", cells, distribution, FALSE_ALARMS).alarms}


@pytest.mark.long
def test_no_more_alarms_than_stated() -> None:
    """With a rate of 10 %, 200 runs: more than 37 alarms have a probability below 10^-4."""
    distribution = (0.7, 0.3)
    generator, chances = np.random.default_rng(7), np.array(distribution)
    alarms = pairs = 0
    for _ in range(200):
        draws, two = generator.choice(len(distribution), (2, 1500), p=chances)
        alarms += bool(check_draws("draws", draws, chances, 0.1).alarms)
        pairs += bool(dependence_alarms((draws, chances), (two, chances), 0.1))
    assert alarms <= 43
    assert pairs <= 37


def test_an_error_of_the_stated_size_is_found() -> None:
    """99 of 100 runs; fewer than 90 of 100 have a probability below 10^-6."""
    generator = np.random.default_rng(3)
    distribution = np.array([0.7, 0.3])
    wrong = (
        distribution
        + np.array([1, -1])
        * check_draws("draws", generator.choice(2, 4000, p=distribution), distribution, FALSE_ALARMS).smallest
    )
    draws = [generator.choice(2, 4000, p=wrong) for _ in range(100)]
    assert sum("frequencies" in names(cells, distribution) for cells in draws) >= 90


@pytest.mark.long
def test_thresholds_that_are_a_hundredth_off_are_found() -> None:
    drawn = words(1, 600_000)
    assert names(symbols(drawn)) == set()
    flips = 1_200_000_000 * 99 // 100
    assert names(symbols(drawn, ((1 << 32) - flips,))) == {"frequencies"}


def test_a_stuck_bit_is_found() -> None:
    assert "frequencies" in names(symbols(words(2, 3000) | np.uint64(1 << 31)))


@pytest.mark.long
def test_a_generator_of_sixteen_bits_is_found() -> None:
    state, words = 1, []
    for _ in range(65_536):
        state = (75 * state + 74) % 65537 % 65536
        words.append(state << 16 | state)
    period = np.array(words, dtype=np.uint64)
    assert {"lags", "repeats"} <= names(symbols(np.tile(period, 3)))


def test_a_block_that_is_used_again_is_found_wherever_it_comes() -> None:
    drawn = words(4, 20_000)
    drawn[17_011 : 17_011 + 1024] = drawn[3003 : 3003 + 1024]
    assert names(symbols(drawn)) == {"repeats"}
    first, two = words(5, 8000), words(6, 8000)
    other = symbol_distribution(TABLE, 1)
    for shift in (0, 700):
        two[shift : shift + 4000] = first[:4000]
        cells = symbols(two, tuple(TABLE.rows[1]))
        assert [
            alarm.test for alarm in dependence_alarms((symbols(first), DISTRIBUTION), (cells, other), FALSE_ALARMS)
        ] == ["streams"]


@pytest.mark.parametrize("size", [700, 4096])
def test_pieces_show_what_all_draws_together_show(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    fair, reused, short = words(4, 20_000), words(5, 20_000), np.tile(words(6, 3001), 6)
    reused[17_011 : 17_011 + 1024] = reused[3003 : 3003 + 1024]
    length = check_draws("draws", symbols(fair), DISTRIBUTION, FALSE_ALARMS).longest
    edge = words(7, 20_000)
    edge[4 * size - 5 : 4 * size - 5 + length] = edge[
        2 * length : 3 * length
    ]  # seen at one draw alone, at a piece's end
    every = [symbols(drawn) for drawn in (fair, reused, short, edge)]
    pairs = [((draws, DISTRIBUTION), (np.roll(draws, 900), DISTRIBUTION)) for draws in every]
    whole = (
        [check_draws("draws", draws, DISTRIBUTION, FALSE_ALARMS) for draws in every],
        [dependence_alarms(*pair, FALSE_ALARMS) for pair in pairs],
    )
    assert [bool(judgement.alarms) for judgement in whole[0]] == [False, True, True, True]
    assert all(whole[1])
    monkeypatch.setattr("fugu.audit.device._PIECE", size)
    assert whole == (
        [check_draws("draws", draws, DISTRIBUTION, FALSE_ALARMS) for draws in every],
        [dependence_alarms(*pair, FALSE_ALARMS) for pair in pairs],
    )


@pytest.mark.long
def test_numbers_of_two_decimals_are_found() -> None:
    drawn = np.round(words(8, 300_000) / 2**32, 2) * 2**32
    assert names(symbols(drawn.astype(np.uint64))) == {"frequencies"}


@pytest.mark.parametrize("scale", [Fraction(3, 7), Fraction(2), Fraction(70, 3)])
def test_counts_have_the_distribution_of_their_scale(scale: Fraction) -> None:
    generator = np.random.default_rng(9)

    def noise(of: float) -> list[int]:
        up, two = generator.geometric(-np.expm1(-1 / of), (2, 40_000))
        return [int(value) for value in up - two]

    cells, distribution = count_cells(noise(float(scale)), scale)
    assert distribution.sum() == pytest.approx(1, abs=1e-12)
    assert names(cells, distribution) == set()
    cells, distribution = count_cells(noise(float(scale) * 0.9), scale)
    assert "frequencies" in names(cells, distribution)


@pytest.mark.long
@pytest.mark.parametrize("side", [3, 11])
def test_points_have_the_distribution_of_their_table(side: int) -> None:
    """Of a table, and of a staircase in its box, both by the sampler that devices run."""
    policy = measure_policy(side, tables=False)
    noise, generator = policy.measure_tables[0].noise, np.random.default_rng(11)
    state = side * side // 2
    centre = policy.coordinates[state]

    def below(most: int) -> int:
        return int(generator.integers(most))

    if isinstance(noise, StaircaseNoise):
        drawn = [noise.draw(centre, below) for _ in range(20_000)]
    else:
        drawn = [noise.points[noise.draw(state, below(1 << 32))] for _ in range(8000)]
    cells, distribution = point_cells(drawn, noise, state, centre)
    assert distribution.sum() == pytest.approx(1, abs=1e-9)
    assert names(cells, distribution) == set()
    other = policy.coordinates[state + 1]
    assert "frequencies" in names(*point_cells(drawn, noise, state + 1, other))


def audited(
    fugu: Fugu, folder: Path, broker: Mosquitto, plan: Any, fault: str, draws: int, counts: int = 100
) -> tuple[int, Any]:
    (folder / "policy.json").write_text(plan.to_json())
    command = f"{sys.executable} -m tests.support.broken_agent {fault}"
    words = ("--broker", f"127.0.0.1:{broker.port}", "--command", command, "--draws", draws, "--counts", counts)
    words = (*words, "--false-alarms", 1e-9)  # else one run in a thousand would fail, for what the machine has drawn
    for period in (3e-4, 1e-3, 3e-3, 1e-2):
        done = fugu("check", "device", folder / "policy.json", *words, "--period", period, "--json")
        if "take a longer period" not in done.err:
            break
    assert done.err == ""
    return done.code, done.json()


def failed(report: Any) -> set[str]:
    return {alarm["test"] for judgement in report["tests"] for alarm in judgement["alarms"]}


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "failing", "draws"),
    only_rows(
        [("raw-at-changes", {"changes"}, 4000)],
        [("honest", set(), 20_000), ("raw-at-changes", {"changes"}, 4000), ("seeded", {"repeats"}, 4000)],
    ),
)
def test_a_device_is_judged_by_its_bytes(
    fugu: Fugu, broker: Mosquitto, tmp_path: Path, fault: str, failing: set[str], draws: int
) -> None:
    """Of 1,700 draws the raw states at changes are about as often an alarm as not: of 4,000 always."""
    code, report = audited(fugu, tmp_path, broker, planned(epsilon=8.0), fault, draws)
    assert (code, failing <= failed(report), bool(failed(report))) == (len(failing), True, bool(failing)), report
    assert [judgement["draws"] >= draws for judgement in report["tests"][:2]] == [True, True]
    assert report["problem"] == ""


@pytest.mark.soak
def test_shorter_periods_take_several_streams_of_a_state(broker: Mosquitto, tmp_path: Path) -> None:
    command, plan = [sys.executable, "-m", "edge_agent"], planned()
    outputs = run_constant(command, plan, broker.broker, tmp_path, 5000, period_us=40, patience=60.0)
    assert len(list(tmp_path.glob("state*.json"))) == 4
    assert not any(tested.alarms for tested in device_tests(plan, outputs.symbols, {}, {}, 1e-9))


@pytest.mark.soak
def test_joint_chains_have_the_same_tables(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    code, report = audited(fugu, tmp_path, broker, of_order_2(policy()), "honest", 2000)
    assert (code, failed(report)) == (0, set())


@pytest.mark.soak
def test_a_state_of_missing_readings_is_audited_like_any_other(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    table = NoiseTable(((1 << 31, 3 << 30), (1 << 30, 3 << 30), (1 << 30, 1 << 31)))
    plan = policy(table=table, chains=BoundedChains(states=3, odds_ratio=1.5))
    states = Thresholds(edges=(1.0,), states=("low", "high", "missing"), missing="missing")
    code, report = audited(fugu, tmp_path, broker, plan.model_copy(update={"discretiser": states}), "honest", 1000)
    assert (code, failed(report)) == (0, set())
    assert "symbols of missing" in [test["of"] for test in report["tests"]]


@pytest.mark.long
def test_an_honest_device_is_called_wrong_no_more_often_than_stated() -> None:
    """Runs of what devices draw with, at a rate of 10 %: more alarms have a probability below 10^-6."""
    plan = policy()
    assert plan.table is not None
    draw = randomiser(plan.table, system_entropy())
    alarms = 0
    for _ in range(100):
        drawn = {state: bytes(draw(state) for _ in range(1500)) for state in (0, 1)}
        alarms += any(tested.alarms for tested in device_tests(plan, drawn, {}, {}, 0.1))
    assert alarms <= 27


@pytest.mark.long
def test_counts_of_a_device_are_judged_too(
    fugu: Fugu, broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one whose states are above a running mean, which has the same tables; it starts once for each kind."""
    monkeypatch.setattr("firmware_sim.constant._STARTS", 1)
    windows = (Window(name="high", length=20, stride=10, states=(1,), scale="400"),)
    plan = planned(windows=windows).model_copy(update={"discretiser": MEANS})
    code, report = audited(fugu, tmp_path, broker, plan, "honest", 1000, 100)
    assert (code, failed(report)) == (0, set())
    low, high = MEANS.states
    assert [judgement["of"] for judgement in report["tests"]] == [
        f"symbols of {low}",
        f"symbols of {high}",
        "symbols at changes",
        f"window high of {low}",
        f"window high of {high}",
        "window high",
        "window high at changes",
    ]


@pytest.mark.soak
def test_noise_that_is_kept_across_starts_is_found(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    """Of 2048 counts of a start, most are in messages of the states: some message comes twice."""
    windows = (Window(name="high", length=20, stride=10, states=(1,), scale="400"),)
    plan = alone(planned(windows=windows), "windows")
    code, report = audited(fugu, tmp_path, broker, plan, "kept-noise", 1000, 9000)
    assert code == 1
    assert "repeats" in failed(report)


@pytest.mark.soak
def test_points_of_a_real_agent(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    for side in (3, 11):
        code, report = audited(fugu, tmp_path, broker, measure_policy(side), "honest", 4000)
        assert (code, failed(report)) == (0, set())


@pytest.mark.soak
def test_an_agent_that_cannot_keep_up_is_one_line(broker: Mosquitto, tmp_path: Path) -> None:
    """Nobody draws every 3 microseconds: after ten seconds ticks are left out, and frames are never full."""
    command = [sys.executable, "-m", "edge_agent"]
    with pytest.raises(FuguError, match=r"cannot keep up, after .* draws of a state: take a longer period"):
        run_constant(command, planned(), broker.broker, tmp_path, 10**8, period_us=3, patience=60.0)


@pytest.mark.parametrize("period", [1e-2, 1e-9])
def test_an_agent_that_ends_is_one_line(fugu: Fugu, broker: Mosquitto, tmp_path: Path, period: float) -> None:
    (tmp_path / "policy.json").write_text(planned().to_json())
    words = ("--broker", f"127.0.0.1:{broker.port}", "--command", "echo no agent", "--period", period)
    done = fugu("check", "device", tmp_path / "policy.json", *words)
    assert done.code == 1
    assert "the agent has ended, after 0 draws of a state: no agent" in done.err
