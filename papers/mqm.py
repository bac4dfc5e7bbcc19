"""The MQM paper: its examples, figure 4, and tables 1 to 3 in kind.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017).
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import corner_chains, eigengap, fast_path_length, mixing, mqm_approx, mqm_exact
from fugu.privacy.wasserstein import infinity_wasserstein, wasserstein_count
from fugu.privacy.window_mechanisms import WindowRequest, window_noise
from papers.bdp import mean_interval
from papers.facts import printed, printed_number
from papers.influence_matrix import influence_matrix, influence_scale
from papers.quilts import influence, model_distance
from papers.recordings import PEOPLE, States, activity, heart, power
from papers.rows import Chart, Found, Line, Row, Setting, at_most, lines_through

__all__ = [
    "THETA1",
    "THETA2",
    "band_chain",
    "examples",
    "figure_4",
    "seconds",
    "strongest_influence",
    "table_1",
    "table_2",
    "table_3",
]

THETA1 = MarkovChain(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([1.0, 0.0]))
THETA2 = MarkovChain(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0.9, 0.1]))
_TICKS = 100
_PER_BIN = 2.0  # the scale of a bin of a histogram over that of a count
_DRAWN = 20
_CONFIDENCE = 0.999


def examples(setting: Setting) -> Found:
    """The examples of sections 3 and 4: the flu clique, three nodes, and two chains of 100 ticks."""
    rows = [Row("flu clique: Wasserstein distance", float(_flu()), 2.0, "printed")]
    distribution = MarkovChain.stationary(THETA1.transition)
    widths = {"{}": (None, None, 3), "{X1}": (1, None, 2), "{X3}": (None, 1, 2), "{X1, X3}": (1, 1, 1)}
    for (name, (before, after, card)), paper in zip(widths.items(), (0.3, 0.2437, 0.2437, 0.1558), strict=True):
        reach = influence(distribution, 2, before, after) if name != "{}" else 0.0
        rows.append(Row(f"T = 3, epsilon 10: score of quilt {name} of X2", card / (10 - reach), paper, "printed", 5e-5))
        odds = {"{}": 1.0, "{X1, X3}": 36.0}.get(name, 6.0)
        rows.append(Row(f"T = 3: e^max-influence of {name} on X2", math.exp(reach), odds, "printed", 1e-9))
    for chain, name, paper, where in (
        (THETA1, "theta1", 13.0219, "X8, quilt {X3, X13}"),
        (THETA2, "theta2", 10.6402, "X6, quilt {X10}"),
    ):
        scale = mqm_exact((chain,), _TICKS, 1.0)
        rows.append(Row(f"{name}, T = 100, epsilon 1: MQMExact", scale.scale, paper, "printed", 5e-5))
        node, (a, b) = scale.node or 0, scale.quilt
        quilt = ", ".join(f"X{at}" for at in (a and node - a, b and node + b) if at)
        rows.append(Row(f"{name}: where it is decided", f"X{node}, quilt {{{quilt}}}", where, "printed"))
        stationary = MarkovChain.stationary(chain.transition)
        rows.append(Row(f"{name}: eigengap of P P*", eigengap(stationary), 0.75, "printed", 0.005))
    rows.append(Row("theta1, theta2: rarest state", mixing((THETA1, THETA2)).min_pi, 0.2, "printed", 1e-12))
    ticks = 20 if setting.quick else _TICKS
    distance = wasserstein_count((THETA1, THETA2), ticks).distance
    rows.append(Row(f"theta1, theta2, T = {ticks}: Wasserstein distance of the count", float(distance), 4.0, "formula"))
    for epsilon, scales in _COUNT_SCALES.items():
        rows += _count_rows(epsilon, scales)
    rows += [*_divergences(), *_wrong_model()]
    return Found(rows, notes=[_COUNTS_NOTE])


_COUNTS_NOTE = (
    "Scales of a count of 100 ticks. The paper's are its algorithms, evaluated by another implementation; ours, the "
    "chain accountant, is for an endless stream, and has no counterpart there."
)
# by epsilon: MQMExact for theta1 and theta2, MQMApprox (general and reversible) for both
_COUNT_SCALES = {
    0.2: (94.14010301467691, 83.09963623406341, 208.7690276890399, 155.25842225644098),
    1.0: (13.021923496179998, 10.64019298160811, 31.709760252306847, 23.505955223166705),
    5.0: (0.9350919830434783, 0.5337265785924777, 4.210210218673554, 3.09051809885176),
}


def _count_rows(epsilon: float, scales: tuple[float, ...]) -> list[Row]:
    both = (THETA1, THETA2)
    counted = {
        "MQMExact, theta1": mqm_exact((THETA1,), _TICKS, epsilon).scale,
        "MQMExact, theta2": mqm_exact((THETA2,), _TICKS, epsilon).scale,
        "MQMApprox, both": mqm_approx(both, _TICKS, epsilon, False).scale,
        "MQMApprox, both, as reversible chains": mqm_approx(both, _TICKS, epsilon).scale,
    }
    rows = [
        Row(f"epsilon {epsilon:g}: {name}", scale, paper, "formula", 1e-8 * paper)
        for (name, scale), paper in zip(counted.items(), scales, strict=True)
    ]
    for name, chain in (("theta1", THETA1), ("theta2", THETA2)):
        endless = MarkovChain.stationary(chain.transition)
        ours = 1.0 / ChainAccountant((endless,)).allowance(epsilon)
        rows.append(Row(f"epsilon {epsilon:g}: ours, {name}, endless stream", ours))
    return rows


def _divergences() -> list[Row]:
    """Definition 2.3's example, and theorem 2.4's: e^D_inf, the largest ratio of two distributions."""
    first, second = (1 / 3, 1 / 2, 1 / 6), (1 / 2, 1 / 4, 1 / 4)
    near, far = (0.9, 0.05, 0.05), (0.01, 0.95, 0.04)
    both = max(max(a / b, b / a) for a, b in zip(near, far, strict=True))
    return [
        Row("definition 2.3: e^D_inf", max(a / b for a, b in zip(first, second, strict=True)), 2.0, "printed", 1e-9),
        Row("theorem 2.4's example: e^D_inf either way", both, 90.0, "printed", 1e-9),
    ]


def _wrong_model() -> list[Row]:
    """Theorem 2.4's price of a wrong chain, and what the accountant says of the same."""
    assumed, actual = (MarkovChain.stationary([[1 - q, q], [0.4, 0.6]]) for q in (0.1, 0.09))
    rows = [
        Row(f"rate .09 instead of .1, T = {ticks}: Delta of theorem 2.4", model_distance(assumed, actual, ticks))
        for ticks in (10, 100)
    ]
    rate = ChainAccountant((assumed,)).allowance(1.0)
    lost = ChainAccountant((actual,)).loss(rate).epsilon
    return [*rows, Row("the same, noise for epsilon 1: what ours loses under the other chain, endless stream", lost)]


