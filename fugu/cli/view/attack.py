"""What attackers reached, as tables or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fugu.attack import Attack, furthest_learner
from fugu.cli.view.terminal import say, show_table
from fugu.planning.attacked import Trial

__all__ = ["odds_words", "show_trials", "trial_document"]

_ATTACKERS = ("attacker", "right", "interval", "without", "ceiling", "epsilon at least", "odds change by")
_TRIALS = ("noise for", "released", "noise", "strongest", "without", "ceiling", "odds, known", "odds, learned")


def show_trials(trials: Sequence[Trial]) -> None:
    """Print a table for each recording's states; of a single one, every attacker of every trial, too."""
    cases = {(trial.source, trial.state): None for trial in trials}
    for source, state in cases:
        mine = [trial for trial in trials if (trial.source, trial.state) == (source, state)]
        show_table(f"{source}, {state}: epsilon {mine[0].epsilon:g}", _TRIALS, [_summary(trial) for trial in mine])
    if len(cases) == 1:
        for trial in trials:
            rows = [
                (one.attacker, f"{one.success:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.guess:.3f}",
                 f"{one.ceiling:.3f}", f"{one.epsilon_low:.2f}", odds_words(one))
                for one in trial.attacks
            ]  # fmt: skip
            show_table(f"noise for {trial.chains}: {trial.released}, epsilon {trial.epsilon:g}", _ATTACKERS, rows)
    say(
        "right: share of the states that an attacker names who is given the recording's mean chain. without: the same "
        "attacker without what was released. ceiling: what epsilon allows, proven if the readings are in the class; * "
        "beyond it. odds: the largest change on any tick, and on how many it is beyond e^epsilon. Epsilon bounds them "
        "for an attacker who knows the chain beforehand (known: forward-backward, with the mean chain). It bounds "
        "nothing for one who learns a person's habits, from what is released or from other times (learned: the one "
        "who moved furthest). Noise was drawn once."
    )


def _summary(trial: Trial) -> tuple[str, ...]:
    one = trial.attacks[0]
    beyond = "*" if one.success > one.ceiling else ""
    return (
        trial.chains, trial.released, f"{trial.noise:.3g}", f"{one.success:.3f}{beyond}", f"{one.guess:.3f}",
        f"{one.ceiling:.3f}", odds_words(trial.known_chain), odds_words(furthest_learner(trial.attacks)),
    )  # fmt: skip


def odds_words(attack: Attack | None) -> str:
    """The largest factor on an attacker's odds, and the share of ticks beyond e^epsilon; "-" without odds."""
    if attack is None or attack.furthest is None:
        return "-"
    return f"x {attack.furthest:.3g} ({attack.beyond:.0%})"


def trial_document(trial: Trial) -> dict[str, Any]:
    """A trial as an object for JSON."""
    return {**trial._asdict(), "attacks": [asdict(one) for one in trial.attacks]}
