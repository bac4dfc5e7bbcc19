"""systemd units, filled in from the templates in `systemd/`, and where the folders that they name lie once installed.

The container files say the same. And what can be wrong with a deployment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.files import read_text
from fugu.mqtt import Broker
from gateway.store.shards import own_account

__all__ = ["AGENT", "BROKER", "GATEWAY", "NO_ACCOUNT", "SHARD_UNIT", "accounts_beside", "unit"]

_TEMPLATES = Path(__file__).parent / "systemd"
_FIELD = re.compile(r"@([A-Z_]+)@")


class Place(NamedTuple):
    """A service's folder of configuration, and the folder that it may write to."""

    config: str
    state: str


BROKER = Place("/etc/fugu-broker", "/var/lib/fugu-broker")
GATEWAY = Place("/etc/fugu-gateway", "/var/lib/fugu-gateway")
AGENT = Place("/etc/fugu-agent", "/var/lib/fugu-agent")
SHARD_UNIT = "fugu-shard@.service"
NO_ACCOUNT = "it has no account, and the shards end one another's connections: fugu deploy gateway --renew --shards N"


def unit(name: str, fields: Mapping[str, str]) -> str:
    """Fill a template in; `@NAME@` stands for the field NAME, and a line that is empty then disappears.

    Fields must be safe in a unit: paths and names without white space, quotes or `%`, but for specifiers that are
    meant. Raises FuguError if the installation lacks its templates.
    """
    try:
        template = (_TEMPLATES / name).read_text()
    except OSError:
        raise FuguError(f"the template {name} is missing in this installation") from None
    return _FIELD.sub(lambda match: fields[match[1]], template)


def accounts_beside(folder: Path, gateway: Broker) -> dict[str, Broker | None]:
    """Connections of the shards that there shall be; None if a shard has no account of its own.

    Their number is in their unit. Without a unit they go up to the last that has a credential.
    """
    file = folder / SHARD_UNIT
    text = read_text(file, "the unit") if file.exists() else ""
    if count := re.search(r" --shard %i/(\d+)$", text, re.MULTILINE):
        shards = int(count[1])
    else:
        names = (re.fullmatch(r"(?:password|client)-(\d+)(?:\.pem|\.key)?", path.name) for path in folder.iterdir())
        shards = max((int(name[1]) + 1 for name in names if name), default=0)
    return {f"shard {index}": own_account(gateway, index) for index in range(shards)}
