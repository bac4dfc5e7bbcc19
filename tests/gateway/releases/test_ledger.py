"""The ledger refuses exactly what would exceed an allowance, and forgets nothing; its audit finds what was changed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu.contract.windows import ALONE, Mechanism, has_bound
from fugu.host.database import DatabaseError
from gateway.releases.charges import PER_NAT, ChargedTicks
from gateway.releases.entries import Allowance, Content, Promise, State
from gateway.releases.ledger import Ledger
from gateway.store.engine import LedgerError
from gateway.store.location import Location
from tests.support.ledgers import ALLOWED, FREE, allow, charges_replayed, drawn, key, open_ledger, release, reserve


@pytest.fixture
def ledger(location: Location) -> Iterator[Ledger]:
    """In a file, and on a server."""
    opened = open_ledger(location)
    yield opened
    opened.close()


@pytest.fixture
def in_file(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path / "l.sqlite")


def test_the_last_unit_is_granted_and_the_next_one_refused(ledger: Ledger) -> None:
    reserve(ledger, release(0, 9, ALLOWED - 1))
    with pytest.raises(LedgerError, match=r"ticks 5\.\.9 would reach .* 1e-12 too much"):
        reserve(ledger, release(5, 20, 2))
    reserve(ledger, release(5, 20, 1))
    assert ledger.spent(key(), 0, 99) == [
        *(ChargedTicks(0, 4, ALLOWED - 1), ChargedTicks(5, 9, ALLOWED), ChargedTicks(10, 20, 1))
    ]
    assert ledger.account(key()).remaining == 0


def test_a_refusal_names_the_ticks_and_by_how_much_in_one_line(ledger: Ledger) -> None:
    reserve(ledger, release(0, 7199, 112 * PER_NAT // 1000))
    reserve(ledger, release(3600, 3700, 100 * PER_NAT // 1000))
    with pytest.raises(LedgerError) as refused:
        reserve(ledger, release(3600, 9000, 300 * PER_NAT // 1000))
    assert str(refused.value) == (
        "watch/hr, audience public: ticks 3600..7199 would reach 0.512 of 0.3 allowed, 0.212 too much"
    )


def test_nothing_is_drawn_for_a_refused_release_and_nothing_stays(ledger: Ledger) -> None:
    reserve(ledger, release(0, 9))

    def draw(_: int) -> Content:
        raise AssertionError("noise was drawn")

    with pytest.raises(LedgerError):
        ledger.reserve(release(9, 12, 1), draw, time_us=5, progress=50)
    assert [entry.number for entry in ledger.entries()] == [1]
    assert ledger.progress("count") is None
    assert ledger.spent(key(), 0, 99) == [ChargedTicks(0, 9, ALLOWED)]


def test_a_release_that_fails_while_it_is_drawn_leaves_nothing(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError):
        ledger.reserve(release(0, 9), lambda number: drawn(bytes(number // 0)), time_us=5)
    assert ledger.entries() == []
    assert ledger.spent(key(), 0, 99) == []
    assert reserve(ledger, release(0, 9)).number == 1


def test_no_window_of_a_schedule_is_released_twice_wherever_it_is_set_to_go_on(in_file: Ledger) -> None:
    """Also if nobody would be charged beyond the allowance."""
    reserve(in_file, release(0, 9, 1), progress=10)
    reserve(in_file, release(10, 19, 1), progress=20)
    for first in (10, 0):
        with pytest.raises(LedgerError, match=f"entry {first // 10 + 1} has released the window that begins there"):
            reserve(in_file, release(first, first + 9, 1), progress=first + 10)
    reserve(in_file, release(0, 9, 1, name="other"), progress=10)
    reserve(in_file, release(0, 9, 1))
    assert in_file.spent(key(), 0, 19) == [ChargedTicks(0, 9, 3), ChargedTicks(10, 19, 1)]


def test_audiences_are_apart_and_what_charges_nothing_says_why(ledger: Ledger) -> None:
    allow(ledger, "watch", audiences=["research"])
    reserve(ledger, release(0, 9))
    reserve(ledger, release(0, 9, audience="research"))
    reserve(ledger, release(0, 9, 0, audience="site", reason="post-processing"))
    assert ledger.entries()[2].reason == "post-processing"
    with pytest.raises(LedgerError, match="needs a reason"):
        release(0, 9, 0)
    with pytest.raises(LedgerError, match="ring/hr, audience public: has no allowance"):
        reserve(ledger, release(0, 9, 1, "ring"))


def test_a_lower_allowance_takes_nothing_back_and_refuses_from_now_on(ledger: Ledger) -> None:
    reserve(ledger, release(0, 9))
    allow(ledger, "watch", allowance=ALLOWED // 2, time_us=9)
    (account,) = ledger.accounts()
    assert (account.spent, account.remaining) == (ALLOWED, 0)
    with pytest.raises(LedgerError, match=r"of 0\.15 allowed"):
        reserve(ledger, release(0, 9, 1))
    reserve(ledger, release(10, 19, ALLOWED // 2))
    assert charges_replayed(ledger).problems == ()
    changes = ledger._db.execute("SELECT allowance, after_entry, time_us FROM allowances").fetchall()
    assert changes == [(ALLOWED, 0, 1), (ALLOWED // 2, 1, 9)]
    allow(ledger, "watch", allowance=ALLOWED // 2, time_us=10)
    assert ledger._db.execute("SELECT count(*) FROM allowances").fetchone() == (2,)


def test_an_allowance_grows_as_long_as_nothing_was_told_under_the_smaller_one(in_file: Ledger) -> None:
    """Louder ticks would leak back to those that were told before."""
    firsts = {8: 0, 4: 20}
    for wanted, allowed in ((8, 8), (3, 3), (7, 7), (9, 8), (4, 4), (2, 2), (5, 4)):
        allow(in_file, "watch", allowance=wanted)
        assert in_file.account(key()).allowance == allowed
        if (first := firsts.pop(wanted, None)) is not None:
            reserve(in_file, release(first, first + 9, wanted))
    assert charges_replayed(in_file).problems == ()


def test_a_mechanism_that_does_not_compose_is_alone_on_its_stream(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    allow(ledger, "watch", "band", mechanism="group")
    allow(ledger, "ring")
    with pytest.raises(
        LedgerError, match=r"ring/hr.*mechanism group keeps no promise whose releases are charged by chain"
    ):
        reserve(ledger, release(50, 59, 5, "ring", mechanism="group"))
    with pytest.raises(LedgerError, match=r"watch/hr.*mechanism chain keeps no promise whose .* charged by group"):
        reserve(ledger, release(50, 59, 5))
    reserve(ledger, release(50, 59, 5, mechanism="group"))
    allow(ledger, "band", base=1, mechanism="group")
    with pytest.raises(LedgerError, match="group does not compose and something was charged"):
        reserve(ledger, release(0, 9, 5, "band", mechanism="group"))
    assert charges_replayed(ledger).problems == ()
    changes: tuple[tuple[str, Mechanism], ...] = (("watch", "chain"), ("watch", "wasserstein"), ("ring", "mqm-exact"))
    for device, mechanism in changes:
        with pytest.raises(LedgerError, match=f"are charged by mechanism .* and cannot be by {mechanism} now"):
            allow(ledger, device, mechanism=mechanism)


def test_what_was_reserved_waits_until_it_is_known_to_be_published(ledger: Ledger, location: Location) -> None:
    for first in (0, 10, 20):
        reserve(ledger, release(first, first + 9), bytes([first]), progress=first + 10)
    ledger.mark(1, "published")
    ledger.mark(2, "abandoned")
    ledger.close()
    again = Ledger(location, create=False)
    assert [(entry.number, entry.payload) for entry in again.entries(pending=True)] == [(3, bytes([20]))]
    assert again.progress("count") == 30
    again.mark(2, "published")
    assert [entry.state for entry in again.entries()] == ["published", "abandoned", "reserved"]
    assert again.spent(key(), 0, 99) == [ChargedTicks(0, 29, ALLOWED)]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("release"),
            st.integers(0, 30),
            st.integers(1, 12),
            st.integers(1, 6),
            st.sets(st.sampled_from(["watch", "ring"]), min_size=1),
        ),
        st.tuples(st.just("allow"), st.integers(1, 12), st.integers(0, 3), st.sampled_from(["watch", "ring"])),
        st.just(("reopen",)),
    ),
    max_size=25,
)


@pytest.mark.long
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_it_decides_as_a_dictionary_of_ticks_would(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l.sqlite"
        ledger = open_ledger(path, "watch", "ring", allowance=8)
        allowed, base = {"watch": 8, "ring": 8}, {"watch": 0, "ring": 0}
        least = {"watch": 99, "ring": 99}  # under which something was told
        ticks: dict[str, dict[int, int]] = {"watch": defaultdict(int), "ring": defaultdict(int)}
        for step in steps:
            match step:
                case ("release", int(first), int(size), int(charge), set(devices)):
                    window = range(first, first + size)
                    fits = all(base[d] + ticks[d][t] + charge <= allowed[d] for d in devices for t in window)
                    draft = release(first, first + size - 1, charge, *sorted(devices))
                    if fits:
                        reserve(ledger, draft)
                        for device in devices:
                            least[device] = min(least[device], allowed[device])
                            for tick in window:
                                ticks[device][tick] += charge
                    else:
                        with pytest.raises(LedgerError):
                            reserve(ledger, draft)
                case ("allow", int(amount), int(standing), str(device)):
                    allow(ledger, device, allowance=amount, base=standing)
                    allowed[device], base[device] = min(amount, least[device]), standing
                case _:
                    ledger.close()
                    ledger = Ledger(path)
        for device, expected in ticks.items():
            spent = {
                tick: run.charge for run in ledger.spent(key(device), 0, 99) for tick in range(run.first, run.last + 1)
            }
            assert spent == {tick: charge for tick, charge in expected.items() if charge}
            worst = max(expected.values(), default=0)
            assert ledger.account(key(device)).remaining == max(allowed[device] - base[device] - worst, 0)
        assert charges_replayed(ledger).problems == ()
        ledger.close()


MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
TOLD = st.tuples(st.sampled_from(["watch", "ring"]), st.sampled_from(MECHANISMS), st.integers(0, 9), st.integers(1, 6))


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.sampled_from(MECHANISMS), st.sampled_from(MECHANISMS)), st.integers(0, 1), st.lists(TOLD, max_size=15)
)
def test_an_account_is_charged_by_its_mechanism_or_not_at_all(
    rules: tuple[Mechanism, Mechanism], base: int, steps: list[tuple[str, Mechanism, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "l.sqlite")
        own = dict(zip(("watch", "ring"), rules, strict=True))
        for device, mechanism in own.items():
            allow(ledger, device, allowance=8, base=base, mechanism=mechanism)
        ticks: dict[str, dict[int, int]] = {"watch": defaultdict(int), "ring": defaultdict(int)}
        for device, mechanism, first, charge in steps:
            window = range(first, first + 4)
            alone = mechanism in ALONE and (base > 0 or bool(ticks[device]))
            fits = all(base + ticks[device][tick] + charge <= 8 for tick in window)
            ticks[device] = defaultdict(int, {tick: spent for tick, spent in ticks[device].items() if spent})
            draft = release(first, first + 3, charge, device, mechanism=mechanism)
            if mechanism == own[device] and fits and not alone:
                assert reserve(ledger, draft).mechanism == mechanism
                for tick in window:
                    ticks[device][tick] += charge
            else:
                with pytest.raises(LedgerError):
                    reserve(ledger, draft)
        for device, mechanism in own.items():
            account = ledger.account(key(device))
            assert account.mechanism == mechanism
            assert account.spent == max(ticks[device].values(), default=0)
            assert bool(account.exclusive) == (mechanism in ALONE and bool(ticks[device]))
        problems = charges_replayed(ledger).problems  # against the informed adversary, some have no allowance at all
        assert bool(problems) == any(not has_bound(mechanism, "informed") for mechanism in rules)
        assert all("its allowance cannot be computed again" in problem for problem in problems)
        ledger.close()


OTHERS = (Promise(0.6, "informed"), Promise(0.4, "informed"), Promise(0.5, "ignorant"), Promise(0.5, "informed", 600))


def test_what_an_audience_is_promised_never_changes(tmp_path: Path) -> None:
    """Limits of accounts are computed from it: a larger promise would break them behind their owners' backs."""
    ledger = Ledger(tmp_path / "l.sqlite")
    allowance = Allowance(key(), 100, 0, Promise(0.5, "informed"), 10**6, "chain", FREE)
    ledger.set_allowances([allowance], time_us=1)
    ledger.set_allowances([allowance._replace(allowance=90)], time_us=2)  # a new policy may allow less
    for other in (allowance._replace(promise=promise) for promise in OTHERS):
        with pytest.raises(LedgerError, match=r"audience public was promised epsilon 0\.5 \(informed\) and cannot"):
            ledger.set_allowances([other._replace(key=key("ring"))], time_us=3)
    assert [account.allowance for account in ledger.accounts()] == [90]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"reason": "a gift"}, "charges nothing, and audience public does not see the symbols"),
        ({"charge": 5, "topic": "fugu/2/home/release/site/count"}, "its topic is that of site"),
        ({"charge": 5, "topic": "fugu/2/home/watch/status"}, "its topic is that of a device"),
        ({"charge": 5, "topic": "elsewhere"}, "not a topic of this protocol"),
        (
            {"audience": "site", "reason": "symbols", "topic": "fugu/2/home/release/public/count"},
            "charged to audience site, and its topic is that of public",
        ),
    ],
)
def test_what_its_readers_are_not_charged_for_is_no_release(more: dict[str, Any], says: str) -> None:
    with pytest.raises(LedgerError, match=says):
        release(0, 9, more.pop("charge", 0), **more)


