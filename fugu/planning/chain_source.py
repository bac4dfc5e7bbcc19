"""Read a class of chains: from intervals of q and r, a file of declared chains, or a fitted chain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, odds_ratio
from fugu.contract.discretisers import Discretiser
from fugu.planning.errors import PlanningError
from fugu.planning.joint_recording import joint_class, marginal
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import class_of
from fugu.privacy.accountant.finite import KnownChains
from fugu.privacy.accountant.inner_maximum import EXACT_STATES
from fugu.privacy.chain_class import ChainClassError, MarkovChain, matrix_rows, read_chains
from fugu.privacy.chain_model import ChainModel, Matrix
from fugu.privacy.learned_class import LearnedModel

__all__ = ["ChainSource", "cost_words", "file_source", "interval_source", "longest_segment_ticks", "read_declared"]

_MOST_MEMBERS = 8
_Model = TypeVar("_Model", ChainModel, LearnedModel)


class ChainSource(NamedTuple):
    """A class of chains for a guarantee, with facts about the recording to which it was fitted.

    `transition` is a typical member, used for forecasts only. `missing_state` is the state of missing readings; without
    one, `missing_share` is the largest share of readings that may be missing. `notes` say how the class was made.
    """

    chains: ChainClass
    transition: Matrix
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    period_seconds: float | None = None
    discretiser: Discretiser | None = None
    missing_state: int | None = None
    missing_share: float | None = None


def interval_source(q: tuple[float, float], r: tuple[float, float]) -> ChainSource:
    """The class of all two-state chains with q = Pr(0 -> 1) and r = Pr(1 -> 0) in given intervals within (0, 1)."""
    middle_q, middle_r = sum(q) / 2.0, sum(r) / 2.0
    return ChainSource(BinaryChains(q=q, r=r), ((1.0 - middle_q, middle_q), (middle_r, 1.0 - middle_r)))


def file_source(path: Path) -> ChainSource:
    """Read the class of a chain file: that of its declared chains, or that of its fitted or learned chain.

    Raises:
        FuguError: the file holds no chain, or no stream can be planned for it.
    """
    if (declared_chains := read_declared(path)) is not None:
        return _declared_source(path, declared_chains)
    if json.loads(path.read_bytes()).get("kind") == "learned":
        return _learned_source(path, _read_model(LearnedModel, path))
    return _fitted_source(path, _read_model(ChainModel, path))


def longest_segment_ticks(path: Path) -> int:
    """The ticks of the longest segment in a fitted chain's recording. ChainClassError: there is no such chain."""
    return _read_model(ChainModel, path).longest_segment


def read_declared(path: Path) -> tuple[MarkovChain, ...] | None:
    """Read a file of declared chains; `None` if it seems to hold a fitted or learned chain.

    Raises:
        ChainClassError: the file holds neither.
    """
    content, document = path.read_bytes(), None
    with suppress(ValueError, RecursionError):
        document = json.loads(content)
    if isinstance(document, dict) and not document.keys().isdisjoint(("format", "counts")):
        return None
    try:
        return read_chains(content)
    except ChainClassError as error:
        raise ChainClassError(f"{path}: {error}") from None


def _read_model(model: type[_Model], path: Path) -> _Model:
    try:
        return model.from_json(path.read_bytes())
    except ChainClassError as error:
        raise ChainClassError(f"{path}: {error}") from None


