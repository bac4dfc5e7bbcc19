"""What an operator should know of a document before devices get it, on stderr."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from contract.fleet_documents import Enrolment, PolicyDocument
from fugu.view.terminal import warn
from gateway.fleet import Registry
from gateway.fleet.documents import conflicting_clocks, read_checked, rollouts_at
from gateway.fleet.signing import Signed

__all__ = ["read_document", "warn_of_clocks", "warn_of_rollouts"]


def read_document(path: Path, root: Path, enrolments: Sequence[Enrolment] = ()) -> Signed:
    """Read a document and judge it as the devices will; warn if they take it only later.

    Raises:
        FuguError: too few policy keys have signed it, or no device would ever accept it; names the file.
    """
    signed, ripe = read_checked(path, root, int(time.time()), enrolments)
    if not ripe:
        warn(f"{path}: valid from {signed.document.valid_from} on; devices refuse it until then, then take it")
    return signed


def warn_of_clocks(registry: Registry, document: PolicyDocument) -> None:
    """Warn of streams that devices run with another clock."""
    for version, streams in conflicting_clocks(registry, document).items():
        names = ", ".join(sorted(streams))
        warn(
            f"devices of version {version} will refuse version {document.version}: {names} has another epoch or "
            "period; plan it with the same, or give the stream a new name"
        )


def warn_of_rollouts(registry: Registry, devices: Sequence[str]) -> None:
    """Warn of rollouts under way whose stages and gates a push to some devices does not wait for."""
    for number in rollouts_at(registry, devices):
        warn(f"rollout {number} is under way at some of these devices: a push does not wait for its stages")
