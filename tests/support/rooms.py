"""Which rooms may import which; the tests of a room and of those above it, for `make quick ROOM=gateway.releases`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

__all__ = ["ROOMS", "TOPS", "above", "folders", "room_of"]

_EDGE = {"fugu.contract", "fugu.core", "fugu.host", "fugu.mqtt"}
_NUMBERS = {"fugu.contract", "fugu.chains", "fugu.privacy"}
_EXACT = {"fugu.audit.exact", "fugu.audit.exact.chains"}
_PARTS = "audit cluster config deployment estimates fleet health history loop page parts releases store"
_SITE = {f"gateway.{part}" for part in _PARTS.split()}
ROOMS: dict[str, set[str]] = {
    "fugu.core": set(),
    "fugu.contract": {"fugu.core"},
    "fugu.host": {"fugu.contract"},
    "fugu.mqtt": {"fugu.contract"},
    "fugu.chains": set(),
    "fugu.lanes": set(),
    "fugu.privacy": {"fugu.contract", "fugu.chains"},
    "fugu.places": _NUMBERS,
    "fugu.attackers": {"fugu.contract", "fugu.chains", "fugu.privacy"},
    "fugu.recordings": {"fugu.contract", "fugu.host", "fugu.chains"},
    "fugu.planning": {*_NUMBERS, "fugu.host", "fugu.places", "fugu.attackers", "fugu.recordings"},
    "fugu.audit.exact": set(),
    "fugu.audit.exact.guesses": set(),
    "fugu.audit.exact.chains": {"fugu.audit.exact", "fugu.audit.exact.guesses"},
    "fugu.audit": {*_NUMBERS, *_EXACT},
    "edge_agent": _EDGE,
    "fugu_helper": {"fugu.contract", "fugu.host", "fugu.mqtt"},
    "firmware_sim": {*_EDGE, "edge_agent"},
    "gateway.store": {"fugu.chains", "fugu.contract", "fugu.host", "fugu.mqtt"},
    "gateway.config": {"fugu.contract", "fugu.host", "fugu.mqtt", "gateway.store"},
    "gateway.estimates": {"fugu.chains", "fugu.contract", "fugu.places", "gateway.store"},
    "gateway.parts": {
        "fugu.chains",
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "fugu.places",
        "gateway.estimates",
        "gateway.store",
    },
    "gateway.releases": {
        "fugu.chains",
        "fugu.contract",
        "fugu.core",
        "fugu.host",
        "fugu.mqtt",
        "fugu.privacy",
        "gateway.estimates",
        "gateway.store",
    },
    "gateway.health": {
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "gateway.estimates",
        "gateway.parts",
        "gateway.store",
    },
    "gateway.history": {
        "fugu.chains",
        "fugu.contract",
        "fugu.privacy",
        "gateway.estimates",
        "gateway.releases",
        "gateway.store",
    },
    "gateway.deployment": {
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "gateway.config",
        "gateway.estimates",
        "gateway.health",
        "gateway.releases",
        "gateway.store",
    },
    "gateway.fleet": {
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "fugu.places",
        "fugu.planning",
        "fugu.privacy",
        "gateway.config",
        "gateway.estimates",
        "gateway.health",
        "gateway.parts",
    },
    "gateway.page": {
        "fugu.attackers",
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "gateway.config",
        "gateway.health",
        "gateway.releases",
        "gateway.store",
    },
    "gateway.audit": {
        "fugu.attackers",
        "fugu.audit",
        "fugu.audit.exact",
        "fugu.audit.exact.chains",
        "fugu.chains",
        "fugu.contract",
        "fugu.host",
        "fugu.planning",
        "fugu.privacy",
        "gateway.deployment",
        "gateway.releases",
        "gateway.store",
    },
    "gateway.loop": {
        "fugu.chains",
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "gateway.config",
        "gateway.estimates",
        "gateway.fleet",
        "gateway.health",
        "gateway.parts",
        "gateway.releases",
        "gateway.store",
    },
    "gateway.cluster": {
        "fugu.contract",
        "fugu.host",
        "fugu.mqtt",
        "gateway.config",
        "gateway.estimates",
        "gateway.health",
        "gateway.loop",
        "gateway.parts",
        "gateway.releases",
        "gateway.store",
    },
    "fugu_cli.view": {
        *(_EDGE | _NUMBERS | _SITE),
        *("edge_agent", "fugu.attackers", "fugu.audit", "fugu.places", "fugu.planning", "fugu.recordings"),
        *("fugu.lanes", "fugu.library"),
    },
    "fugu.library": {
        *("fugu.attackers", "fugu.contract", "fugu.host", "fugu.mqtt", "fugu.places", "fugu.planning", "fugu.privacy"),
        *("fugu.lanes", "fugu.recordings", "gateway.config", "gateway.history"),
    },
    "fugu_cli": {
        "fugu_helper",
        *(_EDGE | _NUMBERS | _SITE),
        *("edge_agent", "firmware_sim", "fugu.attackers", "fugu.audit", "fugu.places", "fugu.planning"),
        *("fugu.lanes", "fugu_cli.view", "fugu.library", "fugu.recordings"),
    },
    "papers": {
        *_NUMBERS,
        *("fugu.attackers", "fugu.lanes", "fugu.places", "fugu.planning", "fugu.recordings"),
        *("fugu_cli", "fugu_cli.view"),
    },
}
"""By full name: what a room may import; a name that goes on is a room of its own."""
TOPS = ("edge_agent", "firmware_sim", "fugu", "fugu_cli", "fugu_helper", "gateway", "papers")
_TESTS = Path(__file__).parents[1]
_EVERYWHERE = ("tests/test_structure.py", "tests/system", "tests/docs")


@cache
def room_of(module: str) -> str | None:
    """The room of a module, or of a name in it: the longest that its name begins with."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default=None)


def above(room: str) -> set[str]:
    """A room and all that may import it, or what imports it."""
    if room not in ROOMS:
        raise SystemExit(f"{room} is no room: there are {', '.join(sorted(ROOMS))}")
    rooms = {room}
    while more := {name for name, allowed in ROOMS.items() if allowed & rooms} - rooms:
        rooms |= more
    return rooms


def folder_of(room: str) -> str:
    """The folder of a room's tests: its name without `fugu.`, or the nearest folder above."""
    folder = _TESTS / room.removeprefix("fugu.").replace(".", "/")
    return next(str(path.relative_to(_TESTS)) for path in (folder, *folder.parents) if path.is_dir())


def folders(room: str) -> list[str]:
    """Arguments for pytest; tests of the whole are of every room."""
    folders = {f"tests/{folder_of(name)}" for name in above(room)}
    return [*sorted(folders), *_EVERYWHERE]


if __name__ == "__main__":
    print(*folders(sys.argv[1]))
