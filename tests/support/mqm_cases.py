"""The running examples of the paper on Markov quilts, and the golden numbers, shared by the tests of this room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.privacy.chain_class import MarkovChain

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "mqm.json").read_text())
CHAINS = {
    "theta1": MarkovChain(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([1.0, 0.0])),
    "theta2": MarkovChain(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0.9, 0.1])),
}
CHAINS |= {f"{name}_stationary": MarkovChain.stationary(chain.transition) for name, chain in CHAINS.items()}
SHORT = {"th1": "theta1", "th2": "theta2", "th1stat": "theta1_stationary", "th2stat": "theta2_stationary"}


def close(value: float) -> Any:
    """Nine digits of a golden number."""
    return pytest.approx(value, rel=1e-9)
