"""A device's part: what it reports, when it does not, and that its disk and its messages never hold a count."""

from __future__ import annotations

import json
import os
import queue
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge_agent.__main__ import main
from edge_agent.commands import run_command
from edge_agent.config import load
from edge_agent.config_schema import read_config
from edge_agent.doctor import limits
from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.reporter import seal
from edge_agent.sensors.source import ConfigError
from edge_agent.shares import Helpers, StreamSums, device_key
from edge_agent.stored_frames import with_previous
from edge_agent.ticker import Ticker
from fugu.contract.compiled import SharedSum
from fugu.contract.envelope import Envelope, key_digits, sign
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.group_frames import OpeningAnswer, OpeningKey, Report, signed_total, split_pages, unpack_numbers
from fugu.contract.stretches import Ceiling
from fugu.host.child import Child
from fugu.host.files import write_secret
from fugu_helper.opening import Group
from tests.support.agents import JumpingClock, device_clock, plan_of
from tests.support.brokers import PATIENCE, wait_until
from tests.support.groups import HELPER, PUBLIC, group, member_policy, shared
from tests.support.opening import facts
from tests.support.signing import Keys, policy_document

pytestmark = pytest.mark.long
QUIET = {"noise": 4_000_000_000, "honest": 1, "colluding": 0}
LEAST_NOISE = (1 << 32) - 1
"""A side of a share is above 0 with a probability of 2^-32: no policy may promise that."""
DAY_TICKS = 86_400
CALL = {"kind": "call", "target": "builtins:float", "silence": "samples", "keep_alive_ticks": None}


def changed(window: SharedSum, **fields: Any) -> SharedSum:
    """A copy of a window with other fields."""
    other = copy(window)
    vars(other).update(fields)
    return other


class Device:
    """A device with a sum over windows of ten ticks, driven tick by tick; its helper is in this process."""

    def __init__(self, folder: Path, helper: Group | None = None, **changes: Any) -> None:
        self.document = group(**{**QUIET, **changes})
        policy = member_policy("watch", shared(**{**QUIET, **changes}))
        plan = plan_of(policy)
        self.plan = replace(plan, sums=(changed(plan.sums[0], noise=LEAST_NOISE),))
        self.folder = folder
        self.helper = helper or Group([facts(self.document)], HELPER, lambda name, _public: name)
        self.helper.maintain(1000.0, 0.0)
        self.elapsed = 0.0
        self.start()
        self.hear(self.helper.opening_key)

    def start(self, shift: int = 0) -> None:
        self.events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.outbox = Outbox(self.folder / "outbox.sqlite", "home", "watch")
        self.helpers = Helpers(self.outbox, "home", "watch", self.events.put)
        self.outbox.register(self.plan)
        self.begin(shift)
        self.helpers.follow([self.plan])

    def begin(self, shift: int = 0) -> None:
        """Begin with the sums anew, as after a change of policy or of the clock."""
        self.sums: StreamSums = self.helpers.begin_sums(self.plan, system_entropy(), shift)

    def restart(self, shift: int = 0) -> None:
        self.outbox.close()
        self.start(shift)
        self.hear(self.helper.opening_key)

    def hear(self, key: bytes) -> None:
        """Take an opening key, and wait until it is checked."""
        if self.helpers.take_key("street", key):
            self.events.get(timeout=PATIENCE)()

    def ready(self, tick: int) -> None:
        """Have the masks of the next window drawn, before a tick."""
        self.advance(tick)
        while self.sums._sums[0].next is None:
            self.events.get(timeout=PATIENCE)()
            if self.sums._sums[0].next is None:  # it was for sums that are over
                self.advance(tick)

    def advance(self, tick: int) -> list[Report]:
        """Let reports leave that are over before a tick, into the outbox."""
        reports = []
        for report in self.sums.advance(tick):
            self.outbox.append_report("power", report)
            frame = self.outbox.frames.next(self.outbox.frames.newest - 1)
            reports.append(Report.decode(frame.payload))
        return reports

    def run(self, first: int, states: Iterator[int | None] | list[int | None]) -> list[Report]:
        reports = []
        for tick, state in enumerate(states, first):
            self.sums.observe(tick, state)
            reports += self.advance(tick + 1)
        return reports

    def opened(self, report: Report) -> list[int]:
        """Site and helper together find the count, as the set has no other home."""
        (page,) = split_pages(self.document.digest, report.number, [report.sealed])
        answer = self.helper.add_page(page, self.elapsed)
        message = OpeningAnswer.decode(Envelope.decode(answer).payload)
        assert message.reason == ""
        masks = unpack_numbers(message.sums)
        return [signed_total(pair) for pair in zip(unpack_numbers(report.parts), masks, strict=True)]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path)
    yield device
    device.outbox.close()


