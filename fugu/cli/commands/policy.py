"""`fugu check policy`."""

from __future__ import annotations

from pathlib import Path

import typer

from fugu.cli.commands.arguments import epsilon_of
from fugu.cli.commands.options import JsonOption, command, command_group, policy_in
from fugu.cli.errors import NOTHING
from fugu.cli.view.policy import measure_policy_document, policy_document, show_measure_policy, show_policy
from fugu.cli.view.terminal import answer, working
from fugu.contract.errors import UsageError
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Stretch

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
    accepted = None if ceiling is None else epsilon_of(ceiling)
    policy = policy_in(file)
    if not isinstance(policy, Policy):
        with working("checking every table"):
            policy.verify(None if accepted is None else accepted.epsilon)
        if recording is not None:
            raise UsageError("--recording is for streams of symbols and windows")
        _check_measurement(policy, as_json)
        return
    with working("deriving what the streams lose"):
        loss = policy.verify(accepted)
        alone = None if policy.table is None else policy.verify_windows()
        found = None
        if recording is not None:
            from fugu.planning.true_class import recorded_class

            found = recorded_class(policy, recording)
    answer(
        as_json, lambda: policy_document(policy, loss, alone, found), lambda: show_policy(policy, loss, alone, found)
    )
    if found is not None and not found.inside:
        raise typer.Exit(NOTHING)


def _check_measurement(policy: MeasurePolicy, as_json: bool) -> None:
    """Derive what the whole stream loses, and show what a measurement policy promises, and its tables."""
    stream = policy.stream_loss
    told: tuple[Stretch, ...] = ()
    how = "no bound is claimed"
    if stream.epsilon is not None:
        from fugu.places.composition import START_WORDS, measured_stretches, verify_stream

        with working("deriving what the stream loses"):
            derived = verify_stream(policy)
        told = measured_stretches(policy.measurement, stream.epsilon, policy.clock.period_us)
        how = (
            f"epsilon {stream.epsilon:.10g} about a single tick, {stream.adversary} adversary, "
            f"{START_WORDS[stream.start]} (derived: {derived.epsilon:.10g}, {derived.bound})"
        )
    answer(as_json, lambda: measure_policy_document(policy, told), lambda: show_measure_policy(policy, how, told))
