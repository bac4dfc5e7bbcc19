"""systemd units, filled in from the templates in `systemd/`, and where the folders that they name lie once installed.

The container files say the same. And what can be wrong with a deployment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fugu.contract.errors import FuguError

__all__ = ["AGENT", "BROKER", "GATEWAY", "SHARD_UNIT", "DeploymentError", "unit"]

_TEMPLATES = Path(__file__).parent / "systemd"
_FIELD = re.compile(r"@([A-Z_]+)@")


class DeploymentError(FuguError):
    """There is no such account, it may not be what was asked for, or files of a deployment are missing or wrong."""


class Place(NamedTuple):
    """A service's folder of configuration, and the folder that it may write to."""

    config: str
    state: str


BROKER = Place("/etc/fugu-broker", "/var/lib/fugu-broker")
GATEWAY = Place("/etc/fugu-gateway", "/var/lib/fugu-gateway")
AGENT = Place("/etc/fugu-agent", "/var/lib/fugu-agent")
SHARD_UNIT = "fugu-shard@.service"


def unit(name: str, fields: Mapping[str, str]) -> str:
    """Fill a template in; `@NAME@` stands for the field NAME, and a line that is empty then disappears.

    Fields must be safe in a unit: paths and names without white space, quotes or `%`, but for specifiers that are
    meant. Raises DeploymentError if the installation lacks its templates.
    """
    try:
        template = (_TEMPLATES / name).read_text()
    except OSError:
        raise DeploymentError(f"the template {name} is missing in this installation") from None
    return _FIELD.sub(lambda match: fields[match[1]], template)
