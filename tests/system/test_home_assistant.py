"""From a log that Home Assistant exported to a private share in Home Assistant, by the three commands of the manual."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.brokers import Mosquitto, wait_until
from tests.support.command import runner
from tests.support.documents import ROOT, Page
from tests.support.home_assistant import Listener
from tests.support.processes import GatewayProcess

ENTITY, SHARE = "binary_sensor.hall_motion", "sensor.home_device_1_hall_motion_window_share"
FASTER = """sed -i s/60000000/5000/ plan/policy.json && sed -i s/1883/{port}/ plan/agent.toml \\
&& sed -i 's/loop = false/loop = true/' plan/agent.toml"""
"""A minute takes 5 ms, the agent connects to the broker of the test, and does not end with the recording."""


def exported(path: Path) -> None:
    """The recording of a motion detector in a room, as a log of changes; where it has a gap, the sensor was away."""
    rows, state, stretch, last = ["entity_id,state,last_changed"], "", "", 0.0

    def changed(seconds: float, state: str) -> None:
        time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        rows.append(f"{ENTITY},{state},{time.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z")

    with gzip.open(ROOT / "tests/data/pir_room_S6.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            seconds, motion = float(row["t"]), "on" if row["value"] != "0" else "off"
            if row["seg"] != stretch and stretch:
                changed(last + 31.0, "unavailable")
            if (motion, row["seg"]) != (state, stretch):
                changed(seconds, motion)
            state, stretch, last = motion, row["seg"], seconds
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.long
def test_three_commands_lead_to_a_private_share_in_home_assistant(
    capsys: pytest.CaptureFixture[str], broker: Mosquitto, tmp_path: Path
) -> None:
    exported(tmp_path / "history.csv")
    manual = " ".join((ROOT / "docs/home-assistant.md").read_text().split())
    refused = runner(capsys)("plan", "auto", tmp_path / "history.csv").out
    assert "Not useful: the share of 'on'" in " ".join(refused.split())
    listener = Listener(broker.broker)
    plan = "--epsilon 3 --protect tick -o plan\n"
    faster = f"{plan.strip()} | tee said && {FASTER.format(port=broker.port)}\n"
    port = f"port = {broker.port}"
    with Page("docs/home-assistant.md", tmp_path, {"port = 1883": port, plan: faster}) as page:
        assert page.run() == 3
        wait_until(lambda: listener.state(SHARE) not in (None, "unavailable"), "a share")
        share, beside = float(listener.state(SHARE) or ""), listener.attributes(SHARE)
        assert beside["low"] <= share <= beside["high"]
        assert beside["useful"] is True
        wait_until(lambda: listener.state("sensor.home_device_1_hall_motion_epsilon") == "3.0")
        wait_until(lambda: listener.state("binary_sensor.home_health_alarm") == "OFF")
        assert not any(name.startswith("binary_sensor.home_device") for name in listener.components())
    said = " ".join((tmp_path / "said").read_text().split())
    assert "off by 3.5 points on average; guessing is off by 7.3." in said
    assert "1 hour 61 not protected" in said
    assert "off by 3.5 percentage points on average. Always guessing the usual share is off by 7.3 points" in manual
    assert "an hour is not protected" in manual
    wait_until(lambda: listener.state(SHARE) == "unavailable", "what the gateway says when it leaves")
    (tmp_path / "policies").symlink_to("plan")
    (tmp_path / "gateway.sqlite").symlink_to("home.sqlite")
    without = GatewayProcess(tmp_path, broker.port)
    wait_until(lambda: not listener.documents, "what was told to be taken back")
    assert without.stop() == 0
    listener.link.stop()
    assert listener.problems == []
