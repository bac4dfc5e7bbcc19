"""The gateway that several benchmarks measure, and policies of its binary streams."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.mqtt import Broker
from gateway.config import GatewayConfig
from gateway.loop.process import run

__all__ = ["FLEET", "STREAM", "binary_policy", "run_gateway", "write_policies"]

FLEET, STREAM = "bench", "hr"


def binary_policy(device: str, frame_ticks: int, epoch_us: int, period_us: int = 1_000_000) -> Policy:
    """Return the policy of a device's only stream, of two states."""
    return Policy(
        fleet=FLEET,
        device=device,
        stream=STREAM,
        version=1,
        clock=Clock(epoch_us=epoch_us, period_us=period_us),
        frame_ticks=frame_ticks,
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        table=NoiseTable.binary(2_050_000_000, 2_050_000_000),
        chains=BinaryChains(q=(0.2, 0.2), r=(0.35, 0.35)),
        guarantee=Guarantee(epsilon=1.0, adversary="universal"),
    )


def write_policies(folder: Path, policies: Iterable[Policy]) -> None:
    """Write policies of devices where `run_gateway` finds them."""
    (folder / "policies").mkdir()
    for policy in policies:
        (folder / "policies" / f"{policy.device}.json").write_text(policy.to_json())


def run_gateway(broker: Broker, folder: Path, fleet: str = FLEET) -> int:
    """Be the gateway of a folder with policies until this process is ended; return the exit code."""
    return run(GatewayConfig(fleet=fleet, broker=broker, store=folder / "s.sqlite", policies=folder / "policies"))