def _declared_source(path: Path, chains: tuple[MarkovChain, ...]) -> ChainSource:
    """The class of declared chains: intervals of q and r for two states, else a bound on their odds ratios."""
    matrices = [matrix_rows(chain.transition) for chain in chains]
    chain_words = f"the chain of {path}, taken as it is" if len(chains) == 1 else f"the {len(chains)} chains of {path}"
    note = f"class of chains: {chain_words}"
    if all(chain.is_stationary for chain in chains):
        qs, rs = [matrix[0][1] for matrix in matrices], [matrix[1][0] for matrix in matrices]
        if chains[0].states == 2 and min(*qs, *rs) > 0.0 and max(*qs, *rs) < 1.0:
            between_words = "" if len(chains) == 1 else ", and all between them"
            interval_class = BinaryChains(q=(min(qs), max(qs)), r=(min(rs), max(rs)))
            return ChainSource(interval_class, matrices[0], (note + between_words,))
    try:
        largest_odds = max(odds_ratio(matrix) for matrix in matrices)
    except ValueError as error:
        raise PlanningError(f"{path}: no stream can be planned for such a chain: {error}") from None
    bounded_class = BoundedChains(states=chains[0].states, odds_ratio=largest_odds, transition=matrices[0])
    note += ", by the odds ratios of its steps: any start, and any steps within these"
    return ChainSource(bounded_class, matrices[0], (note, *cost_words(bounded_class, matrices)))


def cost_words(chains: BoundedChains | JointChains, matrices: Sequence[Matrix]) -> tuple[str, ...]:
    """Describe the cost of planning by odds ratios alone; empty if the cost cannot be computed, or takes long."""
    if len(matrices) > _MOST_MEMBERS or chains.states > EXACT_STATES:
        return ()
    secret_class = class_of(chains)
    try:
        rate = ChainAccountant(chains).allowance(1.0)
        known_class = KnownChains(tuple(map(MarkovChain.stationary, matrices)), secret_class.secrets)
        loss, _ = known_class.endless_loss(rate * secret_class.secrets, "ignorant")
    except ChainClassError:
        return ()
    chain_words = "the chain itself" if len(matrices) == 1 else "these chains"
    cost = f"noise for epsilon 1 by odds ratios would lose {loss:.3g} by {chain_words}, to whoever knows no state"
    return (f"a device takes no chain as it is: {cost}",)


def _fitted_source(path: Path, model: ChainModel) -> ChainSource:
    if len(model.streams) > 1:
        names = ", ".join(stream.name for stream in model.streams)
        raise PlanningError(f"{path}: streams {names} move together: plan all of them with 'fugu plan joint'")
    (stream,), period_seconds = model.streams, model.period_seconds
    chains: ChainClass | None = model.chains
    if model.order == 2:  # what a tick may tell is filled in when a policy is made of its plan
        joint_chains = joint_class(model, True, (stream.name,), period_seconds or 1.0)([1.0])
        chains, typical_matrix = joint_chains, matrix_rows(marginal(model, 0))
        class_words = f"as the chain of order 2 of {stream.source}, by the odds ratios of two of its steps"
        notes = [f"class of chains: {class_words}", *cost_words(joint_chains, joint_chains.typical_matrices)]
    elif chains is None:
        raise ChainClassError(f"{path}: {stream.source}: {model.refused}")
    else:
        # the chain of a whole recording, without zeros if its class has none
        typical_matrices = chains.typical_matrices if chains.changes else ()
        typical_matrix = typical_matrices[0] if typical_matrices else matrix_rows(model.transition)
        notes = [f"class of chains from {stream.source}: {model.class_words}"]
        if model.attacked is not None:
            notes.append(model.attacked.words)
        if stream.missing_state is not None:
            notes.append(
                f"{stream.missing_share:.1%} of the readings were missing: state {stream.missing_state} stands for "
                "that, and is protected like the others"
            )
    missing_share = stream.missing_share if stream.missing_state is None else None
    recording_facts = period_seconds, stream.discretiser, stream.missing_state, missing_share
    return ChainSource(chains, typical_matrix, tuple(notes), (model.warning,), *recording_facts)


def _learned_source(path: Path, model: LearnedModel) -> ChainSource:
    """The class learned from released symbols, without a warning as these symbols are public."""
    if model.chains is None:
        raise ChainClassError(f"{path}: {model.source}: {model.refused}")
    discretiser, note = model.discretiser, f"class of chains learned from {model.words}"
    missing_state = None if discretiser.missing is None else discretiser.states.index(discretiser.missing)
    return ChainSource(model.chains, model.transition, (note,), (), model.period_seconds, discretiser, missing_state)
