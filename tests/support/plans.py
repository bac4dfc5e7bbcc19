"""Plans that tests make again and again: once each, with curves of few points."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["remembered_plans"]

_EPSILONS = {"fugu.planning.auto": (1.0, 1.5, 2.0, 20.0), "fugu.planning.auto_places": (1.0, 8.0)}


@contextmanager
def remembered_plans() -> Iterator[None]:
    """Most of what a plan takes are points of its curves: `fugu try` and the documents have all of them."""
    from fugu.library import plans

    with pytest.MonkeyPatch.context() as patch:
        for module, epsilons in _EPSILONS.items():
            patch.setattr(f"{module}._EPSILONS", epsilons)
        for name in ("plan_auto", "plan_places"):
            patch.setattr(plans, name, _remembered(getattr(plans, name)))
        yield


def _remembered(plan: Callable[..., Any]) -> Callable[..., Any]:
    cached: dict[bytes, Any] = {}

    def planned(*words: Any, **options: Any) -> Any:
        *asked, rng = words
        key = pickle.dumps((asked, rng.bit_generator.state))
        if key not in cached:
            cached[key] = plan(*words, **options)
        return cached[key]

    return planned
