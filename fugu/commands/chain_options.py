"""The options that describe a class of chains: Q and R, or a file; and what is believed of the first tick."""

from __future__ import annotations

from fugu.commands.arguments import interval, number, one_of
from fugu.commands.plan_options import ChainOptions
from fugu.errors import CommandLineError
from gateway.planning.chain_source import ChainSource, bare_chains, file_source, fitted_segment, interval_source
from gateway.privacy.accountant import Chains
from gateway.privacy.starts import Start

__all__ = ["chain_source", "chosen_segments", "chosen_start", "declared_chains"]

_LONGEST = 1 << 31
_STARTS: tuple[Start, ...] = ("any", "stationary")


def chain_source(options: ChainOptions) -> ChainSource:
    """Make the class of chains that options describe.

    Raises:
        CommandLineError: neither or both ways were used.
        FuguError: a number is out of range, or the model cannot be used.
        OSError: the model cannot be read.
    """
    if options.model is not None:
        if options.q is not None or options.r is not None:
            raise CommandLineError("give either --model or --q and --r, not both")
        return file_source(options.model)
    if options.q is None or options.r is None:
        raise CommandLineError("give --q and --r, or --model")
    return interval_source(interval(options.q, "q"), interval(options.r, "r"))


def declared_chains(options: ChainOptions) -> tuple[Chains, float | None, tuple[str, ...], tuple[str, ...]]:
    """The class of chains with the starts that a file declares, where `chain_source` makes one that a policy can hold.

    Returns:
        The class, the seconds from tick to tick if they are known, how the class came about, and what must be heeded.
        Errors as `chain_source`.
    """
    if options.model is not None and options.q is None and options.r is None:
        bare = bare_chains(options.model)
        if bare is not None:
            what = "the chain" if len(bare) == 1 else f"the {len(bare)} chains"
            return bare, None, (f"class of chains: {what} of {options.model}, taken as it is",), ()
    source = chain_source(options)
    return source.chains, source.period_seconds, source.notes, source.warnings


def chosen_start(text: str | None) -> Start | None:
    """Read --start.

    Raises:
        CommandLineError: there is none of that name.
    """
    return None if text is None else one_of(text, "start", _STARTS)


def chosen_segments(text: str | None, options: ChainOptions) -> int | None:
    """Read --segments: the most ticks of a segment.

    Raises:
        FuguError: it is no such number, or no model with one was given.
        OSError: the model cannot be read.
    """
    if text is None:
        return None
    if text == "fitted":
        if options.model is None:
            raise CommandLineError("--segments fitted: give --model, a file of 'fugu model fit'")
        return fitted_segment(options.model)
    ticks = number(text, "segments")
    if not 1.0 <= ticks < _LONGEST or ticks != int(ticks):
        raise CommandLineError(f"segments must be a whole number of ticks from 1 on, or fitted, got {text!r:.40}")
    return int(ticks)
