"""`fugu plan auto`: what it prints and writes, that devices take it, and that bad input is one line."""

from __future__ import annotations

import json
import math
import random
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.__main__ import main as agent
from edge_agent.sensors.opening import open_sensor
from edge_agent.sensors.replay import read_changes
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.library.auto_words import percent
from fugu.planning.question import three_sets
from fugu.planning.recorded_policy import recorded_class
from fugu.recordings.readings import read_readings
from tests.support.brokers import Mosquitto, wait_until
from tests.support.command import Fugu
from tests.support.home_assistant import Listener

pytestmark = pytest.mark.usefixtures("planned_once")

FIELDS = {
    *("kind", "discretiser", "chains", "epsilon", "adversary", "window_ticks", "scale", "expected_error", "error_95"),
    *("held_back_error", "guess_error", "latency_seconds", "messages_per_day", "bytes_per_day", "attack"),
}
ATTACK = {"attacker", "success", "low", "high", "ceiling", "guess", "beyond", "furthest"}

AUTO = ("plan", "auto", "--protect", "tick")


def recording(folder: Path, ticks: int = 9_000, step: float = 30.0, name: str = "motion.csv") -> Path:
    """On and off, more often in some hours than in others."""
    rng, state, rows = random.Random(7), 0, ["t,value"]
    for tick in range(ticks):
        leave = (0.15, 0.25)[tick // 400 % 2] if state == 0 else (0.25, 0.15)[tick // 400 % 2]
        state ^= rng.random() < leave
        rows.append(f"{tick * step},{state}")
    file = folder / name
    file.write_text("\n".join(rows) + "\n")
    return file


class Pictures(HTMLParser):
    """Pictures of a page, and addresses that it would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recording, and the folder of its plan."""
    from fugu_cli.main import main

    folder = tmp_path_factory.mktemp("auto")
    file = recording(folder)
    assert main([*AUTO, str(file), "-o", str(folder / "plan")]) == 0
    return file, folder / "plan"


@pytest.mark.long
def test_the_document_has_every_field_that_is_promised(fugu: Fugu, planned: tuple[Path, Path]) -> None:
    document = fugu(*AUTO, planned[0], "--json").json()
    page = (planned[1] / "plan.html").read_text()
    asked = next(at for at, head in enumerate(re.findall(r"<th>(.*?)</th>", page)) if head.endswith(" (asked)"))
    [chosen] = re.findall(r"<tr><td><b>.*?</tr>", page)
    assert re.findall(r"<b>(.*?)</b>", chosen)[asked].replace("\xa0", " ") == percent(
        document["recommended"]["expected_error"]
    )
    assert len(document["candidates"]) > 5
    for candidate in (document["recommended"], *document["candidates"]):
        assert candidate.keys() >= FIELDS
    chosen = document["recommended"]
    assert chosen["kind"] == "windows"
    assert chosen["attack"].keys() == ATTACK
    assert chosen["attack"]["high"] <= chosen["attack"]["ceiling"]
    assert chosen in document["candidates"]
    assert 2 * chosen["expected_error"] <= chosen["guess_error"]
    assert chosen["held_back_error"] <= chosen["error_95"]
    assert chosen["latency_seconds"] == chosen["window_ticks"] * 30.0
    assert {"a single tick", "10 minutes", "1 hour", "8 hours"} <= {
        stretch["stretch"] for stretch in document["stretches"]
    }
    assert all(
        stretch["floor"] <= stretch["epsilon"] for stretch in document["stretches"] if stretch["epsilon"] is not None
    )
    assert (document["useful"], document["privacy"], document["stretch_ticks"]) == (True, "private", 1)
    assert document["promise"].startswith("Private: about any single tick, from 50 % to at most 73 % sure. ")
    assert document["promise"].endswith("Weakly private: 10 minutes. Not private: an hour or longer.")
    assert document["verdict"][1] == document["promise"]
    minutes = next(stretch for stretch in document["stretches"] if stretch["seconds"] == 600)
    assert minutes["sure"] == pytest.approx(1.0 / (1.0 + math.exp(-minutes["epsilon"])))
    assert document["stay_99_ticks"] > 1


@pytest.mark.long
def test_the_policy_is_what_was_recommended_and_passes_the_check(fugu: Fugu, planned: tuple[Path, Path]) -> None:
    policy = read_policy((planned[1] / "policy.json").read_bytes())
    assert isinstance(policy, Policy)
    chosen = fugu(*AUTO, planned[0], "--json").json()["recommended"]
    (window,) = policy.windows
    assert (window.scale, window.length) == (chosen["scale"], chosen["window_ticks"])
    assert policy.discretiser.model_dump(mode="json") == chosen["discretiser"]
    assert policy.chains.model_dump(mode="json") == chosen["chains"]
    assert policy.clock.period_us == 30_000_000
    assert Fraction(chosen["scale"]) > 0
    done = fugu("check", "policy", planned[1] / "policy.json", "--ceiling", 1)
    assert done.code == 0
    assert "the guarantee holds" in done.out
    assert fugu("check", "policy", planned[1] / "policy.json", "--ceiling", 0.99).code == 1


@pytest.mark.long
def test_the_agent_takes_its_configuration(planned: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert agent(["--check", str(planned[1] / "agent.toml")]) == 0
    assert "every guarantee holds" in capsys.readouterr().out


@pytest.mark.long
def test_what_is_written_runs_without_editing(fugu: Fugu, planned: tuple[Path, Path], broker: Mosquitto) -> None:
    out, address = planned[1] / "named", f"127.0.0.1:{broker.port}"
    names = ("--fleet", "nest", "--device", "hall-1", "--stream", "moves", "--epoch", 1_700_000_000)
    done = fugu(*AUTO, planned[0], *names, "--broker", address, "--window", "8h", "-o", out)
    assert done.code == 0
    policy = read_policy((out / "policy.json").read_bytes())
    assert isinstance(policy, Policy)
    assert (policy.fleet, policy.device, policy.stream) == ("nest", "hall-1", "moves")
    assert policy.clock.epoch_us == 1_700_000_000_000_000
    assert [window.length for window in policy.windows] == [960]
    listener = Listener(broker.broker)
    process = subprocess.Popen([sys.executable, "-m", "edge_agent", str(out / "agent.toml")])
    wait_until(lambda: "fugu/2/nest/hall-1/status" in listener.topics)
    process.terminate()
    process.wait(30)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--fleet", "a/b"), "is not a name"),
        (("--device", "policy"), "no device is called"),
        (("--broker", "here:port"), "is not host:port"),
        (("--window", "2 ticks"), "window: '2 ticks' is no length of time"),
        (("--window", "2"), "is not from 10 to"),
        (("--want", "now", "--window", "8h"), "has no --window"),
    ],
)
def test_names_and_windows_that_are_none_are_refused_at_once(
    fugu: Fugu, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    assert expected in fugu(*AUTO, recording(tmp_path), *words).refusal(1, 2)


@pytest.mark.long
def test_the_agent_replays_only_rows_that_were_held_back(fugu: Fugu, planned: tuple[Path, Path]) -> None:
    readings = read_readings(planned[0])
    sets = three_sets(readings.segments, 0)
    sensor = tomllib.loads((planned[1] / "agent.toml").read_text())["streams"][0]["sensor"]
    replayed = [row for first, end in sensor["rows"] for row in range(first, end)]
    assert replayed == sets.test.rows.tolist()
    opened = open_sensor({"silence": "samples"} | sensor)
    assert isinstance(readings.values, np.ndarray)
    for tick in (0, 1, len(replayed) - 1):
        reading = opened.read(tick)
        assert reading.reveal() == readings.values[replayed[tick]]
    assert [opened.finished(tick) for tick in (len(replayed) - 1, len(replayed))] == [False, True], "told once only"


@pytest.mark.long
@pytest.mark.parametrize(
    ("option", "file"),
    [
        *(("--broker b:1", "agent.toml"), ("--fleet f", "policy.json"), ("--device d", "policy.json")),
        *(("--stream s", "policy.json"), ("--epoch 1700000000", "policy.json")),
    ],
)
def test_a_name_without_a_folder_is_said_to_be_for_nothing(
    option: str, file: str, fugu: Fugu, planned: tuple[Path, Path]
) -> None:
    done = fugu(*AUTO, planned[0], *option.split())
    words = f"{option.split()[0]} is for {file}, which is not written without -o"
    assert (done.code, done.err.count(words), done.err.count("-o")) == (0, 1, 1)


@pytest.mark.long
def test_a_plan_is_not_overwritten_unless_that_is_asked(fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(planned[1], tmp_path / "plan")
    before = (tmp_path / "plan" / "policy.json").read_bytes()
    done = fugu(*AUTO, planned[0], "-o", tmp_path / "plan")
    assert "holds a plan already" in done.refusal(1, 2)
    assert (tmp_path / "plan" / "policy.json").read_bytes() == before
    done = fugu(*AUTO, planned[0], "--window", "8h", "-o", tmp_path / "plan", "--force")
    assert (done.code, "replays only what was held back" in " ".join(done.out.split())) == (0, True)
    assert (tmp_path / "plan" / "policy.json").read_bytes() != before


def test_the_page_has_its_pictures_and_needs_nothing_else(planned: tuple[Path, Path]) -> None:
    text = (planned[1] / "plan.html").read_text()
    page = Pictures(text)
    assert page.tags.count("svg") == page.tags.count("table") == 1
    assert page.tags.count("tr") > 6
    assert page.loaded == []
    assert "script" not in page.tags
    assert 'name="viewport"' in text
    assert "nan" not in text


@pytest.mark.long
def test_the_words_say_what_is_released_and_what_is_not_worth_it(fugu: Fugu, planned: tuple[Path, Path]) -> None:
    done = fugu(*AUTO, planned[0])
    words = " ".join(done.out.split())
    assert words.startswith("motion.csv: a delimited table, 9000 rows; readings in column value")
    assert " Useful: the share of 'on' over" in words
    assert words.index("rows are samples") < words.index("Useful: ") < words.index("Private: about any single tick, ")
    assert max(map(len, done.out.split("Compared, all at")[1].splitlines()[1:12])) <= 80
    assert "No symbol stream is useful at epsilon 1" in words
    assert re.search(r"off by \S+ points? on average; guessing is off by \S+\.", words)
    assert "if the readings are in the class of chains" in words
    assert "proven ceiling" not in words
    assert "1 hour 121" in words


@pytest.mark.long
def test_a_plain_no_names_what_comes_nearest(fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path) -> None:
    done = fugu(*AUTO, planned[0], "--epsilon", ".03", "-o", tmp_path / "none")
    words = " ".join(done.out.split())
    assert done.code == 3
    assert re.search(
        r" Not useful: the share .*, off by \S+ points or more on average; guessing is off by \S+\.", words
    )
    assert " Private: about any single tick, from 50 % to at most 51 % sure." in words
    assert "The least epsilon compared" in words
    assert sorted(path.name for path in (tmp_path / "none").iterdir()) == ["plan.html"]
    refused = fugu(*AUTO, planned[0], "--epsilon", ".03", "--json")
    assert refused.code == 3
    document = json.loads(refused.out)
    chosen = document["recommended"]
    assert chosen["kind"] == "none"
    assert chosen["scale"] is chosen["window_ticks"] is chosen["expected_error"] is chosen["attack"] is None


@pytest.mark.long
def test_the_line_that_a_no_ends_in_gives_a_policy(fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path) -> None:
    done = fugu(*AUTO, planned[0], "--epsilon", ".03")
    offers = [line for line in done.out.splitlines() if " over " in line and ": fugu plan auto" in line]
    assert (done.code, 1 <= len(offers) <= 3, done.out.splitlines()[-1] == offers[-1]) == (3, True, True)
    match = re.fullmatch(
        r"Try instead: the share of 'on' over \d.*, off by (.*) on held-back rows; .*: (fugu .*)", offers[-1]
    )
    assert match
    gives, line = match.groups()
    pasted = fugu(*shlex.split(line)[1:], "-o", tmp_path / "plan")
    assert pasted.code == 0
    assert f"Test data, not used for planning: off by {gives}." in " ".join(pasted.out.split())
    assert (tmp_path / "plan" / "policy.json").exists()


@pytest.mark.long
def test_what_is_not_private_is_written_only_if_that_is_asked_for_and_without_a_ceiling(
    fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*AUTO, planned[0], "--epsilon", 40, "-o", tmp_path / "plan")
    refused = fugu(*asked)
    assert refused.code == 3
    assert "Not private: odds may change more than 10,000 times." in refused.out
    assert "Not written, since it is not private" in refused.out
    assert "--epsilon 3.0" in refused.out, "an offer is private"
    assert not (tmp_path / "plan").exists()
    written = fugu(*asked, "--not-private", "--json")
    document = json.loads(written.out)
    assert (written.code, document["useful"], document["privacy"]) == (3, True, "none")
    configuration = (tmp_path / "plan" / "agent.toml").read_text()
    assert "ceiling" not in tomllib.loads(configuration)
    assert "# ceiling = 40.0" in configuration
    assert agent(["--check", str(tmp_path / "plan" / "agent.toml")]) != 0
    assert "ceiling is missing" in capsys.readouterr().err


@pytest.mark.long
def test_an_agent_can_read_names_of_files_and_columns_beyond_16_bits(
    fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "\U0001f421.csv"
    file.write_text(planned[0].read_text().replace("value", "\U0001f4a7", 1))
    assert fugu(*AUTO, file, "--column", "\U0001f4a7", "-o", tmp_path / "plan").code == 0
    [stream] = tomllib.loads((tmp_path / "plan" / "agent.toml").read_text())["streams"]
    assert (stream["sensor"]["file"], stream["sensor"]["column"]) == (str(file), "\U0001f4a7")


@pytest.mark.long
def test_a_recording_whose_name_is_no_text_is_refused_in_a_line(
    fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "\udcff.csv"
    file.write_bytes(planned[0].read_bytes())
    done = fugu(*AUTO, file, "-o", tmp_path / "plan")
    assert "has a name that is not UTF-8: rename it" in done.refusal()
    assert not (tmp_path / "plan" / "policy.json").exists()


@pytest.mark.long
def test_a_plan_takes_the_place_of_a_policy_that_is_no_text(
    fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "policy.json").write_bytes(b"\xff")
    assert fugu(*AUTO, planned[0], "-o", tmp_path, "--force").code == 0
    assert read_policy((tmp_path / "policy.json").read_bytes()).version == 1


@pytest.mark.long
def test_a_group_that_is_not_private_is_written_only_if_that_is_asked_for(
    fugu: Fugu, planned: tuple[Path, Path], tmp_path: Path
) -> None:
    asked = ("plan", "auto", planned[0], "--baseline", 50, "--homes", 10, "--epsilon", 40, "-o", tmp_path / "plan")
    refused = fugu(*asked)
    assert refused.code == 3
    assert "Not written, since it is not private" in refused.out
    assert not (tmp_path / "plan").exists()
    written = fugu(*asked, "--not-private")
    assert (written.code, (tmp_path / "plan" / "group.toml").exists()) == (3, True)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [800])
def test_no_epsilon_ends_a_plan_in_a_fault(fugu: Fugu, planned: tuple[Path, Path], epsilon: float) -> None:
    done = fugu(*AUTO, planned[0], "--epsilon", epsilon, "--window", "3h")
    assert (done.code, done.err) == (3, "")
    assert "Not private: odds may change more than 10,000 times." in done.out


@pytest.mark.long
def test_an_adversary_that_changes_nothing_is_told_so(fugu: Fugu, tmp_path: Path) -> None:
    rng, state, rows = random.Random(7), 0, ["value"]
    for tick in range(6_000):
        state ^= rng.random() < ((0.1, 0.4)[tick // 800 % 2] if state == 0 else (0.4, 0.1)[tick // 800 % 2])
        rows.append(str(state))
    (tmp_path / "regimes.csv").write_text("\n".join(rows) + "\n")
    arguments = (*AUTO, tmp_path / "regimes.csv", "--period", 60, "--epsilon", 3, "--json", "--adversary")
    documents = [json.loads(fugu(*arguments, who).out) for who in ("universal", "ignorant")]
    candidates = [document["candidates"][0] for document in documents]
    assert candidates[0]["chains"]["kind"] == "bounded"
    assert candidates[0]["scale"] == candidates[1]["scale"] is not None, "it changes nothing"
    changes = ["changes nothing here" in " ".join(document["verdict"]) for document in documents]
    assert changes == [False, True]


@pytest.mark.long
def test_a_log_of_changes_gets_an_agent_that_replays_changes(fugu: Fugu, tmp_path: Path) -> None:
    rng, at, rows = random.Random(3), 0.0, ["entity_id,state,last_changed"]
    for place in range(4_500):
        at += rng.expovariate(1 / 90) + 1.0
        stamp = (
            f"2026-01-{1 + int(at // 86_400):02d}T{int(at // 3600) % 24:02d}:{int(at // 60) % 60:02d}:{at % 60:06.3f}Z"
        )
        rows.append(f"binary_sensor.hall,{'on' if place % 2 else 'off'},{stamp}")
    file = tmp_path / "history.csv"
    file.write_text("\n".join(rows) + "\n")
    done = fugu(*AUTO, file, "--epsilon", 4, "-o", tmp_path / "plan", "--json")
    document = done.json()
    assert document["readings"]["kind"] == "on/off"
    assert any(note.startswith("a log of changes") for note in document["readings"]["notes"])
    if document["recommended"]["kind"] != "none":
        written = (tmp_path / "plan" / "agent.toml").read_text()
        sensor = tomllib.loads(written)["streams"][0]["sensor"]
        assert (sensor["column"], sensor["time"], sensor["every"]) == ("state", "last_changed", 60.0)
        readings = read_readings(file)
        held_back = three_sets(readings.segments, 0).test.rows
        (first, end), *_ = sensor["rows"]
        values = read_changes(file, "state", "last_changed", 60.0)
        assert list(values[first:end]) == [readings.values[row] for row in held_back[: end - first]]
        assert json.loads((tmp_path / "plan" / "policy.json").read_text())["stream"] == "hall"


@pytest.mark.long
def test_a_recording_too_short_for_its_states_is_a_no_with_states_that_need_less(fugu: Fugu, tmp_path: Path) -> None:
    rng, state, rows = random.Random(5), 0, ["value"]
    for _ in range(5_000):
        state ^= rng.random() < 0.3
        rows.append(f"{rng.gauss(10.0 * state, 1.0):.2f}")
    (tmp_path / "night.csv").write_text("\n".join(rows) + "\n")
    done = fugu(*AUTO, tmp_path / "night.csv", "--period", 60, "--epsilon", 4, "-o", tmp_path / "plan")
    read, _, _, why, *offers = done.out.splitlines()
    assert read.startswith("night.csv: a delimited table, 5000 rows; readings in column value")
    assert (done.code, "5000 ticks are too few to plan from" in why, len(offers)) == (3, True, 1)
    assert offers[0].endswith("--period 60.0 --epsilon 3.0 --protect tick --baseline 50")
    assert fugu(*shlex.split(offers[0].partition(": fugu ")[2])).code == 0
    assert not (tmp_path / "plan").exists()
    (tmp_path / "few.csv").write_text("value\n1\n2.5\n3\n")
    few = fugu(*AUTO, tmp_path / "few.csv", "--period", 60, "--json")
    assert (few.code, json.loads(few.out)["offers"]) == (3, [])
    assert json.loads(few.out)["verdict"][0].startswith("Not useful: 3 ticks are too few to plan from")


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("plan", "auto"), "value\n" + "1\n2.5\n3\n" * 2_000),
        (("plan", "auto"), "lat,lon\n" + "52.1,4.1\n52.2,4.1\n" * 2_000),
        (("try",), "value\n" + "1\n2.5\n3\n" * 2_000),
    ],
)
def test_rows_without_times_are_asked_how_far_apart_they_are_before_anything_else(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], rows: str
) -> None:
    (tmp_path / "rows.csv").write_text(rows)
    monkeypatch.setattr("fugu.planning.auto.choose_states", None)
    monkeypatch.setattr("fugu.planning.auto_places.three_sets", None)
    line = fugu(*words, tmp_path / "rows.csv").refusal(1, 2)
    assert line == "fugu: rows.csv: no times say how far apart its rows are: give --period, in seconds\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--baseline", "soon"), "baseline: 'soon' is no length of time"),
        (("--baseline", "0"), "baseline: '0' is no length of time"),
        (("--baseline", "5m", "--threshold", "3"), "give one of them"),
        (("--within", "120%"), "within is a share"),
        (("--latency", "5"), "latency is a time"),
        (("--want", "everything"), "want"),
        (("--adversary", "nobody"), "adversary"),
        (("--epsilon", "-1"), "epsilon must be above 0"),
        (("--column", "humidity"), "no column 'humidity'"),
        (("--time", "when"), "no column 'when'"),
        (("--states", "a,b"), "--states must be numbers"),
        (("--devices", "0"), "'--devices'"),
        (("--homes", "9", "--latency", "1h", "--within", "5%"), "--homes goes without --latency and --within"),
        (("--homes", "9", "--broker", "b:1", "--want", "share"), "--homes goes without --broker"),
        (("--homes", "9", "--want", "now"), "--homes goes without --want"),
        (("--period", "5"), "--period is for logs of changes"),
    ],
)
def test_questions_that_are_none_are_one_line(
    fugu: Fugu, planned: tuple[Path, Path], options: tuple[str, ...], words: str
) -> None:
    assert words in fugu(*AUTO, planned[0], *options).refusal(1, 2)


