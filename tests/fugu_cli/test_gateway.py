"""`fugu gateway run` with a policy that `fugu plan stream` wrote."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.library.report import plain_text
from fugu.mqtt import Broker
from fugu_cli.view.gateway import show_status
from gateway.config import GatewayConfig
from gateway.page.login import password_line
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file
from tests.support.release_scenes import scheduled, write_config
from tests.support.scenes import Scene, frames, write_policies

ROOT = Path(__file__).parents[2]


def served(folder: Path, **values: object) -> Path:
    """The file of a gateway whose broker is nowhere."""
    return gateway_file(folder / "gateway.toml", 1, **{"policies": "policies", "store": "home.db"} | values)


@pytest.mark.long
def test_it_serves_a_planned_fleet_until_told_to_stop(fugu: Fugu, broker: Mosquitto, tmp_path: Path) -> None:
    policies, store, log = tmp_path / "policies", tmp_path / "home.db", tmp_path / "log"
    policies.mkdir()
    names = ("--for", "home/wrist/heart", "--period", "1", "--threshold", "60")
    planned = fugu(
        "plan", "stream", "--q", ".4", "--r", ".4", "--epsilon", 1, *names, "-o", policies / "p.json", "--json"
    )
    assert planned.code == 0
    file = gateway_file(tmp_path / "gateway.toml", broker.port, policies="policies", store="home.db", lag=4)
    command = [sys.executable, "-m", "fugu", "gateway", "run", str(file), "--verbose"]
    with log.open("wb") as written:
        process = subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=written)
        wait_until(lambda: b"has started" in log.read_bytes() or process.poll() is not None, what="the gateway")
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    assert code == 0, log.read_text()
    assert b"Traceback" not in log.read_bytes()
    assert store.exists()


def test_a_configuration_of_releases_that_does_not_fit_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    config = write_config(tmp_path, scheduled(states=["asleep"], devices=["ring"]))
    done = fugu("gateway", "run", served(tmp_path, releases=config))
    assert (done.code, done.out) == (1, "")
    assert done.err == "fugu: release active: stream hr has no state 'asleep'\n"
    assert not (tmp_path / "home-ledger.db").exists()


def test_a_folder_without_policies_is_refused(fugu: Fugu, tmp_path: Path) -> None:
    fugu("gateway", "run", served(tmp_path, policies="none")).refusal()
    assert not (tmp_path / "home.db").exists()


def test_a_shard_apart_from_the_others_needs_a_server(fugu: Fugu, tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    file = served(tmp_path)
    for role in ("0/2", "fleet/2"):
        done = fugu("gateway", "run", file, "--shard", role)
        assert (done.code, done.out) == (1, "")
        assert done.err == "fugu: the store home.db is a file: shards need one on a server, postgresql://...\n"
    assert fugu("gateway", "run", file, "--shard", "2/2").code == 2
    assert not (tmp_path / "home.db").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "fleet: is missing"),
        ("fleet = 1", "fleet: must be a text"),
        ('fleet = "a b"', "fleet: must be of the form"),
        ("fleet = ", "is not TOML: "),
        ('fleet = "home"', "store: is missing"),
        ('fleet = "home"\nstore = "mysql://x/y"', "store: a store is a file, or postgresql://"),
        ('fleet = "home"\nstore = "postgresql://u:secret@x/y"', "store: no password in the store's URL"),
        ("stroe = 1", "fleet: is missing"),
        ('fleet = "home"\nstore = "s.db"\nstroe = 1', "stroe: unknown key; did you mean store?"),
        ('fleet = "home"\nstore = "s.db"\nxyzzy = 1', "xyzzy: unknown key"),
        ('fleet = "home"\nstore = "s.db"\n[broker]\nhots = "x"', "broker.hots: unknown key; did you mean host?"),
        ('fleet = "home"\nstore = "s.db"\n[broker]\nport = 0', "broker: port is 0, not from 1 to 65535"),
        ('fleet = "home"\nstore = "s.db"\n[broker]\nport = "1883"', "broker.port: must be a whole number"),
        ('fleet = "home"\nstore = "s.db"\nlag = 4097', "lag: must be at most 4096"),
        ('fleet = "home"\nstore = "s.db"\nlag = -1', "lag: must be at least 0"),
        ('fleet = "home"\nstore = "s.db"\non_conflict = "shout"', "on_conflict: must be 'alarm' or 'stop'"),
        ('fleet = "home"\nstore = "s.db"\nmetrics = 0', "metrics: metrics are served at PORT or HOST:PORT"),
        ('fleet = "home"\nstore = "s.db"\nmetrics = "0655359"', "metrics: metrics are served at PORT or HOST:PORT"),
        ('fleet = "home"\nstore = "s.db"\nkeep = "400d"', "keep: must be a table"),
        ('fleet = "home"\nstore = "s.db"\n[keep]\nsymbol = "400d"', "keep.symbol: unknown key; did you mean symbols?"),
        ('fleet = "home"\nstore = "s.db"\n[signed]\nregistry = "f.db"', "signed.roots: is missing"),
        (
            'fleet = "home"\nstore = "s.db"\n[signed]\nregistry = "f.db"\nroots = []',
            "signed.roots: must have at least 1",
        ),
        ('fleet = "home"\nstore = "s.db"\n[signed.operator]\nuser = "anna"', "signed.registry: is missing"),
        ('fleet = "home"\nstore = "a\\u0000b"', "store: give a text"),
    ],
)
def test_what_is_wrong_with_its_file_is_one_line_that_names_the_key(
    fugu: Fugu, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "gateway.toml").write_text(text)
    for command in (("gateway", "run"), ("gateway", "cluster", "--shards", 2), ("gateway", "status")):
        line = fugu(*command, tmp_path / "gateway.toml").refusal()
        assert line.startswith(f"fugu: {tmp_path}/gateway.toml")
        assert reason in line
    assert "cannot read none.toml: No such file" in fugu("gateway", "run", "none.toml").err


def test_a_page_says_that_its_certificate_cannot_be_read(fugu: Fugu, tmp_path: Path) -> None:
    (tmp_path / "login").write_text(password_line("a long password") + "\n")
    (tmp_path / "login").chmod(0o600)
    (tmp_path / "page.toml").write_text(
        'fleet = "home"\n[page]\nlisten = "127.0.0.1:1"\nlogin_file = "login"\ntls_cert = "c"\ntls_key = "k"\n'
    )
    done = fugu("gateway", "dashboard", tmp_path / "page.toml")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "the page's certificate or key cannot be used: No such file" in done.err


def test_names_of_files_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(
        'fleet = "home"\nstore = "s.db"\npolicies = "/p"\nreleases = "r.toml"\n[broker]\nca_file = "ca.pem"\n'
        '[signed]\nregistry = "f.db"\nroots = ["1", "2"]\noperator = {username = "o", password_file = "secret"}\n'
        '[page]\nlisten = "127.0.0.1:1"\nlogin_file = "login"\naccount = {cert_file = "c", key_file = "k"}\n'
    )
    settings = GatewayConfig.read(tmp_path / "gateway.toml")
    page = settings.page_settings()
    files = (settings.store, settings.policies, settings.releases)
    assert files == (tmp_path / "s.db", Path("/p"), tmp_path / "r.toml")
    assert settings.broker == Broker(ca_file=str(tmp_path / "ca.pem"))
    assert settings.signed.roots == (tmp_path / "1", tmp_path / "2")
    assert settings.operator == replace(settings.broker, username="o", password_file=str(tmp_path / "secret"))
    assert (page.page.login_file, page.ledger) == (tmp_path / "login", tmp_path / "s-ledger.db")
    assert page.broker == replace(settings.broker, cert_file=str(tmp_path / "c"), key_file=str(tmp_path / "k"))


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
    file = gateway_file(tmp_path / "gateway.toml", 1, store=scene.path, lag=4)
    lines = fugu("gateway", "history", "watch", "hr", "--store", file).out.splitlines()
    assert (len(lines), lines[0][:29]) == (26, "watch/hr tick 0: most likely ")
    done = fugu("gateway", "history", "watch", "hr", "--store", scene.path, "--first", 5, "--last", 4)
    assert (done.code, done.err) == (2, "fugu: --first must not be after --last\n")
    done = fugu("gateway", "history", "watch", "gait", "--store", scene.path)
    assert (done.code, done.err) == (1, "fugu: store s.sqlite has nothing of watch/gait\n")


def test_an_age_that_cannot_be_read_is_refused_before_anything_is_made(tmp_path: Path, fugu: Fugu) -> None:
    write_policies(tmp_path / "policies")
    done = fugu("gateway", "run", served(tmp_path, keep={"symbols": "4"}))
    assert done.code == 1
    assert done.err.startswith(f"fugu: {tmp_path}/gateway.toml: keep.symbols: give an age, such as 12h or 400d")
    assert not (tmp_path / "home.db").exists()


def test_a_status_names_those_devices_that_have_been_silent_longest() -> None:
    """Not those that have sent a frame this very moment."""
    ages = {"quiet": 900.0, "new": None, **{f"busy{number}": 0.0 for number in range(40)}}
    status = {
        **{"fleet": "home", "uptime_seconds": 1.0, "connected": True, "connection": "", "worker_round_seconds": 0.0},
        **{"alarms": [], "store_bytes": 0, "inbox": 0, "estimates_waiting": 0, "next_releases": {}, "counters": {}},
        "devices": {name: {"seconds_since_frame": age, "seconds_behind": age} for name, age in ages.items()},
    }
    names = [line.split()[0] for line in plain_text(show_status(status)).splitlines() if line.strip()]
    assert names[names.index("42") :][2:5] == ["new", "quiet", "busy0"]


def test_forty_equal_alarms_take_one_line() -> None:
    """One of them has no name, as of topics that name no device."""
    alarm = {"code": "malformed", "detail": "", "advice": "see its version", "since": 0.0, "count": 2}
    status = {
        **{"fleet": "home", "uptime_seconds": 1.0, "connected": True, "connection": "", "worker_round_seconds": 0.0},
        **{"store_bytes": 0, "inbox": 0, "estimates_waiting": 0, "next_releases": {}, "counters": {}, "devices": {}},
        "alarms": [{**alarm, "name": f"band-{number:02}" if number else ""} for number in range(41)],
    }
    [line] = [line for line in plain_text(show_status(status)).splitlines() if line.startswith("ALARM")]
    names = "band-01, band-02, band-03, band-04, band-05 and 35 more"
    assert line == f"ALARM malformed {names}, 82 x since 1970-01-01 00:00:00 UTC: see its version"
