"""Knowledge of an adversary, by adding up every path: the judge of every guarantee in these tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def paths_of(initial: Array, transitions: Sequence[Array]) -> tuple[npt.NDArray[np.int64], Array]:
    """All paths (paths, n) of n-1 steps (k, k), and their probabilities."""
    paths = np.array(list(product(range(len(initial)), repeat=len(transitions) + 1)))
    weight = initial[paths[:, 0]].copy()
    for step, transition in enumerate(transitions):
        weight *= transition[paths[:, step], paths[:, step + 1]]
    return paths, weight


def joint_distribution(
    initial: Array, transitions: list[Array], emission: Array
) -> tuple[npt.NDArray[np.int64], Array]:
    """All paths (paths, n), and Pr(path, outputs) as (paths, outputs).

    Args:
        initial: (k,) distribution of the first state.
        transitions: n-1 matrices (k, k).
        emission: (k, m).
    """
    n = len(transitions) + 1
    paths, weight = paths_of(initial, transitions)
    outputs = np.array(list(product(range(emission.shape[1]), repeat=n)))
    likelihood = np.ones((len(paths), len(outputs)))
    for tick in range(n):
        likelihood *= emission[paths[:, tick]][:, outputs[:, tick]]
    return paths, weight[:, None] * likelihood


def by_evidence(joint: Array, k: int, n: int, inside: Sequence[int], *, informed: bool) -> Array:
    """Of (paths, outputs), their sums by the states of some ticks, and by what is known of others: (., sets, outputs).

    The axis of every other tick gets one more entry, the sum of all others: a tick whose state nobody knows.
    """
    table = joint.reshape(*(k,) * n, -1)
    for tick in {*range(n)} - {*inside}:
        unknown = table.sum(axis=tick, keepdims=True)
        table = np.concatenate([table, unknown], axis=tick) if informed else unknown
    return np.moveaxis(table, inside, range(len(inside))).reshape(k ** len(inside), -1, joint.shape[1])


def worst_ratios(joint: Array, weight: Array, k: int, n: int, *, informed: bool) -> Array:
    """The largest log-likelihood ratio of each pair of states at each tick, (n, k, k), over outputs and known states.

    Args:
        joint: (paths, outputs) likelihoods, times the weights.
        weight: (paths,) probabilities of paths.
    """
    table, worst = np.concatenate([joint, weight[:, None]], axis=1), np.zeros((n, k, k))
    for tick in range(n):
        at = by_evidence(table, k, n, [tick], informed=informed)
        possible = at[:, :, -1] > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(at[:, :, :-1]) - np.log(at[:, :, -1:])
            for a, b in permutations(range(k), 2):
                some = possible[a] & possible[b]
                worst[tick, a, b] = np.fmax.reduce((logs[a, some] - logs[b, some]).ravel(), initial=0.0)
    return worst


def worst_loss(initial: Array, transitions: list[Array], emission: Array, *, informed: bool) -> Array:
    """The largest log-likelihood ratio of each pair of states (k, k), over outputs, positions and known states."""
    k, n = emission.shape[0], len(transitions) + 1
    _, joint = joint_distribution(initial, transitions, emission)
    return worst_ratios(joint, joint.sum(axis=1), k, n, informed=informed).max(axis=0)


def worst_release_loss(
    initial: Array, transition: Array, n: int, log_density: Callable[[Array], Array], *, informed: bool = False
) -> Array:
    """The largest log-likelihood ratio of each pair of states at each tick, (n, k, k), of any release.

    Args:
        initial: (k,) distribution of the first state.
        transition: (k, k).
        log_density: from all paths (paths, n) to the log-density (paths, outputs) of what is released.
    """
    paths, weight = paths_of(initial, [transition] * (n - 1))
    logs = log_density(paths)
    joint = weight[:, None] * np.exp(logs - logs.max(axis=0))  # a factor for each output cancels in every ratio
    return worst_ratios(joint, weight, len(initial), n, informed=informed)


def count_density(scale: float, first: int, last: int, states: tuple[int, ...] = (1,)) -> Callable[[Array], Array]:
    """Log-densities of the count of some states in ticks first..last plus Laplace(scale), on a grid and far outside."""
    outputs = np.concatenate([[-60.0 * scale - 9], np.arange(-2.0, last - first + 4.0, 0.5), [60.0 * scale + 99]])

    def density(paths: Array) -> Array:
        counts = np.isin(paths[:, first : last + 1], states).sum(axis=1)
        return -np.abs(outputs[None, :] - counts[:, None]) / scale

    return density


def histogram_density(scale: float, first: int, last: int, k: int) -> Callable[[Array], Array]:
    """Log-densities of the histogram of ticks first..last plus Laplace(scale) in every bin, each bin near or far."""
    length = last - first + 1
    outputs = np.array(list(product((-50.0 * scale - 9, 0.5, length / 2, length + 50.0 * scale + 9), repeat=k)))

    def density(paths: Array) -> Array:
        counts = np.stack([(paths[:, first : last + 1] == state).sum(axis=1) for state in range(k)], axis=1)
        return -np.abs(outputs[None] - counts[:, None]).sum(axis=2) / scale

    return density


def symbol_density(emission: Array, n: int) -> Callable[[Array], Array]:
    """Log-densities of all symbol sequences."""
    outputs = np.array(list(product(range(emission.shape[1]), repeat=n)))

    def density(paths: Array) -> Array:
        return sum(np.log(emission[paths[:, tick]][:, outputs[:, tick]]) for tick in range(n))

    return density


def together(*densities: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Log-densities of independent releases, for all combinations of their outputs."""

    def density(paths: Array) -> Array:
        total = densities[0](paths)
        for other in densities[1:]:
            total = (total[:, :, None] + other(paths)[:, None, :]).reshape(len(paths), -1)
        return total

    return density