def _flu() -> Fraction:
    """Four people of whom 0 to 4 are infected, any alike: the distance of the count given one is, or is not."""
    infected = [Fraction(p) for p in ("0.1", "0.15", "0.5", "0.15", "0.1")]
    joint = [
        (sum(people), infected[sum(people)] / math.comb(4, sum(people)), people[0])
        for people in product((0, 1), repeat=4)
    ]
    return infinity_wasserstein(*([(count, p) for count, p, first in joint if first == x] for x in (0, 1)))


# alpha, epsilon: the scales of MQMExact (any start) and of MQMApprox for all chains with q, r in [alpha, 1 - alpha]
_SYNTHETIC = {
    (0.1, 0.2): (259.0513932394252, 435.5483915608795),
    (0.1, 1.0): (33.629267573291976, 68.64132002687086),
    (0.1, 5.0): (2.097188520434809, 9.873362195843288),
    (0.2, 0.2): (111.2075369227612, 195.4805496487389),
    (0.2, 1.0): (14.215223678891393, 29.631725204372355),
    (0.2, 5.0): (0.6785920279039287, 3.92450909837193),
    (0.3, 0.2): (59.66329123389258, 120.96561191530598),
    (0.3, 1.0): (7.220858674394358, 17.71728916060558),
    (0.3, 5.0): (0.4068172119547873, 2.1588525404910133),
    (0.4, 0.2): (32.608756146102515, 84.90277818401208),
    (0.4, 1.0): (3.948033992158611, 12.105824708677245),
    (0.4, 5.0): (0.2642982250309924, 1.3488576943471324),
}


