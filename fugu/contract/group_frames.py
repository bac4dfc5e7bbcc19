"""Messages of a group: homes of which only sums become known. Words as in DAP: the site is the leader.

A device splits its noisy count of a window mod 2^64. Uniform masks go to the *helper*, encrypted before the window
begins. The *parts*, count + share - mask, go to the site. Each alone is uniform. The helper gives the site the masks'
sum over one set of devices, and so the noisy count of them all.

    device -> site    Report             {device}/report/{stream}: parts, and beside them what only the helper can open
    helper -> device  OpeningKey         group/{group}/key, retained, in an envelope of kind `opening-key`
    site -> helper    OpeningRequest     group/{group}/request: one set of one window, in pages
    helper -> site    OpeningAnswer      group/{group}/answer, in an envelope of kind `answer`

A device signs the header and the ciphertext, never the parts, not even by a hash. From a hash of a part the helper
could guess the count after some thousand tries. The header is also HPKE's `info`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, get_args

import msgpack

from fugu.contract.envelope import signed_bytes
from fugu.contract.errors import length_error, range_error
from fugu.contract.frames import MAX_COUNTS, MAX_TICK, MAX_WINDOW_TICKS, TICK, WINDOW_NAME_PATTERN, PolicyVersion
from fugu.contract.message import Binary, Integer, Many, Message, Row, Text, Word, check_integer, frozen
from fugu.contract.topics import NAME_PATTERN

__all__ = [
    "MASK_BYTES",
    "MAX_PAGE_BYTES",
    "MAX_REPORTS",
    "OPENING_KEY_BYTES",
    "NoSum",
    "OpeningAnswer",
    "OpeningKey",
    "OpeningRequest",
    "Report",
    "SealedMasks",
    "header",
    "pack_numbers",
    "set_digest",
    "signed_total",
    "split_pages",
    "unpack_numbers",
]

MASK_BYTES = 8
"""Of a mask, a part and a sum: an integer mod 2^64, the highest byte first."""
MAX_PAGE_BYTES = 1 << 16
MAX_REPORTS = 1 << 16
OPENING_KEY_BYTES = 1184 + 32
"""An ML-KEM-768 public key, then one of X25519."""
_ENCAPSULATED = 1088 + 32
_TAG = 16
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_WORD = 1 << 64

_DIGEST = Binary(32, 32)
Digest = Annotated[bytes, _DIGEST, "SHA-256 of the group's document, as it is signed."]
Fleet = Annotated[str, Text(1, 64, NAME_PATTERN), "Of the devices."]
Number = Annotated[
    int, TICK, "Of the window: it begins at epoch + (start + number * length) * period, by the document."
]
GroupName = Annotated[str, Text(1, 32, WINDOW_NAME_PATTERN), "Of the group."]


@frozen
class SealedMasks(Message):
    """The masks of a window, one for each number that it counts, for the helper alone; signed by the device."""

    device: Annotated[str, Text(1, 64, NAME_PATTERN), "Its name, which is that of a member of the group."]
    opening_key: Annotated[bytes, _DIGEST, "SHA-256 of the key that opens it."]
    member: Annotated[bytes, Binary(_KEY_BYTES, _KEY_BYTES), "The device's public key."]
    ciphertext: Annotated[
        bytes,
        Binary(_ENCAPSULATED + MASK_BYTES + _TAG, _ENCAPSULATED + MAX_COUNTS * MASK_BYTES + _TAG),
        "The masks, 8 bytes each, by HPKE with MLKEM768_X25519, HKDF-SHA256 and AES-128-GCM; the header is its `info`.",
    ]
    signature: Annotated[
        bytes,
        Binary(_SIGNATURE_BYTES, _SIGNATURE_BYTES),
        "Ed25519, over `fugu-edge/2/report`, a zero byte, the header and the ciphertext.",
    ]

    def header(self, fleet: str, document_digest: bytes, window_number: int) -> bytes:
        """Encode the header of these masks in a window."""
        return header(fleet, self.device, document_digest, self.opening_key, window_number)

    def signed_message(self, fleet: str, document_digest: bytes, window_number: int) -> bytes:
        """Return the bytes that the device has signed for a window."""
        return signed_bytes("report", self.header(fleet, document_digest, window_number) + self.ciphertext)

    def is_signed(self, fleet: str, document_digest: bytes, window_number: int) -> bool:
        """Tell whether the key of `member` has signed these masks for a window."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        message = self.signed_message(fleet, document_digest, window_number)
        try:
            Ed25519PublicKey.from_public_bytes(self.member).verify(self.signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    @property
    def mask_count(self) -> int:
        """The number of masks."""
        return (len(self.ciphertext) - _ENCAPSULATED - _TAG) // MASK_BYTES


@frozen
class Report(Message):
    """A device's share in the sum of a window; its size depends on names and on the number of parts only."""

    SCHEMA = 13

    policy_version: PolicyVersion
    window: GroupName
    previous: Annotated[
        int,
        Integer(-1, MAX_TICK),
        "Number of the device's report before this one in this group, -1 for its first; none between is ever sent.",
    ]
    number: Number
    document: Digest
    observed: Annotated[
        tuple[int, ...],
        Many(Integer(0, MAX_WINDOW_TICKS), 1, MAX_COUNTS, "a number of ticks"),
        "For each part the ticks that the device has observed: a denominator as honest as whoever reads it.",
    ]
    parts: Annotated[
        bytes,
        Binary(MASK_BYTES, MAX_COUNTS * MASK_BYTES, "", ("part", "uint", 64, 1)),
        "Count + share of noise - mask, mod 2^64, of each number that the window counts.",
    ]
    sealed: Annotated[SealedMasks, Row(SealedMasks), "What the site hands to the helper, as it is."]

    def _check_consistency(self) -> None:
        if self.previous >= self.number:
            raise range_error(f"previous {self.previous} is not before the number {self.number}")
        if not len(self.parts) == MASK_BYTES * len(self.observed) == MASK_BYTES * self.sealed.mask_count:
            raise length_error("not as many parts as masks and numbers of ticks")


@frozen
class OpeningKey(Message):
    """The key that devices encrypt to; its other half is in the memory of one process only."""

    SCHEMA = 14

    fleet: Fleet
    group: GroupName
    made: Annotated[
        int,
        Integer(0, 2**53),
        "When it was made, in milliseconds of Unix time by the helper's clock. A device takes none with a lower one.",
    ]
    key: Annotated[bytes, Binary(OPENING_KEY_BYTES, OPENING_KEY_BYTES), "ML-KEM-768, then X25519."]

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the key, which names it in reports."""
        return hashlib.sha256(self.key).digest()


@frozen
class OpeningRequest(Message):
    """A page of the one set of devices whose sum the site asks for."""

    SCHEMA = 15
    MOST_BYTES = MAX_PAGE_BYTES, "a page of a request"

    document: Digest
    number: Number
    request: Annotated[
        bytes,
        _DIGEST,
        "SHA-256 of the document's digest, the number in 8 bytes and each of all pages' reports as it is packed.",
    ]
    page: Annotated[int, Integer(0, MAX_REPORTS - 1), "From 0."]
    pages: Annotated[int, Integer(1, MAX_REPORTS), "All there are."]
    reports: Annotated[tuple[SealedMasks, ...], Many(Row(SealedMasks), 1, 64, "a report"), "In the set's order."]

    def _check_consistency(self) -> None:
        if self.page >= self.pages:
            check_integer(self.page, 0, self.pages - 1, "page")


NoSum = Literal["", "too-few", "key-gone", "not-mine"]
"""Why there is no sum, ever: too few members in the set; too few whose key is there still; no such document."""


@frozen
class OpeningAnswer(Message):
    """The sum of the masks of one set, or why there is none; the only answer for this window, sent again unchanged."""

    SCHEMA = 16

    fleet: Fleet
    group: GroupName
    document: Digest
    number: Number
    request: Annotated[bytes, _DIGEST, "Which request is answered, by its digest."]
    reason: Annotated[NoSum, Word(get_args(NoSum)), "Empty if there is a sum."]
    bitmap: Annotated[
        bytes,
        Binary(1, MAX_REPORTS // 8),
        "Which of the request's reports are in the sum, in its order: the first in the highest bit of the first byte.",
    ]
    sums: Annotated[
        bytes,
        Binary(0, MAX_COUNTS * MASK_BYTES, "", ("sum", "uint", 64, 1)),
        "Of the masks of these reports, mod 2^64, for each number that the window counts; empty if there is a reason.",
    ]

    def _check_consistency(self) -> None:
        if bool(self.sums) == bool(self.reason) or len(self.sums) % MASK_BYTES:
            raise length_error("an answer has either sums of 8 bytes or a reason")

    @property
    def report_indices(self) -> list[int]:
        """The indices, in the request, of the reports that are in the sum."""
        return [i for i in range(8 * len(self.bitmap)) if self.bitmap[i // 8] >> (7 - i % 8) & 1]


def header(fleet: str, device: str, document_digest: bytes, opening_key: bytes, window_number: int) -> bytes:
    """Encode a report's header: a msgpack array of fleet, device, digests of document and key, and window number.

    Bytes may follow the array, which says where it ends.
    """
    packed: bytes = msgpack.packb([fleet, device, document_digest, opening_key, window_number])
    return packed


def set_digest(document_digest: bytes, window_number: int, reports: Iterable[SealedMasks]) -> bytes:
    """Return the digest of a set of reports; each page of a request for the set has it."""
    digest = hashlib.sha256(document_digest + window_number.to_bytes(8, "big"))
    for report in reports:
        digest.update(msgpack.packb(report.row()))
    return digest.digest()


def split_pages(document_digest: bytes, window_number: int, reports: Sequence[SealedMasks]) -> Iterator[OpeningRequest]:
    """Split a set of reports, in its order, into pages of at most `MAX_PAGE_BYTES`."""
    max_bytes, request_digest = MAX_PAGE_BYTES - 128, set_digest(document_digest, window_number, reports)
    pages: list[list[SealedMasks]] = []
    page_bytes = max_bytes
    for report in reports:
        report_bytes = len(msgpack.packb(report.row()))
        if page_bytes + report_bytes > max_bytes or len(pages[-1]) == 64:
            pages.append([])
            page_bytes = 0
        pages[-1].append(report)
        page_bytes += report_bytes
    for index, page in enumerate(pages):
        yield OpeningRequest(document_digest, window_number, request_digest, index, len(pages), tuple(page))


def unpack_numbers(packed: bytes) -> tuple[int, ...]:
    """Read masks, parts or sums from their bytes."""
    return tuple(int.from_bytes(packed[i : i + MASK_BYTES], "big") for i in range(0, len(packed), MASK_BYTES))


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Write masks, parts or sums as bytes, each mod 2^64."""
    return b"".join((value % _WORD).to_bytes(MASK_BYTES, "big") for value in numbers)


def signed_total(numbers: Iterable[int]) -> int:
    """Add numbers mod 2^64 and return the signed sum, as noise may be below zero."""
    total = sum(numbers) % _WORD
    return total - _WORD if total >= _WORD // 2 else total
