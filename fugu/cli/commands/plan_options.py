"""The options of plans and of the policies that are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.errors import CommandLineError

__all__ = [
    "AdversaryOption",
    "AutoOptions",
    "ChainOptions",
    "DiscretiserOptions",
    "HeaderOptions",
    "JointOptions",
    "MeasureOptions",
    "OutputOption",
    "StartOption",
    "StreamOptions",
    "WindowOptions",
]

AdversaryOption = Annotated[
    str,
    typer.Option(
        "--adversary",
        help="ignorant (knows no state), informed (may know any states: Bayesian DP) or universal "
        "(any side information about states, chains that change).",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        help="What is believed of the first tick: any (whatever its distribution) or stationary (by default as the "
        "chains are given; Q and R are stationary). The output says what is covered.",
    ),
]
SegmentsOption = Annotated[
    str | None,
    typer.Option(
        "--segments",
        metavar="TICKS|fitted",
        help="Compare: what it would be if readings came in segments of at most so many ticks, independent of one "
        "another; fitted: the longest that the model's recording had. No device can check it: it goes into no policy.",
    ),
]
OutputOption = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a policy.")]
_EpsilonOption = Annotated[float, typer.Option(help="The most that may be lost about one reading, in nats.")]
_QOption = Annotated[str | None, typer.Option("--q", metavar="Q", help="Pr(state 0 -> 1), as NUMBER or LOW:HIGH.")]
_ROption = Annotated[str | None, typer.Option("--r", metavar="R", help="Pr(state 1 -> 0), as NUMBER or LOW:HIGH.")]


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """A class of chains: intervals of q and r, or a file."""

    q: _QOption = None
    r: _ROption = None
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of Q and R: a file of 'fugu plan model', which stands for the class that it found; "
            'or JSON with "transition" and "initial" (a list, "stationary" or "any"), or "chains": a list of such, '
            "taken as they are.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream is planned for."""

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "informed"
    objective: Annotated[
        str, typer.Option(help="information (most informative symbols) or flips (fewest wrong symbols, rho <= 1/2).")
    ] = "information"
    every: Annotated[int, typer.Option(metavar="D", help="Take one reading every D ticks of the chain.")] = 1
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of one tick of the chain (default: the model's).")
    ] = None
    segments: SegmentsOption = None


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """What windows are planned for."""

    epsilon: _EpsilonOption
    window: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]LENGTH[:SHARE]",
            help="A window of a policy: LENGTH in ticks, or as 90s, 5m, 8h, 1d; SHARE of what epsilon allows (default: "
            "equal errors of shares). Several may be given.",
        ),
    ] = None
    symbols: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="With --window: share of what epsilon allows for a symbol every tick."),
    ] = None
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="chain, mqm-exact, mqm-approx, wasserstein, group, entry or auto (default: compare all). With "
            "--window chain (the default), mqm-exact or mqm-approx."
        ),
    ] = None
    length: Annotated[
        int | None, typer.Option(metavar="T", min=1, help="Ticks of the only window that will ever be released.")
    ] = None
    endless: Annotated[
        bool, typer.Option("--endless", help="Windows one after another for ever, under one epsilon (the default).")
    ] = False
    query: Annotated[
        str,
        typer.Option(
            help="count (ticks in some states), histogram (ticks in each state) or, with --window, clipped:N (a count, "
            "N at most)."
        ),
    ] = "count"
    count: Annotated[
        str | None,
        typer.Option(
            metavar="STATE[,STATE...]",
            help="States that a count counts, from 0 (default: the last of two; without --window any: it matters to "
            "wasserstein only).",
        ),
    ] = None
    adversary: Annotated[
        str | None, typer.Option(help="As for plan stream (default: informed with --window, else ignorant).")
    ] = None
    start: StartOption = None
    segments: SegmentsOption = None
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of one tick (default: the fitted model's).")
    ] = None


