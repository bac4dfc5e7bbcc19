"""Where a class of chains comes from: Q and R on the command line, or a fitted chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.arguments import confidence as checked_confidence
from fugu.arguments import interval
from fugu.errors import CommandError, CommandLineError

if TYPE_CHECKING:
    from gateway.privacy.chain_class import MarkovChain

__all__ = ["ChainSource", "Matrix", "bare_chains", "chain_source"]

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


def chain_source(q: str | None, r: str | None, model: str | None, confidence: float) -> ChainSource:
    """Make the class of chains that options describe.

    Args:
        q, r: NUMBER or LOW:HIGH, both or neither.
        model: a chain file instead of them: one of `fugu model fit` stands for its class at the level of confidence, a
            bare chain for itself.
        confidence: level of the class made from a model.

    Raises:
        CommandLineError: neither or both ways were used.
        FuguError: a number is out of range, or the model cannot be used.
        OSError: the model cannot be read.
    """
    if model is not None:
        if q is not None or r is not None:
            raise CommandLineError("give either --model or --q and --r, not both")
        path = Path(model)
        bare = bare_chains(path)
        return _fitted(path, checked_confidence(confidence)) if bare is None else _bare(path, bare)
    if q is None or r is None:
        raise CommandLineError("give --q and --r, or --model")
    chains = BinaryChains(q=interval(q, "q"), r=interval(r, "r"))
    middle_q, middle_r = sum(chains.q) / 2.0, sum(chains.r) / 2.0
    transition = ((1.0 - middle_q, middle_q), (middle_r, 1.0 - middle_r))
    return ChainSource(chains, transition, None, None, None, None, (), ())


def bare_chains(path: Path) -> tuple[MarkovChain, ...] | None:
    """Read a file of chains that are declared as they are; none if it holds a fitted one, which stands for a class.

    Raises:
        ChainClassError: it holds neither.
        OSError: it cannot be read.
    """
    from gateway.privacy.chain_class import ChainClassError, read_chains

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
        raise CommandError(f"{path}: no stream can be planned for such a chain: {error}") from None
    bounded = BoundedChains(states=chains[0].states, odds_ratio=odds, transition=rows[0])
    note = f"class of chains: {words}, by the odds ratios of its steps: any start, and any steps within these"
    return ChainSource(bounded, rows[0], None, None, None, None, (note,), ())


def _fitted(path: Path, confidence: float) -> ChainSource:
    from gateway.privacy.chain_model import ChainModel, ModelError

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
