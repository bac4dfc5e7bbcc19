"""How long the privacy calculations take, beside the times of the MQM paper: python benchmarks/privacy.py.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), table 2, has 282 s for MQMExact
with 51 states and a million ticks, and 1.5 s with 4 states and 9,000 ticks, both at epsilon 1. Theirs was another
machine, and other recordings. Medians of several runs on one thread; the first, which may compile, is shown apart.
Nothing is kept from one run to the next.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from fugu.chains.arrays import Floats
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.endless_leakage import EndlessLeakage
from fugu.privacy.accountant.inner_maximum import close_bounds, step
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_approx, mqm_exact
from fugu_cli.demo.evaluation import RECORDINGS

sys.path.insert(0, str(Path(__file__).parents[1]))

from figures import say_machine

from papers import recordings
from papers.mqm import band_chain

EPSILON = 1.0
PAPER_LARGE = 282.0
PAPER_SMALL = 1.5
RUNS = 9
FEW_RUNS = 3
SLOW = 0.5
PEER_TICKS = 2000
STEP_SCALE = 150.0  # of the noise that this chain needs at epsilon 1
HIGHS_PAIRS = 20


class Result(NamedTuple):
    """A calculation: the scale that it finds for a count, and its time.

    Attributes:
        scale: of noise.
        seconds: median.
        first: seconds of the first run.
    """

    scale: float
    seconds: float
    first: float


def timed(run: Callable[[], float]) -> Result:
    """Run it, once and then some."""
    times: list[float] = []
    while len(times) <= (FEW_RUNS if times and times[-1] > SLOW else RUNS):
        started = time.perf_counter()
        scale = run()
        times.append(time.perf_counter() - started)
    return Result(scale, statistics.median(times[1:]), times[0])


def naive_mqm_exact(chain: MarkovChain, length: int, epsilon: float, longest: int) -> float:
    """MQMExact of a stationary chain in plain numpy: tables for every distance, then all pairs of widths.

    It is spared the nodes near the ends, which need less noise, and quilts with one width.

    Args:
        chain: of positive probabilities.
        length: ticks.
        epsilon: above 0.
        longest: the longest sum of two widths.
    """
    distribution, power = chain.stationary_distribution, np.eye(chain.states)
    right, left = [], []
    for _ in range(1, longest):
        power = power @ chain.transition
        right.append(np.log(power[:, None, :] / power[None, :, :]).max(axis=2))
        left.append(np.log(power.T[:, None, :] / power.T[None, :, :]).max(axis=2))
    base, after = np.log(distribution[None, :] / distribution[:, None]), np.array(right)
    best = length / epsilon
    for a in range(1, longest):
        influence = (base + left[a - 1] + after[: longest - a]).max(axis=(1, 2))
        nearby = np.arange(a, longest)
        useful = influence < epsilon
        if useful.any():
            best = min(best, float((nearby[useful] / (epsilon - influence[useful])).min()))
    return best


def compare(name: str, chain: MarkovChain, length: int, targets: tuple[float, ...], paper: float = 0.0) -> None:
    """Time every mechanism on a chain, and print how they compare.

    Args:
        name: of the chain.
        chain: stationary.
        length: ticks, for MQM; ours is for an endless stream.
        targets: seconds, for ours, MQMExact and MQMApprox.
        paper: seconds that the paper has for MQMExact, or 0.
    """
    print(f"\n{name}: {chain.states} states, {length:,} ticks, epsilon {EPSILON:g}")
    print(f"  {'':16s}{'scale':>10s}{'/ours':>8s}{'ms':>12s}{'target':>10s}{'first run':>12s}{'paper/ours':>12s}")
    tasks: dict[str, Callable[[], float]] = {
        "ours, endless": lambda: 1.0 / ChainAccountant((chain,)).allowance(EPSILON),
        "MQMExact": lambda: mqm_exact((chain,), length, EPSILON).scale,
        "MQMApprox": lambda: mqm_approx((chain,), length, EPSILON).scale,
    }
    ours = math.nan
    for (task, run), target in zip(tasks.items(), targets, strict=True):
        try:
            scale, seconds, first = timed(run)
        except ChainClassError as error:
            print(f"  {task:16s}{'none':>10s}  {error}")
            continue
        ours = scale if task == "ours, endless" else ours
        wanted = "" if math.isinf(target) else f"{target * 1e3:,.0f}"
        ratio = f"{paper / seconds:12,.0f}" if paper and task == "MQMExact" else ""
        late = "   LATE" if seconds > target else ""
        print(
            f"  {task:16s}{scale:10.4g}{scale / ours:8.2f}{seconds * 1e3:12,.2f}{wanted:>10s}{first * 1e3:12,.1f}"
            f"{ratio}{late}"
        )


def compare_with_numpy(chain: MarkovChain, length: int) -> None:
    """Time MQMExact in plain numpy, over all widths and over those that the paper looks at."""
    own = timed(lambda: mqm_exact((chain,), length, EPSILON).scale)
    few = int(EPSILON * mqm_approx((chain,), length, EPSILON).scale)
    print(f"\nMQMExact in plain numpy: {chain.states} states, {length:,} ticks, epsilon {EPSILON:g}")
    print(f"  {'':44s}{'scale':>10s}{'ms':>12s}{'numpy/own':>12s}")
    print(f"  {'own':44s}{own.scale:10.4g}{own.seconds * 1e3:12,.2f}")
    for name, longest in ((f"numpy, widths up to {few} (from MQMApprox)", few + 1), ("numpy, all widths", length)):
        scale = timed(partial(naive_mqm_exact, chain, length, EPSILON, longest))
        assert math.isclose(scale.scale, own.scale, rel_tol=1e-9)
        print(f"  {name:44s}{scale.scale:10.4g}{scale.seconds * 1e3:12,.2f}{scale.seconds / own.seconds:12,.0f}")


def compare_with_highs(chain: MarkovChain) -> None:
    """Time a step of the accountant, for all pairs of states, beside linear programmes for a few of them."""
    leakage = EndlessLeakage(chain.transition)
    rate = (1.0 - np.eye(chain.states)) / STEP_SCALE
    bounds = close_bounds(rate + leakage.ignorant_leakage(rate))
    pairs = chain.states * (chain.states - 1)
    own = timed(lambda: float(step(chain.transition, leakage.blocks[0][2], bounds).max()))
    numbers = step(chain.transition, leakage.blocks[0][2], bounds)
    generator = np.random.default_rng(1)
    some = [tuple(map(int, generator.choice(chain.states, 2, replace=False))) for _ in range(HIGHS_PAIRS)]
    started = time.perf_counter()
    exact = [by_highs(chain.transition[x], chain.transition[other], bounds) for x, other in some]
    each = (time.perf_counter() - started) / HIGHS_PAIRS
    above = [numbers[pair] - truth for pair, truth in zip(some, exact, strict=True)]
    print(f"\nOne step, {chain.states} states, a pair of states (of {pairs:,}; {HIGHS_PAIRS} for HiGHS)")
    print(f"  {'own':16s}{own.seconds / pairs * 1e6:12,.1f} microseconds")
    print(f"  {'HiGHS':16s}{each * 1e6:12,.1f} microseconds, {each * pairs / own.seconds:,.0f} times own")
    print(f"  above the linear programme by {min(above):.2g} to {max(above):.2g} of {max(exact):.2g} nats")


def by_highs(above: Floats, below: Floats, bounds: Floats) -> float:
    """log of max above.h subject to below.h = 1 and h_y <= exp(M[y,z]) h_z, by the solver that scipy brings along."""
    k = len(above)
    y, z = np.nonzero(~np.eye(k, dtype=bool))
    rows = np.arange(len(y))
    cone = coo_array((np.ones(len(y)), (rows, y)), shape=(len(y), k)).tocsr()
    cone = cone - coo_array((np.exp(bounds[y, z]), (rows, z)), shape=(len(y), k)).tocsr()
    optimum = linprog(-above, A_ub=cone, b_ub=np.zeros(len(y)), A_eq=below[None], b_eq=[1.0])
    return math.log(-optimum.fun)


def main() -> None:
    """Run everything and print it."""
    say_machine()
    heart, power = recordings.heart(RECORDINGS, "N10"), recordings.power(RECORDINGS)
    active = recordings.activity(RECORDINGS, cut=False)[0].chain()
    print(f"MQM paper: {PAPER_LARGE:g} s with 51 states, {PAPER_SMALL:g} s with 4. Ratios to it are between machines.")
    compare("heart rate", heart.chain(), heart.ticks, (0.001, 0.05, 0.01))
    compare("activity", active, 9000, (1.0, 0.05, 0.01), PAPER_SMALL)
    compare("power", power.chain(), 10**6, (1.0, 0.2, 0.01), PAPER_LARGE)
    for jumps, k in ((0.05, 45), (0.02, 51), (0.1, 51)):
        compare(f"band with {jumps:.0%} jumps", band_chain(jumps, k), 10**6, (1.0, 0.2, 0.01), PAPER_LARGE)
    compare_with_numpy(active, PEER_TICKS)
    compare_with_highs(band_chain(0.02))


if __name__ == "__main__":
    main()
