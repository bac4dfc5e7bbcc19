"""A policy that takes the place of another in its file has a higher version."""

from __future__ import annotations

import pytest

from fugu.planning.policy_builder import next_version
from tests.support.scenes import policy

PLANNED = policy(1)


def changed(version: int) -> str:
    """Another policy of the same stream."""
    return PLANNED.model_copy(update={"version": version, "frame_ticks": PLANNED.frame_ticks + 1}).to_json()


@pytest.mark.parametrize(
    ("before", "version"),
    [
        (None, 1),
        ("no policy", 1),
        ("{}", 1),
        (policy(4, device="ring").to_json(), 1),
        (PLANNED.to_json(), 1),
        (policy(7).to_json(), 7),
        (changed(1), 2),
        (changed(41), 42),
    ],
)
def test_a_replaced_policy_gets_the_next_version(before: str | None, version: int) -> None:
    policy = next_version(PLANNED, before)
    assert policy == PLANNED.model_copy(update={"version": version})