def test_an_entry_that_was_led_to_other_readers_is_found(ledger: Ledger) -> None:
    reserve(ledger, release(0, 9, 0, audience="site", reason="post-processing"))
    assert charges_replayed(ledger).problems == ()
    ledger._db.execute("UPDATE entries SET topic='fugu/2/home/release/public/count'")
    assert charges_replayed(ledger).problems == (
        "entry 1: is charged to audience site, and its topic is that of public",
    )


@pytest.fixture
def overlapping(tmp_path: Path) -> Ledger:
    """Five releases about two devices, each beside the next on ten ticks."""
    ledger = open_ledger(tmp_path / "l.sqlite", "watch", "ring")
    for first in range(0, 50, 10):
        reserve(ledger, release(first, first + 19, ALLOWED // 2, "watch", "ring"), bytes([0, first]))
    assert charges_replayed(ledger).problems == ()
    return ledger


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE runs SET charge=charge-1 WHERE first=0", "charges are not those of its entries"),
        ("DELETE FROM runs WHERE account=1", "watch/hr, audience public: its charges are not those"),
        ("UPDATE runs SET last=last+1", "charges are not those of its entries"),
        ("DELETE FROM entries WHERE number=3", "entry 3: is missing"),
        ("UPDATE entries SET last=last+30 WHERE number=1", "ticks 10..29 reached|ticks 20..39 reached"),
        ("UPDATE members SET charge=charge-1", "charges are not those of its entries"),
        ("UPDATE members SET charge=0 WHERE device='ring'", "charges nothing and does not say why"),
        ("DELETE FROM members", "entry 1: has no devices"),
        ("UPDATE accounts SET allowance=allowance+1", "its allowance is not the last one recorded"),
        ("UPDATE accounts SET base=1", "its allowance is not the last one recorded"),
        ("UPDATE allowances SET allowance=1", "reached"),
        ("UPDATE accounts SET exclusive=2", "its exclusive release is not that of its entries"),
        ("INSERT INTO runs VALUES (77, 0, 9, 1)", "account 77: has charges and does not exist"),
        ("UPDATE entries SET exclusive=1 WHERE number=2", "does not compose"),
    ],
)
def test_a_change_is_found(overlapping: Ledger, change: str, problem: str) -> None:
    overlapping._db.execute(change)
    problems = charges_replayed(overlapping).problems
    assert any(part in line for line in problems for part in problem.split("|")), problems
    assert all("\n" not in problem for problem in problems)