def test_a_window_is_reported_once_with_the_count_of_its_ticks(device: Device) -> None:
    device.ready(3)
    (report,) = device.run(3, [1] * 7 + [1, 0, None, 1, 0, 1, 1, 0, 0, 1])
    assert (report.number, report.previous, report.observed) == (1, -1, (10,))
    assert device.opened(report) == [5]
    assert device.advance(20) == []


def two_reports(device: Device) -> tuple[Report, Report]:
    """Reports of two windows in a row, of 5 and of 10 ticks in the counted state."""
    device.ready(9)
    device.sums.observe(9, 0)
    assert device.run(10, [1] * 5) == []
    device.ready(15)
    (first,) = device.run(15, [0] * 5)
    (second,) = device.run(20, [1] * 10)
    return first, second


def test_the_next_window_follows_the_one_before(device: Device) -> None:
    first, second = two_reports(device)
    assert [(report.number, report.previous) for report in (first, second)] == [(1, -1), (2, 1)]
    assert (device.opened(first), device.opened(second)) == ([5], [10])


def test_blocks_of_a_day_are_counted_each_for_itself(tmp_path: Path) -> None:
    blocks = {"zone": "UTC", "seconds": 43_200, "offsets": ((0, 0),)}
    device = Device(tmp_path, blocks=blocks, period_us=8_640_000_000, length=10)
    device.ready(9)
    (report,) = device.run(10, [1, 1, 0, 1, None, 0, 0, 0, 1, 0])
    assert device.opened(report) == [3, 1]
    assert report.observed == (5, 5)


def test_every_number_of_a_window_has_a_share_of_noise_of_its_own(tmp_path: Path) -> None:
    """Of 96 blocks each is off by a number of its own, as far as the law lets it be."""
    blocks = {"zone": "UTC", "seconds": 900, "offsets": ((0, 0),)}
    device = Device(tmp_path, blocks=blocks, period_us=900_000_000, length=96)
    device.plan = replace(device.plan, sums=(changed(device.plan.sums[0], noise=1 << 29),))
    device.begin()
    device.ready(95)
    (report,) = device.run(96, [1] * 96)
    shares = [count - 1 for count in device.opened(report)]
    assert 10 < sum(share != 0 for share in shares) <= 96
    assert len(set(shares)) > 5
    assert min(shares) < 0 < max(shares)


def test_masks_that_come_after_the_window_has_begun_are_of_no_use(device: Device) -> None:
    device.advance(9)
    late = device.events.get(timeout=PATIENCE)
    assert device.run(9, [1]) == []
    device.sums.observe(10, 1)
    late()
    assert device.run(11, [1] * 10) == []


