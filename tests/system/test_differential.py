"""Two runs with other readings look the same from outside, byte for byte and tick for tick, but for what is covered.

The real program, its real sensors and a real broker; the same random bits and a virtual clock.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import pytest

from fugu.contract.discretisers import Baseline
from fugu.contract.measure_table import StaircaseNoise
from tests.support.brokers import Mosquitto
from tests.support.differential import PLACES, Seen, Source, run
from tests.support.measured import measure_policy
from tests.support.soak import only
from tests.support.virtual_agent import LEAKS

HERE, THERE, NOWHERE = ["c0"], [*PLACES[::-1]], ["c99", "", "c1", "\u00e9" * 300]
CRASHING = """
N = 0
class Odd:
    def __float__(self):
        raise ZeroDivisionError("71.5")
def read():
    global N
    N += 1
    return (
        *(lambda: 1 / 0, lambda: 10**5000, lambda: 2.0**5000, lambda: float("nan"), lambda: None, lambda: object()),
        *(Odd, lambda: b"\\xff", lambda: float("-inf"), lambda: {}["x"], lambda: exit(3), lambda: 0.9),
    )[N % 12]()
"""


def call(value: str) -> Source:
    """A function that returns something, and is slow now and then."""
    slow = "    time.sleep(0.01 * (N % 7 == 0))\n"
    return Source("call", f"import time\nN = 0\ndef read():\n    global N\n    N += 1\n{slow}    return {value}\n")


USABLE: dict[str, tuple[Source, Source]] = {
    "replay": (Source("replay", "value\n0.25\n"), Source("replay", "value\n" + "0.75\n7e300\n1e3\n" * 10)),
    "stdin": (Source("stdin", "0.25\n"), Source("stdin", "1234567.125\n")),
    "call": (call("0.25"), call("N % 3 + 0.75")),
    "command": (Source("command", "0.25\n"), Source("command", "1234567.125\n" * 50)),
    "mqtt": (Source("mqtt", "0.25\n"), Source("mqtt", "0.75\n1e300\n1234567.125\n")),
}
UNUSABLE: dict[str, Source] = {
    "replay": Source("replay", "value\n" + 'nan\ntext\n""\n' + "9" * 5000 + "\n0.75\n"),
    "stdin": Source("stdin", "\n".join(["nan", "text", "9" * 5000, "0x10", "\u2028", "1e999", ""])),
    "call": Source("call", CRASHING),
    "command": Source("command", "\n".join(["nan", "text", "9" * 5000, ""])),
    "mqtt": Source("mqtt", "\n".join(["nan", "text", "9" * 70000, "\u2028", "1e999"])),
}
"""Other readings, most of which are none."""


def difference(seen: Seen, other: Seen) -> str:
    """Differences of two runs to an observer, besides what is covered; empty if none."""
    return _seen_difference(seen, other) or ("" if seen.drawn == other.drawn else "how often random bytes were drawn")


def difference_of_missing(seen: Seen, other: Seen) -> str:
    """The same where other ticks are without a reading: these take a row of the table by a word of their own."""
    return _seen_difference(seen, other)


def _seen_difference(seen: Seen, other: Seen) -> str:
    if seen.code != other.code:
        return f"exit codes {seen.code} and {other.code}"
    for line, another in zip_longest(seen.times.splitlines(), other.times.splitlines()):
        if line != another:
            return f"published {line}, not {another}"
    for line, another in zip_longest(seen.written.splitlines(), other.written.splitlines()):
        if line != another:
            return f"written {line}, not {another}"
    for packet, counterpart in zip_longest(seen.packets, other.packets):
        if packet != counterpart:
            return f"sent {packet}, not {counterpart}"
    if [len(covered) for covered in seen.covered] != [len(covered) for covered in other.covered]:
        return "sizes of what is covered"
    return ""


def test_a_sensor_that_tells_of_changes_shows_no_more_of_them(broker: Mosquitto, tmp_path: Path) -> None:
    """The last reading holds, until a source's own sign that it works fails; none of this is to be seen."""
    options = 'silence = "changes"\nkeep_alive = "tick"\nkeep_alive_ticks = 3'
    texts = ["0.25\ntick\n", "0.75\ntick\n7\nnan\ntick\n", "tick\n"]
    sources = [Source("stdin", text, options) for text in texts]
    sources.append(Source("stdin", "0.75\ntick\n", options, once=True))
    first, *others = (run(broker, tmp_path / str(i), source, HERE) for i, source in enumerate(sources))
    assert first.code == 0, (tmp_path / "0" / "agent.log").read_text()
    assert [difference(first, other) for other in others] == [""] * len(others)
    assert first.covered != others[0].covered, "the readings did not even reach the symbols"


