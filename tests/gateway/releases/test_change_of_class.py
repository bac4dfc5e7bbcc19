"""An audience's promise where a policy with a wider class follows: releases stop until it is true again."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, ChainClass, JointChains, JointStream
from fugu.contract.dating import SLACK, first_quiet_tick, with_slack
from fugu.contract.errors import FuguError
from fugu.contract.history import History, Span
from fugu.contract.policy import Policy
from gateway.audit.ledger import StreamLoss, audit_ledger
from gateway.releases.allowance import allowance, classes_of, joint_loss
from gateway.releases.charges import PER_NAT
from gateway.releases.entries import AccountKey, LouderTicks
from gateway.releases.ledger import Ledger
from gateway.releases.maker import Maker
from gateway.releases.setup import histories_in, resume_ledger
from gateway.store.location import Location
from tests.support.changing_noise import Array, sides, stretch_losses
from tests.support.ledgers import allow, release, reserve
from tests.support.release_scenes import PUBLIC, Bench, scheduled, write_config
from tests.support.scenes import frames, policy

NARROW, WIDE = BinaryChains(q=(0.2, 0.3), r=(0.2, 0.3)), BinaryChains(q=(0.05, 0.3), r=(0.05, 0.3))
KEY = AccountKey("watch", "hr", "public")


def of_class(version: int, chains: ChainClass, stream: str = "hr") -> Policy:
    return policy(version, chains=chains, stream=stream)


def same_states(chains: BinaryChains, *names: str) -> JointChains:
    """Streams, `hr` and `steps` by default, that always have the same state: what either tells is told of both."""
    streams = tuple(JointStream(name=name, states=2, rate=1.5) for name in names or ("hr", "steps"))
    odds = chains.odds_bound
    return JointChains(streams=streams, period_us=1_000_000, shows=((0, 0), (1, 1)), odds_ratio=odds)


def released(scene: Bench, stream: str = "hr") -> list[int]:
    scene.work()
    return [frame.first for frame in scene.frames if frame.stream == stream]


def go_on(scene: Bench, *fleet: Policy) -> None:
    """Start again with other policies."""
    scene.ledger.close()
    scene.fleet = scene.scene.policies = fleet
    scene.scene.reopen()
    scene.open()


def losses(wide: float, *runs: tuple[int, float]) -> Array:
    """True loss of each tick of a chain with q = r = `wide`, of runs of ticks with a charge in units each."""
    steps = np.repeat([charge / PER_NAT for _, charge in runs], [ticks for ticks, _ in runs])[:, None].repeat(2, axis=1)
    return stretch_losses(*sides(wide, wide, steps, "informed"), steps, 1)


def test_the_allowances_of_two_classes_leak_over_the_change() -> None:
    """Charges up to both allowances, one after the other: 1 was told, and far more lost."""
    before, after = (allowance(chains, 1.0, "informed") for chains in (NARROW, WIDE))
    assert losses(0.05, (300, before), (300, after))[300] > 1.5


def changed_class(folder: Path, stream: str) -> tuple[Bench, AccountKey, int]:
    """Tell of 60 ticks of `hr` by a class, and then of a stream by a wider one; its account, and its first tick."""
    narrow, wide = (NARROW, WIDE) if stream == "hr" else map(same_states, (NARROW, WIDE))
    names = sorted({"hr", stream})
    fleet = [of_class(1, narrow, name) for name in names]
    scene = Bench(folder, *(scheduled(name, stream=name) for name in names), fleet=(*fleet,))
    scene.scene.record(*frames([20] * 4))
    assert released(scene) == [0, 20, 40]
    spent = scene.ledger.account(KEY).spent
    go_on(scene, *fleet, *(of_class(2, wide, name) for name in names))
    if stream == "hr":
        scene.scene.record(*frames([20] * 16, versions=[*[1] * 4, *[2] * 12])[4:])
    else:
        scene.scene.record(*frames([20] * 13, gaps=[60, *[0] * 12], versions=[2]), stream=stream)
    key = KEY._replace(stream=stream)
    assert scene.ledger.account(key).allowance < spent
    assert joint_loss(wide, scene.ledger.account(key).allowance, "informed") <= 1.0 - 2**-10
    return scene, key, released(scene, stream)[3 if stream == "hr" else 0]


def test_where_no_tick_is_known_to_have_been_drawn_since_no_wait_is_enough() -> None:
    assert first_quiet_tick(History(), [WIDE.worst_odds], 59, None, Fraction(1, 1024)) is None
    ends = [
        first_quiet_tick(History(spans), [WIDE.worst_odds], 59, None, Fraction(1, 1024)) or 0
        for spans in ((Span(1, None, 0),), (Span(1, None, 0, 99), Span(1, None, 700)))
    ]
    assert ends[1] - ends[0] == 600  # of the same number of ticks, 40 were drawn before numbers skipped
    assert ends[0] > 100


@pytest.mark.parametrize("stream", ["hr", "steps"])
def test_after_a_wider_class_releases_stop_until_the_promise_is_true(
    tmp_path: Path, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the stream that was told of, and of another that moves with it, of which nothing was told before."""
    scene, key, since = changed_class(tmp_path, stream)
    assert 60 < since < 300
    assert scene.counters["releases_refused"] == (since - 60) // 20
    spent, allowed = scene.ledger.account(KEY).spent, scene.ledger.account(key).allowance
    assert losses(0.05, (60, spent), (since - 60, 0), (2000, allowed))[since:].max() <= 1.0
    lines = [record.getMessage() for record in caplog.records if "again from tick" in record.getMessage()]
    tick = int(lines[-1].rpartition("again from tick ")[2].split()[0])
    assert since - 20 < tick <= since


