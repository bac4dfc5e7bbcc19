"""Chain kernels against hmmlearn, a numpy loop and a plain copy: python benchmarks/chain.py [--json FILE].

Everything runs in one process on one thread, in interleaved repetitions; the table shows the best of each. The peer,
hmmlearn, is given the same task three ways. Two are `predict_proba` in its `scaling` and `log` implementations, with
its input checks, emission lookup and posteriors. (`score_samples` is the same call plus the likelihood it has computed
anyway.) The third, its fairest, is the two compiled passes alone, which yield messages but no posteriors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from figures import say_machine, times_in_turns
from hmmlearn import _hmmc
from hmmlearn.hmm import CategoricalHMM

from fugu.chains.inference import filter_beliefs, fixed_lag_marginals, posterior_marginals
from fugu.chains.model import simulate

Task = tuple[Callable[[], Any], int]
Row = dict[str, Any]

FIRST_CALL = """
import time
import numpy as np
from fugu.chains.inference import posterior_marginals
even = np.full((2, 2), 0.5)
started = time.perf_counter()
posterior_marginals(np.array([0, 1]), even[0], even, even)
print(time.perf_counter() - started)
"""


def measure(tasks: dict[str, Task], repetitions: int) -> dict[str, float]:
    """Least nanoseconds per item of each task, the tasks taking turns; one unmeasured turn first."""
    times = times_in_turns({name: run for name, (run, _) in tasks.items()}, repetitions)
    return {name: min(times[name]) / items * 1e9 for name, (_, items) in tasks.items()}


def rows(group: str, times: dict[str, float], reference: str) -> list[Row]:
    """Table rows: nanoseconds per item, and how many times the reference's time that is."""
    return [
        {"group": group, "task": name, "ns_per_item": value, "times_reference": value / times[reference]}
        for name, value in times.items()
    ]


def numpy_loop(symbols: np.ndarray, initial: np.ndarray, transition: np.ndarray, emission: np.ndarray) -> np.ndarray:
    """Posterior marginals by two loops over ticks of numpy operations."""
    n, k = len(symbols), len(initial)
    alpha, beta = np.empty((n, k)), np.ones((n, k))
    belief = initial
    for t in range(n):
        belief = (belief @ transition if t else initial) * emission[:, symbols[t]]
        belief = belief / belief.sum()
        alpha[t] = belief
    for t in range(n - 2, -1, -1):
        message = transition @ (emission[:, symbols[t + 1]] * beta[t + 1])
        beta[t] = message / message.sum()
    joint = alpha * beta
    joint /= joint.sum(axis=1, keepdims=True)
    return joint


def sticky_chain(k: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial distribution, transition and emission of k states that last ten ticks and more."""
    transition = 0.9 * np.eye(k) + 0.1 * generator.dirichlet(np.ones(k), k)
    return np.full(k, 1.0 / k), transition, 0.6 * np.eye(k) + 0.4 * generator.dirichlet(np.ones(k), k)


def smoothing(k: int, n: int, repetitions: int) -> list[Row]:
    """Posterior marginals of one sequence."""
    generator = np.random.default_rng(k)
    chain = initial, transition, emission = sticky_chain(k, generator)
    symbols = simulate(n, *chain, generator).symbols

    def peer(implementation: str) -> CategoricalHMM:
        model = CategoricalHMM(k, implementation=implementation)
        model.n_features = k
        model.startprob_, model.transmat_, model.emissionprob_ = chain
        return model

    likelihoods = np.ascontiguousarray(emission[:, symbols].T)

    def bare_passes() -> None:
        _, _, scale = _hmmc.forward_scaling(initial, transition, likelihoods)
        _hmmc.backward_scaling(initial, transition, likelihoods, scale)

    short, shorter = max(n // 20, 1), max(n // 200, 1)
    scaling, log = peer("scaling"), peer("log")
    column = symbols[:, None]
    tasks: dict[str, Task] = {
        "posterior_marginals": (lambda: posterior_marginals(symbols, *chain), n),
        "fixed_lag_marginals, lag 16": (lambda: fixed_lag_marginals(symbols, *chain, 16), n),
        "hmmlearn scaling, predict_proba": (lambda: scaling.predict_proba(column), n),
        "hmmlearn scaling, compiled passes only": (bare_passes, n),
        "hmmlearn log, predict_proba": (lambda: log.predict_proba(column[:short]), short),
        "numpy loop": (lambda: numpy_loop(symbols[:shorter], *chain), shorter),
    }
    apart = np.abs(posterior_marginals(symbols, *chain) - scaling.predict_proba(column)).max()
    table = rows(f"smoothing k={k} n={n}", measure(tasks, repetitions), "posterior_marginals")
    table[2]["largest_difference"] = float(apart)
    return table


def many_sequences(k: int, n: int, ticks: int, ragged: bool, repetitions: int) -> list[Row]:
    """Posterior marginals of many sequences against a copy of the symbols read and the marginals written."""
    generator = np.random.default_rng(k)
    sequences = max(n // ticks, 1)
    chain = sticky_chain(k, generator)
    symbols = generator.integers(-1, k, sequences * ticks)
    lengths = np.full(sequences, ticks)
    if ragged:
        lengths = generator.multinomial(symbols.size, generator.dirichlet(np.full(sequences, 3.0)))
    out, target, other = np.empty((symbols.size, k)), np.empty((symbols.size, k)), np.empty_like(symbols)

    def copy() -> None:
        np.copyto(target, out)
        np.copyto(other, symbols)

    tasks: dict[str, Task] = {
        "numpy copy of symbols and marginals": (copy, symbols.size),
        "the same into new arrays": (lambda: (out.copy(), symbols.copy()), symbols.size),
        "posterior_marginals": (lambda: posterior_marginals(symbols, *chain, lengths=lengths), symbols.size),
        "filter_beliefs": (lambda: filter_beliefs(symbols, *chain, lengths=lengths), symbols.size),
    }
    times = measure(tasks, repetitions)
    name = f"{sequences:,} sequences of {'about ' if ragged else ''}{ticks} ticks, k={k}"
    return rows(name, times, "numpy copy of symbols and marginals")


def compile_times() -> list[Row]:
    """Seconds of the first call in a new process, without and with the disk cache."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache, "NUMBA_DISABLE_JIT": "0"}
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", FIRST_CALL], env=environment, capture_output=True, text=True, check=True
            )
            seconds.append(float(done.stdout))
    times = {"without disk cache": seconds[0] * 1e9, "with disk cache": seconds[1] * 1e9}
    return rows("first call of posterior_marginals, new process", times, "without disk cache")


def show(table: list[Row]) -> None:
    """Print the table."""
    group = ""
    for row in table:
        if row["group"] != group:
            group = row["group"]
            print(f"\n{group}")
            print(f"  {'':42s}{'ns/item':>16s}{'ratio':>10s}")
        apart = f"   differs by {row['largest_difference']:.1e}" if "largest_difference" in row else ""
        print(f"  {row['task']:42s}{row['ns_per_item']:16,.2f}{row['times_reference']:10.2f}{apart}")


def main() -> None:
    """Run everything and print or save the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--ticks", type=int, default=10**6, help="length of the sequence")
    options = parser.parse_args()
    say_machine()
    table = [row for k in (2, 4) for row in smoothing(k, options.ticks, options.repetitions)]
    for k in (2, 3, 4):
        for ticks, ragged in ((100, False), (100, True), (1000, True)):
            table += many_sequences(k, 10 * options.ticks, ticks, ragged, options.repetitions)
    table += compile_times()
    show(table)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
