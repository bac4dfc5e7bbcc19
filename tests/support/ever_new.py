"""Ever new content, all of it valid, for each topic that a device may write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.group_frames import header
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.topics import topic_of
from tests.support.example_frames import REPORT
from tests.support.groups import Member
from tests.support.loop_driver import DEVICES, PLACED, START, STREET

__all__ = ["GENERATORS", "MESSAGES"]

MESSAGES = 20_000
Messages = Iterator[tuple[str, bytes]]


def _device(number: int) -> str:
    """A device of the fleet; of a few messages, one that nobody knows, as at a broker without an access list."""
    return f"stranger-{number}" if number % 20 == 19 else f"d{number % DEVICES}"


def statuses() -> Messages:
    """New streams, versions in turn, new numbers, codes in turn; of some as many streams as there is room for."""
    codes = tuple(StatusCode)
    for number in range(MESSAGES):
        version = 1 if number % 10 else 1 + number // DEVICES % 2 * 2
        streams = [StreamStatus("hr", version, 10**9 + number)]
        streams += [StreamStatus(f"made-up-{number}-{part}", 1 + number, number) for part in range(1 + number % 3)]
        if number % 500 == 0:
            streams = [StreamStatus(f"{number:032d}{part:032d}", 1, number) for part in range(64)]
        some = (codes[number % len(codes)],)
        online = number % 7 > 0
        status = Status(online, f"1.{number}", number, some, tuple(streams))
        yield topic_of("status", "home", _device(number)), status.encode()


def answers() -> Messages:
    """New versions, documents, reasons and sentences."""
    for number in range(MESSAGES):
        answer = PolicyStatus(number, number.to_bytes(8, "big"), f"r{number}", f"said {number}", number, number % 2 > 0)
        yield topic_of("policy_status", "home", _device(number)), answer.encode()


def symbols() -> Messages:
    """Frames in order, late and scattered ones, of new streams, versions and times, contradictions; and points."""
    last = START
    for number in range(MESSAGES):
        device, stream, version = _device(number), "hr", 2 if number % DEVICES < 3 else 1
        first = {0: last - 10**6 + number, 1: number * 7, 2: 2**50 + number}.get(number % 5, number // DEVICES * 10)
        if number % 17 == 16:
            first = number % 340  # again, and it may say something else
        if number % 11 == 10:
            stream = f"made-up-{number}"
        version = 10 + number if number % 13 == 12 else version
        payload = SymbolFrame(version, first - 1, first, bytes([number & 1]) * 4).encode()
        if number % 50 < 3:
            device, stream = f"d{number % 50}", "place"
            point = Released(0, (number % 7, number // 7 % 5))
            payload = MeasureFrame(2, first - 1, first, 2, (point,)).encode()
        yield topic_of("symbols", "home", device, stream), payload


def counts() -> Messages:
    """Windows in any order, of new names, streams, versions and times; contradictions."""
    for number in range(MESSAGES):
        index = number * 37 % 10**6 if number % 3 else number // DEVICES
        window = f"made-up-{number}" if number % 11 == 10 else "high"
        stream = f"made-up-{number}" if number % 7 == 6 else "hr"
        version = 10 + number if number % 13 == 12 else 2 if number % DEVICES < 3 else 1
        frame = WindowFrame(version, window, index - 1, index, 20 * index, 20, 20, (number,))
        yield topic_of("window", "home", _device(number), stream), frame.encode()


def reports() -> Messages:
    """Reports to groups, of new windows, streams, versions and numbers; some are of a group that there is, and kept."""
    group = STREET.group
    newest = START // group.length
    members, opening_key = [Member(f"d{place}") for place in range(PLACED)], REPORT.sealed.opening_key
    for number in range(MESSAGES):
        member, stream, at = members[number % PLACED], group.stream, newest - number // 4 % 300
        device, head = member.name, header("home", member.name, group.digest, opening_key, at)
        of = member.signed(opening_key, head, REPORT.sealed.ciphertext[:-8] + number.to_bytes(8, "big"))
        report = replace(REPORT, policy_version=4, document=group.digest, observed=(group.length,), sealed=of)
        if number % 2:
            device = _device(number)
            stream = f"made-up-{number}" if number % 7 == 6 else stream
            report = replace(report, policy_version=10 + number, window=f"made-up-{number}", document=bytes(32))
        yield topic_of("report", "home", device, stream), replace(report, previous=at - 1, number=at).encode()


GENERATORS: dict[str, Callable[[], Messages]] = {
    "{device}/status": statuses,
    "{device}/policy/status": answers,
    "{device}/symbols/{stream}": symbols,
    "{device}/window/{stream}": counts,
    "{device}/report/{stream}": reports,
}