def test_a_mechanism_whose_bound_is_none_of_the_chain_s_leakage_tells_nothing_more_after_a_wider_class(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = [of_class(version, BinaryChains(q=(q, q), r=(q, q))) for version, q in ((1, 0.2), (2, 0.05))]
    quilts = scheduled(mechanism="mqm-exact")
    scene = Bench(tmp_path, quilts, audiences=PUBLIC.replace("informed", "ignorant"), fleet=(fleet[0],))
    sequence = frames([20] * 30, versions=[*[1] * 4, *[2] * 26])
    scene.scene.record(*sequence[:4])
    assert released(scene) == [0, 20, 40]
    go_on(scene, *fleet)
    scene.scene.record(*sequence[4:])
    assert released(scene) == [0, 20, 40]
    assert "it may be told of never again" in caplog.text


def audited(scene: Bench, *, with_store: bool, key: AccountKey = KEY) -> StreamLoss:
    """Find with `fugu check ledger` how much the audience was told about a stream."""
    with histories_in(scene.scene.path, "home") as histories:
        every = audit_ledger(scene.ledger, history=histories if with_store else None).streams
    return next(loss for loss in every if loss.key == key)


@pytest.mark.parametrize("obeys", [True, False], ids=["releases stop", "releases go on"])
@pytest.mark.parametrize("stream", ["hr", "steps"])
def test_an_audit_counts_what_leaks_from_before_a_wider_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, obeys: bool
) -> None:
    """With the store that knows which ticks were drawn; without one no tick lies between for certain."""
    if not obeys:
        monkeypatch.setattr(Maker, "refuse_leaks", lambda *_: None)
    scene, key, first = changed_class(tmp_path, stream)
    spent, allowed = scene.ledger.account(KEY).spent, scene.ledger.account(key).allowance
    truth = losses(0.05, (60, spent), (first - 60, 0), (2000, allowed))[first:].max()
    report = audited(scene, with_store=True, key=key)
    assert truth <= report.epsilon
    assert report.wrong is not obeys
    assert (truth > 1.0) is not obeys
    alone = audited(scene, with_store=False, key=key)
    assert alone.wrong
    assert truth <= alone.epsilon


def allow_by(ledger: Ledger, chains: ChainClass, *devices: str) -> int:
    """Allow each tick of devices what their class does beside another one."""
    allowed = allowance(chains, with_slack(1.0), "informed")
    allow(ledger, *devices, allowance=allowed, chains=(chains,))
    return allowed


