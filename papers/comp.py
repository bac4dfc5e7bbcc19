"""The COMP paper: what its theorems say of several releases, beside what is really lost.

Song, Chaudhuri: Composition Properties of Inferential Privacy for Time-Series Data (2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fugu.chains.arrays import Floats
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.quilts import quilt_rate_loss
from fugu.privacy.window_mechanisms import WindowRequest
from papers.composition_theorems import Verdict, verdicts
from papers.errata import Erratum
from papers.mqm import THETA1, THETA2
from papers.quilts import influence
from papers.rows import Chart, Found, Line, Row, Setting, at_most
from papers.window_releases import NoisyCount, Released, answer_distributions, noisy, worst_ratio

__all__ = ["ERRATA", "endless", "sums", "theorems"]


def _told(chain: MarkovChain, *releases: Released) -> dict[str, Verdict]:
    request = WindowRequest((chain,), 1.0, None, "count", "ignorant", states=(1,))
    return {row.name: row for row in verdicts(request, releases)}


_LAYOUTS = {
    "two adjacent windows of 5, Laplace(2)": ((1, 5, 2.0), (6, 5, 2.0)),
    "two windows of 12, 12 ticks apart": ((1, 12, 3.0), (25, 12, 4.0)),
    "two counts of the same 10 ticks": ((1, 10, 13.0), (1, 10, 20.0)),
    "overlapping windows of 8": ((1, 8, 3.0), (5, 8, 3.0)),
}
"""First tick, length and scale of two counts by MQMExact."""


_OURS = "theorem 3.6, either way apart"


def theorems(setting: Setting) -> Found:
    """Every theorem on four sets of releases about theta1, beside what they really lose."""
    rows = [_theorem_3_4()]
    chain = MarkovChain.stationary(THETA1.transition)
    for about, counts in _LAYOUTS.items():
        setting.progress(about)
        bounds = _told(chain, *(Released(*count, "count", "mqm-exact") for count in counts))
        real = bounds["every path added up"].epsilon
        assert real is not None
        for name, verdict in bounds.items():
            if verdict.epsilon is None or verdict.standing not in ("holds", "false"):
                continue
            if not name.startswith(("theorem", "sum")) or name == _OURS:
                rows.append(Row(f"{about}: {name}", verdict.epsilon))
                continue
            case = "erratum-comp-theorem-3-1" if name == "theorem 3.1, as printed" else ""
            quantity = f"{about}: really lost, against {name}"
            rows.append(at_most(quantity, real, verdict.epsilon, verdict.note, case=case))
    note = "Really lost: every path and every answer added up, an adversary who knows no state."
    return Found(rows, notes=[note])


def _theorem_3_4() -> Row:
    """The paper's case: the first of two ticks, a count with Laplace(1) noise, released once and twice."""
    chain = MarkovChain(np.array([[0.9, 0.1], [0.01, 0.99]]), np.array([0.5, 0.5]))
    once, twice = (float(_losses(chain, [NoisyCount(1, 2, (1,), 1.0)] * number)[0]) for number in (1, 2))
    about = f"theorem 3.4: two releases that lose {once:.6f} each about X1 lose together, and more than twice that"
    return Row(about, twice, 2 * once, "claim", limit="at least", computed=True)


def _losses(chain: MarkovChain, counts: Sequence[NoisyCount]) -> Floats:
    """Loss of each tick to counts with noise, every path added up."""
    return np.array(
        [worst_ratio(noisy(secret.distributions, counts)) for secret in answer_distributions(chain, counts)]
    )


_RATES = (0.01, 0.05, 0.1, 0.3, 1.0, 2.0)
_ENDLESS = {
    "theta1": (0.188836171714, 0.702745957569, 1.199063467942, 2.577993001465, 4.583518938456, 5.583518938456),
    "theta2": (0.168987589362, 0.605116468692, 1.008301359655, 2.110763299102, 3.505525936991, 4.505525936991),
}
"""Bound of theorem 3.7 for this chain, the least over all quilts; by another implementation."""


