"""Window counts at the gateway: what is refused, what is stored once, and the watermark that devices forget by."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.errors import GuaranteeError
from fugu.contract.frames import Committed, Gap, StreamCommit, WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kinds import window_count
from gateway.loop.inbox import Ingest
from gateway.parts import Message
from gateway.store.journal import ReceivedFrame
from tests.support.scenes import Scene, asked, catalogue, frames, policy

HIGH = Window(name="high", length=10, stride=10, start=3, states=(1,), scale="20")
BARS = Window(name="bars", length=10, stride=2, states="histogram", scale="20")
POLICIES = (policy(1, windows=(HIGH, BARS)), policy(2), policy(1, stream="steps", windows=(HIGH,)))


def frame(index: int, previous: int | None = None, counts: tuple[int, ...] = (4,), **changes: object) -> WindowFrame:
    """A window of HIGH, every tick of it observed."""
    before = index - 1 if previous is None else previous
    frame = WindowFrame(1, "high", before, index, 3 + 10 * index, 10, 10, counts)
    return replace(frame, **changes)


def scene(folder: Path, *policies: object) -> Scene:
    return Scene(folder / "s.sqlite", policies=policies or POLICIES)


def record(scene: Scene, *some: WindowFrame, stream: str = "hr") -> None:
    scene.receive([ReceivedFrame("watch", stream, window) for window in some])


def commit(scene: Scene, name: str = "hr/high") -> StreamCommit:
    (stream,) = (stream for stream in scene.committed().streams if stream.stream == name)
    return stream


COLUMNS = "stream, number, previous, policy_version, first, length, observed, counts, shift"


def stored(path: Path) -> list[tuple[object, ...]]:
    return asked(path, f"SELECT {COLUMNS} FROM windows ORDER BY 1, 2")


# What is refused


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (frame(5), None),
        (frame(5, -1), None),
        (frame(5, observed=3), None),
        (frame(5, window="none"), "unknown_window"),
        (frame(5, policy_version=2), "unknown_window"),
        (frame(5, policy_version=7), "unknown_policy_version"),
        (frame(5, first=52), "window_mismatch"),
        (frame(5, length=11), "window_mismatch"),
        (frame(5, counts=(4, 4)), "window_mismatch"),
        (WindowFrame(1, "bars", -1, 2, 4, 10, 10, (4, 6)), None),
        (WindowFrame(1, "bars", -1, 2, 4, 10, 10, (4,)), "window_mismatch"),
    ],
)
def test_a_window_that_its_policy_does_not_have_is_refused(frame: WindowFrame, reason: str | None) -> None:
    counters: Counter[str] = Counter()
    meaning = Ingest(catalogue(POLICIES), counters).read(
        Message(topic_of("window", "home", "watch", "hr"), frame.encode())
    )
    assert meaning == (None if reason else ReceivedFrame("watch", "hr", frame))
    assert counters == Counter(["received", *([reason] if reason else [])])


def test_two_policies_that_differ_in_their_windows_only_are_both_verified() -> None:
    """A policy that was verified once is remembered; windows are part of it."""
    catalogue = Catalogue("home")
    catalogue.add(policy(1))
    loud = policy(2, windows=(HIGH.model_copy(update={"scale": "1/60"}),))
    with pytest.raises(GuaranteeError, match="the set of windows loses epsilon"):
        catalogue.add(loud)


# What is stored


def test_a_window_is_stored_once_and_known_by_its_index(tmp_path: Path) -> None:
    here = scene(tmp_path)
    record(here, frame(5, -1, (-3,)), frame(6))
    record(here, frame(6))
    record(here, frame(6, counts=(5,)), frame(6, previous=4))
    assert here.counters == Counter(windows_stored=2, windows_duplicate=2, windows_conflict=1)
    assert [(row[1:7], json.loads(str(row[7]))) for row in stored(here.path)] == [
        ((5, -1, 1, 53, 10, 10), [-3]),
        ((6, 5, 1, 63, 10, 10), [4]),
    ]
    assert commit(here) == StreamCommit("hr/high", 6, ())
    here.reopen()
    record(here, frame(5, -1, (-3,)), frame(6, counts=(5,)))
    assert here.counters == Counter(windows_stored=2, windows_duplicate=3, windows_conflict=2)
    number = here.store.number_of("watch", "hr/high")
    assert here.store.windows.at(number, 5) == frame(5, -1, (-3,))
    assert here.store.windows.at(number, 7) is None


def test_every_sequence_has_a_watermark_of_its_own(tmp_path: Path) -> None:
    here = scene(tmp_path)
    assert [c.stream for c in here.committed().streams] == ["hr", "hr/bars", "hr/high", "steps", "steps/high"]
    assert {c.through for c in here.committed().streams} == {-1}
    (symbols,) = frames([10])
    here.record(symbols)
    record(here, frame(2, -1), frame(4, 3))
    record(here, frame(9, 2), stream="steps")
    record(here, WindowFrame(1, "bars", -1, 7, 14, 10, 9, (2**63 - 1, -(2**63))))
    assert here.committed() == Committed(
        (
            StreamCommit("hr", 9, ()),
            StreamCommit("hr/bars", 7, ()),
            StreamCommit("hr/high", 4, (Gap(2, 3),)),
            StreamCommit("steps", -1, ()),
            StreamCommit("steps/high", 9, (Gap(-1, 2),)),
        )
    )


def test_the_order_of_arrival_does_not_matter(tmp_path: Path) -> None:
    """Windows that were never released are no gaps; those that are missing are."""
    sent = [frame(i, p) for p, i in ((-1, 2), (2, 3), (3, 7), (7, 8), (8, 20))]
    results = []
    for number in range(3):
        some = sent * 2
        random.Random(number).shuffle(some)
        (tmp_path / str(number)).mkdir()
        here = scene(tmp_path / str(number))
        for batch in some:
            record(here, batch)
            here.reopen()
        assert here.counters == Counter(windows_stored=5, windows_duplicate=5)
        results.append((stored(here.path), commit(here)))
    assert all(result == results[0] for result in results)
    assert results[0][1] == StreamCommit("hr/high", 20, ())


def test_windows_of_a_retired_policy_stay_in_the_watermark(tmp_path: Path) -> None:
    """A device that did not hear of it in time still learns that it may forget them."""
    here = scene(tmp_path)
    record(here, frame(5, -1))
    here.policies = POLICIES[1:]
    here.reopen()
    assert commit(here) == StreamCommit("hr/high", 5, ())


# Windows alone


def only(version: int = 1) -> Policy:
    """The policy with HIGH, without symbols."""
    fields = policy(version, windows=(HIGH,)).model_dump(exclude={"table", "frame_ticks", "windows_guarantee"})
    return Policy(**fields)


def test_of_windows_alone_no_symbols_are_expected_or_taken(tmp_path: Path) -> None:
    (symbols,) = frames([10])
    counters: Counter[str] = Counter()
    ingest = Ingest(catalogue((only(),)), counters)
    assert ingest.read(Message(topic_of("symbols", "home", "watch", "hr"), symbols.encode())) is None
    assert counters["wrong_kind"] == 1
    received = ingest.read(Message(topic_of("window", "home", "watch", "hr"), frame(5).encode()))
    assert received == ReceivedFrame("watch", "hr", frame(5))
    here = scene(tmp_path, only())
    record(here, frame(5, -1))
    assert [commit.stream for commit in here.committed().streams] == ["hr/high"]
    assert commit(here) == StreamCommit("hr/high", 5, ())
    assert [(waiting.place.window_name, waiting.frame) for waiting in here.store.outbox(0, 10)] == [("high", 5)], (
        "its counts are reported"
    )


def test_a_stream_that_had_symbols_still_answers_for_them(tmp_path: Path) -> None:
    policies = policy(1, windows=(HIGH,)), only(2)
    here = scene(tmp_path, *policies)
    assert [commit.stream for commit in here.committed().streams] == ["hr", "hr/high"]
    (symbols,) = frames([10], versions=[2])
    counters: Counter[str] = Counter()
    assert (
        Ingest(catalogue(policies), counters).read(
            Message(topic_of("symbols", "home", "watch", "hr"), symbols.encode())
        )
        is None
    )
    assert counters["wrong_kind"] == 1


@pytest.mark.parametrize(("observed", "useful"), [(6, True), (5, True), (4, False), (1, False)])
def test_a_count_of_less_than_half_a_window_is_not_useful(observed: int, useful: bool) -> None:
    share_policy = POLICIES[0].model_copy(update={"useful_for": "share"})
    assert window_count(share_policy, frame(0, observed=observed)).useful is useful
    assert not window_count(POLICIES[0], frame(0)).useful, "nobody compared"
