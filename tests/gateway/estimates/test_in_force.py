"""The policy in force is one that the device has named: refusal, absence, rollback, and a rollout half-way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.dating import dates_of
from fugu.contract.errors import PolicyError
from fugu.contract.frames import PolicyStatus, Status, StreamStatus
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import UNCHANGED, Noise
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.timeline import Drawn
from gateway.parts.describe import Described, InForce, RunningPolicy
from tests.support.changing_noise import sides, stretch_losses
from tests.support.measured import measure_policy
from tests.support.scenes import catalogue, policy

V1, V2, V3 = (policy(version) for version in (1, 2, 3))
STRONG, WEAK = (
    policy(version, table=NoiseTable.binary(flip, flip), chains=BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3))).model_copy(
        update={"guarantee": Guarantee(epsilon=epsilon, adversary="informed")}
    )
    for version, flip, epsilon in ((1, round(0.45 * SCALE), 1.7), (2, round(0.2 * SCALE), 8.0))
)


def in_force(force: InForce) -> RunningPolicy | None:
    """The policy of the stream, without what is known of its ticks."""
    running = force.running_policy("watch", "hr")
    return running and running._replace(history=UNCHANGED)


def status(version: int, next_tick: int, *, online: bool = True) -> Status:
    return Status(online, "1.0", 0, (), (StreamStatus("hr", version, next_tick),))


def answer(version: int, reason: str = "") -> PolicyStatus:
    return PolicyStatus(version, b"12345678", reason, "", int(bool(reason)), False)


def test_a_refused_policy_is_not_in_force_whatever_comes_first() -> None:
    for order in permutations(range(3)):
        force = InForce(catalogue([V1, V2]))
        steps = (
            lambda state=force: state.take_status("watch", status(1, 50)),
            lambda state=force: state.take_answer("watch", answer(1, "guarantee")),
            lambda state=force: state.note_version("watch", "hr", 1, 49),
        )
        for index in order:
            steps[index]()
        assert in_force(force) == RunningPolicy(V1, True)
        assert force.refusals == {"watch": "guarantee"}


def test_a_first_policy_that_is_refused_is_not_described() -> None:
    force = InForce(catalogue([V1]))
    force.take_answer("watch", answer(0))
    assert in_force(force) == RunningPolicy(V1, False)
    assert force.take_answer("watch", answer(0, "guarantee"))
    assert force.running_policy("watch", "hr") is None


def test_an_accepted_policy_ends_a_refusal() -> None:
    force = InForce(catalogue([V1, V2, V3]))
    force.take_answer("watch", answer(1, "guarantee"))
    assert force.take_answer("watch", answer(3))
    assert (in_force(force), force.refusals) == (RunningPolicy(V3, True), {})
    assert not force.take_answer("watch", answer(3))


def test_of_an_absent_device_nothing_is_confirmed_and_a_last_will_erases_nothing() -> None:
    force = InForce(catalogue([V1, V2]))
    assert in_force(force) == RunningPolicy(V2, False)
    assert not force.take_status("watch", status(1, 50, online=False))
    assert in_force(force) == RunningPolicy(V2, False)
    assert force.take_status("watch", status(1, 50))
    assert not force.take_status("watch", status(2, 60, online=False))
    assert in_force(force) == RunningPolicy(V1, True)
    assert force.running_policy("watch", "unknown") is None


def test_a_rollback_counts_from_its_ticks_on_and_late_frames_do_not_undo_it() -> None:
    force = InForce(catalogue([V1, V2]))
    force.note_version("watch", "hr", 2, 99)
    assert force.note_version("watch", "hr", 1, 98), "a late frame of another version"
    assert in_force(force) == RunningPolicy(V2, True, (V1,))
    assert not force.note_version("watch", "hr", 1, 97)
    assert force.take_status("watch", status(1, 100))
    assert not force.note_version("watch", "hr", 2, 99)
    assert in_force(force) == RunningPolicy(V1, True, (V2,))
    assert force.note_version("watch", "hr", 2, 100)
    assert in_force(force) == RunningPolicy(V2, True, (V1,))


def test_versions_that_frames_may_still_come_under_are_the_newest_three_that_the_gateway_has() -> None:
    policies = [policy(version) for version in range(1, 7)]
    force = InForce(catalogue(policies))
    for version in (1, 2, 3, 4, 5, 900):
        force.note_version("watch", "hr", version, version)
    assert force.take_status("watch", status(6, 1000))
    assert in_force(force) == RunningPolicy(policies[5], True, tuple(policies[2:5]))


def test_a_rollout_that_is_half_way_describes_each_device_by_its_own_version() -> None:
    force = InForce(catalogue([policy(version, device=name) for version in (1, 2) for name in ("ring", "watch")]))
    for name, version in (("ring", 2), ("watch", 1)):
        force.take_status(name, status(version, 10))
    versions = [
        (running.policy.version, running.confirmed)
        for name in ("ring", "watch")
        if (running := force.running_policy(name, "hr"))
    ]
    assert versions == [(2, True), (1, True)]


def test_a_restart_knows_versions_from_stored_frames_even_of_policies_that_are_gone() -> None:
    policies = catalogue([V2])
    policies.retire([V1.to_json()])
    force = InForce(policies)
    assert in_force(force) == RunningPolicy(V1, True)
    force.take_status("watch", status(2, 10))
    assert in_force(force) == RunningPolicy(V2, True, (V1,))
    policies = catalogue([V1, V2])
    policies.retire([V1.to_json()])
    assert in_force(InForce(policies)) == RunningPolicy(V1, True)


def test_a_version_of_stored_frames_is_never_given_to_another_policy() -> None:
    policies = catalogue([V2])
    policies.retire([V1.to_json()])
    with pytest.raises(PolicyError, match="another policy of watch/hr has version 1 too"):
        policies.add(V1.model_copy(update={"frame_ticks": V1.frame_ticks + 1}))
    policies.add(V1)
    assert policies.policies("watch", "hr") == [V1, V1, V2]


def test_a_version_that_the_gateway_does_not_have_is_described_by_the_one_before_unconfirmed() -> None:
    force = InForce(catalogue([V2]))
    force.take_status("watch", status(3, 10))
    assert in_force(force) == RunningPolicy(V2, False)
    force = InForce(catalogue([V2]))
    force.take_status("watch", status(1, 10))
    assert force.running_policy("watch", "hr") is None


def drawn(*rows: tuple[int, int, int, int]) -> Callable[[str, str], Sequence[Drawn]]:
    """Rows of (version, begin, first, last)."""
    return lambda _device, _stream: [Drawn(first, last, version, begin) for version, begin, first, last in rows]


def test_a_promise_is_dated_by_the_ticks_of_all_versions_and_anew_after_a_rollback() -> None:
    force = InForce(catalogue([STRONG, WEAK]))
    assert in_force(force) == RunningPolicy(WEAK, False)
    assert Described.of(RunningPolicy(WEAK, False)).description.guarantee.holds_always
    rows = [(1, 0, 0, 999)]
    force = InForce(catalogue([STRONG, WEAK]), rows_of=lambda *_: drawn(*rows)("", ""))
    force.note_version("watch", "hr", 1, 999)
    force.take_status("watch", status(2, 1000))
    described = Described.of(running(force)).description
    assert (described.version, described.guarantee.holds_always) == (2, True)
    until = described.others[0].guarantee.until
    assert 900 < until < 999
    rows.append((2, 1000, 1000, 1499))
    force.note_version("watch", "hr", 1, 1500)
    guarantee = Described.of(running(force)).description.guarantee
    assert 1500 < guarantee.since < 1600
    force.take_answer("watch", answer(2))
    assert Described.of(running(force)).description.guarantee.holds_always


def test_ticks_that_are_missing_may_be_of_either_version() -> None:
    """Frames of 60 ticks have not come yet: perhaps they were of the weaker version."""
    near = InForce(catalogue([STRONG, WEAK]), rows_of=drawn((1, 0, 0, 899), (2, 900, 1000, 1100)))
    far = InForce(catalogue([STRONG, WEAK]), rows_of=drawn((1, 0, 0, 899), (2, 960, 1000, 1100)))
    ends = []
    for force in (near, far):
        force.note_version("watch", "hr", 1, 899)
        force.note_version("watch", "hr", 2, 1100)
        ends.append(Described.of(running(force)).description.others[0].guarantee.until)
    assert ends[0] == ends[1]
    for force in (near, far):  # the device may have dropped frames of 960..999 that others have received
        assert [span[2:] for span in force.history("watch", "hr").spans[1:]] == [(900, 999), (1000, None)]


def test_missing_ticks_may_be_of_a_weaker_version_from_which_a_device_went_back() -> None:
    """1, then 2, then 1 again: while the frames of 2 were on their way, more was lost than was told of the first."""
    first, last = 900, 959
    policies = catalogue([STRONG, WEAK])
    force = InForce(policies, rows_of=drawn((1, 0, 0, first - 1), (1, last + 1, last + 1, 1100)))
    force.note_version("watch", "hr", 1, 1100)
    promise, bound = dates_of(STRONG, force.history("watch", "hr")), STRONG.bound()
    quiet, loud = (np.log(float(member.outputs.ratios[0])) for member in (STRONG, WEAK))
    steps = np.array([(loud, loud) if first <= tick <= last else (quiet, quiet) for tick in range(1100)])
    losses = stretch_losses(*sides(0.1, 0.1, steps, "informed"), steps, 1)
    for tick, loss in enumerate(losses.tolist()):
        assert first <= tick <= last or loss <= promise.epsilon(bound, tick, tick, 1), tick
    policies.may_go_back = lambda _device: False
    assert dates_of(STRONG, force.history("watch", "hr")).holds_always, "signed versions only grow"
    before = InForce(policies, rows_of=drawn((2, 0, 0, first - 1), (2, last + 1, last + 1, 1100)))
    before.note_version("watch", "hr", 2, 1100)
    noises = {span.noise for span in before.history("watch", "hr").spans}
    assert noises == {Noise.of(WEAK)}, "no weaker version is there"


@pytest.mark.parametrize("measured", [False, True])
def test_a_version_that_was_never_sent_to_a_device_was_not_drawn_before_its_first_frame(measured: bool) -> None:
    """The catalogue has every document for a device's groups, also those from before the device was enrolled."""
    stronger = (STRONG.model_copy(update={"version": 2}), WEAK.model_copy(update={"version": 1}))
    policies = tuple(measure_policy(version=version) for version in (2, 1)) if measured else stronger
    stream = policies[0].stream
    for was_sent in (True, False):
        loaded = catalogue(policies)
        loaded.may_run = lambda _device, version, was_sent=was_sent: version == 2 or was_sent
        loaded.may_go_back = lambda _device: False
        force = InForce(loaded, rows_of=drawn((2, 0, 1000, 1999)))
        force.note_version("watch", stream, 2, 1999)
        assert dates_of(policies[0], force.history("watch", stream)).holds_always != was_sent


def test_what_was_before_the_first_stored_tick_is_unknown() -> None:
    force = InForce(catalogue([STRONG]), rows_of=drawn((1, 500, 500, 600)))
    force.note_version("watch", "hr", 1, 600)
    since = Described.of(running(force)).description.guarantee.since
    assert since > 500


def running(force: InForce) -> RunningPolicy:
    running = force.running_policy("watch", "hr")
    assert running is not None
    return running
