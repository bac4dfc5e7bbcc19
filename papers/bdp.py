"""The BDP paper: its four figures.

Chakrabarti, Gao, Saraf, Schoenebeck, Yu: Optimal Local Bayesian Differential Privacy over Markov Chains (2020).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fugu.attackers.evaluation import attack, mean_transitions, success_bound
from fugu.attackers.learning import ATTACKERS, Attacker
from fugu.attackers.outputs import Knowledge, release_symbols
from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.inference import posterior_marginals
from fugu.contract.chains import BinaryChains
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.randomised_response import calibrate
from fugu.privacy.transitions import share_bounds
from papers.baselines import corollary_2, ordinary_dp, real_loss, zhao_eps3, zhao_eps6
from papers.lstm import lstm_attacker, lstm_missing
from papers.recordings import States, heart
from papers.rows import Basis, Chart, Found, Line, Row, Setting, at_most, lines_through

__all__ = [
    "ADVERSARIES",
    "figure_1",
    "figure_2",
    "figure_3",
    "figure_4",
    "figure_4_synthetic",
    "mean_interval",
    "point",
    "printed_bound",
    "success",
]

ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
_THEOREM_2 = (
    "theorem 2 is false: whoever knows the true states a few ticks away learns more than the most ignorant adversary"
)
_CONFIDENCE = 0.999


def point(q: float, r: float) -> BinaryChains:
    """The class of one chain."""
    return BinaryChains(q=(q, q), r=(r, r))


def figure_1(setting: Setting) -> Found:
    """Figure 1, q = 1/5 and r = 7/20, three epsilons: noise by theorem 1 and corollary 1, and what it loses."""
    chains = point(0.2, 0.35)
    ratio = Fraction(9)
    bound = chains.ratio_loss(ratio, ratio, "ignorant").epsilon
    informed = chains.ratio_loss(ratio, ratio, "informed").epsilon
    case = "erratum-bdp-theorem-2"
    rows = [
        Row("rho = 0.1: theorem 1's epsilon", bound, 4.308098289744215, "formula", 1e-9),
        at_most("rho = 0.1: epsilon of an adversary who knows some states", informed, bound, _THEOREM_2, case=case),
    ]
    for epsilon in _SLOPES:
        plan = calibrate(chains, epsilon, "ignorant", "flips")
        for which, ours, slope in zip(
            ("0 over 1", "1 over 0"), (plan.ratio_01, plan.ratio_10), _SLOPES[epsilon], strict=True
        ):
            quantity = f"epsilon {epsilon:g}: allowed likelihood ratio of {which}, the slope of corollary 1's line"
            rows.append(Row(quantity, ours, slope, "log", 1e-6))
        real = chains.ratio_loss(Fraction(plan.ratio_01), Fraction(plan.ratio_10), "informed").epsilon
        about = f"noise of corollary 1 at epsilon {epsilon:g}: the epsilon that it really has"
        rows.append(at_most(about, real, epsilon, _THEOREM_2, case=case, computed=False))
    charts = []
    for epsilon in (0.5, 1.0, 2.0):
        lines = []
        for adversary in ADVERSARIES:
            calibration = calibrate(chains, epsilon, adversary)
            about = f"{adversary}: the least noise, by corollary 1's lines"
            lines.append(Line(about, (0.0, calibration.rho0, 1.0), (1.0, calibration.rho1, 0.0)))
        title = f"Allowed flip probabilities at epsilon {epsilon:g} lie above the lines"
        charts.append(Chart(title, "rho0", "rho1", lines))
    return Found(rows, charts)


_SLOPES = {
    0.5: (1.217519704950018, 1.2041375053693821),
    1.0: (1.5133033589283529, 1.4482348883596254),
    2.0: (2.572388328484254, 2.171342794710831),
    4.0: (11.801885374693049, 7.090919257364369),
}
"""Slopes of the two lines of corollary 1 by epsilon, q = 1/5 and r = 7/20: formulas of the authors' program, evaluated
by another one."""


class _Success(NamedTuple):
    """How often the state in the middle of a stream is named: exactly, by an attacker who uses all symbols."""

    all_symbols: float
    one_symbol: float


def _symmetric(change: float) -> Floats:
    """The transitions, or the table, of two states that change with a probability."""
    return np.array([[1 - change, change], [change, 1 - change]])


def success(theta: float, rho: float, ticks: int = 30) -> _Success:
    """The chance of naming the middle state of a symmetric chain, over all outputs.

    Halves of the output are enumerated, and sorted by their likelihood ratio; so all 2^ticks outputs are added up.

    Args:
        theta: chance of a change of state.
        rho: of a wrong symbol.
        ticks: of the stream.
    """
    step, table = _symmetric(theta), _symmetric(rho)

    def half(length: int) -> Floats:
        likelihoods = np.ones((1, 2))
        for _ in range(length):
            likelihoods = np.concatenate([(likelihoods * table[:, z]) @ step.T for z in (0, 1)])
        return likelihoods

    before, right = half((ticks - 1) // 2), half(ticks - 1 - (ticks - 1) // 2)
    before = 0.5 * np.concatenate([before * table[:, z] for z in (0, 1)])
    ratios = right[:, 1] / right[:, 0]
    order = np.argsort(ratios)
    sums = np.vstack([np.zeros((1, 2)), np.cumsum(right[order], axis=0)])
    zero = np.searchsorted(ratios[order], before[:, 0] / before[:, 1], side="right")  # as many say 0
    named = before[:, 0] * sums[zero, 0] + before[:, 1] * (sums[-1, 1] - sums[zero, 1])
    return _Success(float(named.sum()), 1 - rho)


_FIGURE_2 = {
    0.0001: 0.9111846164548434, 0.001: 0.9069600143117795, 0.005: 0.8887879711762467, 0.01: 0.8676480237709621,
    0.02: 0.8312153899260688, 0.03: 0.8017445419264113, 0.05: 0.7578804894935842, 0.075: 0.721080674704995,
    0.1: 0.6958222554158382, 0.125: 0.6773771279963687, 0.15: 0.6633151109798661, 0.2: 0.6435287518843855,
    0.25: 0.6311423465845603, 0.3: 0.623808105640038, 0.35: 0.6224593312018568, 0.4: 0.622459331201853,
    0.45: 0.6224593312018551, 0.49: 0.6224593312018538,
}  # fmt: skip
"""Success of the correlation-aware attack by theta: n = 30, epsilon 1/2, exact values of what the figure draws."""


_NAMED = (0.01, 0.05, 0.1)


def figure_2(setting: Setting) -> Found:
    """Attacks on ordinary randomised response at epsilon 1/2, n = 30, by how sticky the chain is."""
    rho = ordinary_dp(0.5)
    rows = [Row("one symbol alone, any theta: success", 1 - rho, 0.622459, "formula", 5e-7)]
    some = {theta: paper for theta, paper in _FIGURE_2.items() if not setting.quick or theta in _NAMED}
    exact = {theta: success(theta, rho).all_symbols for theta in some}
    for theta, paper in some.items():
        rows.append(Row(f"theta {theta:g}: success with all symbols", exact[theta], paper, "formula", 1e-9))
    trials = 2_000 if setting.quick else 40_000
    generator = np.random.default_rng(30)
    for theta in _NAMED:
        rows.append(_simulated(theta, rho, trials, _FIGURE_2[theta], generator))
    rows += _logged_figure_2(rho, setting.quick)
    successes = {}
    for theta in exact:
        table = calibrate(point(theta, theta), 0.5, "informed").table
        successes[theta] = success(theta, table.flip_weights[0] / SCALE).all_symbols
        if theta in _NAMED:
            about = f"theta {theta:g}: success against our noise at the same epsilon (informed)"
            rows.append(at_most(about, successes[theta], 1 - rho))
    lines = [
        Line.through("ordinary randomised response, all symbols", exact.items()),
        Line.through("ordinary randomised response, one symbol", ((theta, 1 - rho) for theta in exact)),
        Line.through("our noise, all symbols", successes.items()),
    ]
    title = "Success of an attacker, n = 30, epsilon 1/2"
    chart = Chart(title, "theta: chance of a change of state", "success", lines)
    note = "The paper draws curves and prints no numbers; its column has what it draws, enumerated by another program."
    return Found(rows, [chart], [note])


_LOGGED_2 = {
    0.02: 0.8552, 0.068: 0.717925, 0.116: 0.68037, 0.164: 0.64546, 0.212: 0.63019, 0.26: 0.621655,
    0.308: 0.623845, 0.356: 0.62343, 0.404: 0.62302, 0.452: 0.620265, 0.5: 0.62334,
}  # fmt: skip
"""Figure 2 by theta: what the authors' program wrote, from 100 streams and 2,000 outputs of each."""
_STREAMS, _OUTPUTS = 100, 2_000


