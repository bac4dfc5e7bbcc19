"""A plain MQTT client shows what the gateway publishes as lines that a person can read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until

REPORTS = Path(__file__).parents[1] / "golden" / "reports"


def test_mosquitto_sub_shows_reports_one_a_line_with_times_and_names(broker: Mosquitto) -> None:
    program = shutil.which("mosquitto_sub")
    if program is None:
        pytest.skip("mosquitto_sub is not installed (Debian: mosquitto-clients)")
    names = {
        topic_of("estimate", "home", "hall", "motion"): "state_estimate",
        topic_of("estimate", "home", "phone", "place"): "place_estimate",
        topic_of("count", "home", "hall", "motion"): "histogram",
        topic_of("release", "home", "public", "active"): "release",
    }
    sent = {topic: (REPORTS / f"{name}.json").read_bytes().strip() for topic, name in names.items()}
    link = Link(broker.broker, client_id="gateway")
    link.start()
    for topic, payload in sent.items():  # retained, so that they are there whenever somebody comes
        wait_until(lambda topic=topic, payload=payload: link.publish(topic, payload, retain=True) is not None)
    words = [
        program,
        "-h",
        "127.0.0.1",
        "-p",
        str(broker.port),
        "-t",
        "fugu/2/home/#",
        "-F",
        "%t %p",
        "-C",
        str(len(sent)),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert {topic: line.encode() for topic, line in lines.items()} == sent
    assert all(line.isprintable() and json.loads(line)["time"].endswith("Z") for line in lines.values())
