"""Streams that move together share a charge: what is learned of both is enumerated, and the ledger adds it up."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.chains.model import stationary_distribution
from fugu.contract.chains import JointChains, JointStream, odds_ratio
from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.audit.ledger import audit_ledger
from gateway.releases.allowance import allowance, charge, joint_loss, smallest_scale
from gateway.releases.charges import units_above
from gateway.releases.entries import Promise, Release
from gateway.releases.ledger import Ledger
from gateway.store.engine import LedgerError
from tests.support.audited import broker_of, reader
from tests.support.ledgers import ALLOWED, allow, charges_replayed, key, open_ledger, release, reserve
from tests.support.oracle import paths_of

Floats = NDArray[np.float64]
SHOWS = ((0, 0), (0, 1), (1, 0), (1, 1))
TRANSITION = ((0.55, 0.15, 0.1, 0.2), (0.4, 0.3, 0.1, 0.2), (0.2, 0.1, 0.3, 0.4), (0.1, 0.1, 0.15, 0.65))
PAIR = (("watch", "hr"), ("watch", "steps"))


def chains(odds: float = odds_ratio(TRANSITION)) -> JointChains:
    return JointChains(
        streams=(JointStream(name="hr", states=2, rate=0.5), JointStream(name="steps", states=2, rate=0.5)),
        period_us=1_000_000,
        shows=SHOWS,
        odds_ratio=odds,
        transition=TRANSITION if odds <= odds_ratio(TRANSITION) else None,
    )


def losses(
    tables: tuple[NoiseTable, NoiseTable], scales: tuple[Fraction, Fraction], ticks: int, stretch: int = 1
) -> float:
    """The largest log-ratio between courses of joint states, or of a stream's, that two noisy counts of symbols give.

    A course is of so many ticks in a row as a stretch.
    """
    initial = stationary_distribution(np.array(TRANSITION))
    paths, weight = paths_of(initial, [np.array(TRANSITION)] * (ticks - 1))
    density: Floats = weight[:, None]
    for column, (table, scale) in enumerate(zip(tables, scales, strict=True)):
        hit = np.array(table.weights())[:, 1] / SCALE
        each = hit[np.array(SHOWS)[paths][:, :, column]]  # (paths, ticks): Pr(symbol 1)
        counts = np.zeros((len(paths), ticks + 1))
        counts[:, 0] = 1.0
        for tick in range(ticks):
            counts[:, 1:] = counts[:, 1:] * (1.0 - each[:, tick, None]) + counts[:, :-1] * each[:, tick, None]
            counts[:, 0] *= 1.0 - each[:, tick]
        outputs = np.arange(-1, ticks + 2)
        kernel = np.exp(-np.abs(outputs[None, :] - np.arange(ticks + 1)[:, None]) / float(scale))
        density = (density[:, :, None] * (counts @ kernel)[:, None, :]).reshape(len(paths), -1)
    shown = np.array(SHOWS)[paths]
    worst = 0.0
    for states, first in product((paths, shown[:, :, 0], shown[:, :, 1]), range(ticks - stretch + 1)):
        _, courses = np.unique(states[:, first : first + stretch], axis=0, return_inverse=True)
        groups = [courses.ravel() == course for course in range(courses.max() + 1)]
        logs = np.log([density[group].sum(axis=0) / weight[group].sum() for group in groups])
        worst = max(worst, float((logs.max(axis=0) - logs.min(axis=0)).max()))
    return worst


@pytest.mark.long
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(4, 5)])
def test_releases_about_both_streams_are_within_epsilon(share: Fraction) -> None:
    """Charges of both streams that add up to the allowance of the joint class."""
    allowed = allowance(chains(), 1.0, "universal")
    tables = NoiseTable.binary(SCALE // 10, SCALE // 5), NoiseTable.binary(SCALE // 4, SCALE // 4)
    budgets = int(share * allowed), int((1 - share) * allowed)
    scales = [smallest_scale([table], 1, budget) for table, budget in zip(tables, budgets, strict=True)]
    used = [units_above(charge(table, float(1 / scale))) for table, scale in zip(tables, scales, strict=True)]
    assert 0.999 * allowed < sum(used) <= allowed
    lost = losses(tables, (scales[0], scales[1]), 5)
    assert 0.4 < lost <= 1.0, "of five ticks"


@pytest.mark.parametrize("stretch", [1, 2, 3])
def test_no_stretch_of_both_streams_loses_more_than_epsilon(stretch: int) -> None:
    allowed = allowance(chains(), 1.0, "universal", ticks=stretch)
    table = NoiseTable.binary(SCALE // 10, SCALE // 5)
    scale = smallest_scale([table], 1, allowed // 2)
    lost = losses((table, table), (scale, scale), 4, stretch)
    assert 0.05 < lost <= 1.0
    if stretch > 1:  # the allowance of a tick is too much for a stretch
        scale = smallest_scale([table], 1, allowance(chains(), 1.0, "universal") // 2)
        assert losses((table, table), (scale, scale), 4, stretch) > lost


def test_releases_that_are_charged_apart_are_not() -> None:
    """Each stream with the whole allowance: what the sum of two accounts would have let through."""
    allowed = allowance(chains(), 1.0, "ignorant")
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = smallest_scale([table], 1, allowed)
    assert losses((table, table), (scale, scale), 5) > 1.1


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two streams that move together, and one by itself; two audiences."""
    ledger = Ledger(tmp_path / "l.sqlite")
    ledger.charge_together([PAIR], time_us=1)
    allow(ledger, streams=("hr", "steps", "room"), audiences=("public", "press"))
    return ledger


