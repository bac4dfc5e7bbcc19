"""The options of a policy's header and discretiser become values, with what the class of chains brings along."""

from __future__ import annotations

from fugu.commands import arguments
from fugu.commands.plan_options import DiscretiserOptions, HeaderOptions
from fugu.errors import CommandLineError
from gateway.planning.chain_source import ChainSource
from gateway.planning.policy_builder import LATENCY_SECONDS, PolicyHeader, thresholds

__all__ = ["latency_seconds", "policy_header"]


def policy_header(
    command: str, options: HeaderOptions, discretiser: DiscretiserOptions, source: ChainSource, period: float | None
) -> PolicyHeader:
    """What a policy needs beside its plan.

    Args:
        command: whose help tells more.
        options, discretiser: as they were given.
        source: of the class of chains.
        period: seconds from tick to tick, if that is known.

    Raises:
        CommandLineError: something of it was not given.
    """
    edges = _edges(discretiser.threshold, source)
    fleet, device, stream = options.fleet, options.device, options.stream
    if fleet is None or device is None or stream is None or period is None or edges is None:
        wanted = {"--fleet": fleet, "--device": device, "--stream": stream, "--period": period, "--threshold": edges}
        missing = ", ".join(name for name, value in wanted.items() if value is None)
        raise CommandLineError(f"a policy needs {missing} (try '{command} --help')")
    names = None if discretiser.states is None else tuple(name.strip() for name in discretiser.states.split(","))
    return PolicyHeader(
        fleet=fleet,
        device=device,
        stream=stream,
        discretiser=thresholds(
            edges, names, hysteresis=discretiser.hysteresis, missing=source.missing_state is not None
        ),
        period_seconds=period,
        latency_seconds=latency_seconds(options),
        version=1 if options.version is None else options.version,
        epoch=options.epoch,
        valid_until=options.valid_until,
        missing_share=source.missing_share,
    )


def latency_seconds(options: HeaderOptions) -> float:
    """How long a frame may gather.

    Raises:
        CommandError: no such time.
    """
    return LATENCY_SECONDS if options.latency is None else arguments.positive(options.latency, "latency")


def _edges(text: str | None, source: ChainSource) -> tuple[float, ...] | None:
    if text is not None:
        return tuple(arguments.number(part, "threshold") for part in text.split(","))
    return None if source.threshold is None else (source.threshold,)
