"""The class of chains that the file of a joint chain stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import JointChains, Shown, odds_ratio
from fugu.planning.errors import PlanningError
from fugu.privacy.chain_fit import matrix_rows
from fugu.privacy.covering_class import smoothed
from fugu.privacy.joint_model import JointModel
from fugu.privacy.model_fit import transition_matrix

__all__ = ["joint_class", "marginal"]

_US = 1_000_000


def joint_class(
    model: JointModel, known: bool, names: Sequence[str], period_seconds: float
) -> Callable[[Sequence[float]], JointChains]:
    """The class of a fitted joint chain, for what each of its streams may tell of a tick.

    Args:
        model: the chain.
        known: take it as it is; else the class that covers its recording.
        names: of the streams.
        period_seconds: from tick to tick.

    Raises:
        PlanningError: there is no such class; one line that says what else there is.
    """
    odds: float | None = None
    if known or model.order == 2:
        transitions = (matrix_rows(transition_matrix(np.array(model.counts, dtype=np.int64))),)
    elif model.odds_ratio is None:
        raise PlanningError(f"{model.refused}; --known takes the fitted chain as it is")
    else:
        transitions = (matrix_rows(smoothed(np.array(model.counts, dtype=np.int64))),)
        odds = max(model.odds_ratio, odds_ratio(transitions[0]))

    def made(rates: Sequence[float]) -> JointChains:
        try:
            return JointChains(
                streams=tuple(
                    Shown(name=name, states=one.states, rate=rate)
                    for name, one, rate in zip(names, model.streams, rates, strict=True)
                ),
                period_us=round(period_seconds * _US),
                shows=model.shows,
                transitions=transitions,
                odds_ratio=odds,
            )
        except ValueError as error:
            raise PlanningError(f"no policy can declare such a joint chain: {_first_line(error)}") from None

    made([1.0] * len(names))
    return made


def marginal(model: JointModel, column: int) -> Floats:
    """How one stream moves by itself, (k, k), as the joint chain has it."""
    shown = np.eye(model.streams[column].states)[[row[column] for row in model.shows]]
    return transition_matrix((shown.T @ np.array(model.counts, dtype=np.float64) @ shown).astype(np.int64))


def _first_line(error: ValueError) -> str:
    details = getattr(error, "errors", None)
    return str(details()[0]["msg"]).removeprefix("Value error, ") if details else str(error)
