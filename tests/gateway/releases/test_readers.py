"""Releases under a policy count for an account of several audiences, under any policies after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from gateway.releases.allowance import joint_loss
from gateway.releases.config import Audience, Reader, ReleaseConfig, ScheduledRelease
from gateway.releases.entries import AccountKey, Release
from gateway.releases.jobs import allowances, jobs
from gateway.releases.ledger import Ledger
from tests.support.ledgers import drawn
from tests.support.scenes import STICKY, catalogue, policy

AUDIENCES = ("street", "press")
CONFIG = ReleaseConfig(
    audiences={name: Audience(epsilon=0.5, adversary="informed") for name in AUDIENCES},
    releases=tuple(
        ScheduledRelease(
            name=f"of-{name}", stream="hr", query="count", states=("level 1",), length=20, audience=name, share=1.0
        )
        for name in AUDIENCES
    ),
)
COUNTED = Window(name="w", length=20, stride=20, states=("level 1",), scale="12")
CROWDED = Window(name="w", length=20, stride=20, states=("level 1",), scale="1/2")
LATER = {
    "with a window beside it": policy(2, windows=(COUNTED,)),
    "with windows that leave nothing": policy(2, windows=(CROWDED,)),
    "of a class that hardly moves": policy(2, chains=BinaryChains(q=(0.001, 0.2), r=(0.001, 0.3))),
}


def charged(folder: Path, versions: tuple[Policy, ...]) -> int:
    """Charge ticks 0..19 with all that both audiences may be told; return what a tick was charged in the ledger."""
    models = catalogue(versions)
    ledger = Ledger(folder / "l.sqlite")
    granted, _ = allowances(CONFIG, jobs(CONFIG, models), models)
    ledger.set_allowances(granted, time_us=1)
    for name in AUDIENCES:
        free = ledger.account(AccountKey("watch", "hr", name)).remaining
        topic = f"fugu/2/home/release/{name}/of-{name}"
        release = Release(
            f"of-{name}", name, "hr", 0, 19, {"watch": free}, "chain", "discrete-laplace", "1", topic, since_us=0
        )
        ledger.reserve(release, lambda number: drawn(b"%d" % number), time_us=1)
    charged = sum(account.spent for account in ledger.accounts())
    ledger.close()
    return charged


@pytest.mark.long
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_what_a_reader_was_told_before_a_policy_changed_still_counts(tmp_path: Path, later: Policy) -> None:
    """The allowance under the newest policy is no bound of what was charged to ticks of an earlier one."""
    first = policy(1)
    real = joint_loss(STICKY, charged(tmp_path, (first,)), "informed")
    reader = Reader(name="both", audiences=AUDIENCES, epsilon=50.0, adversary="informed")
    (before,) = reader.check(CONFIG, catalogue((first,)))
    (after,) = reader.check(CONFIG, catalogue((first, later)))
    assert real <= before.epsilon <= after.epsilon
    limited = reader.model_copy(update={"epsilon": real * (1 - 1e-6)})
    with pytest.raises(FuguError, match="its limit is"):
        limited.check(CONFIG, catalogue((first, later)))


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_a_reader_of_one_audience_is_told_what_its_audience_is_promised(later: Policy) -> None:
    """A change of policies never takes an account above the epsilon of its only audience."""
    reader = Reader(name="street", audiences=("street",), epsilon=0.5, adversary="informed")
    assert all(bound.epsilon <= 0.5 for bound in reader.check(CONFIG, catalogue((policy(1), later))))
