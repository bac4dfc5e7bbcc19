"""Export, smoothing and learning of a month of many devices beside their peers: python benchmarks/history.py [--json].

A store is filled with the symbols of simulated chains: two states, flipped with 0.25, a tick every ten seconds, frames
of a thousand ticks. All of it runs on one thread of one process, with reading and writing of files. Each peer has the
same symbols as arrays in memory, and writes no more than is said:

- export: beside pyarrow writing the same columns to one file. Bytes are of the Parquet files.
- smooth: beside hmmlearn's `predict_proba` (implementation `scaling`), device by device, without reading and writing.
  Also beside a script that reads the same files by pyarrow, calls that, and writes time, device, tick and probabilities
  to one file.
- learn: the chain, its information, the chains of all devices and the comparison of stretches. The peer is hmmlearn's
  `fit` of the chain alone, of all devices, until an iteration gains less than 0.01 nats, 100 iterations at most.

The best of several runs counts, since others may use the machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from figures import command_line, seconds_of, show
from hmmlearn.hmm import CategoricalHMM

from fugu.chains.model import simulate, stationary_distribution
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import SymbolFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from gateway.estimates.catalogue import Catalogue
from gateway.history.export import export_history
from gateway.history.learning import learn_class
from gateway.history.smoothing import smooth_history
from gateway.history.tasks import Source
from gateway.loop.recorder import Recorder
from gateway.store.journal import Arrivals, ReceivedFrame
from gateway.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.histories import ALWAYS

_CHAIN = np.array([[0.95, 0.05], [0.1, 0.9]])
_TABLE = NoiseTable.binary(SCALE // 4, SCALE // 4)
_EMISSION = np.array(_TABLE.weights()) / SCALE
_CLOCK = Clock(epoch_us=1_790_812_800_000_000, period_us=10_000_000)
_MONTH = 30 * 8640
_FRAME = 1000


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(figures(Path(folder), options.devices, options.days * 8640, options.runs), as_json=options.json)


def figures(folder: Path, devices: int, ticks: int, runs: int) -> dict[str, object]:
    """Measurements by name."""
    distribution = stationary_distribution(_CHAIN)
    symbols = [
        simulate(ticks, distribution, _CHAIN, _EMISSION, np.random.default_rng(device)).symbols
        for device in range(devices)
    ]
    store, every = folder / "store.db", devices * ticks
    fill(store, symbols)
    numbers = (f"{i}" for i in range(10**6))
    exported = folder / "exported"
    export_history(store, None, ALWAYS, exported)
    source, from_store = Source(exported, ALWAYS), Source(store, ALWAYS)
    smooth_history(source, folder / "warm")
    estimates = pq.read_table(exported / "estimates")

    def peer(**more: Any) -> CategoricalHMM:
        model = CategoricalHMM(2, implementation="scaling", init_params="", params="st", **more)
        model.n_features, model.startprob_, model.transmat_ = 2, np.full(2, 0.5), np.array([[0.8, 0.2], [0.2, 0.8]])
        model.emissionprob_ = _EMISSION
        return model

    def fit() -> CategoricalHMM:
        return peer(n_iter=100, tol=1e-2).fit(np.concatenate(columns), [ticks] * devices)

    fixed = peer()
    fixed.transmat_, fixed.startprob_ = _CHAIN, distribution
    columns = [symbol[:, None] for symbol in symbols]

    def script() -> None:
        table = pq.read_table(exported / "symbols", columns=["time", "device", "tick", "symbol"])
        names = table.column("device").combine_chunks().cast(pa.string())
        tables = []
        for device in range(devices):
            mine = table.filter(pc.equal(names, f"device-{device}")).sort_by("tick")
            probabilities = fixed.predict_proba(mine.column("symbol").to_numpy().astype(np.int64)[:, None])
            offsets = pa.array(np.arange(len(mine) + 1, dtype=np.int32) * 2)
            lists = pa.ListArray.from_arrays(offsets, pa.array(probabilities.astype(np.float32).ravel()))
            tables.append(mine.append_column("probabilities", lists))
        pq.write_table(pa.concat_tables(tables), folder / next(numbers), compression="zstd")

    tasks: dict[str, Callable[[], Any]] = {
        "export": lambda: export_history(store, None, ALWAYS, folder / next(numbers)),
        "write": lambda: pq.write_table(estimates, folder / next(numbers), compression="zstd"),
        "smooth": lambda: smooth_history(source, folder / next(numbers)),
        "smooth store": lambda: smooth_history(from_store, folder / next(numbers)),
        "script": script,
        "hmmlearn smooth": lambda: [fixed.predict_proba(column) for column in columns],
        "learn": lambda: learn_class(source),
        "hmmlearn learn": fit,
    }
    best = {name: min(seconds_of(run) for _ in range(runs)) for name, run in tasks.items()}
    size, small = (
        sum(path.stat().st_size for path in folder.rglob("*.parquet")) for folder in (exported, exported / "symbols")
    )
    model = learn_class(source)
    assert model.chains is not None
    away = np.abs(np.array(model.transition) - fit().transmat_).max()
    return {
        "ticks": every,
        "export: ticks a second, symbols and estimates": round(every / best["export"]),
        "export: bytes a second": round(size / best["export"]),
        "export: bytes a tick, symbols": round(small / every, 3),
        "export: bytes a tick, all tables": round(size / every, 3),
        "export: time over pyarrow writing the estimates alone to one file": round(best["export"] / best["write"], 2),
        "smooth: ticks a second, from Parquet to Parquet": round(every / best["smooth"]),
        "smooth: ticks a second, from the store to Parquet": round(every / best["smooth store"]),
        "smooth: time over a script with pyarrow and hmmlearn": round(best["smooth"] / best["script"], 2),
        "smooth: time over hmmlearn, which reads and writes nothing": round(
            best["smooth"] / best["hmmlearn smooth"], 2
        ),
        "learn: ticks a second, from Parquet": round(every / best["learn"]),
        "learn: time over hmmlearn's fit": round(best["learn"] / best["hmmlearn learn"], 2),
        "learn: largest difference of a rate from hmmlearn's": float(f"{away:.2g}"),
    }


def fill(path: Path, symbols: list[np.ndarray[Any, np.dtype[np.int64]]]) -> None:
    """Store the symbols of a device each."""
    promise = Guarantee(epsilon=50.0, adversary="informed")
    catalogue = Catalogue("home")
    for device in range(len(symbols)):
        catalogue.add(
            Policy(
                fleet="home",
                device=f"device-{device}",
                stream="hr",
                version=1,
                clock=_CLOCK,
                frame_ticks=_FRAME,
                discretiser=Thresholds(edges=(1.0,), states=("below", "above")),
                table=_TABLE,
                chains=BinaryChains(q=(0.02, 0.2), r=(0.05, 0.3)),
                guarantee=promise,
            )
        )
    store = Store(path)
    recorder = Recorder(store, catalogue, 8, Counter())
    for device, symbol in enumerate(symbols):
        parts = [symbol[first : first + _FRAME].astype(np.uint8) for first in range(0, len(symbol), _FRAME)]
        frames = [SymbolFrame(1, _FRAME * i - 1, _FRAME * i, part.tobytes()) for i, part in enumerate(parts)]
        received = [ReceivedFrame(f"device-{device}", "hr", frame) for frame in frames]
        recorder.record(Arrivals.of(recorder.streams, received))
        recorder.seal(now=True)
    store.close()


if __name__ == "__main__":
    main()
