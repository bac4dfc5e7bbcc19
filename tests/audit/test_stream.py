"""`fugu check stream` on bytes of honest and of leaking devices; deliveries of a broker against its access list."""

from __future__ import annotations

import csv
import math
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Link
from tests.support.audited import planned
from tests.support.brokers import Mosquitto, await_end
from tests.support.command import Fugu
from tests.support.shipped import Shipped, promises
from tests.support.soak import only

CHAINS = BinaryChains(q=(0.2, 0.2), r=(0.3, 0.3))
WINDOW = Window(name="high", length=10, stride=10, states=(1,), scale="100")
TICKS = 2400
FEW = ("--trials", 1000)
NAME = ("home", "watch", "hr")


def path(seed: int) -> np.ndarray:
    """States of a chain of the class."""
    generator = np.random.default_rng(seed)
    states = [0]
    for draw in generator.random(TICKS - 1):
        states.append(1 - states[-1] if draw < (0.2, 0.3)[states[-1]] else states[-1])
    return np.array(states)


def symbol_lines(policy: Policy, states: np.ndarray, *, leak: float = 0.0, first: int = 0) -> list[tuple[str, bytes]]:
    """Frames of a device; with a leak so many symbols are the states."""
    generator = np.random.default_rng(2)
    words = generator.integers(1 << 32, size=states.size)
    drawn = [policy.table.draw(int(state), int(word)) for state, word in zip(states, words, strict=True)]
    symbols = np.where(generator.random(states.size) < leak, states, drawn).astype(np.uint8)
    lines = []
    for at in range(0, TICKS, 100):
        frame = SymbolFrame(1, first + at - 1, first + at, symbols[at : at + 100].tobytes())
        lines.append((topic_of("symbols", *NAME), frame.encode()))
    return lines


def window_lines(states: np.ndarray, scale: float) -> list[tuple[str, bytes]]:
    """Counts with noise of a scale."""
    generator = np.random.default_rng(3)
    lines = []
    for index in range(TICKS // 10):
        up, two = generator.geometric(-np.expm1(-1 / scale), 2)
        count = int(states[index * 10 : index * 10 + 10].sum() + up - two)
        frame = WindowFrame(1, "high", index - 1, index, index * 10, 10, 10, (count,))
        lines.append((topic_of("window", *NAME), frame.encode()))
    return lines


def asked(folder: Path, policy: Policy, states: np.ndarray, messages: list[tuple[str, bytes]]) -> tuple[object, ...]:
    (folder / "policy.json").write_text(policy.to_json())
    write_truth(folder / "truth.csv", states)
    lines = (f"{topic} {payload.hex()}" for topic, payload in messages)
    (folder / "heard.txt").write_text("\n".join(lines) + "\n")
    arguments = (folder / "policy.json", folder / "truth.csv", "--column", "value", "--recording", folder / "heard.txt")
    return ("check", "stream", *arguments)


def audited(
    fugu: Fugu, folder: Path, policy: Policy, states: np.ndarray, messages: list[tuple[str, bytes]], *words: object
) -> tuple[int, Any]:
    done = fugu(*asked(folder, policy, states, messages), *words, "--json")
    assert done.err == ""
    return done.code, done.json()


def write_truth(file: Path, states: np.ndarray) -> None:
    with file.open("w", newline="") as text:
        csv.writer(text).writerows([["value"], *([2.0 * state] for state in states)])


def least(trial: Any) -> float:
    return max(attack["epsilon_low"] for attack in trial["attacks"])


@pytest.mark.long
def test_an_honest_stream_is_not_refuted_and_one_that_leaks_is(fugu: Fugu, tmp_path: Path) -> None:
    policy, states = planned(CHAINS), path(1)
    code, report = audited(fugu, tmp_path, policy, states, symbol_lines(policy, states), *FEW)
    assert (code, report["confirmed"]) == (0, True)
    assert [trial["released"] for trial in report["trials"]] == ["symbols"]
    assert 0 < least(report["trials"][0]) <= 1
    odds = {attack["attacker"]: attack["furthest"] for attack in report["trials"][0]["attacks"]}
    assert 1 < odds["forward-backward"] <= math.e
    assert odds["supervised"] > 1
    assert odds["Viterbi"] is odds["learned chain, Viterbi"] is None
    done = fugu(*asked(tmp_path, policy, states, symbol_lines(policy, states, leak=0.6)), *FEW)
    assert done.code == 1
    assert "WRONG epsilon-refuted: symbols: epsilon 1 is promised" in done.out


@pytest.mark.long
def test_the_truth_is_taken_at_the_policy_s_clock(fugu: Fugu, tmp_path: Path) -> None:
    """A log of changes with times finds the leak that a row a tick finds: rows would be other ticks."""
    policy, states = planned(CHAINS), path(1)
    arguments = asked(tmp_path, policy, states, symbol_lines(policy, states, leak=0.6))
    by_row = fugu(*arguments, *FEW, "--json").json()
    period, epoch = policy.clock.period_us / 1e6, policy.clock.epoch_us / 1e6
    assert period >= 1.0
    moved = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), TICKS - 1]
    rows = [f"{epoch + period * place:.3f},{2.0 * states[place]}" for place in moved]
    (tmp_path / "truth.csv").write_text("\n".join(["last_changed,value", *rows, ""]))
    by_time = fugu(*arguments, *FEW, "--json").json()
    assert [least(trial) for trial in by_time["trials"]] == [least(trial) for trial in by_row["trials"]]
    assert not by_time["confirmed"]


