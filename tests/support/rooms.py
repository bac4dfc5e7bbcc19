"""Which rooms may import which; the tests of a room and of those above it, for `make quick ROOM=gateway.releases`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

__all__ = ["ROOMS", "TOPS", "above", "folders", "room_of"]

_PROGRAMS = {"fugu.contract", "fugu.host", "fugu.mqtt"}
"""Rooms that talk to a broker."""
_EDGE = {*_PROGRAMS, "fugu.core"}
_NUMBERS = {"fugu.contract", "fugu.chains", "fugu.privacy"}
_EXACT = {"fugu.audit.exact", "fugu.audit.exact.chains"}
_RECORDED = {"fugu.attackers", "fugu.lanes", "fugu.places", "fugu.planning", "fugu.recordings"}
_SERVED = {*_PROGRAMS, "fugu.chains", "gateway.estimates", "gateway.store"}
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
    "fugu.attackers": _NUMBERS,
    "fugu.recordings": {"fugu.contract", "fugu.host", "fugu.chains"},
    "fugu.planning": {*_NUMBERS, "fugu.host", "fugu.places", "fugu.attackers", "fugu.recordings"},
    "fugu.audit.exact": set(),
    "fugu.audit.exact.guesses": set(),
    "fugu.audit.exact.chains": {"fugu.audit.exact", "fugu.audit.exact.guesses"},
    "fugu.audit": {*_NUMBERS, *_EXACT},
    "edge_agent": _EDGE,
    "fugu_helper": _PROGRAMS,
    "firmware_sim": {*_EDGE, "edge_agent"},
    "gateway.store": {*_PROGRAMS, "fugu.chains"},
    "gateway.config": {*_PROGRAMS, "gateway.store"},
    "gateway.estimates": {"fugu.chains", "fugu.contract", "fugu.places", "gateway.store"},
    "gateway.parts": {*_SERVED, "fugu.places"},
    "gateway.releases": {*_SERVED, "fugu.core", "fugu.privacy"},
    "gateway.health": {*_PROGRAMS, "gateway.estimates", "gateway.parts", "gateway.store"},
    "gateway.history": {*_NUMBERS, "gateway.estimates", "gateway.releases", "gateway.store"},
    "gateway.deployment": {
        *(_PROGRAMS | {"gateway.config", "gateway.estimates", "gateway.health", "gateway.releases", "gateway.store"})
    },
    "gateway.fleet": {
        *(_PROGRAMS | {"fugu.places", "fugu.planning", "fugu.privacy"}),
        *("gateway.config", "gateway.estimates", "gateway.health", "gateway.parts"),
    },
    "gateway.page": {
        *(_PROGRAMS | {"fugu.attackers", "gateway.config", "gateway.health", "gateway.releases", "gateway.store"})
    },
    "gateway.audit": {
        *(_NUMBERS | _EXACT | {"fugu.attackers", "fugu.audit", "fugu.host", "fugu.planning"}),
        *("gateway.deployment", "gateway.releases", "gateway.store"),
    },
    "gateway.loop": {
        *(_SERVED | {"gateway.config", "gateway.fleet", "gateway.health", "gateway.parts", "gateway.releases"})
    },
    "gateway.cluster": {
        *(_PROGRAMS | {"gateway.config", "gateway.estimates", "gateway.health", "gateway.loop", "gateway.parts"}),
        *("gateway.releases", "gateway.store"),
    },
    "fugu_cli.view": {*(_EDGE | _NUMBERS | _SITE | _RECORDED), "edge_agent", "fugu.audit", "fugu.library"},
    "fugu.library": {*(_PROGRAMS | _RECORDED), "fugu.privacy", "gateway.config", "gateway.history"},
    "fugu_cli": {
        *(_EDGE | _NUMBERS | _SITE | _RECORDED),
        *("edge_agent", "firmware_sim", "fugu.audit", "fugu.library", "fugu_cli.view", "fugu_helper"),
    },
    "papers": {*(_NUMBERS | _RECORDED), "fugu_cli", "fugu_cli.view"},
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
