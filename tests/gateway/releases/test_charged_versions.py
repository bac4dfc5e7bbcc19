"""A version of a policy counts from when its device may run it; releases wait until the ledger knows, and go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fugu.contract.chains import BinaryChains, JointChains, JointStream
from fugu.contract.frames import PolicyStatus, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.host.database import AwayError, DatabaseError
from fugu.mqtt import Broker, Link
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.enrolled import FleetPolicies
from gateway.fleet.entries import PolicyReport
from gateway.fleet.registry import Registry
from gateway.loop.release_part import ReleasePart
from gateway.parts import Message
from gateway.parts.describe import Describer
from gateway.releases import schedule
from gateway.releases.ledger import Ledger
from gateway.store.journal import NewestFrame, ReceivedFrame
from gateway.store.store import Store
from tests.support.enrolled import add
from tests.support.release_scenes import FLEET, PUBLIC, Noted, releasing, scheduled, write_config
from tests.support.scenes import Scene, catalogue, frames, loop_of, policy
from tests.support.signing import Keys, policy_document

KEYS = Keys()
LOUD = Window(name="ten", length=10, stride=10, states=("level 1",), scale="1/2")
"""Takes more than the audience is allowed."""
READERS = 'readers = "readers.json"\n[audiences.few]\nepsilon = 0.5\nadversary = "informed"\n'
"""With an account of two audiences, whose bound is 1.4932 by version 1."""


def work(part: ReleasePart) -> None:
    """Do all that is due."""
    part.stored()
    part.pump(idle=True)
    while part.busy:
        part.pump(idle=True)


class Home:
    """A gateway's policies, releases and registry, without a broker; version 1 of the policy was sent, and has run."""

    def __init__(self, folder: Path, *others: Policy, readers: bool = False, shared: bool = False) -> None:
        self.policies = policy(1), *others
        self.scene = Scene(folder / "s.sqlite", 8, self.policies)
        self.first = frames([10] * 6)
        self.scene.record(*self.first[:3])
        self.registry = Registry(folder / "fleet.sqlite", fleet="home")
        self.registry.enrol("watch", actor="test", time_us=0)
        self.offer(1)
        self.catalogue = Catalogue("home")
        self.catalogue.retire([policy(1).to_json()])
        roots = [KEYS.root_document()]
        self.fleet = FleetPolicies(self.registry, roots, self.catalogue, Counter())
        self.look()
        link = Link(Broker(), client_id="none")
        self.describing = Describer(loop_of(link=link, catalogue=self.catalogue, store=self.scene.store))
        config = write_config(folder, scheduled(), audiences=(READERS if readers else "") + PUBLIC)
        if readers:
            (folder / "readers.json").write_text(
                '{"format": "fugu/2", "fleet": "home", "readers": [{"name": "anna", "audiences": ["public", "few"],'
                ' "epsilon": 1.4935, "adversary": "informed"}]}'
            )
        self.ledger = folder / "s-ledger.sqlite"
        self.noted = Noted()
        self.part = releasing(self.scene, config, self.catalogue, Counter(), self.noted, shared=shared)

    def push(self, version: int) -> None:
        """An operator signs a version, and wants the device to have it."""
        add(self.registry, KEYS, policy_document(self.policies[version - 1], version=version))

    def offer(self, version: int) -> None:
        """It is pushed and sent."""
        self.push(version)
        self.send(version)

    def send(self, version: int) -> None:
        """The gateway is about to publish it."""
        self.registry.note_sent([("watch", version)])

    def answer(self, version: int, reason: str = "") -> None:
        """The device judges a document."""
        outcome = "refused" if reason else "accepted"
        self.registry.note_reports([PolicyReport("watch", version, outcome, reason, 1)])

    def refuse(self, version: int) -> None:
        """The device judges a document to be too loud."""
        self.answer(version, "ceiling")

    def look(self) -> None:
        """The gateway looks at the registry."""
        self.fleet.refresh(self.registry.devices())

    def store(self, frame: SymbolFrame | WindowFrame) -> None:
        """A frame comes, and is stored."""
        self.scene.receive([ReceivedFrame("watch", "hr", frame)])
        self.describing.stored([NewestFrame("watch", "hr", frame.policy_version, frame.first, 0)])
        self.part.stored()

    def status(self, version: int) -> None:
        status = Status(True, "1", 0, (), (StreamStatus("hr", version, 1000),))
        self.describing.heard(Message(topic_of("status", "home", "watch"), status.encode()))

    def released(self) -> int:
        """All that is due is done; how many windows have been released, or why none can be."""
        self.look()
        work(self.part)
        return self.part._releases.ledger.newest_entry

    @property
    def tied(self) -> set[tuple[str, str]]:
        """Streams that the ledger charges together."""
        with closing(Ledger(self.ledger, create=False)) as ledger:
            return set(ledger._db.execute("SELECT device, stream FROM together").fetchall())

    @property
    def impossible(self) -> bool:
        """True if nothing can be released."""
        before = self.released()
        return "Windows of a policy that the device ran, or may run" in self.noted.held.get("active", "") and (
            self.released() == before
        )


