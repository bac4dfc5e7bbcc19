"""The options of plans become values: the class of chains, and what a policy says of itself and of its states."""

from __future__ import annotations

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import ChainOptions, DiscretiserOptions, HeaderOptions
from fugu.cli.errors import CommandLineError
from fugu.contract.discretisers import Discretiser, Thresholds
from fugu.planning.chain_source import ChainSource, bare_chains, file_source, fitted_segment, interval_source
from fugu.planning.policy_builder import LATENCY_SECONDS, PolicyHeader, thresholds
from fugu.privacy.accountant import Chains
from fugu.privacy.chain_class import Start

__all__ = [
    "chain_source",
    "chosen_discretiser",
    "chosen_segments",
    "chosen_start",
    "declared_chains",
    "latency_seconds",
    "policy_header",
]

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
    return interval_source(arguments.interval(options.q, "q"), arguments.interval(options.r, "r"))


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
    return None if text is None else arguments.one_of(text, "start", _STARTS)


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
            raise CommandLineError("--segments fitted: give --model, a file of 'fugu plan model'")
        return fitted_segment(options.model)
    ticks = arguments.number(text, "segments")
    if not 1.0 <= ticks < _LONGEST or ticks != int(ticks):
        raise CommandLineError(f"segments must be a whole number of ticks from 1 on, or fitted, got {text!r:.40}")
    return int(ticks)


def policy_header(
    command: str, options: HeaderOptions, discretiser: Discretiser | None, source: ChainSource, period: float | None
) -> PolicyHeader:
    """What a policy needs beside its plan.

    Args:
        command: whose help tells more.
        options: as they were given.
        discretiser: of `chosen_discretiser`.
        source: of the class of chains.
        period: seconds from tick to tick, if that is known.

    Raises:
        CommandLineError: something of it was not given.
    """
    fleet, device, stream = options.names("home/watch/heart-rate")
    if fleet is None or device is None or stream is None or period is None or discretiser is None:
        wanted: dict[str, object] = {"--for": fleet, "--period": period, "--threshold": discretiser}
        missing = ", ".join(name for name, value in wanted.items() if value is None)
        raise CommandLineError(f"a policy needs {missing} (try '{command} --help')")
    return PolicyHeader(
        fleet=fleet,
        device=device,
        stream=stream,
        discretiser=discretiser,
        period_seconds=period,
        latency_seconds=latency_seconds(options),
        version=1 if options.version is None else options.version,
        epoch=options.epoch,
        valid_until=options.valid_until,
        missing_share=source.missing_share,
    )


def latency_seconds(options: HeaderOptions) -> float:
    """How long a frame may gather, in seconds; a `CommandError` for no such time."""
    return LATENCY_SECONDS if options.latency is None else arguments.positive(options.latency, "latency")


def chosen_discretiser(options: DiscretiserOptions, source: ChainSource) -> Discretiser | None:
    """What makes the states: edges that were given, or what the fitted chain brings; none if there is neither.

    Raises:
        CommandLineError: the options make other states than those that the chain is of.
    """
    names = None if options.states is None else tuple(name.strip() for name in options.states.split(","))
    found = source.discretiser
    if found is not None and not isinstance(found, Thresholds) and options.threshold:
        raise CommandLineError(f"--threshold is for thresholds, and the model's states are made by a {found.kind}")
    missing = source.missing_state is not None
    if options.threshold is not None:
        edges = tuple(arguments.number(part, "threshold") for part in options.threshold.split(","))
        return thresholds(edges, names, hysteresis=0.0, missing=missing)
    if isinstance(found, Thresholds):
        return thresholds(found.edges, names or found.states, hysteresis=found.hysteresis, missing=missing)
    if found is None:
        return None
    renamed = (*(names or ()), *found.states[len(names or ()) :])
    name = None if found.missing is None else renamed[found.states.index(found.missing)]
    return type(found)(**{**found.model_dump(), "states": renamed, "missing": name})
