"""`fugu check policy`, `fugu check attack` and `fugu check windows`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fugu.contract.policy import Policy
from fugu.library.checks import check_policy, check_result, drawn_releases, load_policy
from fugu.library.report import Result
from fugu_cli.app import KnownOption, PolicyArgument, check_commands
from fugu_cli.commands.plan_options import ChainOptions, RecordingOptions, StartOption
from fugu_cli.view.terminal import working


def policy(
    file: PolicyArgument,
    *,
    ceiling: Annotated[
        str | None,
        Option(metavar="E@TIME", help="Largest epsilon that is accepted, of a tick or about any stretch of that time."),
    ] = None,
    recording: Annotated[
        Path | None, Option(metavar="FILE", help="Somebody's readings: are they in the policy's class?")
    ] = None,
    reading: RecordingOptions,
) -> Result:
    """Check a policy as a device does.

    Its guarantees are derived anew from its tables and its windows. With a recording it says what its noise is worth
    for that person, and ends with exit code 3 if that is less than promised.

    Every epsilon that is printed was derived; one that cannot be is refused. For a measured stream that takes as long
    as planning it.

    \b
    examples:
      fugu check policy policy.json
      fugu check policy policy.json --ceiling 1
      fugu check policy policy.json --recording mine.csv
    """
    with working("deriving what the streams lose"):
        return check_result(check_policy(file, recording, ceiling, reading.texts()))


def attack(
    files: Annotated[
        list[Path],
        Argument(
            metavar="RECORDING...",
            help="Recordings of any form that fugu read knows; they are read at the policy's clock.",
        ),
    ],
    *,
    policy: Annotated[Path, Option(metavar="FILE", help="What a device with this policy releases.")],
    reading: RecordingOptions,
    known: KnownOption = None,
) -> Result:
    """Attack what would be released of a recording.

    The recording is the truth that attackers are judged by. Where the policy promises a stretch, attackers who know all
    other days are asked about stretches of it as well.

    \b
    examples:
      fugu check attack sleep.csv.gz --policy policy.json
      fugu check attack one.csv two.csv --policy policy.json --known 2 --json
    """
    from fugu.planning.recorded_policy import StretchTrial, Trial
    from fugu_cli.view.audit import attack_result

    any_policy = load_policy(policy)
    trials, stretches = list[Trial](), list[StretchTrial]()
    with working("attacking") as progress:
        for file in files:
            progress(file.name)
            for release in drawn_releases(any_policy, file, **reading.texts()):
                trials += release.trials(known)
                stretches += release.stretch_trials(any_policy)
    conditions = [sum_window.condition for sum_window in any_policy.sums] if isinstance(any_policy, Policy) else []
    return attack_result(trials, stretches, conditions)


def windows(
    *,
    release: Annotated[
        list[str],
        Option(
            metavar="FIRST:LENGTH:SCALE[:QUERY]",
            help="A window's first tick (from 1) and its ticks, the Laplace scale of every number, count or "
            "histogram (default: count). Several may be given.",
        ),
    ],
    chains: ChainOptions,
    start: StartOption = None,
) -> Result:
    """Compute the loss of several releases about windows.

    The accountants compute it for every adversary.

    \b
    examples:
      fugu check windows --q 0.1 --r 0.4 --release 1:8:4 --release 11:8:13
      fugu check windows --q 0.01 --r 0.4 --release 1:6:2 --release 1:6:2 --json
      fugu check windows --model chain.json --start any --release 1:30:20:histogram
    """
    from fugu_cli.commands.plan_work import window_loss

    return window_loss(release, chains, start)


check_commands(__name__)