@contextmanager
def home(folder: Path, *others: Policy, readers: bool = False, shared: bool = False) -> Iterator[Home]:
    opened = Home(folder, *others, readers=readers, shared=shared)
    yield opened
    opened.part.close()
    opened.registry.close()


LOUD_2 = policy(2, windows=(LOUD,))


def test_a_version_counts_from_when_it_is_sent(tmp_path: Path) -> None:
    with home(tmp_path, LOUD_2) as it:
        assert it.released() == 1
        it.push(2)
        assert not it.impossible
        it.send(2)
        assert it.impossible
        it.store(it.first[3])
        it.store(it.first[4])
        assert it.impossible, "as long as it is not answered, by an offline device for ever"
        assert it.released() == 1


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        ([], False),
        ([("send", 2), ("answer", 2)], True),
        ([("offer", 3), ("answer", 3)], False),
        ([("send", 2), ("answer", 2), ("offer", 3), ("answer", 3)], True),
        ([("status", 2)], True),
        ([("offer", 3), ("refuse", 3)], True),
    ],
    ids=[
        *("no more", "sent again and accepted", "overtaken", "accepted and then overtaken", "named by the device"),
        "not overtaken by one that is refused, too",
    ],
)
def test_a_version_that_was_refused_counts_if_the_device_may_run_it_for_all_that(
    tmp_path: Path, later: list[tuple[str, int]], counts: bool
) -> None:
    """The newest answer may be of a later version, and says nothing of the refused one; its frames may come yet."""
    with home(tmp_path, LOUD_2, policy(3)) as it:
        it.offer(2)
        it.refuse(2)
        assert not it.impossible
        assert not it.catalogue.may_go_back("watch"), "its versions only grow"
        for what, version in later:
            getattr(it, what)(version)
            it.look()
        assert it.impossible is counts
        for frame in it.first[3:5]:
            it.store(replace(frame, policy_version=3 if ("answer", 3) in later else 1))
        assert it.released() == (1 if counts else 2)


@pytest.mark.parametrize("shared", [False, True], ids=["one process", "shards"])
def test_a_refusal_after_frames_takes_nothing_back(tmp_path: Path, shared: bool) -> None:
    with home(tmp_path, LOUD_2, shared=shared) as it:
        it.offer(2)
        it.look()
        later = frames([10] * 4, versions=[1, 1, 1, 2])[3]
        if shared:  # another process has heard it
            it.scene.receive([ReceivedFrame("watch", "hr", later)])
        else:
            it.store(later)
        it.answer(2, "stale")
        assert it.impossible


def test_the_first_frame_of_it_charges_it_before_the_next_release(tmp_path: Path) -> None:
    with home(tmp_path, LOUD_2) as it:
        it.offer(2)
        it.answer(2, "ceiling")
        assert not it.impossible
        before = it.released()
        it.store(WindowFrame(2, "ten", -1, 0, 30, 10, 10, (3,)))
        it.store(it.first[3])
        it.store(it.first[4])
        assert it.released() == before
        assert it.impossible


def test_a_version_in_force_that_is_refused_once_more_counts(tmp_path: Path) -> None:
    with home(tmp_path, LOUD_2) as it:
        it.offer(2)
        it.answer(2)
        it.answer(2, "old")
        assert it.impossible


def test_of_a_file_it_counts_at_once(tmp_path: Path) -> None:
    with home(tmp_path, LOUD_2) as it:
        it.catalogue.add(LOUD_2)
        it.part.renew()
        assert it.impossible


def test_streams_of_a_document_are_tied_once_it_runs_and_not_while_it_may_be_refused(tmp_path: Path) -> None:
    chains = JointChains(
        streams=tuple(JointStream(name=name, states=2, rate=3.0) for name in ("hr", "steps")),
        period_us=1_000_000,
        shows=((0, 0), (0, 1), (1, 0), (1, 1)),
        odds_ratio=4.0,
    )
    joint = policy(2, chains=chains).model_copy(update={"guarantee": Guarantee(epsilon=50.0, adversary="universal")})
    with home(tmp_path, joint) as it:
        it.offer(2)
        assert it.released() == 1
        assert it.tied == set()
        it.answer(2, "ceiling")
        it.released()
        assert it.tied == set()
        it.answer(2)
        it.store(frames([10] * 4, versions=[1, 1, 1, 2])[3])
        it.released()
        assert it.tied == {("watch", "hr"), ("watch", "steps")}


