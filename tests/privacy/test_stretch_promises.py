"""The promise for a stretch against every path and every output of random streams, whatever is known of other ticks.

Chains change from tick to tick, start anyhow, and have odds ratios of at most alpha. The adversary has soft evidence on
every tick, true states among them. Windows tile, overlap and skip, counts of one state and of each, with
symbols beside them or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.queries import EACH
from fugu.contract.stretches import StretchBound
from fugu.contract.windows import Blocks, Window
from tests.support.oracle import Array, by_evidence
from tests.support.proofs import check_printed
from tests.support.soak import only_rows

TICKS = 6
HALF_DAYS = Blocks(zone="UTC", seconds=43_200, offsets=((0, 0),))
SLACK = 1e-9
MANY = range(10_000, 10_200)
"""One of them comes within 0.14 % of its promise; of twice as many none comes nearer."""


class Stream(NamedTuple):
    """A random stream: (n, T) all its paths, (n,) their weights with the evidence, (n, m) densities of all outputs."""

    chains: ChainClass
    outputs: StreamOutputs
    paths: Array
    weights: Array
    densities: Array


def odds(step: Array) -> float:
    return max(
        float(step[a, x] * step[b, y] / (step[a, y] * step[b, x])) for a, b, x, y in product(range(len(step)), repeat=4)
    )


def random_step(rng: np.random.Generator, states: int, alpha: float) -> Array:
    """A step whose odds ratios are at most alpha: rows that differ by factors of at most its root, after scaling."""
    spread = math.sqrt(alpha)
    factors = np.exp(rng.uniform(-0.5, 0.5, (states, states)) * math.log(spread))
    if rng.random() < 0.5:  # as sticky as the class allows
        factors = np.where(np.eye(states) > 0, math.sqrt(spread), 1.0 / math.sqrt(spread)) ** rng.choice([1.0, -1.0])
    step = factors * rng.uniform(0.05, 1.0, states)
    return np.asarray(step / step.sum(axis=1, keepdims=True))


def random_windows(rng: np.random.Generator, states: int) -> tuple[Window, ...]:
    windows = []
    for number in range(int(rng.integers(0, 3))):
        length = int(rng.integers(1, 5))
        kind = rng.choice(["count", "each", "profile"])
        windows.append(
            Window(
                name=f"w{number}",
                length=length,
                stride=int(rng.integers(1, 5)),
                states=EACH if kind == "each" else tuple(range(int(rng.integers(1, states)))),
                scale=str(Fraction(int(rng.integers(5, 80)), 10)),
                blocks=HALF_DAYS if kind == "profile" else None,
            )
        )
    return tuple(windows)


def counts_of(window: Window, paths: Array, states: int) -> list[Array]:
    """The counts (n,) of all paths (n, T), of all windows that begin in the stream, also of those that end after it."""
    inside = [np.isin(paths, group) for group in window.groups(tuple(map(str, range(states))))]
    if window.blocks is not None:  # ticks of mornings, and of evenings
        numbers = np.array([[tick % 2 for tick in range(TICKS)]] * len(paths))
        inside = [inside[0] & (numbers == number) for number in (0, 1)]
    begins = range(0, TICKS, window.stride)
    return [of[:, begin : begin + window.length].sum(axis=1) for begin in begins for of in inside]


def random_stream(seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 4))
    alpha = float(np.exp(rng.uniform(0.0, 8.0)))
    steps = [random_step(rng, states, alpha) for _ in range(TICKS - 1)]
    chains = BoundedChains(states=states, odds_ratio=max(1.0, *map(odds, steps)) * (1.0 + 1e-12))
    windows = random_windows(rng, states)
    table = None
    if not windows or rng.random() < 0.5:
        wrong = round(SCALE * rng.uniform(0.2, 0.49) / (states - 1))
        table = (
            NoiseTable.randomised_response(states, wrong)
            if states > 2
            else NoiseTable.binary(wrong, round(0.4 * SCALE))
        )
    paths = np.array(list(product(range(states), repeat=TICKS)))
    first = rng.dirichlet(np.ones(states))
    evidence = np.exp(rng.uniform(-1.0, 1.0, (TICKS, states)) * rng.choice([0.0, 2.0, 20.0], (TICKS, 1)))
    weights = first[paths[:, 0]] * evidence[np.arange(TICKS), paths].prod(axis=1)
    weights *= np.array([step[paths[:, t], paths[:, t + 1]] for t, step in enumerate(steps)]).prod(axis=0)
    densities = np.ones((len(paths), 1))
    for window in windows:
        for counts in counts_of(window, paths, states):
            densities = counted_beside(densities, counts, window, rng)
    if table is not None:
        emission = np.array(table.weights()) / SCALE
        shown = np.array([rng.integers(0, emission.shape[1], densities.shape[1]) for _ in range(TICKS)])
        if rng.random() < 0.5:
            shown[:] = rng.integers(0, emission.shape[1])
        for tick in range(TICKS):
            densities = densities * emission[paths[:, tick]][:, shown[tick]]
    return Stream(chains, StreamOutputs(table, windows), paths.astype(np.float64), weights, densities)


def counted_beside(densities: Array, counts: Array, window: Window, rng: np.random.Generator) -> Array:
    """Densities of a window's noisy count beside all else that was told: counts (n,) of all paths."""
    # between the least and the largest count; beyond them the ratio of two likelihoods does not change
    outputs = np.array(sorted({int(counts.min()), int(counts.max())} | set(rng.choice(counts, 1).tolist())))
    density = np.exp(-np.abs(counts[:, None] - outputs[None, :]) / float(Fraction(window.scale)))
    if densities.shape[1] * density.shape[1] > 4096:
        return densities * density[:, rng.integers(0, density.shape[1], densities.shape[1])]
    return np.asarray((densities[:, :, None] * density[:, None, :]).reshape(len(counts), -1))


