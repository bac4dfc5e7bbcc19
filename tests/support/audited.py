"""For audits: policies whose promise is as tight as their noise, and brokers' folders."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary, exp_up
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.privacy.randomised_response import calibrate
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import Account, Settings
from tests.support.scenes import policy

__all__ = ["CHAINS", "WINDOWS", "alone", "broker_of", "planned", "reader"]

CHAINS = BinaryChains(q=(0.05, 0.1), r=(0.06, 0.2))
WINDOWS = (
    Window(name="high", length=20, stride=10, states=(1,), scale="400"),
    Window(name="bars", length=15, stride=15, states="histogram", scale="700/3"),
)


@cache
def planned(
    chains: ChainClass = CHAINS,
    adversary: Adversary = "informed",
    windows: tuple[Window, ...] = (),
    epsilon: float = 1.0,
) -> Policy:
    """A policy with the most telling table that keeps its guarantee beside its windows."""
    beside = sum((window.rate for window in windows), Fraction(0))
    audited_policy = policy(
        table=calibrate(chains, epsilon, adversary, windows=windows).table, chains=chains, windows=windows
    )
    update: dict[str, Any] = {"guarantee": Guarantee(epsilon=epsilon, adversary=adversary)}
    if windows:
        alone = chains.ratio_loss(exp_up(beside), exp_up(beside), adversary).epsilon
        update["windows_guarantee"] = Guarantee(epsilon=alone, adversary=adversary)
    audited_policy = audited_policy.model_copy(update=update)
    audited_policy.verify()
    return audited_policy


def alone(policy: Policy, part: str) -> Policy:
    """The same with its symbols, or its windows, alone: each is audited by itself."""
    without: dict[str, Any] = {"windows": ()} if part == "symbols" else {"table": None, "frame_ticks": 1}
    return policy.model_copy(update={"windows_guarantee": None, **without})


def broker_of(folder: Path, *accounts: Account) -> Path:
    """A broker's folder with these accounts."""
    now = datetime.now(UTC)
    deployed = BrokerFolder.create(folder, Settings(fleet="home", hosts=("gw.example",), port=8883), now)
    for account in accounts:
        deployed.add(account, now)
    return folder


def reader(
    name: str, *audiences: str, epsilon: float = 1.0, adversary: Adversary = "ignorant", seconds: int = 0
) -> Account:
    """An account of audiences, and its limit."""
    limit: dict[str, Any] = {"epsilon": epsilon, "adversary": adversary, "seconds": seconds}
    return Account(name=name, role="reader", audiences=audiences, **limit)
