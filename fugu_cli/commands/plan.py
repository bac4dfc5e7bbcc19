"""`fugu plan auto`, `stream`, `window`, `joint`, `measure` and `network`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fugu.library.report import Result
from fugu_cli.app import NotPrivateOption, check_commands, output_option
from fugu_cli.commands.plan_options import (
    AdversaryOption,
    AutoOptions,
    ChainOptions,
    GroupOptions,
    HeaderOptions,
    JointOptions,
    PolicyOptions,
    ProtectOption,
    StreamOptions,
    WindowOptions,
)

_OutputOption = Annotated[Path | None, output_option("FILE", "Write a policy.")]


def auto(
    readings: Annotated[
        list[Path], Argument(metavar="READINGS...", help="CSV (also gzipped), not to be released; one of each donor.")
    ],
    *,
    options: AutoOptions,
    group: GroupOptions,
    output: Annotated[
        Path | None,
        output_option("DIR", "Write policy.json, agent.toml and plan.html there; of a group group.toml, or policies."),
    ] = None,
    not_private: NotPrivateOption = False,
    force: Annotated[bool, Option("--force", help="Overwrite the plan that is in DIR.")] = False,
) -> Result:
    """Plan from a recording and a question.

    Is it useful, is it private, how far off is it, and what do attackers make of it? Exit code 3: not useful, or not
    private.

    It compares symbols at several periods and windows of several lengths, or points of places, at the same epsilon. It
    attacks the recommendation, and judges it on a part of the recording that played no part in the choice. It says so
    if no answer is worth it.

    \b
    examples:
      fugu plan auto sleep.csv.gz --baseline 300 -o plan
      fugu plan auto ann.csv bob.csv cid.csv -o plan
      fugu plan auto motion.csv --column state --time last_changed --within 5% --latency 8h
      fugu plan auto rooms.csv --want histogram --devices 20 --json
      fugu plan auto water.csv --homes 60 --protect 1h -o street
    """
    from fugu_cli.commands.auto_plan import plan_homes, plan_recordings

    if group != GroupOptions():
        return plan_homes(readings, options, group, output, not_private=not_private, force=force)
    return plan_recordings(readings, options, output=output, not_private=not_private, force=force)


def stream(options: StreamOptions, chains: ChainOptions, policy: PolicyOptions, output: _OutputOption = None) -> Result:
    """Plan a stream: how to randomise each reading.

    It shows the cost as well, and what else could be done.

    With --model the class of chains is the one that 'fugu plan model' found to cover the recording's stretches. For a
    bare "transition" it is that chain alone if two states step both ways, else all steps within its odds ratios.

    \b
    examples:
      fugu plan stream --q 0.08938 --r 0.10924 --epsilon 1
      fugu plan stream --q 0.08:0.10 --r 0.10:0.12 --epsilon 1 --adversary universal --json
      fugu plan stream --model chain.json --epsilon 2 --every 10 -o policy.json \\
          --for home/wrist-1/heart --threshold 61.5
    """
    from fugu_cli.commands.plan_work import plan_stream

    return plan_stream(options, chains, policy, output)


def window(options: WindowOptions, chains: ChainOptions, policy: PolicyOptions, output: _OutputOption = None) -> Result:
    """Plan windows of ticks.

    With --window it plans a policy for a device that counts, and says how far off its answers are. Without, it compares
    the Laplace noise that each mechanism needs for the same guarantee.

    \b
    examples:
      fugu plan window --q 0.1 --r 0.4 --epsilon 1 --period 1 --window 5m
      fugu plan window --model chain.json --epsilon 1 --window 5m --window day=24h:0.2 --symbols 0.5 -o policy.json \\
          --for home/wrist-1/heart
      fugu plan window --q 0.1 --r 0.4 --epsilon 1 --mechanism auto --query histogram --json
      fugu plan window --model chain.json --epsilon 1 --length 60
    """
    from fugu_cli.commands.plan_work import plan_window

    return plan_window(options, chains, policy, output)


def joint(
    model: Annotated[Path, Argument(metavar="MODEL", help="File of 'fugu plan model' with several streams.")],
    *,
    options: JointOptions,
    header: HeaderOptions,
    output: Annotated[Path | None, output_option("DIR", "Write a policy for each stream there.")] = None,
) -> Result:
    """Plan streams that move together, under one epsilon.

    Each stream gets its own noise; epsilon is for all of them together.

    Every policy names all streams and what each may tell of a tick, so that each device checks its own alone. Streams
    have the names of the model; --for FLEET/A,B puts each on a device of its own.

    \b
    examples:
      fugu plan joint both.json --epsilon 1
      fugu plan joint both.json --epsilon 1 --share 2,1 --window 1h --json
      fugu plan joint both.json --epsilon 1 --known --adversary ignorant -o policies --for home/wrist-1
    """
    from fugu_cli.commands.plan_work import plan_joint

    return plan_joint(model, options, header, output=output)


def measure(
    file: Annotated[Path, Argument(metavar="FILE", help="Specification, in TOML or JSON; its keys are below.")],
    *,
    adversary: AdversaryOption = "ignorant",
    apart: Annotated[
        list[str] | None,
        Option(
            metavar="NAMES",
            help="These states are a group, the rest another: which group it is may be told, and not which of it.",
        ),
    ] = None,
    hide: Annotated[
        str | None, Option(metavar="NAMES", help="No point may tell whether somebody is in one of these.")
    ] = None,
    protect: ProtectOption = None,
    quick: Annotated[
        bool, Option("--quick", help="Leave out what is slow for many states: optimal table, stream's epsilon.")
    ] = False,
    svg: Annotated[Path | None, Option(metavar="FILE", help="Draw states, policy graph and hull.")] = None,
    output: _OutputOption = None,
) -> Result:
    """Plan private measurements of many states, such as places.

    It plans a point at every tick, with noise by a policy graph, and says what all points reveal.

    \b
    keys of FILE (lists are by state; states are counted from 0):
      coordinates  [[x, y], ...] what is measured, 1 to 3 whole numbers; or
      grid         "10x10": cells row by row, with a random walk unless transition is given
      transition   [[p, ...], ...], or a file of 'fugu plan model --grid' (brings coordinates and names as well)
      graph        pairs that no point may tell apart: {complete = true}, {categories = [...]},
                   {radius = 1.5}, {transition = true} or {edges = [[0, 1], ...]}; in names as --apart and --hide
                   say it, {apart = [["kitchen", "bath"]]} or {hidden = ["kitchen"]}
      epsilon      most that a point may tell about such a pair, in nats
      initial      [p, ...] at tick 0, "stationary", or "any": any state is possible (the default)
      names, resolution (size of a lattice step: coordinates are divided by it), unit,
      objective (of added edges: error, nearest or area), mechanism (staircase or optimal), delta
      for -o also: fleet, device, stream, period, latency, version, epoch, valid_until, discretiser

    \b
    examples:
      fugu plan measure place.toml
      fugu plan measure place.toml --json --quick
      fugu plan measure place.toml --svg place.svg -o policy.json
      fugu plan measure home.toml --quick --apart kitchen,bath
    """
    from fugu_cli.commands.measure_work import plan_measure

    return plan_measure(file, adversary, apart=apart, hide=hide, protect=protect, quick=quick, svg=svg, output=output)


def network(
    file: Annotated[Path, Argument(metavar="FILE", help="The network, in TOML or JSON; its keys are below.")],
) -> Result:
    """Plan a release over variables that depend on one another.

    It prints the noise of each mechanism.

    \b
    keys of FILE:
      variables  a list, parents first: name; table, the probabilities of its values, nested by the values of its
                 parents (numbers, or texts such as "1/3"); parents, a list of names; values, a list of names
      query      {weights = [what each value adds]}, or by variable {weights = {ann = [0, 1]}}, the others adding
                 nothing; or {lipschitz = 1}: any answer that one variable alone changes by at most that
      secrets    "all" (the default), a list of variables, or pairs of values: {ann = [["well", "ill"]]}
      epsilon    most that the answer may tell about a secret, in nats

    \b
    examples:
      fugu plan network flu.toml
      fugu plan network flu.toml --json
    """
    from fugu_cli.commands.measure_work import plan_network_file

    return plan_network_file(file)


check_commands(__name__)
