"""Every target by name, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.reproduce import bdp, comp, dphmm, errata_bdp, errata_dphmm, errata_mqm, mqm, ours
from gateway.reproduce.rows import Found, Setting, Target

__all__ = ["TARGETS"]

_FIGURES: dict[str, Callable[[Setting], Found]] = {
    "bdp-1": bdp.figure_1,
    "bdp-2": bdp.figure_2,
    "bdp-3": bdp.figure_3,
    "bdp-4": bdp.figure_4,
    "mqm-examples": mqm.examples,
    "mqm-4": mqm.figure_4,
    "mqm-table-1": mqm.table_1,
    "mqm-table-2": mqm.table_2,
    "mqm-table-3": mqm.table_3,
    "comp-theorems": comp.theorems,
    "comp-endless": comp.endless,
    "dphmm-examples": dphmm.examples,
    "dphmm-10-11": dphmm.figure_10,
    "dphmm-12": dphmm.figure_12,
    "dphmm-13": dphmm.figure_13,
    "dphmm-traces": dphmm.traces,
    "ours-noise": ours.noise,
    "ours-calibrations": ours.calibrations,
    "ours-attackers": ours.attackers,
    "ours-truth": ours.truth,
}


def _titled(found: Mapping[str, Callable[[Setting], Found]]) -> dict[str, Target]:
    """Targets whose titles are the first lines of what finds them."""
    return {name: Target(name, (find.__doc__ or "").partition("\n")[0], find) for name, find in found.items()}


TARGETS: dict[str, Target] = _titled(
    {**_FIGURES, **errata_bdp.ERRATA, **errata_mqm.ERRATA, **comp.ERRATA, **errata_dphmm.ERRATA}
)
