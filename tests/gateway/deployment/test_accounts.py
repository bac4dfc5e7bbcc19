"""Certificates, passwords and folders: who can read them, what is in them, and what is refused."""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from edge_agent.config import load
from fugu.contract.errors import FuguError
from gateway.deployment.broker_files import BrokerFolder, password_line
from gateway.deployment.certificates import Authority
from gateway.deployment.mosquitto import Account, access_list
from tests.support.command import Fugu
from tests.support.processes import policy
from tests.support.shipped import promises

BROKER = ("--fleet", "home", "--host", "gw.example", "--host", "192.168.1.5", "--host", "::1")
SECRETS = {"server.key", "passwords", "access.acl", "password", "rollout-password", "client.key", "rollout-client.key"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what no test changes."""
    return tmp_path_factory.mktemp("shared")


def deployed(fugu: Fugu, folder: Path, *words: str) -> Path:
    """A broker's folder and one of each account."""
    broker = folder / "broker"
    commands: list[list[object]] = [["broker", broker, *BROKER, *words]]
    commands += [["device", folder / "watch", "--broker", broker, "--name", "watch"]]
    commands += [["gateway", folder / "gateway", "--broker", broker, "--rollout"]]
    commands += [["operator", folder / "operator", "--broker", broker]]
    commands += [["subscriber", folder / "public", "--broker", broker, *promises(folder / "promises")]]
    for command in commands:
        done = fugu("deploy", *command)
        assert done.code == 0
        assert done.err.startswith("fugu: warning: a service has no standard input") == (command[0] == "device")
    return broker


@pytest.mark.parametrize("words", [(), ("--mutual",)])
def test_secrets_are_for_their_owner_only(fugu: Fugu, tmp_path: Path, words: tuple[str, ...]) -> None:
    deployed(fugu, tmp_path, *words)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in files}
    assert modes.pop("broker-offline/ca.key") == 0o600
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        name for name in modes if Path(name).name in SECRETS
    }
    assert set(modes.values()) == {0o600, 0o644}
    assert (tmp_path / "broker-offline").stat().st_mode & 0o777 == 0o700
    authority = (tmp_path / "broker-offline" / "ca.key").read_bytes()
    assert all(path.read_bytes() != authority for path in files if path.name != "ca.key")


@pytest.mark.parametrize("steered", [True, False])
def test_who_sends_policies_hears_that_nothing_sets_the_clock(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, steered: bool
) -> None:
    monkeypatch.setattr("fugu_cli.commands.deploy.synchronised", lambda: steered)
    fugu("deploy", "broker", tmp_path / "broker", *BROKER)
    sends = fugu("deploy", "gateway", tmp_path / "sends", "--broker", tmp_path / "broker", "--rollout")
    other = fugu("deploy", "gateway", tmp_path / "other", "--broker", tmp_path / "broker", "--name", "other")
    assert (sends.code, other.code) == (0, 0)
    assert ("trusted_clock = true" in sends.out) == (not steered)
    assert "trusted_clock" not in other.out
    assert "\n# trusted_clock = true" in (tmp_path / "sends" / "gateway.toml").read_text()
    assert "trusted_clock" not in (tmp_path / "other" / "gateway.toml").read_text()


def test_no_password_is_stored_at_the_broker(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path)
    passwords = [path.read_text().strip() for path in tmp_path.rglob("*password") if path.name != "passwords"]
    assert len(set(passwords)) == len(passwords) == 5
    text = "".join(path.read_text() for path in broker.iterdir())
    assert not any(password in text for password in passwords)
    assert [line.partition(":")[0] for line in (broker / "passwords").read_text().splitlines()] == [
        "watch",
        "gateway",
        "gateway-rollout",
        "operator",
        "public",
    ]


def test_a_hashed_password_is_what_mosquitto_s_own_tool_makes(tmp_path: Path) -> None:
    """Its salt is read from its own file, and our line for the same password must then be the same."""
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("mosquitto_passwd is missing")
    file = tmp_path / "passwords"
    password = secrets.token_urlsafe(32)
    subprocess.run([tool, "-b", "-c", file, "watch", password], check=True, capture_output=True)
    line = file.read_text().strip()
    salt = base64.b64decode(line.split("$")[3])
    assert password_line("watch", password, salt) == line
    assert password_line("watch", password) != password_line("watch", password)