def _logged_figure_2(rho: float, quick: bool) -> Iterator[Row]:
    """The authors' own estimates beside exact values, within what their number of streams leaves open."""
    generator = np.random.default_rng(31)
    for theta, paper in list(_LOGGED_2.items())[:: 4 if quick else 1]:
        named = np.array([_named(theta, rho, 200, generator, alike=True).mean() for _ in range(100)])
        noise = float(named.mean() * (1.0 - named.mean()))
        between = max(0.0, float(named.var()) - noise / 200)  # of streams, without what 200 outputs add
        deviation = math.sqrt(between / _STREAMS + noise / (_STREAMS * _OUTPUTS))
        about = f"theta {theta:g}: success with all symbols, in the authors' run of {_STREAMS} streams"
        yield Row(about, success(theta, rho).all_symbols, paper, "log", 3.3 * deviation)


def _named(theta: float, rho: float, trials: int, generator: np.random.Generator, *, alike: bool = False) -> Bools:
    """True for each simulated stream whose middle state forward-backward names; all streams may be the same."""
    ticks = 30
    flips = generator.random((1 if alike else trials, ticks)) < theta
    flips[:, 0] = generator.random(len(flips)) < 0.5
    states = np.cumsum(flips, axis=1) % 2
    symbols = states ^ (generator.random((trials, ticks)) < rho)
    chain = np.full(2, 0.5), _symmetric(theta), _symmetric(rho)
    posteriors = posterior_marginals(symbols.astype(np.int64).ravel(), *chain, lengths=np.full(trials, ticks))
    middle = (ticks - 1) // 2
    return np.asarray(posteriors.reshape(trials, ticks, 2)[:, middle].argmax(axis=1) == states[:, middle])


