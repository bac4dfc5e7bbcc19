"""Makes one release: symbols from the store, noise, the ledger's entry. Publishing is somebody else's.

Work is done a device at a time, so that the caller can go on with other things in between. Nothing is drawn and nothing
is charged before the last step, which is one transaction of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from contract.noise_table import NoiseTable
from contract.release_frames import Mechanism, ReleaseFrame, encode_release
from gateway.release.amplification import charge, float_above, smallest_scale
from gateway.release.charges import nats, units_above
from gateway.release.entries import SITE, Entry, Key, LedgerError, Release
from gateway.release.inversion import ReleaseError
from gateway.release.ledger import Ledger
from gateway.release.statistics import Tally, estimate, noisy
from gateway.service.kinds.symbol_model import SymbolModel
from gateway.service.policies import Catalogue
from gateway.service.release_jobs import Job
from gateway.service.store import Store

__all__ = ["EmptyWindowError", "Maker", "finish"]

_MECHANISM: Mechanism = "discrete-laplace"
_NO_CHARGE = "post-processing: this audience sees the symbols"


class EmptyWindowError(ReleaseError):
    """There is nothing to count."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What releases are made with.

    Attributes:
        store: holds the symbols.
        catalogue: the policies that made them.
        ledger: what is charged.
        draw: uniform integers from the operating system, draw(below) in range(below).
        now_us: the time in microseconds of Unix time.
    """

    store: Store
    catalogue: Catalogue
    ledger: Ledger
    draw: Callable[[int], int]
    now_us: Callable[[], int]

    def make(self, job: Job, first: int, progress: int | None = None) -> Generator[None, None, Entry]:
        """Release the window that begins at a tick; yields after each device, returns the reserved entry.

        Args:
            job: what to release.
            first: first tick of the window.
            progress: where the schedule goes on, if this is part of one.

        Raises:
            EmptyWindowError: the window has no symbols.
            ReleaseError: its symbols do not answer the query.
            LedgerError: the ledger refuses.
            sqlite3.Error: a file cannot be used.
        """
        tally = Tally(job.query)
        tables: dict[str, set[NoiseTable]] = {}
        for device in job.devices:
            if used := self._count(job, device, first, tally):
                tables[device] = used
            yield
        if not tables:
            raise EmptyWindowError(
                f"release {job.name}: no tick of {first}..{first + job.plan.length - 1} has a symbol"
            )
        scale = self._scale(job, tables, tally.sensitivity)
        spread = float_above(tally.sensitivity / scale)
        to_site = job.plan.audience == SITE
        charges = {
            device: 0 if to_site else max(units_above(charge(table, spread)) for table in used)
            for device, used in tables.items()
        }
        release = Release(
            name=job.name,
            audience=job.plan.audience,
            stream=job.plan.stream,
            first=first,
            last=first + job.plan.length - 1,
            charges=charges,
            mechanism=_MECHANISM,
            scale=str(scale),
            topic=job.topic,
            reason=_NO_CHARGE if to_site else "",
        )
        return self.ledger.reserve(
            release,
            lambda number: encode_release(self._frame(job, release, tally, scale, number)),
            time_us=self.now_us(),
            progress=progress,
        )

    def _count(self, job: Job, device: str, first: int, tally: Tally) -> set[NoiseTable]:
        """Count a device's symbols, those of each table apart; returns the tables."""
        stream, length = job.plan.stream, job.plan.length
        number = self.store.stream_id(device, stream)
        ticks: dict[NoiseTable, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        frames = [] if number is None else self.store.symbols.holding(number, first, first + length - 1)
        for frame in frames:
            policy = self.catalogue.recall(device, stream, frame.policy_version, SymbolModel).policy
            if policy.discretiser.states != job.labels:
                raise ReleaseError(
                    f"release {job.name}: ticks {frame.first}..{frame.last} of {device}/{stream} have other states"
                )
            symbols = np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64)
            low, high = max(frame.first, first), min(frame.last, first + length - 1)
            assert policy.table is not None  # there are symbols
            of_table = ticks.setdefault(policy.table, np.full(length, -1, dtype=np.int64))
            of_table[low - first : high - first + 1] = symbols[low - frame.first : high - frame.first + 1]
        for table, laid_out in ticks.items():
            tally.add(laid_out, table)
        return {table for table, laid_out in ticks.items() if laid_out.max() >= 0}

    def _scale(self, job: Job, tables: dict[str, set[NoiseTable]], sensitivity: int) -> Fraction:
        if job.plan.scale is not None:
            return Fraction(job.plan.scale)
        assert job.plan.share is not None
        accounts = [self.ledger.account(Key(device, job.plan.stream, job.plan.audience)) for device in tables]
        free = min(account.allowance - account.base for account in accounts)
        budget = int(Fraction(job.plan.share) * free)
        if budget < 1:
            raise LedgerError(
                f"release {job.name}, audience {job.plan.audience}: nothing of the allowance is left beside the "
                "windows that devices release themselves"
            )
        return smallest_scale(set.union(*tables.values()), sensitivity, budget)

    def _frame(self, job: Job, release: Release, tally: Tally, scale: Fraction, number: int) -> ReleaseFrame:
        """Draw the noise; called once for an entry, when nothing stands against it any more."""
        found = estimate(job.query, noisy(tally.parts, scale, self.draw), scale, job.plan.confidence)
        return ReleaseFrame(
            name=job.name,
            stream=job.plan.stream,
            audience=job.plan.audience,
            query=job.query.kind,
            states=job.states,
            devices=len(release.charges),
            first=release.first,
            length=job.plan.length,
            observed=tally.ticks,
            values=tuple(found.values.tolist()),
            standard_errors=tuple(found.standard_errors.tolist()),
            low=tuple(found.low.tolist()),
            high=tuple(found.high.tolist()),
            confidence=job.plan.confidence,
            epsilon=job.audience.epsilon,
            adversary=job.audience.adversary,
            mechanism=_MECHANISM,
            scale=str(scale),
            charge=nats(max(release.charges.values())),
            entry=number,
        )


def finish(work: Generator[None, None, Entry]) -> Entry:
    """Do all the work at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            entry: Entry = done.value
            return entry
