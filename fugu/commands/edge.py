"""`fugu agent` and `fugu subscribe` among the other commands; `fugu.main` starts both without this framework."""

from __future__ import annotations

import typer

from edge_agent.__main__ import main as agent_main
from fugu.commands.subscribe import main as subscribe_main

__all__ = ["agent", "subscribe"]

_FORWARDED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

agent = typer.Typer(
    help="The side that randomises, on a device.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)
subscribe = typer.Typer(rich_markup_mode=None, add_completion=False)


@agent.command("run", context_settings=_FORWARDED, help="Run the agent of one device: fugu agent run CONFIG.toml")
def _run(context: typer.Context) -> int:
    return agent_main(context.args)


@agent.command("status", context_settings=_FORWARDED, help="How the agent on this device is: its sensors, too.")
def _status(context: typer.Context) -> int:
    return agent_main(["--status", *context.args])


@subscribe.command(context_settings=_FORWARDED)
def _subscribe(context: typer.Context) -> int:
    """Print private readings of a fleet, symbols, estimates and releases, as they arrive."""
    return subscribe_main(context.args)
