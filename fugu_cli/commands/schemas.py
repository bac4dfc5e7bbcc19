"""`fugu deploy schemas`."""

from __future__ import annotations

from fugu.host.files import new_folder
from fugu_cli.app import command, command_group
from fugu_cli.commands.deploy import OutOption
from fugu_cli.schemas import write

app = command_group("Schemas of configuration files, for editors.")


@command(app, "schemas")
def schemas(out: OutOption) -> None:
    """Write schemas of configuration files, for editors.

    An editor completes keys by them, and marks wrong ones: of agent.toml, gateway.toml, dashboard.toml, helper.toml
    and releases.toml.

    \b
    examples:
      fugu deploy schemas schemas
    """
    new_folder(out)
    for file in write(out):
        print(f"{file}: first line of the file that it is of: #:schema {file}")
