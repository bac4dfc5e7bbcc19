"""`fugu plan joint`: one epsilon for streams that move together; and plans of one stream of order 2."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fugu.contract.chains import JointChains
from fugu.contract.joint import joint_epsilon
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu_cli.main import main
from tests.support.command import Fugu
from tests.support.recordings import write_joint_recordings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joint")
    write_joint_recordings(path)
    return path


def _fitted(folder: Path, name: str, *words: str) -> Path:
    """The file of a fit to one of them."""
    file = folder / f"{name}.json"
    assert main(["plan", "model", str(folder / f"{name}.csv"), *words, "-o", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def room(folder: Path) -> Path:
    return _fitted(folder, "room", "--column", "light,motion")


@pytest.fixture(scope="module")
def order(folder: Path) -> Path:
    return _fitted(folder, "order", "--order", "2")


def policies(folder: Path) -> list[Policy]:
    policies = [read_policy(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    assert all(isinstance(policy, Policy) for policy in policies)
    return [policy for policy in policies if isinstance(policy, Policy)]


@pytest.mark.long
def test_policies_of_one_device_keep_one_epsilon(fugu: Fugu, room: Path, tmp_path: Path) -> None:
    names = ("--for", "home/room", "--epoch", "1700000000")
    done = fugu("plan", "joint", room, "--epsilon", "1", "-o", tmp_path / "policies", *names)
    assert done.code == 0
    words = " ".join(done.out.split())
    achieved = r"epsilon achieved: 0\.99902\d* of 1 \(universal; odds-ratio bound\), all streams together"
    assert re.search(achieved, words)
    assert "Planned one by one for epsilon 1 each, they would tell light" in words
    light, motion = policies(tmp_path / "policies")
    assert (light.stream, motion.stream) == ("light", "motion")
    assert light.clock == motion.clock
    assert light.chains == motion.chains
    assert isinstance(light.chains, JointChains)
    assert light.discretiser.states == ("off", "on")
    assert joint_epsilon([light, motion], None) <= 1.0
    for policy in ("room-light", "room-motion"):
        checked = fugu("check", "policy", tmp_path / "policies" / f"{policy}.json", "--ceiling", "1")
        assert "the guarantee holds" in checked.out
        assert fugu("check", "policy", tmp_path / "policies" / f"{policy}.json", "--ceiling", "0.9@10m").code == 1


@pytest.mark.long
def test_streams_of_two_devices(fugu: Fugu, room: Path, tmp_path: Path) -> None:
    names = ("--for", "home/lamp,door")
    assert fugu("plan", "joint", room, "--epsilon", "1", "-o", tmp_path / "policies", *names).code == 0
    door, lamp = policies(tmp_path / "policies")
    assert (door.device, door.stream, lamp.device, lamp.stream) == ("door", "motion", "lamp", "light")
    assert isinstance(door.chains, JointChains)
    assert [shown.name for shown in door.chains.streams] == ["lamp/light", "door/motion"]
    assert door.chains == lamp.chains


@pytest.mark.long
def test_json_says_what_each_stream_may_tell(fugu: Fugu, room: Path) -> None:
    options = ("--epsilon", "1", "--share", "3,1", "--known", "--window", "1h", "--symbols", ".5", "--json")
    plan = fugu("plan", "joint", room, *options).json()
    light, motion = plan["streams"]
    assert light["rate"] == pytest.approx(3 * motion["rate"])
    assert plan["epsilon_achieved"] <= 1.0 < plan["apart"]
    assert plan["notes"][0].startswith("a device takes no chain as it is: noise for epsilon 1 by odds ratios")
    assert light["windows"][0]["length"] == 60
    assert light["rate_alone"] > light["rate"]


def test_names_and_times_of_policies_that_are_not_written_are_said_to_be_for_nothing(fugu: Fugu, room: Path) -> None:
    for names, warned in (("home/a", ["--for", "--epoch"]), ("home/a,b", ["--epoch"])):
        done = fugu("plan", "joint", room, "--epsilon", 1, "--for", names, "--epoch", 5)
        assert (done.code, done.err.count("not written without -o")) == (0, len(warned))
        assert all(f"{option} is for the policy" in done.err for option in warned)


@pytest.mark.long
def test_two_streams_that_would_have_one_file_are_refused(fugu: Fugu, room: Path, tmp_path: Path) -> None:
    model = tmp_path / "room.json"
    model.write_text(room.read_text().replace('"light"', '"c"').replace('"motion"', '"b-c"'))
    done = fugu("plan", "joint", model, "--epsilon", 1, "--for", "home/a-b,a", "-o", tmp_path / "policies")
    assert "two streams would have one file" in done.refusal(2)
    assert not (tmp_path / "policies").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--epsilon", "0"), "epsilon must be"),
        (("--epsilon", "1", "--share", "1"), "shares are 2 numbers above 0, got 1.0"),
        (("--epsilon", "1", "--share", "1,x"), "share must be a number, got 'x'"),
        (("--epsilon", "1", "--for", "a/b/c"), "--for is like home/room, got 'a/b/c'"),
        (("--epsilon", "1", "--symbols", ".5"), "--symbols is a share between 0 and 1, beside --window"),
        (("--epsilon", "1", "--for", "home/a,b,c"), "--for names 3 devices for 2 streams"),
        (("--epsilon", "1", "-o", "policies"), "policies need --for"),
        (("--epsilon", "1", "--adversary", "someone"), "adversary"),
        (("--epsilon", "1e-14"), "epsilon 1e-14 is too small"),
    ],
)
def test_what_cannot_be_planned_is_one_line(fugu: Fugu, room: Path, options: tuple[str, ...], reason: str) -> None:
    assert reason in fugu("plan", "joint", room, *options).refusal(1, 2)


def test_files_that_are_no_joint_chains(fugu: Fugu, room: Path, tmp_path: Path) -> None:
    assert "fugu plan joint" in fugu("plan", "stream", "--model", room, "--epsilon", "1").err
    (tmp_path / "bad.json").write_text(json.dumps({**json.loads(room.read_text()), "shows": [[0, 0]]}))
    assert "bad.json: shows" in fugu("plan", "joint", tmp_path / "bad.json", "--epsilon", "1").err
    assert fugu("plan", "joint", tmp_path / "none.json", "--epsilon", "1").code == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "plan", [("stream",), ("window", "--window", "1h"), ("window", "--window", "1h", "--symbols", ".5")]
)
def test_a_chain_of_order_two_is_planned_like_others(
    fugu: Fugu, order: Path, tmp_path: Path, plan: tuple[str, ...]
) -> None:
    names = ("--for", "home/room/motion", "--threshold", ".5")
    written = tmp_path / "policy.json"
    assert fugu("plan", *plan, "--model", order, "--epsilon", "1", "-o", written, *names).code == 0
    policy = read_policy(written.read_bytes())
    assert isinstance(policy, Policy)
    assert isinstance(policy.chains, JointChains)
    assert policy.chains.shows == ((0,), (1,), (0,), (1,))
    assert 0.999 * policy.chains.streams[0].rate < float(policy.outputs.rate) <= policy.chains.streams[0].rate
    assert 0.99 < policy.bound(policy.verify(1.0)).epsilon(policy.guarantee.stretch_ticks) <= 1.0
