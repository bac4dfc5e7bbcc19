"""systemd units from the templates in `systemd/`, and the installed folders that they name.

The container files name the same folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.files import read_text
from fugu.mqtt import Broker
from gateway.store.shards import own_account

__all__ = ["AGENT", "BROKER", "GATEWAY", "NO_ACCOUNT", "SHARD_UNIT", "shard_accounts", "unit"]

_TEMPLATES = Path(__file__).parent / "systemd"
_FIELD = re.compile(r"@([A-Z_]+)@")


class Place(NamedTuple):
    """A service's folder of configuration, and the folder that the service may write to."""

    config: str
    state: str

    def credentials(self, names: Iterable[str]) -> str:
        """Return the lines of a unit that pass files of the folder of configuration to the service as credentials."""
        return "\n".join(f"LoadCredential={name}:{self.config}/{name}" for name in names)


BROKER = Place("/etc/fugu-broker", "/var/lib/fugu-broker")
GATEWAY = Place("/etc/fugu-gateway", "/var/lib/fugu-gateway")
AGENT = Place("/etc/fugu-agent", "/var/lib/fugu-agent")
SHARD_UNIT = "fugu-shard@.service"
NO_ACCOUNT = "it has no account, and the shards end one another's connections: fugu deploy gateway --renew --shards N"


def unit(template_name: str, fields: Mapping[str, str]) -> str:
    """Fill in the template of a unit, replacing `@NAME@` by the field NAME.

    Fields must be safe in a unit: paths and names without white space, quotes or `%`, except for intended specifiers.
    Raises FuguError if the installation lacks the template.
    """
    try:
        template = (_TEMPLATES / template_name).read_text()
    except OSError:
        raise FuguError(f"the template {template_name} is missing in this installation") from None
    return _FIELD.sub(lambda match: fields[match[1]], template)


def shard_accounts(folder: Path, gateway: Broker) -> dict[str, Broker | None]:
    """Return the connection of each shard of a gateway, by name; `None` for a shard without an account of its own.

    The number of shards is in their unit. Without a unit, the last shard is the last one with a credential.
    """
    file = folder / SHARD_UNIT
    unit_text = read_text(file, "the unit") if file.exists() else ""
    if count_match := re.search(r" --shard %i/(\d+)$", unit_text, re.MULTILINE):
        shards = int(count_match[1])
    else:
        matches = (re.fullmatch(r"(?:password|client)-(\d+)(?:\.pem|\.key)?", path.name) for path in folder.iterdir())
        shards = max((int(match[1]) + 1 for match in matches if match), default=0)
    return {f"shard {index}": own_account(gateway, index) for index in range(shards)}
