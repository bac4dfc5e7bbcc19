"""Pins of an owner in a device's own configuration, and the words of `--check` about them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_agent.config import load
from edge_agent.sensors.source import ConfigError
from fugu.contract.chains import BinaryChains
from fugu.contract.joint import NoJointBoundError, joint_epsilon
from fugu.contract.pins import pins_of
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from tests.support.brokers import PATIENCE
from tests.support.gateway_files import toml
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.signing import Keys

HEART = policy(epoch_us=0, period_us=1_000_000)
COINS = HEART.model_copy(update={"chains": BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5))})
WRIST, CHEST = '{kind = "stdin"}', '{kind = "replay", file = "chest.csv"}'


def device(folder: Path, *streams: tuple[AnyPolicy, str, AnyPolicy | None], **limits: float) -> Path:
    """The configuration of a device: for each stream its policy, its sensor and whose pins it has."""
    lines = ['fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 1.0']
    lines += [f"{name} = {value}" for name, value in limits.items()]
    for written, sensor, pinned in streams:
        (folder / f"{written.stream}.json").write_text(written.to_json())
        lines.append(f'[[streams]]\npolicy = "{written.stream}.json"\nsensor = {sensor}')
        if pinned is not None:
            lines.append(f"pins = {toml(pins_of(pinned).model_dump(mode='json'))}")
    (folder / "agent.toml").write_text("\n".join(lines) + "\n")
    return folder / "agent.toml"


def check(config: Path) -> list[str]:
    """Lines of `fugu-agent --check` after the first, but for those about readings."""
    (config.parent / "chest.csv").write_text("value\n1\n")
    command = [sys.executable, "-m", "edge_agent", str(config), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 1), done.stderr  # no reading comes, which the check finds wrong
    first, *lines = done.stdout.splitlines()
    assert "every guarantee holds" in first
    return [line for line in lines if not re.match(r"stream \w+: (a usable reading|no reading|what) came", line)]


def test_a_policy_file_that_was_exchanged_does_not_get_round_the_pins(tmp_path: Path) -> None:
    assert load(device(tmp_path, (COINS, WRIST, None))).streams, "nothing is pinned: the ceiling is kept"
    assert load(device(tmp_path, (HEART, WRIST, HEART))).streams
    with pytest.raises(ConfigError, match="another class of chains than is pinned"):
        load(device(tmp_path, (COINS, WRIST, HEART)))
    place = measure_policy(2, graph={"edges": [[0, 1], [2, 3]]})
    with pytest.raises(ConfigError, match="does not join the pinned pair of states 0 and 2"):
        load(device(tmp_path, (place, WRIST, measure_policy(2)), measurement_ceiling=1.0))


def second(**fields: Any) -> Policy:
    return HEART.model_copy(update={"stream": "again", **fields})


def test_streams_with_equal_sensors_are_limited_together(tmp_path: Path) -> None:
    joint = joint_epsilon([HEART, second()], None)
    for ceiling, sensor, complaint in (
        (joint, WRIST, ""),
        (joint * 0.999, WRIST, "of all streams together is above this device's total ceiling"),
        (1000.0, CHEST, "streams hr and again have different sensors"),
    ):
        config = device(tmp_path, (HEART, WRIST, None), (second(), sensor, None), total_ceiling=ceiling)
        if complaint:
            with pytest.raises((ConfigError, NoJointBoundError), match=complaint):
                load(config)
        else:
            assert len(load(config).streams) == 2
    assert len(load(device(tmp_path, (HEART, WRIST, None), (second(), CHEST, None))).streams) == 2


def test_the_check_says_what_is_pinned_and_what_is_not(tmp_path: Path) -> None:
    place = measure_policy(2)
    lines = check(
        device(tmp_path, (HEART, WRIST, HEART), (second(), WRIST, None), (place, CHEST, place), measurement_ceiling=1.5)
    )
    assert lines == [
        "stream hr: pinned are its 2 states (thresholds), a multiple of 1 s a tick, chains with q = 0.2, r = 0.35 "
        "and the universal adversary at least; windows are not pinned",
        "stream again: as its policy says, up to the ceiling; no pins here, so whoever writes its policy file chooses "
        "states, ticks and the class",
        "stream place: pinned are its 4 states (categories), its clock, first states and steps, 4 pairs of its "
        "graph, a factor of at most 4 and a degree of protection of at least 2. The rest of its graph is not pinned",
        "each stream: at most epsilon 1; each released point: at most epsilon 1.5",
        "all streams together: not limited; the sum of their epsilons is no bound",
    ]


def test_the_check_of_an_enrolled_device(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
        + "".join(f'[[streams]]\nstream = "{name}"\nsensor = {WRIST}\n' for name in ("hr", "again"))
    )
    keys = Keys()
    enrolment = keys.enrolment(pins={"hr": pins_of(HEART)}, total_ceiling=1.0)
    (tmp_path / "enrolment.json").write_text(enrolment.model_dump_json())
    first, other, stream, total = check(tmp_path / "agent.toml")
    assert first.startswith("stream hr: pinned are its 2 states (thresholds)")
    assert other == "stream again: refused, because nothing is pinned of it, unlike of others"
    assert (stream, total) == (
        "each stream: at most epsilon 1; each released point: none may leave",
        "all streams together: at most epsilon 1",
    )
    (tmp_path / "enrolment.json").write_text(keys.enrolment().model_dump_json())
    assert all("so whoever holds the policy keys chooses states" in line for line in check(tmp_path / "agent.toml")[:2])


def test_the_limits_of_an_enrolled_device_are_not_in_its_configuration(tmp_path: Path) -> None:
    head = 'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
    stream = f'[[streams]]\nstream = "hr"\nsensor = {WRIST}\n'
    pins = f"pins = {toml(pins_of(HEART).model_dump(mode='json'))}\n"
    for text in (f"total_ceiling = 1.0\n{stream}", stream + pins):
        (tmp_path / "agent.toml").write_text(head + text)
        with pytest.raises(ConfigError, match="the ceilings and pins of an enrolled device are in its enrolment"):
            load(tmp_path / "agent.toml")
