"""Beside the newest: who needs how much noise for the same promise, and where the others are better."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fugu.chains.arrays import Floats
from fugu.places.noise import noise_error
from fugu.places.protection import protect
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_exact
from fugu.privacy.randomised_response import calibrate
from fugu.privacy.wasserstein import wasserstein_count
from papers.bdp import ADVERSARIES, point
from papers.dphmm import TRIANGLE, VALUES
from papers.influence_matrix import influence_scale
from papers.recordings import presence
from papers.rows import Found, Row, Setting, Value
from papers.w_event import SCHEMES, released, sampled_loss, stretch_loss

__all__ = ["counts", "crowd", "errors", "policy_graphs", "stretches"]

_DAY, _HOUR, _BLOCK = 1440, 60, 15
_BLOCKS = _HOUR // _BLOCK
_CHAINS = {
    "weak": (0.45, 0.45),
    "quick": (0.3, 0.3),
    "sleep (N10)": (0.0894, 0.1092),
    "water": (0.0621, 0.3614),
    "office": (0.0036, 0.012),
    "alternating": (0.9, 0.8),
}
"""Rates q and r: examples, and those of three recordings' most likely chains, rounded."""
_CLASSES = {"water": 140.0, "motion": 5300.0}
"""Odds ratios of the classes that cover two recordings."""
_QUERIES = {"15 minutes": _BLOCK, "hour": _HOUR, "day": _DAY}
_ABSTRACT = "not at hand beyond abstract and first lines"


def counts(setting: Setting) -> Found:
    """Laplace scale of an hour's count for a known chain, a tick's promise, epsilon 1, by every method."""
    rows = []
    for name, (q, r) in _CHAINS.items():
        setting.progress(name)
        for words, value in _scales(q, r):
            rows.append(Row(f"{name}, q = {q:g}, r = {r:g}: {words}", value))
    rows.append(Row("influence curves (Bai and others, arXiv 2602.02718)", _ABSTRACT))
    rows.append(Row("Kantorovich mechanism (Ding 2022), Renyi Pufferfish (Pierquin and others 2024)", _ABSTRACT))
    notes = (
        "Wasserstein, MQM and GK16 are for one count, ever: a second one needs another theorem. Of ours, two counts of "
        "the same ticks need twice the scale each. For a known chain of two states with q + r < 1 the accountant is "
        "exact. So no proof, of a method whose text is not at hand either, can allow Laplace noise on this count a "
        "smaller scale than 'ours, this hour'. With q + r > 1 it is a bound for any such release, and Wasserstein's "
        "mechanism, which looks at this count alone, needs less.",
        "Influence curves: the abstract says that linear composition needs inequalities as in differential privacy. An "
        "(a,b)-influence curve turns a differentially private algorithm into a composable Pufferfish one, much better "
        "on Markov chains than prior work. Definitions were not rebuilt from that.",
    )
    return Found(rows, notes=notes)


def _scales(q: float, r: float) -> Iterator[tuple[str, Value]]:
    chain = MarkovChain.stationary([[1 - q, q], [r, 1 - r]])
    accountant = ChainAccountant((chain,))
    yield "independent readings (no promise here)", 1.0
    yield "Wasserstein mechanism", float(wasserstein_count((chain,), _HOUR).distance)
    yield "MQMExact", mqm_exact((chain,), _HOUR, 1.0).scale
    try:
        yield "influence matrix (GK16)", influence_scale((chain,), _HOUR, 1.0).scale
    except ChainClassError:
        yield "influence matrix (GK16)", "not applicable: readings depend too much"
    yield "ours, this hour", 1.0 / accountant.allowance(1.0, "ignorant", _HOUR)
    for adversary in ADVERSARIES:
        yield f"ours, every hour without end, {adversary}", 1.0 / accountant.allowance(1.0, adversary)
    for adversary in ADVERSARIES:
        yield f"ours, symbols without end, {adversary}: rho0", calibrate(point(q, r), 1.0, adversary).rho0


