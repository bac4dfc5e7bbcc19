"""A release to the site tells the epsilon of the versions of the frames that are counted, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.dating import dates_of
from fugu.contract.frames import Status, StreamStatus, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.windows import Window
from gateway.parts.describe import InForce
from gateway.store.journal import ReceivedFrame
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import BINARY, frames, policy

STRONG = NoiseTable.binary(2_000_000_000, 2_000_000_000)


def promised(version: int, table: NoiseTable = BINARY, adversary: Adversary = "informed", ticks: int = 1) -> Policy:
    """A policy that promises what it loses, and a little for what leaks over a change."""
    loose = policy(version, table=table)
    about = Guarantee(epsilon=1e3, adversary=adversary, stretch_ticks=ticks)
    proven = loose.model_copy(update={"guarantee": about})
    exact = proven.bound(proven.verify()).epsilon(ticks) * (1 + 2**-10)
    return loose.model_copy(update={"guarantee": about.model_copy(update={"epsilon": exact})})


def of(device: str, document: Policy) -> Policy:
    return document.model_copy(update={"device": device})


def bench(folder: Path, *fleet: Policy, **release: object) -> Bench:
    return Bench(folder, scheduled(audience="site", scale="1", **release), audiences="[audiences]\n", fleet=fleet)


def released_frame(scene: Bench) -> ReleaseFrame:
    scene.work()
    return scene.frames[-1]


WEAK_1, STRONG_2 = promised(1), promised(2, STRONG)


@pytest.mark.parametrize(("version", "made_by"), [(1, WEAK_1), (2, STRONG_2)])
def test_the_newest_policy_that_no_frame_has_says_nothing(tmp_path: Path, version: int, made_by: Policy) -> None:
    """It was refused, is on its way, or waits for an offline device."""
    scene = bench(tmp_path, WEAK_1, STRONG_2)
    scene.scene.record(*frames([20] * 3, versions=[version]))
    assert released_frame(scene).epsilon == made_by.bound().epsilon(1)


def test_half_way_through_a_rollout_the_largest_of_the_devices_counts(tmp_path: Path) -> None:
    fleet = WEAK_1, STRONG_2, of("ring", WEAK_1), of("ring", STRONG_2)
    scene = bench(tmp_path, *fleet)
    scene.scene.record(*frames([20] * 12, versions=[1, *[2] * 11]))
    scene.work(*frames([130, 110], versions=[1, 2]), device="ring")
    by_window = {frame.first: frame.epsilon for frame in scene.frames}
    weak, strong = WEAK_1.guarantee.epsilon, STRONG_2.guarantee.epsilon
    assert all(by_window[first] >= weak for first in range(0, 130, 20)), "the ring's ticks are of version 1"
    assert by_window[200] == strong


def test_beside_a_change_of_policy_more_is_told_until_the_new_promise_is_true(tmp_path: Path) -> None:
    scene = bench(tmp_path, WEAK_1, STRONG_2)
    scene.work(*frames([20] * 12, versions=[1, *[2] * 11]))
    history = History((Span(1, Noise.of(WEAK_1), 0, 19), Span(2, Noise.of(STRONG_2), 20)))
    since = dates_of(STRONG_2, history).since
    assert 20 < since < 200
    weak, strong = WEAK_1.guarantee.epsilon, STRONG_2.guarantee.epsilon
    for frame in scene.frames:
        assert (frame.epsilon == strong) == (frame.first >= since)
        assert frame.epsilon >= strong
    assert scene.frames[1].epsilon > 2 * strong
    assert scene.frames[0].epsilon == weak


def test_a_weaker_policy_that_a_status_names_counts_before_its_first_frame(tmp_path: Path) -> None:
    strong, weak = promised(1, STRONG), promised(2)
    scene = bench(tmp_path, strong, weak)
    timeline = scene.scene.store.versions.timeline
    running = InForce(scene.catalogue, rows_of=lambda device, stream: timeline(device, stream).intervals)
    scene.ledger.close()
    scene.open(running.history)
    scene.scene.record(*frames([20] * 11))
    status = Status(True, "1", 0, (), (StreamStatus("hr", 2, 220),))
    assert running.take_status("watch", status)
    scene.work()
    assert scene.frames[-1].first == 180
    assert scene.frames[-1].epsilon > 2 * strong.guarantee.epsilon, "later ticks leak into its last ones"


def test_where_no_epsilon_is_known_over_a_change_nothing_is_released(tmp_path: Path) -> None:
    """The states of version 1 were others: of its last ticks nobody can say what the later ones tell."""
    edges = WEAK_1.discretiser.model_copy(update={"edges": (7.0,)})
    scene = bench(tmp_path, WEAK_1.model_copy(update={"discretiser": edges}), STRONG_2)
    scene.work(*frames([20] * 12, versions=[1, *[2] * 11]))
    assert scene.counters["releases_refused"] == 1
    strong = STRONG_2.guarantee.epsilon
    assert [frame.first for frame in scene.frames] == list(range(20, 220, 20))
    assert scene.frames[0].epsilon > 2 * strong, "what the others leak is bounded by the class alone"
    assert scene.frames[-1].epsilon == strong


def test_a_policy_that_comes_while_the_gateway_runs_counts_from_its_first_frame(tmp_path: Path) -> None:
    strong, weak = promised(1, STRONG), promised(2)
    scene = bench(tmp_path, strong)
    begun, *later = frames([30, 30, 20], versions=[1, 2, 2])
    scene.scene.record(begun)
    assert released_frame(scene).epsilon == strong.guarantee.epsilon, "nobody knows yet that a weaker one follows"
    scene.catalogue.add(weak)
    scene.scene.catalogue.add(weak)
    scene.scene.record(*later)
    assert released_frame(scene).epsilon == weak.guarantee.epsilon


def test_it_is_against_the_weakest_adversary_and_of_the_shortest_stretch(tmp_path: Path) -> None:
    fixed, lasting = promised(1, adversary="ignorant"), promised(1, STRONG, ticks=5)
    scene = bench(tmp_path, fixed, of("ring", lasting))
    scene.scene.record(*frames([20] * 3))
    scene.scene.record(*frames([20] * 3), device="ring")
    frame = released_frame(scene)
    assert (frame.adversary, frame.stretch_ticks) == ("ignorant", 1)
    assert frame.epsilon == fixed.bound().epsilon(1) > lasting.bound().epsilon(1)


def test_a_retired_version_counts_while_frames_of_it_do(tmp_path: Path) -> None:
    scene = bench(tmp_path, WEAK_1, STRONG_2)
    scene.scene.record(*frames([20] * 12, versions=[1, *[2] * 11]))
    scene.fleet = (STRONG_2,)
    scene.ledger.close()
    scene.scene.policies = (STRONG_2,)
    scene.scene.reopen()
    scene.open()
    scene.work()
    assert scene.frames[0].epsilon == WEAK_1.guarantee.epsilon
    assert {frame.epsilon for frame in scene.frames[-3:]} == {STRONG_2.guarantee.epsilon}


def test_windows_of_the_device_tell_their_own_version(tmp_path: Path) -> None:
    window = Window(name="active", length=20, stride=20, states=("level 1",), scale="2")
    windows = [member.model_copy(update={"windows": (window,)}) for member in (WEAK_1, STRONG_2)]
    wide = Guarantee(epsilon=50.0, adversary="informed")
    fleet = [
        window.model_copy(update={"guarantee": wide, "windows_guarantee": wide, "table": None}) for window in windows
    ]
    fleet[1] = fleet[1].model_copy(update={"guarantee": Guarantee(epsilon=40.0, adversary="informed")})
    scene = bench(tmp_path, *fleet)
    counts = [WindowFrame(version, "active", i - 1, i, 20 * i, 20, 20, (3,)) for i, version in enumerate((1, 2, 2))]
    scene.scene.receive([ReceivedFrame("watch", "hr", frame) for frame in counts])
    scene.work()
    assert [frame.epsilon for frame in scene.frames] == [
        member.bound().epsilon(1) for member in (fleet[0], *fleet[1:] * 2)
    ]
