"""Who reads which releases: the generated access list on a real Mosquitto, and limits that hold over all audiences."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.errors import FuguError
from fugu.contract.stretches import stretch_ticks
from fugu.contract.topics import topic_of
from gateway.releases.allowance import allowance, joint_loss
from gateway.releases.config import joint_charge, load_readers
from gateway.releases.setup import open_releases
from gateway.store.store import Store
from tests.support.command import Fugu
from tests.support.release_scenes import scheduled
from tests.support.scenes import catalogue, policy, write_policies
from tests.support.shipped import Shipped

POLICY = policy(1)
TICKS = 121
AUDIENCES = "".join(f'[audiences.{name}]\nepsilon = 0.5\nadversary = "informed"\n' for name in ("street", "press"))
RELEASES = (
    scheduled("plain", "site", scale="1/10", length=1),
    scheduled("walk", "street", length=TICKS),
    scheduled("news", "press", length=TICKS),
)


def joint_limit(audiences: int = 2) -> float:
    """Epsilon that so many audiences of 0.5 tell one reader together."""
    allowed = allowance(POLICY.chains, 0.5, "informed")
    return joint_loss(POLICY.chains, joint_charge([allowed] * audiences, 0), "informed")


def write_releases(folder: Path, head: str = "") -> tuple[object, ...]:
    """A configuration with two audiences beside the site, and policies; returns the options that name them."""
    write_policies(folder / "policies", [POLICY])
    (folder / "releases.toml").write_text(head + AUDIENCES + "".join(RELEASES))
    return ("--releases", folder / "releases.toml", "--policies", folder / "policies")


@pytest.fixture(scope="module", params=["passwords", "certificates"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """A broker with a device, a gateway, the site, a reader of each audience, and one of both."""
    folder = tmp_path_factory.mktemp("audiences")
    broker = Shipped(folder, mutual=request.param == "certificates")
    promises = write_releases(folder)
    broker.add("device", "watch")
    broker.add("gateway", "gateway")
    broker.add("subscriber", "site", "--audience", "site")
    for name in ("street", "press"):
        broker.add("subscriber", name, "--audience", name, *promises)
    both = ("--audience", "street", "--audience", "press", "--epsilon", repr(joint_limit()))
    broker.add("subscriber", "both", *both, *promises)
    return broker


def test_a_reader_reads_the_releases_of_its_audiences_and_nothing_else(fleet: Shipped) -> None:
    """Retained ones, which came before it subscribed, and later ones."""
    topics = {audience: topic_of("release", "home", audience, "a") for audience in ("site", "street", "press")}
    readable = {"street": {"street"}, "press": {"press"}, "both": {"street", "press"}, "site": set(topics)}
    with ExitStack() as open_clients:
        gateway = open_clients.enter_context(fleet.client("gateway"))
        for topic in topics.values():
            assert gateway.publish(topic, b"retained", retain=True) == 0
        readers = {name: open_clients.enter_context(fleet.client(name)) for name in readable}
        for reader in readers.values():
            for wanted in ("#", "fugu/#", "fugu/2/home/release/+/+", *topics.values()):
                reader.subscribe(wanted)
        for payload in (b"later", b"end"):
            for topic in sorted(topics.values(), key=lambda topic: "press" in topic):  # that of press is the last one
                assert gateway.publish(topic, payload) == 0
        for name, reader in readers.items():
            reader.wait_for(topics["press" if "press" in readable[name] else "street"], b"end")
            assert {topic for topic, _ in reader.received} == {topics[audience] for audience in readable[name]}
            assert {payload for topic, payload in reader.received} == {b"retained", b"later", b"end"}


@pytest.fixture
def broker(fugu: Fugu, tmp_path: Path) -> Path:
    """A broker's folder without accounts."""
    folder = tmp_path / "broker"
    assert fugu("deploy", "broker", folder, "--fleet", "home", "--host", "h").code == 0
    return folder


def test_two_audiences_of_a_half_are_refused_just_below_the_joint_bound_and_accepted_at_it(
    fugu: Fugu, tmp_path: Path, broker: Path
) -> None:
    promises, limit = write_releases(tmp_path), joint_limit()
    both = ("deploy", "subscriber", "--broker", broker, "--name", "n", "--audience", "street", "--audience", "press")
    below = fugu(*both, tmp_path / "a", *promises, "--epsilon", repr(np.nextafter(limit, 0.0).item()))
    assert (below.code, below.out, below.err.count("\n")) == (1, "", 1)
    assert "account n would be told" in below.err
    assert not (tmp_path / "a").exists()
    assert "user n" not in (broker / "access.acl").read_text()
    at = fugu(*both, tmp_path / "b", *promises, "--epsilon", repr(limit))
    assert (at.code, at.err) == (0, "")
    assert "watch/hr: at most" in at.out
    lines = (broker / "access.acl").read_text().splitlines()
    assert lines[-2:] == ["topic read fugu/2/home/release/street/+", "topic read fugu/2/home/release/press/+"]