def test_certificates_hold_for_one_purpose_and_pass_openssl_s_strict_check(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path, "--mutual")
    client = tmp_path / "watch" / "client.pem"
    for purpose, good, bad in (("sslserver", broker / "server.pem", client), ("sslclient", client, broker / "ca.key")):
        check = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(broker / "ca.pem")]
        assert subprocess.run([*check, str(good)], capture_output=True).returncode == 0
        assert subprocess.run([*check, str(bad)], capture_output=True).returncode != 0
    server = x509.load_pem_x509_certificate((broker / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gw.example"]
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["192.168.1.5", "::1"]
    subject = x509.load_pem_x509_certificate(client.read_bytes()).subject
    assert subject.rfc4514_string() == "CN=watch"


def test_certificates_hold_from_yesterday_to_the_day_that_was_asked_for() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    authority = Authority.create("home", now, 30)
    for certificate in (
        authority.certificate,
        x509.load_pem_x509_certificate(authority.issue_client("w", now, 9).certificate),
    ):
        assert certificate.not_valid_before_utc == datetime(2026, 2, 28, tzinfo=UTC)
    assert authority.certificate.not_valid_after_utc == datetime(2026, 3, 31, tzinfo=UTC)


def test_no_certificate_outlives_its_authority_s_and_none_is_made_after_it() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    authority = Authority.create("home", now, 30)
    issued = x509.load_pem_x509_certificate(authority.issue_client("w", now + timedelta(days=20), 30).certificate)
    assert issued.not_valid_after_utc == now + timedelta(days=30)
    with pytest.raises(FuguError, match="ended on 2026-03-31"):
        authority.issue_server(["h"], now + timedelta(days=30), 1)


@pytest.mark.parametrize("words", [(), ("--mutual",)])
def test_each_command_says_when_what_it_made_ends(fugu: Fugu, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A year for the broker and, with certificates, for accounts; ten for the authority."""
    broker = tmp_path / "broker"
    year = f"{datetime.now(UTC) + timedelta(days=365):%Y-%m-%d}"
    ten = f"{datetime.now(UTC) + timedelta(days=3650):%Y-%m-%d}"
    creation = fugu("deploy", "broker", broker, *BROKER, *words)
    for done in (creation, fugu("deploy", "renew", "--broker", broker)):
        assert f"{broker}/server.pem: the certificate ends on {year}\n" in done.out
        assert f"{broker}/ca.pem: the certificate ends on {ten}\n" in done.out
    device = fugu("deploy", "device", tmp_path / "watch", "--broker", broker, "--name", "watch")
    assert f"{broker}/server.pem: the certificate ends on {year}\n" in device.out
    assert (f"client.pem: the certificate ends on {year}\n" in device.out) == bool(words)


def test_an_authority_s_key_that_is_away_is_asked_for_and_accepted(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = deployed(fugu, tmp_path, "--mutual")
    away, device = tmp_path / "stick.key", ("deploy", "device", "--broker", broker, tmp_path / "ring")
    (tmp_path / "broker-offline" / "ca.key").rename(away)
    refused = fugu(*device, "--name", "ring")
    assert refused.code == 1
    assert refused.err.endswith("broker-offline/ca.key: say with FUGU_CA_KEY where it is\n")
    monkeypatch.setenv("FUGU_CA_KEY", str(away))
    assert fugu(*device, "--name", "ring").code == 0
    away.write_bytes(Authority.create("other", datetime.now(UTC), 1).pem().key)
    other = fugu("deploy", "operator", "--broker", broker, tmp_path / "o", "--name", "o")
    assert (other.code, other.err) == (1, "fugu: the authority's key is not that of its certificate\n")
    away.write_text("no key")
    other = fugu("deploy", "operator", "--broker", broker, tmp_path / "o", "--name", "o")
    assert (other.code, other.err) == (1, "fugu: the authority's certificate or key is not PEM\n")


def test_a_password_needs_no_authority(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path)
    shutil.rmtree(tmp_path / "broker-offline")
    assert fugu("deploy", "device", "--broker", broker, tmp_path / "ring", "--name", "ring").code == 0


def test_an_account_exists_once_and_can_be_renewed(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path)
    again = ("deploy", "device", "--broker", broker, tmp_path / "again", "--name", "watch")
    refused = fugu(*again)
    assert refused.err == "fugu: the account watch exists, as device; fugu deploy renew gives it new credentials\n"
    before = (broker / "passwords").read_text()
    account = BrokerFolder.open(broker).account("watch")
    assert fugu("deploy", "renew", "watch", tmp_path / "anew", "--broker", broker).code == 0
    assert BrokerFolder.open(broker).account("watch") == account
    assert (tmp_path / "anew" / "password").stat().st_mode & 0o077 == 0
    assert (tmp_path / "anew" / "broker.toml").exists()
    after = (broker / "passwords").read_text()
    assert sorted(line.partition(":")[0] for line in after.splitlines()) == sorted(
        line.partition(":")[0] for line in before.splitlines()
    )
    assert after != before
    taken = fugu("deploy", "operator", "--broker", broker, tmp_path / "x", "--name", "watch")
    assert taken.err == "fugu: the account watch exists, as device\n"


def test_a_name_whose_certificate_may_still_be_about_is_not_given_again(fugu: Fugu, tmp_path: Path) -> None:
    for words, code in (((), 0), (("--mutual",), 1)):
        folder = tmp_path / str(code)
        broker = deployed(fugu, folder, *words)
        assert fugu("deploy", "remove", "--broker", broker, "watch").code == 0
        assert fugu("deploy", "remove", "--broker", broker, "watch").code == 1
        again = fugu("deploy", "device", "--broker", broker, folder / "again", "--name", "watch")
        assert again.code == code
        assert code == 0 or again.err == "fugu: the account watch was removed\n"


def test_what_lies_under_the_name_of_an_account_that_is_no_device_is_denied() -> None:
    eve = Account(name="eve", role="reader", audiences=("press",), epsilon=1.0, adversary="informed")
    accounts = [Account(name="watch", role="device"), eve]
    text = access_list("home", accounts)
    user = text[text.index("user eve") :]
    assert user.splitlines() == ["user eve", "topic deny fugu/2/home/eve/+/#", "topic read fugu/2/home/release/press/+"]
    assert "user watch" not in text


NO_HOSTS = ("'bad host'", "a..b", "x" * 64, "x." * 127, "'::1%\nallow_anonymous'")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("broker {new} --fleet a/b --host h", 2, "name of the fleet"),
        *((f"broker {{new}} --fleet home --host {host}", 2, "neither a host name") for host in NO_HOSTS),
        ("broker {new} --fleet home --host h --bind eth0", 2, "--bind"),
        ("broker {new} --fleet home --host h --bind '::1%\nuser root'", 2, "--bind"),
        ("broker {broker} --fleet home --host h", 1, "not empty"),
        ("broker {new} --fleet home --host h --port 70000", 2, "--port"),
        ("device {new} --broker {broker} --name estimate", 2, "name of the device"),
        ("device {new} --broker {broker} --name +", 2, "name of the device"),
        ("device {new} --broker {new} --name ring", 1, "cannot read the broker's document"),
        ("device {new} --broker {broker} --name ring --ceiling 0", 1, "above 0"),
        ("device {new} --broker {broker} --name ring --policy {p}", 1, "not for home/r"),
        ("device {new} --broker {broker} --name watch --policy none", 1, "cannot read"),
        ("device {new} --broker {broker} --name watch --policy {p} --ceiling .1", 1, "ceiling"),
        ("renew watch --broker {broker}", 2, "name both, NAME and DIR"),
        ("renew nobody {new} --broker {broker}", 1, "no account nobody"),
        ("remove --broker {broker} nobody", 1, "no account nobody"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    fugu: Fugu, shared: Path, tmp_path: Path, words: str, code: int, says: str
) -> None:
    broker = shared / "broker" if (shared / "broker").exists() else deployed(fugu, shared)
    before = (broker / "passwords").read_bytes(), (broker / "broker.json").read_bytes()
    (tmp_path / "p.json").write_text(policy(epoch_us=0, period_us=10**6).to_json())
    places = {"new": str(tmp_path / "new"), "broker": str(broker), "p": str(tmp_path / "p.json")}
    done = fugu("deploy", *(word.format(**places) for word in shlex.split(words)))
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert says in done.err
    assert ((broker / "passwords").read_bytes(), (broker / "broker.json").read_bytes()) == before


def test_a_broken_broker_document_is_one_line(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path)
    document = json.loads((broker / "broker.json").read_text())
    for text in ("", "[]", json.dumps({**document, "port": 0}), json.dumps({**document, "more": 1})):
        (broker / "broker.json").write_text(text)
        done = fugu("deploy", "operator", tmp_path / "new", "--broker", broker, "--name", "o")
        assert (done.code, done.err.count("\n")) == (1, 1)


@pytest.mark.parametrize("words", [(), ("--mutual",)])
def test_names_of_the_greatest_length_and_link_local_addresses_are_taken(
    fugu: Fugu, tmp_path: Path, words: tuple[str, ...]
) -> None:
    longest, broker = "f" * 64, tmp_path / "broker"
    hosts = ("--host", f"{'x' * 63}." * 3 + "x" * 61, "--host", "fe80::1%eth0", "--bind", "fe80::1%eth0")
    assert fugu("deploy", "broker", broker, "--fleet", longest, *hosts, *words).code == 0
    added = ("--broker", broker, "--name", longest, "--stream", longest)
    assert fugu("deploy", "device", tmp_path / "device", *added).code == 0
    assert "\nlistener 8883 fe80::1%eth0\n" in (broker / "mosquitto.conf").read_text()


def test_a_policy_file_may_be_called_as_one_likes(fugu: Fugu, tmp_path: Path) -> None:
    broker, file = tmp_path / "broker", tmp_path / 'Пульс "🐡"\n.json'
    assert fugu("deploy", "broker", broker, "--fleet", "home", "--host", "h").code == 0
    file.write_text(policy(epoch_us=0, period_us=10**6).to_json())
    device = ("deploy", "device", "--broker", broker, tmp_path / "watch", "--name", "watch", "--in-place")
    assert fugu(*device, "--policy", file).code == 0
    assert [stream.stream for stream in load(tmp_path / "watch" / "agent.toml").streams] == ["hr"]


def test_a_broker_whose_certificate_rots_can_be_renewed(fugu: Fugu, tmp_path: Path) -> None:
    broker = deployed(fugu, tmp_path)
    for content in (b"", b"no certificate", bytes(range(256))):
        (broker / "server.pem").write_bytes(content)
        added = fugu("deploy", "operator", "--broker", broker, tmp_path / "o", "--name", "o")
        assert (added.code, added.err.count("\n")) == (0, 1)
        assert "server.pem cannot be read as a certificate: see fugu deploy renew" in added.err
        assert fugu("deploy", "remove", "--broker", broker, "o").code == 0
        shutil.rmtree(tmp_path / "o")
        assert fugu("deploy", "renew", "--broker", broker).err == ""
    key = tmp_path / "broker-offline" / "ca.key"
    for file in (key, broker / "ca.pem", broker / "broker.json"):
        whole = file.read_bytes()
        for content in (b"", b"{}", bytes(range(256))):
            file.write_bytes(content)
            refused = fugu("deploy", "renew", "--broker", broker)
            assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        file.unlink()
        file.mkdir()
        refused = fugu("deploy", "renew", "--broker", broker)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        file.rmdir()
        file.write_bytes(whole)


@pytest.mark.parametrize("sensor", ["stdin", "fugu_probe.pulse:read"])
@pytest.mark.parametrize("words", [(), ("--mutual",)])
def test_the_agent_accepts_its_configuration(fugu: Fugu, tmp_path: Path, words: tuple[str, ...], sensor: str) -> None:
    broker = tmp_path / "broker"
    assert fugu("deploy", "broker", broker, *BROKER, *words).code == 0
    (tmp_path / "hr.json").write_text(policy(epoch_us=0, period_us=10**6).to_json())
    device = ("deploy", "device", "--broker", broker, tmp_path / "watch", "--name", "watch", "--in-place")
    device = (*device, "--policy", tmp_path / "hr.json", "--ceiling", "1.5", "--sensor")
    for wrong in ("home/#", "home/+/x", "gpio"):
        refused = fugu(*device, wrong)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert fugu(*device, sensor).code == 0
    plan = load(tmp_path / "watch" / "agent.toml")
    assert (plan.fleet, plan.device, plan.outbox) == ("home", "watch", str(tmp_path / "watch" / "outbox.sqlite"))
    assert (plan.broker.host, plan.broker.port) == ("gw.example", 8883)
    assert plan.broker.tls_context() is not None
    assert plan.broker.username == (None if words else "watch")
    assert not list((tmp_path / "watch").glob("*.service"))
