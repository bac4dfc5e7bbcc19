"""The helper's decisions: which masks it adds up, and that it does so once for each window. No I/O.

*Keys.* An opening key is made in memory each day. It is dropped a day after its last window: day + window + deadline +
day after it was made, by a monotonic clock. A change of the wall clock drops all keys, as a restart would. So a report
can only be opened by the process that made its key.

*Once.* The first whole request for a window decides which set is added up. Every later request for the window gets the
same bytes. A set with fewer than m + c members is final as well, unless it has none at all: else one could try sets
until one opens. Pages are taken in their order, and nothing is answered before the digest of all pages is right.

*Members.* A report counts if a member's key has signed it, for this very fleet, document, opening key and window, under
the member's own name. The first report of a member counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, Suite

from fugu.contract.envelope import sign
from fugu.contract.frames import MAX_ANSWERS
from fugu.contract.group_frames import (
    MASK_BYTES,
    MAX_REPORTS,
    NoSum,
    OpeningAnswer,
    OpeningKey,
    OpeningRequest,
    SealedMasks,
    pack_numbers,
    unpack_numbers,
)

__all__ = ["DAY", "Group", "GroupFacts"]

DAY = 86_400
_MAX_GATHERINGS = 8
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class GroupFacts(NamedTuple):
    """The facts of a group's document that the helper needs.

    Attributes:
        digest: digest of the document; `envelope` is the encoded envelope with the document and its signature.
        quorum: smallest number of members in a set.
        numbers: number of sums of a window.
        first_us, window_us: begin of window 0, and length of a window, in microseconds.
        deadline: seconds after a window's end within which reports count.
        valid_from: Unix seconds; windows that begin from then on follow this document.
    """

    fleet: str
    name: str
    digest: bytes
    envelope: bytes
    quorum: int
    numbers: int
    first_us: int
    window_us: int
    deadline: int
    valid_from: int


class _Key(NamedTuple):
    private_key: MLKEM768X25519PrivateKey
    expires_at: float


@dataclass(slots=True)
class _Gathering:
    """A request of which some pages have come. Its sums leave the helper only after the last page."""

    request: bytes
    pages: int
    digest: hashlib._Hash
    sums: list[int]
    next_page: int = 0
    report_count: int = 0
    bitmap: bytearray = field(default_factory=bytearray)
    members: set[str] = field(default_factory=set)
    keyless_members: set[str] = field(default_factory=set)


class Group:
    """One group: its documents, the newest first, its keys, and its answers.

    `find_member` returns the name of a member with a name and a key, "" if there is none. Times are in seconds:
    `unix_time` of the wall clock, `uptime` of a monotonic clock.

    Attributes:
        document, opening_key: the newest, as encoded envelopes; the key is empty before the first `maintain` and after
            `forget`.
    """

    def __init__(
        self, documents: Sequence[GroupFacts], root_key: Ed25519PrivateKey, find_member: Callable[[str, bytes], str]
    ) -> None:
        self.documents = tuple(documents)
        self.name, self.document = documents[0].name, documents[0].envelope
        self.opening_key = b""
        self._root = root_key
        self._find_member = find_member
        self._keys: dict[bytes, _Key] = {}
        self._last_key_ms = -1
        self._key_due = 0.0
        self._answers: dict[tuple[bytes, int], tuple[bytes, float]] = {}
        self._gatherings: dict[tuple[bytes, int], _Gathering] = {}

    def maintain(self, unix_time: float, uptime: float) -> bool:
        """Make an opening key if one is due, and drop old keys and answers. True if there is a new key to publish."""
        self._keys = {digest: key for digest, key in self._keys.items() if key.expires_at > uptime}
        self._answers = {window: answer for window, answer in self._answers.items() if answer[1] > uptime}
        if self.opening_key and uptime < self._key_due:
            return False
        ml_kem, x25519 = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
        public_bytes = ml_kem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
        self._last_key_ms = max(self._last_key_ms + 1, int(unix_time * 1000))
        key_message = OpeningKey(self.documents[0].fleet, self.name, self._last_key_ms, public_bytes)
        self._keys[key_message.digest] = _Key(MLKEM768X25519PrivateKey(ml_kem, x25519), uptime + self._key_lifetime)
        self.opening_key = sign("opening-key", key_message.encode(), [self._root]).encode()
        self._key_due = uptime + DAY
        return True

    def forget(self) -> None:
        """Drop all keys and all requests under way, but no answer: a change of the wall clock counts as a restart."""
        self._keys.clear()
        self._gatherings.clear()
        self.opening_key = b""

    def add_page(self, request: OpeningRequest, uptime: float) -> bytes | None:
        """Take a page of a request. Return the answer as an encoded envelope; `None` if there is none now."""
        window, is_last_page = (request.document, request.number), request.page == request.pages - 1
        if window in self._answers:
            return self._answers[window][0] if is_last_page else None
        document = self._document_of(request)
        if document is None:
            return self._answer(request, "not-mine", bytes(-(-len(request.reports) // 8)), ()) if is_last_page else None
        gathering = self._gatherings.get(window)
        if request.page == 0:
            while len(self._gatherings) >= _MAX_GATHERINGS and window not in self._gatherings:
                del self._gatherings[next(iter(self._gatherings))]
            digest = hashlib.sha256(request.document + request.number.to_bytes(8, "big"))
            sums = [0] * document.numbers
            gathering = self._gatherings[window] = _Gathering(request.request, request.pages, digest, sums)
        if gathering is None:
            return None
        if (request.request, request.pages, request.page) != (gathering.request, gathering.pages, gathering.next_page):
            return None
        if gathering.report_count + len(request.reports) > MAX_REPORTS:  # an answer has no bits for more
            del self._gatherings[window]
            return None
        self._add_reports(gathering, request, document)
        if gathering.next_page < gathering.pages:
            return None
        del self._gatherings[window]
        if gathering.digest.digest() != gathering.request or len(self._answers) >= MAX_ANSWERS:
            return None
        if not gathering.members | gathering.keyless_members:  # no member is in the set: the answer need not be final
            return self._answer(request, "too-few", bytes(gathering.bitmap), ())
        return self._sum_up(gathering, request, document, uptime)

    @property
    def _key_lifetime(self) -> float:
        return max(2 * DAY + document.window_us / 1e6 + document.deadline for document in self.documents)

    def _document_of(self, request: OpeningRequest) -> GroupFacts | None:
        """Return the document of a request; `None` if its window does not follow it.

        Windows that begin before the newest document's `valid_from` follow the document before.
        """
        newest_begin_us = self.documents[0].valid_from * 1_000_000
        for age, document in enumerate(self.documents[:2]):
            if document.digest == request.document:
                is_new = document.first_us + request.number * document.window_us >= newest_begin_us
                return document if is_new == (age == 0) else None
        return None

    def _add_reports(self, gathering: _Gathering, request: OpeningRequest, document: GroupFacts) -> None:
        for report in request.reports:
            gathering.digest.update(msgpack.packb(report.row()))
            if gathering.report_count % 8 == 0:
                gathering.bitmap.append(0)
            if (masks := self._open_masks(gathering, report, request.number, document)) is not None:
                gathering.bitmap[-1] |= 0x80 >> gathering.report_count % 8
                gathering.sums = [mask_sum + mask for mask_sum, mask in zip(gathering.sums, masks, strict=True)]
            gathering.report_count += 1
        gathering.next_page += 1

    def _open_masks(
        self, gathering: _Gathering, report: SealedMasks, window_number: int, document: GroupFacts
    ) -> tuple[int, ...] | None:
        """Open the masks of a report; `None` if it is invalid, repeated, not a member's, or its key is gone (noted)."""
        if report.device in gathering.members or report.mask_count != document.numbers:
            return None
        if not (member_name := self._find_member(report.device, report.member)):
            return None
        if not report.is_signed(document.fleet, document.digest, window_number):
            return None
        if (opening_key := self._keys.get(report.opening_key)) is None:
            gathering.keyless_members.add(member_name)
            return None
        header = report.header(document.fleet, document.digest, window_number)
        try:
            masks = _SUITE.decrypt(report.ciphertext, opening_key.private_key, info=header)
        except (InvalidTag, ValueError):
            return None
        if len(masks) != MASK_BYTES * document.numbers:
            return None
        gathering.members.add(member_name)
        return unpack_numbers(masks)

    def _sum_up(self, gathering: _Gathering, request: OpeningRequest, document: GroupFacts, uptime: float) -> bytes:
        reason: NoSum = ""
        if len(gathering.members) < document.quorum:
            present_members = gathering.members | gathering.keyless_members
            reason = "key-gone" if len(present_members) >= document.quorum else "too-few"
        answer = self._answer(request, reason, bytes(gathering.bitmap), () if reason else gathering.sums)
        self._answers[request.document, request.number] = answer, uptime + self._key_lifetime
        return answer

    def _answer(self, request: OpeningRequest, reason: NoSum, bitmap: bytes, sums: Sequence[int]) -> bytes:
        window = request.document, request.number, request.request
        message = OpeningAnswer(self.documents[0].fleet, self.name, *window, reason, bitmap, pack_numbers(sums))
        return sign("answer", message.encode(), [self._root]).encode()
