"""Sums of homes: reports are kept until their window is settled, then one set of them is opened, and its sum released.

A window goes one way: reports come until its deadline. Then its one set is fixed, in the transaction in which later
reports become late for ever. The helper is asked to open the set, with the same bytes each minute for a day. Its first
answer to this very set opens it. In every other case the window is lost: too few reports, or no answer. The shares in
reports never leave this store; they are removed with the window. Source: docs/proofs/sums.md, docs/protocol.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError, Reason, RefusedError
from fugu.contract.group_frames import (
    MAX_REPORTS,
    NoSum,
    OpeningAnswer,
    OpeningRequest,
    Report,
    set_digest,
    signed_total,
    split_pages,
    unpack_numbers,
)
from fugu.contract.groups import GroupDocument, check_signed
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import topic_of
from gateway.estimates.beliefs import SymbolModel
from gateway.loop.recorder import DeviceReport, Recorder
from gateway.loop.release_part import ReleasePart
from gateway.parts import Loop, Message, Part
from gateway.releases.sums import SumWindow
from gateway.store.engine import LedgerError
from gateway.store.journal import NewestFrame, newest_tick
from gateway.store.sums import Opening, StoredReport

__all__ = ["Reports", "Sums"]


_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 60.0
_DAY_US = 86_400_000_000
_PAGES = 8
"""Pages of a request that are published in a round."""


class Reports(Part):
    """Takes the reports of devices: those of a round become durable together, and are then acknowledged.

    `owe_watermark` is called with the device of each report. The loop's counters count `report_stored`, `report_late`,
    `report_duplicate` and `report_conflict`.
    """

    def __init__(self, loop: Loop, recorder: Recorder, owe_watermark: Callable[[str], None]) -> None:
        super().__init__(loop)
        self._recorder = recorder
        self._owe_watermark = owe_watermark
        self._unstored: list[DeviceReport] = []

    def heard(self, message: Message) -> bool:
        """Check a report, and keep it until `pump`. Return whether the message is a report of this fleet."""
        try:
            parsed = message.parsed
        except FuguError:
            return False  # counted by another reader of the message
        if parsed.kind != "report" or parsed.fleet != self._fleet:
            return False
        self._counters["received"] += 1
        try:
            report = Report.decode(message.payload)
            group = self._check_report(parsed.device, parsed.stream, report)
            self._unstored.append(DeviceReport(parsed.device, parsed.stream, report, group))
        except FuguError as error:
            self._counters[error.reason] += 1
            self._monitor.note_refusal(parsed.device, error.reason)
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Store the reports of the round, and acknowledge them. Raises DatabaseError: devices send them again."""
        reports, self._unstored = self._unstored, []
        if not reports:
            return
        with self._store.sums.transaction():
            counts = Counter(map(self._store_report, reports))
        # After an error here, devices send the reports again, which are then duplicates.
        self._recorder.account_reports(reports)
        self._counters.update(counts)
        for device, stream, report, group in reports:
            self._catalogue.note_run(device, stream, report.policy_version)
            self._owe_watermark(device)
            last_tick = group.start + (report.number + 1) * group.length - 1
            self._monitor.note_frames([NewestFrame(device, stream, report.policy_version, last_tick, 0)])

    @property
    def finished(self) -> bool:
        """True if no report waits to be stored."""
        return not self._unstored

    def _check_report(self, device: str, stream: str, report: Report) -> GroupDocument:
        """Return the document of a report's group. Raises RefusedError if the report does not fit it, or the time."""
        policy = self._catalogue.find(device, stream, report.policy_version, SymbolModel).policy
        group = next((shared.group for shared in policy.sums if shared.group.name == report.window), None)
        if group is None:
            raise RefusedError(f"policy version {policy.version} has no sum {report.window}", Reason.UNKNOWN_WINDOW)
        expected = group.digest, group.sum_count, device
        if (report.document, len(report.observed), report.sealed.device) != expected:
            raise RefusedError(f"a report of another document of {report.window}", Reason.WINDOW_MISMATCH)
        if sum(report.observed) > group.length:
            raise RefusedError(f"more ticks than window {report.window} has", Reason.WINDOW_MISMATCH)
        if group.start + (report.number + 1) * group.length - 1 > newest_tick(policy.clock, self._now_us()):
            raise RefusedError("the report is of ticks that have not come yet", Reason.FROM_THE_FUTURE)
        if not report.sealed.is_signed(policy.fleet, group.digest, report.number):  # else it could displace another's
            raise RefusedError("the report is not signed by the key that it names", Reason.BAD_SIGNATURE)
        return group

    def _store_report(self, device_report: DeviceReport) -> str:
        """Store a report unless its window is settled or due. Return the counter of its outcome."""
        report, closed_number = device_report.report, self._store.sums.newest_closed(device_report.report.document)
        is_late = closed_number is not None and report.number <= closed_number
        if is_late or device_report.group.due_us(report.number) <= self._now_us():
            return "report_late"
        return f"report_{self._store.sums.add(report, device_report.device)}"