def test_joining_is_refused_by_the_same_rule_and_leaving_gives_nothing_back(
    fugu: Fugu, tmp_path: Path, broker: Path
) -> None:
    promises = write_releases(tmp_path)
    new = ("deploy", "subscriber", "--broker", broker, "--audience", "street", *promises)
    assert fugu(*new, "--name", "poor", tmp_path / "poor").code == 0
    assert fugu(*new, "--name", "rich", tmp_path / "rich", "--epsilon", repr(joint_limit())).code == 0
    join = ("deploy", "join", "--broker", broker, "--audience", "press", *promises)
    refused = fugu(*join, "poor")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "street, press together: its limit is 0.5" in refused.err
    assert fugu(*join, "rich").code == 0
    leave = ("deploy", "leave", "--broker", broker)
    assert fugu(*leave, "poor", "--audience", "street").code == 0
    assert fugu(*leave, "poor", "--audience", "street").code == 1
    assert "release/street" not in (broker / "access.acl").read_text().partition("user poor")[2].partition("user")[0]
    assert fugu(*join, "poor").code == 1  # what it read was read
    retired = fugu("deploy", "retire", "press", "--broker", broker)
    assert (retired.code, retired.out.count("\n")) == (0, 1)
    assert "rich reads no more releases for press" in retired.out
    assert "release/press" not in (broker / "access.acl").read_text()
    assert fugu("deploy", "retire", "press", "--broker", broker).code == 2
    assert fugu("deploy", "remove", "--broker", broker, "poor").code == 0
    again = fugu(*new, "--name", "poor", tmp_path / "again")
    assert (again.code, again.err) == (1, "fugu: the account poor was removed\n")
    readers = json.loads((broker / "readers.json").read_text())["readers"]
    assert {reader["name"]: sorted(reader["audiences"]) for reader in readers} == {
        "poor": ["street"],
        "rich": ["press", "street"],
    }


def test_the_limit_of_a_reader_is_about_the_stretch_of_its_audience_or_another(fugu: Fugu, tmp_path: Path) -> None:
    """Both audiences are promised any minute; what they tell together of it, and of an hour, is computed at once."""
    promises = write_releases(tmp_path)
    config = tmp_path / "releases.toml"
    config.write_text(config.read_text().replace('"informed"\n', '"informed"\nprotect = "1m"\n'))
    broker = tmp_path / "broker"
    assert fugu("deploy", "broker", broker, "--fleet", "home", "--host", "gw.example").code == 0
    new = ("deploy", "subscriber", "--broker", broker, *promises)
    period = POLICY.clock.period_us
    allowed = allowance(POLICY.chains, 0.5, "informed", ticks=stretch_ticks(60, period))
    done = fugu(*new, "--audience", "street", tmp_path / "one")
    assert (done.code, done.err) == (0, "")
    assert "of 0.5 nats (informed adversary) about any 60 seconds, by street together" in done.out
    hour = joint_loss(POLICY.chains, joint_charge([allowed] * 2, 0), "informed", stretch_ticks(3600, period))
    both = ("--audience", "street", "--audience", "press", "--name", "both")
    done = fugu(*new, *both, "--epsilon", f"{hour * 0.999:.6f}@1h", tmp_path / "less")
    assert done.code == 1
    assert f"would be told {hour:.6g}"[:20] in done.err
    assert "about any 3600 seconds (informed)" in done.err
    assert fugu(*new, *both, "--epsilon", f"{hour * 1.001:.6f}@1h", tmp_path / "more").code == 0
    readers = json.loads((broker / "readers.json").read_text())["readers"]
    assert {reader["name"]: reader["seconds"] for reader in readers} == {"street": 60, "both": 3600}
    assert {reader.name: reader.limit.seconds for reader in load_readers(broker / "readers.json", "home")} == {
        "street": 60,
        "both": 3600,
    }


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "say with --audience"),
        (("--audience", "street"), 2, "--releases FILE and --policies DIR"),
        (("--audience", "site", "--audience", "street"), 2, "belongs to no other audience"),
        (("--audience", "town", "{promises}"), 1, "audience town is not configured"),
        (("--audience", "street", "{promises}", "--adversary", "universal"), 1, "its limit is 0.5 (universal"),
        (("--audience", "street", "{promises}", "--epsilon", "0"), 1, "above 0"),
    ],
)
def test_an_account_whose_bound_cannot_be_computed_is_refused_in_one_line(
    fugu: Fugu, tmp_path: Path, broker: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    promises = write_releases(tmp_path)
    arguments = [promise for word in words for promise in (promises if word == "{promises}" else (word,))]
    done = fugu("deploy", "subscriber", "--broker", broker, tmp_path / "new", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert says in done.err
    assert not (tmp_path / "new").exists()


def test_an_account_of_the_site_joins_no_audience(fugu: Fugu, tmp_path: Path, broker: Path) -> None:
    promises = write_releases(tmp_path)
    site = ("deploy", "subscriber", "--broker", broker, tmp_path / "s", "--audience", "site", "--name", "s")
    assert fugu(*site).code == 0
    refused = fugu("deploy", "join", "--broker", broker, "s", "--audience", "street", *promises)
    assert refused.err == (
        "fugu: the account s is no reader of audiences, but site; the site reads symbols and all releases\n"
    )


def test_a_gateway_refuses_policies_and_promises_that_would_let_a_reader_exceed_its_limit(
    fugu: Fugu, tmp_path: Path, broker: Path
) -> None:
    promises = write_releases(tmp_path, 'readers = "broker/readers.json"\n')
    both = ("--audience", "street", "--audience", "press", "--epsilon", repr(joint_limit()))
    new = ("deploy", "subscriber", "--broker", broker, "--name", "n", tmp_path / "n")
    assert fugu(*new, *both, *promises).code == 0
    store = Store(tmp_path / "s.sqlite")
    opened = open_releases(tmp_path / "releases.toml", tmp_path / "l.sqlite", store, catalogue([POLICY]))
    opened.ledger.close()
    config = (tmp_path / "releases.toml").read_text()
    for text in (config.replace("epsilon = 0.5", "epsilon = 0.6", 1), config.replace("readers.json", "nobody.json")):
        (tmp_path / "releases.toml").write_text(text)
        with pytest.raises(FuguError, match=r"its limit is|cannot read the readers"):
            open_releases(tmp_path / "releases.toml", tmp_path / "m.sqlite", store, catalogue([POLICY]))
