"""Sums of homes: reports are kept until a window is settled, one set of it is asked for, once, and its sum released.

A window goes one way: reports come until its deadline. Then its one set is fixed, in the transaction in which later
reports become late for ever. The helper is asked, with the same bytes each minute for a day. Its first answer to this
very set opens it. Everything else loses the window: too few, or no answer. Parts leave this store to nobody; they are
removed with the window. Source: docs/proofs/sums.md, docs/protocol.md.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError, Reason, RefusedError
from fugu.contract.group_frames import (
    NoSum,
    OpeningAnswer,
    OpeningRequest,
    Report,
    numbers,
    pages,
    set_digest,
    signed_total,
)
from fugu.contract.groups import GroupDocument, check_signed
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from gateway.estimates.beliefs import SymbolModel
from gateway.estimates.catalogue import Catalogue
from gateway.loop.recorder import Accounted, Recorder
from gateway.loop.release_part import Releasing
from gateway.parts import Message, Part
from gateway.releases.sums import SumWindow
from gateway.store.engine import LedgerError
from gateway.store.journal import Heard, newest_tick
from gateway.store.store import Store
from gateway.store.sums import Asked, StoredReport

__all__ = ["Reports", "Sums"]


_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 60.0
_DAY_US = 86_400_000_000
_PAGES = 8
"""Pages of a request that are given to the connection at once."""


def _now_us() -> int:
    return time.time_ns() // 1000


class Reports(Part):
    """Takes the reports of devices: what was taken of a round is durable together, and then acknowledged.

    `owe` is told the devices whose watermark has moved, `refused` device and reason of a message that is none, `tell`
    what has come. Counts `report_` with `stored`, `late`, `duplicate` or `conflict`.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        recorder: Recorder,
        counters: Counter[str],
        owe: Callable[[str], None],
        refused: Callable[[str, Reason], None],
        tell: Callable[[Sequence[Heard]], None],
        now_us: Callable[[], int] = _now_us,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._recorder = recorder
        self._counters = counters
        self._owe = owe
        self._refused = refused
        self._tell = tell
        self._now_us = now_us
        self._taken: list[Accounted] = []

    def heard(self, message: Message) -> bool:
        """Take a report."""
        try:
            parsed = message.parsed
        except FuguError:
            return False  # whoever else reads it counts it
        if parsed.kind != "report" or parsed.fleet != self._catalogue.fleet:
            return False
        self._counters["received"] += 1
        try:
            report = Report.decode(message.payload)
            group = self._group(parsed.device, parsed.stream, report)
            self._taken.append(Accounted(parsed.device, parsed.stream, report, group))
        except FuguError as error:
            self._counters[error.reason] += 1
            self._refused(parsed.device, error.reason)
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Keep what was taken, and acknowledge it. Raises DatabaseError: devices send it again."""
        taken, self._taken = self._taken, []
        if not taken:
            return
        with self._store.sums.transaction():
            counted = Counter(map(self._keep, taken))
        # Whoever fails here is sent them again, and finds duplicates.
        self._recorder.account(taken)
        self._counters.update(counted)
        for device, stream, report, group in taken:
            self._catalogue.ran(device, stream, report.policy_version)
            self._owe(device)
            last = group.start + (report.number + 1) * group.length - 1
            self._tell([Heard(device, stream, report.policy_version, last, 0)])

    @property
    def finished(self) -> bool:
        """True if nothing waits to be kept."""
        return not self._taken

    def _group(self, device: str, stream: str, report: Report) -> GroupDocument:
        policy = self._catalogue.find(device, stream, report.policy_version, SymbolModel).policy
        group = next((shared.group for shared in policy.sums if shared.group.name == report.window), None)
        if group is None:
            raise RefusedError(f"policy version {policy.version} has no sum {report.window}", Reason.UNKNOWN_WINDOW)
        wanted = group.digest, group.numbers, device
        if (report.document, len(report.observed), report.sealed.device) != wanted:
            raise RefusedError(f"a report of another document of {report.window}", Reason.WINDOW_MISMATCH)
        if max(report.observed) > group.length:
            raise RefusedError(f"more ticks than window {report.window} has", Reason.WINDOW_MISMATCH)
        if group.start + (report.number + 1) * group.length - 1 > newest_tick(policy.clock, self._now_us()):
            raise RefusedError("the report is of ticks that have not come yet", Reason.FROM_THE_FUTURE)
        return group

    def _keep(self, taken: Accounted) -> str:
        report, through = taken.report, self._store.sums.through(taken.report.document)
        late = through is not None and report.number <= through
        if late or taken.group.due_us(report.number) <= self._now_us():
            return "report_late"
        return f"report_{self._store.sums.add(report, taken.device)}"


class _Sending(NamedTuple):
    asked: Asked
    rest: Iterator[OpeningRequest]


class Sums(Part):
    """Settles windows, asks the helper, and has what opens released; the process that makes releases has this.

    `lost` is told the name of a group and why a window of it has no sum. Counts `sums`, `sums_lost`, `sums_refused`
    (answers that are none), `sums_asked`.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        link: Link,
        releasing: Releasing | None,
        counters: Counter[str],
        lost: Callable[[str, str], None],
        now_us: Callable[[], int] = _now_us,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._link = link
        self._releasing = releasing
        self._counters = counters
        self._lost = lost
        self._now_us = now_us
        self._seconds = seconds
        self._groups: dict[bytes, GroupDocument] = {}
        self._answers: dict[Asked, OpeningAnswer] = {}
        self._again: dict[Asked, float] = {}
        self._sending: _Sending | None = None
        self.topics = (topic_of("group_answer", catalogue.fleet, "+"),)
        self.renew()

    def renew(self) -> None:
        """The catalogue may have changed: policies have other groups."""
        self._groups = self._catalogue.groups()
        if self._releasing is not None:
            self._releasing.also(self._groups.values())

    def connected(self, *, begun_anew: bool) -> None:
        """Ask again: the helper may not have heard."""
        self._again.clear()
        self._sending = None

    def heard(self, message: Message) -> bool:
        """Take note of the first answer to a set that was asked for."""
        try:
            parsed = message.parsed
        except FuguError:
            return False
        if parsed.kind != "group_answer" or parsed.fleet != self._catalogue.fleet:
            return False
        self._counters["received"] += 1
        try:
            self._note(parsed.group, Envelope.decode(message.payload))
        except FuguError as error:
            self._counters[error.reason] += 1
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Do one piece of work: settle, open, or send. Raises DatabaseError, and goes on with the same later."""
        self._settle()
        for asked in self._store.sums.asked():
            group = self._groups.get(asked.document)
            if (answer := self._answers.get(asked)) is not None and group is not None:
                self._open(asked, group, answer)
                del self._answers[asked]
            elif group is None or self._now_us() > group.due_us(asked.number) + _DAY_US:
                self._lose(asked, group, "its helper has not answered for a day")
        self._send()
        self.due = 0.0 if self._sending is not None else self._seconds() + _LOOK_SECONDS

    def details(self) -> dict[str, object]:
        """How many windows wait for their helper."""
        return {"sums_waiting": len(self._again)}

    def _settle(self) -> None:
        """Fix the sets of all windows that are due, in the transaction that makes later reports late."""
        for digest, group in self._groups.items():
            due = (self._now_us() - group.deadline * 1_000_000 - group.epoch_us) // group.period_us
            newest = (due - group.start) // group.length - 1
            if not self._store.sums.waiting(digest, newest):
                continue
            with self._store.sums.transaction():
                waiting = self._store.sums.waiting(digest, newest)
                lost = {number: why for number in waiting if (why := self._fix(digest, group, number))}
                self._store.sums.settle(digest, waiting[-1])  # no further: this machine's clock may be ahead
            for number, why in lost.items():
                self._say_lost(group, number, why)

    def _fix(self, digest: bytes, group: GroupDocument, number: int) -> str:
        """Fix a window's set; or remove its reports, and return why it is not asked for."""
        members: dict[bytes, StoredReport] = {}
        for report in self._store.sums.reports(digest, number):
            members.setdefault(report.sealed.member, report)
        if why := self._unopened(group, number, members.values()):
            self._store.sums.remove(digest, number)
            return why
        sealed = [report.sealed for report in members.values()]
        asked = Asked(digest, number, set_digest(digest, number, sealed))
        self._store.sums.fix(asked, [report.device for report in sealed])
        self._counters["sums_asked"] += 1
        return ""

    def _unopened(self, group: GroupDocument, number: int, members: Collection[StoredReport]) -> str:
        """Why nobody could be told the sum of a window; empty if somebody could."""
        if self._releasing is None:
            return "this gateway has no releases: say releases in its file"
        if len(members) < group.least:
            return f"fewer than {group.least} homes have reported"
        return self._releasing.refusal(_window(group, number, members))

    def _note(self, name: str, envelope: Envelope) -> None:
        answer = OpeningAnswer.decode(envelope.payload)
        asked = Asked(answer.document, answer.number, answer.request)
        group = self._groups.get(answer.document)
        if group is None or asked in self._answers or asked not in self._store.sums.asked():
            return  # of another set, of another gateway, or said once more
        check_signed(envelope, "answer", bytes.fromhex(group.helper))
        if (answer.fleet, answer.group, name) != (group.fleet, group.name, group.name):
            raise RefusedError("an answer of another group", Reason.WINDOW_MISMATCH)
        members, chosen = answer.members, [report.sealed for report in self._store.sums.chosen(*asked[:2])]
        if set_digest(*asked[:2], chosen) != asked.request:  # a home has been forgotten since
            raise RefusedError("an answer about a set that is here no more", Reason.WINDOW_MISMATCH)
        if not answer.reason and not (
            group.least <= len(members) and max(members) < len(chosen) and len(numbers(answer.sums)) == group.numbers
        ):
            raise RefusedError("an answer that is not about the set that was asked for", Reason.WINDOW_MISMATCH)
        self._answers[asked] = answer
        self.due = 0.0

    def _open(self, asked: Asked, group: GroupDocument, answer: OpeningAnswer) -> None:
        if answer.reason:
            self._lose(asked, group, _WHY[answer.reason])
            return
        assert self._releasing is not None  # nothing was asked else
        chosen = self._store.sums.chosen(asked.document, asked.number)
        members = [chosen[i] for i in answer.members]
        parts = zip(*(numbers(member.parts) for member in members), strict=True)
        totals = [signed_total([masks, *part]) for masks, part in zip(numbers(answer.sums), parts, strict=True)]
        observed = [sum(ticks) for ticks in zip(*(member.observed for member in members), strict=True)]
        try:
            self._releasing.release(_window(group, asked.number, members), list(zip(totals, observed, strict=True)))
        except LedgerError as error:
            self._lose(asked, group, str(error))
            return
        self._remove(asked)
        self._counters["sums"] += 1

    def _lose(self, asked: Asked, group: GroupDocument | None, why: str) -> None:
        self._remove(asked)
        if group is not None:
            self._say_lost(group, asked.number, why)

    def _say_lost(self, group: GroupDocument, number: int, why: str) -> None:
        first = group.start + number * group.length
        self._counters["sums_lost"] += 1
        _log.warning("no sum of %s: ticks %d..%d: %s", group.name, first, first + group.length - 1, why)
        self._lost(group.name, why)

    def _remove(self, asked: Asked) -> None:
        with self._store.sums.transaction():
            self._store.sums.remove(asked.document, asked.number)
        self._store.sums.erase()
        self._again.pop(asked, None)
        if self._sending is not None and self._sending.asked == asked:
            self._sending = None

    def _send(self) -> None:
        """Send some pages of the request that is due; in order, because the helper takes them so."""
        if not self._link.connected:
            return
        now = self._seconds()
        waiting = self._store.sums.asked()
        self._again = {asked: self._again.get(asked, now) for asked in waiting}
        if self._sending is None:
            asked = next(
                (request for request in waiting if self._again[request] <= now and request.document in self._groups),
                None,
            )
            if asked is None:
                return
            sealed = [report.sealed for report in self._store.sums.chosen(asked.document, asked.number)]
            if set_digest(asked.document, asked.number, sealed) != asked.request:
                self._lose(asked, self._groups[asked.document], "a home of its set has been forgotten")
                return
            self._sending = _Sending(asked, pages(asked.document, asked.number, sealed))
            self._again[asked] = now + _AGAIN_SECONDS
        topic = topic_of("group_request", self._catalogue.fleet, self._groups[self._sending.asked.document].name)
        for _ in range(_PAGES):
            if (page := next(self._sending.rest, None)) is None:
                self._sending = None
                return
            if self._link.publish(topic, page.encode()) is None:
                self._again[self._sending.asked] = now + 1.0  # from its first page
                self._sending = None
                return


def _window(group: GroupDocument, number: int, members: Iterable[StoredReport]) -> SumWindow:
    return SumWindow(group, number, [(member.sealed.device, member.version) for member in members])


_WHY: dict[NoSum, str] = {
    "too-few": "its helper has too few of these homes among its members",
    "key-gone": "its helper no longer has the key that opens it",
    "not-mine": "its helper has another document",
}
