"""Which rooms may import which; the tests of a room and of those above it, for `make quick ROOM=gateway.release`."""

from __future__ import annotations

import sys

__all__ = ["ALLOWED", "FOLDERS", "ROOMS", "above", "folders"]

ALLOWED = {
    "contract": set(),
    "host": {"contract"},
    "mqtt_link": {"contract"},
    "edge_agent": {"contract", "host", "mqtt_link"},
    "firmware_sim": {"contract", "host", "mqtt_link", "edge_agent"},
    "gateway": {"contract", "host", "mqtt_link"},
    "fugu": {"contract", "host", "mqtt_link", "edge_agent", "firmware_sim", "gateway"},
    "papers": {"contract", "gateway", "fugu"},
}
ROOMS = {
    "gateway.chain": set(),
    "gateway.exact": set(),
    "gateway.privacy": {"gateway.chain"},
    "gateway.dphmm": {"gateway.chain", "gateway.privacy", "gateway.svg"},
    "gateway.attack": {"gateway.chain"},
    "gateway.planning": {"gateway.chain", "gateway.privacy", "gateway.dphmm", "gateway.attack"},
    "gateway.release": {"gateway.chain", "gateway.database", "gateway.location", "gateway.privacy"},
    "gateway.fleet": {"gateway.files", "gateway.planning", "gateway.privacy", "gateway.dphmm"},
    "gateway.dashboard": {"gateway.location", "gateway.release"},
    "gateway.database": {"gateway.location"},
    "gateway.deployment": {"gateway.files", "gateway.location", "gateway.service", "gateway.shard_accounts"},
    "gateway.cluster": {"gateway.database", "gateway.location", "gateway.service"},
    "gateway.history": {
        *("gateway.chain", "gateway.privacy", "gateway.release", "gateway.service"),
        *("gateway.database", "gateway.location"),
    },
    "gateway.audit": {
        *("gateway.attack", "gateway.chain", "gateway.planning", "gateway.privacy", "gateway.release"),
        *("gateway.exact", "gateway.deployment", "gateway.files", "gateway.service"),
    },
    "gateway.service": {
        *("gateway.chain", "gateway.privacy", "gateway.dphmm", "gateway.release", "gateway.fleet"),
        *("gateway.database", "gateway.location", "gateway.shard_accounts"),
    },
}
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
    rooms["fugu"] = rooms["papers"] = rooms["fugu"] | set(ROOMS)
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