def figure_4(setting: Setting) -> Found:
    """Figure 4: errors on synthetic chains at three epsilons, and histograms of activity."""
    trials = 100 if setting.quick else 500
    generator = np.random.default_rng(500)
    rows: list[Row] = []
    charts = []
    for epsilon in (1.0,) if setting.quick else (0.2, 1.0, 5.0):
        points = defaultdict[str, list[tuple[float, float]]](list)
        for alpha in (0.2, 0.4) if setting.quick else (0.1, 0.2, 0.3, 0.4):
            setting.progress(f"epsilon {epsilon:g}, alpha {alpha:g}")
            exact, approx = _SYNTHETIC[alpha, epsilon]
            scales = _synthetic_scales(alpha, epsilon)
            about = f"alpha {alpha:g}, epsilon {epsilon:g}: error of"
            errors = {name: scale / _TICKS for name, scale in scales.items()}
            for name, paper in (("MQMExact", exact), ("MQMApprox", approx)):
                rows.append(Row(f"{about} {name}", errors[name], paper / _TICKS, "formula", 1e-8 * paper))
            rows.append(_trials(f"{about} MQMExact", alpha, scales["MQMExact"], exact, trials, generator))
            group = 1.0 / epsilon
            rows.append(Row(f"{about} GroupDP", errors["GroupDP"], group, "formula", 1e-12, computed=True))
            rows += [Row(f"{about} {name}", errors.get(name, _REFUSED)) for name in ("GK16", "ours")]
            for name, error in errors.items():
                points[name].append((alpha, error))
        title = f"Error of the share of state 1, 100 ticks, epsilon {epsilon:g}"
        charts.append(Chart(title, "alpha", "expected |error|", lines_through(points), log_y=True))
    about = "alpha from which GK16 applies, 100 ticks: the norm of its influence matrix reaches 1"
    rows.append(Row(about, _least_alpha(), _LEAST_ALPHA, "log", 1e-6))
    recording, people = activity(setting.recordings)
    for some in ((0, 1), (2, 3), (4,)):
        charts.append(_histogram(recording, people, some, generator))
    note = (
        "The three panels of histograms are of five people in three groups, not of the paper's recordings. GK16 has no "
        "value where its influence matrix is too large. Error is the expected absolute value of the noise over T."
    )
    return Found(rows, charts, [note])


_REFUSED = "not applicable"


_LEAST_ALPHA = 0.32186011438552725
"""By the influences of the authors' program, evaluated by another one."""


def _least_alpha() -> float:
    """The alpha at which the influence matrix of 100 ticks has norm 1: two neighbours of the same strength each."""
    largest = 2.0 * math.cos(math.pi / (_TICKS + 1))  # the norm of a band of ones beside the diagonal
    return float(brentq(lambda alpha: largest * strongest_influence(alpha) - 1.0, 0.05, 0.5))


def strongest_influence(alpha: float) -> float:
    """The influence of a neighbour on a tick inside, the largest of the chains of figure 4."""
    span = (alpha, 1.0 - alpha)
    matrices = (influence_matrix(chain, 3) for chain in corner_chains(BinaryChains(q=span, r=span)))
    return max(float(matrix[1].max()) for matrix in matrices)


def _synthetic_scales(alpha: float, epsilon: float) -> dict[str, float]:
    """Scales of a count of 100 ticks for all chains whose q and r are between alpha and 1 - alpha, by mechanism."""
    chains = BinaryChains(q=(alpha, 1.0 - alpha), r=(alpha, 1.0 - alpha))
    request = WindowRequest(chains, epsilon, _TICKS, "count", "ignorant", start="any")
    scales = {
        "MQMExact": window_noise(request, "mqm-exact").scale,
        "MQMApprox": mqm_approx(chains, _TICKS, epsilon).scale,
        "GroupDP": _TICKS / epsilon,
        "ours": window_noise(request, "chain").scale,
    }
    with suppress(ChainClassError):
        scales["GK16"] = influence_scale(corner_chains(chains), _TICKS, epsilon).scale
    return scales


