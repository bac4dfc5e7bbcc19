"""The work of `fugu plan measure`: a specification to a plan, a plan to terminal, JSON, picture and policy."""

from __future__ import annotations

from pathlib import Path

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import HeaderOptions, MeasureOptions
from fugu.cli.errors import CommandLineError
from fugu.cli.view.measure_plan import draw_measure_plan, measure_document, show_measure_plan
from fugu.cli.view.terminal import answer, say, warn, working
from fugu.planning.measure_planner import MeasurePlan, make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import MeasureHeader, build_measure_policy, missing_fields

__all__ = ["plan_measure"]

_SLOW_STATES = 64


def plan_measure(options: MeasureOptions, header: HeaderOptions, *, output: Path | None, as_json: bool) -> None:
    """Plan a measurement, print the plan, and write its policy and its picture if files are named.

    Raises:
        FuguError: something cannot be read, or there is no such plan.
        OSError: a file cannot be read or written.
    """
    wanted = read_spec(options.spec)
    if wanted.states > _SLOW_STATES and not options.quick:
        warn(f"the optimal table and the stream's epsilon for {wanted.states} states take minutes; --quick omits them")
    seconds = wanted.header.get("period") if options.period is None else options.period
    if not isinstance(seconds, int | float) or not 0.0 < seconds < 2**42:
        seconds = None  # a policy needs one, and will say so
    notion = arguments.adversary(options.adversary)
    with working(f"planning a measurement of {wanted.states} states"):
        plan = make_measure_plan(wanted, notion, quick=options.quick, period=seconds)
    if output is not None:
        fleet, device, stream = header.names("home/phone/place")
        given = MeasureHeader(
            fleet=fleet,
            device=device,
            stream=stream,
            period=options.period,
            latency=header.latency,
            version=header.version,
            epoch=header.epoch,
            valid_until=header.valid_until,
        )
        _write_policy(plan, given, output)
    if options.svg is not None:
        options.svg.write_text(draw_measure_plan(plan), encoding="utf-8")
    answer(as_json, lambda: measure_document(plan), lambda: show_measure_plan(plan), indent=2)
    for written, what in ((output, "policy"), (options.svg, "picture")):
        if written is not None and not as_json:
            say(f"{what} written to {written}")


def _write_policy(plan: MeasurePlan, header: MeasureHeader, output: Path) -> None:
    if missing := missing_fields(plan.spec, header):
        names = ", ".join(dict.fromkeys("--period" if name == "period" else "--for" for name in missing))
        raise CommandLineError(f"a policy needs {names}, here or in the specification (try 'fugu plan measure --help')")
    output.write_text(build_measure_policy(plan, header).to_json(), encoding="utf-8")
