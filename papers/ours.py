"""Figures that no paper has: all mechanisms at one epsilon, real losses of calibrations, attackers who learn."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from fugu.attackers.evaluation import furthest_learner, success_bound
from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.planning.true_class import count_scale
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.covering_class import covering_class
from fugu.privacy.quilts import mqm_approx, mqm_exact
from fugu.privacy.wasserstein import wasserstein_count
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings
from papers.attacked import attack_classes, two_states
from papers.baselines import baselines
from papers.bdp import ADVERSARIES, point
from papers.influence_matrix import influence_scale
from papers.recordings import HEARTS, States, activity, heart, power, presence
from papers.rows import Chart, Found, Line, Row, Setting, at_most, lines_through

__all__ = ["attackers", "calibrations", "noise", "truth"]

_EPSILON = 1.0
_WINDOW = 60
_FEW_STATES = 4


def _binary(setting: Setting) -> dict[str, States]:
    """Recordings of two states."""
    if setting.quick:
        return {"N10": heart(setting.recordings, "N10"), "occupancy": presence(setting.recordings)["occupancy"]}
    return {**{name: heart(setting.recordings, name) for name in HEARTS}, **presence(setting.recordings)}


def noise(setting: Setting) -> Found:
    """Noise of a count by every mechanism, epsilon 1, every recording: Laplace scale in ticks."""
    recordings = _binary(setting)
    recordings["activity"] = activity(setting.recordings)[0]
    if not setting.quick:
        recordings["power"] = power(setting.recordings)
    rows = []
    columns = defaultdict[str, list[tuple[float, float]]](list)
    for number, (name, recording) in enumerate(recordings.items(), 1):
        setting.progress(name)
        for mechanism, scale in _scales(recording):
            about = f"{name} ({recording.k} states, {recording.ticks:,} ticks): {mechanism}"
            rows.append(Row(about, "no noise is enough" if scale is None else scale))
            if scale is not None:
                columns[mechanism].append((float(number), scale))
    lines = lines_through(columns, joined=False)
    names = ", ".join(f"{number} {name}" for number, name in enumerate(recordings, 1))
    chart = Chart("Noise of a count at epsilon 1", names, "Laplace scale, ticks", lines, log_y=True)
    notes = (
        "The most likely chain of each recording, started stationary. Plain DP takes readings for independent and "
        "promises nothing of these. GroupDP, MQM and GK16 are for one release of everything, and Wasserstein for one "
        f"count of {_WINDOW} ticks, ever. Ours is for counts of all windows of a stream without an end.",
    )
    return Found(rows, [chart], notes)


def _scales(recording: States) -> Iterator[tuple[str, float | None]]:
    chain, longest = recording.chain(), recording.longest
    yield "plain DP (independent readings)", 1.0 / _EPSILON
    yield "GroupDP", longest / _EPSILON
    tasks: dict[str, Callable[[], float]] = {
        "GK16": lambda: influence_scale((chain,), longest, _EPSILON).scale,
        "MQMApprox": lambda: mqm_approx((chain,), longest, _EPSILON).scale,
        "MQMExact": lambda: mqm_exact((chain,), longest, _EPSILON).scale,
    }
    if recording.k == 2:
        tasks["Wasserstein"] = lambda: float(wasserstein_count((_rounded(chain),), _WINDOW).distance) / _EPSILON
    for adversary in ADVERSARIES:
        if adversary != "informed" or recording.k <= _FEW_STATES:
            tasks[f"ours, {adversary}"] = partial(_own_scale, chain, adversary)
    for name, run in tasks.items():
        scale = None
        with suppress(ChainClassError):
            scale = run()
        yield name, scale


def _own_scale(chain: MarkovChain, adversary: Adversary) -> float:
    return 1.0 / ChainAccountant((chain,)).allowance(_EPSILON, adversary)


def _rounded(chain: MarkovChain) -> MarkovChain:
    """Rates of four digits: exact distributions of counts hold their numerators and denominators."""
    q, r = (max(1e-4, round(float(rate), 4)) for rate in (chain.transition[0, 1], chain.transition[1, 0]))
    return MarkovChain.stationary([[1 - q, q], [r, 1 - r]])


_ORDINARY = "ordinary randomised response"
"""The BDP paper's own thesis is that it loses more than its epsilon on correlated data."""


def calibrations(setting: Setting) -> Found:
    """Nominal against real epsilon of published calibrations of randomised response."""
    rows = []
    for name, recording in _binary(setting).items():
        q, r = (float(rate) for rate in recording.chain().transition[[0, 1], [1, 0]])
        chains = point(q, r)
        for epsilon in (1.0,) if setting.quick else (0.5, 1.0, 2.0, 4.0):
            for baseline in baselines(chains, epsilon):
                real = baseline.real(chains, "informed")
                lost = "no bound" if real is None else real.epsilon
                about = f"{name}, nominal epsilon {epsilon:g}: what {baseline.name} really loses (informed)"
                if baseline.name == _ORDINARY:
                    rows.append(Row(about, lost, epsilon, "claim", limit="at least"))
                else:
                    why = "theorem 2 is false: known states tell more"
                    rows.append(at_most(about, lost, epsilon, why, case="erratum-bdp-theorem-2", computed=False))
    chart = _real_epsilons()
    note = "Of each recording's mean chain: what is lost if the recording were that chain."
    return Found(rows, [chart], [note])


