"""Audiences learn no more of ticks in a row than they are promised: by every path, symbol and output."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.stretches import stretch_ticks
from fugu.contract.windows import Mechanism
from fugu.privacy.chain_class import ChainClassError
from gateway.releases.allowance import allowance, joint_loss, smallest_scale
from gateway.releases.charges import nats, units_above
from gateway.releases.config import Audience, ReleaseConfig, joint_charge
from tests.support.sanitised_counts import stationary

STICKY = ((0.9, 0.1), (0.4, 0.6))
TURNING = ((0.3, 0.7), (0.8, 0.2))
ROUND = ((0.34, 0.07, 0.59), (0.02, 0.01, 0.97), (0.01, 0.02, 0.97))
"""A chain whose past and future tell different pairs of states apart."""
TABLE = NoiseTable.binary(SCALE // 10, SCALE // 5)
N = 5
FAR = (-60, 0, 1, 60)


class Told(NamedTuple):
    """Counts of symbols, or of states, of the ticks first..last, with discrete Laplace noise."""

    first: int
    last: int
    scale: float
    symbols: bool = True


def spread(length: int, stride: int) -> list[tuple[int, int]]:
    """The windows of some ticks that are as long, one every `stride` ticks."""
    return [(first, first + length - 1) for first in range(0, N - length + 1, stride)]


def stretches_lose(matrix: tuple[tuple[float, ...], ...], heard: list[Told], ticks: int, *, is_known: bool) -> float:
    """The largest log-likelihood ratio of two courses of so many ticks in a row, over all outputs; what is hit is 1.

    With `is_known`, also for those who know states of ticks outside.
    """
    transition = np.array(matrix)
    states = len(transition)
    paths = np.array(list(product(range(states), repeat=N)))
    prior = stationary(transition)[paths[:, 0]] * transition[paths[:, :-1], paths[:, 1:]].prod(axis=1)
    symbols = np.array(list(product((0, 1), repeat=N)))
    weights = np.array(TABLE.weights()) / SCALE
    shown = np.minimum(paths, 1)
    likely = weights[shown[:, None, :], symbols[None, :, :]].prod(axis=2)  # (paths, symbols)
    outputs = np.array(list(product(FAR, repeat=len(heard))))
    by_path, by_symbols = np.ones((len(outputs), len(paths))), np.ones((len(outputs), len(symbols)))
    for column, release in zip(outputs.T, heard, strict=True):
        counted = symbols if release.symbols else shown
        counts = counted[:, release.first : release.last + 1].sum(axis=1)
        density = np.exp(-np.abs(column[:, None] - counts) / release.scale)
        if release.symbols:
            by_symbols *= density
        else:
            by_path *= density
    weighted = by_path * (by_symbols @ likely.T)  # (outputs, paths)
    worst = 0.0
    for first in range(N - ticks + 1):
        inside = paths[:, first : first + ticks]
        outside = np.delete(paths, np.arange(first, first + ticks), axis=1)
        for fixed in product(range(-1, states) if is_known else (-1,), repeat=N - ticks):
            possible = np.all((np.array(fixed) < 0) | (outside == np.array(fixed)), axis=1)
            values = []
            for course in product(range(states), repeat=ticks):
                mass = np.where(possible & np.all(inside == course, axis=1), prior, 0.0)
                values.append(weighted @ mass / mass.sum())
            table = np.log(np.array(values))
            worst = max(worst, float((table.max(axis=0) - table.min(axis=0)).max()))
    return worst


def classes() -> Iterator[tuple[tuple[tuple[float, ...], ...], ChainClass, Adversary]]:
    for matrix in (STICKY, TURNING):
        q, r = matrix[0][1], matrix[1][0]
        for adversary in ("ignorant", "informed"):
            yield matrix, BinaryChains(q=(q, q), r=(r, r)), adversary
        (a, b), (c, d) = matrix
        odds = max(a * d / (b * c), b * c / (a * d)) * (1 + 1e-12)
        yield matrix, BoundedChains(states=2, odds_ratio=odds), "universal"
    yield ROUND, BoundedChains(states=3, odds_ratio=odds_ratio(ROUND)), "ignorant"


@pytest.mark.parametrize("ticks", [1, 2, 3])
@pytest.mark.parametrize(("matrix", "chains", "adversary"), list(classes()))
def test_no_stretch_loses_more_than_is_promised(
    matrix: tuple[tuple[float, ...], ...], chains: ChainClass, adversary: Adversary, ticks: int
) -> None:
    """Windows that tile, that overlap, and of symbols beside those that the device counts itself."""
    epsilon = 1.0
    allowed = allowance(chains, epsilon, adversary, ticks=ticks)
    whole, half = (float(smallest_scale([TABLE], 1, allowed // parts)) for parts in (1, 2))
    device = math.ceil(2e12 / allowed)  # a half for the device's own windows, which tile
    assert units_above(Fraction(1, device)) <= allowed // 2 + 1
    layouts = [
        [Told(*window, whole) for window in spread(2, 2)],
        [Told(*window, half) for window in spread(2, 1)],
        [Told(*window, half) for window in spread(5, 5)] + [Told(*window, device, False) for window in spread(2, 2)],
    ]
    is_known = adversary != "ignorant"
    worst = [stretches_lose(matrix, layout, ticks, is_known=is_known) for layout in layouts]
    assert max(worst) <= epsilon
    assert max(worst) > 0.2 * epsilon


def lost(chains: ChainClass, rate: float, adversary: Adversary, ticks: int) -> float:
    """The formula of a stretch, from what the device's own check derives of one tick."""
    ratio = Fraction(math.exp(rate))
    single = chains.ratio_loss(ratio, ratio, adversary).epsilon
    return single + (ticks - 1) * rate