def test_what_was_seen_published_must_be_in_the_ledger_as_it_was(overlapping: Ledger) -> None:
    assert charges_replayed(overlapping, {1: bytes([0, 0]), 2: bytes([0, 10])}).problems == ()
    assert charges_replayed(overlapping, {1: bytes([0, 1])}).problems == ("entry 1: is not what was published",)
    assert charges_replayed(overlapping, {6: bytes([0, 50])}).problems == ("entry 6: is not what was published",)


def test_a_device_without_windows_has_no_release_that_charges_nothing(ledger: Ledger) -> None:
    free = release(0, 9, 0, reason="charged before", noise="device-windows")
    with pytest.raises(LedgerError, match="its device releases no windows"):
        ledger.refuse(free)
    allow(ledger, base=1)
    ledger.refuse(free)
    assert ledger._db.execute("SELECT * FROM groups").fetchall() == [], "nothing is written"


def test_a_second_loss_takes_nothing_from_the_first(ledger: Ledger) -> None:
    assert not ledger.has_stream_past
    ledger.begin([], "other", "store")
    assert (ledger.has_stream_past, ledger.largest_allowance("public")) == (False, ALLOWED)
    for first, complete in ((100, False), (50, False), (70, True)):
        ledger.begin([("watch", "hr", first)], "new", "store", complete=complete)
        assert ledger.beginnings(["watch"], "hr") == {"watch": 100}
        assert ledger.louder_ticks(key(), 0) == [(99, None)]
        assert ledger.stream_past([key()[:2]])[1], "charges may be lost"
        assert (ledger.has_stream_past, ledger.largest_allowance("public")) == (True, None)