def _simulated(theta: float, rho: float, trials: int, paper: float, generator: np.random.Generator) -> Row:
    """The same by simulation, with the attacker of `fugu check attack`: an independent way to the number."""
    named = _named(theta, rho, trials, generator)
    interval = share_bounds(int(named.sum()), trials, (1.0 - _CONFIDENCE) / 2.0)
    about = f"theta {theta:g}: success in {trials:,} simulated streams, forward-backward (99.9 % interval)"
    return Row(about, float(named.mean()), paper, "formula", interval=interval)


_FIGURE_3 = """
0.5 0.3775406687981 0.432609562898 0.4326097958836 0.4329738766871 0.4701194929266 0.4856183297353
1 0.26894142137 0.3649217739368 0.3649923476659 0.3676238554883 0.4327835265628 0.4662553124074
2 0.1192029220221 0.2326346139554 0.2349487834413 0.2482196155167 0.3340920202699 0.4169797533314
3 0.04742587317757 0.12318797334 0.1298682324205 0.1521484855315 0.2153060275467 0.3454673687499
4 0.01798620996209 0.05495256199563 0.06355135015993 0.0841703188699 0.1119190616139 0.2744110347243
5 0.006692850924285 0.02201159607984 0.02832982340348 0.04216250285478 0.04887848425463 0.2132089710099
6 0.002472623156635 0.008376411230165 0.01147144373884 0.01935684732977 0.01933798504757 0.09230880040614
8 0.0003353501304665 0.001153774501748 0.001643994657884 0.00336978908645 0.002721338720713 0.01357624111899
10 4.539786870243e-05 0.0001565241198527 0.0002243579458062 0.0005063090799079 0.0003702960501214 0.001859169030288
"""

_NAMES_3 = (
    "ordinary randomised response",
    "theorem 1 (ignorant)",
    "exact against who knows states (informed)",
    "universal",
    "corollary 2",
    "Zhao et al., eps_6",
)


