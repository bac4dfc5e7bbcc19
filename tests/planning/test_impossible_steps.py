"""Known chains with an impossible step: the device's check of the informed is loose, and the plan says so."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from contract.chains import FiniteChains
from contract.guarantee import ratio_loss
from gateway.planning.chain_source import loosely_checked
from gateway.privacy.accountant import ChainAccountant
from gateway.privacy.chain_class import MarkovChain
from tests.support.command import runner

STEPS = ((0.9, 0.1, 0.0), (0.05, 0.9, 0.05), (0.0, 0.1, 0.9))
POSSIBLE = ((0.9, 0.07, 0.03), (0.02, 0.9, 0.08), (0.05, 0.05, 0.9))


def test_a_device_needs_several_times_the_noise_that_the_accountant_proves_enough() -> None:
    rate = ChainAccountant((MarkovChain.stationary(STEPS),)).allowance(1.0, "informed")
    device = ratio_loss(FiniteChains(transitions=(STEPS,)), *(Fraction(math.exp(rate / 3.0)),) * 2, "informed")
    assert device.epsilon > 1.0


def test_only_such_plans_are_warned_of() -> None:
    assert loosely_checked(FiniteChains(transitions=(STEPS,)), "informed")
    assert not loosely_checked(FiniteChains(transitions=(STEPS,)), "ignorant")
    assert not loosely_checked(FiniteChains(transitions=(POSSIBLE,)), "informed")


@pytest.mark.long
def test_the_plan_of_a_window_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.json"
    model.write_text(json.dumps({"transition": STEPS, "initial": "stationary"}))
    done = runner(capsys)("plan", "window", "--model", model, "--epsilon", "1", "--window", "100", "--count", "1")
    assert done.code == 0
    assert "a step of these chains is impossible" in done.err
