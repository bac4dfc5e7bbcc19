"""A stream that is measured no longer: what was drawn as points is framed as points, whatever comes after."""

from __future__ import annotations

from pathlib import Path

from edge_agent.outbox import Outbox
from fugu.contract.measure_frames import Released
from tests.support.agents import plan_of, stream_plan
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames


def test_points_are_framed_although_the_next_policy_has_longer_frames_of_symbols(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    before = plan_of(measure_policy(3), stream="hr", frame_ticks=10)
    outbox.register(before)
    outbox.append(before, 1, Released(0, (3, 4)).packed)
    outbox.append(stream_plan(version=2, frame_ticks=4096), 2, b"\1")
    (frame,) = measure_frames(outbox)
    assert (frame.policy_version, frame.first, frame.released) == (1, 1, (Released(0, (3, 4)),))