def figure_3(setting: Setting) -> Found:
    """Noise of six calibrations by epsilon, theta = 0.35."""
    theta, chains = 0.35, point(0.35, 0.35)
    rows, ours = [], {}
    for line in _FIGURE_3.split("\n")[1:-1]:
        epsilon, *paper = map(float, line.split())
        levels = [calibrate(chains, epsilon, adversary).rho0 for adversary in ADVERSARIES]
        zhao = ordinary_dp(zhao_eps6(theta, epsilon)[0])
        ours[epsilon] = [ordinary_dp(epsilon), *levels, corollary_2(theta, epsilon), zhao]
        for name, number, published in zip(_NAMES_3, ours[epsilon], paper, strict=True):
            rows.append(Row(f"epsilon {epsilon:g}: flip probability, {name}", number, published, "formula", 1e-9))
    for epsilon in (2.0, 4.0):
        for name, rho in (("theorem 1", ours[epsilon][1]), ("corollary 2", ours[epsilon][4])):
            lost = real_loss(chains, Fraction(rho), Fraction(rho), "informed").epsilon
            about = f"epsilon {epsilon:g}: what the noise of {name} really loses"
            rows.append(at_most(about, lost, epsilon, _THEOREM_2, case="erratum-bdp-theorem-2", computed=False))
    about = "epsilon 2: what Zhao et al.'s first bound leaves for ordinary randomised response, in nats"
    rows.append(Row(about, zhao_eps3(theta, 2.0), why="below 0: the bound allows no noise at all"))
    lines = [Line(name, [*ours], flips) for name, *flips in zip(_NAMES_3, *ours.values(), strict=True)]
    chart = Chart("Flip probabilities, theta = 0.35", "epsilon", "flip probability", lines, log_y=True)
    note = "The paper draws curves; its column has its formulas, evaluated to 13 digits by another program."
    return Found(rows, [chart], [note])


_WATCHED = ("single symbol", "Viterbi", "forward-backward", "learned chain", "2 learned regimes", "supervised")
_LSTM_DRAWS = 3
_OUTSIDE = (
    "above the corrected bound, too: the recording has slow regimes that a homogeneous chain leaves out, so its "
    "readings are not in the class. The paper's own attackers do not learn them"
)


def printed_bound(q: float, r: float, epsilon: float) -> float:
    """The paper's bound on an attacker's success, section 4: e^eps / (max(q/r, r/q) + e^eps)."""
    return math.exp(epsilon) / (max(q / r, r / q) + math.exp(epsilon))


def figure_4(setting: Setting) -> Found:
    """Attacks on two recordings under the noise of theorem 1 for each one's mean chain."""
    watched = ("Viterbi", "learned chain", "supervised") if setting.quick else _WATCHED
    attackers = [({name: ATTACKERS[name] for name in watched}, 3 if setting.quick else 8)]
    missing = lstm_missing()
    if not (missing or setting.quick):
        attackers.append(({"LSTM, ten folds": lstm_attacker(10)}, _LSTM_DRAWS))
    rows: list[Row] = []
    charts = []
    for name, printed_q, printed_r in (("N10", 0.0893, 0.1092), ("N05", 0.2384, 0.3831)):
        recording = heart(setting.recordings, name)
        likely, means = recording.chain().transition, mean_transitions(*recording, 2)
        for which, at, paper in (("q, of 0 to 1", (0, 1), printed_q), ("r, of 1 to 0", (1, 0), printed_r)):
            about = f"{name}: {which}, share of changes (digits after the fourth are cut)"
            rows.append(Row(about, float(likely[at]), paper, "printed", 1e-4))
        q, r = float(means[0, 1]), float(means[1, 0])
        reached = defaultdict[str, list[tuple[float, float]]](list)
        for epsilon in (1.0,) if setting.quick else (0.5, 1.0, 2.0, 4.0):
            setting.progress(f"{name}, epsilon {epsilon:g}")
            table = calibrate(point(q, r), epsilon, "ignorant", "flips").table
            shares: dict[str, list[float]] = {}
            for some, draws in attackers:
                shares |= _attacked(recording, table, epsilon, some, draws)
            measured = _attack_rows(f"{name}, epsilon {epsilon:g}", (q, r), epsilon, shares)
            rows += measured
            if name == "N10" and epsilon in _LOGGED:
                rows += _logged_rows(f"N10, epsilon {epsilon:g}", shares, _LOGGED[epsilon])
            bounds = {"bound, printed": [printed_bound(q, r, epsilon)], "bound, corrected": [float(measured[0].ours)]}
            for attacker, values in (bounds | shares).items():
                reached[attacker].append((epsilon, float(np.mean(values))))
        charts.append(Chart(f"Success of attackers on {name}", "epsilon", "success", lines_through(reached)))
    return Found(rows, charts, [missing] if missing else [])