def _trials(name: str, alpha: float, scale: float, paper: float, trials: int, generator: np.random.Generator) -> Row:
    """Draw chains of the class, states, and releases, and measure how far off the released shares are."""
    leaving = generator.uniform(alpha, 1 - alpha, (trials, 2))
    states = np.empty((trials, _TICKS), dtype=np.int64)
    states[:, 0] = generator.random(trials) < 0.5
    for tick in range(1, _TICKS):
        before = states[:, tick - 1]
        leaves = generator.random(trials) < leaving[np.arange(trials), before]
        states[:, tick] = before ^ leaves
    truth = states.mean(axis=1)
    released = (states.sum(axis=1) + generator.laplace(0.0, scale, trials)) / _TICKS
    off = np.abs(released - truth)
    mean, interval = mean_interval(off, _CONFIDENCE)
    about = f"{name}, {trials} trials (99.9 % interval)"
    return Row(about, mean, paper / _TICKS, "formula", interval=interval)


def _histogram(recording: States, people: Ints, group: tuple[int, ...], generator: np.random.Generator) -> Chart:
    """The shares of four levels in a group: exact, and released once by two mechanisms at epsilon 1."""
    some = recording.of(np.isin(people, group))
    total, levels = some.ticks, [float(x) for x in range(recording.k)]
    exact = np.bincount(some.states[some.states >= 0], minlength=recording.k)
    lines = [Line("exact", levels, (exact / total).tolist(), joined=False)]
    scales = _histogram_scales(recording.chain(), some.longest, 1.0)
    for name in ("MQMExact", "ours"):
        noise = generator.laplace(0.0, scales[name], recording.k)
        lines.append(Line(name, levels, ((exact + noise) / total).tolist(), joined=False))
    who = " and ".join(str(state + 1) for state in group)
    return Chart(f"Shares of levels of activity, person {who}, epsilon 1", "level", "share", lines)


def _histogram_scales(chain: MarkovChain, longest: int, epsilon: float, *, ours: bool = True) -> dict[str, float]:
    """Scales of a bin for one histogram of everything, if segments do not depend on one another."""
    scales = {"GroupDP": _PER_BIN * longest / epsilon}
    with suppress(ChainClassError):
        scales["MQMApprox"] = _PER_BIN * mqm_approx((chain,), longest, epsilon).scale
    scales["MQMExact"] = _PER_BIN * mqm_exact((chain,), longest, epsilon).scale
    if ours:
        scales["ours"] = _PER_BIN / ChainAccountant((chain,)).allowance(epsilon)
    with suppress(ChainClassError):
        scales["GK16"] = _PER_BIN * influence_scale((chain,), longest, epsilon).scale
    return scales


def _error(scale: float, bins: int, readings: int) -> float:
    """The expected sum of |noise| over all bins, relative to the readings; discrete Laplace noise."""
    return bins / math.sinh(1.0 / scale) / readings


def table_1(setting: Setting) -> Found:
    """Table 1 in kind: errors of histograms of activity, individual and aggregate, epsilon 1."""
    generator = np.random.default_rng(20)
    rows: list[Row] = []
    for cut in (True, False):
        recording, people = activity(setting.recordings, cut=cut)
        chain, k = recording.chain(), recording.k
        parts = [recording.of(people == person) for person in range(PEOPLE)]
        how = "cut at gaps" if cut else "not cut"
        scales = _histogram_scales(chain, recording.longest, 1.0)
        own = [_histogram_scales(chain, part.longest, 1.0) for part in parts]
        whole = _PER_BIN * max(part.ticks for part in parts)  # one person's readings are one record
        rows.append(
            _people(f"{how}, aggregate: plain DP of persons", _error(whole, k, recording.ticks), "DP", "aggregate")
        )
        for name in _COLUMNS:
            for kind, person_scales in (("individual", own), ("aggregate", [scales])):
                sizes = [part.ticks for part in parts] if kind == "individual" else [recording.ticks]
                about = f"{how}, {kind}: {name}"
                if name in scales:
                    errors = [
                        _error(person[name], k, ticks) for person, ticks in zip(person_scales, sizes, strict=True)
                    ]
                    rows.append(_people(about, float(np.mean(errors)), name, kind))
                elif name == "GK16":
                    rows.append(Row(about, _REFUSED, _REFUSED, "claim"))
        rows += _orders(how, scales)
        rows += [_drawn(f"{how}, aggregate: {name}", scales[name], k, recording.ticks, generator) for name in scales]
    note = (
        "Five people for a week each, four levels, one chain fitted to all of them, as the paper does. A chain that is "
        "fitted to what is released tells of it, which no column counts. Minutes in which the monitor was not worn are "
        "gaps. The paper's recordings are others: its digits stand beside ours, and its order is judged. The slides "
        "print 0.012 for MQM and 0.214 for GroupDP, of one overweight person. Ours holds for an endless stream."
    )
    return Found(rows, notes=[note])


