"""An audience's promise where a policy with a wider class follows: releases stop until it is true again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.policy import Policy
from gateway.audit.ledger import StreamLoss, audit_ledger
from gateway.releases.allowance import allowance, joint_loss
from gateway.releases.entries import PER_NAT, Key
from gateway.releases.ledger import Ledger
from gateway.releases.maker import Maker
from gateway.releases.setup import histories_in, resume_ledger
from tests.support.changing_noise import Array, leakages, stretch_losses
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import frames, policy

NARROW, WIDE = BinaryChains(q=(0.2, 0.3), r=(0.2, 0.3)), BinaryChains(q=(0.05, 0.3), r=(0.05, 0.3))
KEY = Key("watch", "hr", "public")


def of_class(version: int, chains: BinaryChains) -> Policy:
    return policy(version, chains=chains)


def released(scene: Bench) -> list[int]:
    scene.work()
    return [frame.first for frame in scene.frames]


def test_the_allowances_of_two_classes_leak_over_the_change() -> None:
    """Charges up to both allowances, one after the other: 1 was told, and far more lost."""
    before, after = (allowance(chains, 1.0, "informed") / PER_NAT for chains in (NARROW, WIDE))
    steps = np.array([(before, before)] * 300 + [(after, after)] * 300)
    past, future = (leakages(0.05, 0.05, some, "informed") for some in (steps, steps[::-1]))
    truth = stretch_losses(past, future[::-1], steps, 1)
    assert truth[300] > 1.5


def test_after_a_wider_class_releases_stop_until_the_promise_is_true(tmp_path: Path) -> None:
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, NARROW),))
    made = frames([20] * 16, versions=[*[1] * 4, *[2] * 12])
    scene.scene.record(*made[:4])
    assert released(scene) == [0, 20, 40]
    spent = scene.ledger.account(KEY).spent
    scene.fleet = (of_class(1, NARROW), of_class(2, WIDE))
    scene.ledger.close()
    scene.scene.policies = scene.fleet
    scene.scene.reopen()
    scene.open()
    scene.scene.record(*made[4:])
    allowed = scene.ledger.account(KEY).allowance
    assert allowed < spent
    since = released(scene)[3]
    assert 60 < since < 300
    assert scene.counters["releases_refused"] == (since - 60) // 20
    steps = np.array([(spent / PER_NAT,) * 2] * 60 + [(0.0, 0.0)] * (since - 60) + [(allowed / PER_NAT,) * 2] * 2000)
    past, future = (leakages(0.05, 0.05, some, "informed") for some in (steps, steps[::-1]))
    truth = stretch_losses(past, future[::-1], steps, 1)
    assert truth[since:].max() <= 1.0
    assert joint_loss(WIDE, allowed, "informed") <= 1.0 - 2**-10
    scene.ledger.close()


def test_the_refusal_names_the_tick(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, NARROW),))
    made = frames([20] * 6, versions=[1, 1, 2, 2, 2, 2])
    scene.scene.record(*made[:2])
    scene.work()
    scene.fleet = (of_class(1, NARROW), of_class(2, WIDE))
    scene.ledger.close()
    scene.scene.policies = scene.fleet
    scene.scene.reopen()
    scene.open()
    scene.scene.record(*made[2:])
    scene.work()
    found = [record.getMessage() for record in caplog.records if "again from tick" in record.getMessage()]
    assert found
    tick = int(found[-1].rpartition("again from tick ")[2].split()[0])
    assert tick > 40
    assert math.isfinite(tick)
    scene.ledger.close()


def audited(scene: Bench, *, with_store: bool) -> StreamLoss:
    """Find with `fugu check ledger` how much the audience was told about the stream."""
    with histories_in(scene.scene.path, "home") as histories:
        (loss,) = audit_ledger(scene.ledger, history=histories if with_store else None).streams
    return loss


@pytest.mark.parametrize("obeys", [True, False], ids=["releases stop", "releases go on"])
def test_an_audit_counts_what_leaks_from_before_a_wider_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    """With the store that knows which ticks were drawn; without one no tick lies between for certain."""
    if not obeys:
        monkeypatch.setattr(Maker, "_refuse_loud", lambda *_: None)
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, NARROW),))
    made = frames([20] * 16, versions=[*[1] * 4, *[2] * 12])
    scene.scene.record(*made[:4])
    released(scene)
    assert audited(scene, with_store=True) == audited(scene, with_store=False)
    scene.fleet = (of_class(1, NARROW), of_class(2, WIDE))
    scene.ledger.close()
    scene.scene.policies = scene.fleet
    scene.scene.reopen()
    scene.open()
    scene.scene.record(*made[4:])
    first = released(scene)[3]
    spent, allowed = scene.ledger.account(KEY).spent, scene.ledger.account(KEY).allowance
    steps = np.array([(spent / PER_NAT,) * 2] * 60 + [(0.0, 0.0)] * (first - 60) + [(allowed / PER_NAT,) * 2] * 2000)
    past, future = (leakages(0.05, 0.05, some, "informed") for some in (steps, steps[::-1]))
    truth = stretch_losses(past, future[::-1], steps, 1)[first:].max()
    found = audited(scene, with_store=True)
    assert found.epsilon is not None
    assert truth <= found.epsilon
    assert found.wrong is not obeys
    assert (truth > 1.0) is not obeys
    alone = audited(scene, with_store=False)
    assert alone.wrong
    assert alone.epsilon is not None
    assert truth <= alone.epsilon
    scene.ledger.close()


def follow_narrower(scene: Bench) -> Array:
    """Tell of a wide class, lose the store, resume, and tell of a narrow class; the charges of ticks."""
    scene.scene.record(*frames([20] * 4))
    assert released(scene) == [0, 20, 40]
    spent = scene.ledger.account(KEY).spent
    scene.ledger.close()
    scene.scene.store.close()
    (scene.folder / "s.sqlite").unlink()
    assert resume_ledger(scene.folder / "l.sqlite", scene.folder / "s.sqlite") == [("watch", "hr", 60)]
    scene.fleet = scene.scene.policies = (of_class(2, NARROW),)
    scene.scene.open()
    scene.open()
    scene.scene.record(*frames([20] * 4, gaps=[60, 0, 0, 0], versions=[2]))
    assert released(scene)[3:] == [60, 80, 100]
    following = max(run.charge for run in scene.ledger.spent(KEY, 60, 119))
    return np.repeat([spent / PER_NAT, following / PER_NAT], [60, 2000])[:, None].repeat(2, axis=1)


@pytest.mark.parametrize("obeys", [True, False], ids=["allowances stay", "allowances grow"])
def test_a_narrower_class_that_follows_takes_nothing_from_what_was_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    """A larger allowance would leak back to ticks of the wide class, which the lost store knew of alone."""
    if not obeys:
        monkeypatch.setattr(Ledger, "_least_told", lambda _self, _key, _before, wanted: wanted)
    scene = Bench(tmp_path, scheduled(), fleet=(of_class(1, WIDE),))
    allowed = scene.ledger.account(KEY).allowance
    steps = follow_narrower(scene)
    past, future = (leakages(0.05, 0.05, some, "informed") for some in (steps, steps[::-1]))
    truth = stretch_losses(past, future[::-1], steps, 1)[:60].max()
    assert (truth > 1.0) is not obeys
    assert (scene.ledger.account(KEY).allowance == allowed) is obeys
    for with_store in (True, False):
        found = audited(scene, with_store=with_store)
        assert found.epsilon is not None
        assert truth <= found.epsilon
        assert found.wrong is not obeys
    scene.ledger.close()