def lost(stream: Stream, first: int, ticks: int, evidence: tuple[int, ...] = ()) -> float:
    """The largest log-ratio of an output between two courses of a stretch, those of `evidence` ticks being the same."""
    return _furthest(stream, evidence, range(first, first + ticks))


def _furthest(stream: Stream, evidence: Sequence[int], inside: Sequence[int], *, informed: bool = False) -> float:
    states, length = int(stream.paths.max()) + 1, stream.paths.shape[1]
    table = stream.weights[:, None] * np.concatenate([stream.densities, np.ones((len(stream.paths), 1))], axis=1)
    sums = by_evidence(table, states, length, [*evidence, *inside], informed=informed)
    seen = (sums[:, :, :-1] / sums[:, :, -1:]).reshape(states ** len(evidence), states ** len(inside), -1)
    return math.log((seen.max(axis=1) / seen.min(axis=1)).max())


def bound_of(chains: ChainClass, outputs: StreamOutputs, adversary: Adversary) -> StretchBound:
    one_tick = chains.ratio_loss(*chains.lasting_ratios(*outputs.ratios), adversary).epsilon
    return outputs.bound(chains, adversary, one_tick)


def share_reached(stream: Stream, bounds: Sequence[StretchBound], longest: int, *, informed: bool = False) -> float:
    """How much of the largest bound is reached by the worst stretch that is anywhere, which must not be above it."""
    reached = 0.0
    for ticks in range(1, longest + 1):
        claimed, floor = max(bound.epsilon(ticks) for bound in bounds), max(bound.floor(ticks) for bound in bounds)
        for first in range(TICKS - ticks + 1):
            exact = _furthest(stream, (), range(first, first + ticks), informed=informed)
            assert exact <= claimed + SLACK, (first, ticks)
            reached = max(reached, exact / claimed)
            beside = tuple(t for t in (first - 1, first + ticks) if 0 <= t < TICKS)
            assert lost(stream, first, ticks, beside) <= floor + SLACK, (first, ticks)
    return reached


def check(seed: int) -> float:
    """How much of the bound is reached by the worst stretch of a random stream."""
    stream = random_stream(seed)
    bound, root = bound_of(stream.chains, stream.outputs, "universal"), math.sqrt(stream.chains.odds_ratio)
    # two ticks that are not neighbours: the same tick on two days loses at most twice what one does
    assert _furthest(stream, (), (1, 4)) <= 2 * bound.epsilon(1) + SLACK, seed
    for ticks in (1, 2, 3):
        assert bound.floor(ticks) <= bound.epsilon(ticks)
        if all(window.length == window.stride for window in stream.outputs.windows):
            # the closed form for any side information, in which charges add: weights 1 inside, kappa^distance outside
            assert bound.epsilon(ticks) <= (ticks + root - 1.0) * float(stream.outputs.rate) * (1.0 + SLACK), seed
    return share_reached(stream, [bound], 3)


@pytest.mark.long
@pytest.mark.parametrize(("seeds", "least"), only_rows([(range(4, 11), 0.7)], [(range(4, 11), 0.7), (MANY, 0.98)]))
def test_no_stretch_of_a_random_stream_loses_more(seeds: range, least: float) -> None:
    assert max(map(check, seeds)) > least  # the bound is not loose


