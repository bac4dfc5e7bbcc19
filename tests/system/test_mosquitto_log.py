"""Lines of the real mosquitto_sub are read as they were sent, in each of its forms."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fugu.mqtt import Link
from fugu.recordings.file import File
from fugu.recordings.forms import read_table
from tests.support.brokers import Mosquitto, wait_until


@pytest.mark.parametrize("words", [["-F", "%U %t %p"], ["-F", "%I %t %p"], ["-F", "%j"], ["-v"]])
def test_messages_are_read_as_they_were_sent(broker: Mosquitto, tmp_path: Path, words: list[str]) -> None:
    program = shutil.which("mosquitto_sub")
    if program is None:
        pytest.skip("mosquitto_sub is not installed (Debian: mosquitto-clients)")
    sent = [f'{{"device":{{"power":{value}}},"1.7.0":"{value}"}}' for value in (71.5, 72, 73.25)]
    begun = time.time()
    with (tmp_path / "mosquitto.log").open("wb") as log:
        command = [program, "-h", "127.0.0.1", "-p", str(broker.port), "-t", "z/#", *words]
        client = subprocess.Popen(command, stdout=log)
    link = Link(broker.broker, client_id="meter")
    link.start()
    wait_until(lambda: link.connected)
    # Until it has subscribed nothing comes: the first line shows that it has.
    wait_until(lambda: link.publish("z/begin", b"0") and (tmp_path / "mosquitto.log").stat().st_size > 0)
    for payload in sent:
        link.publish("z/meter", payload.encode())
    wait_until(lambda: "73.25" in (tmp_path / "mosquitto.log").read_text())
    table = read_table(File(tmp_path / "mosquitto.log"), {"topic": "z/meter"})
    columns = table.columns
    assert columns["device.power"] == ["71.5", "72", "73.25"]
    assert columns['"1.7.0"'] == columns["device.power"]
    assert table.keys == ("topic",)
    if words != ["-v"]:
        assert table.time == "time"
    if words[-1].startswith("%U"):
        assert all(begun - 1 <= float(cell) <= time.time() + 1 for cell in columns["time"])
    assert client.poll() is None