@pytest.mark.parametrize("ticks", [1, 2, 61, 3600])
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
def test_the_allowance_is_the_boundary(adversary: Adversary, ticks: int) -> None:
    for chains in (BinaryChains(q=(0.1, 0.2), r=(0.2, 0.3)), BoundedChains(states=3, odds_ratio=50.0)):
        allowed = nats(allowance(chains, 1.0, adversary, ticks=ticks))
        assert lost(chains, allowed, adversary, ticks) <= 1.0 < lost(chains, allowed * (1 + 1e-7), adversary, ticks)


def test_the_allowance_is_the_boundary_of_streams_that_move_together() -> None:
    """Courses may differ in what none of the streams shows: twice what a tick loses, and all rates."""
    shows = ((0, 0), (0, 1), (1, 0), (1, 1))
    streams = (JointStream(name="light", states=2, rate=0.1), JointStream(name="door", states=2, rate=0.1))
    chains = JointChains(shows=shows, streams=streams, odds_ratio=20.0, period_us=10**6)
    for ticks in (2, 60):
        rate = nats(allowance(chains, 1.0, "universal", ticks=ticks))
        for factor, holds in ((1.0, True), (1.0 + 1e-7, False)):
            single = joint_loss(chains, units_above(rate * factor), "universal")
            assert (2 * single + ticks * rate * factor <= 1.0) is holds


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_several_audiences_of_one_reader_are_within_one_bound(ticks: int) -> None:
    """Rates add, then there is one bound for the stretch: a sum of epsilons is none."""
    chains = BinaryChains(q=(0.0036, 0.0036), r=(0.012, 0.012))
    matrix = ((1 - 0.0036, 0.0036), (0.012, 1 - 0.012))
    promised = ((0.1, ticks), (0.05, 1))
    allowances = [allowance(chains, epsilon, "ignorant", ticks=n) for epsilon, n in promised]
    bound = joint_loss(chains, joint_charge(allowances, 0), "ignorant", ticks)
    scales = [float(smallest_scale([TABLE], 1, allowance)) for allowance in allowances]
    heard = [Told(*window, scale) for scale in scales for window in spread(2, 2)]
    worst = stretches_lose(matrix, heard, ticks, is_known=False)
    assert 0.0 < worst <= bound
    many = joint_loss(chains, joint_charge([allowances[0]] * 8, 0), "ignorant", ticks)
    assert many > 8 * 0.1


