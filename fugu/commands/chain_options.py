"""The options that describe a class of chains: Q and R, or a file."""

from __future__ import annotations

from pathlib import Path

from fugu.commands.arguments import confidence as checked_confidence
from fugu.commands.arguments import interval
from fugu.errors import CommandLineError
from gateway.planning.chain_source import ChainSource, file_source, interval_source

__all__ = ["chain_source"]


def chain_source(q: str | None, r: str | None, model: str | None, confidence: float) -> ChainSource:
    """Make the class of chains that options describe.

    Args:
        q, r: NUMBER or LOW:HIGH, both or neither.
        model: a chain file instead of them.
        confidence: level of the class made from a fitted chain.

    Raises:
        CommandLineError: neither or both ways were used.
        FuguError: a number is out of range, or the model cannot be used.
        OSError: the model cannot be read.
    """
    if model is not None:
        if q is not None or r is not None:
            raise CommandLineError("give either --model or --q and --r, not both")
        return file_source(Path(model), checked_confidence(confidence))
    if q is None or r is None:
        raise CommandLineError("give --q and --r, or --model")
    return interval_source(interval(q, "q"), interval(r, "r"))