class _RequestPages(NamedTuple):
    opening: Opening
    pages_left: Iterator[OpeningRequest]


class Sums(Part):
    """Settles windows, asks the helper to open them, and releases their sums, in the process of the releases.

    The loop's counters count `sums`, `sums_lost` and `sums_asked`.
    """

    def __init__(self, loop: Loop, releasing: ReleasePart | None) -> None:
        super().__init__(loop)
        self._releasing = releasing
        self._groups: dict[bytes, GroupDocument] = {}
        self._answers: dict[Opening, OpeningAnswer] = {}
        self._next_asks: dict[Opening, float] = {}
        self._sending: _RequestPages | None = None
        self.topics = (topic_of("group_answer", self._fleet, "+"),)
        self.renew()

    def renew(self) -> None:
        """Read the groups again: the catalogue may have changed."""
        self._groups = self._catalogue.groups()
        if self._releasing is not None:
            self._releasing.publish_sums(self._groups.values())

    def connected(self, *, begun_anew: bool) -> None:
        """Ask for all openings again: the helper may have missed the requests."""
        self._next_asks.clear()
        self._sending = None

    def heard(self, message: Message) -> bool:
        """Keep the first valid answer to each request. Return whether the message is an answer to this fleet."""
        try:
            parsed = message.parsed
        except FuguError:
            return False
        if parsed.kind != "group_answer" or parsed.fleet != self._fleet:
            return False
        self._counters["received"] += 1
        try:
            self._note_answer(parsed.group, Envelope.decode(message.payload))
        except FuguError as error:
            self._counters[error.reason] += 1
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Settle windows, open answered sets, send pages of a request. Raises DatabaseError; a later call goes on."""
        self._settle()
        for opening in self._store.sums.openings():
            group = self._groups.get(opening.document)
            if (answer := self._answers.get(opening)) is not None and group is not None:
                self._open_set(opening, group, answer)
                del self._answers[opening]
            elif group is None or self._now_us() > group.due_us(opening.number) + _DAY_US:
                self._lose_window(opening, group, "its helper has not answered for a day")
        self._send_pages()
        self.due = 0.0 if self._sending is not None else self._seconds() + _LOOK_SECONDS

    def details(self) -> dict[str, object]:
        """Return under `sums_waiting` how many windows wait for their helper."""
        return {"sums_waiting": len(self._next_asks)}

    def _settle(self) -> None:
        """Fix the sets of all due windows, in the transaction that makes later reports late."""
        for digest, group in self._groups.items():
            due_tick = (self._now_us() - group.deadline * 1_000_000 - group.epoch_us) // group.period_us
            newest_window = (due_tick - group.start) // group.length - 1
            if not self._store.sums.waiting_windows(digest, newest_window):
                continue
            with self._store.sums.transaction():
                due_windows = self._store.sums.waiting_windows(digest, newest_window)
                reasons = {window: reason for window in due_windows if (reason := self._fix_set(digest, group, window))}
                self._store.sums.settle(digest, due_windows[-1])  # no further: this machine's clock may be ahead
            for window, reason in reasons.items():
                self._report_lost(group, window, reason)

    def _fix_set(self, digest: bytes, group: GroupDocument, window: int) -> str:
        """Fix the set of a window and return ''; or remove the reports of a window without sum: return the reason."""
        members: dict[bytes, StoredReport] = {}
        for report in self._store.sums.reports(digest, window):
            members.setdefault(report.sealed.member, report)
        if reason := self._refusal(group, window, members.values()):
            self._store.sums.remove(digest, window)
            return reason
        sealed_masks = [report.sealed for report in members.values()]
        opening = Opening(digest, window, set_digest(digest, window, sealed_masks))
        self._store.sums.fix(opening, [report.device for report in sealed_masks])
        self._counters["sums_asked"] += 1
        return ""

    def _refusal(self, group: GroupDocument, window: int, members: Collection[StoredReport]) -> str:
        """Return the reason why nobody could get the sum of a window; '' if an audience could."""
        if self._releasing is None:
            return "this gateway has no releases: say releases in its file"
        if len(members) < group.quorum:
            return f"fewer than {group.quorum} homes have reported"
        if len(members) > MAX_REPORTS:
            return f"more than {MAX_REPORTS} homes have reported, and a helper adds up no more"
        return self._releasing.refusal(_window(group, window, members))

    def _note_answer(self, group_name: str, envelope: Envelope) -> None:
        """Check a helper's answer, and keep it if a request waits for it. FuguError if it is wrong."""
        answer = OpeningAnswer.decode(envelope.payload)
        opening = Opening(answer.document, answer.number, answer.request)
        group = self._groups.get(answer.document)
        if group is None or opening in self._answers or opening not in self._store.sums.openings():
            return  # an answer about another set, to another gateway, or repeated
        check_signed(envelope, "answer", bytes.fromhex(group.helper))
        if (answer.fleet, answer.group, group_name) != (group.fleet, group.name, group.name):
            raise RefusedError("an answer of another group", Reason.WINDOW_MISMATCH)
        members, set_reports = answer.report_indices, self._set_reports(opening)
        if set_reports is None:
            raise RefusedError("an answer about a set that is here no more", Reason.WINDOW_MISMATCH)
        sums = unpack_numbers(answer.sums)
        if not answer.reason and not (
            group.quorum <= len(members) and max(members) < len(set_reports) and len(sums) == group.sum_count
        ):
            raise RefusedError("an answer that is not about the set that was asked for", Reason.WINDOW_MISMATCH)
        self._answers[opening] = answer
        self.due = 0.0

    def _set_reports(self, opening: Opening) -> list[StoredReport] | None:
        """Return the reports of an opening's set, in its order; `None` if a home has been erased since the request."""
        set_reports = self._store.sums.chosen(opening.document, opening.number)
        digest = set_digest(opening.document, opening.number, (report.sealed for report in set_reports))
        return set_reports if digest == opening.request else None

    def _open_set(self, opening: Opening, group: GroupDocument, answer: OpeningAnswer) -> None:
        """Add up the shares of an answered set, and release the sums; without a sum, the window is lost."""
        if answer.reason:
            self._lose_window(opening, group, _NO_SUM_REASONS[answer.reason])
            return
        assert self._releasing is not None  # without releases no set is fixed
        if (set_reports := self._set_reports(opening)) is None:
            self._lose_window(opening, group, _FORGOTTEN)
            return
        members = [set_reports[i] for i in answer.report_indices]
        packed_shares = [answer.sums, *(report.parts for report in members)]
        totals = [signed_total(shares) for shares in zip(*map(unpack_numbers, packed_shares), strict=True)]
        observed = [sum(ticks) for ticks in zip(*(report.observed for report in members), strict=True)]
        try:
            self._releasing.release(_window(group, opening.number, members), list(zip(totals, observed, strict=True)))
        except LedgerError as error:
            self._lose_window(opening, group, str(error))
            return
        self._remove_set(opening)
        self._counters["sums"] += 1

    def _lose_window(self, opening: Opening, group: GroupDocument | None, reason: str) -> None:
        self._remove_set(opening)
        if group is not None:
            self._report_lost(group, opening.number, reason)

    def _report_lost(self, group: GroupDocument, window: int, reason: str) -> None:
        first_tick = group.start + window * group.length
        self._counters["sums_lost"] += 1
        _log.warning("no sum of %s: ticks %d..%d: %s", group.name, first_tick, first_tick + group.length - 1, reason)
        self._monitor.note(AlarmCode.RELEASE_REFUSED, group.name, reason)

    def _remove_set(self, opening: Opening) -> None:
        with self._store.sums.transaction():
            self._store.sums.remove(opening.document, opening.number)
        self._store.sums.erase()
        self._next_asks.pop(opening, None)
        if self._sending is not None and self._sending.opening == opening:
            self._sending = None

    def _send_pages(self) -> None:
        """Send some pages of the request that is due, in order, as the helper takes them."""
        if not self._link.connected:
            return
        now = self._seconds()
        openings = self._store.sums.openings()
        self._next_asks = {opening: self._next_asks.get(opening, now) for opening in openings}
        if self._sending is None:
            due_openings = (due for due in openings if self._next_asks[due] <= now and due.document in self._groups)
            if (opening := next(due_openings, None)) is None:
                return
            if (set_reports := self._set_reports(opening)) is None:
                self._lose_window(opening, self._groups[opening.document], _FORGOTTEN)
                return
            sealed_masks = [report.sealed for report in set_reports]
            self._sending = _RequestPages(opening, split_pages(opening.document, opening.number, sealed_masks))
            self._next_asks[opening] = now + _AGAIN_SECONDS
        topic = topic_of("group_request", self._fleet, self._groups[self._sending.opening.document].name)
        for _ in range(_PAGES):
            if (page := next(self._sending.pages_left, None)) is None:
                self._sending = None
                return
            if self._link.publish(topic, page.encode()) is None:
                self._next_asks[self._sending.opening] = now + 1.0  # from its first page
                self._sending = None
                return


def _window(group: GroupDocument, window: int, members: Iterable[StoredReport]) -> SumWindow:
    return SumWindow(group, window, [(member.sealed.device, member.version) for member in members])


_FORGOTTEN = "a home of its set has been forgotten"
_NO_SUM_REASONS: dict[NoSum, str] = {
    "too-few": "its helper has too few of these homes among its members",
    "key-gone": "its helper no longer has the key that opens it",
    "not-mine": "its helper has another document",
}