def test_a_home_has_one_process_that_encrypts_however_slow_it_is(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = device.helpers._ask, list[int]()
    monkeypatch.setattr(device.helpers, "_ask", lambda *request: (asked.append(request[3]), ask(*request)))
    device.advance(9)
    assert device.run(10, [1] * 30) == []
    assert asked == [1]
    device.ready(45)
    assert [report.number for report in device.run(45, [1] * 15)] == [5]


def test_a_disk_that_takes_nothing_loses_windows_and_forgets_no_key(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next report follows the newest that is durable: one that names another would be sent for ever."""
    with monkeypatch.context() as broken:
        broken.setattr(device.outbox, "_commit", lambda **_: (_ for _ in ()).throw(sqlite3.OperationalError("full")))
        with pytest.raises(sqlite3.OperationalError):
            device.advance(4)
    device.ready(5)
    stored = device.outbox.opening_key("street")
    assert stored.tick == 5
    device.sums.observe(9, 0)
    assert device.run(10, [1] * 5) == []
    device.ready(15)
    device.sums.observe(19, 0)
    (lost,) = device.sums.advance(20)
    (report,) = device.run(20, [1] * 10)
    assert (lost.number, report.number, report.previous) == (1, 2, -1)


@pytest.mark.parametrize("how", ["restart", "begin"])
def test_a_window_in_whose_midst_the_device_began_anew_is_not_reported(device: Device, how: str) -> None:
    """A process that ended, another policy, a clock that was set: then the home is one of those that are missing."""
    device.ready(9)
    assert device.run(9, [1] * 5) == []
    getattr(device, how)()
    assert device.run(14, [1] * 6) == []
    device.ready(20)
    assert [report.number for report in device.run(20, [1] * 10)] == [2]


@pytest.mark.parametrize("noise", [QUIET["noise"], 3_000_000_000])
def test_no_window_is_reported_twice_when_the_clock_goes_back_under_no_other_document_either(
    device: Device, noise: int
) -> None:
    """Numbers of ticks go on by a shift, and the wall's windows come again: those of a group's name are counted on."""
    device.ready(9)
    (report,) = device.run(9, [1] * 11)
    assert report.number == 1
    digest = group(**{**QUIET, "noise": noise}).digest
    device.plan = replace(device.plan, sums=(changed(device.plan.sums[0], digest=digest),), version=2)
    device.restart(shift=20)
    assert device.run(25, [1] * 3) == []
    assert device.sums._sums[0].asked_window == -1
    assert device.run(28, [1] * 12) == []
    device.ready(39)
    (report,) = device.run(40, [1] * 10)
    assert (report.number, report.previous, report.document, report.observed) == (2, 1, digest, (10,))


def test_a_part_is_a_uniform_number_moved_by_the_count(device: Device) -> None:
    """All that the site has of a home's count: with any count, each part is as likely as every other."""
    device.ready(9)
    prepared = device.sums._sums[0].next
    twin = type(prepared)(prepared.number, list(prepared._counts), prepared.sealed)
    (report,) = device.run(10, [1] * 10)
    for _ in range(10):
        twin.add(0, None)
    (own,), (other,) = unpack_numbers(report.parts), unpack_numbers(twin.take_parts())
    assert (own - other) % (1 << 64) == 10
    key = device.helpers._opening_keys["street"]
    masks = seal(64, PUBLIC, key.signed, key.signature, key.message.key, bytes(32), b"").masks
    columns = list(zip(*(f"{mask:064b}" for mask in unpack_numbers(masks)), strict=True))
    assert all(set(column) == {"0", "1"} for column in columns), "every bit of a mask is drawn"


def test_a_helper_whose_clock_was_set_back_at_a_restart_opens_nothing(device: Device) -> None:
    """Its new key is older than the one that the device has used; with the old one goes what was encrypted to it."""
    restarted = Group(device.helper.documents, HELPER, lambda name, _public: name)
    restarted.maintain(500.0, 0.0)
    device.sums.advance(1)
    device.helpers.take_key("street", restarted.opening_key)
    assert device.events.empty()
    device.ready(9)
    (report,) = device.run(10, [1] * 10)
    (page,) = split_pages(device.document.digest, report.number, [report.sealed])
    answer = restarted.add_page(page, 0.0)
    assert OpeningAnswer.decode(Envelope.decode(answer).payload).reason == "key-gone"
    assert restarted.add_page(page, 0.0) == answer


def test_an_outbox_that_cannot_be_read_any_more_refuses_no_policy_that_was_stored(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_group: str) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    device.begin()
    with monkeypatch.context() as patch:
        patch.setattr(device.outbox, "opening_key", fail)
        device.helpers.follow([device.plan])
    device.ready(3)


def test_a_window_without_any_tick_is_reported_like_every_other(device: Device) -> None:
    """A machine that slept, or was paused: how many ticks there were depends on no reading."""
    device.ready(9)
    device.sums.observe(9, 1)
    (report,) = device.advance(25)
    assert (report.number, report.observed) == (1, (0,))
    assert device.opened(report) == [0]


def test_there_is_nothing_of_a_window_on_the_disk_before_its_report(device: Device) -> None:
    """A copy of the disk at any moment has a report that is sent anyway, or nothing."""
    device.ready(9)
    before = contents(device.folder)
    for tick in range(9, 19):
        device.sums.observe(tick, 1)
        assert device.advance(tick + 1) == []
        assert contents(device.folder) == before
    device.sums.observe(19, 1)
    (report,) = device.advance(20)
    after = contents(device.folder)
    assert any(report.parts in data for data in after.values())
    masks = device.opened(report)[0] - unpack_numbers(report.parts)[0]
    assert not any(
        (masks % (1 << 64)).to_bytes(8, order) in data for data in after.values() for order in ("big", "little")
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_reports_of_other_readings_are_the_same_bytes_but_for_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs on the same random numbers; those of the other process are drawn before the window, and used again."""
    answers, asked = list[bytes](), list[bytes]()
    real = Child._output_of

    def written(child: Child, command: list[str], request: bytes) -> bytes:
        asked.append(request)
        if len(asked) > len(answers):
            answers.append(real(child, command, request))
        return answers[len(asked) - 1]

    monkeypatch.setattr(Child, "_output_of", written)
    helper, runs = None, list[tuple[list[bytes], list[int], list[object]]]()
    for name, states in (("a", [0, None, *[0] * 18]), ("b", [1, None, *[1] * 8, 0, 1, *[0] * 8])):
        (tmp_path / name).mkdir()
        write_secret(tmp_path / name / "outbox.sqlite.key", b"k" * 32)
        asked.clear()
        device = Device(tmp_path / name, helper)
        helper, draws, bits = device.helper, list[int](), random.Random(1)

        def entropy(buffer: memoryview, draws: list[int] = draws, bits: random.Random = bits) -> None:
            draws.append(len(buffer))
            buffer[:] = bits.randbytes(len(buffer))

        device.sums = device.helpers.begin_sums(device.plan, entropy, 0)
        reports = []
        for first in (10, 20):
            device.ready(first - 1)
            reports += device.run(first, states[first - 10 : first])
        wait_until(lambda: len(asked) == len(answers) == 4, "the masks of a third window")
        parts = [number for report in reports for number in unpack_numbers(report.parts)]
        written = device.outbox._db.execute("SELECT id, previous, last, length(payload) FROM frames").fetchall()
        device.outbox.close()
        runs.append(
            ([*asked, *(replace(report, parts=bytes(8)).encode() for report in reports)], parts, [draws, written])
        )
    (sent, parts, rest), (other_sent, other_parts, other_rest) = runs
    assert sent == other_sent
    assert rest == other_rest, "as many random bytes, and as many bytes on the disk"
    assert [(b - a) % (1 << 64) for a, b in zip(parts, other_parts, strict=True)] == [9, 1]


def test_an_older_key_never_comes_back_not_after_a_restart_either(device: Device) -> None:
    old = device.helper.opening_key
    device.helper.maintain(90_000.0, 90_000.0)
    device.hear(device.helper.opening_key)
    device.helpers.take_key("street", old)
    assert not device.helpers._busy, "it is not even checked, before the newest one's first tick either"
    device.sums.advance(1)
    device.outbox.close()
    device.start()
    device.helpers.take_key("street", old)
    assert device.events.empty()
    assert not device.helpers.has_key(device.plan.sums[0], 10)
    device.hear(device.helper.opening_key)
    assert device.helpers.has_key(device.plan.sums[0], 10)


def test_nobody_else_makes_a_key_the_newest(device: Device) -> None:
    """Not the site, which may write on no topic of a helper, but has the broker."""
    key = OpeningKey("home", "street", 2**50, b"\1" * 1216)
    forged = sign("opening-key", key.encode(), [Ed25519PrivateKey.generate()])
    device.hear(forged.encode())
    device.hear(sign("group", key.encode(), [HELPER]).encode())
    device.hear(sign("opening-key", replace(key, fleet="away").encode(), [HELPER]).encode())
    many_signers = sign("opening-key", key.encode(), [HELPER, Ed25519PrivateKey.generate()])
    assert not device.helpers.take_key("street", many_signers.encode())
    device.ready(9)
    (report,) = device.run(9, [1] * 11)
    assert device.opened(report) == [10]


def test_a_key_is_not_used_for_longer_than_a_helper_has_it(device: Device) -> None:
    """A window, the deadline and a day, of the device's own ticks: whoever keeps a helper away gains nothing."""
    most = 10 + 5 + DAY_TICKS
    device.ready(7)
    (plan,) = device.plan.sums
    assert device.helpers.has_key(plan, 7 + most)
    assert not device.helpers.has_key(plan, 8 + most)
    shift, last = 1000, (7 + most) // 10 * 10
    for first, number in ((last + 10, -1), (last, last // 10 - shift // 10)):
        device.begin(shift)  # a clock that went back makes no key younger
        device.advance(first - 1)
        assert device.sums._sums[0].asked_window == number


def test_masks_are_drawn_once_and_no_sooner_than_ten_minutes_before_their_window(tmp_path: Path) -> None:
    device = Device(tmp_path, period_us=200_000_000)
    device.advance(6)
    assert device.sums._sums[0].asked_window == -1
    device.ready(7)
    device.advance(8)
    assert device.sums._sums[0].asked_window == 1
    assert not device.helpers._busy
    device.outbox.close()


def test_a_policy_with_a_sum_is_refused_before_it_is_stored_if_the_devices_key_cannot_be_read(device: Device) -> None:
    ticker = Ticker(
        device.outbox, device_clock(JumpingClock()), system_entropy(), lambda _seconds: None, device.helpers
    )
    device.helpers._seed = b""
    (device.folder / "outbox.sqlite.key").unlink()
    (device.folder / "outbox.sqlite.key").mkdir()
    stored: list[int] = []
    with pytest.raises(FuguError, match="cannot read"):
        ticker.switch([replace(device.plan, sensor=CALL)], lambda: stored.append(1))
    assert not stored


def test_the_devices_key_is_its_own(tmp_path: Path) -> None:
    seed = device_key(tmp_path / "outbox.sqlite")
    file = tmp_path / "outbox.sqlite.key"
    assert device_key(tmp_path / "outbox.sqlite") == seed == file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"short")
    with pytest.raises(Exception, match="no key of a device"):
        device_key(tmp_path / "outbox.sqlite")


# The owner's terms

TERMS = {"name": "street", "helper": key_digits(PUBLIC), "honest": 3, "most": {"epsilon": 50.0}}


def written(
    folder: Path, *, terms: dict[str, object] | None = None, host: str = "127.0.0.1", **changes: object
) -> Path:
    policy = member_policy("watch", shared(**changes))
    (folder / "policy.json").write_text(policy.to_json())
    (folder / "readings.csv").write_text("value\n1\n")
    lines = ['fleet = "home"', 'device = "watch"', 'outbox = "outbox.sqlite"', "ceiling = 1000.0"]
    lines += ["[broker]", f"host = {json.dumps(host)}"]
    lines += ["[[streams]]", 'policy = "policy.json"', 'sensor = { kind = "replay", file = "readings.csv" }']
    if terms is not None:
        most = terms["most"]
        inner = ", ".join(f"{key} = {value}" for key, value in most.items())
        lines += ["[[groups]]", f'name = "{terms["name"]}"', f'helper = "{terms["helper"]}"']
        lines += [f"honest = {terms['honest']}", f"most = {{ {inner} }}"]
    file = folder / "agent.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_policy_with_a_sum_runs_only_where_the_owner_has_joined(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has not joined"):
        load(written(tmp_path))
    plan = load(written(tmp_path, terms=TERMS))
    assert plan.groups == ("street",)
    assert plan.streams[0].sums[0].digest == group().digest


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"helper": key_digits(bytes(32))}, "another than the one whose digits"),
        ({"honest": 4}, "at least 4"),
        ({"name": "quarter"}, "has not joined"),
    ],
)
def test_other_terms_than_the_owners_are_refused(tmp_path: Path, terms: dict[str, object], why: str) -> None:
    with pytest.raises(Exception, match=why):
        load(written(tmp_path, terms={**TERMS, **terms}, colluding=1))


