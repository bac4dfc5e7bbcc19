"""`fugu doctor` on installations that work and on broken ones: each finding comes when it should."""

from __future__ import annotations

import json
import re
import resource
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from edge_agent.__main__ import main as agent
from edge_agent.doctor import examine as examine_device
from edge_agent.local_control import LocalStatus
from fugu.contract.compiler import compile_policy
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import write_document
from fugu.contract.frames import Status
from fugu.contract.noise_table import NoiseTable
from fugu.contract.topics import topic_of
from fugu.host.addresses import is_local
from fugu.host.checks import Finding
from fugu.mqtt import Broker, Link
from fugu_cli.main import main
from gateway.deployment import doctor
from gateway.deployment.doctor import Installation, examine, read_installation
from gateway.fleet.registry import Registry
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, await_end, free_port, wait_until
from tests.support.gateway_files import gateway_file
from tests.support.processes import policy
from tests.support.scenes import policy as gateway_policy
from tests.support.shipped import Shipped
from tests.support.signing import Keys, policy_document


@pytest.fixture
def tmp_path(disk: Path) -> Path:
    """A folder on a disk: in memory nothing is well."""
    return disk


def says_of_running(port: int, version: tuple[int, int, int]) -> list[Finding]:
    """Findings of doctor about the running broker at a port."""
    return [
        finding
        for process, config in doctor._running_brokers(port)
        for finding in doctor._check_limits(process, config, version)
    ]


def worst(findings: list[Finding], check: str) -> str:
    verdicts = [finding.verdict for finding in findings if finding.check == check]
    assert verdicts, f"nothing was said of {check}: {[finding.check for finding in findings]}"
    return max(verdicts, key=["ok", "warn", "FAIL"].index)


@pytest.fixture
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """A broker with a device and a gateway."""
    shipped = Shipped(tmp_path_factory.mktemp("shipped"))
    shipped.add("device", "watch")
    shipped.add("gateway", "gateway")
    with shipped as running:
        yield running


def device(folder: Path, broker: Broker, text: str = "") -> Path:
    """The configuration of a device with a policy file."""
    folder.mkdir(exist_ok=True)
    draft = policy(epoch_us=0, period_us=1_000_000)
    (folder / "watch.json").write_text(draft.to_json())
    (folder / "readings.csv").write_text("value\n0\n1\n")
    files = ("username", "password_file", "ca_file")
    lines = [f'{name} = "{value}"' for name in files if (value := getattr(broker, name)) is not None]
    (folder / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 1.0\n'
        f"{text}\n[broker]\nport = {broker.port}\n" + "\n".join(lines) + "\n"
        '[[streams]]\npolicy = "watch.json"\nsensor = {kind = "replay", file = "readings.csv"}\n'
    )
    return folder / "agent.toml"


@contextmanager
def running(folder: Path, *, codes: list[str], connected: bool = True) -> Iterator[None]:
    """The socket of an agent that says so of itself."""
    agent, ended = LocalStatus(folder / "outbox.sqlite"), threading.Event()

    def answer() -> None:
        while not ended.wait(0.005):
            agent.answer(lambda: {"codes": codes, "connected": connected, "outbox_depth": 3})

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        await_end(thread)
        agent.close()


