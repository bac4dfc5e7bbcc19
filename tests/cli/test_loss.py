"""`fugu check loss` and `fugu check windows`: the golden losses, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fugu

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "bdp.json").read_text())
TIERS = {"ignorant": "ln_T0", "informed": "ln_T1", "universal": "ln_T2"}


@pytest.mark.parametrize("adversary", TIERS)
@pytest.mark.parametrize("case", GOLDEN["forward"], ids=lambda case: f"q{case['q']}-r{case['r']}-{case['rho0']}")
def test_golden_losses(fugu: Fugu, case: dict[str, Any], adversary: str) -> None:
    noise = ("--rho0", case["rho0"], "--rho1", case["rho1"])
    done = fugu("check", "loss", "--q", case["q"], "--r", case["r"], *noise, "--adversary", adversary, "--json")
    assert done.code == 0
    document = done.json()
    expected = case["dir0"][TIERS[adversary]], case["dir1"][TIERS[adversary]]
    assert (document["epsilon_01"], document["epsilon_10"]) == pytest.approx(expected, abs=1e-9)
    assert document["epsilon"] == max(document["epsilon_01"], document["epsilon_10"])
    assert document["adversary"] == adversary
    assert document["bound"]


@pytest.mark.long
def test_the_paper_s_noise_really_loses_more(fugu: Fugu) -> None:
    """The published noise for epsilon 4 on the recording N10."""
    paper = fugu("plan", "stream", "--q", ".0893", "--r", ".1092", "--epsilon", 4, "--adversary", "ignorant", "--json")
    noise = ("--rho0", paper.json()["rho0"], "--rho1", paper.json()["rho1"])
    done = fugu("check", "loss", "--q", ".0893", "--r", ".1092", *noise, "--json")
    assert done.json()["epsilon"] == pytest.approx(4.681, abs=5e-4)


def test_fractions_are_read_exactly(fugu: Fugu) -> None:
    done = fugu("check", "loss", "--q", "1/2", "--r", ".5", "--rho0", "1/3", "--rho1", "1/3")
    assert done.code == 2
    done = fugu("check", "loss", "--q", ".5", "--r", ".5", "--rho0", "1/3", "--rho1", "1/3", "--json")
    assert done.json()["epsilon"] == pytest.approx(0.6931471805599453, abs=1e-15)


def test_an_interval_loses_what_its_stickiest_chain_loses(fugu: Fugu) -> None:
    noise = ("--rho0", ".4", "--rho1", ".4", "--json")
    wide = fugu("check", "loss", "--q", ".1:.3", "--r", ".2:.25", *noise).json()
    point = fugu("check", "loss", "--q", ".1", "--r", ".2", *noise).json()
    assert wide == point


def test_symbols_with_swapped_names_lose_the_same(fugu: Fugu) -> None:
    chain = ("--q", ".2", "--r", ".35", "--json")
    plain = fugu("check", "loss", *chain, "--rho0", ".3", "--rho1", ".2").json()
    swapped = fugu("check", "loss", *chain, "--rho0", ".7", "--rho1", ".8").json()
    assert swapped["epsilon"] == pytest.approx(plain["epsilon"], abs=1e-14)


def test_for_people(fugu: Fugu) -> None:
    done = fugu("check", "loss", "--q", ".2", "--r", ".35", "--rho0", ".3", "--rho1", ".3")
    assert done.out.startswith("epsilon 2.159141938 (informed adversary;")
    assert "1.941933623" in done.out


@pytest.mark.long
def test_releases_about_windows(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"transition": [[0.99, 0.01], [0.65, 0.35]], "initial": [0.01, 0.99]}))
    words = ("check", "windows", "--model", file, "--release", "2:1:.125", "--release", "3:1:.142857142857143:count")
    document = fugu(*words, "--json").json()
    assert document["start"] == "as given"
    assert [release["scale"] for release in document["releases"]] == [0.125, 0.142857142857143]
    rows = {row["name"]: row["epsilon"] for row in document["bounds"]}
    really_lost = 11.470608960483183  # every path added up: tests/privacy/test_composition_theorems.py
    assert rows["chain accountant, ignorant"] >= really_lost * (1.0 - 1e-9)
    assert min(epsilon for epsilon in rows.values() if epsilon is not None) == rows["chain accountant, ignorant"]
    table = fugu(*words).out
    assert "every tick in full" in table
    assert "as given start" in table
    anyhow = fugu(*words, "--start", "any", "--json").json()
    assert anyhow["start"] == "any"


def test_releases_that_are_none(fugu: Fugu) -> None:
    chain = ("check", "windows", "--q", 0.1, "--r", 0.4)
    for release, said in (
        ("1:6", "a release is FIRST:LENGTH:SCALE[:QUERY], got '1:6'"),
        ("0:6:1", "the first tick and the length of a release are whole numbers from 1 on, got '0:6:1'"),
        ("1:6:1:mean", "query must be one of "),
        ("1:6:x", "scale must be a number, got 'x'"),
    ):
        done = fugu(*chain, "--release", release)
        assert done.code == 2
        assert done.err.startswith(f"fugu: {said}")
    assert fugu(*chain, "--release", "1:6:-1").code == 1
    assert fugu(*chain).code == 2
    assert fugu(*chain, "--release", "20000:6:1", "--start", "any").code == 1
