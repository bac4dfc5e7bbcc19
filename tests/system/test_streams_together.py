"""Two streams that move together, from a recording over a real agent to a gateway that charges them jointly."""

from __future__ import annotations

import json
import random
import time
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.policies import read_policy
from fugu.contract.reports import ReleaseFrame
from fugu_cli.main import main
from gateway.releases.audit import verify
from gateway.releases.charges import nats
from gateway.releases.ledger import Ledger
from tests.support.brokers import Mosquitto, wait_until
from tests.support.processes import AgentProcess
from tests.support.release_scenes import Public, start_gateway, write_config
from tests.support.stored import stored_symbols

EPSILON, LENGTH, TICKS = 8.0, 500, 6000
AUDIENCE = '[audiences.public]\nepsilon = 2.0\nadversary = "universal"\n'


def release(name: str, stream: str, share: float) -> str:
    return (
        f'[[releases]]\nname = "{name}"\nstream = "{stream}"\nquery = "count"\nstates = ["on"]\nlength = {LENGTH}\n'
        f'audience = "public"\nshare = {share}\nsource = "symbols"\n'
    )


def recorded(folder: Path) -> Path:
    draw, a, b, rows = random.Random(6).random, 0, 0, ["t,light,motion"]
    for tick in range(TICKS):
        a = a if draw() < 0.55 else 1 - a
        b = a if draw() < 0.4 else b if draw() < 0.55 else 1 - b
        rows.append(f"{tick * 0.004},{a},{b}")
    (folder / "room.csv").write_text("\n".join(rows) + "\n")
    return folder / "room.csv"


def agent_config(folder: Path, port: int, total: float) -> Path:
    """One device with two sensors, whose owner limits what both tell together."""
    lines = ['fleet = "home"', 'device = "room"', 'outbox = "outbox.sqlite"', f"ceiling = {EPSILON}"]
    lines += [f"total_ceiling = {total}", "[broker]", 'host = "127.0.0.1"', f"port = {port}", "max_backoff = 1"]
    for stream in ("light", "motion"):
        lines += ["[[streams]]", f'policy = "policies/room-{stream}.json"']
        sensor = f'kind = "replay", file = "room.csv", column = "{stream}", loop = true'
        lines += [f"sensor = {{ {sensor} }}"]
    (folder / "agent.toml").write_text("\n".join(lines) + "\n")
    return folder / "agent.toml"


def words(capsys: pytest.CaptureFixture[str], *command: object) -> tuple[int, str]:
    code = main([str(word) for word in command])
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


@pytest.mark.long
def test_two_streams_of_a_room_keep_one_epsilon(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, model = recorded(tmp_path), tmp_path / "room.json"
    assert words(capsys, "plan", "model", recording, "--column", "light,motion", "-o", model)[0] == 0
    epoch = int(time.time()) - 2
    names = ("--for", "home/room", "--epoch", epoch, "--latency", "0.2")
    planned = ("plan", "joint", model, "--epsilon", EPSILON, "-o", tmp_path / "policies", *names)
    assert words(capsys, *planned)[0] == 0
    policies = [read_policy((tmp_path / "policies" / f"room-{s}.json").read_bytes()) for s in ("light", "motion")]
    assert policies[0].clock == policies[1].clock

    # The device's owner: what both tell together is epsilon, and no total below it is accepted.
    refused = AgentProcess(agent_config(tmp_path, broker.port, EPSILON * 0.99), tmp_path / "refused.log")
    assert refused.ended() != 0
    assert "of all streams together is above this device's total ceiling" in refused.log

    write_config(tmp_path, release("lit", "light", 0.5), release("moving", "motion", 0.7), audiences=AUDIENCE)
    public = Public(broker)
    gateway = start_gateway(broker, tmp_path)
    agent = AgentProcess(agent_config(tmp_path, broker.port, EPSILON), tmp_path / "agent.log")
    wait_until(lambda: len(public.releases) >= 3 and len(refusals(tmp_path)) >= 1)
    assert agent.stop() == 0
    assert gateway.stop() == 0
    stored = {
        stream: sum(len(frame.symbols) for frame in some)
        for (_, stream), some in stored_symbols(tmp_path / "s.sqlite").items()
    }
    assert min(stored["light"], stored["motion"]) > 100
    public.link.stop()
    charges = charged(public.releases)
    with closing(Ledger(tmp_path / "l.sqlite", create=False)) as ledger:
        assert verify(ledger).problems == ()
        (allowed,) = {nats(account.allowance) for account in ledger.accounts()}
        assert {account.together for account in ledger.accounts()} == {"room/light+motion"}
        assert 0.4 * allowed < max(charges.values()) <= allowed
    assert words(capsys, "check", "ledger", "--ledger", tmp_path / "l.sqlite", "--store", tmp_path / "s.sqlite")[0] == 0
    shown = words(capsys, "gateway", "ledger", "show", "--ledger", tmp_path / "l.sqlite", "--json")[1]
    assert {account["together"] for account in json.loads(shown)["accounts"]} == {"room/light+motion"}


def charged(frames: list[ReleaseFrame]) -> dict[int, float]:
    charges: dict[int, float] = {}
    for frame in frames:
        charges[frame.first] = charges.get(frame.first, 0.0) + frame.charge
    return charges


def refusals(folder: Path) -> list[str]:
    return [line for line in (folder / "gateway.log").read_text().splitlines() if "move together" in line]