@pytest.mark.long
def test_everything_that_was_heard_is_attacked_together(fugu: Fugu, tmp_path: Path) -> None:
    policy, states = planned(CHAINS, windows=(WINDOW,)), path(4)
    symbols = symbol_lines(policy, states)
    code, report = audited(fugu, tmp_path, policy, states, [*symbols, *window_lines(states, 100.0)], *FEW)
    assert code == 0
    assert [trial["released"] for trial in report["trials"]] == ["symbols", "window high", "symbols, high"]
    assert [trial["epsilon"] for trial in report["trials"]] == [1, policy.windows_guarantee.epsilon, 1]
    assert least(report["trials"][0]) <= 1
    code, report = audited(fugu, tmp_path, policy, states, window_lines(states, 0.2), *FEW)
    assert code == 1
    (trial,) = report["trials"]
    assert trial["released"] == "window high"
    assert least(trial) > policy.windows_guarantee.epsilon


@pytest.mark.long
def test_without_truth_what_was_heard_is_held_against_the_configuration(fugu: Fugu, tmp_path: Path) -> None:
    policy, states = planned(CHAINS), path(1)
    (tmp_path / "policy.json").write_text(policy.to_json())
    done = fugu("check", "stream", tmp_path / "policy.json", "--trials", 2000, "--json")
    document = done.json()
    assert (done.code, document["confirmed"], document["trials"]) == (0, True, [])
    ((site, draws),) = {(audience["audience"], audience["draws"]) for audience in document["audiences"]}
    assert (site, draws) == ("site", "simulated")
    for leak, code in ((0.0, 0), (1.0, 1)):
        slow = np.repeat(states[: TICKS // 60], 60)
        lines = symbol_lines(policy, slow if leak else states, leak=leak)
        (tmp_path / "heard.txt").write_text("".join(f"{topic} {payload.hex()}\n" for topic, payload in lines))
        arguments = ("--recording", tmp_path / "heard.txt", "--trials", 2000, "--json")
        done = fugu("check", "stream", tmp_path / "policy.json", *arguments)
        assert done.code == code
        assert [finding["name"] for finding in done.json()["findings"]] == ["class-contradicted"][: bool(leak)]


@pytest.mark.soak
def test_a_truth_that_begins_anew_is_followed(fugu: Fugu, tmp_path: Path) -> None:
    policy, states = planned(CHAINS), path(1)
    for begin, refuted in ((5 * TICKS, True), (5 * TICKS + 1000, False)):
        lines = symbol_lines(policy, states, leak=0.6, first=begin)
        _, report = audited(fugu, tmp_path, policy, states, lines, "--loop")
        assert ("epsilon-refuted" in [finding["name"] for finding in report["findings"]]) is refuted


@pytest.mark.soak
def test_a_live_stream_is_attacked(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    policy, states = planned(CHAINS), path(1)
    (tmp_path / "policy.json").write_text(policy.to_json())
    write_truth(tmp_path / "truth.csv", states)
    lines, over = symbol_lines(policy, states, leak=0.6), threading.Event()
    link = Link(broker.broker, "device")
    link.start()

    def publish() -> None:
        while not over.wait(0.05):
            for topic, payload in lines:
                link.publish(topic, payload)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        arguments = (tmp_path / "policy.json", tmp_path / "truth.csv", "--live", 4, "--json")
        done = fugu("check", "stream", *arguments, "--broker", f"127.0.0.1:{broker.port}")
    finally:
        over.set()
        await_end(thread)
        link.stop()
    assert done.code == 1
    assert least(done.json()["trials"][0]) > 1


def test_what_cannot_be_attacked_is_one_line(fugu: Fugu, tmp_path: Path) -> None:
    policy, states = planned(CHAINS, windows=(WINDOW,)), path(1)
    (tmp_path / "policy.json").write_text(policy.to_json())
    write_truth(tmp_path / "truth.csv", states[:50])
    heard, files = tmp_path / "heard.txt", (tmp_path / "policy.json", tmp_path / "truth.csv")
    assert fugu("check", "stream", *files).code == 2
    topic = topic_of("symbols", *NAME)
    far, never = (symbol_lines(policy, states, first=first)[0][1] for first in (1000, 10**12))
    two_counts = WindowFrame(1, "high", -1, 0, 0, 10, 10, (1, 2)).encode()
    for text, reason in (
        (f"{topic} xyz", "line 1 is no topic with a payload"),
        (f"{topic} 01", topic),
        ("other/topic 00", "nothing in the recording is of the policy's stream"),
        (f"{topic} {far.hex()}", "does it --loop?"),
        (f"{topic} {far.hex()}\n{topic} {never.hex()}", "at most 33,554,432 can be attacked"),
        (f"{topic_of('window', *NAME)} {two_counts.hex()}", "the policy has no window 0 of high"),
    ):
        heard.write_text(text + "\n")
        done = fugu("check", "stream", *files, "--recording", heard)
        assert done.code == 1
        assert reason in done.err
        assert done.err.count("\n") == 1
    heard.write_bytes(b"\xff\n")
    assert fugu("check", "stream", *files, "--recording", heard).err.startswith(
        f"fugu: cannot read the recording {heard}"
    )


@pytest.mark.soak
def test_a_broker_that_is_not_there_is_waited_for_and_then_given_up(fugu: Fugu, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(planned(CHAINS).to_json())
    done = fugu("check", "stream", tmp_path / "policy.json", "--live", 0.1, "--broker", "127.0.0.1:1")
    assert done.code == 1
    assert done.err.count("\n") == 1


TOPIC = topic_of("symbols", "home", "watch", "hr")


@pytest.mark.long
@pytest.mark.parametrize("granted", only([True], [False, True]))
def test_what_is_delivered_and_not_listed_is_found(
    fugu: Fugu, capsys: pytest.CaptureFixture[str], tmp_path: Path, granted: bool
) -> None:
    broker = Shipped(tmp_path)
    broker.add("device", "watch")
    broker.add("subscriber", "screen", *promises(tmp_path / "promised"))
    listed = tmp_path / "listed"
    shutil.copytree(broker.folder, listed)
    if granted:  # somebody has changed what the broker runs with
        with (broker.folder / "access.acl").open("a") as text:
            text.write(f"\nuser screen\ntopic read {TOPIC}\n")
    (tmp_path / "policy.json").write_text(planned().to_json())
    capsys.readouterr()  # what the commands have printed that wrote the broker's files
    over = threading.Event()
    with broker:
        device = Link(broker.address("watch"), "watch")
        device.start()

        def publish() -> None:
            first = 0
            while not over.wait(0.02):
                if device.publish(TOPIC, SymbolFrame(1, first - 1, first, bytes(10)).encode()) is not None:
                    first += 10

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            account = tmp_path / "screen"
            words = ["--broker", account / "broker.toml", "--live", 2, "--trials", 1000, "--json"]
            done = fugu("check", "stream", tmp_path / "policy.json", "--access", listed, *words)
        finally:
            over.set()
            await_end(thread)
            device.stop()
    assert done.err == ""
    findings = [finding for finding in done.json()["findings"] if finding["name"] == "delivered-not-listed"]
    assert [finding["about"] for finding in findings] == [f"screen was told {TOPIC}, which is not granted"][
        : int(granted)
    ]
