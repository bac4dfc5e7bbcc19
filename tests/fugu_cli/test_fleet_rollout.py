"""`fugu fleet rollout`: commands on a registry, with the gateway's steps in between."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from fugu.contract.fleet_documents import Address
from fugu_cli.view import fleet as rollout_view
from gateway.fleet.entries import Outcome, PolicyReport, Sighting
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollouts
from tests.support.brokers import await_end
from tests.support.command import Done, Fugu
from tests.support.fleet_home import HEART, Home


class Staged(Home):
    """The same, and a gateway that is called by hand."""

    def __init__(self, folder: Path, fugu: Fugu) -> None:
        super().__init__(folder)
        self.rollouts = Rollouts(self.registry)
        self.fugu = fugu
        self.now_us = 0

    def rollout(self, what: str, *words: object) -> Done:
        return self.fugu("fleet", "rollout", what, "--registry", self.path, *words)

    def start(self, *words: object, version: int = 2) -> Done:
        done = self.rollout("start", self.write(version, HEART), "--root", self.root, *words)
        if done.code == 0:
            self.now_us = self.rollouts.show(self.rollouts.numbers()[-1]).state.seen_us
        return done

    def step(self, seconds: int = 1) -> set[str]:
        """The gateway goes on; which devices are to have a new document."""
        self.now_us += seconds * 1_000_000
        due = self.rollouts.due(self.now_us)
        self.registry.note_published([(device.device, device.version) for device in due])
        return {device.device for device in due}


@pytest.fixture
def home(tmp_path: Path, fugu: Fugu) -> Staged:
    return Staged(tmp_path, fugu)


def shown(home: Staged, *words: object) -> Any:
    return home.rollout("show", "--json", *words).json()


def test_a_rollout_from_canaries_over_a_gate_to_its_end(home: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGU_OPERATOR", "anna")
    stages = ("--stage", "group:new,success=100%", "--stage", "100%,gate", "--error", "50%", "--seed", "spring")
    done = home.start(*stages, "--pace", 600, "--patience", 60, "--json")
    assert (done.code, done.err) == (0, "")
    document = done.json()
    assert (document["phase"], document["version"], document["error"], document["pace"]) == ("running", 2, 0.5, 600)
    assert [(stage["of"], stage["size"], stage["gate"]) for stage in document["stages"]] == [
        ("group new", 1, False),
        ("100 %", 2, True),
    ]
    assert home.step() == {"band"}
    home.says("band", 2)
    home.step()
    waiting = shown(home)
    assert (waiting["phase"], waiting["cause"]) == ("waiting", "stage 2 waits for approval")
    monkeypatch.setenv("FUGU_OPERATOR", "bert")
    approved = home.rollout("approve")
    assert approved.code == 0
    assert home.rollout("approve").code == 1, "it does not wait any more"
    assert home.step() == {"ring", "watch"}
    home.says("ring", 2)
    home.says("watch", 2)
    home.step()
    assert shown(home)["phase"] == "completed"
    who = [(event.who, event.what) for event in home.registry.history() if event.subject == "rollout 1"]
    assert who[:3] == [("anna", "draft"), ("anna", "start"), ("gateway", "waiting")]
    assert ("bert", "approve") in who


def test_a_push_past_a_rollout_is_warned_of(home: Staged, fugu: Fugu) -> None:
    home.start("--stage", "group:new", "--stage", "100%,gate", "--pace", 600, "--patience", 60)
    done = fugu("fleet", "push", home.write(3, HEART), *home.options)
    assert done.code == 0
    assert "warning: rollout 1 is under way at some of these devices" in done.err


def test_one_that_stops_offers_the_way_back(home: Staged) -> None:
    home.fugu("fleet", "push", home.write(1, HEART, to=Address(group="wrists")), *home.options)
    home.says("watch", 1)
    home.start("--stage", "100%", "--error", "30%")
    home.step(10)
    home.says("watch", 2, "refused", "ceiling", in_force=1)
    home.step()
    assert shown(home)["phase"] == "stopped"
    text = " ".join(home.rollout("show").out.split())
    assert "the error threshold is 0.3" in text
    assert "had version 1: the way back is 'fugu fleet sign --restores 1'" in text
    assert "1 device had no document before" in text


def test_it_pauses_resumes_and_is_aborted(home: Staged) -> None:
    home.start("--stage", "100%", "--pace", 1)
    assert len(home.step()) == 1
    assert "paused" in home.rollout("pause").out
    assert home.step(600) == set()
    assert home.rollout("pause").code == 1
    assert home.rollout("resume", 1).code == 0
    home.now_us = home.rollouts.show(1).state.seen_us
    assert len(home.step(61)) == 1
    assert "aborted" in home.rollout("abort").out
    ended = home.rollout("abort")
    assert (ended.code, ended.err) == (1, "fugu: no rollout is under way in fleet home\n")
    assert home.rollout("abort", 1).code == 1
    assert home.rollout("show", 7).err == "fugu: there is no rollout 7 in fleet home\n"


def test_a_document_of_the_registry_is_rolled_out_by_its_version(home: Staged) -> None:
    home.start("--stage", "100%")
    home.rollout("abort")
    done = home.rollout("start", "--version", 2, "--group", "wrists", "--share", "50%", "--json")
    assert done.code == 0
    assert [stage["size"] for stage in done.json()["stages"]] == [1, 0, 0]
    assert home.rollout("start", "--version", 9).err == "fugu: there is no document of version 9 in fleet home\n"
    other = home.rollout("start", "--version", 2)
    assert (other.code, "rollout 2 is under way at 1 of the 3 devices" in other.err) == (1, True)


def test_a_dry_run_shows_stages_and_changes_nothing(home: Staged) -> None:
    before = home.dump()
    words = (home.write(1, HEART), "--root", home.root, "--stage", "50%", "--stage", "100%", "--seed", "x", "--dry-run")
    document = home.rollout("start", *words, "--json").json()
    assert [len(names) for names in document["stages"]] == [2, 1]
    assert sorted(name for names in document["stages"] for name in names) == ["band", "ring", "watch"]
    assert document["changes"][0]["streams"]["hr"]["after"]["epsilon"] == 1.0
    assert "1: 50 %" in home.rollout("start", *words).out
    assert home.dump() == before
    home.start("--stage", "100%")
    again = home.rollout("start", "--version", 2, "--dry-run", "--stage", "100%", "--json").json()
    assert len(again["stages"][0]) == 3


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--stage", "50%"), 1, "the last stage must reach 100 % of the rollout's devices"),
        (("--stage", "100%,fast"), 2, "a stage is SHARE or group:NAME, then ,success=SHARE and ,gate"),
        (("--stage", "1e-300%", "--stage", "100%"), 1, "'1e-300%' is no share: write 3%, 0.03 or 3/100"),
        (("--stage", "lots"), 1, "'lots' is no share: write 3%, 0.03 or 3/100"),
        (("--stage", "group:pens", "--stage", "100%"), 1, "none of the rollout's is in group pens"),
        (("--error", "0"), 1, "an error threshold of 0 is not above 0 and at most 1"),
        (("--pace", "0"), 1, "a pace of 0 devices per minute"),
        (("--version", "1"), 2, "name a DOCUMENT with --root, or --version"),
    ],
)
def test_plans_that_are_refused(home: Staged, words: tuple[str, ...], code: int, complaint: str) -> None:
    before = home.dump()
    done = home.start(*words)
    assert complaint in done.refusal(code)
    assert home.dump() == before, "not even the document is there"


@contextmanager
def gateway(home: Staged, outcome: Outcome) -> Iterator[None]:
    """A gateway in the background, whose devices answer at once."""
    ended = Event()

    def serve() -> None:
        with closing(Registry(home.path)) as registry:
            rollouts, now_us = Rollouts(registry), home.now_us
            while rollouts.active() and not ended.wait(0.02):
                now_us += 1_000_000
                for device in rollouts.due(now_us):
                    registry.note_published([(device.device, device.version)])
                    registry.note_sightings([Sighting(device.device, True, 0, "", "", now_us)])
                    reason = "ceiling" if outcome == "refused" else ""
                    registry.note_reports([PolicyReport(device.device, device.version, outcome, reason, now_us)])

    thread = Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        await_end(thread)


@pytest.mark.long
@pytest.mark.parametrize(("outcome", "code"), [("accepted", 0), ("refused", 1)])
def test_watching_ends_with_the_rollout(home: Staged, outcome: Outcome, code: int) -> None:
    home.start("--stage", "100%", "--pace", 600)
    with gateway(home, outcome):
        done = home.rollout("show", "--watch")
    assert done.code == code
    last = done.out.splitlines()[-1]
    assert last.startswith("completed: stage 1 of 1, 3 of 3 accepted" if code == 0 else "stopped (stage 1: ")
    assert done.err == ("" if code == 0 else "fugu: rollout 1 was stopped\n")
    assert home.rollout("show", "--watch", "--json").code == 2


def test_at_a_terminal_the_table_is_live(
    home: Staged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.start("--stage", "100%", "--pace", 600)

    def sleep(_seconds: float) -> None:
        for device in home.step():
            home.says(device, 2)

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    other = Registry(home.path)
    assert rollout_view.watch(other, 1, sleep) == "completed"
    assert "Rollout 1 of version 2" in capsys.readouterr().out


def test_two_at_once_have_to_be_named(home: Staged) -> None:
    home.start("--stage", "100%", "--group", "wrists")
    home.start("--stage", "100%", "--group", "fingers", version=3)
    done = home.rollout("pause")
    assert (done.code, done.err) == (1, "fugu: rollouts 1, 2 are under way: name one\n")
    assert home.rollout("pause", 1).code == 0


def test_there_was_none_yet(home: Staged) -> None:
    done = home.rollout("show")
    assert (done.code, done.err) == (1, "fugu: there was no rollout in fleet home yet\n")