@dataclass(frozen=True, slots=True)
class JointOptions:
    """What streams that move together are planned for."""

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "universal"
    known: Annotated[
        bool,
        typer.Option("--known", help="Take the fitted chain as it is, not the class that covers every stretch."),
    ] = False
    share: Annotated[
        str | None,
        typer.Option(
            metavar="A,B[,C]", help="What each stream may tell of a tick, as parts, as in 2,1 (default: equal)."
        ),
    ] = None
    window: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]LENGTH[:SHARE]", help="As for plan window: a window of every stream, instead of symbols."
        ),
    ] = None
    symbols: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="With --window: share of each stream's part for a symbol every tick."),
    ] = None
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of one tick (default: the model's).")
    ] = None


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What measurements are planned for, and how."""

    spec: Annotated[Path, typer.Option(metavar="FILE", help="Specification, in TOML or JSON; its keys are below.")]
    period: Annotated[float | None, typer.Option(metavar="SECONDS", help="Policy: length of a tick.")] = None
    adversary: AdversaryOption = "ignorant"
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what is slow for many states: optimal table, stream's epsilon.")
    ] = False
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw states, policy graph and hull.")] = None


@dataclass(frozen=True, slots=True)
class HeaderOptions:
    """What every policy says of itself."""

    whose: Annotated[
        str | None, typer.Option("--for", metavar="FLEET/DEVICE/STREAM", help="Policy: the stream that it is for.")
    ] = None
    latency: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Policy: how long a frame of symbols or points gathers (default: 60)."),
    ] = None
    version: Annotated[int | None, typer.Option(help="Policy: its version (default: 1).")] = None
    epoch: Annotated[
        float | None, typer.Option(metavar="UNIX", help="Policy: time of tick 0 (default: now, to the second).")
    ] = None
    valid_until: Annotated[int | None, typer.Option(metavar="UNIX", help="Policy: when it expires.")] = None

    def names(self, example: str) -> list[str | None]:
        """Split what a policy is for; `None` for each name if it is not given.

        Raises:
            CommandLineError: it has another number of names than the example.
        """
        count = example.count("/") + 1
        if self.whose is None:
            return [None] * count
        names: list[str | None] = [*self.whose.split("/")]
        if len(names) != count:
            raise CommandLineError(f"--for is like {example}, got {self.whose[:80]!r}")
        return names


@dataclass(frozen=True, slots=True)
class DiscretiserOptions:
    """How a policy makes states of readings."""

    threshold: Annotated[
        str | None,
        typer.Option(metavar="NUMBER[,NUMBER...]", help="Policy: edges between states (default: the model's)."),
    ] = None
    states: Annotated[str | None, typer.Option(metavar="NAME,NAME...", help="Policy: names of the states.")] = None


@dataclass(frozen=True, slots=True)
class AutoOptions:
    """What is asked of a recording."""

    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Column of the readings, or entity of a log of several (default: value or state)."
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of the times: seconds, or ISO 8601 (default: t, time, ...)."),
    ] = None
    epsilon: _EpsilonOption = 1.0
    want: Annotated[
        str | None,
        typer.Option(
            help="now (the state), share (of time), histogram (of states), place; default: share of two, histogram of "
            "more, place of a file with lat and lon."
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|TICKS", help="States above and below the running mean of so long: 5m, 1h, or 100 ticks."
        ),
    ] = None
    threshold: Annotated[float | None, typer.Option(help="States below it, and not below it.")] = None
    states: Annotated[
        str | None, typer.Option(metavar="NAME,NAME...", help="Names, or numbers, that are states; others are missing.")
    ] = None
    within: Annotated[
        str | None,
        typer.Option(
            metavar="5%|.05", help="Largest mean absolute error (default: 5%, or what beats guessing by most)."
        ),
    ] = None
    adversary: AdversaryOption = "universal"
    devices: Annotated[int, typer.Option(min=1, max=1_000_000, help="Ask for the average of a group of so many.")] = 1
    latency: Annotated[str | None, typer.Option(metavar="TIME", help="Longest until a subscriber knows: 10m, 1h.")] = (
        None
    )
    period: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Of a log of changes, or places: look so often (default: 60; as they are)."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated devices.")] = 1