def test_a_device_that_is_well(shipped: Shipped, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = device(tmp_path, shipped.address("watch"), 'binding = "mine"')
    before = examine_device(config)
    assert [worst(before, check) for check in ("agent", "broker", "access list")] == ["warn", "ok", "ok"]
    with running(tmp_path, codes=[]):
        findings = examine_device(config)
    wanted = ("configuration", "policy", "disk of outbox", "binding", "file password", "authority", "agent", "broker")
    for check in (*wanted, "broker's certificate", "access list"):
        assert worst(findings, check) == "ok", check
    assert agent(["--doctor", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "ok   broker: 127.0.0.1:" in shown
    assert main(["doctor", str(config), "--json"]) == 0
    assert {"check", "verdict", "text"} == set(json.loads(capsys.readouterr().out)["findings"][0])


def test_a_device_without_a_broker_that_never_ran_and_is_off_its_guard(tmp_path: Path) -> None:
    findings = examine_device(device(tmp_path, Broker(port=free_port()), 'binding = "off"'))
    assert worst(findings, "broker") == "FAIL"
    assert worst(findings, "agent") == "warn"
    assert worst(findings, "binding") == "warn"


def test_a_device_whose_configuration_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = device(tmp_path, Broker(port=free_port()))
    config.write_text(config.read_text().replace("ceiling = 1.0", "ceiling = 0.001"))
    assert worst(examine_device(config), "configuration") == "FAIL"
    assert agent(["--doctor", str(config)]) == 1
    config.write_text("fleet = ")
    assert agent(["--doctor", str(config)]) == 1
    assert capsys.readouterr().err.startswith("fugu-agent: ")


def test_a_device_with_an_open_secret_and_troubles_of_its_own(shipped: Shipped, tmp_path: Path) -> None:
    address = shipped.address("watch")
    config = device(tmp_path, address)
    secret = Path(address.password_file or "")
    secret.chmod(0o644)
    try:
        findings = examine_device(config)
    finally:
        secret.chmod(0o600)
    assert worst(findings, "file password") == "FAIL"
    for codes, connected, verdict in (
        (["storage-full"], True, "FAIL"),
        (["paused"], True, "warn"),
        ([], False, "warn"),
    ):
        with running(tmp_path, codes=codes, connected=connected):
            assert worst(examine_device(config), "agent") == verdict


@pytest.mark.parametrize(("address", "verdict"), [("127.0.0.1", "ok"), ("0.0.0.0", "warn")])
def test_a_local_broker_that_others_can_reach(tmp_path: Path, address: str, verdict: str) -> None:
    config = device(tmp_path, Broker(port=free_port()))
    with socket.create_server((address, 0)) as local:
        sensor = f'{{kind = "mqtt", topic = "hall", port = {local.getsockname()[1]}}}'
        config.write_text(config.read_text().replace('{kind = "replay", file = "readings.csv"}', sensor))
        assert worst(examine_device(config), "local broker") == verdict


def test_a_device_whose_clock_nobody_has_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = device(tmp_path, Broker(port=free_port()))
    config.write_text(config.read_text().replace('{kind = "replay", file = "readings.csv"}', '{kind = "stdin"}'))
    for is_synchronised, verdicts in ((True, []), (False, ["FAIL"])):
        monkeypatch.setattr("edge_agent.doctor.synchronised", lambda is_synchronised=is_synchronised: is_synchronised)
        assert [finding.verdict for finding in examine_device(config) if finding.check == "ticks"] == verdicts


def test_a_policy_that_ends(tmp_path: Path) -> None:
    config = device(tmp_path, Broker(port=free_port()))
    draft = policy(epoch_us=0, period_us=1_000_000)
    for seconds, verdict in ((8 * 86_400, "ok"), (86_400, "warn"), (-5, "FAIL")):
        ends = draft.model_copy(update={"valid_until": int(time.time()) + seconds})
        (tmp_path / "watch.json").write_text(ends.to_json())
        assert worst(examine_device(config), "policy") == verdict


def test_an_enrolled_device_waits_is_stopped_and_knows_the_gateway_s_time(broker: Mosquitto, tmp_path: Path) -> None:
    from fugu.contract.trust import Trust

    keys = Keys()
    enrolment = keys.enrolment()
    (tmp_path / "enrolment.json").write_text(enrolment.model_dump_json())
    (tmp_path / "readings.csv").write_text("value\n0\n1\n")
    config = tmp_path / "agent.toml"
    config.write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
        f'[broker]\nport = {broker.port}\n[[streams]]\nstream = "hr"\n'
        'sensor = {kind = "replay", file = "readings.csv"}\n'
    )
    findings = examine_device(config)
    assert worst(findings, "policy") == "warn"
    assert worst(findings, "signed time") == "warn"
    assert worst(findings, "file enrolment.json") == "FAIL", "it is a secret"
    link = Link(broker.broker, client_id="gateway")
    link.start()
    try:
        for ahead, verdict in ((0, "ok"), (4000, "FAIL"), (-4000, "warn")):
            signed = keys.signed_time(int(time.time()) + ahead)
            wait_until(partial(link.publish, topic_of("time", "home"), signed, retain=True))
            assert worst(examine_device(config), "signed time") == verdict
        link.publish(topic_of("time", "home"), Keys().signed_time(int(time.time())), retain=True)
        assert worst(examine_device(config), "signed time") == "FAIL"
    finally:
        link.publish(topic_of("time", "home"), b"", retain=True)
        link.stop()
    trust, hr = Trust(enrolment), policy(epoch_us=0, period_us=1_000_000)
    document, louder = policy_document(hr, version=1), hr.model_copy(update={"table": NoiseTable.binary(1000, 1000)})
    lies = write_document(document.model_copy(update={"compiled": (compile_policy(louder).hex(),)}))
    (tmp_path / "trust").write_bytes(trust.state.with_changes(version=1, policies=[lies]).pack())
    (line,) = (finding for finding in examine_device(config) if finding.check == "configuration")
    differs = "the compiled policy of stream hr is not its JSON form: rows.0.0 is 4294966296, and 2244967296 by"
    assert (line.verdict, line.text) == ("FAIL", f"{differs} the JSON form")
    trust.judge(keys.signed(document), "policy", 0)
    (tmp_path / "trust").write_bytes(trust.state.pack())
    assert worst(examine_device(config), "policy") == "ok"
    trust.judge(keys.signed_stop(1), "stop", 0)
    (tmp_path / "trust").write_bytes(trust.state.pack())
    assert worst(examine_device(config), "policy") == "FAIL"


def test_a_gateway_that_is_well(shipped: Shipped, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    Store(store).close()
    store.chmod(0o600)
    folder = shipped.root / "gateway"
    (folder / "policies" / "watch.json").write_text(gateway_policy().to_json())
    file = folder / "gateway.toml"
    file.write_text(re.sub("^store = .*$", f'store = "{store}"', file.read_text(), flags=re.MULTILINE))
    findings = examine(read_installation(file))
    wanted = ("policies", "disk of store", "store", "file store.sqlite", "file password", "authority", "broker")
    for check in (*wanted, "access list", "broker's certificate", "Mosquitto"):
        assert worst(findings, check) == "ok", check
    assert worst(findings, "gateway") == "warn", "none runs"
    assert worst(findings, "devices") == "warn"
    with shipped.client("watch") as client:
        status = Status(True, "1", 0, (), ()).encode()
        client.publish(topic_of("status", "home", "watch"), status, retain=True)
    assert worst(examine(read_installation(file)), "devices") == "ok"
    assert main(["doctor", str(folder)]) == 0
    assert "ok   store: " in capsys.readouterr().out


@contextmanager
def mosquitto(
    folder: Path, version: tuple[int, int, int], more: str = "", files: int = 1124
) -> Iterator[list[Finding]]:
    """A Mosquitto of 100 connections that may open so many files: findings about it, said to be of a version."""
    port = free_port()
    lines = f"listener {port} 127.0.0.1\nmax_connections 100\nallow_anonymous true\n{more}"
    (folder / "mosquitto.conf").write_text(lines)
    command = [shutil.which("mosquitto", path="/usr/sbin:/usr/bin") or "mosquitto", "-c", "mosquitto.conf"]
    most = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files))
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, preexec_fn=most) as process:
        wait_until(lambda: says_of_running(port, version), "the broker")
        yield says_of_running(port, version)
        process.terminate()


