"""How much an object holds: the sizes of all containers within it, wherever they are."""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from typing import Any

_OURS = ("gateway.", "fugu.mqtt.", "fugu.contract.", "host.")
_CONTAINERS = (dict, list, set, frozenset, deque, tuple)


def held(root: object) -> dict[str, int]:
    """The sizes of the containers that can be reached through objects of this project, by where they are.

    Containers of one place in the program, such as those of all devices, are added up.
    """
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while waiting:
        where, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, SimpleQueue):
            sizes[where] = sizes.get(where, 0) + part.qsize()
        elif isinstance(part, _CONTAINERS):
            if not isinstance(part, tuple):
                sizes[where] = sizes.get(where, 0) + len(part)
            inside = [*part.values(), *part] if isinstance(part, dict) else list(part)
            waiting += [(where + "[]", each) for each in inside]
        elif type(part).__module__.startswith(_OURS):
            waiting += [(f"{where}.{name}", value) for name, value in _attributes(part).items()]
    return sizes


def _attributes(part: object) -> dict[str, Any]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return {**{name: getattr(part, name) for name in slots if hasattr(part, name)}, **getattr(part, "__dict__", {})}
