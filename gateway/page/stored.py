"""Counts of the store beside the page, which the attackers' process reads for devices that are looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_TICK, WindowFrame
from gateway.store.location import Location
from gateway.store.store import Store

__all__ = ["stored_counts"]


def stored_counts(location: Location, device: str, since: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """Frames of a device's windows as a gateway has stored them, by stream, in their order.

    Args:
        location: of the store, whose gateway may go on.
        device: of the fleet.
        since: the first tick that is read of a window, by stream and window.
    """
    frames = defaultdict[str, list[WindowFrame]](list)
    try:
        with closing(Store(location, create=False)) as store, store.snapshot():
            for (stream, window), tick in since.items():
                number = store.stream_id(device, f"{stream}/{window}")
                if number is not None:
                    frames[stream] += store.windows.within(number, tick, MAX_TICK)
    except FuguError as error:
        return {"none": str(error)}
    return {"frames": dict(frames)}