def endless(setting: Setting) -> Found:
    """Adjacent windows without an end: what one tick loses to all of them, by the scale of their noise."""
    rows = []
    charts = []
    for name, start in (("theta1", THETA1), ("theta2", THETA2)):
        chain = MarkovChain.stationary(start.transition)
        quilts = [quilt_rate_loss((chain,), rate) for rate in _RATES]
        ours = [ChainAccountant((chain,)).loss(rate).epsilon for rate in _RATES]
        for rate, loss, own, paper in zip(_RATES, quilts, ours, _ENDLESS[name], strict=True):
            about = f"{name}, every tick in a window with noise of scale {1 / rate:.4g}"
            rows.append(Row(f"{about}: by quilts (theorem 3.7)", loss, paper, "formula", 1e-8))
            rows.append(Row(f"{about}: by the chain accountant, exact for two states", own))
        title = f"What a tick of {name} loses to an endless stream of windows"
        lines = (Line("quilts", _RATES, quilts), Line("chain accountant", _RATES, ours))
        charts.append(Chart(title, "1 / scale", "epsilon", lines, log_x=True, log_y=True))
    return Found(rows, charts)


_SWAPPED = MarkovChain(np.array([[0.96, 0.04], [0.002, 0.998]]), np.array([0.002, 0.998]))
_APART = Released(1, 2, 0.18, "count", "chain"), Released(3, 2, 0.15, "count", "chain")


def _theorem_3_1(setting: Setting) -> Iterator[Row]:
    """The statement of theorem 3.1 has its two influences swapped; its own proof has them right."""
    bounds = _told(_SWAPPED, *_APART)
    names = ("every path added up", "theorem 3.1, as printed", "theorem 3.1, corrected")
    real, stated, corrected = (bounds[name].epsilon or 0.0 for name in names)
    about = "X1 and X2 with Laplace(0.18), X3 and X4 with Laplace(0.15): what both lose, every path added up"
    yield at_most(about, real, stated, "its two influences are exchanged; the bound of its proof holds")
    yield Row("the same: the bound of the proof", corrected)


def sums(setting: Setting) -> Found:
    """Two sums that the paper does not claim, and warns of: neither is a bound."""
    chain = MarkovChain.stationary([[0.99, 0.01], [0.8, 0.2]])
    counts = NoisyCount(1, 4, (1,), 0.6), NoisyCount(5, 6, (1,), 0.2)
    alone = [_losses(chain, [count]).max() for count in counts]
    least = alone[0] + min(alone[1], influence(chain, 2, None, 3))
    sticky, same = MarkovChain.stationary([[0.99, 0.01], [0.4, 0.6]]), NoisyCount(1, 6, (1,), 2.0)
    about = "ticks 1 to 4 with Laplace(0.6), 5 and 6 with Laplace(0.2)"
    twice = "two counts of the same 6 ticks, Laplace(2) each, q = 0.01, r = 0.4"
    rows = (
        Row(f"{about}: what X2 loses", float(_losses(chain, counts)[1])),
        Row(f"{about}: the least of loss and influence, added up", least),
        Row(f"{twice}: what both lose", float(_losses(sticky, [same, same]).max())),
        Row(f"{twice}: the sum of their losses", 2 * float(_losses(sticky, [same]).max())),
    )
    note = (
        "Influences of several windows can be spent on one secret; losses of releases about the same ticks do not add "
        "up, which is theorem 3.4. Per-tick losses do."
    )
    return Found(rows, notes=[note])


ERRATA = {
    "erratum-comp-theorem-3-1": Erratum(
        (("COMP", "theorem 3.1", "as printed"),),
        {
            ("COMP", "theorem 3.1, setting", "windows"): lambda: (
                _APART[0].first < _APART[0].last < _APART[1].first < _APART[1].last
            )
        },
        _theorem_3_1,
    )
}
"""By name: the first line of each one's description is its title."""
