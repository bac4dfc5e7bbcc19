"""How near the kernels come to what this machine can do, and what holds them: python benchmarks/roofline.py.

The machine: bytes copied a second (`np.copyto` of arrays larger than the caches, bytes read plus bytes written),
multiplications and additions a second of one core (a product of matrices by BLAS, on one thread, the most that it
reaches), the times of one multiplication, addition or division when each waits for the one before, and of a division
among others.

A kernel: nanoseconds an item, and four times that it cannot be faster than: what it reads and writes at the speed of
the copy, its multiplications and additions at the speed of BLAS, its divisions, and the chain of operations in which a
sequence's ticks wait for each other. Of each the best of several short runs, which take turns. The share is the largest
of the four over the time; where it is far below 1, the kernel is held by instructions that are none of these.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from figures import show

from fugu.chains import filter_beliefs, posterior_marginals, simulate
from fugu.chains.arrays import Floats
from fugu.chains.kernel import kernel
from fugu.contract.chains import BinaryChains
from fugu.privacy.accountant.inner_maximum import box_step, closed, ratio_order
from fugu.privacy.randomised_response import calibrate

STEPS = 10**6
MATRIX = 768
STATES = 51


class Machine(NamedTuple):
    """What a core can do.

    Attributes:
        byte: nanoseconds a byte that is read or written takes in a copy.
        operation: nanoseconds a multiplication or addition takes in BLAS.
        multiply, add, divide: nanoseconds of one that waits for the one before.
        division: nanoseconds of one that does not.
    """

    byte: float
    operation: float
    multiply: float
    add: float
    divide: float
    division: float


class Kernel(NamedTuple):
    """A kernel to measure.

    Attributes:
        run: it.
        items: that it works on.
        bytes: read and written for an item, of arrays that do not fit the caches.
        operations: multiplications and additions for an item.
        divisions: for an item.
        chain: multiplications, and additions, of an item that wait for those of the one before.
    """

    run: Callable[[], object]
    items: int
    bytes: float
    operations: float
    divisions: float
    chain: tuple[int, int]


@kernel
def multiplied(x: float, y: float, steps: int) -> float:
    """So many multiplications, one after the other."""
    for _ in range(steps):
        x = x * y
    return x


@kernel
def added(x: float, y: float, steps: int) -> float:
    """So many additions, one after the other."""
    for _ in range(steps):
        x = x + y
    return x


@kernel
def divided(x: float, y: float, steps: int) -> float:
    """So many divisions, one after the other."""
    for _ in range(steps):
        x = y / x
    return x


@kernel
def divided_apart(x: float, y: float, steps: int) -> float:
    """So many divisions, eight at a time."""
    a = b = c = d = e = f = g = h = x
    for _ in range(steps // 8):
        a, b, c, d, e, f, g, h = y / a, y / b, y / c, y / d, y / e, y / f, y / g, y / h
    return a + b + c + d + e + f + g + h


def best(tasks: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Nanoseconds of the fastest run of each, the tasks taking turns; one unmeasured turn first."""
    found = dict.fromkeys(tasks, float("inf"))
    for turn in range(repetitions + 1):
        for name, run in tasks.items():
            started = time.perf_counter_ns()
            run()
            if turn:
                found[name] = min(found[name], time.perf_counter_ns() - started)
    return found


def probes() -> dict[str, Callable[[], object]]:
    """What the machine is measured with."""
    source, target = np.ones(STEPS * 16), np.ones(STEPS * 16)
    left, right = np.ones((MATRIX, MATRIX)), np.ones((MATRIX, MATRIX))
    product = np.empty((MATRIX, MATRIX))
    return {
        "copy": lambda: np.copyto(target, source),
        "product": lambda: np.matmul(left, right, out=product),
        "multiply": lambda: multiplied(1.0, 1.0000001, STEPS),
        "add": lambda: added(1.0, 1e-9, STEPS),
        "divide": lambda: divided(1.3, 1.7, STEPS),
        "division": lambda: divided_apart(1.3, 1.7, STEPS),
    }


def machine(found: dict[str, float]) -> Machine:
    """What the probes' times say."""
    waits = (found[name] / STEPS for name in ("multiply", "add", "divide", "division"))
    return Machine(found["copy"] / (2 * 8 * 16 * STEPS), found["product"] / (2 * MATRIX**3), *waits)


