"""The options that describe a class of chains: Q and R, or a file."""

from __future__ import annotations

from fugu.commands.arguments import interval
from fugu.commands.plan_options import ChainOptions
from fugu.errors import CommandLineError
from gateway.planning.chain_source import ChainSource, file_source, interval_source

__all__ = ["chain_source"]


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
