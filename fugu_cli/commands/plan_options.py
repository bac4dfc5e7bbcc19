"""The options of plans and of the policies that are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fugu_cli.errors import CommandLineError

__all__ = [
    "AdversaryOption",
    "AutoOptions",
    "ChainOptions",
    "DiscretiserOptions",
    "HeaderOptions",
    "JointOptions",
    "ProtectOption",
    "RecordingOptions",
    "StartOption",
    "StreamOptions",
    "TrialOptions",
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
_EpsilonOption = Annotated[
    float, typer.Option(help="The most that may be lost about a stretch of time (--protect), in nats.")
]
ProtectOption = Annotated[
    str | None,
    typer.Option(
        "--protect",
        metavar="TIME|tick",
        help="The stretch that epsilon is about: 10m, 1h, 600 (seconds) or tick, a single one (default: ten minutes "
        "where a tick is 30 s or more, else a tick).",
    ),
]


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """A class of chains: intervals of q and r, or a file.

    Attributes:
        q (Q): Pr(state 0 -> 1), as NUMBER or LOW:HIGH.
        r (R): Pr(state 1 -> 0), as NUMBER or LOW:HIGH.
        model (FILE): Instead of Q and R: a file of 'fugu plan model', which stands for the class that it found; or
            JSON with "transition" and "initial" (a list, "stationary" or "any"), or "chains": a list of such, taken as
            they are.
    """

    q: str | None = None
    r: str | None = None
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options for the plan of a stream.

    Attributes:
        objective: information (most informative symbols) or flips (fewest wrong symbols, rho <= 1/2).
        every (D): Take one reading every D ticks of the chain.
        period (SECONDS): Length of one tick of the chain (default: the model's).
    """

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "informed"
    objective: str = "information"
    every: int = 1
    period: float | None = None
    protect: ProtectOption = None


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Options for the plan of windows.

    Attributes:
        window ([NAME=]LENGTH[:SHARE]): A window of a policy: LENGTH in ticks, or as 90s, 5m, 8h, 1d; SHARE of what
            epsilon allows (default: equal errors of shares). Several may be given.
        symbols (SHARE): With --window: share of what epsilon allows for a symbol every tick.
        mechanism: chain, mqm-exact, mqm-approx, wasserstein, group, entry or auto (default: compare all). With
            --window chain (the default), mqm-exact or mqm-approx.
        length (T 1..): Ticks of the only window that will ever be released (default: windows without end).
        query: count (ticks in some states), histogram (ticks in each state) or, with --window,
            profile:4h/Europe/Berlin (a count for each such part of the local day).
        count (STATE[,STATE...]): States that a count counts, from 0 (default: the last of two; without --window any:
            it matters to wasserstein only).
        adversary: As for plan stream (default: informed with --window, else ignorant).
        period (SECONDS): Length of one tick (default: the fitted model's).
    """

    epsilon: _EpsilonOption
    window: list[str] | None = None
    symbols: float | None = None
    mechanism: str | None = None
    length: int | None = None
    query: str = "count"
    count: str | None = None
    adversary: str | None = None
    start: StartOption = None
    segments: SegmentsOption = None
    period: float | None = None
    protect: ProtectOption = None


@dataclass(frozen=True, slots=True)
class JointOptions:
    """Options for the plan of streams that move together.

    Attributes:
        known: Take the fitted chain as it is, not the class that covers every stretch.
        share (A,B[,C]): What each stream may tell of a tick, as parts, as in 2,1 (default: equal).
        window ([NAME=]LENGTH[:SHARE]): As for plan window: a window of every stream, instead of symbols.
        symbols (SHARE): With --window: share of each stream's part for a symbol every tick.
        period (SECONDS): Length of one tick (default: the model's).
    """

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "universal"
    known: bool = False
    share: str | None = None
    window: list[str] | None = None
    symbols: float | None = None
    period: float | None = None
    protect: ProtectOption = None


@dataclass(frozen=True, slots=True)
class HeaderOptions:
    """Options for the header of a policy.

    Attributes:
        whose (--for FLEET/DEVICE/STREAM): Policy: the stream that it is for.
        latency (SECONDS): Policy: how long a frame of symbols gathers.
        epoch (UNIX): Policy: time of tick 0 (default: now, to the second); as in the policy that it takes the place of.
    """

    whose: str | None = None
    latency: float = 60.0
    epoch: float | None = None

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
    """Options for the map from readings to states.

    Attributes:
        threshold (NUMBER[,NUMBER...]): Policy: edges between states (default: the model's).
        states (NAME,NAME...): Policy: names of the states.
    """

    threshold: str | None = None
    states: str | None = None


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """Options that say how a recording is read; without them it is found out, or asked.

    Attributes:
        column (NAME): Column of the readings, or a series of a log of several (default: value or state).
        time (NAME[:UNIT]): Column of the times (default: found); UNIT is s, ms, us, ns, days (of Excel), dd/mm
            or mm/dd.
        only (COLUMN=CELL): Rows of one sensor of several, as sensor=hall; again for more columns.
        zone (ZONE): Of times that have none: Europe/Berlin (default: UTC).
        missing_values (VALUE,VALUE...): Cells that are no reading, such as codes of a failed sensor: -127,85.
        events: Each row is a tick, as a heartbeat is.
        samples: Rows are on a clock; absent ones are ticks without a reading.
        changes: Each row holds until the next.
        period (SECONDS): From row to row, of a file without times; of a log of changes, or places: look so often
            (default: 60; as they are).
        gap (TIME): No value holds longer, as 8h, or repeats for longer from sample to sample: what does is a gap.
        as_it_is (RULE): Do not ask: keys, step, order, codes, hold or zone; again for more.
    """

    column: str | None = None
    time: str | None = None
    only: list[str] | None = None
    zone: str | None = None
    missing_values: str | None = None
    events: bool = False
    samples: bool = False
    changes: bool = False
    period: float | None = None
    gap: str | None = None
    as_it_is: list[str] | None = None

    def words(self) -> dict[str, Any]:
        """The arguments that `fugu.recordings.words.read_options` takes.

        Raises:
            CommandLineError: two options contradict each other.
        """
        kinds = [name for name in ("events", "samples", "changes") if getattr(self, name)]
        if len(kinds) > 1:
            raise CommandLineError(f"rows are of one kind: --{kinds[0]} or --{kinds[1]}")
        names = ("column", "time", "only", "zone", "missing_values", "period", "gap", "as_it_is")
        return {name: getattr(self, name) for name in names} | {"rows": kinds[0] if kinds else None}


@dataclass(frozen=True, slots=True)
class TrialOptions(RecordingOptions):
    """Options for a plan from a recording, as many as a first trial needs.

    Attributes:
        want: now (the state), share (of time), histogram (of states), profile (share of each part of the day), place;
            default: share of two, histogram of more, place of a file with lat and lon, and a profile where no share is
            useful.
        baseline (TIME|TICKS): States above and below the running mean of so long: 5m, 1h, or 100 ticks.
        threshold: States below it, and not below it.
        states (NAME,NAME...): Names, or numbers, that are states; others are missing. A+B is one state.
        missing (ignore): Ticks without a reading have no state; only if they do not depend on states (default: a state
            of its own, if they are more than 1 %).
        within (5%|0.05): Largest mean absolute error (default: 5%, or what beats guessing by most).
    """

    epsilon: _EpsilonOption = 1.0
    protect: ProtectOption = None
    want: str | None = None
    baseline: str | None = None
    threshold: float | None = None
    states: str | None = None
    missing: str | None = None
    within: str | None = None


@dataclass(frozen=True, slots=True)
class AutoOptions(TrialOptions):
    """Further options for a plan from a recording.

    Attributes:
        blocks ([TIME][/ZONE]): Parts of the day of a profile (by default 4h, 6h and 8h in UTC): 6h/Europe/Berlin.
        days (1..): Of a profile (default: 7 and 14 are tried).
        cell (METRES): Of places: the side of a cell (default: three sizes are compared).
        devices (1..1000000): Ask for the average of a group of so many.
        latency (TIME): Longest until a subscriber knows: 10m, 1h.
        window (TIME|TICKS): Compare this length only: 8h, or 600 ticks.
        fleet (NAME): Policy: whose.
        device (NAME): Policy: of which device.
        stream (NAME): Policy: which of its streams (default: after the column).
        epoch (UNIX): Policy: time of tick 0 (default: now).
        broker (HOST:PORT|FILE): Of agent.toml: where its broker is, or a file NAME.toml with [broker] (default: here).
    """

    blocks: str = ""
    days: int | None = None
    cell: float | None = None
    adversary: AdversaryOption = "universal"
    devices: int = 1
    latency: str | None = None
    window: str | None = None
    fleet: str = "home"
    device: str = "device-1"
    stream: str | None = None
    epoch: float | None = None
    broker: str | None = None
