"""The helper's program: its commands, its memory, and how long a large set takes."""

from __future__ import annotations

import os
import re
import stat
import time
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

from fugu.contract.envelope import Envelope, key_digits
from fugu.contract.group_frames import OpeningKey, SealedMasks, signed_total, unpack_numbers
from fugu.contract.groups import SharedWindow, check_signed
from fugu.contract.topics import topic_of
from fugu.host.toml_file import toml_lines
from fugu.mqtt import Broker, Link
from fugu_cli.main import main
from fugu_helper.service import Helper
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.groups import PUBLIC, Member, group
from tests.support.street import HelperProgram, Leader

KEY = topic_of("group_key", "home", "street")


def newest_key(leader: Leader) -> OpeningKey:
    """The opening key that is retained."""
    wait_until(lambda: any(topic == KEY for topic, _ in leader.heard), "an opening key")
    envelope = Envelope.decode([payload for topic, payload in leader.heard if topic == KEY][-1])
    check_signed(envelope, "opening-key", PUBLIC)
    return OpeningKey.decode(envelope.payload)


def peak_kilobytes(process: int) -> int:
    """The most memory that a process has had."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(match[1])


def processor_seconds(process: int) -> float:
    """Processor time of a process until now."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def set_of(key: OpeningKey, homes: int, number: int) -> tuple[list[SealedMasks], dict[str, str]]:
    """Reports of so many homes of one window, and the list of members."""
    members = [Member(f"home-{i}") for i in range(homes)]
    document = group(honest=homes // 2, colluding=homes // 10)
    sealed = [member.sealed(key, document, number, [i]) for i, member in enumerate(members)]
    return sealed, {member.name: key_digits(member.public) for member in members}


@pytest.mark.long
@pytest.mark.fresh
@pytest.mark.parametrize("homes", [100, pytest.param(10_000, marks=pytest.mark.soak)])
def test_a_set_is_answered_in_a_thousandth_of_a_second_a_home_and_forty_megabytes(tmp_path: Path, homes: int) -> None:
    """The times are printed, not asserted; a set of 10,000 has to be answered at all."""
    document = group(honest=homes // 2, colluding=homes // 10)
    with Mosquitto() as server:
        helper = HelperProgram(tmp_path / "helper", server.broker, document, members={})
        with Leader(server.broker, document) as leader:
            sealed, members = set_of(newest_key(leader), homes, 5)
            helper.admit(members)
            begun = time.monotonic()
            leader.request(5, sealed)
            answer = leader.answered()
            took, own = time.monotonic() - begun, processor_seconds(helper.process.pid)
            memory = peak_kilobytes(helper.process.pid)
            print(f"{homes} reports: {took:.2f} s, {own:.2f} s of processor time, {memory} kB")
            assert answer.reason == ""
            assert signed_total(unpack_numbers(answer.sums)) == homes * (homes - 1) // 2
            assert peak_kilobytes(helper.process.pid) < 40_000
        files = {path.name for path in (tmp_path / "helper").iterdir()}
        assert files == {"helper.toml", "root.key", "members", "helper.log"}


def test_a_helper_is_made_admits_and_removes_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "helper"
    assert main(["helper", "init", str(folder), "--fleet", "home"]) == 0
    own = re.findall(r"(?:\d{5} ?){6}", capsys.readouterr().out)[0].strip()
    assert stat.S_IMODE((folder / "root.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    file = folder / "helper.toml"
    document = group().model_dump(mode="json", exclude={"document", "fleet", "helper"}, exclude_none=True)
    file.write_text(file.read_text() + "\n".join(["[[groups]]", *toml_lines(document)]) + "\n")
    assert main(["helper", "digits", str(file)]) == 0
    assert capsys.readouterr().out.strip() == own
    home = Member("home-0")
    monkeypatch.setattr("builtins.input", lambda _question: key_digits(home.public))
    assert main(["helper", "admit", str(file), "home-0"]) == 0
    assert own in capsys.readouterr().out
    assert main(["helper", "admit", str(file), "home-1", "--digits", key_digits(home.public)]) == 1
    assert "count twice" in capsys.readouterr().err
    assert main(["helper", "group", str(file), "street"]) == 0
    window = SharedWindow.model_validate_json(capsys.readouterr().out)
    assert key_digits(bytes.fromhex(window.group.helper)) == own
    assert main(["helper", "group", str(file), "other"]) == 1
    assert main(["helper", "remove", str(file), "home-0"]) == 0
    assert (folder / "members").read_text() == ""
    (folder / "root.key").chmod(0o644)
    assert main(["helper", "digits", str(file)]) == 1
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.replace("length = 10", "length = 100000"), "longer than a day"),
        (lambda text: text.replace("honest = 3", "honest = 3\nhistogram = true"), "histogram"),
        (lambda text: text + text[text.index("[[groups]]") :], "at most the newest and the one before"),
        (lambda text: text.replace("honest = 3", 'honest = 3\nfleet = "away"'), "does not say its fleet"),
        (lambda text: text[: text.index("[[groups]]")], "groups"),
        (lambda text: text + "x", "not TOML"),
    ],
)
def test_a_file_that_no_helper_can_have_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: object, why: str
) -> None:
    assert callable(change)
    helper = HelperProgram(tmp_path / "helper", Broker(port=9), group(), members={}, starts=False)
    helper.file.write_text(change(helper.file.read_text()))
    assert main(["helper", "run", str(helper.file)]) == 1
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


def test_a_helper_without_a_broker_waits_and_ends_in_order(tmp_path: Path) -> None:
    helper = HelperProgram(tmp_path / "helper", Broker(port=9), group(), members={})
    wait_until(lambda: "members" in helper.log.read_text(), "the helper's first words")
    helper.process.terminate()
    assert helper.process.wait(PATIENCE) == 0


def test_a_wall_clock_that_is_set_either_way_ends_all_keys_and_small_steps_end_none(tmp_path: Path) -> None:
    program = HelperProgram(tmp_path / "helper", Broker(port=9), group(), members={}, starts=False)
    wall, steady = [1_800_000_000.0], [100.0]
    helper = Helper(program.file, lambda: wall[0], lambda: steady[0])
    keys = []
    for step in (0, 59, -59, 61, -61, 0):
        wall[0], steady[0] = wall[0] + step + 1, steady[0] + 1
        helper._maintain()
        keys.append(helper._groups["street"].opening_key)
    assert [key == before for before, key in pairwise(keys)] == [True, True, False, False, True]


def test_a_connection_while_the_wall_clock_is_set_leaves_the_new_key_at_the_broker(tmp_path: Path) -> None:
    program = HelperProgram(tmp_path / "helper", Broker(port=9), group(), members={}, starts=False)
    wall, steady = [1_800_000_000.0], [100.0]
    helper = Helper(program.file, lambda: wall[0], lambda: steady[0])
    helper._maintain()
    street, retained = helper._groups["street"], list[bytes]()
    main_thread = Thread(target=helper._maintain)

    class SlowLink:
        def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
            if topic.endswith("key") and not main_thread.ident:
                wall[0] += 3600
                main_thread.start()
                main_thread.join(0.2)
            retained.append(payload)

    helper._link = cast(Link, SlowLink())
    helper._publish([street])
    main_thread.join(PATIENCE)
    assert retained[-1] == street.opening_key
    assert len({*retained}) == 3, "a document and two keys"
