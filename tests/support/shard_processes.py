"""Processes of a gateway in shards, each started by itself as `fugu gateway run --shard`, and what they have done."""

from __future__ import annotations

import signal
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import ReleaseFrame
from gateway.releases.audit import verify
from gateway.releases.ledger import Ledger
from gateway.store.location import Server, ledger_beside
from gateway.store.store import Store
from tests.support.brokers import Mosquitto
from tests.support.gateway_files import gateway_file
from tests.support.processes import Program
from tests.support.release_scenes import Public

__all__ = ["Process", "check_releases", "check_store"]


class Process(Program):
    """`fugu gateway run` with a role."""

    def __init__(self, folder: Path, broker: Mosquitto, server: Server, role: str, name: str = "first") -> None:
        log = folder / f"{role.replace('/', '-of-')}-{name}.log"
        files = {"policies": "policies", "releases": "releases.toml"}
        file = gateway_file(folder / "gateway.toml", broker.port, store=server, **files)
        super().__init__(log, "fugu", "gateway", "run", file, "--verbose", "--shard", role)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def has_ended(self) -> bool:
        return self.process.poll() is not None


def check_store(where: Server, sent: dict[str, list[SymbolFrame]]) -> int:
    """See that every frame is stored once, and says what was sent; returns how many ticks."""
    ticks = 0
    for name, frames in sent.items():
        with closing(Store(where)) as store:
            number = store.stream_id(name, "hr")
            assert number is not None, name
            stored = store.symbols.holding(number, 0, frames[-1].last)
        assert b"".join(frame.symbols for frame in stored) == b"".join(frame.symbols for frame in frames), name
        assert all(frame.first == before.last + 1 for before, frame in pairwise(stored)), name
        ticks += frames[-1].last + 1
    return ticks


def check_releases(where: Server, public: Public) -> list[ReleaseFrame]:
    """See that the ledger has each release that was published, once, and nothing else; returns them."""
    payloads = list(dict.fromkeys(public.payloads))  # the newest is published again at every start
    released = [ReleaseFrame.decode(payload) for payload in payloads]
    assert len({frame.first for frame in released}) == len(released)
    with closing(Ledger(ledger_beside(where))) as ledger:
        published = {frame.entry: payload for frame, payload in zip(released, payloads, strict=True)}
        assert verify(ledger, published).problems == ()
        assert len(ledger.entries()) == len(released) > 0
    return released
