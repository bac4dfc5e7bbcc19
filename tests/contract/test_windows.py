"""Windows in a policy: what is refused, what they add to every tick's loss, and both guarantees at their boundaries."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.guarantee import Guarantee, tick_ratios
from fugu.contract.losses import Adversary, exp_up
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from tests.support.windows import CHAINS, TABLE, policy, window

# e^x from above


@pytest.mark.parametrize("text", ["1/1000000000000", "1/20", "1/3", "1", "7/3", "100", "9999", "10000"])
def test_an_upper_bound_of_an_exponential_is_above_and_tight(text: str) -> None:
    """Judged by decimals with three times as many digits."""
    exponent = Fraction(text)
    bound = exp_up(exponent)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 180, 999_999, -999_999
        exact = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        ratio = Decimal(bound.numerator) / Decimal(bound.denominator) / exact
        assert 1 < ratio < 1 + Decimal("1e-30")


def test_no_loss_is_the_ratio_one_and_absurd_losses_are_refused() -> None:
    assert exp_up(Fraction(0)) == 1
    for exponent in (Fraction(-1, 10), Fraction(10_001)):
        with pytest.raises(GuaranteeError, match=r"is not in 0\.\.10000"):
            exp_up(exponent)


# Documents


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "a b"}, "pattern"),
        ({"name": "x" * 33}, "pattern"),
        ({"length": 0}, "greater than or equal to 1"),
        ({"stride": 0}, "greater than or equal to 1"),
        ({"start": -1}, "greater than or equal to 0"),
        ({"length": 65, "stride": 1}, "65 windows would share a tick; at most 64"),
        ({"states": ()}, "at least 1"),
        ({"states": "all"}, "histogram"),
        ({"states": (True,)}, "valid"),
        ({"scale": 20}, "string"),
        ({"scale": "0"}, "pattern"),
        ({"scale": "-1"}, "pattern"),
        ({"scale": "2.5"}, "pattern"),
        ({"scale": "20/2"}, "not in lowest terms; write 10"),
        ({"scale": "20/1"}, "not in lowest terms; write 20"),
        ({"scale": "20\n"}, "pattern"),
        ({"noise": "none"}, "Extra inputs"),
    ],
)
def test_a_wrong_window_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        window(**changes)


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, Fraction(1, 20)),
        ({"length": 600, "stride": 60}, Fraction(10, 20)),
        ({"length": 601, "stride": 60}, Fraction(11, 20)),
        ({"length": 60, "stride": 600}, Fraction(1, 20)),
        ({"states": "histogram"}, Fraction(2, 20)),
        ({"states": ("low", "high")}, Fraction(1, 20)),
        ({"scale": "7/3"}, Fraction(3, 7)),
        ({"length": 7, "stride": 3, "states": "histogram", "scale": "1000/7"}, Fraction(3 * 2 * 7, 1000)),
    ],
)
def test_the_rate_is_exact(changes: dict[str, Any], rate: Fraction) -> None:
    assert window(**changes).rate == rate


@pytest.mark.parametrize(("length", "stride", "start"), [(10, 10, 0), (10, 3, 0), (7, 3, 5), (3, 7, 2), (1, 1, 0)])
def test_no_tick_is_in_more_windows_than_the_rate_says(length: int, stride: int, start: int) -> None:
    counted = window(length=length, stride=stride, start=start)
    for tick in range(100):
        inside = [n for n in range(100) if start + n * stride <= tick < start + n * stride + length]
        assert len(inside) <= counted.overlap
        assert all(counted.covers(n, start + n * stride, length) for n in inside)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: policy(window(), window(scale="7/3")), "two windows have the same name"),
        (lambda: policy(*(window(name=f"w{i}") for i in range(17))), "at most 16"),
        (lambda: policy(window(states=("asleep",))), "counts a state 'asleep' that the stream does not have"),
        (lambda: policy(window(states=(2,))), "counts a state 2 that the stream does not have"),
        (lambda: policy(window(states=(-1,))), "counts a state -1 that"),
        (lambda: policy(window(states=("high", 1))), "counts a state twice"),
        (lambda: policy(window(), windows_guarantee=None), "belong together"),
        (lambda: policy(windows_guarantee=Guarantee(epsilon=1.0, adversary="informed")), "belong together"),
    ],
)
def test_a_policy_with_windows_that_contradict_it_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        make()


def test_more_counts_than_a_small_device_can_hold_are_refused() -> None:
    labels = tuple(f"level {state}" for state in range(20))
    fields = {
        "discretiser": Thresholds(edges=tuple(float(edge) for edge in range(1, 20)), states=labels),
        "table": NoiseTable.randomised_response(20, 200_000_000),
        "chains": BoundedChains(states=20, odds_ratio=4.0),
    }
    wide = [window(name=f"w{i}", length=64, stride=1, states="histogram") for i in range(13)]
    policy(*wide[:12], **fields)
    with pytest.raises(ValidationError, match="would hold 16640 counts; at most 16384"):
        policy(*wide, **fields)


def test_labels_and_indices_mean_the_same() -> None:
    labels = ("low", "middle", "high")
    assert window(states=("high", "low")).counted(labels) == window(states=(2, 0)).counted(labels) == (2, 0)
    assert window(states="histogram").counted(labels) == (0, 1, 2)
    assert [len(window(states=states).groups(("a", "b", "c"))) for states in ("histogram", (0, 1))] == [3, 1]


def test_the_form_of_a_policy_holds_its_windows() -> None:
    counted_policy = policy(window(), window(name="all", states="histogram", start=7, scale="1000/7"))
    assert Policy.from_json(counted_policy.to_json()) == counted_policy
    assert counted_policy.window("all") == counted_policy.windows[1]
    assert counted_policy.window("none") is None
    assert counted_policy.window_rate == Fraction(1, 20) + Fraction(2 * 7, 1000)


def test_a_policy_without_windows_has_the_fields_it_always_had() -> None:
    document = json.loads(policy().to_json())
    assert not {"windows", "windows_guarantee"} & set(document)
    assert Policy.from_json(json.dumps(document)) == policy()


def test_a_wrong_window_in_a_document_is_one_line() -> None:
    document = json.loads(policy(window()).to_json())
    document["windows"][0]["length"] = 0
    with pytest.raises(PolicyError, match=r"windows\.0\.length: must be at least 1"):
        Policy.from_json(json.dumps(document))


# Guarantees


def ceiling_of(policy: Policy, adversary: Adversary) -> float:
    """Loss of symbols and windows together, by the bound for their product."""
    rate = exp_up(policy.window_rate)
    ratios = tick_ratios(policy.table)
    return policy.chains.ratio_loss(ratios[0] * rate, ratios[1] * rate, adversary).epsilon


@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
def test_at_the_boundary_a_guarantee_holds_and_a_little_less_noise_breaks_it(adversary: Adversary) -> None:
    """With a scale that is smaller by 2 parts in 10^8, for both guarantees, each on its own."""
    enough, less = window(scale="50000000/1000001"), window(scale="49999999/1000001")
    both = Guarantee(epsilon=ceiling_of(policy(enough), adversary), adversary=adversary)
    alone = exp_up(enough.rate)
    windows = Guarantee(epsilon=CHAINS.ratio_loss(alone, alone, adversary).epsilon, adversary=adversary)
    loose = Guarantee(epsilon=50.0, adversary=adversary)
    assert policy(enough, guarantee=both, windows_guarantee=windows).verify(both.epsilon).epsilon == both.epsilon
    with pytest.raises(GuaranteeError, match="the table with the windows beside it loses epsilon"):
        policy(less, guarantee=both, windows_guarantee=loose).verify(100.0)
    with pytest.raises(GuaranteeError, match="the set of windows loses epsilon"):
        policy(less, guarantee=loose, windows_guarantee=windows).verify(100.0)
    with pytest.raises(GuaranteeError, match="above this device's ceiling"):
        policy(enough, guarantee=both, windows_guarantee=windows).verify(math.nextafter(both.epsilon, 0.0))


def test_the_example_in_the_manual_keeps_its_promise() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    section = page.partition("## Windows")[2].partition("| field |")[0]
    lines = [line for line in section.splitlines() if line.startswith("    ")]
    document = json.loads(policy(chains=BinaryChains(q=(0.05, 0.12), r=(0.06, 0.15))).to_json())
    document["discretiser"]["states"] = ["below", "above"]
    read = Policy.from_json(json.dumps(document | json.loads("{" + "".join(lines) + "}")))
    alone = read.verify_windows()
    assert 0.9 < alone.epsilon <= 1.0


def test_for_independent_ticks_the_loss_is_the_sum_of_rates_and_of_the_table() -> None:
    chains = BinaryChains(q=(0.25, 0.25), r=(0.75, 0.75))
    counted_policy = policy(window(), window(name="all", states="histogram"), chains=chains)
    expected = math.log(max(tick_ratios(TABLE))) + 1 / 20 + 2 / 20
    assert expected <= counted_policy.verify(50.0).epsilon <= expected * (1 + 1e-14)


def test_noise_that_is_no_noise_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="a tick loses more than 1000 nats"):
        policy(window(scale="1/100000")).verify()


# Windows alone


def alone(*windows: Window, **changes: Any) -> Policy:
    """A policy of windows without symbols."""
    return policy(*windows, **{"table": None, "frame_ticks": 1, "windows_guarantee": None} | changes)


@pytest.mark.parametrize(
    ("windows", "changes", "text"),
    [
        ((), {}, "neither a table nor a window"),
        ((window(),), {"frame_ticks": 2}, "leave it out where there is no table"),
        (
            (window(),),
            {"windows_guarantee": Guarantee(epsilon=50.0, adversary="universal")},
            "leave windows_guarantee out",
        ),
        ((window(),), {"discretiser": Thresholds(edges=(0.5, 1.0), states=("a", "b", "high"))}, "have .* states"),
    ],
)
def test_windows_alone_say_nothing_of_symbols_and_nothing_twice(
    windows: tuple[Window, ...], changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValidationError, match=text):
        alone(*windows, **changes)


def test_windows_alone_are_written_without_what_they_do_not_have() -> None:
    windows_alone = alone(window(), window(name="bars", states="histogram"))
    written = json.loads(windows_alone.to_json())
    assert not {"table", "frame_ticks", "windows_guarantee"} & written.keys()
    assert Policy.from_json(windows_alone.to_json()) == windows_alone
    assert windows_alone.windows_alone == windows_alone.guarantee
    assert policy(window()).windows_alone == policy(window()).windows_guarantee
    assert policy().windows_alone is None


@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
def test_the_guarantee_of_windows_alone_is_theirs_and_exact_at_its_boundary(adversary: Adversary) -> None:
    """A histogram and a count: 2/30 + 1/20 a tick, as one mechanism; the same loss as a table of equal rows beside."""
    windows = (window(), window(name="bars", states="histogram", scale="30"))
    ratio = exp_up(Fraction(1, 20) + Fraction(2, 30))
    needed = CHAINS.ratio_loss(ratio, ratio, adversary).epsilon
    windows_alone = alone(*windows, guarantee=Guarantee(epsilon=needed, adversary=adversary))
    assert windows_alone.verify(needed) == windows_alone.verify_windows()
    equal = NoiseTable.binary(1 << 31, 1 << 31)
    loose = Guarantee(epsilon=needed, adversary=adversary)
    beside = policy(*windows, table=equal, guarantee=loose, windows_guarantee=loose)
    assert beside.verify(needed).epsilon == windows_alone.verify(needed).epsilon
    assert windows_alone.bound() == windows_alone.windows_bound()
    below = math.nextafter(needed, 0.0)
    with pytest.raises(GuaranteeError, match="the set of windows loses epsilon"):
        alone(*windows, guarantee=Guarantee(epsilon=below, adversary=adversary)).verify(needed)
    with pytest.raises(GuaranteeError, match="above this device's ceiling"):
        windows_alone.verify(below)
