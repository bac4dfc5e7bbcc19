"""A tick that has not left writes nothing: one flush a frame, and few bytes, whatever else the agent does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMES, TICKS = 6, 30
CODE = f"""
import json, sys
from pathlib import Path
from edge_agent.agent import Agent
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, stream_plan

def written():
    return dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())

clock = JumpingClock(0)
plan = agent_plan(Path(sys.argv[1]), Broker(port=9), stream_plan(frame_ticks={TICKS}), status_seconds=0.0)
agent = Agent(plan, [ReplaySensor([0.0, 1.0], loop=True)], system_entropy(), clock)
for tick in range({TICKS} * ({FRAMES} + 1)):
    if tick == {TICKS}:
        before = written()
        Path("/wear/begin").exists()
    clock.now += SECOND
    agent._follow_pause()
    agent._ticker.catch_up()
    agent._ticker.prepare()
    agent._communicate()
    agent._local_status.answer(agent._status_document)
    if tick % {TICKS} == 7:
        newest = agent._outbox.frames.newest
        agent._outbox.frames.forget_committed("hr", tick, (), sent_through=newest, grace_seconds=0.0)
after = written()
Path("/wear/end").exists()
frames = agent._outbox.frames
print(json.dumps([frames.depth(), *(int(after[name]) - int(before[name]) for name in ("write_bytes", "wchar"))]))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel does not say what a process writes")
def test_at_most_a_flush_and_eight_kilobytes_are_written_a_frame(disk: Path) -> None:
    command = [sys.executable, "-c", CODE, str(disk)]
    log = disk / "strace"
    traced = shutil.which("strace") is not None
    if traced:
        calls = "trace=fsync,fdatasync,sync,syncfs,msync,stat,newfstatat,statx"
        command = ["strace", "-f", "-qq", "-e", calls, "-o", str(log), *command]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    depth, written, asked = json.loads(done.stdout)
    assert depth == 1
    assert written <= 8192 * FRAMES
    assert 0 < asked <= 2048 * FRAMES
    if traced:
        lines = log.read_text().splitlines()
        begin, end = (next(i for i, line in enumerate(lines) if f"/wear/{name}" in line) for name in ("begin", "end"))
        flushes = [line for line in lines[begin:end] if "sync" in line.partition("(")[0] and "resumed" not in line]
        assert len(flushes) == FRAMES
