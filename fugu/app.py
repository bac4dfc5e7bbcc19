"""The commands behind `fugu`, put together; each loads what it computes with when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from fugu.commands import deploy, fleet, gateway, ledger, loss, model, plan, policy, release
from fugu.errors import CommandLineError

__all__ = ["app", "run"]

# The framework exports only the leaf of its tree of usage errors; its parent stands for all of them.
_USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
_FORWARDED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

app = typer.Typer(
    name="fugu",
    help="Private sensor streams: plan a guarantee, run devices and gateways, read private streams.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(model.app, name="model")
app.add_typer(plan.app, name="plan")
app.add_typer(loss.app, name="loss")
app.add_typer(policy.app, name="policy")
app.add_typer(gateway.app, name="gateway")
app.command("release")(release.release)
app.add_typer(ledger.app, name="ledger")
app.add_typer(deploy.app, name="deploy")
app.add_typer(fleet.app, name="fleet")
agent_app = typer.Typer(help="The side that randomises, on a device.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(agent_app, name="agent")


@cache
def _command() -> Callable[..., Any]:
    """All commands, put together once."""
    return typer.main.get_command(app)


def run(words: list[str]) -> int:
    """Run a command of the application.

    Raises:
        FuguError: what was wrong, for the caller to print.
    """
    try:
        code = _command()(args=words, prog_name="fugu", standalone_mode=False)
    except typer.Abort:
        return 130
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "fugu"
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return 2
        raise CommandLineError(f"{error.format_message()} (try '{path} --help')") from None
    return int(code or 0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Private sensor streams: plan a guarantee, run devices and gateways, read private streams.

    \b
    examples:
      fugu model fit sleep.csv.gz --column state -o chain.json
      fugu plan stream --model chain.json --epsilon 1
      fugu subscribe --fleet home --json
    """
    if version:
        from importlib.metadata import version as installed

        print(f"fugu {installed('fugu-edge')}")
        raise typer.Exit


@agent_app.command("run", context_settings=_FORWARDED, help="Run the agent of one device: fugu agent run CONFIG.toml")
def _agent_run(context: typer.Context) -> int:
    from edge_agent.__main__ import main

    return main(context.args)


@agent_app.command("status", context_settings=_FORWARDED, help="How the agent on this device is: its sensors, too.")
def _agent_status(context: typer.Context) -> int:
    from edge_agent.__main__ import main

    return main(["--status", *context.args])


@app.command("subscribe", context_settings=_FORWARDED)
def _subscribe(context: typer.Context) -> int:
    """Print private readings of a fleet, symbols, estimates and releases, as they arrive."""
    from fugu.commands.subscribe import main

    return main(context.args)


@app.command("demo")
def _demo(
    seconds: Annotated[float, typer.Option(help="How long the streams run.")] = 60.0,
    out: Annotated[Path, typer.Option(help="Folder for report.html and everything that the run writes.")] = Path(
        "demo"
    ),
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show the running system in the terminal.")] = True,
    broker_kind: Annotated[str, typer.Option(help="auto, mosquitto or embedded.")] = "auto",
) -> int:
    """Show the whole system on three recordings of sleeping hearts: real processes, real MQTT, on this machine.

    \b
    examples:
      fugu demo
      fugu demo --seconds 20 --no-live --out /tmp/demo
    """
    from fugu.commands.arguments import one_of, positive
    from fugu.demo.session import run as demo

    kind = one_of(broker_kind, "broker kind", ("auto", "mosquitto", "embedded"))
    return demo(out, positive(seconds, "seconds"), live, kind)


@app.command("demo-location")
def _demo_location(
    seconds: Annotated[float, typer.Option(help="How long the walk takes.")] = 40.0,
    out: Annotated[Path, typer.Option(help="Folder for report.html and everything that the run writes.")] = Path(
        "demo-location"
    ),
    broker_kind: Annotated[str, typer.Option(help="auto, mosquitto or embedded.")] = "auto",
) -> int:
    """Show a private measurement: a walk on a grid, tables from the gateway, restarts and losses, and a map.

    \b
    examples:
      fugu demo-location
      fugu demo-location --seconds 20 --out /tmp/walk
    """
    from fugu.commands.arguments import one_of, positive
    from fugu.demo.location import run as demo

    kind = one_of(broker_kind, "broker kind", ("auto", "mosquitto", "embedded"))
    return demo(out, positive(seconds, "seconds"), kind)
