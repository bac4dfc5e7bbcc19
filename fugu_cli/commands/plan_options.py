"""The options of plans, and of the policies that plans become."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fugu.contract.errors import UsageError
from fugu_cli.app import option_group

__all__ = [
    "AdversaryOption",
    "AutoOptions",
    "ChainOptions",
    "GroupOptions",
    "HeaderOptions",
    "JointOptions",
    "PolicyOptions",
    "ProtectOption",
    "RecordingOptions",
    "StartOption",
    "StreamOptions",
    "TrialOptions",
    "WindowOptions",
    "changed_options",
]

AdversaryOption = Annotated[
    str,
    Option(
        "--adversary",
        help="ignorant (knows no state), informed (may know any states: Bayesian DP) or universal "
        "(any side information about states, chains that change).",
    ),
]
StartOption = Annotated[
    str | None,
    Option(
        "--start",
        help="What is believed of the first tick: any (whatever its distribution) or stationary (by default as the "
        "chains are given; Q and R are stationary). The output says what is covered.",
    ),
]
SegmentsOption = Annotated[
    str | None,
    Option(
        "--segments",
        metavar="TICKS|fitted",
        help="Compare: what it would be if readings came in segments of at most so many ticks, independent of one "
        "another. With fitted: the longest that the model's recording had. No device can check it: it goes into no "
        "policy.",
    ),
]
_EpsilonOption = Annotated[
    float, Option(help="The most that may be lost about a stretch of time (--protect), in nats.")
]
ProtectOption = Annotated[
    str | None,
    Option(
        "--protect",
        metavar="TIME|tick",
        help="The stretch that epsilon is about: 10m, 1h, 600 (seconds) or tick, a single one (default: ten minutes "
        "where a tick is 30 s or more, else a tick).",
    ),
]

_PeriodOption = Annotated[float | None, Option(metavar="SECONDS", help="Length of one tick (default: the model's).")]
_WindowOption = Annotated[
    list[str] | None,
    Option(
        metavar="[NAME=]LENGTH[:SHARE]",
        help="A window of each policy: LENGTH in ticks, or as 90s, 5m, 8h, 1d; SHARE of what epsilon allows "
        "(default: equal errors of shares). Several may be given.",
    ),
]
_SymbolsOption = Annotated[
    float | None, Option(metavar="SHARE", help="With --window: share of what epsilon allows for a symbol every tick.")
]


def changed_options(options: object, names: Iterable[str]) -> list[str]:
    """Return the names of those options of a group whose values are not their defaults."""
    defaults = type(options)()
    return [name for name in names if getattr(options, name) != getattr(defaults, name)]


@option_group
class ChainOptions:
    """Options for a class of chains: intervals of q and r, or a file."""

    q: Annotated[str | None, Option(metavar="Q", help="Pr(state 0 -> 1), as NUMBER or LOW:HIGH.")] = None
    r: Annotated[str | None, Option(metavar="R", help="Pr(state 1 -> 0), as NUMBER or LOW:HIGH.")] = None
    model: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Instead of Q and R: a file of 'fugu plan model', which stands for the class that it found. "
            'Or JSON with "transition" and "initial" (a list, "stationary" or "any"), or "chains": a list '
            "of such, taken as they are.",
        ),
    ] = None


@option_group
class StreamOptions:
    """Options for the plan of a stream."""

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "informed"
    objective: Annotated[
        str, Option(help="information (most informative symbols) or flips (fewest wrong symbols, rho <= 1/2).")
    ] = "information"
    every: Annotated[int, Option(metavar="D", min=1, max=1000000, help="Take one reading every D ticks.")] = 1
    period: _PeriodOption = None
    protect: ProtectOption = None


@option_group
class WindowOptions:
    """Options for the plan of windows."""

    epsilon: _EpsilonOption
    window: _WindowOption = None
    symbols: _SymbolsOption = None
    mechanism: Annotated[
        str | None,
        Option(
            help="chain, mqm-exact, mqm-approx, wasserstein, group, entry or auto (default: compare all). With "
            "--window chain (the default), mqm-exact or mqm-approx."
        ),
    ] = None
    length: Annotated[
        int | None,
        Option(
            metavar="T",
            min=1,
            help="Ticks of the only window that will ever be released (default: windows without end).",
        ),
    ] = None
    query: Annotated[
        str,
        Option(
            help="count (ticks in some states), histogram (ticks in each state) or, with --window, "
            "profile:4h/Europe/Berlin (a count for each such part of the local day)."
        ),
    ] = "count"
    count: Annotated[
        str | None,
        Option(
            metavar="STATE[,STATE...]",
            help="States that a count counts, from 0 (default: the last of two; without --window any: it "
            "matters to wasserstein only).",
        ),
    ] = None
    adversary: Annotated[
        str | None, Option(help="As for plan stream (default: informed with --window, else ignorant).")
    ] = None
    start: StartOption = None
    segments: SegmentsOption = None
    period: _PeriodOption = None
    protect: ProtectOption = None


@option_group
class JointOptions:
    """Options for the plan of streams that move together."""

    epsilon: _EpsilonOption
    adversary: AdversaryOption = "universal"
    known: Annotated[
        bool, Option("--known", help="Take the fitted chain as it is, not the class that covers the stretches.")
    ] = False
    share: Annotated[
        str | None,
        Option(metavar="A,B[,C]", help="What each stream may tell of a tick, as parts, as in 2,1 (default: equal)."),
    ] = None
    window: _WindowOption = None
    symbols: _SymbolsOption = None
    period: _PeriodOption = None
    protect: ProtectOption = None


@option_group
class HeaderOptions:
    """Options for the header of a policy."""

    target: Annotated[
        str | None, Option("--for", metavar="FLEET/DEVICE/STREAM", help="Policy: the stream that it is for.")
    ] = None
    latency: Annotated[float, Option(metavar="SECONDS", help="Policy: how long a frame of symbols gathers.")] = 60.0
    epoch: Annotated[
        float | None,
        Option(
            metavar="UNIX",
            help="Policy: time of tick 0 (default: now, to the second); one that replaces another keeps its time.",
        ),
    ] = None

    def names(self, example: str) -> list[str | None]:
        """Split --for into as many names as the example has, else UsageError; each is None without the option."""
        name_count = example.count("/") + 1
        if self.target is None:
            return [None] * name_count
        names: list[str | None] = [*self.target.split("/")]
        if len(names) != name_count:
            raise UsageError(f"--for is like {example}, got {self.target[:80]!r}")
        return names


@option_group
class PolicyOptions(HeaderOptions):
    """Options for the header of a policy, and for its map from readings to states."""

    threshold: Annotated[
        str | None, Option(metavar="NUMBER[,NUMBER...]", help="Policy: edges between states (default: the model's).")
    ] = None
    states: Annotated[str | None, Option(metavar="NAME,NAME...", help="Policy: names of the states.")] = None


@option_group
class RecordingOptions:
    """Options for reading a recording. What they leave open is found in the file, or the user is asked."""

    column: Annotated[
        str | None,
        Option(
            metavar="NAME", help="Column of the readings, or a series of a log of several (default: value or state)."
        ),
    ] = None
    time: Annotated[
        str | None,
        Option(
            metavar="NAME[:UNIT]",
            help="Column of the times (default: found); UNIT is s, ms, us, ns, days (of Excel), dd/mm, mm/dd or yy/mm.",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        Option(
            metavar="COLUMN=CELL",
            help="Read only such rows, as sensor=hall, of a file of several sensors; again for more columns.",
        ),
    ] = None
    zone: Annotated[
        str | None, Option(metavar="ZONE", help="Zone of times that name none, as Europe/Berlin (default: UTC).")
    ] = None
    missing_values: Annotated[
        str | None,
        Option(metavar="VALUE,VALUE...", help="Cells that are no reading, such as codes of a failed sensor: -127,85."),
    ] = None
    rows: Annotated[
        str | None,
        Option(
            metavar="events|samples|changes",
            help="What rows are: a tick each, as a heartbeat is; on a clock, absent ones ticks without a reading; or "
            "values that hold until the next (default: found).",
        ),
    ] = None
    period: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            help="Time between rows of a file without times, or between looks at a log of changes (default: 60) "
            "or at places (default: as they come).",
        ),
    ] = None
    gap: Annotated[
        str | None,
        Option(metavar="TIME", help="Longest time, as 8h, that a value can hold or repeat: a longer one is a gap."),
    ] = None
    as_it_is: Annotated[
        list[str] | None,
        Option(metavar="RULE", help="Do not ask: keys, step, order, codes, names, hold or zone; again for more."),
    ] = None

    def texts(self) -> dict[str, Any]:
        """Return these options as arguments of `fugu.recordings.options.read_options`."""
        return {option.name: getattr(self, option.name) for option in fields(RecordingOptions)}


@option_group
class TrialOptions(RecordingOptions):
    """Options for a plan from a recording, as far as `fugu try` has them."""

    epsilon: _EpsilonOption = 1.0
    protect: ProtectOption = None
    want: Annotated[
        str | None,
        Option(
            help="now (the state), share (of time), histogram (of states), profile (share of each part of the "
            "day), place. Default: share of two, histogram of more, place of a file with lat and lon, and "
            "a profile where no share is useful."
        ),
    ] = None
    baseline: Annotated[
        str | None,
        Option(metavar="TIME|TICKS", help="States above and below the running mean of so long: 5m, 1h, or 100 ticks."),
    ] = None
    threshold: Annotated[float | None, Option(help="States below it, and not below it.")] = None
    states: Annotated[
        str | None,
        Option(
            metavar="NAME,NAME...",
            help="Names that are states, others are missing; or numbers, others count as the nearest. A+B is one.",
        ),
    ] = None
    missing: Annotated[
        str | None,
        Option(
            metavar="ignore",
            help="Ticks without a reading have no state; only if they do not depend on states (default: a "
            "state of its own, if they are more than 1 %).",
        ),
    ] = None
    within: Annotated[
        str | None,
        Option(metavar="5%|0.05", help="Largest mean absolute error (default: 5%, or what beats guessing by most)."),
    ] = None


@option_group
class AutoOptions(TrialOptions):
    """All options for a plan from a recording, as `fugu plan auto` has them."""

    blocks: Annotated[
        str,
        Option(
            metavar="[TIME][/ZONE]",
            help="Parts of the day of a profile (by default 4h, 6h and 8h in UTC): 6h/Europe/Berlin.",
        ),
    ] = ""
    days: Annotated[int | None, Option(min=1, help="Of a profile (default: 7 and 14 are tried).")] = None
    cell: Annotated[
        float | None,
        Option(metavar="METRES", help="Of places: the side of a cell (default: three sizes are compared)."),
    ] = None
    adversary: AdversaryOption = "universal"
    devices: Annotated[int, Option(min=1, max=1000000, help="Ask for the average of a group of so many.")] = 1
    latency: Annotated[str | None, Option(metavar="TIME", help="Longest until a subscriber knows: 10m, 1h.")] = None
    window: Annotated[str | None, Option(metavar="TIME|TICKS", help="Compare this length only: 8h, or 600 ticks.")] = (
        None
    )
    fleet: Annotated[str, Option(metavar="NAME", help="Policy: whose.")] = "home"
    device: Annotated[str, Option(metavar="NAME", help="Policy: of which device.")] = "device-1"
    stream: Annotated[
        str | None, Option(metavar="NAME", help="Policy: which of its streams (default: after the column).")
    ] = None
    epoch: Annotated[float | None, Option(metavar="UNIX", help="Policy: time of tick 0 (default: now).")] = None
    broker: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT|FILE",
            help="Of agent.toml: where its broker is, or a file NAME.toml with [broker] (default: here).",
        ),
    ] = None


@option_group
class GroupOptions:
    """Options for a group of homes whose sums alone become known."""

    homes: Annotated[
        int | None,
        Option(
            min=1,
            max=10_000,
            help="Plan one noise for so many homes, whose sum only is known; READINGS stands for all of them, or is "
            "one of each.",
        ),
    ] = None
    honest: Annotated[
        int | None, Option(min=1, help="With --homes: so many have to be real and honest (default: half of them).")
    ] = None
    colluding: Annotated[
        int | None, Option(min=0, help="With --homes: so many more are in every sum (default: a tenth).")
    ] = None
    group: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="With --homes: the document that the helper has signed; -o then writes the homes' policies.",
        ),
    ] = None
