"""The audit of a ledger: what the worst tick has lost, never less than what an enumeration finds; and every change."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock
from fugu.contract.windows import Mechanism, Window
from fugu.privacy.accountant import ChainAccountant
from gateway.audit.ledger import LedgerAudit, audit_ledger
from gateway.releases.allowance import allowance, joint_loss, smallest_scale
from gateway.releases.charges import PER_NAT
from gateway.releases.config import joint_charge
from gateway.releases.entries import Promise
from gateway.releases.ledger import Ledger
from tests.support.audited import broker_of, reader
from tests.support.command import Fugu
from tests.support.ledgers import allow, release, reserve
from tests.support.release_scenes import FLEET, Bench, scheduled
from tests.support.sanitised_counts import stationary, worst_loss
from tests.support.scenes import OTHER, frames, policy

Q, R = 0.1, 0.4
CHAIN = BinaryChains(q=(Q, Q), r=(R, R))
TABLE = NoiseTable.binary(SCALE // 100, SCALE // 100)


def granted(
    ledger: Ledger,
    epsilon: float = 1.0,
    adversary: Adversary = "ignorant",
    chains: ChainClass = CHAIN,
    mechanism: Mechanism = "chain",
    base: int = 0,
    audience: str = "public",
) -> int:
    """Open the account of `watch`, and what it allows."""
    allowed = allowance(chains, epsilon, adversary, mechanism)
    terms: dict[str, Any] = {"promise": Promise(epsilon, adversary), "mechanism": mechanism, "chains": (chains,)}
    allow(ledger, allowance=allowed, base=base, audiences=[audience], **terms)
    return allowed


def only(audit: LedgerAudit) -> tuple[float | None, str]:
    """The bound of the one stream, and how it was found."""
    (stream,) = audit.streams
    return stream.epsilon, stream.by


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "l.sqlite")


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
def test_no_enumerated_loss_is_above_the_bound(ledger: Ledger, adversary: Adversary) -> None:
    allowed = granted(ledger, 1.0, adversary)
    n, transition = 4, np.array([[1 - Q, Q], [R, 1 - R]])
    reserve(ledger, release(0, n - 1, allowed))
    scale = float(smallest_scale([TABLE], 1, allowed))
    informed = adversary == "informed"
    real = worst_loss(stationary(transition), transition, np.array([0.01, 0.99]), n, [scale], informed=informed)
    audit = audit_ledger(ledger)
    epsilon, _ = only(audit)
    assert real <= epsilon < 1.0
    assert audit.streams[0].charge == allowed
    if informed:  # states that are known before and after the release count, too
        beside = np.pad(np.full(n, allowed / PER_NAT), 4)
        assert real < ChainAccountant(CHAIN).schedule_loss(beside, "informed").epsilon <= epsilon
    else:  # four ticks say less than the endless stream that is promised
        assert only(audit)[1] == "every tick"
        assert epsilon < 0.9
        assert audit.streams[0].tick in range(n)


def test_windows_that_overlap_are_added_up_where_they_do(ledger: Ledger) -> None:
    """By brute force over paths, symbols and counts of two windows with two ticks in common."""
    allowed = granted(ledger)
    windows, transition = ((0, 2), (1, 3)), np.array([[1 - Q, Q], [R, 1 - R]])
    for first, last in windows:
        reserve(ledger, release(first, last, allowed // 2))
    scale = float(smallest_scale([TABLE], 1, allowed // 2))
    distribution, hit = stationary(transition), np.array(TABLE.weights())[:, 1] / SCALE
    outputs = np.arange(-2, 6)
    likely = np.zeros((4, 2, len(outputs) ** 2))
    for path, symbols in product(product(range(2), repeat=4), repeat=2):
        weight = distribution[path[0]] * np.prod([transition[a, b] for a, b in pairwise(path)])
        weight *= np.prod([hit[x] if z else 1 - hit[x] for x, z in zip(path, symbols, strict=True)])
        noise = [np.exp(-np.abs(outputs - sum(symbols[low : high + 1])) / scale) for low, high in windows]
        for tick, state in enumerate(path):
            likely[tick, state] += weight * np.outer(*noise).ravel() / distribution[state]
    real = np.abs(np.log(likely[:, 0] / likely[:, 1])).max(axis=1)
    (stream,) = audit_ledger(ledger).streams
    assert (stream.by, stream.charge) == ("every tick", 2 * (allowed // 2))
    assert stream.tick in (1, 2)
    assert 0.8 * stream.epsilon < real.max() <= stream.epsilon


@pytest.mark.parametrize("gap", [0, 1, 990, 10**9])
@pytest.mark.parametrize(("q", "r"), [(0.02, 0.02), (0.9, 0.8)])
def test_numbers_that_a_clock_skipped_count_as_no_time(ledger: Ledger, q: float, r: float, gap: int) -> None:
    """The truth: a product of noisy symbols over two windows, with no time or one step between them."""
    chains, n = BinaryChains(q=(q, q), r=(r, r)), 10
    allowed = granted(ledger, chains=chains)
    for first in (5, 5 + n + gap):
        reserve(ledger, release(first, first + n - 1, allowed))
    (stream,) = audit_ledger(ledger).streams
    for between in (0, 1):
        assert product_loss(q, r, [allowed / PER_NAT] * n + [0.0] * between + [allowed / PER_NAT] * n) <= stream.epsilon
    first, second = range(5, 5 + n), range(5 + n + gap, 5 + 2 * n + gap)
    assert stream.tick in first or stream.tick in second
    assert not stream.wrong


def product_loss(q: float, r: float, rates: list[float]) -> float:
    """The largest loss of a tick, if every symbol says the worse of two things as strongly as it may."""
    worst, transition = 0.0, np.array([[1 - q, q], [r, 1 - r]])
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):  # alternating readings are told of by alternating symbols
        sides = []
        weights = [np.exp([rate * (signs[i % 2] > 0), rate * (signs[i % 2] < 0)]) for i, rate in enumerate(rates)]
        for order in (weights, weights[::-1]):
            side, vectors = np.ones(2), []
            for weight in order:
                vectors.append(side)
                side = transition @ (weight * side)
                side /= side.sum()
            sides.append(vectors)
        for weight, before, after in zip(weights, sides[0], sides[1][::-1], strict=True):
            seen = weight * before * after
            worst = max(worst, abs(float(np.log(seen[0] / seen[1]))))
    return worst


@pytest.mark.parametrize("mechanism", ["chain", "mqm-exact", "mqm-approx", "group"])
def test_a_profile_at_the_allowance_is_within_the_promise(ledger: Ledger, mechanism: Mechanism) -> None:
    allowed = granted(ledger, mechanism=mechanism)
    last = 9 if mechanism == "group" else 9999  # too many to follow one by one
    reserve(ledger, release(0, last, allowed, mechanism=mechanism))
    (stream,) = audit_ledger(ledger).streams
    assert not stream.wrong
    assert stream.by == ("one release" if mechanism == "group" else "constant charge")
    if mechanism in ("chain", "mqm-exact"):
        assert stream.epsilon == pytest.approx(1.0, abs=1e-6)


def test_quilts_follow_charges_tick_by_tick(ledger: Ledger) -> None:
    allowed = granted(ledger, mechanism="mqm-exact")
    reserve(ledger, release(100, 102, allowed, mechanism="mqm-exact"))
    audit = audit_ledger(ledger)
    assert only(audit) == (pytest.approx(3 * allowed / PER_NAT, rel=1e-6), "every tick")
    assert 100 <= audit.streams[0].tick <= 102


def test_a_second_release_of_what_does_not_compose_has_no_bound(ledger: Ledger) -> None:
    allowed = granted(ledger, mechanism="group")
    reserve(ledger, release(0, 9, allowed, mechanism="group"))
    charged(ledger, 2 * allowed)
    assert only(audit_ledger(ledger)) == (None, "one release")


def charged(ledger: Ledger, units: int) -> None:
    """Charge every release other than it was, so that everything adds up."""
    ledger._db.execute("UPDATE members SET charge=?", (units,))
    ledger._db.execute("UPDATE runs SET charge=?", (units,))


def test_one_unit_above_the_allowance_is_found(ledger: Ledger) -> None:
    allowed = granted(ledger)
    reserve(ledger, release(0, 9999, allowed))
    before = audit_ledger(ledger).problems
    assert not any("reached" in problem for problem in before)
    charged(ledger, allowed + 1)
    more = set(audit_ledger(ledger).problems) - set(before)
    assert len(more) == 1
    assert "ticks 0..9999 reached" in more.pop()


def test_a_tick_that_lost_more_than_is_promised_is_named(ledger: Ledger) -> None:
    allowed = granted(ledger)
    reserve(ledger, release(0, 99, allowed))
    reserve(ledger, release(100, 139, allowed))
    ledger._db.execute("UPDATE entries SET first=80 WHERE number=2")
    audit = audit_ledger(ledger)
    (stream,) = audit.streams
    assert stream.wrong
    assert 80 <= stream.tick <= 99  # inside the stretch of two charges
    assert any(f"tick {stream.tick} may have lost" in problem for problem in audit.problems)


def test_what_devices_release_themselves_counts(ledger: Ledger) -> None:
    granted(ledger, base=1)
    reserve(ledger, release(0, 9, 5))
    assert (only(audit_ledger(ledger))[1], audit_ledger(ledger).streams[0].charge) == ("constant charge", 6)


@pytest.fixture
def honest(tmp_path: Path) -> Bench:
    """A ledger with four releases that a gateway made."""
    bench = Bench(tmp_path, scheduled(devices=["watch"]))
    bench.scene.record(*frames([10] * 8, seed=1), device="watch")
    bench.now += 10**6
    bench.work()
    return bench


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE allowances SET allowance=2*allowance", "mechanism chain allows"),
        ("UPDATE allowances SET epsilon=2*epsilon", "states another promise than its audience has"),
        ("UPDATE allowances SET epsilon=0", "tick 0 may have lost"),
        ("UPDATE members SET charge=1000*charge", "may have lost "),
        (
            "INSERT INTO allowances (account, allowance, base, epsilon, adversary, seconds, period_us, mechanism, "
            "class, after_entry, time_us) SELECT account, allowance, base, 2*epsilon, adversary, seconds, period_us, "
            "mechanism, class, 1, 1 FROM allowances",
            "audience public: was promised different things",
        ),
        ("UPDATE classes SET chains='[]'", "may have lost without bound"),
        ("UPDATE allowances SET seconds=2", "mechanism chain allows"),
        ("UPDATE allowances SET seconds=-1", "its allowance cannot be computed again"),
        ("UPDATE allowances SET seconds=2, period_us=-1<<62", "its allowance cannot be computed again"),
    ],
)
def test_a_change_is_found(honest: Bench, change: str, problem: str) -> None:
    honest.ledger._db.execute(change)
    problems = audit_ledger(honest.ledger).problems
    assert any(problem in line for line in problems), problems


@pytest.mark.long
def test_what_a_reader_of_two_audiences_was_told_is_computed_at_once(
    fugu: Fugu, ledger: Ledger, tmp_path: Path
) -> None:
    base = 10**9
    allowed = [granted(ledger, 0.5, audience=audience, base=base) for audience in ("public", "press")]
    for audience, units in zip(("public", "press"), allowed, strict=True):
        reserve(ledger, release(0, 99, units - base, audience=audience))
    readers = reader("anna", "public", epsilon=0.5), reader("both", "public", "press", epsilon=0.9)
    broker = broker_of(tmp_path / "broker", *readers)
    done = fugu("check", "ledger", "--ledger", tmp_path / "l.sqlite", "--broker", broker, "--json")
    anna, both = json.loads(done.out)["readers"]
    assert done.code == 1
    assert (anna["reader"], both["reader"]) == ("anna", "both")
    assert anna["epsilon"] <= 0.5
    assert both["epsilon"] == joint_loss(CHAIN, joint_charge(allowed, base), "ignorant") > 0.9
    assert sum("account both: may have been told" in line for line in done.json()["problems"]) == 1
    assert not any("account anna" in line for line in done.json()["problems"])


FORGETFUL = BinaryChains(q=(0.45, 0.45), r=(0.45, 0.45))
PROMISES = {"public": Promise(1.0, "informed")}


def forge_class(ledger: Ledger, *, allowances: bool) -> None:
    """Say that readings forget at once; charge, if wanted, all that this would allow."""
    written = json.dumps([FORGETFUL.model_dump(mode="json")])
    ledger._db.execute("UPDATE classes SET chains=?", (written,))
    if allowances:
        allowed = allowance(FORGETFUL, 1.0, "informed", "chain")
        ledger._db.execute("UPDATE allowances SET allowance=?", (allowed,))
        ledger._db.execute("UPDATE accounts SET allowance=?", (allowed,))


def test_policies_of_the_auditor_agree_with_an_honest_ledger(honest: Bench) -> None:
    """Of both devices of the fleet, one of which was never counted."""
    audit = audit_ledger(honest.ledger, policies=FLEET, promises=PROMISES)
    assert audit.problems == ()
    assert audit.streams == audit_ledger(honest.ledger).streams
    assert not any("class" in line and "ledger alone" in line for line in audit.sources)


def test_a_class_that_no_policy_has_is_found_by_whoever_has_the_policies(honest: Bench) -> None:
    """One UPDATE makes the worst tick look nearly untold: no other row of the ledger contradicts it."""
    (true,) = audit_ledger(honest.ledger).streams
    forge_class(honest.ledger, allowances=False)
    alone = audit_ledger(honest.ledger)
    assert alone.problems == ()
    assert alone.streams[0].epsilon < true.epsilon / 2
    assert any("classes of chains" in line and "ledger alone" in line for line in alone.sources)
    audit = audit_ledger(honest.ledger, policies=FLEET)
    assert any("watch/hr" in problem and "of no policy" in problem for problem in audit.problems)
    assert audit.streams[0].epsilon == true.epsilon  # by the class of the policy


def test_charges_that_a_forged_class_allows_are_above_the_promise(ledger: Ledger) -> None:
    allowed = granted(ledger, adversary="informed")
    reserve(ledger, release(0, 19, allowed))
    forge_class(ledger, allowances=True)
    charged(ledger, allowance(FORGETFUL, 1.0, "informed", "chain"))
    assert not audit_ledger(ledger).streams[0].wrong
    (stream,) = audit_ledger(ledger, policies=(policy(chains=CHAIN),)).streams
    assert stream.wrong
    assert stream.epsilon > 2


@pytest.mark.parametrize("change", ["epsilon=5.0", "adversary='ignorant'"])
def test_a_promise_is_the_one_that_the_auditor_knows(ledger: Ledger, change: str) -> None:
    allowed = granted(ledger, adversary="informed")
    reserve(ledger, release(0, 19, allowed))
    ledger._db.execute(f"UPDATE allowances SET {change}")
    audit = audit_ledger(ledger, promises=PROMISES)
    assert any("audience public: is promised" in problem for problem in audit.problems)
    assert audit.streams[0].promise == PROMISES["public"]
    assert any("promised" in line and "ledger alone" in line for line in audit_ledger(ledger).sources)


@pytest.fixture
def group(tmp_path: Path) -> Bench:
    """A ledger of sums over two devices with different tables."""
    bench = Bench(tmp_path, scheduled())
    for device in ("watch", "ring"):
        bench.scene.record(*frames([20] * 3, seed=1), device=device)
    bench.work()
    return bench


def swap_charges(ledger: Ledger) -> None:
    """Charge each of two devices as the other is charged, in all rows."""
    (low,), (high,) = ledger._db.execute("SELECT DISTINCT charge FROM members ORDER BY charge").fetchall()
    for table in ("members", "runs"):
        ledger._db.execute(f"UPDATE {table} SET charge=? - charge", (low + high,))


def test_a_device_is_charged_by_its_own_table(group: Bench) -> None:
    assert audit_ledger(group.ledger, policies=FLEET, promises=PROMISES).problems == ()
    swap_charges(group.ledger)
    assert audit_ledger(group.ledger).problems == ()
    problems = audit_ledger(group.ledger, policies=FLEET).problems
    assert sum("is charged" in problem for problem in problems) == len(group.frames)


def test_fewer_devices_than_a_table_has_ticks_of_is_found_without_policies(tmp_path: Path) -> None:
    """Two of three devices have the stronger table, and one of them is charged as the weaker one."""
    fleet = (*FLEET, policy(1, device="band"))
    bench = Bench(tmp_path, scheduled(), fleet=fleet)
    for device in ("watch", "ring", "band"):
        bench.scene.record(*frames([20] * 3, seed=1), device=device)
    bench.work()
    ledger = bench.ledger
    assert audit_ledger(ledger, policies=fleet).problems == ()
    charges = dict(ledger._db.execute("SELECT device, charge FROM members").fetchall())
    assert charges["watch"] == charges["band"] > charges["ring"]
    ledger._db.execute("UPDATE members SET charge=? WHERE device='watch'", (charges["ring"],))
    ledger._db.execute(
        "UPDATE runs SET charge=? WHERE account=(SELECT id FROM accounts WHERE device='watch')", (charges["ring"],)
    )
    assert any(
        "sums 40 ticks" in problem and "1 devices are charged as much" in problem
        for problem in audit_ledger(ledger).problems
    )


def test_tables_are_those_of_the_policies(group: Bench) -> None:
    other = tuple(replaced.model_copy(update={"table": TABLE}) for replaced in FLEET)
    problems = audit_ledger(group.ledger, policies=other).problems
    assert any("no policy of watch/hr" in problem and "table" in problem for problem in problems)


def test_a_stream_without_a_policy_is_no_agreement(group: Bench) -> None:
    problems = audit_ledger(group.ledger, policies=FLEET[:1]).problems
    assert any("ring/hr" in problem and "no policy" in problem for problem in problems)
    assert not any("watch/hr" in problem for problem in problems)


def test_a_changed_policy_is_held_against_each_class_by_what_was_counted_of_it(tmp_path: Path) -> None:
    """Version 2 has another table and a stickier class: what version 1 made is held against the class of version 1."""
    first, second = policy(1), policy(2, table=OTHER, chains=CHAIN)
    bench = Bench(tmp_path, scheduled(devices=["watch"]), fleet=(first,))
    bench.work(*frames([20] * 3, seed=1), device="watch")
    audit = audit_ledger(bench.ledger, policies=(first, second))
    assert audit.problems == ()
    assert audit.streams == audit_ledger(bench.ledger).streams
    assert any("of no policy" in problem for problem in audit_ledger(bench.ledger, policies=(second,)).problems)


def test_what_devices_release_themselves_is_that_of_their_policies(ledger: Ledger) -> None:
    window = Window(name="w", length=10, stride=10, states=("level 1",), scale="20")
    allowed = granted(ledger, base=0)
    reserve(ledger, release(0, 9, allowed // 2))
    quiet, loud = policy(chains=CHAIN), policy(chains=CHAIN, windows=(window,))
    assert not any("release themselves" in problem for problem in audit_ledger(ledger, policies=(quiet,)).problems)
    problems = audit_ledger(ledger, policies=(loud,)).problems
    assert any("release themselves" in problem for problem in problems)


@pytest.fixture
def lasting(tmp_path: Path) -> Bench:
    """A ledger with releases of a gateway that promises any five seconds, which are at most six ticks."""
    audience = '[audiences.public]\nepsilon = 1.0\nadversary = "informed"\nprotect = 5\n'
    bench = Bench(tmp_path, scheduled(devices=["watch"]), audiences=audience)
    bench.scene.record(*frames([10] * 8, seed=1), device="watch")
    bench.now += 10**6
    bench.work()
    return bench


def test_what_was_told_of_a_stretch_is_held_against_its_promise(lasting: Bench) -> None:
    promise = Promise(1.0, "informed", 5)
    audit = audit_ledger(lasting.ledger, policies=FLEET, promises={"public": promise})
    (stream,) = audit.streams
    assert audit.problems == ()
    assert (stream.promise, stream.ticks, stream.by) == (promise, 6, "constant charge")
    assert 0.99 < stream.epsilon <= 1.0
    allowed = allowance(FLEET[0].chains, 1.0, "informed", ticks=6)
    assert [account.allowance for account in lasting.ledger.accounts()] == [allowed]
    assert stream.epsilon == joint_loss(FLEET[0].chains, stream.charge, "informed", 6)
    assert {(frame.epsilon, frame.stretch_ticks) for frame in lasting.frames} == {(1.0, 6)}
    other = audit_ledger(lasting.ledger, promises={"public": Promise(1.0, "informed")}).problems
    assert any("is promised 1 (informed), and the ledger says 1 about any 5 seconds" in line for line in other), other


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE allowances SET allowance=allowance+1000", "mechanism chain allows"),
        ("UPDATE allowances SET seconds=6", "mechanism chain allows"),
        ("UPDATE allowances SET seconds=4", "states another promise than its audience has"),
        ("UPDATE allowances SET seconds=0", "states another promise than its audience has"),
        ("UPDATE allowances SET period_us=period_us/2", "mechanism chain allows"),
        ("UPDATE allowances SET period_us=2*period_us", "its ticks are of 1000000 us, and its allowance is for"),
        ("UPDATE members SET charge=1000*charge", "6 ticks in a row, with tick"),
    ],
)
def test_a_change_of_a_stretch_is_found(lasting: Bench, change: str, problem: str) -> None:
    lasting.ledger._db.execute(change)
    problems = audit_ledger(lasting.ledger).problems
    assert any(problem in line for line in problems), problems


def test_a_shorter_period_of_the_auditors_policies_counts(lasting: Bench) -> None:
    """A ledger cannot make a stretch of fewer ticks than the policy that made its releases has."""
    faster = FLEET[0].model_copy(update={"clock": Clock(epoch_us=0, period_us=500_000)})
    (stream,) = audit_ledger(lasting.ledger, policies=(faster, FLEET[1])).streams
    assert (stream.ticks, stream.wrong) == (11, True)


def test_the_limit_of_a_reader_may_be_of_another_stretch(lasting: Bench, tmp_path: Path) -> None:
    seconds = {"anna": 5, "bert": 60, "carl": 0}
    readers = (reader(name, "public", adversary="informed", seconds=each) for name, each in seconds.items())
    broker = broker_of(tmp_path / "broker", *readers)
    by_reader = {reader.reader: reader for reader in audit_ledger(lasting.ledger, broker).readers}
    (stream,) = audit_ledger(lasting.ledger).streams
    chains = FLEET[0].chains
    for name, ticks in (("anna", 6), ("bert", 61), ("carl", 1)):
        assert by_reader[name].epsilon == joint_loss(chains, stream.charge, "informed", ticks)
    assert [by_reader[name].wrong for name in ("anna", "bert", "carl")] == [False, True, False]
