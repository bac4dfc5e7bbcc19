"""Published scales for counts over randomised symbols: the chain's allowance, reached through the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.quilts import mqm_exact
from gateway.releases.allowance import amplified_loss

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mqm.json").read_text())["7_sanitised"]
THETA = {"theta1": ((0.9, 0.1), (0.4, 0.6)), "theta2": ((0.8, 0.2), (0.3, 0.7))}


@pytest.mark.parametrize("key", [key for key in GOLDEN if "|eps=" in key])
def test_scales_over_symbols(key: str) -> None:
    """A scale of 0: the table alone does not lose more than the allowance."""
    name, rho, epsilon = key.split("|")
    threshold = round(float(rho[4:]) * SCALE)
    table = NoiseTable.binary(threshold, threshold)
    chains = (MarkovChain.stationary(THETA[name]),)
    allowance = ChainAccountant(chains).allowance(float(epsilon[4:]))
    quilts = mqm_exact(chains, None, float(epsilon[4:])).scale
    for column, rate in (("s_coupling_rr", allowance), ("s_mqm_rr", 1 / quilts)):
        scale = GOLDEN[key][column]
        told = amplified_loss(table, 1 / scale if scale else math.inf)
        assert told == pytest.approx(rate, rel=3e-9) if scale else told < rate, column
    for column, rate in (("s_coupling_plain", allowance), ("s_mqm_plain", 1 / quilts)):
        assert 1 / rate == pytest.approx(GOLDEN[key][column], rel=1e-9), column