@pytest.mark.soak
def test_a_million_rows_get_a_plan(fugu: Fugu, tmp_path: Path) -> None:
    rows = 1_000_000
    document: dict[str, Any] = fugu(*AUTO, recording(tmp_path, rows), "--json").json()
    assert document["readings"]["ticks"] == rows
    assert document["recommended"]["kind"] in ("windows", "none")
    json.dumps(document, allow_nan=False)


@pytest.mark.long
def test_places_get_points_in_metres_and_files_that_devices_take(
    fugu: Fugu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, rows = random.Random(4), ["t,lat,lon"]
    for tick in range(2_600):
        rows.append(f"{tick * 60},{52.002 + 0.0045 * rng.randrange(2)},{4.003 + 0.0073 * rng.randrange(2)}")
    file = tmp_path / "visits.csv"
    file.write_text("\n".join(rows) + "\n")
    document = fugu(*AUTO, file, "--epsilon", 6, "--json", "-o", tmp_path / "plan").json()
    assert (document["useful"], document["privacy"]) == (True, "weak")
    chosen = document["recommended"]
    assert chosen in document["candidates"]
    assert (chosen["kind"], chosen["unit"], chosen["discretiser"]["kind"]) == ("points", "metres", "cells")
    assert 2 * chosen["expected_error"] <= chosen["guess_error"]
    assert 0 < chosen["point_epsilon"] < chosen["epsilon"] <= 6
    assert chosen.keys() >= FIELDS
    assert chosen["attack"].keys() == ATTACK
    assert fugu("check", "policy", tmp_path / "plan" / "policy.json", "--ceiling", 6).code == 0
    assert agent(["--check", str(tmp_path / "plan" / "agent.toml")]) == 0
    capsys.readouterr()
    page = Pictures((tmp_path / "plan" / "plan.html").read_text())
    assert page.tags.count("tr") == 1 + len(document["candidates"])
    assert page.loaded == []
    sensor = tomllib.loads((tmp_path / "plan" / "agent.toml").read_text())["streams"][0]["sensor"]
    held_back = three_sets(np.zeros(2_600, dtype=np.int64), 0).test.rows.tolist()
    assert [row for first, end in sensor["rows"] for row in range(first, end)] == held_back
    two = tmp_path / "two.csv"
    two.write_text("\n".join(re.sub(r"4\.\d+$", "4.003", row) for row in rows) + "\n")
    refused = fugu(*AUTO, two, "--epsilon", 1)
    words, offer = " ".join(refused.out.split()), refused.out.splitlines()[-1]
    assert refused.code == 3
    match = re.fullmatch(
        r"Try instead: a point every .* for cells of \d+ m, off by (\d+ m) on held-back rows; .*: (fugu .*)", offer
    )
    assert match
    gives, line = match.groups()
    pasted = fugu(*shlex.split(line)[1:])
    assert pasted.code == 0
    assert f"Test data, not used for planning: off by {gives}." in " ".join(pasted.out.split())
    assert " Private: about any single tick, from 50 % to at most 73 % sure." in words
    assert re.search(r" Not useful: a point every .*, off by \d+ m or more on average; guessing is off by \d+\.", words)
    assert "no column 'lat'" in fugu(*AUTO, recording(tmp_path, 3), "--want", "place").refusal(1, 2)
    assert "a place has no" in fugu(*AUTO, file, "--want", "place", "--threshold", 1).refusal(1, 2)


@pytest.mark.long
def test_several_donors_are_covered_and_only_their_number_is_told(fugu: Fugu, tmp_path: Path) -> None:
    """The class has that of each of them; nothing that is written or printed names a file."""
    files = [recording(tmp_path, name="ann.csv"), slower(tmp_path, "bob.csv")]
    done = fugu(*AUTO, *files, "--window", "3h", "-o", tmp_path / "plan")
    assert done.code == 0, done.err
    written = [(tmp_path / "plan" / name).read_text() for name in ("policy.json", "agent.toml", "plan.html")]
    assert not any(name in text for text in (done.out, done.err, *written) for name in ("ann.csv", "bob.csv"))
    assert "2 recordings" in done.out
    assert "Epsilon 1 is for people like these." in done.out
    policy = read_policy(written[0])
    assert isinstance(policy, Policy)
    left_out = fugu(*AUTO, *files, "--window", "3h", "--json").json()["left_out"]
    for place, file in enumerate(reversed(files)):
        fugu(*AUTO, file, "--window", "3h", "--within", "50%", "-o", tmp_path / f"plan{place}")
        alone = read_policy((tmp_path / f"plan{place}" / "policy.json").read_bytes())
        assert isinstance(alone, Policy)
        real = recorded_class(alone, files[place]).epsilon
        assert left_out[place] == pytest.approx(real, rel=1e-6), "that of a plan for the others"
    assert left_out[1] > 1.0, "who stays longer is not like the other"
    trials = [recorded_class(policy, file) for file in files]
    assert all(trial.inside and trial.epsilon <= 1.0 for trial in trials)
    assert trials[0].odds_ratio < trials[1].odds_ratio <= trials[0].declared == trials[1].declared
    command = [sys.executable, "-m", "edge_agent", "--check", str(tmp_path / "plan" / "agent.toml")]
    assert subprocess.run(command, input=b"1\n0\n", stdout=subprocess.DEVNULL).returncode == 0


def slower(folder: Path, name: str) -> Path:
    """Somebody who stays longer, and a recording of another length."""
    rng, state, rows = random.Random(8), 0, ["t,value"]
    for tick in range(7_000):
        state ^= rng.random() < (0.06, 0.1)[state ^ tick // 400 % 2]
        rows.append(f"{tick * 30.0},{state}")
    file = folder / name
    file.write_text("\n".join(rows) + "\n")
    return file


def test_recordings_of_different_ticks_are_refused(fugu: Fugu, tmp_path: Path) -> None:
    files = [recording(tmp_path, name="ann.csv"), recording(tmp_path, step=60.0, name="bob.csv")]
    done = fugu(*AUTO, *files)
    assert (done.code, "recording 2 has a reading every 60 s, the first every 30 s" in done.err) == (1, True)
