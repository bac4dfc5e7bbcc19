"""`fugu plan stream`, `fugu plan window` and `fugu plan measure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu.commands.options import AdversaryOption, ConfidenceOption, JsonOption, ModelOption, QOption, ROption

__all__ = ["app"]

_SLOW_STATES = 64

app = typer.Typer(help="Noise for a guarantee.", no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.callback()
def _group() -> None:
    """Noise for a guarantee."""


@app.command("stream")
def stream(
    epsilon: Annotated[float, typer.Option(help="The most that may be lost about one reading, in nats.")],
    q: QOption = None,
    r: ROption = None,
    model: ModelOption = None,
    confidence: ConfidenceOption = 0.99,
    adversary: AdversaryOption = "informed",
    objective: Annotated[
        str, typer.Option(help="information (most informative symbols) or flips (fewest wrong symbols, rho <= 1/2).")
    ] = "information",
    every: Annotated[int, typer.Option(metavar="D", help="Take one reading every D ticks of the chain.")] = 1,
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of one tick of the chain (default: the model's).")
    ] = None,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a policy.")] = None,
    fleet: Annotated[str | None, typer.Option(help="Policy: name of the fleet.")] = None,
    device: Annotated[str | None, typer.Option(help="Policy: name of the device.")] = None,
    stream_name: Annotated[str | None, typer.Option("--stream", help="Policy: name of the stream.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option(metavar="NUMBER[,NUMBER...]", help="Policy: edges between states (default: the model's)."),
    ] = None,
    states: Annotated[str | None, typer.Option(metavar="NAME,NAME...", help="Policy: names of the states.")] = None,
    hysteresis: Annotated[float, typer.Option(help="Policy: how far past an edge a value must be.")] = 0.0,
    frame_ticks: Annotated[int, typer.Option(help="Policy: symbols in a frame.")] = 32,
    version: Annotated[int, typer.Option(help="Policy: its version.")] = 1,
    epoch: Annotated[
        float | None, typer.Option(metavar="UNIX", help="Policy: time of tick 0 (default: now, to the second).")
    ] = None,
    valid_until: Annotated[int | None, typer.Option(metavar="UNIX", help="Policy: when it expires.")] = None,
) -> None:
    """Plan a stream: how to randomise each reading, what that costs, and what else could be done.

    With --model the class of chains is what the recording allows at the given confidence, widened to cover both halves;
    a file with a bare "transition" stands for that chain alone. 'fugu plan window --chain' follows the same rule.

    \b
    examples:
      fugu plan stream --q .08938 --r .10924 --epsilon 1
      fugu plan stream --q .08:.10 --r .10:.12 --epsilon 1 --adversary universal --json
      fugu plan stream --model chain.json --epsilon 2 --every 10 -o policy.json \\
          --fleet home --device wrist-1 --stream heart --threshold 61.5
    """
    from fugu.commands.stream_plan import PlanOptions, PolicyOptions, plan_stream

    plan_stream(
        PlanOptions(q, r, model, confidence, epsilon, adversary, objective, every, period),
        as_json=as_json,
        output=output,
        policy=PolicyOptions(
            fleet=fleet,
            device=device,
            stream=stream_name,
            threshold=threshold,
            states=states,
            hysteresis=hysteresis,
            frame_ticks=frame_ticks,
            version=version,
            epoch=epoch,
            valid_until=valid_until,
        ),
    )


@app.command("window")
def window(
    epsilon: Annotated[float, typer.Option(help="The most that may be lost about one reading, in nats.")],
    chain: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='JSON: "transition" and "initial" (a list, "stationary" or "any"), or "chains": a list of such, taken '
            "as they are; a file of 'fugu model fit' stands for its class at the given confidence.",
        ),
    ] = None,
    q: QOption = None,
    r: ROption = None,
    confidence: ConfidenceOption = 0.99,
    mechanism: Annotated[
        str | None,
        typer.Option(help="chain, mqm-exact, mqm-approx, wasserstein, group, entry or auto (default: compare all)."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(metavar="T", min=1, help="Ticks of the only window that will ever be released.")
    ] = None,
    endless: Annotated[
        bool, typer.Option("--endless", help="Windows one after another for ever, under one epsilon (the default).")
    ] = False,
    query: Annotated[
        str, typer.Option(help="count (ticks in some states) or histogram (ticks in each state).")
    ] = "count",
    adversary: AdversaryOption = "ignorant",
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of one tick (default: the fitted model's).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan statistics over windows of ticks: the Laplace noise that each mechanism needs for the same guarantee.

    \b
    examples:
      fugu plan window --q .1 --r .4 --epsilon 1
      fugu plan window --q .1 --r .4 --epsilon 1 --mechanism auto --query histogram --json
      fugu plan window --chain chain.json --epsilon 1 --length 60
    """
    from fugu.commands.window_plan import WindowOptions, plan_window

    options = WindowOptions(chain, q, r, confidence, epsilon, mechanism, length, endless, query, adversary, period)
    plan_window(options, as_json=as_json)