def stretches(setting: Setting) -> Found:
    """Loss of an hour and of a minute by w-event schemes of epsilon 1 for an hour."""
    rows = []
    for name, odds in _CLASSES.items():
        for words, ticks in (("an hour", _HOUR), ("a minute", 1)):
            setting.progress(f"{name}, {words}")
            about = f"{name}, odds ratio {odds:g}, {words}:"
            for scheme in SCHEMES:
                rows.append(Row(f"{about} {scheme}", stretch_loss(scheme, _BLOCK, _BLOCKS, odds, ticks)))
            asked = sampled_loss(_HOUR, odds, ticks)
            rows.append(Row(f"{about} one minute of each hour with all of epsilon (division of people)", asked))
            closed = (ticks + math.sqrt(odds) - 1.0) / _HOUR
            rows.append(Row(f"{about} ours, counts with noise of scale {_HOUR}", closed))
    notes = (
        "w-event privacy is our floor: an hour changes, and all else is as it was. The loss is by theorem 2 of "
        "docs/proofs/stretches.md, for any side information and the class that covers a recording. It is in proportion "
        "to epsilon, so that each number is also the factor of noise that is missing for epsilon 1. Time stamps are "
        f"blocks of {_BLOCK} minutes, in streams of four hours, for every choice of blocks, near their middle. The "
        "last two of each are for streams without end.",
    )
    return Found(rows, notes=notes)


