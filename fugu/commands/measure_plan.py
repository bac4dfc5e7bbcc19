"""The work of `fugu plan measure`: a specification to a plan, a plan to terminal, JSON, picture and policy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from fugu.commands import arguments
from fugu.commands.plan_options import HeaderOptions
from fugu.errors import CommandLineError
from fugu.view.measure_plan import draw_measure_plan, measure_document, show_measure_plan
from fugu.view.terminal import say, warn, working
from gateway.planning.measure_planner import MeasurePlan, make_measure_plan
from gateway.planning.measure_spec import read_spec
from gateway.planning.policy_builder import MeasureHeader, build_measure_policy, missing_fields

__all__ = ["plan_measure"]

_SLOW_STATES = 64


def plan_measure(
    spec: Path,
    adversary: str,
    header: HeaderOptions,
    period: float | None,
    *,
    quick: bool,
    as_json: bool,
    svg: Path | None,
    output: Path | None,
) -> None:
    """Plan a measurement, print the plan, and write its policy and its picture if files are named.

    Raises:
        FuguError: something cannot be read, or there is no such plan.
        OSError: a file cannot be read or written.
    """
    wanted = read_spec(spec)
    if wanted.states > _SLOW_STATES and not quick:
        warn(f"the optimal table and the stream's epsilon for {wanted.states} states take minutes; --quick omits them")
    seconds = wanted.header.get("period") if period is None else period
    if not isinstance(seconds, int | float) or not 0.0 < seconds < 2**42:
        seconds = None  # a policy needs one, and will say so
    notion = arguments.adversary(adversary)
    with working(f"planning a measurement of {wanted.states} states"):
        plan = make_measure_plan(wanted, notion, quick=quick, period=seconds)
    if output is not None:
        _write_policy(plan, header, period, output)
    if svg is not None:
        svg.write_text(draw_measure_plan(plan), encoding="utf-8")
    if as_json:
        print(json.dumps(measure_document(plan), indent=2))
        return
    show_measure_plan(plan)
    for written, what in ((output, "policy"), (svg, "picture")):
        if written is not None:
            say(f"{what} written to {written}")


def _write_policy(plan: MeasurePlan, options: HeaderOptions, period: float | None, output: Path) -> None:
    header = MeasureHeader(**asdict(options), period=period)
    if missing := missing_fields(plan.spec, header):
        names = ", ".join(f"--{name}" for name in missing)
        raise CommandLineError(f"a policy needs {names}, here or in the specification (try 'fugu plan measure --help')")
    output.write_text(build_measure_policy(plan, header).to_json(), encoding="utf-8")