def about(stream: str, first: int, last: int, part: float, audience: str = "public") -> Release:
    return release(first, last, int(part * ALLOWED), stream=stream, audience=audience)


def test_charges_of_both_streams_add_up(ledger: Ledger) -> None:
    reserve(ledger, about("hr", 0, 9, 0.6))
    with pytest.raises(LedgerError) as refused:
        reserve(ledger, about("steps", 9, 20, 0.5))
    assert str(refused.value).startswith(
        "watch/steps, audience public, with all of watch/hr+steps, which move together: ticks 9..9 would reach"
    )
    reserve(ledger, about("steps", 10, 20, 0.5))
    reserve(ledger, about("steps", 0, 9, 0.4))
    reserve(ledger, about("room", 0, 9, 1.0))
    reserve(ledger, about("steps", 0, 9, 1.0, "press"))
    assert ledger.account(key(stream="steps")).remaining == 0
    by_key = {account.key: account for account in ledger.accounts()}
    own = by_key[key()]
    assert (own.together, own.spent, own.spent_together, own.remaining) == (
        "watch/hr+steps",
        int(0.6 * ALLOWED),
        ALLOWED,
        0,
    )
    assert by_key[key(stream="room")].together == ""
    assert by_key[key(audience="press")].remaining == 0
    assert charges_replayed(ledger).problems == ()