def test_releases_go_on_when_what_a_readers_limit_forbids_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They ended for good."""
    loose = policy(2, chains=BinaryChains(q=(0.49, 0.5), r=(0.49, 0.5)))
    with home(tmp_path, loose, readers=True) as it:
        assert it.released() == 1
        it.offer(2)
        it.store(it.first[3])
        it.store(it.first[4])
        assert it.released() == 1
        assert "releases wait, because a policy cannot be accounted for: account anna would be told" in caplog.text
        assert not it.part.busy
        it.answer(2, "ceiling")
        assert it.released() == 2


class Parts:
    """The part of a gateway that makes releases, without a broker; 40 ticks are stored."""

    def __init__(
        self, folder: Path, *releases: str, audiences: str = PUBLIC, fleet: tuple[Policy, ...] = FLEET
    ) -> None:
        scene = Scene(folder / "s.sqlite", 8, fleet)
        scene.record(*frames([10] * 4))
        config = write_config(folder, *(releases or [scheduled(devices=["watch"])]), audiences=audiences)
        self.counters: Counter[str] = Counter()
        self.noted, models = Noted(), catalogue(fleet)
        self.part = releasing(scene, config, models, self.counters, self.noted)
        self.ledger = Ledger(folder / "s-ledger.sqlite", create=False)


def fails(with_error: DatabaseError) -> object:
    def fail(*_: object, **__: object) -> None:
        raise with_error

    return fail


def test_releases_wait_while_the_ledger_is_away_and_new_policies_are_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "set_allowances", fails(AwayError("no connection")))
        parts.part.renew()
        for _ in range(2):
            with pytest.raises(AwayError):
                parts.part.pump(idle=True)
    assert (parts.ledger.newest_entry, parts.part.busy) == (0, False)
    work(parts.part)
    assert parts.ledger.newest_entry > 0
    assert parts.counters["ledger_errors"] == 0


def test_releases_end_where_a_new_policy_cannot_be_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    monkeypatch.setattr(Ledger, "set_allowances", fails(DatabaseError("disk I/O error")))
    parts.part.renew()
    for _ in range(3):
        parts.part.pump(idle=True)
    assert (parts.ledger.newest_entry, parts.counters["ledger_errors"]) == (0, 1)
    assert not parts.part.busy


def test_many_accounts_follow_policies_a_tenth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nothing is released; a device after another takes a new policy, and each time all would be asked."""
    parts = Parts(tmp_path)
    now = [1000.0]
    renewed: list[float] = []
    monkeypatch.setattr(schedule, "_FEW_ACCOUNTS", 0)
    monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def renew(*_: object, **__: object) -> None:
        renewed.append(now[0])
        now[0] += 0.5

    monkeypatch.setattr(Ledger, "set_allowances", renew)
    for _ in range(4):
        parts.part.renew()
        parts.part.pump(idle=True)
        now[0] += 2.0
    assert renewed == [1000.0, 1006.5]
    assert parts.ledger.newest_entry == 0


def test_a_refusal_is_held_until_the_device_accepts_a_document(tmp_path: Path) -> None:
    held: list[list[str]] = []
    monitor = SimpleNamespace(hold=lambda _code, devices: held.append(devices))
    objects = {"store": Store(tmp_path / "s.sqlite"), "link": Link(Broker(), client_id="none"), "monitor": monitor}
    describing = Describer(loop_of(catalogue=catalogue(FLEET), **objects))
    for reason, devices in (("guarantee", ["watch"]), ("", [])):
        status = PolicyStatus(1, b"12345678", reason, "", 1, False)
        for fleet, expected in (("other", held[-1:]), ("home", [devices])):
            describing.heard(Message(topic_of("policy_status", fleet, "watch"), status.encode()))
            describing.pump()
            assert held[-1:] == expected


def test_a_release_that_can_never_be_made_is_said_at_once_and_the_others_are_made(tmp_path: Path) -> None:
    """The device's own windows take more than one of two audiences is allowed."""
    window = Window(name="ten", length=10, stride=10, states=("level 1",), scale="20")
    fleet = (policy(1, windows=(window,)), policy(1, device="ring"))
    narrow = '[audiences.narrow]\nepsilon = 0.01\nadversary = "informed"\n'
    wide = '[audiences.wide]\nepsilon = 2.0\nadversary = "informed"\n'
    parts = Parts(
        tmp_path,
        *(
            scheduled("never", "narrow", devices=["watch"]),
            scheduled("made", "wide", devices=["watch"], source="symbols", share=0.25),
        ),
        audiences=narrow + wide,
        fleet=fleet,
    )
    why = parts.noted.held.pop("never")
    assert "nothing can be released. Windows of a policy that the device ran, or may run, take" in why
    assert "a new audience with a larger epsilon" in why
    assert parts.noted.held == {}
    work(parts.part)
    assert {entry.name for entry in parts.ledger.entries()} == {"made"}
    assert (parts.counters["releases_refused"], parts.noted.notes) == (0, [])
    assert all(device != "watch" or first > 0 for (device, _), first in parts.part.needed_ticks().items())


def test_a_window_that_is_refused_is_noted_with_its_release_and_the_reason(tmp_path: Path) -> None:
    parts = Parts(tmp_path, scheduled("first", devices=["watch"]), scheduled("second", devices=["watch"]))
    work(parts.part)
    assert parts.counters["releases_refused"] > 0
    assert {name for name, _ in parts.noted.notes} <= {"first", "second"}
    assert all("too much" in why for _, why in parts.noted.notes)
