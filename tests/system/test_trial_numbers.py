"""`fugu try --broker`: a trial's numbers are drawn once, sent as often as somebody asks, and taken back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.contract.topics import discovery_topic, topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.commands.plan_options import AutoOptions
from fugu_cli.demo.trial import numbers_of
from fugu_cli.demo.trial_numbers import DEVICE, TrialNumbers
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import Recorder
from tests.support.replays import SECRET, recorded

pytestmark = pytest.mark.processes
COUNT = topic_of("count", DEVICE, DEVICE, "value")
DOCUMENT = discovery_topic(DEVICE, DEVICE)


class Heard(Recorder):
    """All that a subscriber hears."""

    @property
    def values(self) -> list[bytes]:
        return [payload for payload in self.on(COUNT) if payload]


def tried(folder: Path, broker: Mosquitto, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fugu", "try", "history.csv", "--no-browser", *words]
    return subprocess.Popen(
        [*command, "--broker", f"127.0.0.1:{broker.port}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
    )


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)  # a shell's background ignores SIGINT
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM, text
    return text


def trial_numbers(folder: Path, broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> TrialNumbers:
    """Two numbers, as a gateway published them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    numbers = numbers_of(recorded(folder, 0.6, 60), AutoOptions(), broker.broker, not_private=False)
    link = Link(broker.broker, client_id="gateway")
    link.start()
    wait_until(lambda: link.connected, "a connection")
    with numbers.listen(broker.broker):
        for topic, payload in ((DOCUMENT, "{}"), (COUNT, '{"value": 1}'), (COUNT, '{"value": 2}')):
            assert link.publish(topic, payload.encode()) is not None
        heard = Heard(broker.broker, "#")
        assert link.publish(COUNT, b'{"value": 3}') is not None
        wait_until(lambda: heard.values, "the last one")
        heard.link.stop()
    link.stop()
    return numbers


@pytest.mark.long
def test_numbers_that_were_drawn_before_are_sent_again_and_taken_back(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = trial_numbers(tmp_path, broker, monkeypatch)
    assert numbers.file.stat().st_mode & 0o777 == 0o600
    heard = Heard(broker.broker, "#")
    for sent in (3, 6):
        process = tried(tmp_path, broker)
        wait_until(lambda sent=sent: len(heard.values) == sent, "three numbers", patience=120.0)
        assert heard.newest[DOCUMENT] == b"{}"
        assert json.loads(heard.newest[topic_of("health", DEVICE)]) == {"online": True}
        text = ended(process)
        assert (
            f"3 message(s) with numbers of a real recording leave this machine now, for 127.0.0.1:{broker.port}" in text
        )
        wait_until(lambda: not any(heard.newest.values()), "all is taken back")
    assert heard.values[:3] == heard.values[3:]


@pytest.mark.long
def test_a_broker_that_takes_no_such_message_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acl").write_text("topic read #\n")
    with Mosquitto() as open_broker:
        trial_numbers(tmp_path, open_broker, monkeypatch)
    with Mosquitto(options=f"allow_anonymous true\nacl_file {tmp_path}/acl\n") as broker:
        text, _ = tried(tmp_path, broker).communicate(timeout=PATIENCE)
    assert text.splitlines()[-1].endswith("its access list has to allow it")
    assert "Traceback" not in text


def kept_numbers(folder: Path) -> int:
    """How many numbers a trial keeps, to send the same ones again; of hours that begin in its part of a recording."""
    texts = [file.read_text() for file in folder.glob("fugu/trial-*.json")]
    return sum(topic == COUNT for text in texts for topic, *_ in json.loads(text)["messages"])


@pytest.mark.soak
def test_a_recording_is_planned_replayed_and_sent(broker: Mosquitto, tmp_path: Path) -> None:
    recorded(tmp_path, 0.6, 2700)
    heard = Heard(broker.broker, "#")
    process = tried(tmp_path, broker, "--threshold", "10", "--protect", "tick")
    wait_until(lambda: 6 <= kept_numbers(tmp_path) == len(heard.values), "hours, as many as it keeps", patience=600.0)
    assert json.loads(heard.newest[DOCUMENT])["dev"]["name"] == DEVICE
    text = ended(process)
    assert "Useful: the released shares" in text
    assert "on your sensor" not in text
    assert SECRET not in text
    assert not [topic for topic, payload in heard.messages if SECRET.encode() in payload], "a reading"


@pytest.mark.parametrize("text", ["", "{}", '{"format": "fugu-trial/1", "messages": [["x/y", 1]]}'])
def test_numbers_that_are_damaged_are_one_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "history.csv").write_text("1\n")
    numbers = TrialNumbers(tmp_path / "history.csv", (), Broker())
    numbers.file.parent.mkdir()
    numbers.file.write_text(text)
    with pytest.raises(FuguError, match="is damaged: without it the next trial draws new noise"):
        numbers.publish()
