"""The process that judges a document: what is around it must neither stop it nor get into it."""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_agent.__main__ import main
from edge_agent.config_schema import read_config
from edge_agent.fleet_policy import FleetPolicy
from edge_agent.outbox import Outbox
from edge_agent.plan import Managed, StreamPlan
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.trust import Trust
from fugu.contract.windows import Window
from fugu.core.trust import unpack
from tests.support.brokers import PATIENCE, wait_until
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document

KEYS = Keys()
PAYLOAD = KEYS.signed(policy_document(policy(epoch_us=0, period_us=1_000_000), version=5))


def asked() -> tuple[str, ...]:
    return ("policy", str(int(time.time())), str(os.getpid()), "unsure")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return KEYS.enrolled(tmp_path, sensor='{kind = "stdin"}')


@pytest.mark.parametrize(("sure", "refused"), [("sure", "far_ahead"), ("unsure", None)])
@pytest.mark.long
def test_it_knows_whether_the_devices_clock_is_synchronised(config: Path, sure: str, refused: str | None) -> None:
    now = int(time.time())
    words = [str(config), "time", str(now), str(os.getpid()), sure]
    command = [sys.executable, "-m", "edge_agent.judge", *words]
    ahead = KEYS.signed_time(now + 300 * 86_400)
    answer = json.loads(subprocess.run(command, input=ahead, capture_output=True, check=True).stdout)
    assert answer.get("refused") == refused
    assert bool(answer.get("detail")) == (refused is not None), "with its reason"


def test_the_owner_sets_the_signed_time_back_on_the_device(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time())
    trust = Trust(KEYS.enrolment())
    trust.judge(KEYS.signed_time(now + 300 * 86_400), "time", now)
    file = config.parent / read_config(config).trust
    file.write_bytes(trust.state.pack())
    agent = Outbox(config.with_name("outbox.sqlite"), "home", "watch")
    assert main(["set-back", str(config)]) == 1, "the agent runs, and would write its own time"
    assert capsys.readouterr().err.count("\n") == 1
    agent.close()
    assert main(["set-back", str(config)]) == 0
    assert now <= unpack(file.read_bytes()).time <= time.time()
    assert "see that the gateway's clock is right" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(["set-back", str(config)]) == 0
    assert capsys.readouterr().out.startswith("nothing changes")


@pytest.mark.skipif(os.geteuid() != 0, reason="root runs these commands for an agent of another account")
def test_what_root_writes_for_the_agent_belongs_to_the_agents_account(config: Path) -> None:
    now, account = int(time.time()), 54_321
    trust = Trust(KEYS.enrolment())
    trust.judge(KEYS.signed_time(now + 300 * 86_400), "time", now)
    file = config.parent / read_config(config).trust
    file.write_bytes(trust.state.pack())
    os.chown(config.parent, account, account)
    assert main(["set-back", str(config)]) == 0
    assert main(["key", str(config)]) == 0
    for written in (file, config.with_name("outbox.sqlite.key")):
        assert (written.stat().st_uid, written.stat().st_mode & 0o777) == (account, 0o600)


@pytest.mark.long
def test_a_document_that_is_none_is_refused_with_its_reason(config: Path) -> None:
    command = [sys.executable, "-m", "edge_agent.judge", str(config), *asked()]
    answer = json.loads(subprocess.run(command, input=PAYLOAD[:-1], capture_output=True, check=True).stdout)
    assert answer["refused"] == "malformed"
    assert answer["detail"]


def test_it_works_under_limits_that_are_lower_than_its_own(config: Path) -> None:
    def limit() -> None:
        for what, most in ((resource.RLIMIT_AS, 400 << 20), (resource.RLIMIT_CPU, 30)):
            resource.setrlimit(what, (most, most))

    done = subprocess.run(
        [sys.executable, "-m", "edge_agent.judge", str(config), *asked()],
        input=PAYLOAD,
        capture_output=True,
        preexec_fn=limit,
        check=True,
    )
    assert unpack(bytes.fromhex(json.loads(done.stdout)["state"])).version == 5


def test_windows_alone_are_judged_and_can_be_run(config: Path) -> None:
    window = Window(name="high", length=20, stride=20, states=(1,), scale="20")
    fields = policy(epoch_us=0, period_us=1_000_000, windows=(window,)).model_dump(
        exclude={"table", "frame_ticks", "windows_guarantee"}
    )
    payload = KEYS.signed(policy_document(Policy(**fields), version=5))
    command = [sys.executable, "-m", "edge_agent.judge", str(config), *asked()]
    answer = json.loads(subprocess.run(command, input=payload, capture_output=True, check=True).stdout)
    ((compiled, sensor),) = answer["plans"]
    plan = StreamPlan.of(compiled, sensor)
    assert plan.noise is None
    assert [window.name for window in plan.windows] == ["high"]


def test_files_of_the_working_folder_are_not_its_libraries(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "msgpack.py").write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path / "cwd")
    managed = Managed(("hr",), str(config), str(tmp_path / "trust"), Trust(KEYS.enrolment()).state, None, None)
    events: list[object] = []
    fleet = FleetPolicy("home", "watch", managed, events.append, lambda _plans, store: store(), lambda *_: False)
    fleet.take_document(topic_of("policy_set", "home", "watch"), PAYLOAD)
    wait_until(lambda: events)
    events[0]()
    assert fleet.trusted.version == 5


@pytest.mark.long
@pytest.mark.parametrize(
    "begun",
    [
        "subprocess.Popen([sys.executable, '-m', 'edge_agent.judge', *sys.argv[1:], str(os.getpid()), ''])",
        "edge_agent.config.check_in_child('/dev/stdin')",
    ],
)
def test_it_does_not_outlive_the_agent(config: Path, begun: str) -> None:
    """The check of a configuration writes nothing either: each waits here for input that does not come."""
    script = (
        f"import edge_agent.config, os, signal, subprocess, sys\n{begun}\nprint('begun', flush=True)\nsignal.pause()"
    )
    reader, writer = os.pipe()
    try:
        agent = subprocess.Popen(
            [sys.executable, "-c", script, str(config), "policy", "0"], stdin=reader, stdout=subprocess.PIPE
        )
        assert agent.stdout.readline() == b"begun\n"
        (child,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        held = os.pidfd_open(int(child))
        agent.kill()
        agent.wait(PATIENCE)
        assert select.select([held], [], [], PATIENCE)[0], "it has not ended"
        os.close(held)
    finally:
        os.close(reader)
        os.close(writer)
        agent.stdout.close()