@pytest.mark.parametrize("mechanism", ["mqm-exact", "mqm-approx", "wasserstein", "group"])
def test_other_mechanisms_are_for_single_ticks(mechanism: Mechanism, tmp_path: Path) -> None:
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    assert allowance(chains, 1.0, "ignorant", mechanism) > 0
    with pytest.raises(ChainClassError, match="protects single ticks, not 2 in a row: use mechanism chain"):
        allowance(chains, 1.0, "ignorant", mechanism, 2)
    once = "once = 0" if mechanism in ("wasserstein", "group") else "share = 1.0"
    config = tmp_path / "releases.toml"
    config.write_text(
        '[audiences.street]\nepsilon = 1\nadversary = "ignorant"\nprotect = "10m"\n\n[[releases]]\nname = "a"\n'
        f'stream = "hr"\nquery = "count"\nstates = ["on"]\nlength = 9\naudience = "street"\nmechanism = "{mechanism}"\n'
        f"{once}\n"
    )
    with pytest.raises(FuguError, match=r"protects single ticks only, and audience street is .* 600 seconds"):
        ReleaseConfig.load(config)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [('"tick"', 0), ("600", 600), ('"10m"', 600), ('"1h"', 3600), ('"90s"', 90), ('"1.5h"', 5400), ('"600"', 600)],
)
def test_a_stretch_is_a_time(text: str, seconds: int, tmp_path: Path) -> None:
    audience = ReleaseConfig.load(_config(tmp_path, text)).audiences["street"]
    assert audience.promise == (1.0, "informed", seconds)
    for period in (10**5, 10**6, 60 * 10**6):
        assert audience.promise.ticks(period) == (stretch_ticks(seconds, period) if seconds else 1)


@pytest.mark.parametrize("text", ['"an hour"', "0", '"0h"', "-1", '"h"', "true", '"400d"', "1.5"])
def test_what_is_no_time_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(FuguError, match=r"audiences\.street\.protect: "):
        ReleaseConfig.load(_config(tmp_path, text))


def _config(folder: Path, protect: str) -> Path:
    path = folder / "releases.toml"
    path.write_text(
        f'[audiences.street]\nepsilon = 1\nadversary = "informed"\nprotect = {protect}\n\n[[releases]]\nname = "a"\n'
        'stream = "hr"\nquery = "count"\nstates = ["on"]\nlength = 9\naudience = "street"\nshare = 1.0\n'
    )
    return path


def test_the_table_of_the_manual() -> None:
    page = (Path(__file__).parents[3] / "docs" / "releases.md").read_text()
    rows = re.findall(r"^\| `(tick|\w+)` \| [^|]+ \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == ["tick", "10m", "1h", "8h"]
    chains, table = BinaryChains(q=(0.01, 0.05), r=(0.05, 0.1)), NoiseTable.binary(SCALE // 5, SCALE // 5)
    for protect, ticks, scale, hour in rows:
        promise = Audience.model_validate({"epsilon": 1.0, "adversary": "universal", "protect": protect}).promise
        allowed = allowance(chains, 1.0, "universal", ticks=promise.ticks(60_000_000))
        assert promise.ticks(60_000_000) == int(ticks)
        least = smallest_scale([table], 1, allowed)
        assert least <= Fraction(scale) < least + Fraction(1, 10)
        lost = joint_loss(chains, allowed, "universal", stretch_ticks(3600, 60_000_000))
        assert f"{math.ceil(100 * lost) / 100:.2f}" == hour


def test_the_joint_bound_is_reached_by_long_windows() -> None:
    """Far outside the range a Laplace count's density is e^(-x/s) a tick: the joint bound is attained in the limit."""
    q, r, n = 0.1, 0.4, 60
    chains = BinaryChains(q=(q, q), r=(r, r))
    charge = joint_charge([allowance(chains, 0.5, "ignorant")] * 2, 0)
    transition, real = np.array([[1 - q, q], [r, 1 - r]]), 0.0
    for factor in (math.exp(nats(charge)), math.exp(-nats(charge))):
        right = np.ones(2)  # a tick's state 1 weighs so much more or less, over both audiences' releases
        for _ in range(n):
            right = transition @ (np.array([1.0, factor]) * right)
            right /= right.max()
        real = max(real, 2 * abs(math.log(right[0] / right[1])) + nats(charge))  # two states: both sides are alike
    bound = joint_loss(chains, charge, "ignorant")
    assert bound * (1 - 1e-9) <= real <= bound


def test_what_a_device_releases_itself_counts_once() -> None:
    assert joint_charge([], 5) == 0
    assert joint_charge([10], 4) == 10
    assert joint_charge([10, 12], 4) == 6 + 8 + 4
    assert joint_charge([3, 3], 4) == 0  # the gateway may tell neither anything
    assert joint_charge([4, 3], 4) == 4  # it may tell the first what the device counted
    assert joint_charge([4, 9], 4) == 9
