"""Which streams move together, as policies say, and what their accounts may be charged."""

from __future__ import annotations

import pytest

from fugu.contract.chains import BinaryChains, ChainClass, JointChains, JointStream
from fugu.contract.dating import with_slack
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import allowance, joint_loss
from gateway.releases.charges import units_above
from gateway.releases.config import Audience, Reader, ReleaseConfig, ScheduledRelease
from gateway.releases.entries import Allowance, Promise, StreamPast, named_streams, together_name
from gateway.releases.jobs import allowances, jobs, streams_together

PERIOD = 1_000_000
ALONE = BinaryChains(q=(0.3, 0.3), r=(0.4, 0.4))
CONFIG = ReleaseConfig(
    audiences={
        "public": Audience(epsilon=1.0, adversary="universal"),
        "press": Audience(epsilon=0.5, adversary="universal"),
    },
    releases=(
        ScheduledRelease(
            name="a", stream="hr", query="count", states=("high",), length=60, audience="public", share=0.5
        ),
    ),
)


def joint(*names: str) -> JointChains:
    shows = tuple(tuple((x >> i) & 1 for i in range(len(names))) for x in range(2 ** len(names)))
    streams = tuple(JointStream(name=name, states=2, rate=0.5) for name in names)
    return JointChains(streams=streams, period_us=PERIOD, shows=shows, odds_ratio=4.0)


def stream_policy(
    stream: str, chains: ChainClass, *, device: str = "watch", version: int = 1, epoch: int = 0, scale: str = "10"
) -> Policy:
    return Policy(
        fleet="home",
        device=device,
        stream=stream,
        version=version,
        clock=Clock(epoch_us=epoch, period_us=PERIOD),
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        chains=chains,
        guarantee=Guarantee(epsilon=20.0, adversary="universal"),
        windows=(Window(name="high", length=60, stride=60, states=("high",), scale=scale),),
    )


def catalogue(*policies: Policy) -> Catalogue:
    catalogue = Catalogue("home")
    for policy in policies:
        catalogue.add(policy)
    return catalogue


def granted(catalogue: Catalogue) -> Allowance:
    (allowance,), _ = allowances(CONFIG, jobs(CONFIG, catalogue), catalogue)
    return allowance


def test_a_stream_is_held_to_its_own_rate_after_another_with_the_same_claim() -> None:
    """A claim is verified once: that of the first stream was taken for that of the second, which may tell less."""
    chains = joint("hr", "steps")
    streams = chains.streams[0], JointStream(name="steps", states=2, rate=0.05)
    louder = stream_policy("steps", chains.model_copy(update={"streams": streams}))
    with pytest.raises(GuaranteeError, match="allows stream steps"):
        catalogue(stream_policy("hr", louder.chains), louder)


def test_streams_of_a_device_and_of_a_room() -> None:
    both, room = joint("hr", "steps"), joint("lamp/light", "door/motion")
    models = catalogue(
        *(stream_policy(stream, both, device=device) for device in ("watch", "ring") for stream in ("hr", "steps")),
        stream_policy("light", room, device="lamp"),
        stream_policy("motion", room, device="door"),
        stream_policy("door", ALONE, device="door"),
        stream_policy("pairs", joint("pairs"), device="door"),
    )
    groups = streams_together(models)
    assert sorted(map(together_name, groups)) == ["door/motion+lamp/light", "ring/hr+steps", "watch/hr+steps"]
    assert named_streams(joint("pairs"), "door") == frozenset()


def test_classes_that_share_a_stream_are_charged_together() -> None:
    """Of a stream's versions, too: what was told under the first is still known."""
    models = catalogue(
        stream_policy("hr", joint("hr", "steps")),
        stream_policy("hr", joint("hr", "sleep"), version=2),
        stream_policy("steps", joint("hr", "steps")),
        stream_policy("sleep", joint("hr", "sleep")),
    )
    assert [together_name(group) for group in streams_together(models)] == ["watch/hr+sleep+steps"]


def test_a_stream_whose_partner_has_no_policy_yet() -> None:
    models = catalogue(stream_policy("hr", joint("hr", "steps")))
    assert streams_together(models) == [frozenset({("watch", "hr"), ("watch", "steps")})]
    assert granted(models).base == units_above(stream_policy("hr", ALONE).window_rate)


