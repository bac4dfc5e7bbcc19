"""`fugu subscribe`: print the readings of a fleet as they arrive, without numpy or a terminal library."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from fugu.contract.errors import UsageError
from fugu.host.terminal import Parser
from fugu.library.report import NOTHING
from fugu.mqtt import Reading, Subscription
from fugu_cli.connection import BROKER_HELP, broker_of
from fugu_cli.view.readings import ReadingLines, reading_json

__all__ = ["main"]

HELP = "Print private readings of a fleet as they arrive: symbols, released points, estimates, counts and releases."
_SILENCE_SECONDS = 3.0
_KINDS = ("symbols", "windows", "estimates", "counts", "releases", "descriptions")
_EPILOG = """examples:
  fugu subscribe --fleet home
  fugu subscribe --fleet home --only descriptions --timeout 2
  fugu subscribe --fleet home --device wrist-1 --stream heart --only estimates,counts --json
  fugu subscribe --fleet home --broker screen/broker.toml --count 100
"""


def main(arguments: Sequence[str]) -> int:
    """Print readings until a signal, a count or a timeout, and return 0.

    After a timeout without a reading, return 1 if the connection failed or was refused, else 3. FuguError: a name, an
    address or a file of the connection is invalid.
    """
    options = parser().parse_args(arguments)
    handlers = {signum: signal.signal(signum, signal.default_int_handler) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        return _print_readings(options)
    except KeyboardInterrupt:
        return 0
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def _print_readings(options: argparse.Namespace) -> int:
    if "releases" in options.only and options.device != "+":
        raise UsageError("releases are not those of one device: give either --only releases or --device")
    subscription = Subscription(
        broker_of(options.broker),
        fleet=options.fleet,
        device=options.device,
        stream=options.stream,
        **{kind: kind in (options.only or _KINDS[:-1]) for kind in _KINDS},
        timeout=options.timeout,
    )
    has_arrived, line_of = False, reading_json if options.json else ReadingLines()
    try:
        with subscription:
            for reading in islice(_readings(subscription, options), options.count):
                has_arrived = True
                print(line_of(reading), flush=True)
    finally:
        _report_faults(subscription)
    if has_arrived:
        return 0
    if subscription.link.last_error:
        return 1
    print(f"fugu: nothing of fleet {options.fleet} came in {options.timeout:g} s: is that its name?", file=sys.stderr)
    return NOTHING


def _readings(subscription: Subscription, options: argparse.Namespace) -> Iterator[Reading]:
    """Yield the readings of a subscription; print a line on stderr if nothing arrives in the first seconds."""
    if options.timeout is None or options.timeout > _SILENCE_SECONDS:
        reading = subscription.wait(_SILENCE_SECONDS)
        if reading is None:
            if not subscription.messages:
                reason = subscription.link.last_error or f"nothing from {options.broker} in {_SILENCE_SECONDS:g} s"
                print(f"fugu: {reason}; waiting for fleet {options.fleet}", file=sys.stderr)
            reading = subscription.wait(None if options.timeout is None else options.timeout - _SILENCE_SECONDS)
        if reading is None:
            return
        yield reading
    yield from subscription


def _report_faults(subscription: Subscription) -> None:
    """Print on stderr the last error of the connection, and the counts of invalid messages."""
    if subscription.link.last_error:
        print(f"fugu: {subscription.link.last_error}", file=sys.stderr)
    if subscription.rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(subscription.rejected.items()))
        print(f"fugu: invalid messages were left out: {reasons}", file=sys.stderr)


def parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(
        prog="fugu subscribe", description=HELP, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fleet", required=True, metavar="NAME", help="the fleet")
    parser.add_argument("--device", default="+", metavar="NAME", help="one device (default: all)")
    parser.add_argument("--stream", default="+", metavar="NAME", help="one stream (default: all)")
    parser.add_argument(
        "--only", type=_kinds, default=(), metavar="KIND,...", help=f"of {', '.join(_KINDS)} (default: the first 5)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--count", type=_count, metavar="N", help="stop after N readings")
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="stop after S seconds without a reading")
    parser.add_argument("--broker", default="127.0.0.1:1883", metavar="HOST:PORT|FILE", help=BROKER_HELP)
    return parser


def _kinds(kinds_text: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in kinds_text.split(","))
    if unknown_kinds := [kind for kind in kinds if kind not in _KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown_kinds[0][:40]!r} is none of {', '.join(_KINDS)}")
    return kinds


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= len(text) <= 18 or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e9:
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return seconds