def best_attack(q: float, r: float, emission: Array, direction: int, *, informed: bool, ticks: int = 400) -> float:
    """The loss that an adversary really causes on a long chain: constant or alternating outputs, a known state or none.

    Direction 0 is state 0 rather than 1. Each direction is followed by plain vectors Pr(outputs there, known state |
    state of the tick), over Pr(known state | state of the tick).
    """
    transition = np.array([[1 - q, q], [r, 1 - r]])
    ratio = emission[direction] / emission[1 - direction]
    towards, away = int(ratio.argmax()), int(ratio.argmin())
    alternate = q + r > 1
    best = 1.0
    starts = np.column_stack([np.ones(2), transition] if informed else [np.ones(2)])
    without = np.hstack([starts, starts])  # a column for each start, and for each first output
    with_outputs, count = without.copy(), starts.shape[1]
    for tick in range(ticks):
        leakage = with_outputs / without
        best = max(best, float((leakage[direction] / leakage[1 - direction]).max()))
        symbols = [(away if (tick + first) % 2 else towards) if alternate else towards for first in (0, 1)]
        with_outputs = transition @ (np.repeat(emission[:, symbols], count, axis=1) * with_outputs)
        without = transition @ without
        with_outputs, without = with_outputs / with_outputs.sum(axis=0), without / without.sum(axis=0)
    return float(np.log(ratio.max()) + 2 * np.log(best))


def enumerated_losses(
    starts: Array, transition: Array, n: int, log_density: Callable[[Array], Array], *, informed: bool
) -> Array:
    """The largest log-likelihood ratio at each tick (n,), of starts (s, k), outputs, pairs and known states."""
    losses = [worst_release_loss(start, transition, n, log_density, informed=informed) for start in starts]
    return np.max(losses, axis=(0, 2, 3))


