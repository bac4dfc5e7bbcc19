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
from fugu.privacy.wasserstein import wasserstein_count
from papers.dphmm import TRIANGLE, VALUES
from papers.influence_matrix import influence_scale
from papers.recordings import presence
from papers.rows import Found, Row, Setting
from papers.w_event import SCHEMES, Scheme, released, sampled_loss, stretch_loss

__all__ = ["counts", "crowd", "errors", "policy_graphs", "stretches"]

_HOUR, _BLOCK = 60, 15
_BLOCKS = _HOUR // _BLOCK
_CHAINS = {"quick": (0.3, 0.3), "sleep (N10)": (0.0894, 0.1092), "water": (0.0621, 0.3614), "office": (0.0036, 0.012)}
"""Rates q and r: an example, and those of three recordings' most likely chains, rounded."""
_CLASSES = {"water": 140.0, "motion": 5300.0}
"""Odds ratios of the classes that cover two recordings."""
_ABSTRACT = "not at hand beyond abstract and introduction"


def counts(setting: Setting) -> Found:
    """One count of an hour, a known chain, a tick's promise at epsilon 1: the Laplace scale that each method needs."""
    rows = []
    for name, (q, r) in _CHAINS.items():
        chain = MarkovChain.stationary([[1 - q, q], [r, 1 - r]])
        accountant = ChainAccountant((chain,))
        about = f"{name}, q = {q:g}, r = {r:g}:"
        rows.append(Row(f"{about} independent readings (promises nothing here)", 1.0))
        rows.append(Row(f"{about} Wasserstein mechanism", float(wasserstein_count((chain,), _HOUR).distance)))
        rows.append(Row(f"{about} MQMExact", mqm_exact((chain,), _HOUR, 1.0).scale))
        try:
            rows.append(Row(f"{about} influence matrix (GK16)", influence_scale((chain,), _HOUR, 1.0).scale))
        except ChainClassError:
            rows.append(Row(f"{about} influence matrix (GK16)", "not applicable: readings depend too much"))
        why = "no proof can allow Laplace noise a smaller scale: some output tells as much"
        rows.append(Row(f"{about} ours, this one hour", 1.0 / accountant.allowance(1.0, "ignorant", _HOUR), why=why))
        for adversary in ("ignorant", "informed", "universal"):
            scale = 1.0 / accountant.allowance(1.0, adversary)
            rows.append(Row(f"{about} ours, every hour without end, {adversary}", scale))
    rows.append(Row("influence curves (Bai and others, arXiv 2602.02718)", _ABSTRACT))
    rows.append(Row("Kantorovich mechanism (Ding 2022), Renyi Pufferfish (Pierquin and others 2024)", _ABSTRACT))
    notes = (
        "The first five are for one count, ever: Wasserstein and MQM promise nothing of a second one. For a known chain "
        "of two states with q + r < 1 the accountant is exact, so its scale bounds from below what any method needs that "
        "adds Laplace noise to this count, also those whose text is not at hand.",
        "Influence curves: the abstract says that linear composition needs inequalities as in differential privacy, that "
        "an (a,b)-influence curve turns a differentially private algorithm into a composable Pufferfish one, and that "
        "this does much better on Markov chains than prior work. Its definitions were not rebuilt from that.",
    )
    return Found(tuple(rows), (), notes)


def stretches(setting: Setting) -> Found:
    """Schemes for w-event privacy at epsilon 1 for an hour: what an hour, and a minute, really lose; noise they lack."""
    rows = []
    for name, odds in _CLASSES.items():
        for words, ticks in (("hour", _HOUR), ("minute", 1)):
            about = f"odds ratio {odds:g} ({name}), {words}:"
            for scheme in SCHEMES:
                lost = stretch_loss(scheme, _BLOCK, _BLOCKS, odds, ticks, 3 if setting.quick else 4)
                rows.append(Row(f"{about} {scheme}, loss, and times the noise for 1", lost))
            lost = sampled_loss(_HOUR, odds, ticks)
            rows.append(Row(f"{about} one minute of each hour (LDP-IDS, division of people), endless", lost))
            closed = (ticks + math.sqrt(odds) - 1.0) / _HOUR
            rows.append(Row(f"{about} ours at the floor (scale {_HOUR}), endless", closed))
    notes = (
        f"Blocks of {_BLOCK} minutes, {_BLOCKS} to the hour; streams of four hours (three with --quick), every choice of "
        "blocks and every place of the stretch. w-event privacy is our floor: an hour changes, all else is as it was. "
        "The loss is by theorem 2 of docs/proofs/stretches.md, for any side information and the class. Losses are in "
        "proportion to epsilon, so each number is also the factor of noise that the scheme lacks for that promise.",
    )
    return Found(tuple(rows), (), notes)