def test_epsilon_is_derived_from_the_groups_noise_and_the_refusal_says_which_would_do(tmp_path: Path) -> None:
    """The boundary from both sides."""
    most = {"epsilon": 3.0, "seconds": 60}
    with pytest.raises(Exception, match="would do") as refused:
        load(written(tmp_path, terms={**TERMS, "most": most}, noise=2_600_000_000))
    enough = int(str(refused.value).split("at most ")[1].split(" would")[0])
    assert load(written(tmp_path, terms={**TERMS, "most": most}, noise=enough))
    with pytest.raises(Exception, match=f"at most {enough} would do"):
        load(written(tmp_path, terms={**TERMS, "most": most}, noise=enough + 1))
    with pytest.raises(Exception, match="no A would do"):
        load(written(tmp_path, terms={**TERMS, "most": {"epsilon": 1e-9}}, noise=enough))


def test_without_tls_there_is_no_group_but_on_the_machine_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs TLS"):
        load(written(tmp_path, terms=TERMS, host="broker.example"))


def test_joining_asks_for_the_helpers_digits_and_shows_the_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    words = ["join", str(file), "street", "--homes", "3", "--epsilon", "1000@10m"]
    for wrong in ("", "12345", key_digits(PUBLIC)[:-1]):
        with pytest.raises(UsageError, match="30 digits"):
            run_command(words, lambda _question, wrong=wrong: wrong)
    asked = []
    text = run_command(words, lambda question: asked.append(question) or key_digits(PUBLIC).replace(" ", ""))
    assert "street" in asked[0]
    (pin,) = read_config(file).groups
    assert (pin.name, pin.helper, pin.honest, pin.most.seconds) == ("street", key_digits(PUBLIC), 3, 600)
    assert main(["key", str(file)]) == 0
    own = capsys.readouterr().out.strip()
    assert own in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="joined street already"):
        run_command(words, lambda _question: key_digits(PUBLIC))
    assert load(file).groups == ("street",)
    assert f"group street: joined, on these terms: its helper's digits are {key_digits(PUBLIC)}" in limits(file)[-1]


