"""The policy in force is one that the device has named: refusal, absence, rollback, and a rollout half-way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

from fugu.contract.chains import BinaryChains
from fugu.contract.frames import PolicyStatus, Status, StreamStatus
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import UNCHANGED
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.timeline import Drawn
from gateway.parts.describe import Described, InForce, Running
from tests.support.scenes import catalogue, policy

V1, V2, V3 = (policy(version) for version in (1, 2, 3))
STRONG, WEAK = (
    policy(version, table=NoiseTable.binary(flip, flip), chains=BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3))).model_copy(
        update={"guarantee": Guarantee(epsilon=epsilon, adversary="informed")}
    )
    for version, flip, epsilon in ((1, round(0.45 * SCALE), 1.7), (2, round(0.2 * SCALE), 8.0))
)


def in_force(known: InForce) -> Running | None:
    """The policy of the stream, without what is known of its ticks."""
    found = known.running("watch", "hr")
    return found and found._replace(history=UNCHANGED)


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
        assert in_force(known) == Running(V1, True)
        assert known.refusals == {"watch": "guarantee"}


def test_a_first_policy_that_is_refused_is_not_described() -> None:
    known = InForce(catalogue([V1]))
    known.answered("watch", answer(0))
    assert in_force(known) == Running(V1, False)
    assert known.answered("watch", answer(0, "guarantee"))
    assert known.running("watch", "hr") is None


def test_an_accepted_policy_ends_a_refusal() -> None:
    known = InForce(catalogue([V1, V2, V3]))
    known.answered("watch", answer(1, "guarantee"))
    assert known.answered("watch", answer(3))
    assert (in_force(known), known.refusals) == (Running(V3, True), {})
    assert not known.answered("watch", answer(3))


def test_of_an_absent_device_nothing_is_confirmed_and_a_last_will_erases_nothing() -> None:
    known = InForce(catalogue([V1, V2]))
    assert in_force(known) == Running(V2, False)
    assert not known.status("watch", status(1, 50, online=False))
    assert in_force(known) == Running(V2, False)
    assert known.status("watch", status(1, 50))
    assert not known.status("watch", status(2, 60, online=False))
    assert in_force(known) == Running(V1, True)
    assert known.running("watch", "unknown") is None


def test_a_rollback_counts_from_its_ticks_on_and_late_frames_do_not_undo_it() -> None:
    known = InForce(catalogue([V1, V2]))
    known.named("watch", "hr", 2, 99)
    assert known.named("watch", "hr", 1, 98), "a late frame of another version"
    assert in_force(known) == Running(V2, True, (V1,))
    assert not known.named("watch", "hr", 1, 97)
    assert known.status("watch", status(1, 100))
    assert not known.named("watch", "hr", 2, 99)
    assert in_force(known) == Running(V1, True, (V2,))
    assert known.named("watch", "hr", 2, 100)
    assert in_force(known) == Running(V2, True, (V1,))


def test_versions_that_frames_may_still_come_under_are_the_newest_three_that_the_gateway_has() -> None:
    policies = [policy(version) for version in range(1, 7)]
    known = InForce(catalogue(policies))
    for version in (1, 2, 3, 4, 5, 900):
        known.named("watch", "hr", version, version)
    assert known.status("watch", status(6, 1000))
    assert in_force(known) == Running(policies[5], True, tuple(policies[2:5]))


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
    assert in_force(known) == Running(V1, True)
    known.status("watch", status(2, 10))
    assert in_force(known) == Running(V2, True, (V1,))
    policies = catalogue([V1, V2])
    policies.retire([V1.to_json()])
    assert in_force(InForce(policies)) == Running(V1, True)


def test_a_version_that_the_gateway_does_not_have_is_described_by_the_one_before_unconfirmed() -> None:
    known = InForce(catalogue([V2]))
    known.status("watch", status(3, 10))
    assert in_force(known) == Running(V2, False)
    known = InForce(catalogue([V2]))
    known.status("watch", status(1, 10))
    assert known.running("watch", "hr") is None


def drawn(*rows: tuple[int, int, int, int]) -> Callable[[str, str], Sequence[Drawn]]:
    """Rows of (version, begin, first, last)."""
    return lambda _device, _stream: [Drawn(first, last, version, begin) for version, begin, first, last in rows]


def test_a_promise_is_dated_by_the_ticks_of_all_versions_and_anew_after_a_rollback() -> None:
    known = InForce(catalogue([STRONG, WEAK]))
    assert in_force(known) == Running(WEAK, False)
    assert Described.of(Running(WEAK, False)).description.guarantee.always
    rows = [(1, 0, 0, 999)]
    known = InForce(catalogue([STRONG, WEAK]), rows=lambda *_: drawn(*rows)("", ""))
    known.named("watch", "hr", 1, 999)
    known.status("watch", status(2, 1000))
    described = Described.of(running(known)).description
    assert (described.version, described.guarantee.always) == (2, True)
    until = described.others[0].guarantee.until
    assert until is not None
    assert 900 < until < 999
    rows.append((2, 1000, 1000, 1499))
    known.named("watch", "hr", 1, 1500)
    guarantee = Described.of(running(known)).description.guarantee
    assert guarantee.since is not None
    assert 1500 < guarantee.since < 1600
    known.answered("watch", answer(2))
    assert Described.of(running(known)).description.guarantee.always


def test_ticks_that_are_missing_may_be_of_either_version() -> None:
    """Frames of 60 ticks have not come yet: perhaps they were of the weaker version."""
    near = InForce(catalogue([STRONG, WEAK]), rows=drawn((1, 0, 0, 899), (2, 900, 1000, 1100)))
    far = InForce(catalogue([STRONG, WEAK]), rows=drawn((1, 0, 0, 899), (2, 960, 1000, 1100)))
    ends = []
    for known in (near, far):
        known.named("watch", "hr", 1, 899)
        known.named("watch", "hr", 2, 1100)
        ends.append(Described.of(running(known)).description.others[0].guarantee.until)
    assert ends[0] == ends[1]
    assert far.history("watch", "hr").spans[1][2:] == (900, 959)
    assert near.history("watch", "hr").spans[1].first == 1000
    weak_first = [(2, 0, 0, 899), (1, 960, 1000, 1100)]
    known = InForce(catalogue([STRONG, WEAK]), rows=drawn(*weak_first))
    known.named("watch", "hr", 1, 1100)
    since = Described.of(running(known)).description.guarantee.since
    assert since is not None
    assert since > 1000


def test_what_was_before_the_first_stored_tick_is_unknown() -> None:
    known = InForce(catalogue([STRONG]), rows=drawn((1, 500, 500, 600)))
    known.named("watch", "hr", 1, 600)
    since = Described.of(running(known)).description.guarantee.since
    assert since is not None
    assert since > 500


def running(known: InForce) -> Running:
    found = known.running("watch", "hr")
    assert found is not None
    return found
