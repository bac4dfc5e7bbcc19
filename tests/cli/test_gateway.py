"""`fugu gateway run` with a policy that `fugu plan stream` wrote."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fugu.cli.view.gateway import show_status
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.command import Fugu
from tests.support.release_scenes import scheduled, write_config
from tests.support.scenes import Scene, frames, write_policies

ROOT = Path(__file__).parents[2]


def test_it_serves_a_planned_fleet_until_told_to_stop(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    policies, store, log = tmp_path / "policies", tmp_path / "home.db", tmp_path / "log"
    policies.mkdir()
    names = ("--fleet", "home", "--device", "wrist", "--stream", "heart", "--period", "1", "--threshold", "60")
    planned = fugu(
        "plan", "stream", "--q", ".4", "--r", ".4", "--epsilon", 1, *names, "-o", policies / "p.json", "--json"
    )
    assert planned.code == 0
    command = [sys.executable, "-m", "fugu", "gateway", "run", "--fleet", "home", "--policies", str(policies)]
    command += ["--store", str(store), "--broker", f"127.0.0.1:{broker.port}", "--lag", "4", "--verbose"]
    with log.open("wb") as written:
        process = subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=written)
        wait_until(lambda: b"has started" in log.read_bytes() or process.poll() is not None, what="the gateway")
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    assert code == 0, log.read_text()
    assert b"Traceback" not in log.read_bytes()
    assert store.exists()


def test_a_configuration_of_releases_that_does_not_fit_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    files = ("--policies", write_policies(tmp_path / "policies"), "--store", tmp_path / "home.db")
    config = write_config(tmp_path, scheduled(states=["asleep"], devices=["ring"]))
    done = fugu("gateway", "run", "--fleet", "home", *files, "--releases", config)
    assert (done.code, done.out) == (1, "")
    assert done.err == "fugu: release active: stream hr has no state 'asleep'\n"
    assert not (tmp_path / "home-ledger.db").exists()


def test_a_folder_without_policies_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    done = fugu("gateway", "run", "--fleet", "home", "--policies", tmp_path / "none", "--store", tmp_path / "home.db")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert not (tmp_path / "home.db").exists()


def test_a_shard_apart_from_the_others_needs_a_server(fugu: Fugu, tmp_path: Path) -> None:
    files = ("--fleet", "home", "--policies", write_policies(tmp_path / "policies"), "--store", tmp_path / "home.db")
    for role in ("0/2", "fleet/2"):
        done = fugu("gateway", "run", *files, "--shard", role)
        assert (done.code, done.out) == (1, "")
        assert done.err == "fugu: the store home.db is a file: the shards of one machine are --shards N\n"
    assert fugu("gateway", "run", *files, "--shard", "2/2").code == 2
    assert fugu("gateway", "run", *files, "--shard", "0/2", "--shards", "2").code == 2
    assert not (tmp_path / "home.db").exists()


def test_forget_says_what_it_has_erased_and_refuses_in_a_line(tmp_path: Path, fugu: Fugu) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=4)
    scene.record(*frames([10, 10]))
    scene.store.close()
    done = fugu("gateway", "forget", "watch", "--store", scene.path, "--json")
    assert (done.code, done.json()) == (0, {"symbols": 20, "points": 0, "windows": 0})
    assert "0 symbols" in fugu("gateway", "forget", "watch", "--store", scene.path).out
    done = fugu("gateway", "forget", "clock", "--store", scene.path)
    assert (done.code, done.err) == (1, "fugu: store s.sqlite has nothing of a device clock\n")


def test_history_is_what_was_published_in_tick_order_and_within_its_ticks(tmp_path: Path, fugu: Fugu) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=4)
    for frame in frames([10, 3, 7, 10]):
        scene.record(frame)
    done = fugu("gateway", "history", "watch", "hr", "--store", scene.path, "--first", 5, "--last", 12, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["tick"] for row in rows] == list(range(5, 13))
    assert {(row["kind"], row["device"], row["stream"]) for row in rows} == {("estimate", "watch", "hr")}
    lines = fugu("gateway", "history", "watch", "hr", "--store", scene.path, "--lag", 4).out.splitlines()
    assert (len(lines), lines[0][:29]) == (26, "watch/hr tick 0: most likely ")
    done = fugu("gateway", "history", "watch", "gait", "--store", scene.path)
    assert (done.code, done.err) == (1, "fugu: store s.sqlite has nothing of watch/gait\n")


def test_an_age_that_cannot_be_read_is_refused_before_anything_is_made(tmp_path: Path, fugu: Fugu) -> None:
    files = ("--policies", write_policies(tmp_path / "policies"), "--store", tmp_path / "home.db")
    done = fugu("gateway", "run", "--fleet", "home", *files, "--keep", "symbols=4")
    assert done.code == 1
    assert done.err.startswith("fugu: cannot keep 'symbols=4'")
    assert not (tmp_path / "home.db").exists()


def test_a_status_names_those_devices_that_have_been_silent_longest(capsys: pytest.CaptureFixture[str]) -> None:
    """Not those that have sent a frame this very moment."""
    ages = {"quiet": 900.0, "new": None, **{f"busy{number}": 0.0 for number in range(40)}}
    found = {
        **{"fleet": "home", "uptime_seconds": 1.0, "connected": True, "connection": "", "worker_round_seconds": 0.0},
        **{"alarms": [], "store_bytes": 0, "inbox": 0, "estimates_waiting": 0, "next_releases": {}, "counters": {}},
        "devices": {name: {"seconds_since_frame": age, "seconds_behind": age} for name, age in ages.items()},
    }
    show_status(found)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert names[names.index("42") :][3:6] == ["new", "quiet", "busy0"]
