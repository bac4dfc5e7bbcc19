"""A copy of a device's disk does not run on another machine, unless somebody says that the device has moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edge_agent.__main__ import main
from edge_agent.agent import Agent
from edge_agent.outbox import Outbox, OutboxError, identifiers
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.mqtt import Broker
from tests.support.agents import SECOND, agent_plan
from tests.support.processes import policy, write_device

BOARD, OTHER_BOARD = ("board", "10000000a1b2c3d4"), ("board", "10000000a1b2c3d5")
CARD, OTHER_CARD = ("card", "b8:27:eb:00:00:01"), ("card", "b8:27:eb:00:00:02")


def starts(folder: Path, *numbers: tuple[str, str], moved: bool = False) -> bool:
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch")
    try:
        outbox.bind(frozenset(numbers), moved=moved)
    except OutboxError:
        return False
    finally:
        outbox.close()
    return True


def test_a_cloned_disk_is_refused_on_another_machine_until_somebody_says_that_it_has_moved(tmp_path: Path) -> None:
    assert starts(tmp_path, BOARD, CARD)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "outbox.sqlite", copy)
    assert not starts(copy, OTHER_BOARD, OTHER_CARD)
    assert not starts(copy, OTHER_BOARD, CARD), "the card went along, and the board did not"
    assert not starts(copy, OTHER_CARD)
    assert not starts(copy), "a machine that shows nothing is not known"
    assert starts(tmp_path, BOARD, CARD)
    assert starts(copy, OTHER_BOARD, moved=True)
    assert starts(copy, OTHER_BOARD, OTHER_CARD)
    assert not starts(copy, BOARD, CARD)


def test_a_changed_network_card_alone_stops_no_device_that_has_a_number_of_its_own(tmp_path: Path) -> None:
    assert starts(tmp_path, BOARD, CARD)
    assert starts(tmp_path, BOARD, OTHER_CARD)
    assert starts(tmp_path, BOARD)
    assert starts(tmp_path, BOARD, CARD)
    assert starts(tmp_path, CARD), "as far as can be seen, it is the same"
    assert not starts(tmp_path, OTHER_BOARD, CARD), "it still belongs to its board"


def test_of_a_device_that_is_known_by_its_cards_one_must_be_there(tmp_path: Path) -> None:
    assert starts(tmp_path, CARD, OTHER_CARD)
    assert starts(tmp_path, OTHER_CARD)
    assert not starts(tmp_path, CARD)


def test_a_device_that_shows_nothing_is_bound_to_nothing(tmp_path: Path) -> None:
    assert starts(tmp_path)
    assert starts(tmp_path)
    assert starts(tmp_path, BOARD), "from now on"
    assert not starts(tmp_path, OTHER_BOARD)


def test_no_identifier_is_in_the_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert starts(tmp_path / name, BOARD, CARD)
    outboxes = [Outbox(tmp_path / name / "outbox.sqlite", "home", "watch") for name in ("one", "two")]
    stored = [set(outbox._db.execute("SELECT kind, digest FROM binding")) for outbox in outboxes]
    assert [len(digest) for _, digest in stored[0]] == [32, 32]
    assert not stored[0] & stored[1], "salted: nobody sees that two outboxes are of one machine"
    for outbox in outboxes:
        outbox.close()
        everything = outbox.path.read_bytes()
        assert not any(value.encode() in everything for _, value in (BOARD, CARD))


def test_identifiers_are_those_of_hardware_and_never_on_the_disk(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    assert identifiers(root=tmp_path) == frozenset()
    write("proc/device-tree/serial-number", "10000000A1B2C3D4\0")
    write("sys/class/dmi/id/product_uuid", "00000000-0000-0000-0000-000000000000\n")
    write("sys/class/net/lo/address", "00:00:00:00:00:00\n")
    write("sys/class/net/docker0/address", "02:42:1a:2b:3c:4d\n")
    for name, address, kind in (("eth0", CARD[1], "0"), ("wlan0", OTHER_CARD[1], "3"), ("wlan1", OTHER_CARD[1], "0")):
        write(f"sys/class/net/{name}/address", f"{address}\n")
        write(f"sys/class/net/{name}/addr_assign_type", f"{kind}\n")
        if name != "wlan1":
            write(f"sys/class/net/{name}/device/uevent", "")
    assert identifiers(root=tmp_path) == {BOARD, CARD}
    assert identifiers("rack-7", tmp_path) == {("name", "rack-7")}
    assert identifiers("off", tmp_path) == frozenset()


def test_an_agent_that_was_cloned_says_so_in_one_line_and_how_to_move_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = policy(epoch_us=0, period_us=SECOND)
    (tmp_path / "night.csv").write_text("value\n0\n")
    config = write_device(tmp_path, document, tmp_path / "night.csv", "value", Broker(port=9))
    config.write_text('binding = "rack-7"\n' + config.read_text())
    Agent(
        agent_plan(tmp_path, Broker(port=9), binding="rack-8"), [ReplaySensor([0.0], loop=True)], system_entropy()
    )._outbox.close()
    assert main([str(config)]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "this looks like a copy of another device's disk" in err
    assert "fugu-agent moved CONFIG.toml" in err
    assert main(["moved", str(config)]) == 0
    assert "the outbox belongs to this machine" in capsys.readouterr().out
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    outbox.bind(identifiers("rack-7"))
