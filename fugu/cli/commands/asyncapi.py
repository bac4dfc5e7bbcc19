"""`fugu gateway asyncapi`."""

from __future__ import annotations

import typer

from fugu.cli.commands.options import command
from fugu.contract.asyncapi import asyncapi_json

asyncapi = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(asyncapi)
def _asyncapi() -> None:
    """Print the protocol as an AsyncAPI 3 document.

    Every topic, and what its messages hold.

    \b
    examples:
      fugu gateway asyncapi > asyncapi.json
    """
    print(asyncapi_json(), end="")