def test_one_allowance_and_the_windows_of_all_stand_against_it() -> None:
    both = joint("hr", "steps")
    models = catalogue(stream_policy("hr", both), stream_policy("steps", both, scale="5"))
    grant = granted(models)
    assert grant.allowance == allowance(both, 1.0, "universal")
    assert grant.base == sum(units_above(stream_policy("hr", ALONE, scale=scale).window_rate) for scale in ("10", "5"))
    assert grant.chains == (both,)
    models.add(stream_policy("steps", ALONE, version=2, scale="20"))
    spare = with_slack(1.0)  # versions allow differently: what leaks from one to the other
    assert granted(models).allowance == min(allowance(each, spare, "universal") for each in (both, ALONE))
    assert granted(models).base == grant.base


def test_a_part_of_epsilon_is_left_where_a_period_changes_or_charges_are_lost() -> None:
    """An hour of longer ticks has fewer, of which each was allowed more: that leaks over the change."""
    models = catalogue(stream_policy("hr", ALONE))
    hour = {"public": Audience(epsilon=1.0, adversary="universal", protect=3600)}
    config = CONFIG.model_copy(update={"audiences": CONFIG.audiences | hour})
    wanted = jobs(config, models)

    def allowed(past: StreamPast) -> int:
        (account,), _ = allowances(config, wanted, models, lambda _: past)
        return account.allowance

    spare = allowance(ALONE, with_slack(1.0), "universal", ticks=Promise(1.0, "universal", 3600).ticks(PERIOD))
    assert allowed(StreamPast()) > spare
    assert allowed(StreamPast(lost=True)) == spare
    assert allowed(StreamPast(frozenset([(ALONE, 60 * PERIOD)]))) == spare
    assert allowed(StreamPast(frozenset([(ALONE, PERIOD)]))) == allowed(StreamPast())
    sticky = BinaryChains(q=(0.1, 0.1), r=(0.1, 0.1))
    assert allowed(StreamPast(frozenset([(sticky, PERIOD)]))) < spare


def test_streams_that_move_together_need_one_clock() -> None:
    both = joint("hr", "steps")
    models = catalogue(stream_policy("hr", both), stream_policy("steps", both, epoch=7))
    with pytest.raises(FuguError, match=r"streams watch/hr\+steps move together and do not have one clock"):
        granted(models)


def test_a_reader_of_two_audiences_is_bound_by_the_joint_class() -> None:
    """Allowances of both audiences for both streams, under the class that holds both."""
    both = joint("hr", "steps")
    models = catalogue(stream_policy("hr", both), stream_policy("steps", both))
    reader = Reader(name="news", audiences=("public", "press"), epsilon=9.0, adversary="universal")
    bounds = {bound.stream: bound.epsilon for bound in reader.check(CONFIG, models)}
    assert bounds["hr"] == bounds["steps"] > 1.0
    with pytest.raises(FuguError, match="its limit is 1 "):
        reader.model_copy(update={"epsilon": 1.0}).check(CONFIG, models)


def test_a_reader_s_bound_counts_classes_of_a_lost_store_and_what_leaks_of_lost_charges() -> None:
    models = catalogue(stream_policy("hr", ALONE))
    reader = Reader(name="news", audiences=("public", "press"), epsilon=9.0, adversary="universal")

    def bound(past: StreamPast) -> float:
        return reader.check(CONFIG, models, (), lambda _: past)[0].epsilon

    loose, leaks = BinaryChains(q=(0.45, 0.45), r=(0.45, 0.45)), 1.5 / 1024
    spare = [allowance(ALONE, with_slack(epsilon), "universal") for epsilon in (1.0, 0.5)]
    base = units_above(stream_policy("hr", ALONE).window_rate)
    assert bound(StreamPast(lost=True)) >= joint_loss(ALONE, sum(spare) - base, "universal") + leaks
    least = [max(allowance(loose, with_slack(epsilon), "universal") - base, 0) for epsilon in (1.0, 0.5)]
    assert bound(StreamPast(frozenset([(loose, PERIOD)]))) >= joint_loss(loose, sum(least) + base, "universal") + leaks
    assert bound(StreamPast(frozenset([(ALONE, PERIOD)]))) == bound(StreamPast())