_LOGGED = {
    1.0: (0.5498272852208149, 0.4324587786252504),
    2.0: (0.7122906065445901, 0.6972767544988071),
    4.0: (0.8441109831742376, 0.8307042912018361),
}
"""Success of Viterbi and of an LSTM on N10, once, by epsilon: the authors' log of their program."""


def _logged_rows(about: str, shares: dict[str, list[float]], logged: tuple[float, float]) -> Iterator[Row]:
    """Rows of success in the authors' one run, beside one more draw of ours."""
    values = shares["Viterbi"]
    mean, interval = mean_interval(values, one_more=True)
    quantity = f"{about}: success of Viterbi ({len(values)} draws, 95 % interval of one more), in the authors' run"
    yield Row(quantity, mean, logged[0], "log", interval=interval)
    ours = float(np.mean(folds)) if (folds := shares.get("LSTM, ten folds")) else "did not run"
    why = "another network: theirs reads 100 symbols one way, and is judged on five folds"
    yield Row(f"{about}: success of an LSTM, in the authors' run", ours, logged[1], "other data", why=why)


_TICKS, _RUNS = 25_000, 8
_SYNTHETIC = """
1.0 - - - 0.5627813504823151
1.5 - - - 0.557315112540193
2.0 - - - 0.5647909967845659
2.5 - - - 0.61241961414791
3.0 0.41566849347818463 0.3566659598008767 0.6084 0.6395900321543408
3.5 0.38507017414810385 0.32224570964803295 0.64516 0.6870578778135048
4.0 0.3472810179742222 0.2833828163430854 0.68456 0.7565112540192926
4.5 0.3025112154806662 0.2406595816438959 0.72348 0.8004823151125402
"""
"""By epsilon: rho0, rho1, success of a single symbol and of Viterbi, once: the authors' log of their program."""


def figure_4_synthetic(setting: Setting) -> Found:
    """Figure 4, synthetic: attacks on 25,000 ticks of the chain of N10, under the noise of corollary 1."""
    q, r = 0.08937981353871098, 0.10924092409240924
    chains, prior, transition = point(q, r), np.array([r, q]) / (q + r), np.array([[1 - q, q], [r, 1 - r]])
    missing = lstm_missing()
    rows: list[Row] = []
    reached = defaultdict[str, list[tuple[float, float]]](list)
    for line in _SYNTHETIC.split("\n")[1:-1]:
        epsilon, *logged = (float(word.replace("-", "nan")) for word in line.split())
        if setting.quick and epsilon not in (1.0, 4.0):
            continue
        setting.progress(f"epsilon {epsilon:g}")
        noise = calibrate(chains, epsilon, "ignorant", "flips")
        about = f"epsilon {epsilon:g}"
        for name, ours, paper in zip(("rho0", "rho1"), (noise.rho0, noise.rho1), logged, strict=False):
            if not math.isnan(paper):
                rows.append(Row(f"{about}: {name} of corollary 1", ours, paper, "log", 1e-6))
        shares: dict[str, list[float]] = {name: [] for name in _KNOWN}
        for seed in range(_RUNS):
            generator = np.random.default_rng([40, seed])
            recording = States(drawn_chains(transition, 1, _TICKS, generator)[0], np.zeros(_TICKS, dtype=np.int64))
            outputs = release_symbols(recording.states, noise.table, generator)
            knowledge = Knowledge(transition, recording.segments, truth=recording.states)
            more = {} if missing or setting.quick or seed else {"LSTM, ten folds": lstm_attacker(10)}
            for name, attacker in {**{name: ATTACKERS[name] for name in _KNOWN}, **more}.items():
                named = attacker(outputs, knowledge).argmax(axis=1)
                shares.setdefault(name, []).append(float(np.mean(named == recording.states)))
        bound, printed = float(success_bound(prior, epsilon)), printed_bound(q, r, epsilon)
        for name, values in shares.items():
            # another program's single run is one more draw, not the mean of these
            mean, interval = mean_interval(values, one_more=True)
            quantity = f"{about}: success of {name} ({len(values)} draws, 95 % interval of one more)"
            paper = dict(zip(("single symbol", "Viterbi"), logged[2:], strict=True)).get(name, math.nan)
            printed_share = None if math.isnan(paper) else paper
            basis: Basis = "ours" if printed_share is None else "log"
            rows.append(Row(quantity, mean, printed_share, basis, interval=interval))
            rows.append(at_most(f"{about}: success of {name}, against the printed bound", mean, printed))
            reached[name].append((epsilon, mean))
        for name, value in (("bound, printed", printed), ("bound, corrected", bound)):
            reached[name].append((epsilon, value))
    chart = Chart("Success of attackers on synthetic streams", "epsilon", "success", lines_through(reached))
    notes = (
        "Chain, ticks, noise and attackers are those of the authors' program "
        "(github.com/AdityaSaraf/correlated_data_privacy_attack, 9 June 2020); its log has one run of each epsilon. "
        "It names no success of its LSTM on these streams: the program writes 0.",
        *([missing] if missing else []),
    )
    return Found(rows, [chart], notes)


