"""From a log that Home Assistant exported to a private share in Home Assistant, by the three commands of the manual."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.brokers import Mosquitto, wait_until
from tests.support.documents import ROOT, Page
from tests.support.home_assistant import Listener
from tests.support.processes import GatewayProcess

ENTITY, SHARE = "binary_sensor.kitchen_water", "sensor.home_device_1_kitchen_water_window_share"
FASTER = """sed -i s/60000000/5000/ plan/policy.json && sed -i s/1883/{port}/ plan/agent.toml \\
&& sed -i 's/loop = false/loop = true/; s/^ceiling = .*/ceiling = 2.0/' plan/agent.toml"""
"""A minute takes 5 ms, the agent connects to the broker of the test, and does not end with the recording.

Its ceiling is of a tick: ten minutes would be far more ticks.
"""


def exported(path: Path) -> None:
    """Ten days of a water meter, as a log of changes."""
    rows, state = ["entity_id,state,last_changed"], ""
    with gzip.open(ROOT / "tests/data/ampds2_water_on_30d.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if (seconds := float(row["t"])) >= 10 * 86_400:
                break
            if (now := "on" if row["value"] != "0" else "off") != state:
                time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
                rows.append(f"{ENTITY},{now},{time.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z")
                state = now
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.long
def test_three_commands_lead_to_a_private_share_in_home_assistant(broker: Mosquitto, tmp_path: Path) -> None:
    exported(tmp_path / "history.csv")
    manual = " ".join((ROOT / "docs/home-assistant.md").read_text().split())
    listener = Listener(broker.broker)
    plan = "--epsilon 2 --protect 10m -o plan\n"
    faster = f"{plan.strip()} | tee said && {FASTER.format(port=broker.port)}\n"
    port = f"port = {broker.port}"
    with Page("docs/home-assistant.md", tmp_path, {"port = 1883": port, plan: faster}) as page:
        assert page.run() == 3
        wait_until(lambda: listener.state(SHARE) not in (None, "None", "unavailable"), "a share")
        share, beside = float(listener.state(SHARE) or ""), listener.attributes(SHARE)
        assert beside["low"] <= share <= beside["high"]
        assert beside["useful"] is True
        wait_until(lambda: listener.state("sensor.home_device_1_kitchen_water_privacy") == "88.1")
        wait_until(lambda: listener.state("binary_sensor.home_health_alarm") == "OFF")
        assert not any(name.startswith("binary_sensor.home_device") for name in listener.components())
    text = " ".join((tmp_path / "said").read_text().split())
    assert "Useful: the share of 'on' over 8 h, off by 2.1 points on average; guessing is off by 11." in text
    assert "Private: about any 10 minutes, from 50 % to at most 88 % sure. Not private: an hour or longer." in text
    assert "off by 2.1 percentage points on average. Always guessing the usual share is off by 11 points" in manual
    assert "becomes at most 88 % sure" in manual
    assert "An hour is not private" in manual
    wait_until(lambda: listener.state(SHARE) == "unavailable", "what the gateway says when it leaves")
    (tmp_path / "policies").symlink_to("plan")
    (tmp_path / "gateway.sqlite").symlink_to("home.sqlite")
    without = GatewayProcess(tmp_path, broker.port)
    wait_until(lambda: not listener.documents, "what was told to be taken back")
    assert without.stop() == 0
    listener.link.stop()
    assert listener.problems == []
