"""Makes one release: symbols or windows from the store, noise, the ledger's entry. Publishing is somebody else's.

Work is done a device at a time, so that the caller can go on with other things in between. Nothing is drawn and nothing
is charged before the last step, which is one transaction of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction

from fugu.contract.mechanisms import ALONE
from fugu.contract.release_frames import ReleaseFrame, release_unit
from gateway.releases.allowance import WholeWindow, moved_by_all
from gateway.releases.amplification import charge, float_above, smallest_scale
from gateway.releases.charges import nats, units_above, units_below
from gateway.releases.counts import Counting, Counts
from gateway.releases.entries import SITE, Drawn, Entry, Key, LedgerError, Release, canonical
from gateway.releases.inputs import Inputs, Noisy, Question, canonical_table
from gateway.releases.jobs import Job
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import ReleaseError

__all__ = ["EmptyWindowError", "Maker", "finish"]

_NO_CHARGE = "post-processing: this audience sees the symbols"
_CHARGED_BEFORE = "counted by devices: the base of their accounts holds it"


class EmptyWindowError(ReleaseError):
    """There is nothing to count."""


@dataclass(frozen=True, slots=True)
class Maker:
    """What releases are made with.

    Attributes:
        counting: counts symbols.
        ledger: what is charged.
        draw: uniform integers from the operating system, draw(below) in range(below).
        now_us: the time in microseconds of Unix time.
    """

    counting: Counting
    ledger: Ledger
    draw: Callable[[int], int]
    now_us: Callable[[], int]

    def make(self, job: Job, first: int, progress: int | None = None) -> Generator[bool, None, Entry]:
        """Release the window that begins at a tick; yields whether it waits for others, returns the reserved entry.

        Args:
            job: what to release.
            first: first wall tick of the window.
            progress: where the schedule goes on, if this is part of one.

        Raises:
            EmptyWindowError: the window has no symbols, and no counts.
            ReleaseError: its symbols do not answer the query.
            LedgerError: the ledger refuses.
            DatabaseError: a file cannot be used.
        """
        made = yield from self.counting.count(job.question, first)
        if not made.tables and not made.windows:
            raise EmptyWindowError(
                f"release {job.name}: no tick of {first}..{first + job.plan.length - 1} has a symbol or a count"
            )
        basis = self._basis(job, made) if job.mechanism in ALONE else None
        yield False
        inputs = made.inputs
        scale = self._scale(job, made, inputs, basis) if made.tables else Fraction(1)
        spread = float_above(inputs.sensitivity / scale)
        to_site = job.plan.audience == SITE
        charges = dict.fromkeys((*made.windows, *made.tables), 0)
        if basis is not None:
            charges = dict.fromkeys(charges, units_below(job.audience.epsilon))
        elif not to_site:
            for device, used in made.tables.items():
                charges[device] = max(units_above(charge(table, spread)) for table in used)
        release = Release(
            name=job.name,
            audience=job.plan.audience,
            stream=job.plan.stream,
            first=first,
            last=first + job.plan.length - 1,
            charges=charges,
            shifts=made.shifts,
            mechanism=job.mechanism,
            noise=inputs.noise,
            scale=str(inputs.largest_scale(scale)),
            topic=job.topic,
            basis="" if basis is None else basis.model_dump_json(),
            reason="" if min(charges.values()) else _NO_CHARGE if to_site else _CHARGED_BEFORE,
        )
        return self.ledger.reserve(
            release,
            lambda number: self._drawn(job, release, made.question, inputs.with_noise(scale, self.draw), number),
            time_us=self.now_us(),
            progress=progress,
        )

    def _basis(self, job: Job, made: Counts) -> WholeWindow:
        """The parameters of the noise of a mechanism that does not compose."""
        if job.mechanism == "wasserstein":
            return WholeWindow(symbols=tuple(made.counted.values()))
        numbers = max(part.counts.size for part in made.tally.parts)
        return WholeWindow(moved=moved_by_all(job.query.kind, numbers, job.plan.length))

    def _scale(self, job: Job, made: Counts, inputs: Inputs, basis: WholeWindow | None) -> Fraction:
        if basis is not None:
            return basis.scale(job.audience.epsilon)
        if job.plan.scale is not None:
            return Fraction(job.plan.scale)
        assert job.plan.share is not None
        accounts = [self.ledger.account(Key(device, job.plan.stream, job.plan.audience)) for device in made.tables]
        free = min(account.allowance - account.base for account in accounts)
        budget = int(Fraction(job.plan.share) * free)
        if budget < 1:
            raise LedgerError(
                f"release {job.name}, audience {job.plan.audience}: nothing of the allowance is left beside the "
                "windows that devices release themselves"
            )
        return smallest_scale(set.union(*made.tables.values()), inputs.sensitivity, budget)

    def _drawn(self, job: Job, release: Release, question: Question, drawn: Noisy, number: int) -> Drawn:
        """Make the message to publish; called once for an entry, when nothing stands against it any more."""
        tables = dict.fromkeys(part.table for part in drawn.counts)
        return Drawn(
            _frame(job, release, drawn, number).encode(),
            canonical(question.document()),
            canonical(drawn.document()),
            tuple(map(canonical_table, tables)),
        )


def _frame(job: Job, release: Release, drawn: Noisy, number: int) -> ReleaseFrame:
    found, ticks = drawn.answer(job.query, job.plan.confidence)
    return ReleaseFrame(
        name=job.name,
        stream=job.plan.stream,
        audience=job.plan.audience,
        query=job.query.kind,
        states=job.states,
        devices=len(release.charges),
        first=release.first,
        length=job.plan.length,
        observed=ticks,
        values=tuple(found.values.tolist()),
        standard_errors=tuple(found.standard_errors.tolist()),
        low=tuple(found.low.tolist()),
        high=tuple(found.high.tolist()),
        unit=release_unit(job.query.kind),
        confidence=job.plan.confidence,
        epsilon=job.audience.epsilon,
        adversary=job.audience.adversary,
        mechanism=release.mechanism,
        noise=release.noise,
        scale=release.scale,
        charge=nats(max(release.charges.values())),
        entry=number,
        time=job.time_of(release.first + job.plan.length),
        since=job.time_of(release.first),
        useful=job.useful,
    )


def finish(work: Generator[bool, None, Entry]) -> Entry:
    """Do all the work at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            entry: Entry = done.value
            return entry