def test_nothing_charged_is_refused_beside_a_full_neighbour(ledger: Ledger) -> None:
    """Windows of a device are in the base of both accounts."""
    allow(ledger, base=ALLOWED // 2, streams=("hr", "steps"))
    reserve(ledger, about("hr", 0, 9, 0.5))
    with pytest.raises(LedgerError, match="which move together: ticks 5"):
        reserve(ledger, about("steps", 5, 14, 0.1))
    assert charges_replayed(ledger).problems == ()


def test_an_allowance_stays_below_the_one_that_a_neighbour_was_told_under(ledger: Ledger) -> None:
    reserve(ledger, about("hr", 0, 9, 0.5))
    allow(ledger, allowance=2 * ALLOWED, streams=("steps", "room"))
    assert ledger.account(key(stream="steps")).allowance == ALLOWED
    assert ledger.account(key(stream="room")).allowance == 2 * ALLOWED  # which moves by itself


def test_streams_may_join_later_and_never_part(ledger: Ledger) -> None:
    """Earlier releases count; a class of other streams joins theirs to these."""
    reserve(ledger, about("hr", 0, 9, 0.5))
    reserve(ledger, about("room", 0, 9, 0.6))
    ledger.charge_together([(("watch", "steps"), ("watch", "room"))], time_us=2)
    assert {account.together for account in ledger.accounts()} == {"watch/hr+room+steps"}
    with pytest.raises(LedgerError, match=r"ticks 0\.\.9 would reach"):
        reserve(ledger, about("steps", 0, 9, 0.1))
    reserve(ledger, about("steps", 10, 19, 1.0))
    ledger.charge_together([PAIR], time_us=3)
    with pytest.raises(LedgerError, match=r"ticks 10\.\.10 would reach"):
        reserve(ledger, about("room", 10, 10, 0.1))
    assert charges_replayed(ledger).problems == ()  # the first entries were made before they were charged together


def allow_a_group(ledger: Ledger) -> None:
    """Let a guild be told of one stream by what does not compose, and of the other by what does."""
    promise, guild = Promise(1.0, "ignorant"), ["guild"]
    allow(ledger, streams=["steps"], audiences=guild, promise=promise, mechanism="group")
    allow(ledger, audiences=guild, promise=promise)


def test_a_release_that_does_not_compose_stands_alone_among_them(ledger: Ledger) -> None:
    allow_a_group(ledger)
    reserve(ledger, about("hr", 0, 9, 0.1, "guild"))
    alone = release(50, 59, ALLOWED, stream="steps", audience="guild", mechanism="group")
    with pytest.raises(LedgerError, match=r"something was charged to watch/hr\+steps before"):
        reserve(ledger, alone)


def test_nothing_is_released_about_a_neighbour_of_what_does_not_compose(ledger: Ledger) -> None:
    allow_a_group(ledger)
    reserve(ledger, release(50, 59, ALLOWED, stream="steps", audience="guild", mechanism="group"))
    with pytest.raises(LedgerError, match=r"entry \d+ does not compose with any other release of watch/hr\+steps"):
        reserve(ledger, about("hr", 900, 909, 0.1, "guild"))


def test_a_lost_ledger_begins_after_the_last_release_of_any_of_them(ledger: Ledger, tmp_path: Path) -> None:
    ledger.begin([("watch", "hr", 10), ("watch", "steps", 500), ("watch", "room", 0)], "new", "store")
    assert ledger.beginning(["watch"], "hr") == 500
    assert ledger.beginning(["watch"], "room") == 0
    with pytest.raises(LedgerError, match="this ledger begins with tick 500 of stream hr"):
        reserve(ledger, about("hr", 499, 510, 0.1))
    ledger.begin([("watch", "room", 700), ("watch", "steps", 3)], "newer", "store")
    assert (ledger.beginning(["watch"], "hr"), ledger.beginning(["watch"], "room")) == (500, 700), "never earlier"


def test_a_clock_that_was_set_brings_no_device_beyond_what_is_lost_of_another_one(tmp_path: Path) -> None:
    """Its own numbers are ahead of wall ticks, and those of a device that moves with it are not."""
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring")
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    ledger.begin([("ring", "hr", 100)], "new", "store")
    with pytest.raises(LedgerError, match="this ledger begins with tick 100 of stream hr"):
        reserve(ledger, release(99, 108, 1, "watch", shifts={"watch": 1000}))
    reserve(ledger, release(100, 109, 1, "watch", shifts={"watch": 1000}))
    ledger.close()


def test_a_release_about_two_devices_that_move_together_is_charged_for_both_of_them(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring")
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    with pytest.raises(LedgerError, match=r"which move together: ticks 0\.\.9 would reach"):
        reserve(ledger, release(0, 9, ALLOWED // 2 + 1, "watch", "ring"))
    reserve(ledger, release(0, 9, ALLOWED // 2, "watch", "ring"))
    assert charges_replayed(ledger).problems == ()
    ledger.close()


@pytest.mark.parametrize("devices", [("watch", "ring"), ("ring", "watch")])
def test_a_clock_that_was_just_set_hides_no_charge_from_the_other_device_of_a_release(
    tmp_path: Path, devices: tuple[str, str]
) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring")
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    with pytest.raises(LedgerError, match=r"which move together: ticks .* would reach"):
        reserve(ledger, release(0, 9, ALLOWED // 2 + 1, *devices, shifts={"watch": 1000}))
    reserve(ledger, release(0, 9, ALLOWED // 2, *devices, shifts={"watch": 1000}))
    assert charges_replayed(ledger).problems == ()
    ledger.close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DELETE FROM together", "is not charged with watch/hr+steps"),
        ("UPDATE together SET name='x' WHERE stream='hr'", "is not charged with watch/hr+steps"),
        ("UPDATE together SET after_entry=1", "is not charged with watch/hr+steps"),
        ("UPDATE runs SET charge=charge+1", "charges are not those of its entries"),
        ("UPDATE members SET charge=charge*2", "reached"),
    ],
)
def test_the_audit_finds_what_was_taken_apart(ledger: Ledger, change: str, problem: str) -> None:
    joint = chains(200.0)
    allowed = allowance(joint, 1.0, "universal")
    terms: dict[str, Any] = {"promise": Promise(1.0, "universal"), "chains": (joint,)}
    allow(ledger, allowance=allowed, streams=("hr", "steps"), audiences=["guild"], **terms)
    for stream in ("hr", "steps"):
        reserve(ledger, release(0, 9, allowed // 2, stream=stream, audience="guild"))
    assert charges_replayed(ledger).problems == ()
    ledger._db.execute(change)
    assert any(problem in line for line in charges_replayed(ledger).problems), charges_replayed(ledger).problems


def test_of_two_devices_together_no_wall_tick_is_told_too_much_whatever_their_clocks_do(tmp_path: Path) -> None:
    """By brute force over all pairs of numbers that may have been drawn at one wall tick."""
    generator, taken, refused = random.Random(5), 0, 0
    for case in range(12):
        ledger = open_ledger(tmp_path / f"{case}.sqlite", "watch", "ring")
        ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
        counters: dict[str, Counter[int]] = {"watch": Counter(), "ring": Counter()}
        shifts = dict.fromkeys(counters, 0)
        for _ in range(16):
            device = generator.choice(list(counters))
            shifts[device] += generator.choice([0, 0, 0, 0, 100])
            first, part = generator.randrange(20), int(generator.choice([0.2, 0.4, 0.6]) * ALLOWED)
            try:
                reserve(ledger, release(first, first + 4, part, device, shifts={device: shifts[device]}))
            except LedgerError:
                refused += 1
                continue
            taken += 1
            counters[device].update({tick + shifts[device]: part for tick in range(first, first + 5)})
            assert all(
                own_units + other <= ALLOWED
                for (n, own_units), (m, other) in product(counters["watch"].items(), counters["ring"].items())
                if n % 100 == m % 100
            )
        assert charges_replayed(ledger).problems == ()
        for device, spent in counters.items():
            runs = ledger.spent(key(device), 0, 10**6)
            assert {tick: run.charge for run in runs for tick in range(run.first, run.last + 1)} == spent
        ledger.close()
    assert taken > 40 < refused


def test_no_tick_that_was_told_more_than_is_allowed_now_is_missed_whatever_the_clocks_do(tmp_path: Path) -> None:
    """By brute force over all pairs of numbers, of 100 ticks whose numbers went ahead; exactly while none did."""
    generator, loud, exact = random.Random(7), 0, 0
    for case in range(40):
        ledger = open_ledger(tmp_path / f"{case}.sqlite", "watch", "ring")
        ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
        counters: dict[str, Counter[int]] = {"watch": Counter(), "ring": Counter()}
        shifts = dict.fromkeys(counters, 0)
        for _ in range(generator.randint(1, 6)):
            device = generator.choice(list(counters))
            shifts[device] += generator.choice([0, 0, 0, 100]) if case % 2 else 0
            first, part = generator.randrange(60), int(generator.choice([0.2, 0.4, 0.6]) * ALLOWED)
            with suppress(LedgerError):
                reserve(ledger, release(first, first + 4, part, device, shifts={device: shifts[device]}))
                counters[device].update({tick + shifts[device]: part for tick in range(first, first + 5)})
        allow(ledger, "watch", "ring", allowance=(less := ALLOWED // 2))
        own, other = counters["watch"], counters["ring"]
        pairs = {(n, own_units + two) for n, own_units in own.items() for m, two in other.items() if n % 100 == m % 100}
        ticks = {*pairs, *own.items(), *((m % 100 + shifts["watch"], charge) for m, charge in other.items())}
        above = {(n, charge - less) for n, charge in ticks if charge > less}
        runs = ledger.louder_ticks(key(), shifts["watch"])
        if above:
            (run,) = runs
            assert run.last >= max(n for n, _ in above)
            assert run.excess >= max(excess for _, excess in above)
            loud += 1
        if not any(shifts.values()):
            exact += 1
            assert runs == ([(max(n for n, _ in above), max(excess for _, excess in above))] if above else [])
        ledger.close()
    assert loud > 10 < exact


def test_a_stream_that_was_never_told_of_knows_what_its_neighbour_was_allowed(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch")
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    reserve(ledger, release(0, 9, ALLOWED))
    allow(ledger, "watch", "ring", allowance=ALLOWED // 3)
    assert ledger.louder_ticks(key("ring"), 100) == [(109, ALLOWED - ALLOWED // 3)]  # its clock may have been set since
    assert ledger.louder_ticks(key(), 100) == [(9, ALLOWED - ALLOWED // 3)]


def guild(ledger: Ledger, *audiences: str) -> int:
    """Open accounts of both streams, of the joint class, for audiences; what each is allowed."""
    joint = chains()
    allowed = allowance(joint, 1.0, "ignorant")
    terms: dict[str, Any] = {"promise": Promise(1.0, "ignorant"), "chains": (joint,)}
    allow(ledger, allowance=allowed, streams=("hr", "steps"), audiences=audiences, **terms)
    return allowed


def note_charge(ledger: Ledger, stream: str, audience: str, units: int) -> None:
    reserve(ledger, release(0, 4, units, stream=stream, audience=audience))


def test_the_audit_finds_no_less_than_what_both_streams_tell_together(ledger: Ledger) -> None:
    """By brute force; of one of the streams alone it would be less."""
    allowed = guild(ledger, "guild")
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = smallest_scale([table], 1, allowed // 2)
    enumerated = losses((table, table), (scale, scale), 5)
    note_charge(ledger, "hr", "guild", allowed // 2)
    (alone,) = audit_ledger(ledger).streams
    note_charge(ledger, "steps", "guild", allowed // 2)
    streams = audit_ledger(ledger).streams
    assert alone.epsilon < enumerated <= max(stream.epsilon or 0.0 for stream in streams) <= 1.0
    assert not any(stream.wrong for stream in streams)


@pytest.mark.long
def test_a_reader_whose_audiences_are_told_of_one_stream_each_was_told_of_both(ledger: Ledger, tmp_path: Path) -> None:
    allowed = guild(ledger, "guild", "town")
    note_charge(ledger, "hr", "guild", allowed)
    note_charge(ledger, "steps", "town", allowed)
    readers = reader("one", "guild", epsilon=1.2), reader("both", "guild", "town", epsilon=1.2)
    broker = broker_of(tmp_path / "broker", *readers)
    by_reader = {reader.reader: reader for reader in audit_ledger(ledger, broker).readers}
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = smallest_scale([table], 1, allowed)
    assert {reader.stream for reader in by_reader.values()} == {"hr+steps"}
    assert not by_reader["one"].wrong
    assert by_reader["both"].wrong
    assert by_reader["both"].epsilon == joint_loss(chains(), 2 * allowed, "ignorant")
    assert losses((table, table), (scale, scale), 5) <= (by_reader["both"].epsilon or 0.0)


def test_a_new_account_is_allowed_no_more_than_what_a_neighbour_was_told_under(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite")
    ledger.charge_together([PAIR], time_us=1)
    reserve(ledger, about("hr", 0, 9, 0.5))
    allow(ledger, allowance=2 * ALLOWED, streams=("steps",))
    assert ledger.account(key(stream="steps")).allowance == ALLOWED
    ledger.close()


def test_louder_ticks_count_lost_charges_of_another_device_and_the_largest_base_there_was(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring", base=ALLOWED // 2)
    reserve(ledger, release(0, 9, ALLOWED // 2))
    allow(ledger, "watch", "ring", allowance=ALLOWED * 3 // 4)
    assert ledger.louder_ticks(key(), 0) == [(9, ALLOWED // 4)]
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    ledger.begin([("ring", "hr", 100)], "new", "store", complete=False)
    assert (1099, None) in ledger.louder_ticks(key(), 1000), "in the device's own numbers, which are ahead of the wall"
    ledger.close()


def test_an_allowance_stays_below_what_a_neighbour_was_told_while_it_was_lower(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", allowance=ALLOWED // 2)
    ledger.charge_together([PAIR], time_us=1)
    allow(ledger, streams=("steps",))
    reserve(ledger, about("steps", 0, 9, 0.25))
    allow(ledger)
    assert ledger.account(key()).allowance == ALLOWED // 2
    ledger.close()


def test_groups_that_have_a_stream_in_common_are_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    allow(ledger, streams=("hr", "steps", "room"))
    ledger.charge_together([PAIR, (PAIR[1], ("watch", "room"))], time_us=1)
    assert len({account.together for account in ledger.accounts()}) == 1
    reserve(ledger, about("hr", 0, 9, 0.6))
    with pytest.raises(LedgerError, match="which move together"):
        reserve(ledger, about("room", 9, 20, 0.5))
    ledger.close()


def test_charges_of_a_neighbour_that_may_be_told_no_more_still_count(ledger: Ledger) -> None:
    reserve(ledger, about("steps", 0, 9, 0.6))
    allow(ledger, streams=("steps",), allowance=0)
    with pytest.raises(LedgerError, match="which move together"):
        reserve(ledger, about("hr", 9, 20, 0.5))


def test_what_was_told_under_two_clocks_adds_up_on_the_page(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring")
    ledger.charge_together([(("watch", "hr"), ("ring", "hr"))], time_us=1)
    reserve(ledger, release(0, 9, 4, "watch", shifts={"watch": 1000}))
    reserve(ledger, release(50, 59, 5, "ring"))
    assert [account.spent_together for account in ledger.accounts()] == [9, 9]
    assert [account.spent for account in ledger.accounts()] == [5, 4]
    ledger.close()
