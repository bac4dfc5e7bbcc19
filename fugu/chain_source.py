"""Where a class of chains comes from: Q and R on the command line, or a fitted chain."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from contract.chains import BinaryChains, BoundedChains
from fugu.arguments import confidence as checked_confidence
from fugu.arguments import interval
from fugu.errors import CommandLineError

__all__ = ["ChainSource", "Matrix", "chain_source"]

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
        model: a file of `fugu model fit`, instead of them.
        confidence: level of the class made from a model.

    Raises:
        CommandLineError: neither or both ways were used.
        FuguError: a number is out of range, or the model cannot be used.
        OSError: the model cannot be read.
    """
    if model is not None:
        if q is not None or r is not None:
            raise CommandLineError("give either --model or --q and --r, not both")
        return _fitted(Path(model), checked_confidence(confidence))
    if q is None or r is None:
        raise CommandLineError("give --q and --r, or --model")
    chains = BinaryChains(q=interval(q, "q"), r=interval(r, "r"))
    middle_q, middle_r = sum(chains.q) / 2.0, sum(chains.r) / 2.0
    transition = ((1.0 - middle_q, middle_q), (middle_r, 1.0 - middle_r))
    return ChainSource(chains, transition, None, None, None, None, (), ())


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
