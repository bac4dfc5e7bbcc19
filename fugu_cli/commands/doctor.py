"""`fugu doctor`."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path

import typer

from fugu.host.checks import failed, lines
from fugu_cli.app import JsonOption, command
from fugu_cli.view.terminal import answer, say_waiting, working

__all__ = ["of_gateway"]

doctor = typer.Typer(rich_markup_mode=None, add_completion=False)
_AGENT, _GATEWAY = "agent.toml", "gateway.toml"


@command(doctor)
def _doctor(file: Path, *, as_json: JsonOption = False) -> int:
    """Look at an installation, and say what to do.

    Exit code 1 if something does not work.

    \b
    examples:
      fugu doctor agent.toml
      fugu doctor gateway.toml
      fugu doctor /etc/fugu-gateway

    Args:
        file (FILE): A device's agent.toml, a gateway's gateway.toml, or its folder.
    """
    if file.is_dir():
        file /= _AGENT if (file / _AGENT).exists() else _GATEWAY
    if of_gateway(file):
        from gateway.deployment.doctor import examine, installed

        installation = installed(file)
        with working("looking at everything"):
            found = examine(installation, say_waiting)
    else:
        from edge_agent.doctor import examine as examine_device

        found = examine_device(file, say_waiting)
    answer(as_json, lambda: {"findings": [one._asdict() for one in found]}, lambda: print("\n".join(lines(found))))
    return 1 if failed(found) else 0


def of_gateway(file: Path) -> bool:
    """True if a file is a gateway's: by its name, or by a key that no agent's has."""
    with suppress(OSError, ValueError, RecursionError):
        return file.name == _GATEWAY or "store" in tomllib.loads(file.read_text())
    return file.name == _GATEWAY
