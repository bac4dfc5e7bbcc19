"""`fugu check policy`."""

from __future__ import annotations

from pathlib import Path

import typer

from fugu.cli.commands.options import JsonOption, command, command_group
from fugu.cli.errors import NOTHING
from fugu.cli.view.policy import measure_policy_document, policy_document, show_measure_policy, show_policy
from fugu.cli.view.terminal import answer, working
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policy import Policy
from fugu.library.checks import Check
from fugu.library.checks import check as checked

app = command_group("Policies: what a device does with a stream.")


@command(app, "check")
def check(
    file: Path, *, ceiling: str | None = None, recording: Path | None = None, as_json: JsonOption = False
) -> None:
    """Check a policy as a device does.

    Its guarantees are derived anew from its tables and its windows. With a recording it says what its noise is worth
    for that person, and ends with exit code 3 if that is less than promised.

    Every epsilon that is printed was derived; one that cannot be is refused. Of a measured stream that takes as long
    as planning it did.

    \b
    examples:
      fugu check policy policy.json
      fugu check policy policy.json --ceiling 1
      fugu check policy policy.json --recording mine.csv

    Args:
        file (FILE): A policy in its JSON form.
        ceiling (E@TIME): Largest epsilon that is accepted, of a tick or about any stretch of that time.
        recording (FILE): Somebody's readings: are they in the policy's class?
    """
    with working("deriving what the streams lose"):
        found = checked(file, recording, ceiling=ceiling)
    made, recorded = found.policy, found.recorded
    if isinstance(made, Policy):
        parts = made, found.loss, found.windows, recorded
        answer(as_json, lambda: policy_document(*parts), lambda: show_policy(*parts))
    else:
        told = found.stretches
        answer(
            as_json, lambda: measure_policy_document(made, told), lambda: show_measure_policy(made, _bound(found), told)
        )
    if recorded is not None and not recorded.inside:
        raise typer.Exit(NOTHING)


def _bound(found: Check) -> str:
    """Words for what a whole measured stream loses."""
    from fugu.places.composition import START_WORDS

    assert isinstance(found.policy, MeasurePolicy)
    stream = found.policy.stream_loss
    if stream.epsilon is None:
        return "no bound is claimed"
    return (
        f"epsilon {stream.epsilon:.10g} about a single tick, {stream.adversary} adversary, "
        f"{START_WORDS[stream.start]} (derived: {found.loss.epsilon:.10g}, {found.loss.bound})"
    )
