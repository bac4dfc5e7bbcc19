"""systemd units, filled in from the templates in `systemd/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.deployment.errors import DeploymentError

__all__ = ["unit"]

_TEMPLATES = Path(__file__).parent / "systemd"
_FIELD = re.compile(r"@([A-Z_]+)@")


def unit(name: str, fields: Mapping[str, str]) -> str:
    """Fill a template in; `@NAME@` stands for the field NAME, and a line that is empty then disappears.

    Args:
        name: of the template, such as "fugu-agent.service".
        fields: their texts, which must be safe in a unit: paths and names without white space, quotes or `%`, but for
            specifiers that are meant.

    Raises:
        DeploymentError: the installation lacks its templates.
    """
    try:
        template = (_TEMPLATES / name).read_text()
    except OSError:
        raise DeploymentError(f"the template {name} is missing in this installation") from None
    return _FIELD.sub(lambda match: fields[match[1]], template)
