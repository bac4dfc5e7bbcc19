"""`fugu check attack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fugu.cli.commands.options import JsonOption, command
from fugu.cli.view.terminal import answer, working
from fugu.contract.policy import Policy
from fugu.library.checks import attack
from fugu.library.policies import load_policy

if TYPE_CHECKING:
    from fugu.planning.attacked import StretchTrial, Trial


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(app)
def _attack(
    files: list[Path],
    *,
    policy: Path,
    column: str | None = None,
    known: int | None = None,
    as_json: JsonOption = False,
) -> None:
    """Attack what would be released of a recording.

    The recording is the truth that attackers are judged by. Where the policy promises a stretch, attackers who know all
    other days are asked about stretches of it as well.

    \b
    examples:
      fugu check attack sleep.csv.gz --policy policy.json
      fugu check attack one.csv two.csv --policy policy.json --known 2 --json

    Args:
        files (RECORDING...): Recordings: CSV (also gzipped).
        policy (FILE): What a device with this policy releases.
        column: Column to read.
        known (N 2..): Attackers are told every N-th state; 2: both neighbours.
    """
    from fugu.cli.view.audit import show_stretch_trials, show_trials, stretch_trial_document, trial_document
    from fugu.planning.attacked import attack_policy_stretches

    made = load_policy(policy)
    trials: list[Trial] = []
    stretches: list[StretchTrial] = []
    with working("attacking") as told:
        for file in files:
            told(file.name)
            trials += attack(made, file, column=column, known=known)
            if isinstance(made, Policy):
                stretches += attack_policy_stretches(made, file, column)

    def document() -> dict[str, Any]:
        told = [stretch_trial_document(one) for one in stretches]
        return {"trials": [trial_document(trial) for trial in trials], "stretches": told}

    def show() -> None:
        show_trials(trials)
        show_stretch_trials(stretches)

    answer(as_json, document, show)
