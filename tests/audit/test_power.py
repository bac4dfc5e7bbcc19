"""Power of the audit of a device by its draws, and how often it is wrong: the numbers of its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.audit import device
from fugu.audit.device import check_draws, dependence_alarms, frequency_alarms, smallest_error

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
DRAWS = {"10^5": 10**5, "10^6": 10**6, "10^7": 10**7, "10^8": 10**8, "10^10": 10**10}
FLIP = np.array([0.7, 0.3])
COIN = np.array([0.5, 0.5])
EACH = 1e-3 / 2 / 2
"""Part that each of two streams has of a rate of 1 in 1000, half of which goes to their dependence."""


def counted(seed: int, number: int, distribution: NDArray[np.float64], runs: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).multinomial(number, distribution, runs)


def detected(drawn: NDArray[np.int64], distribution: NDArray[np.float64], rate: float) -> float:
    """The share of runs with an alarm of `frequency_alarms`."""
    return sum(bool(frequency_alarms(counts, distribution, rate / 3)) for counts in drawn) / len(drawn)


def rows(title: str) -> list[list[str]]:
    """The body of the table of the page whose first column has this title."""
    lines = PAGE.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {title} |"))
    body = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split("|")])
    return body


def weakened(share: float) -> NDArray[np.float64]:
    """The distribution of a flip whose threshold is smaller by a share of itself."""
    return np.array([1 - FLIP[1] * (1 - share), FLIP[1] * (1 - share)])


@pytest.mark.long
def test_the_page_says_what_is_found() -> None:
    """Of 100 runs of multinomial counts; a share on the page is right to 3 of their deviations and half a per cent."""
    table = rows("draws of a state")
    assert [row[0] for row in table] == list(DRAWS)
    for seed, (name, of_coin, *shares) in enumerate(table):
        assert f"{smallest_error(DRAWS[name], COIN, EACH):.2g}" == of_coin, name
        for share, rate in zip((0.01, 0.001, 0.0001), shares, strict=True):
            power = detected(counted(seed, DRAWS[name], weakened(share), 100), FLIP, EACH)
            stated = float(rate.removesuffix(" %")) / 100
            assert abs(power - stated) <= 3 * (stated * (1 - stated) / 100) ** 0.5 + 0.005, (name, share, power)


@pytest.mark.long
@pytest.mark.parametrize("distribution", [(0.5, 0.5), (0.7, 0.3), (0.97, 0.03), (0.1, 0.2, 0.3, 0.4)])
def test_errors_of_the_stated_size_are_found_in_a_hundred_million_draws(distribution: tuple[float, ...]) -> None:
    """99 of 100 runs; 300 runs show at least 97 of 100 but with a probability below 10^-4. Half the error is not."""
    honest = np.array(distribution)
    error = smallest_error(10**8, honest, EACH)
    at = int(np.argmax(honest * (1 - honest)))
    shift = -honest / (1 - honest[at])
    shift[at] = 1
    assert detected(counted(1, 10**8, honest + error * shift, 300), honest, EACH) >= 0.97
    assert detected(counted(2, 10**8, honest + error / 2 * shift, 300), honest, EACH) <= 0.5


@pytest.mark.long
def test_a_hundred_million_draws_alarm_no_more_often_than_stated() -> None:
    """1000 runs at a rate of 5 % for frequencies: more than 4 deviations above it have a probability below 10^-4."""
    distribution = (0.97, 0.03)
    honest = np.array(distribution)
    share = detected(counted(3, 10**8, honest, 1000), honest, 0.15)
    assert 0.01 < share <= 0.05 + 4 * (0.05 * 0.95 / 1000) ** 0.5


@pytest.mark.parametrize("mean", [100, 1000, 10**6])
def test_far_tails_of_numbers_of_pairs_are_not_underestimated(mean: int) -> None:
    """Numbers of rare pairs are near Poisson's: a normal's tails are too light for them, by far with a mean of 100."""
    from scipy import stats  # takes as long to import as many tests to run

    for chance in (1e-4, 1e-7, 1e-10, 1e-16):
        most = mean + device._max_deviations(chance, mean**-0.5) * mean**0.5
        assert chance / 100 < stats.poisson.sf(np.ceil(most), mean) <= chance  # whole numbers
    normal = mean + stats.norm.isf(1e-10) * mean**0.5
    assert stats.poisson.sf(normal, mean) > 1e-10


def test_rare_outcomes_are_not_called_dependent() -> None:
    """Fair draws, at a rate of 10 %: normal tails called the first wrong by `lags`, and the second by `streams`."""
    distribution = np.array([0.9, 0.1])
    lags, pairs = (
        (np.random.default_rng(seed).random((2, 20_400)) < distribution[1]).astype(np.uint8) for seed in (9, 21)
    )
    assert "lags" not in {alarm.test for alarm in check_draws("draws", lags[0], distribution, 0.3).alarms}
    assert dependence_alarms((pairs[0], distribution), (pairs[1], distribution), 0.1) == []
