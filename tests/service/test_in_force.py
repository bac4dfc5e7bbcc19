"""The policy in force is one that the device has named: refusal, absence, rollback, and a rollout half-way."""

from __future__ import annotations

from itertools import permutations

from fugu.contract.frames import PolicyStatus, Status, StreamStatus
from gateway.describe import Described, InForce, Running
from tests.support.scenes import catalogue, policy

V1, V2, V3 = (policy(version) for version in (1, 2, 3))


def status(version: int, next_tick: int, *, online: bool = True) -> Status:
    return Status(online, "1.0", 0, (), (StreamStatus("hr", version, next_tick),))


def answer(version: int, reason: str = "") -> PolicyStatus:
    return PolicyStatus(version, b"12345678", reason, "", int(bool(reason)), False)


def test_a_refused_policy_is_not_in_force_whatever_comes_first() -> None:
    for order in permutations(range(3)):
        known = InForce(catalogue([V1, V2]))
        steps = (
            lambda known=known: known.status("watch", status(1, 50)),
            lambda known=known: known.answered("watch", answer(1, "guarantee")),
            lambda known=known: known.named("watch", "hr", 1, 49),
        )
        for index in order:
            steps[index]()
        assert known.running("watch", "hr") == Running(V1, True)
        assert known.refusals == {"watch": "guarantee"}


def test_a_first_policy_that_is_refused_is_not_described() -> None:
    known = InForce(catalogue([V1]))
    known.answered("watch", answer(0))
    assert known.running("watch", "hr") == Running(V1, False)
    assert known.answered("watch", answer(0, "guarantee"))
    assert known.running("watch", "hr") is None


def test_an_accepted_policy_ends_a_refusal() -> None:
    known = InForce(catalogue([V1, V2, V3]))
    known.answered("watch", answer(1, "guarantee"))
    assert known.answered("watch", answer(3))
    assert (known.running("watch", "hr"), known.refusals) == (Running(V3, True), {})
    assert not known.answered("watch", answer(3))


def test_of_an_absent_device_nothing_is_confirmed_and_a_last_will_erases_nothing() -> None:
    known = InForce(catalogue([V1, V2]))
    assert known.running("watch", "hr") == Running(V2, False)
    assert not known.status("watch", status(1, 50, online=False))
    assert known.running("watch", "hr") == Running(V2, False)
    assert known.status("watch", status(1, 50))
    assert not known.status("watch", status(2, 60, online=False))
    assert known.running("watch", "hr") == Running(V1, True)
    assert known.running("watch", "unknown") is None


def test_a_rollback_counts_from_its_ticks_on_and_late_frames_do_not_undo_it() -> None:
    known = InForce(catalogue([V1, V2]))
    known.named("watch", "hr", 2, 99)
    assert known.named("watch", "hr", 1, 98), "a late frame of another version"
    assert known.running("watch", "hr") == Running(V2, True, (V1,))
    assert not known.named("watch", "hr", 1, 97)
    assert known.status("watch", status(1, 100))
    assert not known.named("watch", "hr", 2, 99)
    assert known.running("watch", "hr") == Running(V1, True, (V2,))
    assert known.named("watch", "hr", 2, 100)
    assert known.running("watch", "hr") == Running(V2, True, (V1,))


def test_versions_that_frames_may_still_come_under_are_the_newest_three_that_the_gateway_has() -> None:
    policies = [policy(version) for version in range(1, 7)]
    known = InForce(catalogue(policies))
    for version in (1, 2, 3, 4, 5, 900):
        known.named("watch", "hr", version, version)
    assert known.status("watch", status(6, 1000))
    assert known.running("watch", "hr") == Running(policies[5], True, tuple(policies[2:5]))


def test_a_rollout_that_is_half_way_describes_each_device_by_its_own_version() -> None:
    known = InForce(catalogue([policy(version, device=name) for version in (1, 2) for name in ("ring", "watch")]))
    for name, version in (("ring", 2), ("watch", 1)):
        known.status(name, status(version, 10))
    versions = [(one.policy.version, one.confirmed) for name in ("ring", "watch") if (one := known.running(name, "hr"))]
    assert versions == [(2, True), (1, True)]


def test_a_restart_knows_versions_from_stored_frames_even_of_policies_that_are_gone() -> None:
    policies = catalogue([V2])
    policies.retire([V1.to_json()])
    known = InForce(policies)
    assert known.running("watch", "hr") == Running(V1, True)
    known.status("watch", status(2, 10))
    assert known.running("watch", "hr") == Running(V2, True, (V1,))
    policies = catalogue([V1, V2])
    policies.retire([V1.to_json()])
    assert InForce(policies).running("watch", "hr") == Running(V1, True)


def test_a_version_that_the_gateway_does_not_have_is_described_by_the_one_before_unconfirmed() -> None:
    known = InForce(catalogue([V2]))
    known.status("watch", status(3, 10))
    assert known.running("watch", "hr") == Running(V2, False)
    known = InForce(catalogue([V2]))
    known.status("watch", status(1, 10))
    assert known.running("watch", "hr") is None


def test_a_promise_about_stretches_begins_when_its_version_did_and_anew_after_a_rollback() -> None:
    whole = V1.guarantee.model_copy(update={"stretch_ticks": 60, "epsilon": 100.0})
    lasting = V1.model_copy(update={"guarantee": whole})
    known = InForce(catalogue([lasting, V2]))
    assert known.running("watch", "hr") == Running(V2, False)
    known.named("watch", "hr", 1, 20)
    known.named("watch", "hr", 1, 90)
    assert known.running("watch", "hr") == Running(lasting, True, (), 20)
    assert Described.of(Running(lasting, True, (), 20)).description.since_tick == 80
    known.status("watch", status(2, 100))
    assert known.running("watch", "hr") == Running(V2, True, (lasting,), None)
    assert Described.of(Running(V2, True, (lasting,))).description.since_tick is None
    known.named("watch", "hr", 1, 95)
    assert known.running("watch", "hr") == Running(V2, True, (lasting,), None)
    known.named("watch", "hr", 1, 150)
    assert known.running("watch", "hr") == Running(lasting, True, (V2,), 150)
    known.answered("watch", answer(2))
    assert known.running("watch", "hr") == Running(V2, True, (lasting,), None)
