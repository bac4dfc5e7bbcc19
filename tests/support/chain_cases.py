"""Chains and symbol streams to test on."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

# Without the JIT a tick costs microseconds: long streams are shorter then.
LONG = 20_000 if numba.config.DISABLE_JIT else 100_000

bounded = settings(max_examples=20, deadline=None)


class Case(NamedTuple):
    """The four arguments that most functions of the room start with."""

    symbols: np.ndarray
    initial: np.ndarray
    transition: np.ndarray
    emission: np.ndarray


def distributions(generator, rows, columns, floor=0.02):
    """Random distributions (rows, columns) whose entries are not too small."""
    return (1 - floor * columns) * generator.dirichlet(np.ones(columns), rows) + floor


def random_case(seed, k, m, n, gaps=0.2):
    """A random chain and a random stream with unobserved ticks."""
    generator = np.random.default_rng(seed)
    symbols = np.where(generator.random(n) < gaps, -1, generator.integers(0, m, n))
    return Case(
        symbols, distributions(generator, 1, k)[0], distributions(generator, k, k), distributions(generator, k, m)
    )


def sticky_case(n, q=1e-6, rho=0.2, seed=0):
    """A binary chain that almost never moves, seen through randomised response."""
    symbols = np.random.default_rng(seed).integers(0, 2, n)
    transition = np.array([[1 - q, q], [q, 1 - q]])
    return Case(symbols, np.array([0.5, 0.5]), transition, np.array([[1 - rho, rho], [rho, 1 - rho]]))


small_cases = st.builds(
    random_case, seed=st.integers(0, 2**32 - 1), k=st.integers(2, 3), m=st.integers(1, 4), n=st.integers(1, 7)
)
medium_cases = st.builds(
    random_case, seed=st.integers(0, 2**32 - 1), k=st.integers(1, 6), m=st.integers(1, 5), n=st.integers(1, 60)
)
