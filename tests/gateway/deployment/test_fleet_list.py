"""`fugu deploy fleet`: all devices of a list are added, or none of them."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from edge_agent.local_control import LocalStatusError, ask_status
from fugu.contract.errors import FuguError
from fugu.host.files import create_private
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.folders import sensor_table
from gateway.fleet.registry import Registry
from tests.support.brokers import PATIENCE, wait_until
from tests.support.command import Fugu
from tests.support.processes import AgentProcess, policy
from tests.support.shipped import Shipped

HEADER = "device,policy,sensor,ceiling"
TOPIC = "zigbee2mqtt/band#heart_rate"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shipped:
    """A broker without accounts, beside a policy for streams `hr` of any device."""
    monkeypatch.setenv("FUGU_PASSPHRASE", "a long passphrase")
    monkeypatch.setattr("gateway.fleet.keys._PARALLEL", 1)
    (tmp_path / "hr.json").write_text(policy(epoch_us=0, period_us=20_000).to_json())
    template = json.loads((tmp_path / "hr.json").read_text())
    (tmp_path / "hr.json").write_text(json.dumps({**template, "device": "any", "stream": "hr"}))
    (tmp_path / "steps.json").write_text(json.dumps({**template, "device": "any", "stream": "steps"}))
    return Shipped(tmp_path)


def words(broker: Shipped, rows: list[str], *, header: str = HEADER) -> tuple[object, ...]:
    """The command for a list of these rows."""
    (broker.root / "devices.csv").write_text("\n".join([header, *rows, ""]))
    options = ("--broker", broker.folder, "--keys", broker.root / "keys", "--registry", broker.root / "fleet.sqlite")
    return ("deploy", "fleet", broker.root / "devices.csv", broker.root / "devices", *options, "--in-place")


def connected(folder: Path) -> bool:
    """True if the agent of a folder says that it is connected."""
    try:
        return bool(ask_status(str(folder / "outbox.sqlite"))["connected"])
    except LocalStatusError:
        return False


@pytest.mark.long
def test_forty_devices_of_a_list(fugu: Fugu, broker: Shipped) -> None:
    names = [f"b{number}" for number in range(40)]
    done = fugu(*words(broker, [f"{name},hr.json,stdin,5" for name in names]))
    assert (done.code, done.err) == (0, "")
    devices = broker.root / "devices"
    assert sorted(folder.name for folder in devices.iterdir()) == sorted(names)
    assert {account.name for account in BrokerFolder.open(broker.folder).settings.accounts} == set(names)
    assert {(devices / name / "enrolment.json").stat().st_mode & 0o777 for name in names} == {0o600}
    with closing(Registry(broker.root / "fleet.sqlite")) as registry:
        assert {device.name for device in registry.devices()} == set(names)
    with broker, ExitStack() as agents:
        started = [AgentProcess(devices / name / "agent.toml", broker.root / name) for name in names[:2]]
        for agent in started:
            agents.callback(agent.stop)
        wait_until(lambda: all(connected(devices / name) for name in names[:2]), "two agents")
        (devices / "b7" / "password").write_text("of somebody else\n")
        # A process of its own: it forks, which one with threads must not.
        command = [sys.executable, "-m", "fugu", "doctor", str(devices), str(devices / "b7")]
        seen = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert seen.returncode == 1
    lines = seen.stdout.splitlines()
    assert lines[-1] == "39 of 40 work"
    (failure,) = (line for line in lines if line.startswith("FAIL"))
    assert failure.startswith("FAIL broker: ")
    assert failure.endswith(f" [{devices / 'b7' / 'agent.toml'}]")


def test_a_list_writes_what_one_command_for_each_writes(fugu: Fugu, broker: Shipped) -> None:
    rows = [f"watch,hr.json,{TOPIC},5,bands wrists", "watch,steps.json,bands:steps,5,bands wrists"]
    assert fugu(*words(broker, rows, header=f"\ufeff{HEADER},groups")).code == 0
    alone = broker.root / "alone.json"
    options = ("--root", broker.root / "keys" / "root.envelope", "--group", "wrists", "--group", "bands")
    policies = ("--policy", broker.root / "hr.json", "--policy", broker.root / "steps.json")
    done = fugu("fleet", "enrol", *options, *policies, "--device", "watch", "--ceiling", 5, "-o", alone)
    assert done.code == 0
    enrolment = json.loads((broker.root / "devices" / "watch" / "enrolment.json").read_text())
    assert len(enrolment.pop("key")) == 64
    assert enrolment == json.loads(alone.read_text())
    agent = (broker.root / "devices" / "watch" / "agent.toml").read_text()
    assert 'sensor = { kind = "mqtt", topic = "zigbee2mqtt/band", path = "heart_rate" }' in agent
    assert 'sensor = { kind = "call", target = "bands:steps" }' in agent
    (account,) = BrokerFolder.open(broker.folder).settings.accounts
    assert account.streams == ("hr", "steps")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("the hall,hr.json,stdin,5", "the name of the device"),
        ("ring,gone.json,stdin,5", "cannot read the policy"),
        ("ring,hr.json,a/+/b,5", "'a/+/b' is no sensor"),
        ("ring,hr.json,a/b/#,5", "'a/b/#' is no sensor"),
        ("ring,hr.json,stdin,0.001", "above this device's ceiling"),
        ("ring,hr.json,stdin,much", "much"),
        ("ring,hr.json,stdin", "another number of cells"),
        ("watch,hr.json,stdin,5", "two policies for stream hr"),
        ("watch,steps.json,stdin,6", "other ceilings or groups on line 2"),
        ("taken,hr.json,stdin,5", "the account taken exists"),
        ("enrolled,hr.json,stdin,5", "enrolled already"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_written(fugu: Fugu, broker: Shipped, row: str, problem: str) -> None:
    broker.add("operator", "taken")
    registry = broker.root / "fleet.sqlite"
    with closing(Registry(registry, fleet="home")) as opened:
        opened.enrol("enrolled", actor="anna", time_us=0)
    before = {file: file.read_bytes() for file in broker.folder.iterdir()}
    done = fugu(*words(broker, ["watch,hr.json,stdin,5", row]))
    assert (done.code != 0, done.out.count("devices of fleet")) == (True, 0)
    assert problem in done.err.partition("devices.csv: line 3: ")[2]
    assert done.err.count("\n") == 1
    assert "nothing was written" in done.err
    assert {file: file.read_bytes() for file in broker.folder.iterdir()} == before
    assert not (broker.root / "devices").exists()
    with closing(Registry(registry)) as opened:
        assert [device.name for device in opened.devices()] == ["enrolled"]


def test_a_column_is_there_once_since_only_one_ceiling_would_be_held(fugu: Fugu, broker: Shipped) -> None:
    done = fugu(*words(broker, ["watch,hr.json,stdin,5,500"], header=f"{HEADER},ceiling"))
    assert (done.code, done.err) == (
        1,
        f"fugu: {broker.root / 'devices.csv'}: line 1: the column ceiling comes twice\n",
    )
    assert not (broker.root / "devices").exists()


def test_each_of_several_wrong_rows_is_a_line(fugu: Fugu, broker: Shipped) -> None:
    first, second = fugu(*words(broker, ["ring,hr.json,,5", "band,hr.json,stdin,5", "cup,hr.json,,5"])).err.splitlines()
    assert "devices.csv: line 2: '' is no sensor" in first
    assert "devices.csv: line 4: '' is no sensor" in second
    assert ["nothing was written" in line for line in (first, second)] == [False, True]


def test_a_kind_of_sensor_that_has_more_to_say_is_no_function() -> None:
    with pytest.raises(FuguError, match="a sensor of kind replay has more to say"):
        sensor_table("replay")
    assert sensor_table("house.meter:read") == {"kind": "call", "target": "house.meter:read"}


def test_the_gateway_of_a_list_is_handed_its_key_and_the_root(fugu: Fugu, broker: Shipped) -> None:
    secret, folder = broker.root / "gateway-secret", broker.root / "gateway"
    create_private(secret)
    secret.write_text("another long passphrase\n")
    arguments = words(broker, ["ring,hr.json,call:me,5"])[:-1]
    both = ("--gateway", folder, "--gateway-passphrase-file", secret)
    done = fugu(*arguments, *both)
    assert (done.code, done.err) == (0, "")
    settings = tomllib.loads((folder / "gateway.toml").read_text())["signed"]
    assert settings.pop("operator")["username"] == "gateway-rollout"
    assert settings == {
        "registry": "/var/lib/fugu-gateway/fleet.sqlite",
        "roots": ["/etc/fugu-gateway/root-1.envelope"],
        "key": "gateway.key",
        "passphrase_file": "gateway-secret",
    }
    secrets = {"gateway.key", "gateway-secret", "password", "rollout-password"}
    assert {path.name for path in folder.iterdir() if path.is_file() and path.stat().st_mode & 0o077 == 0} == secrets
    unit = (folder / "fugu-gateway.service").read_text()
    assert all(f"LoadCredential={name}:/etc/fugu-gateway/{name}\n" in unit for name in secrets)
    assert {account.name: account.role for account in BrokerFolder.open(broker.folder).settings.accounts} == {
        "ring": "device",
        "gateway": "gateway",
        "gateway-rollout": "operator",
    }


@pytest.mark.parametrize(
    ("row", "options", "problem"),
    [
        ("ring,hr.json,stdin,5", ("--gateway", "gateway"), "go together"),
        ("ring,hr.json,stdin,5", ("--gateway-passphrase-file", "secret"), "go together"),
        ("ring,hr.json,stdin,5", ("--gateway", "gateway", "--gateway-passphrase-file", "wrong"), "the passphrase is"),
        (
            "gateway,hr.json,stdin,5",
            ("--gateway", "gateway", "--gateway-passphrase-file", "secret"),
            "gateway's account",
        ),
    ],
)
def test_a_gateway_that_could_not_start_is_not_written(
    fugu: Fugu, broker: Shipped, monkeypatch: pytest.MonkeyPatch, row: str, options: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(broker.root)
    for name in ("secret", "wrong"):
        create_private(Path(name))
        Path(name).write_text(f"a long {name} passphrase\n")
    assert fugu("fleet", "init", "--fleet", "home", "--keys", "keys", "--gateway-passphrase-file", "secret").code == 0
    done = fugu(*words(broker, [row]), *options)
    assert done.code in (1, 2)
    assert problem in done.err
    assert not Path("gateway").exists()
    assert not Path("devices").exists()
    assert BrokerFolder.open(broker.folder).settings.accounts == ()


def test_a_broker_s_folder_that_cannot_be_written_leaves_no_other(
    fugu: Fugu, broker: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, folder = broker.root / "gateway-secret", broker.root / "gateway"
    create_private(secret)
    secret.write_text("another long passphrase\n")

    def full(_self: BrokerFolder, _accounts: object) -> None:
        raise FuguError("no space left")

    monkeypatch.setattr(BrokerFolder, "admit", full)
    done = fugu(*words(broker, ["ring,hr.json,stdin,5"]), "--gateway", folder, "--gateway-passphrase-file", secret)
    assert (done.code, done.err) == (1, "fugu: no space left\n")
    assert not folder.exists()
    assert not (broker.root / "devices").exists()
    with closing(Registry(broker.root / "fleet.sqlite")) as registry:
        assert registry.devices() == []