@pytest.mark.long
def test_a_broker_that_may_open_more_files_than_its_connections_need_is_named(tmp_path: Path) -> None:
    for files, verdict in ((1124, "ok"), (1125, "warn")):
        with mosquitto(tmp_path, (2, 0, 22), files=files) as findings:
            assert [finding.verdict for finding in findings] == [verdict]
            assert str(files) in findings[0].text
    assert "ulimit -n 1124" in findings[0].text


@pytest.mark.parametrize(
    ("seconds", "version", "texts"),
    [
        (60, (2, 0, 21), ["2.0.21 drops connections at max_keepalive 60: write 600, and restart it"]),
        *((600, (2, 0, 21), []), (60, (2, 0, 22), [])),
    ],
)
def test_a_running_broker_that_drops_connections_is_named(
    tmp_path: Path, seconds: int, version: tuple[int, int, int], texts: list[str]
) -> None:
    with mosquitto(tmp_path, version, f"max_keepalive {seconds}\n") as findings:
        assert [finding.text for finding in findings if finding.check == "broker's keep-alive"] == texts


@pytest.mark.parametrize(
    ("version", "verdict", "text"),
    [
        ("2.0.10", "FAIL", "2.0.10: install 2.0.11 or newer"),
        ("1.6.9", "FAIL", "1.6.9: install 2.0.11 or newer"),
        ("2.0.11", "ok", "2.0.11 (before 2.0.21 it needs a distribution's security updates"),
        ("2.0.20", "ok", "2.0.20 (before 2.0.21 it needs a distribution's security updates"),
        ("2.0.21", "ok", "2.0.21 (it drops clients that ask for all of max_keepalive"),
        ("2.0.22", "ok", "2.0.22"),
        ("2.1.0", "ok", "2.1.0"),
    ],
)
def test_the_least_mosquitto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, verdict: str, text: str
) -> None:
    program = tmp_path / "mosquitto"
    program.write_text(f"#!/bin/sh\necho mosquitto version {version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = doctor._check_mosquitto(doctor.mosquitto_version())
    assert finding.verdict == verdict
    assert finding.text.startswith(text)
    assert ("CVE-2023-28366" in finding.text) == ("before" in text)


def test_a_gateway_that_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies, store = tmp_path / "policies", tmp_path / "store.sqlite"
    policies.mkdir()
    (policies / "watch.json").write_text("{}")
    secret = tmp_path / "key"
    secret.write_text("x")
    secret.chmod(0o644)
    with sqlite3.connect(store) as db:
        db.execute("CREATE TABLE x (y)")
        db.executemany("INSERT INTO x VALUES (?)", [("z" * 3000,)] * 50)
    page = store.read_bytes()
    store.write_bytes(page[:8192] + b"\xff" * (len(page) - 8192))
    findings = examine(Installation("home", Broker(port=free_port()), store, policies, (secret,)))
    for check in ("policies", "store", "file key", "broker"):
        assert worst(findings, check) == "FAIL", check
    missing = examine(Installation("home", None, tmp_path / "gone.sqlite", None))
    assert worst(missing, "store") == "warn"
    file = gateway_file(tmp_path / "gateway.toml", free_port(), store=store, policies=policies)
    assert main(["doctor", str(file)]) == 1
    assert "FAIL policies: watch.json" in capsys.readouterr().out
    assert main(["doctor"]) == 2
    with pytest.raises(FuguError, match=r"gateway\.toml"):
        read_installation(tmp_path / "folder" / "gateway.toml")


def test_policies_of_a_gateway_that_end(tmp_path: Path) -> None:
    for seconds, verdict in ((8 * 86_400, "ok"), (86_400, "warn"), (-5, "FAIL")):
        ends = gateway_policy().model_copy(update={"valid_until": int(time.time()) + seconds})
        (tmp_path / "watch.json").write_text(ends.to_json())
        assert worst(examine(Installation("home", policies=tmp_path)), "policies") == verdict


@pytest.mark.parametrize("kind", ["ledger", "fleet registry"])
def test_every_database_of_a_gateway_is_looked_at(tmp_path: Path, kind: str) -> None:
    ledger, registry = tmp_path / "ledger.sqlite", tmp_path / "registry.sqlite"
    Store(tmp_path / "store.sqlite").close()
    Ledger(ledger).close()
    Registry(registry, fleet="home").close()
    there = Installation("home", store=tmp_path / "store.sqlite", ledger=ledger, registry=registry)
    file = ledger if kind == "ledger" else registry
    assert (worst(examine(there), kind), worst(examine(there), f"file {file.name}")) == ("ok", "ok")
    file.chmod(0o640)
    assert worst(examine(there), f"file {file.name}") == "FAIL"
    table, column = (b"binding", "identity") if kind == "ledger" else (b"fleet", "name")
    with closing(sqlite3.connect(file)) as db:
        (value,) = db.execute(f"SELECT {column} FROM {table.decode()}").fetchone()
    data = file.read_bytes()
    at = data.rindex(value.encode())
    file.write_bytes(data[:at] + b"x" + data[at + 1 :])
    assert worst(examine(there), kind) == "FAIL", "a record is damaged"


@pytest.mark.long
def test_a_helper_on_the_brokers_machine_is_named_and_more_cannot_be_known(fleet: Shipped) -> None:
    def findings() -> list[Finding]:
        return [
            finding
            for process, _ in doctor._running_brokers(fleet.port)
            for finding in doctor._check_helpers(doctor._read_log(process))
        ]

    assert findings() == []
    with fleet.client("helper") as helper:
        helper.subscribe(topic_of("group_request", "home", "street"))
        wait_until(findings, "the helper in the broker's log")
    (finding,) = findings()
    assert finding.verdict == "warn"
    assert "let somebody else run it" in finding.text
    assert [is_local(address) for address in ("127.0.0.1", "::1", "192.0.2.1")] == [True, True, False]