def moved_history(seed: int, adversary: Adversary) -> tuple[Stream, ChainClass, list[StreamOutputs]]:
    """Ticks drawn one after another: policies follow on policies, and the wall clock is set forward between them.

    What a device releases: a window of the ticks that were drawn of it under its policy, if none followed meanwhile.
    Any side information comes with chains that change, other adversaries with one chain that began long ago.
    """
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 4)) if adversary == "ignorant" else 2
    paths = np.array(list(product(range(states), repeat=TICKS)))
    evidence = np.ones((TICKS, states))
    chains: ChainClass
    if adversary == "universal":
        alpha = float(np.exp(rng.uniform(0.0, 5.0)))
        steps = [random_step(rng, 2, alpha) for _ in range(TICKS - 1)]
        chains = BoundedChains(states=2, odds_ratio=max(1.0, *map(odds, steps)) * (1.0 + 1e-12))
        evidence = np.exp(rng.uniform(-1.0, 1.0, (TICKS, 2)) * rng.choice([0.0, 2.0, 20.0], (TICKS, 1)))
    else:
        stays = rng.choice([0.05, 0.5, 0.9])
        step = stays * np.eye(states) + (1 - stays) * rng.dirichlet(np.full(states, 2.0), size=states)
        steps, evidence[0] = [step] * (TICKS - 1), np.linalg.matrix_power(step, 5000)[0]
        q, r = float(step[0, 1]), float(step[1, 0])
        chains = BinaryChains(q=(q, q), r=(r, r))
        if states > 2:
            chains = BoundedChains(states=states, odds_ratio=odds_ratio(tuple(map(tuple, step.tolist()))))
    weights = evidence[np.arange(TICKS), paths].prod(axis=1)
    weights *= np.array([math.prod(step[a, b] for step, (a, b) in zip(steps, pairwise(p), strict=True)) for p in paths])
    skipped = np.where(rng.random(TICKS) < 0.5, rng.integers(0, 12, TICKS), 0)
    numbers = np.arange(TICKS) + np.cumsum(skipped)
    versions = np.cumsum(rng.random(TICKS) < 0.25)
    densities, outputs = np.ones((len(paths), 1)), []
    for version in np.unique(versions):
        own, later = numbers[versions == version], numbers[versions > version]
        windows = tuple(
            Window(
                name=f"w{number}",
                length=int(rng.integers(1, 5)),
                stride=int(rng.choice([1, 2, 3, 10, 13])),
                start=int(rng.integers(0, 4)),
                states=(1,),
                scale=str(Fraction(int(rng.integers(5, 80)), 10)),
            )
            for number in range(int(rng.integers(1, 3)))
        )
        outputs.append(StreamOutputs(None, windows))
        for window in windows:
            for begin in range(window.start, int(own[-1]) + 1, window.stride):
                inside = [int(n) for n in own if begin <= n < begin + window.length]
                if inside and not (len(later) and begin + window.length > later[0]):
                    counts = (paths[:, np.isin(numbers, inside)] == 1).sum(axis=1)
                    densities = counted_beside(densities, counts, window, rng)
    return Stream(chains, outputs[0], paths.astype(np.float64), weights, densities), chains, outputs


def check_history(seed: int, adversary: Adversary) -> float:
    """How much of what the weakest policy says is reached by a stretch that is anywhere in a history."""
    stream, chains, outputs = moved_history(seed, adversary)
    bounds = [bound_of(chains, output, adversary) for output in outputs]
    return share_reached(stream, bounds, 4, informed=adversary == "informed")


@pytest.mark.long
@pytest.mark.parametrize(
    ("adversary", "histories"), [("universal", range(60)), ("informed", range(50, 65)), ("ignorant", range(30, 40))]
)
def test_no_stretch_loses_more_whatever_policies_follow_and_however_often_a_clock_is_set(
    adversary: Adversary, histories: Iterable[int]
) -> None:
    assert max(check_history(seed, adversary) for seed in histories) > 0.9  # the bound is not loose


def count_of_all(q: float, ticks: int, scale: float) -> tuple[Array, Array, Array]:
    paths = np.array(list(product(range(2), repeat=ticks)), dtype=np.float64)
    step = np.array([[1.0 - q, q], [q, 1.0 - q]])
    weights = np.array([0.5 * math.prod(step[int(x), int(y)] for x, y in pairwise(path)) for path in paths])
    counts = paths.sum(axis=1)
    densities = np.exp(-np.abs(counts[:, None] - np.arange(ticks + 1)[None, :]) / scale)
    return paths, weights, densities


def test_without_a_class_a_stretch_does_not_lose_its_own_ticks_only() -> None:
    """Nine ticks, one count of scale 3, a stretch of 3: with all else known 1, with nothing known 2.6."""
    paths, weights, densities = count_of_all(0.05, 9, 3.0)
    stream = Stream(BoundedChains(states=2, odds_ratio=361.0 * (1 + 1e-12)), StreamOutputs(), paths, weights, densities)
    unknown = lost(stream, 3, 3)
    loss = lost(stream, 3, 3, (0, 1, 2, 6, 7, 8))
    assert loss == pytest.approx(1.0, abs=1e-9)
    check_printed("It loses 1 if the other six are known, and {} if they are not.", unknown)
    assert unknown > 2.5