_KNOWN = ("single symbol", "Viterbi", "forward-backward")


def drawn_chains(step: Floats, runs: int, ticks: int, generator: np.random.Generator) -> Ints:
    """Streams of a binary chain, runs x ticks, started stationary."""
    words, states = generator.random((runs, ticks)), np.empty((runs, ticks), dtype=np.int64)
    states[:, 0] = words[:, 0] < step[0, 1] / (step[0, 1] + step[1, 0])
    for tick in range(1, ticks):
        states[:, tick] = words[:, tick] < step[states[:, tick - 1], 1]
    return states


def _attack_rows(about: str, chain: tuple[float, float], epsilon: float, shares: dict[str, list[float]]) -> list[Row]:
    """The bound on success, and what each attacker reached, against the printed one."""
    q, r = chain
    printed, prior = printed_bound(q, r, epsilon), np.array([r, q]) / (q + r)
    corrected, guess = float(success_bound(prior, epsilon)), float(prior.max())
    why = "the printed bound is wrong, and falls below always naming the likelier state at small epsilon"
    case = "erratum-bdp-success-bound"
    about_bound = f"{about}: the bound on success"
    rows = [Row(about_bound, corrected, printed, "formula", 1e-9, why=why, counterexample=case, computed=True)]
    for attacker, values in shares.items():
        mean, interval = mean_interval(values)
        why, case = "the printed bound is wrong; the corrected one holds", "erratum-bdp-success-bound"
        if printed < guess:
            why = "the printed bound is below always naming the likelier state"
        quantity = f"{about}: success of {attacker} (mean of {len(values)} draws of noise, 95 % interval)"
        if mean > corrected:
            row = Row(quantity, mean, why=_OUTSIDE)
        else:
            row = at_most(quantity, mean, printed, why, case=case)
        rows.append(replace(row, interval=interval))
    return rows


def _attacked(
    recording: States, table: NoiseTable, epsilon: float, attackers: dict[str, Attacker], draws: int
) -> dict[str, list[float]]:
    """Success of each attacker for each draw of the noise."""
    shares: dict[str, list[float]] = {name: [] for name in attackers}
    for seed in range(draws):
        outputs = release_symbols(recording.states, table, np.random.default_rng([4, seed]))
        for result in attack(*recording, outputs, epsilon, attackers=attackers):
            shares[result.attacker].append(result.success)
    return shares


def mean_interval(
    values: Sequence[float] | Floats, confidence: float = 0.95, *, one_more: bool = False
) -> tuple[float, tuple[float, float]]:
    """The mean of independent draws, and its interval, or that of one more draw; no wider than a point for one draw."""
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return mean, (mean, mean)
    reach = float(stdtrit(count - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    reach *= math.sqrt(count + 1) if one_more else 1.0
    return mean, (mean - reach, mean + reach)
