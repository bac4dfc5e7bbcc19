"""Where a class of chains comes from: intervals of q and r, chains that are declared as they are, or a fitted chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from contract.chains import BinaryChains, BoundedChains, odds_ratio
from gateway.planning.errors import PlanningError
from gateway.privacy.chain_class import ChainClassError, MarkovChain, read_chains
from gateway.privacy.chain_model import ChainModel, ModelError

__all__ = ["ChainSource", "Matrix", "bare_chains", "file_source", "interval_source"]

Matrix = tuple[tuple[float, ...], ...]


class ChainSource(NamedTuple):
    """A class of chains, and what is known beside it.

    Attributes:
        chains: the class that a guarantee is for.
        transition: a typical member, for forecasts only.
        period_seconds: sampling period of the recording that it was fitted to, or none.
        threshold: edge between the two states of that recording, or none.
        missing_state: the state of readings that were missing there, if that is one.
        missing_share: the most of the readings that may be missing without such a state, as in that recording, or none.
        notes: how the class came about, in sentences.
        warnings: what must be heeded.
    """

    chains: BinaryChains | BoundedChains
    transition: Matrix
    period_seconds: float | None
    threshold: float | None
    missing_state: int | None
    missing_share: float | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def interval_source(q: tuple[float, float], r: tuple[float, float]) -> ChainSource:
    """The class of all chains of two states with q and r in intervals.

    Args:
        q, r: least and largest value of Pr(0 -> 1) and Pr(1 -> 0), inside (0, 1).
    """
    middle_q, middle_r = sum(q) / 2.0, sum(r) / 2.0
    transition = ((1.0 - middle_q, middle_q), (middle_r, 1.0 - middle_r))
    return ChainSource(BinaryChains(q=q, r=r), transition, None, None, None, None, (), ())


def file_source(path: Path, confidence: float) -> ChainSource:
    """The class that a chain file stands for: a fitted one for its class at a confidence, a bare one for itself.

    Args:
        path: of the file.
        confidence: inside (0, 1).

    Raises:
        FuguError: the file holds no chain, or no stream can be planned for it.
        OSError: it cannot be read.
    """
    bare = bare_chains(path)
    return _fitted(path, confidence) if bare is None else _bare(path, bare)


def bare_chains(path: Path) -> tuple[MarkovChain, ...] | None:
    """Read a file of chains that are declared as they are; none if it holds a fitted one, which stands for a class.

    Raises:
        ChainClassError: it holds neither.
        OSError: it cannot be read.
    """
    text = path.read_bytes()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and not document.keys().isdisjoint(("format", "counts")):
        return None
    try:
        return read_chains(text)
    except ChainClassError as error:
        raise ChainClassError(f"{path}: {error}") from None


def _bare(path: Path, chains: tuple[MarkovChain, ...]) -> ChainSource:
    """The class of a stream for chains that are declared: q and r, or what bounds their odds ratios."""
    rows = [tuple(tuple(float(p) for p in row) for row in chain.transition) for chain in chains]
    words = f"the chain of {path}, taken as it is" if len(chains) == 1 else f"the {len(chains)} chains of {path}"
    if chains[0].states == 2 and all(chain.is_stationary for chain in chains):
        qs, rs = [row[0][1] for row in rows], [row[1][0] for row in rows]
        if min(*qs, *rs) > 0.0 and max(*qs, *rs) < 1.0:
            between = "" if len(chains) == 1 else ", and all between them"
            binary = BinaryChains(q=(min(qs), max(qs)), r=(min(rs), max(rs)))
            return ChainSource(binary, rows[0], None, None, None, None, (f"class of chains: {words}{between}",), ())
    try:
        odds = max(odds_ratio(row) for row in rows)
    except ValueError as error:
        raise PlanningError(f"{path}: no stream can be planned for such a chain: {error}") from None
    bounded = BoundedChains(states=chains[0].states, odds_ratio=odds, transition=rows[0])
    note = f"class of chains: {words}, by the odds ratios of its steps: any start, and any steps within these"
    return ChainSource(bounded, rows[0], None, None, None, None, (note,), ())


def _fitted(path: Path, confidence: float) -> ChainSource:
    try:
        model = ChainModel.from_json(path.read_bytes())
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    made = model.chain_class(confidence)
    what = "odds ratio" if isinstance(made.chains, BoundedChains) else "q and r"
    note = (
        f"class of chains from {model.source}: {what} within Clopper-Pearson intervals that hold together with "
        f"confidence {confidence:g} (each at {made.cell_confidence:g})"
    )
    if made.widened:
        note += ", widened to cover the estimates of both halves of the recording"
    notes = [note]
    if model.missing_state is not None:
        notes.append(
            f"{model.missing_share:.1%} of the readings were missing: state {model.missing_state} stands for that, "
            "and is protected like the others"
        )
    return ChainSource(
        chains=made.chains,
        transition=model.transition,
        period_seconds=model.period_seconds,
        threshold=model.threshold,
        missing_state=model.missing_state,
        missing_share=model.missing_share if model.missing_state is None else None,
        notes=tuple(notes),
        warnings=(model.warning,),
    )
