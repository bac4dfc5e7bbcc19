"""Stores that hold the symbols of simulated chains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fugu.chains.model import simulate, stationary_distribution
from fugu.contract.chains import BoundedChains
from fugu.contract.frames import SymbolFrame, symbol_bits
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock
from fugu.contract.sentences import LAST_US
from gateway.history.stored import Span
from tests.support.scenes import STICKY, Scene, policy

CLOCK = Clock(epoch_us=1_700_000_000_000_000, period_us=10_000_000)
TABLE = NoiseTable.binary(SCALE // 4, SCALE // 4)
ALWAYS = Span(0, LAST_US)
CHAIN = np.array([[0.95, 0.05], [0.1, 0.9]])


def symbols_of(
    ticks: int, seed: int, chain: npt.NDArray[np.float64] = CHAIN, table: NoiseTable = TABLE
) -> npt.NDArray[np.int64]:
    """The symbols (ticks,) of a chain that a table randomises."""
    emission = np.array(table.weights()) / SCALE
    return simulate(ticks, stationary_distribution(chain), chain, emission, np.random.default_rng(seed)).symbols


def fill_store(
    path: Path,
    devices: Sequence[str],
    ticks: int,
    *,
    chains: Sequence[npt.NDArray[np.float64]] = (CHAIN,),
    table: NoiseTable = TABLE,
    frame: int = 1000,
) -> None:
    """Store frames of a stream `hr` of some devices, each of whose states follow one of some chains, in turn."""
    chain_class = STICKY if table.states == 2 else BoundedChains(states=table.states, odds_ratio=9.0)
    fleet = tuple(
        policy(1, device=device, table=table, chains=chain_class).model_copy(update={"clock": CLOCK})
        for device in devices
    )
    scene = Scene(path, policies=fleet)
    for i, device in enumerate(devices):
        symbols = symbols_of(ticks, i, chains[i % len(chains)], table).astype(np.uint8)
        bits = symbol_bits(table.symbols)
        some = [
            SymbolFrame(1, first - 1, first, symbols[first : first + frame].tobytes(), bits=bits)
            for first in range(0, ticks, frame)
        ]
        scene.record(*some, device=device)
    scene.store.close()