def errors(setting: Setting) -> Found:
    """Counts of a recording under w-event schemes at equal protection of an hour: mean error, share of the window."""
    trials, rows = 4 if setting.quick else 40, []
    for name, odds in _CLASSES.items():
        recording = presence(setting.recordings)[name]
        states = recording.states[recording.segments == np.argmax(np.bincount(recording.segments))]
        blocks = states[: len(states) // _HOUR * _HOUR].reshape(-1, _BLOCK).sum(axis=1).astype(np.float64)
        hours = _by_hour(blocks)
        for query, truth, ticks in (("15 minutes", blocks, _BLOCK), ("hour", hours, _HOUR)):
            constant = float(np.abs(truth - np.median(truth)).mean()) / ticks
            rows.append(Row(f"{name}, count of {query}: the best constant", constant))
        lacking = {scheme: stretch_loss(scheme, _BLOCK, _BLOCKS, odds, _HOUR, 3) for scheme in SCHEMES}
        for promise, epsilon in ((p, e) for p in ("A", "S") for e in (1.0, 8.0, 32.0)):
            about = f"{name}, {promise}(hour, {epsilon:g}), count of"
            for scheme in SCHEMES:
                spends = epsilon / (lacking[scheme] if promise == "S" else 1.0)
                quarter, hour = _errors(scheme, blocks, hours, spends, trials)
                rows.append(Row(f"{about} 15 minutes: {scheme}", quarter))
                rows.append(Row(f"{about} an hour: {scheme}", hour))
            scale = (_HOUR + (math.sqrt(odds) - 1.0) * (promise == "S")) / epsilon
            rows.append(Row(f"{about} an hour: ours", _laplace_error(hours, scale, trials)))
    notes = (
        "A: the floor, w-event privacy. S: a stretch of an hour against any side information, by the class that covers "
        "the recording. Answers are kept between 0 and the window's length. The longest recording without gaps, fixed "
        f"seeds, {trials} trials. 'uniform' over blocks is what our windows of a block are.",
    )
    return Found(tuple(rows), (), notes)


def _by_hour(blocks: Floats) -> Floats:
    return np.asarray(blocks.reshape(*blocks.shape[:-1], -1, _BLOCKS).sum(axis=-1))


def _errors(scheme: Scheme, blocks: Floats, hours: Floats, epsilon: float, trials: int) -> tuple[float, float]:
    found = released(scheme, np.tile(blocks, (trials, 1)), _BLOCK, _BLOCKS, epsilon, np.random.default_rng(5))
    found = np.clip(found, 0.0, _BLOCK)
    return float(np.abs(found - blocks).mean()) / _BLOCK, float(np.abs(_by_hour(found) - hours).mean()) / _HOUR


def _laplace_error(hours: Floats, scale: float, trials: int) -> float:
    noise = np.random.default_rng(5).laplace(0.0, scale, (trials, len(hours)))
    return float(np.abs(np.clip(hours + noise, 0.0, _HOUR) - hours).mean()) / _HOUR


def crowd(setting: Setting) -> Found:
    """How many of 1,000 people are in, by minutes or hours, w-event epsilon 1 for an hour: mean error in people."""
    people, minutes, rng = 1000, _HOUR * (6 if setting.quick else 24), np.random.default_rng(5)
    q, r = _CHAINS["office"]
    inside = np.zeros((minutes, people), dtype=np.bool_)
    inside[0] = rng.random(people) < q / (q + r)
    for minute in range(1, minutes):
        inside[minute] = np.where(inside[minute - 1], rng.random(people) >= r, rng.random(people) < q)
    present = inside.sum(axis=1).astype(np.float64)
    rows = [Row("the best constant", float(np.abs(present - np.median(present)).mean()))]
    rows += _central(present, people, rng)
    flipped = 1.0 / (1.0 + math.e)
    answers = np.zeros(minutes)
    for minute in range(minutes):
        asked = inside[minute, minute % _HOUR :: _HOUR]
        told = rng.random(len(asked)) < np.where(asked, 1.0 - flipped, flipped)
        answers[minute] = (told.mean() - flipped) / (1.0 - 2.0 * flipped) * people
    hourly = present.reshape(-1, _HOUR).mean(axis=1)
    local = float(np.abs(answers.reshape(-1, _HOUR).mean(axis=1) - hourly).mean())
    rows.append(Row("an hour's mean, nobody trusted: division of people, each asked once an hour", local))
    shares = rng.laplace(0.0, 1.0, (len(hourly) * 20, people)).sum(axis=1)
    rows.append(Row("an hour's mean, nobody trusted: sum of our counts of an hour, at the floor", float(np.abs(shares).mean())))
    notes = (
        "People move by the office's most likely chain, independently. Central schemes trust a server with everybody's "
        "readings. Division of people is LDP-IDS's idea, of which abstract and introduction and the code of others "
        "(github.com/pumpkinbo/LDP-IDS, github.com/ZJU-DAILY/RetraSyn) were at hand: here each person answers one minute "
        "of each hour by randomised response with all of epsilon.",
    )
    return Found(tuple(rows), (), notes)


def _central(present: Floats, people: int, rng: np.random.Generator) -> Iterator[Row]:
    for scheme in SCHEMES:
        found = np.clip(released(scheme, present[None, :], 1, _HOUR, 1.0, rng)[0], 0, people)
        yield Row(f"a minute, server trusted: {scheme}", float(np.abs(found - present).mean()))
        by_hour = np.abs((found - present).reshape(-1, _HOUR).mean(axis=1)).mean()
        yield Row(f"an hour's mean, server trusted: {scheme}", float(by_hour))


def policy_graphs(setting: Setting) -> Found:
    """PGLP's repair of a policy graph, by the least area, and ours by the least error, for all sets of six places."""
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
        Row("sets for which both have the same error", float(same)),
        Row("sets for which the least error does better", float(by_error)),
        Row("sets for which the least area does better", float(by_area)),
        Row("largest factor between their errors", worst),
    )
    notes = (
        "PGLP (Cao and others 2020) connects an exposed place where the area of the sensitivity hull grows least: the "
        "rule of its authors' code (github.com/tkgsn/PGLP), which sums areas without the sign that DPHMM algorithm 3 "
        "got wrong. The paper's text beyond the abstract was not at hand.",
    )
    return Found(rows, (), notes)
