"""A group at its helper, on clocks that the test sets."""

from __future__ import annotations

from collections.abc import Sequence

from fugu.contract.envelope import Envelope
from fugu.contract.group_frames import OpeningAnswer, OpeningKey, SealedMasks, split_pages
from fugu.contract.groups import GroupDocument, check_signed
from fugu_helper.members import is_weak
from fugu_helper.opening import Group, GroupFacts
from tests.support.groups import HELPER, PUBLIC, Member, group, signed

__all__ = ["DOCUMENT", "HOMES", "Helper", "facts", "read"]

HOMES = [Member(f"home-{i}") for i in range(6)]
DOCUMENT = group(honest=3, colluding=1)


def facts(document: GroupDocument) -> GroupFacts:
    return GroupFacts(
        *(document.fleet, document.name, document.digest, signed(document).encode()),
        *(document.quorum, document.sum_count, document.begins_us(0), document.length * document.period_us),
        *(document.deadline, document.valid_from),
    )


class Helper:
    """A group at its helper, on clocks that the test sets."""

    def __init__(self, *documents: GroupDocument, members: Sequence[Member] = HOMES) -> None:
        self.members = {member.name: member.public for member in members}
        self.group = Group(
            [facts(document) for document in documents or (DOCUMENT,)],
            HELPER,
            lambda name, public: name if not is_weak(public) and self.members.get(name) == public else "",
        )
        self.unix, self.elapsed = 1_772_323_200.0, 100.0
        self.group.maintain(self.unix, self.elapsed)

    @property
    def key(self) -> OpeningKey:
        return OpeningKey.decode(Envelope.decode(self.group.opening_key).payload)

    def pass_time(self, seconds: float) -> None:
        self.unix, self.elapsed = self.unix + seconds, self.elapsed + seconds
        self.group.maintain(self.unix, self.elapsed)

    def ask(
        self, reports: Sequence[SealedMasks], number: int = 5, document: GroupDocument = DOCUMENT
    ) -> OpeningAnswer | None:
        answers = [self.group.add_page(page, self.elapsed) for page in split_pages(document.digest, number, reports)]
        assert not any(answers[:-1])
        return None if answers[-1] is None else read(answers[-1])


def read(answer: bytes) -> OpeningAnswer:
    envelope = Envelope.decode(answer)
    check_signed(envelope, "answer", PUBLIC)
    return OpeningAnswer.decode(envelope.payload)