@pytest.mark.parametrize(("wall", "shift"), [(600, 0), (300, 9000)])
def test_between_devices_whose_clocks_were_set_an_audit_takes_no_numbers_for_a_wait(
    tmp_path: Path, wall: int, shift: int
) -> None:
    """A device's tick leaks from what the other told before, whose numbers are far behind."""
    narrow, wide = (same_states(chains, "ring/hr", "watch/hr") for chains in (NARROW, WIDE))
    first = wall + shift
    history = History((Span(1, None, first - 300, first - 1), Span(2, None, first)))
    with closing(Ledger(tmp_path / "l.sqlite")) as ledger:
        ledger.charge_together([(("ring", "hr"), ("watch", "hr"))], time_us=1)
        before = allow_by(ledger, narrow, "ring", "watch")
        reserve(ledger, release(0, 299, before, "ring"))
        after = allow_by(ledger, wide, "ring", "watch")
        reserve(ledger, release(wall, wall + 99, after, "watch", shifts={"watch": shift}))
        losses_told = audit_ledger(ledger, history=lambda *_: history).streams
    loss = next(loss for loss in losses_told if loss.key == KEY)
    truth = float(losses(0.05, (300, before), (wall - 300, 0), (300, after))[wall:].max())
    assert truth <= loss.epsilon
    assert loss.wrong is (shift > 0)
    assert (truth > 1.0) is loss.wrong


def test_an_audit_counts_louder_ticks_that_follow_quieter_ones_of_a_wider_class(tmp_path: Path) -> None:
    """No ledger grants them; whoever writes into its file can."""
    with closing(Ledger(tmp_path / "l.sqlite")) as ledger:
        quiet = allow_by(ledger, WIDE, "watch")
        reserve(ledger, release(0, 59, quiet))
        loud = allow_by(ledger, NARROW, "watch")
        with ledger.transaction():
            ledger._db.execute("UPDATE accounts SET allowance=?", (loud,))
        reserve(ledger, release(60, 119, loud))
        (stream,) = audit_ledger(ledger).streams
    assert float(losses(0.05, (60, quiet), (60, loud)).max()) <= stream.epsilon
    assert stream.wrong


def test_a_class_that_outlived_a_store_counts_for_nothing_that_was_told_before_it(location: Location) -> None:
    history = History((Span(1, None, 0, 599), Span(2, None, 600)))
    with closing(Ledger(location)) as ledger:
        for chains, first in ((NARROW, 0), (WIDE, 600), (WIDE, 700)):
            reserve(ledger, release(first, first + 59, allow_by(ledger, chains, "watch")))
            if first == 600:
                ledger.begin([("watch", "hr", 660)], "new", "store")
        (stream,) = audit_ledger(ledger, history=lambda *_: history).streams
        (outlived,), lost = ledger.stream_past([KEY[:2]])
    assert (classes_of(outlived[0]), lost) == ((WIDE,), False)
    assert not stream.wrong


def test_before_anything_is_released_a_start_keeps_no_class(tmp_path: Path) -> None:
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, WIDE),))
    go_on(scene, of_class(1, NARROW))
    assert scene.ledger.account(KEY).allowance == allowance(NARROW, 1.0, "informed")


PRESS = '[audiences.press]\nepsilon = 1.0\nadversary = "informed"\n'


@pytest.mark.parametrize("obeys", [True, False], ids=["allowances stay", "allowances grow"])
def test_a_narrower_class_that_follows_a_lost_store_takes_nothing_from_ticks_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    """A larger allowance would leak back to ticks of the wide class, which the lost store knew of alone.

    Also for an audience that was told nothing of these ticks.
    """
    if not obeys:
        monkeypatch.setattr(Ledger, "_least_used_allowance", lambda _self, _key, _old, allowance: allowance)
        monkeypatch.setattr(Ledger, "stream_past", lambda *_: ([], False))
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, WIDE),))
    scene.scene.record(*frames([20] * 4))
    assert released(scene) == [0, 20, 40]
    spent = scene.ledger.account(KEY).spent
    scene.ledger.close()
    scene.scene.store.close()
    (scene.folder / "s.sqlite").unlink()
    assert resume_ledger(scene.folder / "l.sqlite", scene.folder / "s.sqlite") == [("watch", "hr", 60)]
    scene.fleet = scene.scene.policies = (of_class(2, NARROW),)
    write_config(tmp_path, scheduled(), scheduled("news", "press"), audiences=PUBLIC + PRESS)
    scene.scene.open()
    scene.open()
    scene.work(*frames([20] * 4, gaps=[60, 0, 0, 0], versions=[2]))
    assert [(frame.audience, frame.first) for frame in scene.frames[3:]] == [
        (audience, first) for first in (60, 80, 100) for audience in ("public", "press")
    ]
    for audience, before in (("public", spent), ("press", 0)):
        following = scene.ledger.account(KEY._replace(audience=audience)).allowance
        truth = losses(0.05, (60, before), (2000, following))[:60].max()
        assert (truth > 1.0) is not obeys
        for with_store in (True, False):
            report = audited(scene, with_store=with_store, key=KEY._replace(audience=audience))
            assert truth <= report.epsilon
            assert report.wrong is not obeys