_GROUPS = ("cyclist", "older woman", "overweight woman")
_ERROR_KEY = "L1 error of relative frequency histogram"


def _people(about: str, error: float, column: str, task: str) -> Row:
    """An error on other people than the paper's, beside its cells for three groups unless the column is ours."""
    if column == "ours":
        return Row(about, error)
    cells = (printed(("MQM", "table 1", f"{_ERROR_KEY}, {column}, {group}, {task}")) for group in _GROUPS)
    words = ", ".join(f"{group} {cell.partition(' ')[0]}" for group, cell in zip(_GROUPS, cells, strict=True))
    return Row(about, error, words, "other data")


def _orders(about: str, scales: dict[str, float]) -> list[Row]:
    """Claims of the paper about its mechanisms: MQMExact needs the least noise, GroupDP the most. And ours."""
    rows = [
        at_most(f"{about}: noise of {less} over that of {more}", scales[less] / scales[more], 1.0, computed=False)
        for less, more in (("MQMExact", "MQMApprox"), ("MQMApprox", "GroupDP"), ("MQMExact", "GroupDP"))
        if less in scales and more in scales
    ]
    if "ours" in scales:
        rows.append(Row(f"{about}: noise of ours over that of MQMExact", scales["ours"] / scales["MQMExact"]))
    return rows


def _drawn(about: str, scale: float, bins: int, readings: int, generator: np.random.Generator) -> Row:
    """The error in drawn trials against its expectation."""
    up, down = generator.geometric(-math.expm1(-1 / scale), (2, _DRAWN, bins))
    off = np.abs(up - down).sum(axis=1) / readings
    mean, interval = mean_interval(off, _CONFIDENCE)
    quantity = f"{about}, {_DRAWN} drawn trials (99.9 % interval)"
    return Row(quantity, mean, _error(scale, bins, readings), "formula", interval=interval, computed=True)


_COLUMNS = ("GroupDP", "GK16", "MQMApprox", "MQMExact", "ours")
_PAPER_CASES = {"synthetic": ("synthetic",), "activity": _GROUPS, "power": ("electricity power",)}
_SECONDS_KEY = "seconds to compute the Laplace scale"
_SECONDS_NOTE = "Medians of five runs; of one in a quick run, which may compile."
_SEARCH = (
    "another machine, and another search: algorithm 3 scores all pairs of widths at every tick. From a stationary "
    "start influences depend on widths alone, so ours searches at two ticks, however many there are"
)


def table_2(setting: Setting) -> Found:
    """Table 2 in kind: seconds to find the noise, epsilon 1."""
    cases: dict[str, tuple[MarkovChain, int]] = {
        "synthetic, q = r = .4": (MarkovChain.stationary([[0.6, 0.4], [0.4, 0.6]]), 100),
        "heart rate": (heart(setting.recordings, "N10").chain(), 26_923),
        "activity": (activity(setting.recordings)[0].chain(), 9_000),
        "power": (power(setting.recordings).chain(), 10**6),
    }
    if not setting.quick:
        cases["band of 51 states"] = (band_chain(0.02), 10**6)
    rows = []
    for name, (chain, length) in cases.items():
        setting.progress(name)
        tasks: dict[str, Callable[[], object]] = {
            "GK16": partial(influence_scale, (chain,), length, 1.0),
            "MQMApprox": partial(mqm_approx, (chain,), length, 1.0),
            "MQMExact": partial(mqm_exact, (chain,), length, 1.0),
            "ours, endless": partial(_allowance, chain),
        }
        if setting.quick and chain.states > 4:
            del tasks["ours, endless"]
        for task, run in tasks.items():
            about = f"{name}, k = {chain.states}, T = {length:,}: {task}"
            try:
                took: float | str = seconds(run, 1 if setting.quick else 5)
            except ChainClassError:
                took = _REFUSED
            columns = () if task.startswith("ours") else _PAPER_CASES.get(name.partition(",")[0], ())
            keys = [("MQM", "table 2", f"{_SECONDS_KEY}, {task}, {column}") for column in columns]
            cells = [printed(key).partition(" ")[0] for key in keys]
            why = _SEARCH if task == "MQMExact" and cells else ""
            rows.append(Row(about, took, ", ".join(cells) or None, "other data" if cells else "ours", why=why))
        with suppress(ChainClassError):
            ticks = min(length, fast_path_length(mixing((chain,)), 1.0))
            about = f"{name}: ticks at which algorithm 3 searches, with lemma 4.9's shortcut"
            rows.append(Row(about, float(ticks), why="MQMExact as built here searches at two"))
    return Found(rows, notes=[_SECONDS_NOTE])


