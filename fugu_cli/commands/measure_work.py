"""The work of `fugu plan measure` and `fugu plan network`.

All raise FuguError if an input cannot be parsed or no such plan exists, and OSError if a file cannot be read.
"""

from __future__ import annotations

from pathlib import Path

from fugu.contract.errors import UsageError
from fugu.host import arguments
from fugu.host.files import write_public
from fugu.library.measure_words import measure_result, network_result
from fugu.library.report import Result
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.network_plan import plan_network, read_network
from fugu.planning.policy_builder import build_measure_policy, missing_fields
from fugu_cli.view.measure_plan import draw_measure_plan
from fugu_cli.view.terminal import warn, working

__all__ = ["plan_measure", "plan_network_file"]

_SLOW_PLACES = 64


def plan_measure(
    file: Path,
    adversary: str,
    *,
    apart: list[str] | None,
    hide: str | None,
    protect: str | None,
    quick: bool,
    svg: Path | None,
    output: Path | None,
) -> Result:
    """Plan a measurement, and write its policy and its picture if files are named."""
    if arguments.protected(protect):
        raise UsageError(
            "points are planned for single ticks: give --protect tick. Points before and after a stretch tell of it "
            "without a bound where steps between places are impossible, as most are"
        )
    if apart and hide:
        raise UsageError("--apart and --hide are two requirements: give one of them")
    apart_groups = {"apart": [arguments.split_words(group) for group in apart or ()]}
    spec = read_spec(file, apart_groups if apart else {"hidden": arguments.split_words(hide)} if hide else None)
    if spec.states > _SLOW_PLACES and not quick:
        warn(f"the optimal table and the stream's epsilon for {spec.states} states take minutes; --quick omits them")
    period_seconds = spec.header.get("period")
    if not isinstance(period_seconds, int | float) or not 0.0 < period_seconds < 2**42:
        period_seconds = None  # a policy needs one, and will say so
    with working(f"planning a measurement of {spec.states} states"):
        plan = make_measure_plan(spec, arguments.adversary(adversary), quick=quick, period=period_seconds)
    if output is not None:
        if absent_fields := missing_fields(spec):
            raise UsageError(f"a policy needs {', '.join(absent_fields)} in {file} (try 'fugu plan measure --help')")
        write_public(output, build_measure_policy(plan).to_json())
    if svg is not None:
        svg.write_text(draw_measure_plan(plan), encoding="utf-8")
    labelled_files = ((output, "policy"), (svg, "picture"))
    return measure_result(plan).with_lines(f"{label} written to {file}" for file, label in labelled_files if file)


def plan_network_file(file: Path) -> Result:
    """Plan one release over the network in a file."""
    network = read_network(file)
    with working("planning a release over a network"):
        return network_result(network, plan_network(network))
