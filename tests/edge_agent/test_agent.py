"""The agent's loop on clocks that jump, and its refusals to start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.agent import Agent
from edge_agent.config import check_in_child, load
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan, StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.source import ConfigError
from fugu.contract.descriptions import Description, describe
from fugu.contract.errors import FuguError, GuaranteeError, PolicyError, StatusCode
from fugu.contract.frames import Status
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, frames_left, run, stream_plan, ticks
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import Recorder, policy, write_device


def nowhere(folder: Path, *streams: StreamPlan) -> AgentPlan:
    """A plan whose broker is not there: everything stays in the outbox."""
    return agent_plan(folder, Broker(port=9), *streams, drain_seconds=0.0, forget="committed")


def test_a_policy_makes_symbols_only_while_it_is_valid(tmp_path: Path) -> None:
    plan, clock = nowhere(tmp_path, stream_plan(valid_from=100, valid_until=120)), JumpingClock(50 * SECOND)
    run(plan, clock, lambda: clock.now > 300 * SECOND)
    assert ticks(frames_left(plan)) == list(range(100, 120))


def test_before_its_epoch_a_stream_is_silent(tmp_path: Path) -> None:
    plan, clock = nowhere(tmp_path, stream_plan(epoch_us=1000 * SECOND)), JumpingClock(900 * SECOND)
    run(plan, clock, lambda: clock.now > 1005 * SECOND)
    assert ticks(frames_left(plan))[0] == 0


def test_a_sensor_that_gives_the_wrong_thing_is_told_once_without_its_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = nowhere(tmp_path)
    agent = Agent(plan, [ReplaySensor(["51.5 7.25", 1.0], loop=True)], system_entropy(), JumpingClock(1000 * SECOND))
    agent._clock.now += 6 * SECOND
    agent._ticker.catch_up()
    assert [record.message for record in caplog.records] == [
        "stream hr: a reading is no number, category or place of its policy"
    ]
    assert agent._ticker.streams[0].last_tick == 1006, "a tick without a state is drawn for all the same"


def test_two_streams_keep_their_own_clocks(tmp_path: Path) -> None:
    slow = stream_plan(stream="power", period_us=10 * SECOND)
    plan, clock = nowhere(tmp_path, stream_plan(), slow), JumpingClock(0)
    run(plan, clock, lambda: clock.now > 205 * SECOND)
    outbox = Outbox(plan.outbox, "home", "watch")
    rows = outbox._db.execute("SELECT stream, COUNT(*) FROM frames GROUP BY stream").fetchall()
    outbox.close()
    counts = dict(rows)
    assert counts["hr"] >= 20
    assert abs(counts["hr"] / 10 - counts["power"]) <= 1.1


@pytest.mark.parametrize("end", ["killed", "outbox lost"])
def test_status_and_description_are_retained_and_the_last_will_tells_of_a_crash(
    broker: Mosquitto, tmp_path: Path, end: str
) -> None:
    address = Broker(port=broker.port)
    device = policy(epoch_us=0, period_us=10_000)
    night = tmp_path / "night.csv"
    night.write_text("value\n0\n1\n")
    config = write_device(tmp_path / "watch", device, night, "value", address, loop=True, forget="puback")
    heard = Recorder(address, "fugu/2/home/watch/status", topic_of("description", "home", "watch", "hr"))

    def statuses() -> list[Status]:
        return heard.of("status", Status.decode)

    process = subprocess.Popen([sys.executable, "-m", "edge_agent", str(config)])
    wait_until(lambda: statuses() and statuses()[-1].online)
    wait_until(lambda: heard.of("description", bytes), "what a device without a gateway says of its stream")
    assert heard.of("description", Description.decode)[0] == describe(device)
    assert statuses()[-1].streams[0].policy_version == 1
    if end == "killed":
        process.kill()
    else:
        (tmp_path / "watch" / "outbox.sqlite").unlink()
    assert process.wait(PATIENCE) == (1 if end == "outbox lost" else -9)
    wait_until(lambda: not statuses()[-1].online)
    assert statuses()[-1].codes == (StatusCode.CONNECTION_LOST,)


# Refusals


def write(folder: Path, change: Callable[[dict[str, object]], None], ceiling: float = 1.0) -> Path:
    """A device's folder whose policy file has been changed by somebody."""
    config = write_device(folder, policy(epoch_us=0, period_us=SECOND), folder / "x.csv", "value", Broker())
    config.write_text(config.read_text().replace("ceiling = 1.0", f"ceiling = {ceiling}"))
    document = json.loads((folder / "policy.json").read_text())
    change(document)
    (folder / "policy.json").write_text(json.dumps(document))
    return config


def too_little_noise(document: dict[str, object]) -> None:
    document["table"] = {"rows": [[2**32 - 2**20], [2**20]]}


def another_device(document: dict[str, object]) -> None:
    document["device"] = "ring"


def no_chains(document: dict[str, object]) -> None:
    del document["chains"]


@pytest.mark.parametrize(
    ("change", "ceiling", "error", "text"),
    [
        (too_little_noise, 1.0, GuaranteeError, "epsilon"),
        (lambda _document: None, 0.999, GuaranteeError, "above this device's ceiling 0.999"),
        (another_device, 1.0, ConfigError, "is for home/ring, not this device"),
        (no_chains, 1.0, PolicyError, "chains: is missing"),
    ],
)
def test_a_policy_that_is_false_too_weak_or_not_ours_is_refused(
    tmp_path: Path, change: Callable[[dict[str, object]], None], ceiling: float, error: type[FuguError], text: str
) -> None:
    config = write(tmp_path, change, ceiling)
    with pytest.raises(error, match=text):
        load(config)
    with pytest.raises(ConfigError, match=text):
        check_in_child(config)()
    done = subprocess.run(
        [sys.executable, "-m", "edge_agent", str(config)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "outbox.sqlite").exists()


def test_at_the_ceiling_it_runs(tmp_path: Path) -> None:
    assert check_in_child(write(tmp_path, lambda _document: None))() == load(tmp_path / "agent.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fleet = ", "is not TOML"),
        (f"fleet = {'1' * 5000}", "is not TOML"),
        ('fleet = "home"', "is missing"),
        ("unknown = 1", "unknown: unknown key"),
        ("celing = 1.0", r"celing: unknown key; did you mean ceiling\?"),
        ("ceiling = -1.0", "must be above 0"),
        ("ceiling = nan", "finite|JSON|not"),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    config = write(tmp_path, lambda _document: None)
    keep = [line for line in config.read_text().splitlines() if not line.startswith(text.partition(" ")[0] + " ")]
    config.write_text(text + "\n" if text.startswith("fleet") else "\n".join([text, *keep]))
    with pytest.raises(ConfigError, match=message):
        check_in_child(config)()
