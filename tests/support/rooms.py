"""Folders of the tests of a room and of the rooms above it: `make quick ROOM=gateway.release`."""

from __future__ import annotations

import sys

from tests.test_structure import ALLOWED, ROOMS

__all__ = ["FOLDERS", "above", "folders"]

# Only where the folder has another name than the room's last part.
FOLDERS = {
    "mqtt_link": "link",
    "edge_agent": "edge",
    "firmware_sim": "firmware",
    "fugu": "cli",
    "gateway.database": "service",
    "gateway.deployment": "deploy",
    "gateway.exact": "audit",
}
_EVERYWHERE = ("tests/test_structure.py", "tests/system", "tests/foreign")


def above(room: str) -> set[str]:
    """A room and all that may import it, or what imports it."""
    rooms = {**{name: allowed for name, allowed in ALLOWED.items() if name != "gateway"}}
    rooms |= {name: allowed | ALLOWED["gateway"] for name, allowed in ROOMS.items()}
    rooms["fugu"] = rooms["fugu"] | set(ROOMS)
    if room not in rooms:
        raise SystemExit(f"{room} is no room: there are {', '.join(sorted(rooms))}")
    found = {room}
    while more := {name for name, allowed in rooms.items() if allowed & found} - found:
        found |= more
    return found


def folders(room: str) -> list[str]:
    """What to give to pytest; tests of the whole are of every room."""
    found = {f"tests/{FOLDERS.get(name, name.rpartition('.')[2])}" for name in above(room)}
    return [*sorted(found), *_EVERYWHERE]


if __name__ == "__main__":
    print(*folders(sys.argv[1]))
