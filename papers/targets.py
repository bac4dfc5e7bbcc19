"""Every target by name, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from papers import (
    bdp,
    cautions,
    comp,
    correlated,
    dphmm,
    errata_bdp,
    errata_dphmm,
    errata_mqm,
    mqm,
    newest,
    ours,
    secrets,
)
from papers.rows import Found, Row, Setting, Target

__all__ = ["TARGETS"]

_FIGURES: dict[str, Callable[[Setting], Found]] = {
    "bdp-1": bdp.figure_1,
    "bdp-2": bdp.figure_2,
    "bdp-3": bdp.figure_3,
    "bdp-4": bdp.figure_4,
    "bdp-4-synthetic": bdp.figure_4_synthetic,
    "bdp-correlated-noise": correlated.correlated_noise,
    "mqm-examples": mqm.examples,
    "mqm-4": mqm.figure_4,
    "mqm-table-1": mqm.table_1,
    "mqm-table-2": mqm.table_2,
    "mqm-table-3": mqm.table_3,
    "mqm-adversaries": secrets.adversaries,
    "mqm-fields": secrets.fields,
    "comp-theorems": comp.theorems,
    "comp-endless": comp.endless,
    "comp-sums": comp.sums,
    "dphmm-examples": dphmm.examples,
    "dphmm-sequences": secrets.sequences,
    "dphmm-beliefs": secrets.beliefs,
    "dphmm-10": dphmm.figure_10,
    "dphmm-11": dphmm.figure_11,
    "dphmm-12": dphmm.figure_12,
    "dphmm-13": dphmm.figure_13,
    "dphmm-traces": dphmm.traces,
    "ours-noise": ours.noise,
    "ours-calibrations": ours.calibrations,
    "ours-attackers": ours.attackers,
    "ours-truth": ours.truth,
    "newest-counts": newest.counts,
    "newest-stretches": newest.stretches,
    "newest-errors": newest.errors,
    "newest-crowd": newest.crowd,
    "newest-policy-graphs": newest.policy_graphs,
}


def _target(name: str, find: Callable[[Setting], Found | Iterable[Row]]) -> Target:
    """A target whose title is the first line of what finds it; a caution gives rows alone."""

    def find_rows(setting: Setting) -> Found:
        result = find(setting)
        return result if isinstance(result, Found) else Found([*result])

    return Target(name, (find.__doc__ or "").partition("\n")[0], find_rows)


_ERRATA = errata_bdp.ERRATA | errata_mqm.ERRATA | comp.ERRATA | errata_dphmm.ERRATA
TARGETS: dict[str, Target] = {
    **{name: _target(name, find) for name, find in _FIGURES.items()},
    **{name: Target(name, erratum.title, erratum.find) for name, erratum in _ERRATA.items()},
    **{name: _target(name, find) for name, find in cautions.CAUTIONS.items()},
}