def _allowance(chain: MarkovChain) -> float:
    return ChainAccountant((chain,)).allowance(1.0)


def seconds(run: Callable[[], object], runs: int) -> float:
    """The median time of some runs."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def band_chain(jumps: float, states: int = 51) -> MarkovChain:
    """A sticky chain: mostly steps to neighbours, and a share of jumps to anywhere."""
    generator = np.random.default_rng(1)
    steps = np.triu(np.tril(generator.random((states, states)) + 3.0 * np.eye(states), 1), -1)
    jump = 0.95 * generator.dirichlet(np.ones(states)) + 0.05 / states
    return MarkovChain.stationary((1.0 - jumps) * steps / steps.sum(axis=1, keepdims=True) + jumps * jump)


def _no_approx(chain: MarkovChain) -> str:
    """Why MQMApprox has no noise for a chain."""
    try:
        eigengap(chain)
    except ChainClassError as error:
        return f"{error}; the paper's household has another chain"
    return "no quilt is good enough"


def _household(about: str, error: float | str, column: str, epsilon: float, why: str = "") -> Row:
    """An error on another household than the paper's, beside its cell unless the column is ours."""
    if column == "ours":
        return Row(about, error)
    cell = printed(("MQM", "table 3", f"{_ERROR_KEY} of power, {column}, epsilon {epsilon:g}")).partition(" ")[0]
    return Row(about, error, cell, "other data", why=why)


def _group_as_printed(epsilon: float) -> Row:
    """GroupDP's cell, which needs no data: the mean of 20 trials of 51 bins, within 99.9 % of such means."""
    bins, trials, scale = 51, 20, _PER_BIN / epsilon
    reach = float(ndtri((1 + _CONFIDENCE) / 2)) * scale * math.sqrt(bins / trials)
    paper = printed_number(("MQM", "table 3", f"{_ERROR_KEY} of power, GroupDP, epsilon {epsilon:g}"))
    about = f"epsilon {epsilon:g}: GroupDP as printed, 51 bins with Laplace(2 / epsilon), any data"
    return Row(about, bins * scale, paper, "printed", reach)


def table_3(setting: Setting) -> Found:
    """Table 3 in kind: errors of a histogram of household power in steps of 200 W."""
    recording = power(setting.recordings)
    chain, k = recording.chain(), recording.k
    generator = np.random.default_rng(3)
    rows = []
    for epsilon in (1.0,) if setting.quick else (0.2, 1.0, 5.0):
        setting.progress(f"epsilon {epsilon:g}")
        scales = _histogram_scales(chain, recording.longest, epsilon, ours=not setting.quick)
        for name, scale in scales.items():
            rows.append(_household(f"epsilon {epsilon:g}: {name}", _error(scale, k, recording.ticks), name, epsilon))
            rows.append(_drawn(f"epsilon {epsilon:g}: {name}", scale, k, recording.ticks, generator))
        rows += _orders(f"epsilon {epsilon:g}", scales)
        rows.append(_group_as_printed(epsilon))
        if "GK16" not in scales:
            rows.append(Row(f"epsilon {epsilon:g}: GK16", _REFUSED, _REFUSED, "claim"))
        if "MQMApprox" not in scales:
            about = f"epsilon {epsilon:g}: MQMApprox"
            rows.append(_household(about, _REFUSED, "MQMApprox", epsilon, why=_no_approx(chain)))
    note = (
        f"{recording.ticks:,} minutes of another household than the paper's; {k} of 51 steps of 200 W occur. One "
        "histogram of everything; error is the expected sum of |noise| over all bins, relative to the readings. "
        "GroupDP's cells need no data: 51 bins with Laplace(2 / epsilon). The slides print 0.019 for MQM at epsilon 1."
    )
    return Found(rows, notes=[note])
