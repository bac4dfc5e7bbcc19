"""Which stretch a plan is for: what is asked, what suits the period, and what a policy of it promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.planning.errors import PlanningError
from fugu.planning.question import long_stay, protected_seconds, protected_ticks
from tests.support.command import Fugu

CHAIN = ("--q", 0.01, "--r", 0.02, "--epsilon", 1, "--adversary", "universal")
NAMED = ("--for", "home/room/light", "--threshold", 0.5)


@pytest.mark.parametrize(
    ("asked", "period", "seconds"),
    [(None, None, 0), (None, 29.9, 0), (None, 30.0, 600), (None, 3600.0, 600), (0, 60.0, 0), (1, 60.0, 1)],
)
def test_the_period_decides_where_nothing_is_asked(asked: int | None, period: float | None, seconds: int) -> None:
    assert protected_seconds(asked, period) == seconds


def test_a_time_needs_a_period() -> None:
    with pytest.raises(PlanningError, match="give --period"):
        protected_seconds(600, None)
    assert (protected_ticks(0, 60.0), protected_ticks(600, 60.0), protected_ticks(600, 1.0)) == (1, 11, 601)


def test_a_stay_ends_at_a_change_a_gap_and_a_missing_state() -> None:
    states = np.array([0, 0, 0, 1, 1, -1, 1, 1, 1, 1, 1])
    assert long_stay(states, np.zeros(11, dtype=np.int64)) == 5
    assert long_stay(states, np.array([0] * 8 + [1] * 3)) == 3
    assert long_stay(np.full(4, -1), np.zeros(4, dtype=np.int64)) is None


@pytest.mark.parametrize(
    "command",
    [
        ("window", "--window", "1d"),
        ("window", "--window", "1d", "--symbols", 0.5),
        pytest.param(("stream",), marks=pytest.mark.long),
    ],
)
def test_a_policy_of_an_hour_protects_an_hour_and_hardly_more(
    fugu: Fugu, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "policy.json"
    done = fugu("plan", *command, *CHAIN, "--period", 60, "--protect", "1h", *NAMED, "-o", file)
    assert done.out.startswith("Private: about any hour, from 50 % to at most 73 % sure.")
    policy = Policy.from_json(file.read_text())
    assert policy.guarantee.stretch_ticks == 61
    lost = policy.bound(policy.verify(Ceiling(epsilon=1.0, seconds=3600))).epsilon(61)
    assert 0.99 < lost <= 1.0


def test_the_promise_is_in_the_document_with_both_numbers(fugu: Fugu) -> None:
    words = ("plan", "window", *CHAIN, "--window", 1440, "--json")
    slow = fugu(*words, "--period", 30).json()
    assert (slow["privacy"], slow["protect_seconds"]) == ("private", 600)
    assert slow["promise"].startswith("Private: about any 10 minutes, from 50 % to at most 73 % sure.")
    assert all(
        stretch["floor"] <= stretch["epsilon"] for stretch in slow["stretches"] if stretch["epsilon"] is not None
    )
    assert fugu(*words, "--period", 29).json()["promise"].startswith("Private: about any single tick, ")
    bare, minutes = (fugu(*words, "--period", 30, "--protect", text).json() for text in ("600", "10m"))
    assert bare == minutes


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--window", 60, "--protect", "1h"), 1, "give --period"),
        (("--window", 60, "--period", 60, "--protect", "soon"), 2, "protect: 'soon' is no length of time"),
        (("--window", 60, "--period", 60, "--protect", "0"), 2, "protect: '0' is no length of time"),
        (("--window", 60, "--period", 60, "--protect", "367d"), 1, "at most 366 days"),
        (("--period", 60, "--protect", "10m"), 2, "single ticks"),
    ],
)
def test_what_cannot_be_protected_is_refused(fugu: Fugu, words: tuple[object, ...], code: int, reason: str) -> None:
    done = fugu("plan", "window", *CHAIN, *words)
    assert (done.code, reason in done.err) == (code, True)


def test_quilts_and_points_are_for_single_ticks(fugu: Fugu, tmp_path: Path) -> None:
    quilts = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--adversary", "ignorant", "--window", "5m")
    done = fugu(*quilts, "--period", 1, "--mechanism", "mqm-exact", "--protect", "10m")
    assert (done.code, "mqm-exact is for single ticks" in done.err) == (1, True)
    done = fugu("plan", "measure", tmp_path / "none.toml", "--protect", "1h")
    assert (done.code, "points are planned for single ticks" in done.err) == (2, True)