@pytest.mark.parametrize("kind", only(["replay", "mqtt"], USABLE))
def test_other_readings_change_nothing_that_is_not_covered(broker: Mosquitto, tmp_path: Path, kind: str) -> None:
    """Readings of equal usability, and then readings that are none."""
    first, second = USABLE[kind]
    first_run = run(broker, tmp_path / "one", first, HERE)
    assert first_run.code == 0, (tmp_path / "one" / "agent.log").read_text()
    assert first_run.kinds == {"symbols", "window", "status", "description"}
    assert len(first_run.times.splitlines()) >= 2 + 2 * 6 + 5 + 4, "birth, end, frames of both streams, windows"
    other = run(broker, tmp_path / "other", second, THERE)
    assert difference(first_run, other) == ""
    assert first_run.covered != other.covered, "the readings did not even reach the symbols"
    assert {line.split()[-1] for line in first_run.written.splitlines()} == {"True", "False"}, "records and blanks"
    unusable = run(broker, tmp_path / "unusable", UNUSABLE[kind], NOWHERE)
    assert difference_of_missing(first_run, unusable) == ""


def test_chains_of_pairs_and_steps_that_change_show_no_more(broker: Mosquitto, tmp_path: Path) -> None:
    """Which table a point is drawn from, and what the tables are, follows from the tick; the class changes no byte."""
    first, second = USABLE["replay"]
    first_run = run(broker, tmp_path / "one", first, HERE, longer=True)
    assert first_run.code == 0, (tmp_path / "one" / "agent.log").read_text()
    assert first_run.kinds == {"symbols", "window", "status", "description"}
    other = run(broker, tmp_path / "other", second, THERE, longer=True)
    assert difference(first_run, other) == ""
    assert first_run.covered != other.covered
    unusable = run(broker, tmp_path / "unusable", UNUSABLE["replay"], NOWHERE, longer=True)
    assert difference_of_missing(first_run, unusable) == ""


def test_points_of_a_staircase_show_no_more(broker: Mosquitto, tmp_path: Path) -> None:
    """As many random bits wherever the device is, at the border of the box too."""
    noise = measure_policy(11).measure_tables[0].noise
    assert isinstance(noise, StaircaseNoise)
    first, _ = USABLE["replay"]
    first_run = run(broker, tmp_path / "one", first, ["c60"], side=11)
    assert first_run.code == 0, (tmp_path / "one" / "agent.log").read_text()
    other = run(broker, tmp_path / "other", first, ["c61", "c0", "c120"], side=11)
    assert difference(first_run, other) == ""
    assert first_run.covered != other.covered
    unusable = run(broker, tmp_path / "unusable", first, ["c999", ""], side=11)
    assert difference_of_missing(first_run, unusable) == ""


def test_a_baseline_tells_its_states_and_nothing_else(broker: Mosquitto, tmp_path: Path) -> None:
    """Other readings with the same states send the same bytes, symbols and counts included; other states do not."""
    baseline = Baseline(baseline_ticks=12, lowest=0.0, highest=1000.0)

    def seen(name: str, up: float, down: float) -> Seen:
        recording = Source("replay", "\n".join(["value", *map(str, [up, up, down] * 40)]) + "\n")
        return run(broker, tmp_path / name, recording, HERE, discretiser=baseline)

    first_run = seen("one", 900.0, 100.0)
    assert first_run.code == 0, (tmp_path / "one" / "agent.log").read_text()
    same = seen("same", 1e308, 3.25)
    assert (difference(first_run, same), first_run.covered == same.covered) == ("", True)
    other = seen("other", 100.0, 900.0)
    assert difference(first_run, other) == ""
    assert first_run.covered != other.covered


@pytest.mark.parametrize("leak", only(["event-driven", "redrawn"], LEAKS))
def test_a_leak_is_noticed(broker: Mosquitto, tmp_path: Path, leak: str) -> None:
    """The test above can fail: an agent that sends when something happens, takes longer, draws more, or says more."""
    first, second = USABLE["replay"]
    first_run = run(broker, tmp_path / "one", first, HERE, leak)
    other = run(broker, tmp_path / "other", second, HERE, leak)
    assert difference(first_run, other) != ""