def test_copies_that_were_put_back_leave_a_past(ledger: Ledger) -> None:
    ledger.begin([], "new", "store", not_before_us=5)
    assert ledger.has_stream_past
    assert ledger.stream_past([key()[:2]]) == ([], True)


def test_released_ticks_are_the_numbers_of_their_device(ledger: Ledger) -> None:
    reserve(ledger, release(0, 9, 1, shifts={"watch": 100}))
    reserve(ledger, release(20, 29, 1))
    assert ledger.released_ticks() == [("watch", "hr", 109)]


def test_of_each_topic_the_newest_release_that_was_published_is_published_again(ledger: Ledger) -> None:
    states: tuple[State, ...] = ("published", "abandoned", "reserved", "published")
    for number, state in enumerate(states, 1):
        reserve(
            ledger, release(10 * number, 10 * number + 9, 1, topic=f"fugu/2/home/release/public/count-{number // 4}")
        )
        ledger.mark(number, state)
    assert ledger.newest_published(0) == [1, 4]
    assert ledger.newest_published(2) == [1, 4]
    assert ledger.newest_published(3) == [3, 4]


@pytest.mark.parametrize(
    ("damage", "shifts"),
    [
        ("UPDATE members SET device='ring' WHERE device='watch'", {"band": 5}),
        ("DELETE FROM members WHERE device='watch'", {"band": 5}),
        ("UPDATE accounts SET allowance=allowance*9", {"band": 5, "watch": 1}),
        ("UPDATE allowances SET allowance=allowance*9", {}),
    ],
)
def test_a_row_that_is_damaged_while_the_ledger_is_open_grants_nothing(
    tmp_path: Path, damage: str, shifts: dict[str, int]
) -> None:
    """Charges of a device that its group has lost are not read, and a row that is changed gets a new checksum."""
    path, both = tmp_path / "l.sqlite", ("watch", "band")
    with closing(open_ledger(path, *both)) as ledger:
        reserve(ledger, release(0, 9, ALLOWED, *both, shifts={"band": 5}))
        with closing(sqlite3.connect(path)) as other:
            other.create_function("record_sum", -1, lambda *_: 7, deterministic=True)
            other.execute(damage)
            other.commit()
        if shifts:
            asked = partial(reserve, ledger, release(2, 6, ALLOWED, *both, shifts=shifts))
        else:
            asked = partial(allow, ledger, *both, allowance=3 * ALLOWED)
        with pytest.raises((DatabaseError, LedgerError), match=r"damaged|malformed|match"):
            asked()
