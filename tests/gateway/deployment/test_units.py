"""The systemd units: what systemd's own tools say, and that the commands in them work."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_agent.config_schema import AgentConfig
from fugu.contract.errors import FuguError
from fugu.host.clock import BOOT_VARIABLE
from fugu.mqtt import ReleaseReading, Subscription, SymbolReading
from gateway.cluster.duties import shard_account
from gateway.config import GatewayConfig
from gateway.deployment.units import unit
from gateway.store.shards import own_account
from tests.support.brokers import PATIENCE
from tests.support.command import Fugu
from tests.support.processes import policy
from tests.support.shipped import Shipped

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(sys.executable).parent
UNITS = ("fugu-broker.service", "fugu-agent.service", "fugu-gateway.service")
PARTS = ("fugu-fleet.service", "fugu-shard@.service")
SHARDS = 4
WORST_SCORE = 2.5


@pytest.fixture(params=[(), ("--mutual",)], ids=["passwords", "certificates"])
def units(request: pytest.FixtureRequest, fugu: Fugu, tmp_path: Path) -> list[Path]:
    """The units as the commands write them."""
    broker = tmp_path / "broker"
    commands = [
        ("broker", broker, "--fleet", "home", "--host", "gw.example", *request.param),
        ("device", tmp_path / "watch", "--broker", broker, "--name", "watch"),
        ("gateway", tmp_path / "gateway", "--broker", broker, "--rollout", "--shards", SHARDS),
    ]
    for command in commands:
        assert fugu("deploy", *command).code == 0
    folders = ("broker", "watch", *["gateway"] * 3)
    paths = [tmp_path / folder / name for folder, name in zip(folders, (*UNITS, *PARTS), strict=True)]
    for path in paths:
        path.write_text(path.read_text().replace("/opt/fugu-edge/bin", str(PROGRAMS)))
    return paths


def test_systemd_finds_nothing_wrong_with_them(units: list[Path]) -> None:
    analyze = analyzer()
    done = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True)
    about = [line for line in done.stderr.splitlines() if "fugu" in line]
    assert about == []


def test_their_exposure_is_small(units: list[Path]) -> None:
    """As docs/broker.md says of the broker, the gateway and the agent."""
    analyze = analyzer()
    _, _, section = (Path(__file__).parents[3] / "docs/broker.md").read_text().partition("`systemd-analyze security`")
    for path in units:
        done = subprocess.run([analyze, "security", "--offline=true", path], capture_output=True, text=True)
        score = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        assert score is not None, done.stderr
        rated = re.search(rf"\b{path.stem.split('-')[1]}\D+ ([\d.]+)", section)
        assert float(score[1]) <= (float(rated[1]) if rated else WORST_SCORE), path.name


def test_every_secret_is_handed_over_and_none_is_read_from_the_folder(units: list[Path]) -> None:
    for folder in {path.parent for path in units}:
        secrets = {file.name for file in folder.iterdir() if file.is_file() and file.stat().st_mode & 0o077 == 0}
        every = [handed(path, index) for path in units if path.parent == folder for index in range(SHARDS)]
        assert secrets <= set().union(*every)
        assert set().union(*every) - {"pgpass"} <= {file.name for file in folder.iterdir()}


def test_a_shard_is_handed_its_own_account_and_the_fleet_s_process_that_of_the_gateway(units: list[Path]) -> None:
    gateway, fleet, shard = units[2:]
    assert handed(fleet) == handed(gateway) | {"pgpass"}
    assert not any(re.search(r"-\d", name) for name in handed(gateway))
    assert handed(gateway) >= {"rollout-password"} or handed(gateway) >= {"rollout-client.key"}
    connection = GatewayConfig.read(gateway.with_name("gateway.toml")).broker
    for index in range(SHARDS):
        own = own_account(connection, index)
        files = {Path(file).name for file in (own.password_file, own.cert_file, own.key_file) if file is not None}
        assert handed(shard, index) == {"gateway.toml", "ca.pem", "pgpass", *files}
        place = gateway.parent.with_name(f"handed-{index}")
        place.mkdir()
        for name in handed(shard, index) - {"pgpass"}:
            shutil.copy(gateway.with_name(name), place)
        alone = GatewayConfig.read(place / "gateway.toml").broker
        assert shard_account(alone, index, SHARDS) == own_account(alone, index) is not None


def handed(path: Path, index: int = 0) -> set[str]:
    """The files that a unit, or its instance for a shard, is handed; each is where the folder will be installed."""
    text = path.read_text().replace("%i", str(index))
    assert not re.search(r"@\w+@", text)
    matches = dict(re.findall(r"^LoadCredential=([\w.-]+):(\S+)$", text, re.MULTILINE))
    place = "/etc/fugu-gateway" if path.name in PARTS else f"/etc/{path.stem}"
    assert all(target == f"{place}/{name}" for name, target in matches.items())
    return set(matches)


def test_all_that_the_tools_cannot_see_is_there() -> None:
    for name in UNITS:
        text = (ROOT / "deploy" / "systemd" / name).read_text()
        restart = "always" if name == "fugu-broker.service" else "on-failure"
        for line in ("DynamicUser=yes", "Type=notify", f"Restart={restart}", f"StateDirectory={name[:-8]}"):
            assert f"\n{line}\n" in text, (name, line)
        assert re.search(r"^MemoryMax=(\d+[MG]|@MEMORY@)$", text, re.MULTILINE)
        if name != "fugu-broker.service":  # Mosquitto gives no sign of life
            assert re.search(r"^WatchdogSec=\d+$", text, re.MULTILINE)


def test_a_template_that_is_missing_is_one_line() -> None:
    with pytest.raises(FuguError, match=r"the template none\.service is missing"):
        unit("none.service", {})


@pytest.mark.parametrize("written", ["certificates"], indirect=True)
def test_the_command_of_the_gateway_s_unit_serves_a_device_for_a_subscriber(fleet: Shipped, tmp_path: Path) -> None:
    """The whole fleet over the shipped broker: agent, gateway and subscriber, each with its own credentials."""
    (tmp_path / "policies").mkdir()
    for folder in ("device", "gateway", "policies"):
        (tmp_path / folder).mkdir(exist_ok=True)
    document = policy(epoch_us=0, period_us=20_000, device="wrist").to_json()
    (tmp_path / "policies" / "wrist.json").write_text(document)
    with fleet_with_wrist(fleet, tmp_path) as broker:
        log = (tmp_path / "log").open("wb")
        gateway = subprocess.Popen(gateway_command(tmp_path), stdout=log, stderr=log, cwd=tmp_path)
        agent = subprocess.Popen(
            [sys.executable, "-m", "edge_agent", str(tmp_path / "wrist" / "agent.toml")],
            stdin=subprocess.DEVNULL,  # without readings every tick is missing, and drawn for all the same
            stdout=log,
            stderr=log,
        )
        subscription = Subscription(broker.address("site"), fleet="home", timeout=PATIENCE)
        kinds, described = set(), False
        with subscription as readings:
            for reading in readings:
                kinds.add(type(reading).__name__)
                assert not isinstance(reading, ReleaseReading)
                assert reading.device == "wrist"
                described |= isinstance(reading, SymbolReading) and None not in (reading.time, reading.label)
                if described and "EstimateReading" in kinds:
                    break
        agent.terminate()
        assert agent.wait(PATIENCE) == 0  # an orderly stop waits until the gateway has everything
        gateway.terminate()
        assert gateway.wait(PATIENCE) == 0
        log.close()
        assert described, "the account may read descriptions, and they come before what they describe"
        assert kinds == {"SymbolReading", "EstimateReading"}, (tmp_path / "log").read_text()
        assert (tmp_path / "state" / "store.sqlite").exists()
        log_text = (broker.folder / "mosquitto.log").read_text().lower()
        assert not any(word in log_text for word in ("denied", "already connected"))


def fleet_with_wrist(fleet: Shipped, folder: Path) -> Shipped:
    """A broker like that of the fleet, with a device and a gateway as they are installed, once of two shards."""
    broker = Shipped(folder, mutual=fleet.mutual)
    broker.add("device", "wrist", "--policy", folder / "policies" / "wrist.json", "--in-place")
    broker.add("subscriber", "site", "--audience", "site")
    (folder / "gateway").rmdir()
    broker.add("gateway", "gateway", "--shards", 2 if fleet.mutual else 1)
    return broker


def gateway_command(folder: Path) -> list[str]:
    """The command that systemd would run, with the folders of this test."""
    text = (folder / "gateway" / "fugu-gateway.service").read_text().replace("\\\n", " ")
    text = text.replace("/opt/fugu-edge/bin", str(PROGRAMS))
    (folder / "state").mkdir()
    command = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert command is not None
    file = folder / "gateway" / "gateway.toml"
    places = {"/var/lib/fugu-gateway": str(folder / "state"), "/etc/fugu-gateway/policies": str(folder / "policies")}
    lines = file.read_text()
    for old, new in places.items():
        assert old in lines
        lines = lines.replace(old, new)
    file.write_text(lines)
    program, *words = shlex.split(command[1].replace("%d", str(folder / "gateway")))
    assert program == str(PROGRAMS / "fugu")
    return [sys.executable, "-m", "fugu", *words]


def analyzer() -> str:
    """systemd-analyze; the test is skipped where there is none."""
    analyzer = shutil.which("systemd-analyze")
    if analyzer is None:
        pytest.skip("systemd-analyze is missing")
    return analyzer


def test_an_agent_can_ask_whether_its_clock_is_synchronised_and_set_none() -> None:
    """Protection of clocks also forbids to ask; without the capability, to ask is all that the call can do."""
    lines = (ROOT / "deploy" / "systemd" / "fugu-agent.service").read_text().splitlines()
    assert lines.index("SystemCallFilter=adjtimex") > lines.index("SystemCallFilter=@system-service")
    assert "CapabilityBoundingSet=" in lines
    assert not any(line.startswith("ProtectClock") for line in lines)
    assert any(f"{BOOT_VARIABLE}=%b" in line for line in lines), "the kernel's name for its start is hidden from it"


def test_an_agent_may_have_a_thread_a_command_and_its_guard_for_each_of_its_sensors() -> None:
    lines = (ROOT / "deploy" / "systemd" / "fugu-agent.service").read_text().splitlines()
    limits = AgentConfig.model_fields["streams"].metadata
    most_streams = next(limit.max_length for limit in limits if hasattr(limit, "max_length"))
    (tasks,) = (int(line.partition("=")[2]) for line in lines if line.startswith("TasksMax="))
    assert tasks >= 4 * most_streams + 16


def test_the_drop_ins_of_the_manual_give_the_agent_s_sensors_what_they_need(units: list[Path]) -> None:
    """They are known to systemd, change what they name, and open little."""
    analyze, agent = analyzer(), units[1]
    text = (ROOT / "docs" / "sensors.md").read_text()
    drop_ins = dict(re.findall(r"^```ini file=(\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert set(drop_ins) == {"gpio.conf", "bluetooth.conf"}
    folder = agent.with_name(f"{agent.name}.d")
    folder.mkdir()
    for name, body in drop_ins.items():
        (folder / name).write_text(body)
    done = subprocess.run([analyze, "verify", "--man=no", agent], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "fugu" in line or "conf" in line] == []
    (folder / "broken.conf").write_text("[Service]\nPrivateDevice=no\n")
    done = subprocess.run([analyze, "verify", "--man=no", agent], capture_output=True, text=True)
    assert "PrivateDevice" in done.stderr, "drop-ins are looked at"
    joined = agent.read_text().replace(
        "\n[Install]", "".join(drop_ins.values()).replace("[Service]", "") + "\n[Install]"
    )
    agent.write_text(joined)
    done = subprocess.run([analyze, "security", "--offline=true", agent], capture_output=True, text=True)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert score is not None, done.stderr
    assert float(score[1]) <= WORST_SCORE