@app.command("measure")
def measure(
    spec: Annotated[Path, typer.Option(metavar="FILE", help="Specification, in TOML or JSON; its keys are below.")],
    adversary: AdversaryOption = "ignorant",
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what is slow for many states: optimal table, stream's epsilon.")
    ] = False,
    as_json: JsonOption = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw states, policy graph and hull.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a policy.")] = None,
    fleet: Annotated[str | None, typer.Option(help="Policy: name of the fleet.")] = None,
    device: Annotated[str | None, typer.Option(help="Policy: name of the device.")] = None,
    stream_name: Annotated[str | None, typer.Option("--stream", help="Policy: name of the stream.")] = None,
    period: Annotated[float | None, typer.Option(metavar="SECONDS", help="Policy: length of a tick.")] = None,
    frame_ticks: Annotated[int | None, typer.Option(help="Policy: points in a frame (default: 32).")] = None,
    version: Annotated[int | None, typer.Option(help="Policy: its version (default: 1).")] = None,
    epoch: Annotated[
        float | None, typer.Option(metavar="UNIX", help="Policy: time of tick 0 (default: now, to the second).")
    ] = None,
    valid_until: Annotated[int | None, typer.Option(metavar="UNIX", help="Policy: when it expires.")] = None,
) -> None:
    """Plan private measurements of many states: a point every tick, noise by a policy graph, and what it all reveals.

    \b
    keys of FILE (lists are by state; states are counted from 0):
      coordinates  [[x, y], ...] what is measured, 1 to 3 whole numbers; or
      grid         "10x10": cells row by row, with a random walk unless transition is given
      transition   [[p, ...], ...], or a file of 'fugu model fit --grid' (brings coordinates and names as well)
      graph        pairs that no point may tell apart: {complete = true}, {categories = [...]},
                   {radius = 1.5}, {transition = true} or {edges = [[0, 1], ...]}
      epsilon      most that a point may tell about such a pair, in nats
      initial      [p, ...] at tick 0, "stationary", or "any": any state is possible (the default)
      names, resolution (size of a lattice step: coordinates are divided by it), unit,
      objective (of added edges: error, nearest or area), mechanism (staircase or optimal), delta
      for -o also: fleet, device, stream, period, frame_ticks, version, epoch, valid_until, discretiser

    \b
    examples:
      fugu plan measure --spec place.toml
      fugu plan measure --spec place.toml --json --quick
      fugu plan measure --spec place.toml --svg place.svg -o policy.json \\
          --fleet home --device phone-1 --stream place --period 60
    """
    from fugu.commands.arguments import adversary as checked
    from fugu.errors import CommandLineError
    from fugu.view.measure_plan import draw_measure_plan, measure_document, show_measure_plan
    from fugu.view.terminal import say, warn
    from gateway.planning.measure_planner import make_measure_plan
    from gateway.planning.measure_policy_builder import MeasureHeader, build_measure_policy, missing_fields
    from gateway.planning.measure_spec import read_spec

    wanted = read_spec(spec)
    if wanted.states > _SLOW_STATES and not quick:
        warn(f"the optimal table and the stream's epsilon for {wanted.states} states take minutes; --quick omits them")
    seconds = wanted.header.get("period") if period is None else period
    if not isinstance(seconds, int | float) or not 0.0 < seconds < 2**42:
        seconds = None  # a policy needs one, and will say so
    plan = make_measure_plan(wanted, checked(adversary), quick=quick, period=seconds)
    if output is not None:
        header = MeasureHeader(fleet, device, stream_name, period, frame_ticks, version, epoch, valid_until)
        if missing := missing_fields(wanted, header):
            names = ", ".join(f"--{name}" for name in missing)
            raise CommandLineError(
                f"a policy needs {names}, here or in the specification (try 'fugu plan measure --help')"
            )
        output.write_text(build_measure_policy(plan, header).to_json(), encoding="utf-8")
    if svg is not None:
        svg.write_text(draw_measure_plan(plan), encoding="utf-8")
    if as_json:
        import json

        print(json.dumps(measure_document(plan), indent=2))
        return
    show_measure_plan(plan)
    for written, what in ((output, "policy"), (svg, "picture")):
        if written is not None:
            say(f"{what} written to {written}")
