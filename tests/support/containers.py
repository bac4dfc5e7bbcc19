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
        where, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, SimpleQueue):
            sizes[where] = sizes.get(where, 0) + one.qsize()
        elif isinstance(one, _CONTAINERS):
            if not isinstance(one, tuple):
                sizes[where] = sizes.get(where, 0) + len(one)
            inside = [*one.values(), *one] if isinstance(one, dict) else list(one)
            waiting += [(where + "[]", each) for each in inside]
        elif type(one).__module__.startswith(_OURS):
            waiting += [(f"{where}.{name}", value) for name, value in _attributes(one).items()]
    return sizes


def _attributes(one: object) -> dict[str, Any]:
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    return {**{name: getattr(one, name) for name in slots if hasattr(one, name)}, **getattr(one, "__dict__", {})}
