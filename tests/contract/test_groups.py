"""The document of a group is its helper's alone, and a policy that has it loses what all of its noise lets it lose."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import Description, describe
from fugu.contract.envelope import Envelope, key_digits, key_name, read_digits, sign
from fugu.contract.errors import FrameError, TrustError
from fugu.contract.fleet_documents import Role, RootDocument, verify_signatures
from fugu.contract.frames import MAX_ANSWERS
from fugu.contract.group_frames import (
    MAX_PAGE_BYTES,
    OpeningAnswer,
    OpeningRequest,
    SealedMasks,
    pack_numbers,
    set_digest,
    signed_total,
    split_pages,
    unpack_numbers,
)
from fugu.contract.groups import GroupDocument, GroupPin, SharedWindow
from fugu.contract.guarantee import Guarantee
from fugu.contract.stretches import Ceiling
from fugu.contract.windows import Blocks, Window
from tests.support.groups import HELPER, PUBLIC, group, member_policy, shared, signed

SEALED = SealedMasks("watch", b"o" * 32, b"m" * 32, b"c" * 1144, b"s" * 64)


def test_a_document_is_read_back_from_its_envelope_and_named_by_what_is_signed() -> None:
    document = group(blocks=None)
    envelope = Envelope.decode(signed(document).encode())
    assert GroupDocument.read(envelope) == document
    assert document.digest.hex() == envelope.digest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"count": ("low", "high")}, "not all of them"),
        ({"count": ("high", "high")}, "each once"),
        ({"count": ("on",)}, "count is some of the states"),
        ({"states": ("low", "low", "high")}, "same name"),
        ({"length": 86_401}, "longer than a day"),
        ({"length": 4, "deadline": 4 * 49_999 - 2 * 86_400}, "so short that a helper"),
        ({"blocks": Blocks(zone="UTC", seconds=3600, offsets=((0, 0),))}, "windows of a day"),
        ({"noise": 0}, "noise"),
        ({"noise": 1 << 32}, "noise"),
        ({"honest": 0}, "honest"),
        ({"histogram": True}, "histogram"),
    ],
)
def test_a_document_that_no_group_can_have_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        group(**changes)


def test_a_helper_can_remember_every_window_that_it_has_answered_until_its_keys_are_gone() -> None:
    document = group(length=4, deadline=4 * 49_999 - 2 * 86_400 - 1)
    assert 2 * 86_400 + 4 + document.deadline < 4 * MAX_ANSWERS


def test_blocks_of_a_day_have_a_sum_each_and_one_rate() -> None:
    blocks = Blocks(zone="UTC", seconds=3600, offsets=((0, 0),))
    day = group(length=1440, period_us=60_000_000, blocks=blocks)
    assert day.sum_count == 24
    assert day.rate == group().rate


def test_nobody_else_signs_a_document_nor_changes_it() -> None:
    window = shared()
    text = json.loads(window.model_dump_json())
    assert SharedWindow.model_validate_json(json.dumps(text)) == window
    for field, value in (("honest", 2), ("noise", 3_000_000_001), ("helper", "00" * 32), ("valid_from", 1)):
        with pytest.raises(ValidationError):
            SharedWindow.model_validate_json(json.dumps({**text, "group": {**text["group"], field: value}}))
    with pytest.raises(TrustError):
        GroupDocument.read(signed(group(), Ed25519PrivateKey.generate()))


def test_what_a_helper_signs_is_of_one_kind() -> None:
    payload = group().payload
    for kind in ("policy", "answer", "opening-key", "root"):
        with pytest.raises(TrustError):
            GroupDocument.read(sign(kind, payload, [HELPER]))
    other = Envelope("group", payload, sign("policy", payload, [HELPER]).signatures)
    with pytest.raises(TrustError):
        GroupDocument.read(other)


def test_what_a_helper_signs_counts_for_no_role_of_a_fleet_nor_the_other_way_round() -> None:
    keys = {key_name(key).hex(): key.hex() for key in (PUBLIC, bytes(32), bytes([1] * 32))}
    policy, root, gateway = (Role(keys=(name,), threshold=1) for name in keys)
    document = RootDocument(fleet="home", version=1, keys=keys, root=root, policy=policy, gateway=gateway)
    payload = group().payload
    verify_signatures(sign("policy", payload, [HELPER]), document)
    with pytest.raises(TrustError):
        verify_signatures(Envelope("policy", payload, sign("group", payload, [HELPER]).signatures), document)


def test_a_document_in_other_bytes_is_refused() -> None:
    document = group()
    with pytest.raises(TrustError, match="other bytes"):
        GroupDocument.read(sign("group", document.payload.replace(b"honest\x03", b"honest\xcc\x03"), [HELPER]))


@pytest.mark.parametrize(
    "changes",
    [
        {"fleet": "away"},
        {"stream": "hr"},
        {"states": ("low", "high", "top")},
        {"period_us": 2_000_000},
        {"epoch_us": 1},
    ],
)
def test_a_policy_of_another_stream_than_the_groups_is_refused(changes: dict[str, Any]) -> None:
    text = json.loads(member_policy("watch", shared()).to_json())
    text["sums"] = [json.loads(shared(**changes).model_dump_json())]
    with pytest.raises(Exception, match="of group street is another"):
        type(member_policy("watch", shared())).from_json(json.dumps(text))


def test_a_sum_adds_its_rate_to_that_of_the_windows_beside_it() -> None:
    window = shared(noise=4_033_000_000, honest=48)
    alone = Window(name="high", length=10, stride=10, states=("high",), scale="10")
    chains = BinaryChains(q=(0.01, 0.02), r=(0.02, 0.03))
    fields = {"chains": chains, "guarantee": Guarantee(epsilon=50.0, adversary="informed")}
    beside = member_policy("watch", window, windows=(alone,), **fields)
    assert beside.window_rate == beside.bound().tick_rate == Fraction(1, 10) + window.group.rate
    assert beside.verify().epsilon > member_policy("watch", window, **fields).verify().epsilon


def test_two_groups_of_a_stream_add_their_rates() -> None:
    first, two = shared(), shared(name="quarter", length=20)
    assert member_policy("watch", first, two).window_rate == first.group.rate + two.group.rate
    with pytest.raises(ValidationError, match="same name"):
        member_policy("watch", first, first)


def test_terms_of_an_owner_are_about_the_helper_and_the_least_number_of_homes() -> None:
    pin = GroupPin(name="street", helper=key_digits(PUBLIC), honest=3, most=Ceiling(epsilon=1.0, seconds=60))
    assert pin.refusal(group()) is None
    assert "at least 3" in (pin.refusal(group(honest=2)) or "")
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    assert "another" in (pin.refusal(group(helper=stranger.hex())) or "")


def test_digits_are_thirty_and_are_read_as_people_type_them() -> None:
    text = key_digits(PUBLIC)
    assert len(text.split()) == 6
    assert read_digits(text.replace(" ", "-")) == read_digits(text.replace(" ", "")) == text
    for wrong in ("", text[:-1], text + "0", "x" * 30, "\u0661" * 30):
        with pytest.raises(ValueError, match="30 digits"):
            read_digits(wrong)


def test_pages_are_small_keep_the_order_and_name_the_whole_set() -> None:
    reports = [SealedMasks(f"home-{i}", *SEALED.row()[1:]) for i in range(1000)]
    sheets = list(split_pages(b"d" * 32, 9, reports))
    assert [report for sheet in sheets for report in sheet.reports] == reports
    for page, sheet in enumerate(sheets):
        assert (sheet.page, sheet.pages, sheet.request) == (page, len(sheets), set_digest(b"d" * 32, 9, reports))
        assert len(sheet.encode()) <= MAX_PAGE_BYTES
        assert OpeningRequest.decode(sheet.encode()) == sheet
    longest = [SealedMasks("x" * 64, b"o" * 32, b"m" * 32, b"c" * (1136 + 8 * 255), b"s" * 64)] * 100
    assert max(len(sheet.encode()) for sheet in split_pages(b"d" * 32, 2**53, longest)) <= MAX_PAGE_BYTES
    swapped = [reports[1], reports[0], *reports[2:]]
    assert set_digest(b"d" * 32, 9, swapped) != set_digest(b"d" * 32, 9, reports)


def test_an_answer_has_a_sum_or_a_reason() -> None:
    fields = "home", "street", b"d" * 32, 5, b"r" * 32
    answer = OpeningAnswer(*fields, "", bytes([0b1010_0000, 0b0000_0001]), pack_numbers([-3]))
    assert answer.report_indices == [0, 2, 15]
    assert signed_total(unpack_numbers(answer.sums)) == -3
    for reason, sums in (("", b""), ("too-few", bytes(8)), ("", bytes(7))):
        with pytest.raises(FrameError):
            OpeningAnswer(*fields, reason, b"\0", sums)


def test_sums_mod_a_word_are_the_signed_sums() -> None:
    values = [-5, 7, 2**63 - 1, -(2**62)]
    assert signed_total(unpack_numbers(pack_numbers(values))) == sum(values)


def test_no_epsilon_of_a_sum_is_described_without_its_condition() -> None:
    described = describe(member_policy("watch", shared()))
    (summed,) = described.sums
    assert (summed.name, summed.honest, summed.least, summed.helper) == ("street", 3, 3, key_digits(PUBLIC))
    assert summed.condition == shared().condition
    assert summed.condition in described.does_not_protect
    assert key_digits(PUBLIC) in summed.condition
    assert "Otherwise the exact count can be seen" in summed.condition
    assert Description.decode(described.encode()) == described