def test_a_document_of_another_signature_never_runs(tmp_path: Path) -> None:
    file = written(tmp_path, terms=TERMS)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace('"honest": 3', '"honest": 4'))
    with pytest.raises(Exception, match="does not match"):
        load(file)


@pytest.mark.parametrize("joined", [False, True])
def test_a_document_that_is_sent_brings_a_sum_only_to_a_device_whose_owner_has_joined(
    tmp_path: Path, joined: bool
) -> None:
    """Somebody who signs policies and enrols devices cannot join for the owner."""
    keys = Keys()
    file = written(tmp_path, terms=TERMS if joined else None)
    ceiling = Ceiling(epsilon=1000.0)
    (tmp_path / "enrolment.json").write_text(keys.enrolment(ceiling=ceiling).model_dump_json())
    text = file.read_text().replace("ceiling = 1000.0", 'enrolment = "enrolment.json"')
    file.write_text(text.replace('policy = "policy.json"', 'stream = "power"'))
    payload = keys.signed(policy_document(member_policy("watch", shared()), version=5))
    command = [sys.executable, "-m", "edge_agent.judge", str(file), "policy", "1772323200", str(os.getpid()), "unsure"]
    answer = json.loads(subprocess.run(command, input=payload, capture_output=True, check=True).stdout)
    if joined:
        ((plan, _),) = answer["plans"]
        assert StreamPlan.of(plan, {}).sums[0].digest == group().digest
    else:
        assert answer["refused"] == "pinned"
        assert "has not joined" in answer["detail"]


def test_a_report_that_is_dropped_is_accounted_for_by_the_next(device: Device) -> None:
    """A full outbox that drops the oldest: what is signed does not change."""
    first, second = two_reports(device)
    decoded = Report.decode(with_previous(second.encode(), first.previous))
    assert decoded == replace(second, previous=-1)
