"""`fugu check attack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fugu.cli.commands.arguments import number, positive
from fugu.cli.commands.options import JsonOption, command, policy_in
from fugu.cli.errors import CommandLineError
from fugu.cli.view.terminal import answer, working
from fugu.contract.errors import PolicyError
from fugu.contract.policy import Policy

if TYPE_CHECKING:
    from fugu.planning.attacked import Trial


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(app)
def _attack(
    files: list[Path],
    *,
    policy: Path | None = None,
    threshold: str | None = None,
    baseline: list[int] | None = None,
    column: str | None = None,
    epsilon: float = 1.0,
    known: int | None = None,
    as_json: JsonOption = False,
) -> None:
    """Attack what would be released of a recording.

    The recording is the truth that attackers are judged by.

    Without a policy noise is tried for independent readings (ordinary randomised response), for the mean chain of the
    recording and its halves, and for every stretch of it.

    \b
    examples:
      fugu check attack sleep.csv.gz --policy policy.json
      fugu check attack sleep.csv.gz --baseline 300
      fugu check attack one.csv two.csv --threshold mean --baseline 300 --baseline 100 --json

    Args:
        files (RECORDING...): Recordings: CSV or NPZ.
        policy (FILE): What a device with this policy releases.
        threshold (mean|NUMBER): Two states: the number and above, or below.
        baseline (TICKS 1..): Two states: above the running mean, or below.
        column: Column to read.
        epsilon (E): The guarantee, without a policy.
        known (N 2..): Attackers are told every N-th state; 2: both neighbours.
    """
    if (policy is None) == (threshold is None and not baseline):
        raise CommandLineError("give either --policy, or --threshold or --baseline")
    from fugu.cli.view.audit import show_trials, trial_document
    from fugu.planning.attacked import attack_classes, attack_policy, two_states
    from fugu.planning.readings import read_readings

    trials: list[Trial] = []
    with working("attacking") as told:
        for file in files:
            told(file.name)
            readings = read_readings(file, column)
            if policy is not None:
                made = policy_in(policy)
                if not isinstance(made, Policy):
                    raise PolicyError(f"{policy}: measured points are not attacked by this command")
                trials += attack_policy(made, readings, known)
                continue
            positive(epsilon, "epsilon")
            edge = None if threshold in (None, "mean") else number(str(threshold), "threshold")
            for ticks in [*([None] if threshold is not None else []), *(baseline or [])]:
                name, states = two_states(readings, ticks, edge)
                trials += attack_classes(readings.source, name, states, readings.segments, epsilon, known)
    answer(as_json, lambda: {"trials": [trial_document(trial) for trial in trials]}, lambda: show_trials(trials))
