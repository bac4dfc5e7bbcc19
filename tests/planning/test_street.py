"""A group is planned: the noise of the home that needs the most, and errors beside two guesses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fugu
from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument, SharedWindow, largest_noise, noise_rate
from fugu.library.streets import Street
from tests.support.groups import PUBLIC, signed

pytestmark = pytest.mark.long
DAYS, MINUTES = 8, 1440


def home(leaves: float, *, seed: int = 1, begins: str = "2026-03-02") -> pd.Series:
    """Days of a home in which it is busy from 6 to 18, and hardly otherwise; whole minutes."""
    rng, state, states = np.random.default_rng(seed), 0, []
    for tick in range(DAYS * MINUTES):
        busy = 360 <= tick % MINUTES < 1080
        state = int(rng.random() < (0.3 if busy else 0.02)) if not state else int(rng.random() >= leaves)
        states.append(state)
    return pd.Series(states, pd.date_range(begins, periods=len(states), freq="min"), name="water")


@pytest.fixture(scope="module")
def street() -> Street:
    return fugu.street([home(0.3, seed=1), home(0.6, seed=2), home(0.6, seed=3)], 3, protect="10m")


def document(street: Street, **changes: object) -> SharedWindow:
    """The document that a helper makes of the table."""
    fields = {**street.fields, "fleet": "home", "helper": PUBLIC.hex(), **changes}
    return SharedWindow.of(signed(GroupDocument.model_validate_json(json.dumps(fields))))


@pytest.mark.parametrize("honest", [1, 30, 5000])
def test_noise_is_the_least_that_is_enough(honest: int) -> None:
    for scale in (Fraction(3), Fraction(719, 10), Fraction(5000)):
        noise = largest_noise(scale, honest)
        assert noise_rate(noise, honest) <= 1 / scale < noise_rate(noise + 1, honest)


def test_all_have_the_noise_of_the_home_that_needs_the_most(street: Street) -> None:
    scales = [recording.scale for recording in street.details.recordings]
    assert street.details.neediest.scale == max(scales) > min(scales)
    assert street.details.noise == largest_noise(max(scales), street.details.honest)


def test_a_group_that_is_not_private_is_written_only_if_that_is_asked_for(tmp_path: Path) -> None:
    street = fugu.street(home(0.5), 10, 20.0, protect="tick")
    assert (street.useful, street.privacy) == (True, "none")
    with pytest.raises(FuguError, match="not private"):
        street.save(tmp_path)
    assert [file.name for file in street.save(tmp_path, not_private=True)] == ["group.toml"]


def test_policies_of_homes_that_are_no_longer_in_the_group_go_with_force(street: Street, tmp_path: Path) -> None:
    signed_street = replace(street, group=document(street))
    homes = signed_street.save(tmp_path)
    policy = json.loads(homes[0].read_text())
    others = {"other-stream": {**policy, "stream": "gas"}, "notes": {"notes": 1}}
    for name, content in {"left": policy | {"device": "left"}, **others}.items():
        (tmp_path / "policies" / f"{name}.json").write_text(json.dumps(content))
    assert signed_street.save(tmp_path, force=True) == homes
    assert {file.stem for file in (tmp_path / "policies").iterdir()} == {*(home.stem for home in homes), *others}


def test_the_policies_of_all_hold_with_the_document_and_no_longer_with_less_noise(street: Street) -> None:
    policies = street.details.policies(document(street), ["a", "b", "c"])
    promised = [policy.bound(policy.verify()).epsilon(policy.guarantee.stretch_ticks) for policy in policies]
    assert max(promised) <= 1
    neediest = max(range(3), key=lambda i: street.details.recordings[i].scale)
    assert max(promised) == promised[neediest] > 0.98
    less = largest_noise(street.details.neediest.scale * Fraction(9, 10), street.details.honest)
    with pytest.raises(FuguError, match="epsilon"):
        street.details.policies(document(street, noise=less), ["a", "b", "c"])


def test_error_is_that_of_the_noise_and_says_from_how_many_homes_on_it_is_of_use() -> None:
    street = fugu.street(home(0.5), 100, protect="10m", honest=80, colluding=0, window="1h")
    rate = float(noise_rate(street.details.noise, 80))
    # All of 80 there: their shares are one discrete Laplace noise, whose mean size is 1 / sinh(rate).
    assert street.details.size.off == pytest.approx(1 / math.sinh(rate) / (60 * 80), rel=0.02)
    least = street.details.least_useful
    for size in street.details.sizes:
        assert size.useful == (size.off <= size.constant / 2)
        assert size.homes >= least or not size.useful


def test_habit_is_learned_from_other_days_of_the_same_kind() -> None:
    """Homes on whose weekends nothing happens: whoever knows the kind of a day guesses well."""
    homes = [home(0.5, seed=seed, begins="2026-03-05") for seed in range(2)]
    for house in homes:
        house[house.index.day_of_week >= 5] = 0
    plan = fugu.street(homes, 2, protect="tick", honest=1, colluding=0).details
    assert plan.shared_dates
    by_date = np.mean([[shares for _, shares in recording.days] for recording in plan.recordings], axis=0)
    weekend = np.array([day.weekday() >= 5 for day, _ in plan.recordings[0].days])
    off = []
    for kind in (True, False):
        days = by_date[weekend == kind]
        off += [np.abs(np.delete(days, i, axis=0).mean(axis=0) - days[i]) for i in range(len(days))]
    assert plan.size.habit == pytest.approx(np.mean(off))
    assert plan.size.habit < plan.size.constant / 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"honest": 9, "colluding": 2}, "no sum would ever open"),
        ({"window": "7h"}, "a day not some windows"),
        ({"homes": 20_000}, "1 to 10000 homes"),
        ({"within": "5%", "latency": "1h"}, "homes= goes without latency= and within=$"),
        ({"devices": 3}, "homes= goes without devices=$"),
    ],
)
def test_a_group_that_cannot_be_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(FuguError, match=why):
        fugu.street(home(0.5), **{"homes": 10, "protect": "tick", **changes})


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FuguError, match="2 recordings for 3 homes"):
        fugu.street([home(0.5), home(0.5)], 3)
    with pytest.raises(FuguError, match="no steady times"):
        fugu.street(home(0.5).to_numpy(), 10, period=60)
    for content in (b"{}", b"\xff"):
        (tmp_path / "street.json").write_bytes(content)
        with pytest.raises(FuguError, match="no signed document"):
            fugu.street(home(0.5), 10, group=tmp_path / "street.json")