def errors(setting: Setting) -> Found:
    """Mean error of a recording's counts, as a share, at equal protection of an hour, by w-event schemes."""
    trials, rows = 3 if setting.quick else 40, []
    for name, odds in _CLASSES.items():
        setting.progress(name)
        recording = presence(setting.recordings)[name]
        pieces = [recording.states[recording.segments == segment] for segment in np.unique(recording.segments)]
        hours = np.concatenate([piece[: len(piece) // _HOUR * _HOUR] for piece in pieces])
        blocks = hours[: len(hours) // _DAY * _DAY].reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
        for words, ticks in _QUERIES.items():
            truth = _sums(blocks, ticks)
            rows.append(Row(f"{name}, {words}: best constant", float(np.abs(truth - np.median(truth)).mean()) / ticks))
        for promise, epsilon in ((p, e) for p in ("A", "S") for e in (1.0, 8.0, 32.0)):
            about = f"{name}, {promise}(hour, {epsilon:g}),"
            for scheme in SCHEMES:
                lacking = stretch_loss(scheme, _BLOCK, _BLOCKS, odds, _HOUR) if promise == "S" else 1.0
                many, generator = np.tile(blocks, (trials, 1)), np.random.default_rng(5)
                estimates = released(scheme, many, _BLOCK, _BLOCKS, epsilon / lacking, generator).clip(0.0, _BLOCK)
                for words, ticks in _QUERIES.items():
                    off = np.abs(_sums(estimates, ticks) - _sums(blocks, ticks)).mean() / ticks
                    rows.append(Row(f"{about} {words}: {scheme}", float(off)))
            scale = (_HOUR + (math.sqrt(odds) - 1.0) * (promise == "S")) / epsilon
            for words, ticks in _QUERIES.items():
                truth = np.tile(_sums(blocks, ticks), (trials, 1))
                estimates = (truth + np.random.default_rng(5).laplace(0.0, scale, truth.shape)).clip(0.0, ticks)
                rows.append(Row(f"{about} {words}: ours", float(np.abs(estimates - truth).mean()) / ticks))
            # a window that is not shorter than the stretch is a time stamp of its own: nothing is left to absorb
            truth = np.tile(_sums(blocks, _DAY), (trials, 1))
            estimates = released("BA", truth, _HOUR, 1, _HOUR / scale, np.random.default_rng(5)).clip(0.0, _DAY)
            off = np.abs(estimates - truth).mean() / _DAY
            rows.append(Row(f"{about} day: BA with days as time stamps", float(off)))
    notes = (
        "A: the floor, w-event privacy. S: an hour against any side information, by the class that covers the "
        f"recording. Its hours without gaps; answers kept between 0 and the window; {trials} trials, fixed seeds. "
        f"Schemes publish blocks of {_BLOCK} minutes, which are added up; ours publishes the window itself. Uniform "
        "and sample are windows of the device, too: of every block, and of one block in an hour, on a grid that never "
        "moves.",
        "A window that is as long as the stretch has stretches inside it alone. So its rate is at most epsilon over "
        "the ticks of the stretch, whatever earlier windows left unspent. Absorption cannot gain, and half of epsilon "
        "goes to the comparison.",
    )
    return Found(rows, notes=notes)


def _sums(blocks: Floats, ticks: int) -> Floats:
    return np.asarray(blocks.reshape(*blocks.shape[:-1], -1, ticks // _BLOCK).sum(axis=-1))


def crowd(setting: Setting) -> Found:
    """Mean error of how many of 1,000 people are in, w-event privacy of epsilon 1 for an hour."""
    people, minutes, rng = 1000, _HOUR * (6 if setting.quick else 48), np.random.default_rng(5)
    q, r = _CHAINS["office"]
    inside = np.zeros((minutes, people), dtype=np.bool_)
    inside[0] = rng.random(people) < q / (q + r)
    for minute in range(1, minutes):
        inside[minute] = np.where(inside[minute - 1], rng.random(people) >= r, rng.random(people) < q)
    present = inside.sum(axis=1).astype(np.float64)

    rooms = inside.reshape(minutes, 100, -1).sum(axis=2).T + 200.0 * ((np.arange(minutes) + 30) // 240 % 2)

    def off(estimates: Floats, truth: Floats, ticks: int) -> float:
        return float(np.abs((estimates - truth).reshape(-1, ticks).mean(axis=1)).mean())

    rows = [Row("a minute: best constant", off(np.full(minutes, np.median(present)), present, 1))]
    for scheme in SCHEMES:
        counts = np.maximum(released(scheme, present[None, :], 1, _HOUR, 1.0, rng), 0.0)
        rows.append(Row(f"a minute, server trusted: {scheme}", off(counts, present, 1)))
        rows.append(Row(f"an hour's mean, server trusted: {scheme}", off(counts, present, _HOUR)))
        counts = np.maximum(released(scheme, rooms, 1, _HOUR, 1.0, rng, columns=len(rooms)), 0.0)
        rows.append(Row(f"a minute of each of 100 rooms, server trusted: {scheme}", off(counts, rooms, 1)))
    flips, answers = 1.0 / (1.0 + math.e), np.zeros(minutes)
    for minute in range(minutes):
        asked = inside[minute, minute % _HOUR :: _HOUR]
        reported = rng.random(len(asked)) < np.where(asked, 1.0 - flips, flips)
        answers[minute] = (reported.mean() - flips) / (1.0 - 2.0 * flips) * people
    asked_once = "an hour's mean, nobody trusted: each asked one minute of an hour (division of people)"
    rows.append(Row(asked_once, off(answers, present, _HOUR)))
    shares = rng.laplace(0.0, 1.0, (200, people)).sum(axis=1)  # an hour's count with scale 60, over 60
    rows.append(Row("an hour's mean, nobody trusted: sum of our counts of an hour", float(np.abs(shares).mean())))
    notes = (
        "People move by the office's most likely chain, independently. In the rooms 200 more each come for four hours, "
        "from half past. A trusted server holds all readings; one person moves a minute's sum, of one room, by 1.",
        "Division of people is the idea of LDP-IDS (Ren and others 2022), of which abstract, first lines, and code of "
        "others were at hand (github.com/pumpkinbo/LDP-IDS, github.com/ZJU-DAILY/RetraSyn). Here each answers by "
        "randomised response, without its adaptive part.",
    )
    return Found(rows, notes=notes)


def policy_graphs(setting: Setting) -> Found:
    """PGLP's repair of a policy graph, by the least area, and ours, by the least error."""
    by_area = by_error = same = 0
    worst = 1.0
    for chosen in range(1, 2**6):
        constraint = np.array([bool(chosen >> place & 1) for place in range(6)])
        if constraint.sum() < 3:
            continue
        area, error = (
            float(noise_error(protect(VALUES, TRIANGLE, constraint, objective=objective).hull))
            for objective in ("area", "error")
        )
        by_area, by_error, same = by_area + (area < error), by_error + (error < area), same + (area == error)
        worst = max(worst, math.sqrt(area / error))
    rows = (
        Row("example 6.1, all sets of 3 places and more: both have the same error", float(same)),
        Row("example 6.1, all sets of 3 places and more: the least error does better", float(by_error)),
        Row("example 6.1, all sets of 3 places and more: the least area does better", float(by_area)),
        Row("example 6.1: largest factor between their errors", worst),
    )
    notes = (
        "PGLP (Cao and others 2020) connects an exposed place where the area of the sensitivity hull grows least. This "
        "rule is of its authors' code (github.com/tkgsn/PGLP), which sums areas without the sign that DPHMM algorithm "
        "3 got wrong. The paper's text beyond the abstract was not at hand.",
    )
    return Found(rows, notes=notes)
