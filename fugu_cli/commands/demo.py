"""`fugu start`, `fugu try` and `fugu demo`."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fugu.host.arguments import one_of, positive
from fugu_cli.app import NotPrivateOption, check_commands
from fugu_cli.commands.plan_options import AutoOptions, TrialOptions
from fugu_cli.connection import broker_of

_KINDS = ("auto", "mosquitto", "embedded")
_SHOWN = ("hearts", "walk", "street")
BrowserOption = Annotated[bool, Option(help="Open the page.")]


def demo(
    demo: Annotated[str, Argument(metavar="[hearts|walk|street]", help="Nights, places, or sixty homes.")] = "hearts",
    *,
    out: Annotated[Path | None, Option(help="Folder for pictures and logs (default: demo, or demo-NAME).")] = None,
    browser: BrowserOption = True,
    seconds: Annotated[
        float, Option(min=1, max=3600, help="The walk ends when so many seconds' points have arrived.")
    ] = 40.0,
    hours: Annotated[int, Option(min=1, max=24, help="The street ends after so many hours, a minute each.")] = 5,
    broker_kind: Annotated[str, Option(help="auto, mosquitto or embedded.")] = "auto",
) -> int:
    """Show the whole system: sleeping hearts, a walk, or a street.

    It runs real processes and real MQTT on this machine. Hearts are three recordings, as fugu try shows one of yours.
    The walk is a private measurement of places, shown on a map, with tables from the gateway, restarts and losses. Of a
    street of sixty homes only the sum of each hour becomes known; some homes are away, and one is killed in each hour.

    \b
    examples:
      fugu demo
      fugu demo --no-browser --out /tmp/demo
      fugu demo walk --seconds 20
      fugu demo street
    """
    kind = one_of(broker_kind, "broker kind", _KINDS)
    with _ending_in_order():
        demo_name = one_of(demo, "demo", _SHOWN)
        if demo_name == "hearts":
            from fugu_cli.demo.session import run

            return run(out or Path("demo"), kind, browser=browser)
        if demo_name == "street":
            from fugu_cli.demo.street import run as street

            return street(out or Path("demo-street"), kind, hours, browser=browser)
        from fugu_cli.demo.walk import run as walk

        return walk(out or Path("demo-walk"), positive(seconds, "seconds"), kind, browser=browser)


def try_recording(
    file: Annotated[
        Path | None, Argument(metavar="[HISTORY.csv]", help="Readings, plain or gzip, as for fugu plan auto.")
    ] = None,
    *,
    options: TrialOptions,
    not_private: Annotated[
        bool, Option("--not-private", help="Replay what is not private too, and print its configuration.")
    ] = False,
    browser: BrowserOption = True,
    broker: Annotated[
        str | None, Option(metavar="HOST:PORT|FILE", help="Then send its numbers to the broker of your Home Assistant.")
    ] = None,
) -> int:
    """Try a recording of yours: plan, replay it, and see what leaves.

    It plans as fugu plan auto does, which has more options. Then an agent and a gateway on this machine replay the part
    of the recording that the plan held back. A page shows it beside the truth and the strongest attacker. Nothing is
    left on the disk. Without a file it tries a recorded night of heartbeats.

    With --broker Home Assistant shows the device "trial" until Ctrl-C. The numbers of a recording are drawn once and
    kept in ~/.local/state/fugu, which only you can read: each trial sends the same.

    \b
    examples:
      fugu try
      fugu try history.csv
      fugu try history.csv --protect tick --epsilon 3 --no-browser
      fugu try history.csv --broker homeassistant.local:1883
    """
    from fugu_cli.demo.trial import run

    with _ending_in_order():
        plan_options = AutoOptions(**asdict(options))
        home_assistant = None if broker is None else broker_of(broker)
        return run(file, plan_options, not_private=not_private, browser=browser, broker=home_assistant)


def start(*, not_private: NotPrivateOption = False, browser: BrowserOption = True) -> int:
    """From a file or a topic to an agent, in a browser.

    It serves a page on this machine, where the sensor is. Choose a recording or record a topic of a local broker, and
    see what would leave and what that tells. Then write the configuration of an agent, as fugu plan auto does.
    Recordings and uploads are deleted at the end; plan.html stays, and has pictures of them.

    \b
    examples:
      fugu start
      fugu start --no-browser
    """
    from fugu_cli.demo.wizard import run

    with _ending_in_order():
        return run(not_private=not_private, browser=browser)


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM or a closed terminal end the program as an exit does, which cleans up folders and processes.

    After the first such signal all others are ignored.
    """
    signals = [signum for signum in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(signum) is not signal.SIG_IGN]

    def leave(signum: int, _frame: object) -> None:
        for end_signal in signals:
            signal.signal(end_signal, signal.SIG_IGN)
        sys.exit(128 + signum)

    handlers = {signum: signal.signal(signum, leave) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


check_commands(__name__)
