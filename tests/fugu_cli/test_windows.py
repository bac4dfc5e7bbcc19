"""Windows on the command line: both guarantees of a policy, and counts as they arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Decoder, Link, WindowReading
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.command import Fugu
from tests.support.processes import policy

ROOT = Path(__file__).parents[2]
HIGH = Window(name="high", length=600, stride=60, states=("high",), scale="200")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy with windows that promises 1.5 for everything and 0.5 for the windows."""
    draft = policy(epoch_us=0, period_us=1_000_000)
    promises = {
        "guarantee": Guarantee(epsilon=1.5, adversary="universal"),
        "windows_guarantee": Guarantee(epsilon=0.5, adversary="ignorant"),
    }
    path = tmp_path / "policy.json"
    path.write_text(draft.model_copy(update={"windows": (HIGH,), **promises}).to_json())
    return path


def test_the_check_of_a_policy_shows_both_guarantees(fugu: Fugu, file: Path) -> None:
    shown = fugu("check", "policy", file)
    assert shown.code == 0
    assert "home/watch/hr version 1: both guarantees hold" in shown.out
    assert "claimed  epsilon 1.5, universal adversary, for symbols and windows together" in shown.out
    assert "claimed  epsilon 0.5, ignorant adversary, for windows alone" in shown.out
    assert "window high: scale 200 by chain, adds 0.05 to the loss of every tick" in shown.out
    policy = Policy.from_json(file.read_bytes())
    alone = policy.verify_windows()
    document = fugu("check", "policy", file, "--json").json()
    assert document["epsilon"] == policy.verify(1.5).epsilon
    windows = document["windows"]
    assert windows["epsilon"] == alone.epsilon
    assert (windows["claimed"], windows["adversary"], windows["rates"]) == (0.5, "ignorant", {"high": "1/20"})


def test_a_policy_whose_windows_lose_more_than_they_promise_is_refused(fugu: Fugu, file: Path) -> None:
    document = json.loads(file.read_text())
    document["windows"][0]["scale"] = "20"
    file.write_text(json.dumps(document))
    assert fugu("check", "policy", file).refusal().startswith("fugu: the set of windows loses epsilon ")


@pytest.mark.long
@pytest.mark.parametrize("as_json", [True, False])
def test_counts_are_printed_once_as_they_arrive(broker: Mosquitto, as_json: bool) -> None:
    link = Link(broker.broker, client_id="device")
    link.start()
    command = [sys.executable, "-m", "fugu", "subscribe", "--fleet", "home", "--broker", f"127.0.0.1:{broker.port}"]
    words = ["--only", "windows", "--count", "3", *(["--json"] if as_json else [])]
    process = subprocess.Popen([*command, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    numbers = count()

    def step() -> bool:
        index = next(numbers)
        frame = WindowFrame(1, "high", index - 1, index, 60 * index, 600, 590, (-3, 600))
        for _ in range(2):
            link.publish(topic_of("window", "home", "watch", "hr"), frame.encode())
        return process.poll() is not None

    wait_until(lambda: link.connected)
    wait_until(step)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    lines = out.decode().splitlines()
    assert len(set(lines)) == 3
    for line in lines:
        if as_json:
            reading = json.loads(line)
            fields = ["kind", "device", "stream", "window", "first", "length", "observed", "counts", "shift"]
            assert list(reading) == [*fields, "since", "time", "states"]
            assert (reading["kind"], reading["window"], reading["length"]) == ("window", "high", 600)
            assert (reading["observed"], reading["counts"]) == (590, [-3, 600])
        else:
            assert line.startswith("ticks ")
            assert line.endswith(
                "  watch/hr: window high: -3, 600 of 590 observed ticks "
                "(randomised: noise can take a count below 0 or above all)"
            )


def test_a_window_is_handed_out_once_and_counts_what_is_none() -> None:
    topic = topic_of("window", "home", "watch", "hr")
    readings = Decoder()
    frame = WindowFrame(1, "high", -1, 4, 240, 600, 600, (17,))
    other = WindowFrame(1, "other", -1, 4, 240, 600, 600, (18,))
    reading = WindowReading("watch", "hr", "high", 240, 600, 600, (17,))
    assert readings.decode(topic, frame.encode()) == [reading]
    assert readings.decode(topic, frame.encode()) == []
    assert readings.decode(topic, other.encode()) == [reading._replace(window="other", counts=(18,))]
    assert readings.decode(topic, frame.encode()[:-1]) == []
    assert readings.rejected == {"malformed": 1}