@pytest.mark.parametrize("obeys", [True, False], ids=["releases wait", "releases go on"])
@pytest.mark.parametrize("after", [None, 59], ids=["ledger lost", "copies put back"])
def test_after_a_lost_ledger_releases_wait_until_nothing_is_left_of_what_may_have_been_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int | None, obeys: bool
) -> None:
    """Audiences may have been promised less, or told more: here by the class of an earlier policy."""
    if not obeys:
        monkeypatch.setattr(Maker, "refuse_leaks", lambda *_: None)
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, NARROW),))
    if after is not None:
        scene.ledger.close()
        copy = (tmp_path / "l.sqlite").read_bytes()
        scene.open()
    scene.scene.record(*frames([20] * 4))
    assert released(scene) == [0, 20, 40]
    spent = scene.ledger.account(KEY).spent
    scene.schedule._releases.record.note(scene.ledger, 3)
    scene.ledger.close()
    scene.scene.store.close()
    for path in tmp_path.glob("l.sqlite*" if after is None else "*.sqlite*"):
        path.unlink()
    if after is not None:
        (tmp_path / "l.sqlite").write_bytes(copy)
    begins = [("watch", "hr", 60 if after is None else 0)]
    assert resume_ledger(tmp_path / "l.sqlite", tmp_path / "s.sqlite", after) == begins
    scene.scene.open()
    scene.open()
    go_on(scene, of_class(1, NARROW), of_class(2, WIDE))
    sequence = frames([20] * 16, versions=[*[1] * 4, *[2] * 12])
    scene.scene.record(*(sequence[4:] if after is None else sequence))
    first = released(scene)[0]
    allowed = scene.ledger.account(KEY).allowance
    truth = losses(0.05, (60, spent), (first - 60, 0), (2000, allowed))[first:].max()
    assert (first > 60) is obeys
    assert (truth > 1.0) is not obeys
    assert joint_loss(WIDE, allowed, "informed") <= 1.0 - 2**-10


@pytest.mark.parametrize(
    ("far", "says"), [({1030: 1200, 1099: 1150}, "from tick 1200 on"), ({1030: None, 1099: 1150}, "never again")]
)
def test_a_release_waits_for_all_of_which_more_was_told_in_the_numbers_of_its_device(
    monkeypatch: pytest.MonkeyPatch, far: dict[int, int | None], says: str
) -> None:
    """Some charges are known, and others, from before second 100, are lost; its numbers are 1000 ahead of the wall."""
    stretches: list[tuple[int, Fraction | None, Fraction]] = []

    def quiet(_history: object, _odds: object, last: int, excess: Fraction | None, slack: Fraction) -> int | None:
        stretches.append((last, excess, slack))
        return far[last]

    monkeypatch.setattr("gateway.releases.maker.first_quiet_tick", quiet)
    ledger: Any = SimpleNamespace(
        binding=SimpleNamespace(not_before_us=100 * 10**6),
        allowances=lambda *_: {"watch": (1, 0)},
        louder_ticks=lambda _key, ahead: [LouderTicks(30 + ahead, 5)],
        classes=lambda _key: "[]",
    )
    nobody: Any = None
    maker = Maker(nobody, nobody, ledger, nobody, nobody, lambda *_: nobody)
    clock, plan = (
        SimpleNamespace(epoch_us=0, period_us=10**6),
        SimpleNamespace(stream="hr", audience="public", length=20),
    )
    job: Any = SimpleNamespace(name="count", epsilon=1.0, clock=clock, plan=plan)
    with pytest.raises(FuguError, match=says):
        maker.refuse_leaks(job, release(199, 218, shifts={"watch": 1000}))
    half = SLACK * Fraction(1, 2)
    assert stretches == [(1030, Fraction(5, PER_NAT), half), (1099, None, half)]
    if None not in far.values():
        maker.refuse_leaks(job, release(200, 219, shifts={"watch": 1000}))