def sticky(k: int) -> tuple[Floats, Floats, Floats]:
    """A distribution, a transition and an emission table of k states and symbols."""
    generator = np.random.default_rng(k)
    transition = 0.9 * np.eye(k) + 0.1 * generator.dirichlet(np.ones(k), k)
    emission = 0.6 * np.eye(k) + 0.4 * generator.dirichlet(np.ones(k), k)
    return np.full(k, 1.0 / k), transition, emission


def of_sequences(k: int, ticks: int, length: int) -> dict[str, Kernel]:
    """Smoothing and filtering of sequences of so many ticks, all together, and of one as long."""
    chain = sticky(k)
    symbols = simulate(ticks, *chain, np.random.default_rng(k)).symbols
    lengths = np.full(ticks // length, length)
    out = np.empty((ticks, k))
    size = symbols.itemsize + out.itemsize * k
    step = 1, 1 if k == 2 else 2  # a sum of 4 is made in two stages
    matrix, join = k * k + k * (k - 1), 3 * k  # a step of a message; a product of two, its sum and its scaling
    smoothing, filtering = 2 * matrix + join, matrix + 2 * k
    return {
        f"smoothing, k = {k}, {len(lengths):,} sequences": Kernel(
            lambda: posterior_marginals(symbols, *chain, lengths=lengths, out=out), ticks, size, smoothing, 1.0, (0, 0)
        ),
        f"smoothing, k = {k}, one sequence": Kernel(
            lambda: posterior_marginals(symbols, *chain, out=out), ticks, size, smoothing, 1.0, step
        ),
        f"filtering, k = {k}, {len(lengths):,} sequences": Kernel(
            lambda: filter_beliefs(symbols, *chain, lengths=lengths), ticks, size, filtering, 1.0, step
        ),
    }


def of_calibration() -> dict[str, Kernel]:
    """A table for two states, and the accountant's step by boxes for many."""
    chains = BinaryChains(q=(0.05, 0.05), r=(0.1, 0.1))
    transition = sticky(STATES)[1]
    order, bounds = ratio_order(transition), closed(np.full((STATES, STATES), 0.5) - 0.5 * np.eye(STATES))
    raised = sum(int((row > other).sum()) for row in transition for other in transition)
    return {
        "calibration of a binary table": Kernel(lambda: calibrate(chains, 1.0), 1, 0.0, 0.0, 0.0, (0, 0)),
        f"accountant, boxes of {STATES} states, an inner step": Kernel(
            lambda: box_step(transition, order, bounds), raised * STATES, 0.0, 6.0, 0.0, (0, 0)
        ),
    }


def main() -> None:
    """Measure, and print the machine and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--ticks", type=int, default=4 * 10**6)
    parser.add_argument("--length", type=int, default=100, help="ticks of a sequence")
    options = parser.parse_args()
    kernels: dict[str, Kernel] = {}
    for k in (2, 4):
        kernels |= of_sequences(k, options.ticks // options.length * options.length, options.length)
    kernels |= of_calibration()
    found = best(probes() | {name: one.run for name, one in kernels.items()}, options.repetitions)
    core = machine(found)
    figures: dict[str, object] = {
        "copy, GB/s read plus written": round(1.0 / core.byte, 1),
        "multiplications and additions, 10^9/s": round(1.0 / core.operation, 1),
        "a multiplication waits, ns": round(core.multiply, 2),
        "an addition waits, ns": round(core.add, 2),
        "a division waits, ns": round(core.divide, 2),
        "a division among others, ns": round(core.division, 2),
    }
    show(figures, as_json=False)
    print(f"\n{'':52}{'ns':>12}{'memory':>8}{'arith.':>8}{'divis.':>8}{'chain':>8}{'share':>7}  nearest")
    for name, one in kernels.items():
        spent = found[name] / one.items
        bounds = {
            "memory": one.bytes * core.byte,
            "arithmetic": one.operations * core.operation,
            "divisions": one.divisions * core.division,
            "chain": one.chain[0] * core.multiply + one.chain[1] * core.add,
        }
        most = max(bounds, key=lambda each: bounds[each])
        share = bounds[most] / spent
        columns = "".join(f"{bound:8.2f}" for bound in bounds.values())
        print(f"{name:52}{spent:12,.2f}{columns}{share:7.2f}  {most if share else 'none of these'}")


if __name__ == "__main__":
    main()