def _real_epsilons() -> Chart:
    """Real against nominal epsilon of theorem 1's noise, and of ordinary randomised response, for a sticky chain."""
    q, r = 0.0893, 0.1092
    chains = point(q, r)
    nominal = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    losses = defaultdict[str, list[float]](list, nominal=[*nominal])
    for epsilon in nominal:
        for baseline in baselines(chains, epsilon):
            real = baseline.real(chains, "informed")
            losses[baseline.name].append(math.nan if real is None else real.epsilon)
    lines = [Line(name, nominal, values) for name, values in losses.items()]
    return Chart("Real against nominal epsilon, q = 0.0893, r = 0.1092", "nominal epsilon", "real epsilon", lines)


_BASELINES = (None, 300, 100, 30)
"""Running means, in beats, that a state is above; `None`: the mean of the night."""


def _hearts(recordings: Path, quick: bool) -> Iterator[tuple[str, str, Ints, Ints]]:
    """Recording, state in words, states and segments."""
    for name in HEARTS[:1] if quick else HEARTS:
        readings = read_readings(recordings / f"hr_sleep_{name}.csv.gz", ReadOptions(column="value"))
        for ticks in _BASELINES[1:2] if quick else _BASELINES:
            words, states = two_states(readings, ticks)
            yield name, words, states, readings.segments


def attackers(setting: Setting) -> Found:
    """Reach of attackers who learn on three nights, epsilon 1: three kinds of noise, symbols and counts."""
    rows = []
    ceiling = float(success_bound([0.5, 0.5], _EPSILON))
    for name, words, states, segments in _hearts(setting.recordings, setting.quick):
        setting.progress(f"{name}, {words}")
        if setting.quick:
            states, segments = states[:6000], segments[:6000]
        for chains, trial in attack_classes(name, states, segments, _EPSILON):
            best = trial.attacks[0]
            about = f"{name}, {words}, noise for {chains}, {trial.released}"
            success = f"{about}: success of {best.attacker}, always guessing {best.guess:.3f} (95 % interval of all)"
            rows.append(Row(success, best.success, interval=(best.low, best.high)))
            for who, result in (
                ("habits known", trial.known_chain),
                ("habits learned", furthest_learner(trial.attacks)),
            ):
                if result is not None and result.beyond is not None and result.furthest is not None:
                    rows.append(Row(f"{about}, {who}: share of ticks beyond e^epsilon", result.beyond))
                    rows.append(Row(f"{about}, {who}: largest factor on the odds of a tick", result.furthest))
    note = (
        "Noise for independent readings is ordinary randomised response. For the mean chain it is for that of the "
        "recording and its halves, against who knows states. For every stretch it is ours: a class that covers "
        "the local transitions, against the universal adversary. The strongest attacker is shown. Odds are of two. One "
        f"believes the mean chain and uses every output; epsilon is about him (e^epsilon is {math.e:.3f}). The other "
        "learns habits and moves furthest; no epsilon is about him. With both states as likely, "
        f"epsilon 1 allows a success of {ceiling:.3f}."
    )
    return Found(rows, notes=[note])


def truth(setting: Setting) -> Found:
    """Noise of a count at epsilon 1 for the mean chain, and for a class that covers a recording."""
    rows = []
    factors: dict[str, list[float]] = {}
    for name, words, states, segments in _hearts(setting.recordings, setting.quick):
        setting.progress(f"{name}, {words}")
        rows += _price(f"{name}, {words}", States(states, segments), factors)
    for name, recording in presence(setting.recordings).items():
        if not setting.quick:
            rows += _price(name, recording, factors)
    numbers = [float(number) for number in range(1, len(factors) + 1)]
    names = [*(f"mean chain, {adversary}" for adversary in ADVERSARIES), "every stretch, universal"]
    lines = [Line(name, numbers, scales, joined=False) for name, *scales in zip(names, *factors.values(), strict=True)]
    chart = Chart("Noise of a count at epsilon 1", ", ".join(factors), "Laplace scale, ticks", lines, log_y=True)
    note = (
        "A bound is proven if the readings are in the class. The mean chain is one chain, which no recording here is. "
        "The class of every stretch covers all but 2 % of the local transitions, and chains that change between them."
    )
    return Found(rows, [chart._replace(x_axis="recordings, in the order of the table")], [note])


def _price(about: str, recording: States, factors: dict[str, list[float]]) -> list[Row]:
    """Rows of a recording; its scales go to `factors`, unless there is no class."""
    try:
        covered = covering_class(*recording, 2)
        wide = count_scale(covered.chains, _EPSILON)
    except FuguError as error:
        return [Row(f"{about}: no class", str(error))]
    chain = MarkovChain.stationary(covered.transition)
    scales = [_own_scale(chain, adversary) for adversary in ADVERSARIES]
    factors[about] = [*scales, wide]
    rows = [
        Row(f"{about}: mean chain, {adversary}", scale) for adversary, scale in zip(ADVERSARIES, scales, strict=True)
    ]
    rows.append(Row(f"{about}: every stretch, universal", wide))
    rows.append(Row(f"{about}: the price, every stretch over the mean chain (informed)", wide / scales[1]))
    return rows
