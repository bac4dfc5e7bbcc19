"""`fugu policy check`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import PolicyError
from contract.frames import MAX_TICK
from contract.guarantee import Guarantee, Loss
from contract.measure_policy import MeasurePolicy
from contract.measure_table import WeightNoise
from contract.measurement import Reach
from contract.policies import read_policy
from contract.policy import Policy
from contract.stretches import Stretch
from fugu.commands.arguments import positive
from fugu.commands.options import JsonOption
from fugu.view.missing import missing_sentence
from fugu.view.stretches import stretch_documents, stretch_lines

__all__ = ["app"]

app = typer.Typer(
    help="Policies: what a device does with a stream.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Policies: what a device does with a stream."""


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy in its JSON form.")],
    ceiling: Annotated[float | None, typer.Option(metavar="E", help="Largest epsilon that is accepted.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a policy as a device does: derive its guarantees from its tables and its windows anew.

    Every epsilon that is printed was derived; one that cannot be is refused. Of a measured stream that takes as long
    as planning it did.

    \b
    examples:
      fugu policy check policy.json
      fugu policy check policy.json --ceiling 1
    """
    accepted = math.inf if ceiling is None else positive(ceiling, "ceiling")
    try:
        policy = read_policy(file.read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    if not isinstance(policy, Policy):
        policy.verify(accepted)
        _show_measurement(policy, as_json)
        return
    loss, alone = policy.verify(accepted), policy.verify_windows()
    if as_json:
        print(json.dumps(_document(policy, loss, alone)))
        return

    holds = "the guarantee holds" if alone is None else "both guarantees hold"
    print(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: {holds}")
    _show_guarantee(policy.guarantee, loss, "" if alone is None else ", for symbols and windows together")
    for line in stretch_lines(policy.stretches(loss.epsilon)):
        print(f"  {line}")
    for state, (name, weights) in enumerate(zip(policy.discretiser.states, policy.table.weights(), strict=True)):
        print(f"  state {state} ({name}): symbol weights {' '.join(map(str, weights))} of 2^32")
    print(f"  {missing_sentence(policy)}")
    if policy.windows_guarantee is not None and alone is not None:
        _show_guarantee(policy.windows_guarantee, alone, ", for windows alone")
        for line in stretch_lines(policy.window_stretches(alone.epsilon)):
            print(f"  {line}")
    for window in policy.windows:
        print(f"  window {window.name}: scale {window.scale}, adds {float(window.rate):.6g} to the loss of every tick")


def _show_measurement(policy: MeasurePolicy, as_json: bool) -> None:
    """What a measurement policy promises, and its tables."""
    reach = Reach(policy.measurement)
    sets, stream = reach.all(), policy.stream_loss
    told: tuple[Stretch, ...] = ()
    how = "no bound is claimed"
    if stream.epsilon is not None:
        from gateway.dphmm.stream_check import START_WORDS, measured_stretches, verify_stream

        derived = verify_stream(policy)
        told = measured_stretches(policy.measurement, stream.epsilon, policy.clock.period_us)
        how = (
            f"epsilon {stream.epsilon:.10g} about a single tick, {stream.adversary} adversary, "
            f"{START_WORDS[stream.start]} (derived: {derived.epsilon:.10g}, {derived.bound})"
        )
    tables = [
        {
            "number": table.number,
            "possible_states": table.constraint.bit_count() or None,
            "first": table.first,
            "until": table.until if table.until <= MAX_TICK else None,
            "points": len(table.noise.points) if isinstance(table.noise, WeightNoise) else None,
        }
        for table in policy.measure_tables
    ]
    if as_json:
        print(
            json.dumps(
                {
                    "epsilon_tick": policy.epsilon,
                    "factor": policy.factor,
                    "epsilon_stream": stream.epsilon,
                    "adversary": stream.adversary,
                    "start": stream.start,
                    "stretches": stretch_documents(told),
                    "sets": [states.bit_count() for states in sets],
                    "repeats_from": reach.start,
                    "tables": tables,
                }
            )
        )
        return
    edges = sum(others.bit_count() for others in policy.measurement.neighbours) // 2
    print(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: every table keeps the promise")
    print(f"  {len(policy.coordinates)} states, {edges} pairs joined by the policy graph")
    print(
        f"  each point: epsilon {policy.epsilon:.10g} for joined pairs, {policy.factor} times that for any two states"
    )
    print(f"  whole stream: {how}")
    for line in stretch_lines(told):
        print(f"  {line}")
    print(f"  {missing_sentence(policy)}")
    counts = ", ".join(str(states.bit_count()) for states in sets[:8]) + (", ..." if len(sets) > 8 else "")
    print(f"  possible states from tick 0 on: {counts}; the sets repeat from tick {reach.start} on")
    for table in tables:
        name = "fallback" if table["number"] == 0 else f"table {table['number']}"
        until = "" if table["until"] is None else f" to {table['until'] - 1}"
        drawn = "a staircase" if table["points"] is None else f"{table['points']} points"
        states = "any set of" if table["possible_states"] is None else table["possible_states"]
        print(f"  {name}: {drawn}, for {states} possible states, from tick {table['first']}{until}")


def _document(policy: Policy, loss: Loss, alone: Loss | None) -> dict[str, object]:
    """What was found, as an object for JSON; `windows` is there if the policy has any."""
    document = {
        **loss._asdict(),
        "claimed": policy.guarantee.epsilon,
        "stretches": stretch_documents(policy.stretches(loss.epsilon)),
        "weights": policy.table.weights(),
    }
    if policy.windows_guarantee is not None and alone is not None:
        rates = {window.name: str(window.rate) for window in policy.windows}
        document["windows"] = {
            **alone._asdict(),
            "claimed": policy.windows_guarantee.epsilon,
            "stretches": stretch_documents(policy.window_stretches(alone.epsilon)),
            "rates": rates,
        }
    return document


def _show_guarantee(claimed: Guarantee, derived: Loss, what: str) -> None:
    print(f"  claimed  epsilon {claimed.epsilon:.10g}, {claimed.adversary} adversary{what}")
    print(f"  derived  epsilon {derived.epsilon:.10g} ({derived.bound})")