def extreme_chain(generator: np.random.Generator, k: int) -> Array:
    """A transition matrix (k, k) with zeros: periodic, reducible, deterministic ones, and all but impossible steps."""
    matrix = generator.dirichlet(np.ones(k), size=k)
    kind = generator.integers(8)
    if kind < 3:  # any pattern of zeros
        matrix = matrix * (generator.random((k, k)) < generator.uniform(0.3, 0.9))
    elif kind == 3:  # steps that hardly ever happen
        matrix = matrix * 10.0 ** -generator.uniform(0.0, 17.0, (k, k)) * (generator.random((k, k)) < 0.8)
    elif kind == 4:  # a permutation, or almost
        matrix = np.eye(k)[generator.permutation(k)] + generator.choice([0.0, 1e-16, 1e-6, 0.1]) * matrix
    elif kind == 5:  # the identity, or almost
        matrix = np.eye(k) + generator.choice([0.0, 1e-16, 1e-9, 0.05]) * matrix
    elif kind == 6:  # two blocks, with or without a way from one to the other
        cut = int(generator.integers(1, k))
        matrix[:cut, cut:] *= generator.choice([0.0, 1e-12, 1.0])
        matrix[cut:, :cut] = 0.0
    for x in range(k):
        if not matrix[x].sum() > 0.0:
            matrix[x, generator.integers(k)] = 1.0
    return matrix / matrix.sum(axis=1, keepdims=True)


def extreme_start(generator: np.random.Generator, k: int) -> Array:
    """A distribution (k,), often with zeros or all but zeros."""
    distribution = generator.dirichlet(np.ones(k)) * 10.0 ** -generator.choice([0.0, 0.0, 3.0, 15.0], k)
    distribution = distribution * (generator.random(k) < generator.choice([0.4, 1.0]))
    if not distribution.sum() > 0.0:
        distribution[generator.integers(k)] = 1.0
    return distribution / distribution.sum()


def starts_anyhow(generator: np.random.Generator, k: int) -> Array:
    """Distributions (s, k) that come near to every face, edge and corner of the simplex, and some between."""
    distributions = [np.eye(k)[x] for x in range(k)]
    for few in (1e-2, 1e-5, 1e-10, 1e-14):
        for x, y in product(range(k), repeat=2):
            if x != y:
                distributions.append((1.0 - few) * np.eye(k)[x] + few * np.eye(k)[y])
        distributions += [(1.0 - few) * np.eye(k)[x] + few * generator.dirichlet(np.ones(k)) for x in range(k)]
    return np.array([*distributions, *generator.dirichlet(np.ones(k), size=6)])


def leakage_ratios(transition: Array, emissions: list[Array], *, informed: bool) -> tuple[float, float]:
    """The most that the ticks of one side add, nearest first: log-likelihood ratios of state 0 over 1, and 1 over 0.

    A vector holds Pr(outputs there, known states | state) over Pr(known states | state), for every output and
    every set of known states. A known state makes what lies beyond it the same for both states, so it starts anew.
    """
    vectors = [(np.ones(2), np.ones(2))]
    for emitted in reversed(emissions):
        new = [(transition @ (emitted[:, z] * a), transition @ b) for a, b in vectors for z in range(emitted.shape[1])]
        vectors = [*new, *((transition[:, y],) * 2 for y in (0, 1) if informed)]
    ratios = np.array([(a[0] / b[0]) / (a[1] / b[1]) for a, b in vectors])
    return float(np.log(ratios.max())), float(-np.log(ratios.min()))


def worst_switched(q: float, r: float, emissions: list[Array], *, informed: bool) -> Array:
    """The largest log-likelihood ratios (2,) of 0 over 1 and 1 over 0, of any tick, each with its own emission.

    The past and the future of a tick are independent given its state, and a stationary chain of two states is its own
    reversal.
    """
    transition = np.array([[1 - q, q], [r, 1 - r]])
    worst = np.zeros(2)
    for tick, emitted in enumerate(emissions):
        past = leakage_ratios(transition, emissions[:tick][::-1], informed=informed)
        future = leakage_ratios(transition, emissions[tick + 1 :], informed=informed)
        own = np.log(emitted[0] / emitted[1])
        worst = np.maximum(worst, [own.max() + past[0] + future[0], -own.min() + past[1] + future[1]])
    return worst
