"""Attacks on the helper's decisions: what a site, a member or a thief can ask it, and what it then says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.envelope import key_digits
from fugu.contract.errors import FuguError, TopicError
from fugu.contract.group_frames import (
    MAX_REPORTS,
    OpeningAnswer,
    OpeningRequest,
    SealedMasks,
    set_digest,
    signed_total,
    split_pages,
    unpack_numbers,
)
from fugu_helper.members import Members, is_weak
from fugu_helper.opening import DAY
from tests.support.groups import Member, group
from tests.support.opening import DOCUMENT, HOMES, Helper, read


def reports(helper: Helper, number: int = 5, homes: Sequence[Member] = HOMES) -> list[SealedMasks]:
    return [home.sealed(helper.key, DOCUMENT, number, [1000 + i]) for i, home in enumerate(homes)]


def total(answer: OpeningAnswer | None) -> int:
    assert answer.reason == ""
    return signed_total(unpack_numbers(answer.sums))


@pytest.fixture
def helper() -> Helper:
    return Helper()


def test_the_masks_of_a_set_are_added_up_once(helper: Helper) -> None:
    sealed = reports(helper)
    answer = helper.ask(sealed)
    assert total(answer) == sum(1000 + i for i in range(6))
    assert answer.report_indices == [0, 1, 2, 3, 4, 5]


def test_another_set_of_a_window_gets_the_bytes_of_the_first(helper: Helper) -> None:
    """Two sums that differ by one home are that home's count."""
    sealed = reports(helper)
    (first,) = [helper.group.add_page(page, helper.elapsed) for page in split_pages(DOCUMENT.digest, 5, sealed)]
    for others in (sealed[1:], sealed[::-1], sealed[:1], sealed):
        (again,) = [helper.group.add_page(page, helper.elapsed) for page in split_pages(DOCUMENT.digest, 5, others)]
        assert again == first
    assert total(helper.ask(reports(helper, 6), 6)) == 6015


def test_too_few_members_are_final_from_both_sides_of_the_boundary(helper: Helper) -> None:
    assert total(helper.ask(reports(helper, 4)[:4], 4)) == 4006
    answer = helper.ask(reports(helper)[:3])
    assert (answer.reason, answer.sums) == ("too-few", b"")
    assert helper.ask(reports(helper)) == answer


def test_reports_of_one_colluder_under_many_names_count_for_nothing() -> None:
    colluder = HOMES[0]
    helper = Helper()
    forged = [Member(f"home-{i}", colluder.key).sealed(helper.key, DOCUMENT, 5, [7]) for i in range(35)]
    answer = helper.ask(forged)
    assert answer.reason == "too-few"
    assert answer.report_indices == [0]


def test_a_member_counts_once_in_a_set(helper: Helper) -> None:
    sealed = reports(helper)
    again = HOMES[0].sealed(helper.key, DOCUMENT, 5, [99])
    answer = helper.ask([sealed[0], again, sealed[0], *sealed[1:4]])
    assert answer.report_indices == [0, 3, 4, 5]
    assert total(answer) == sum(range(1000, 1004))


def test_homes_that_a_site_has_invented_are_no_members(helper: Helper) -> None:
    strangers = [Member(f"made-up-{i}") for i in range(30)]
    answer = helper.ask([*reports(helper)[:3], *reports(helper, homes=strangers)])
    assert answer.reason == "too-few"


@pytest.mark.parametrize(
    "others",
    [
        *({"window_number": 4}, {"fleet": "away"}, {"device": "home-1"}),
        *({"document_digest": bytes(32)}, {"opening_key": bytes(32)}),
    ],
)
def test_a_report_counts_only_where_its_device_meant_it(helper: Helper, others: dict[str, object]) -> None:
    """Replays of another window, fleet, device, document or key."""
    sealed = reports(helper)
    sealed[0] = HOMES[0].sealed(helper.key, DOCUMENT, 5, [1000], others)
    answer = helper.ask(sealed)
    assert answer.report_indices == [1, 2, 3, 4, 5]


def test_a_ciphertext_of_another_home_is_not_opened_for_its_copyist(helper: Helper) -> None:
    """A member who signs a copy of his neighbour's masks would have them in the sum twice."""
    sealed = reports(helper)
    thief = HOMES[1]
    head = sealed[1].header("home", DOCUMENT.digest, 5)
    copied = replace(sealed[1], ciphertext=sealed[0].ciphertext)
    resigned = replace(copied, signature=thief.key.sign(b"fugu-edge/2/report\0" + head + copied.ciphertext))
    answer = helper.ask([sealed[0], resigned, *sealed[2:]])
    assert answer.report_indices == [0, 2, 3, 4, 5]


def test_a_changed_ciphertext_or_signature_counts_for_nothing(helper: Helper) -> None:
    sealed = reports(helper)
    sealed[0] = replace(sealed[0], ciphertext=bytes([sealed[0].ciphertext[0] ^ 1]) + sealed[0].ciphertext[1:])
    sealed[1] = replace(sealed[1], signature=bytes(64))
    answer = helper.ask(sealed)
    assert answer.report_indices == [2, 3, 4, 5]


def test_a_report_with_other_than_one_mask_of_each_number_counts_for_nothing(helper: Helper) -> None:
    sealed = reports(helper)
    sealed[0] = HOMES[0].sealed(helper.key, DOCUMENT, 5, [1000, 0])
    answer = helper.ask(sealed)
    assert answer.report_indices == [1, 2, 3, 4, 5]
    assert total(answer) == sum(range(1001, 1006))


@pytest.mark.long
def test_pages_in_another_order_or_of_another_request_are_never_answered() -> None:
    helper = Helper(members=[Member(f"home-{i}") for i in range(130)])
    homes = [Member(f"home-{i}") for i in range(130)]
    sheets = list(split_pages(DOCUMENT.digest, 5, [home.sealed(helper.key, DOCUMENT, 5, [1]) for home in homes]))
    assert len(sheets) == 3
    add_page = helper.group.add_page
    assert [add_page(page, helper.elapsed) for page in reversed(sheets)] == [None] * len(sheets)
    others = list(split_pages(DOCUMENT.digest, 5, [home.sealed(helper.key, DOCUMENT, 5, [2]) for home in homes]))
    assert [add_page(page, helper.elapsed) for page in (*sheets[:-1], others[-1])] == [None] * len(sheets)
    lying = [replace(page, request=bytes(32)) for page in sheets]
    assert [add_page(page, helper.elapsed) for page in lying] == [None] * len(sheets)
    answers = [add_page(page, helper.elapsed) for page in sheets]
    assert total(read(answers[-1])) == 130


def test_a_document_that_is_not_the_helpers_is_never_answered_with_a_sum(helper: Helper) -> None:
    weak = group(honest=1, colluding=0)
    sealed = [home.sealed(helper.key, weak, 5, [1]) for home in HOMES]
    answer = helper.ask(sealed, document=weak)
    assert (answer.reason, answer.sums) == ("not-mine", b"")


def test_the_document_before_is_for_windows_before_the_newest_ones() -> None:
    """Windows of ten seconds; the newest document begins with window 5 of each."""
    old, new = DOCUMENT, group(honest=3, colluding=1, noise=2_999_999_999, valid_from=50)
    helper = Helper(new, old)
    for number, document, reason in ((4, old, ""), (5, old, "not-mine"), (4, new, "not-mine"), (5, new, "")):
        answer = helper.ask([home.sealed(helper.key, document, number, [1]) for home in HOMES], number, document)
        assert answer.reason == reason, number
    oldest = group(honest=1, colluding=0)
    helper = Helper(new, old, oldest)
    answer = helper.ask([home.sealed(helper.key, oldest, 4, [1]) for home in HOMES], 4, oldest)
    assert answer.reason == "not-mine"


def test_a_restart_opens_nothing_that_was_encrypted_before() -> None:
    """A helper's disk put back, or stolen: the key was never on it."""
    before, after = Helper(), Helper()
    answer = after.ask(reports(before))
    assert (answer.reason, answer.report_indices) == ("key-gone", [])


def test_two_helpers_of_one_root_open_no_report_twice() -> None:
    helper, other = Helper(), Helper()
    sealed = [*reports(helper)[:4], *reports(other, homes=HOMES[4:])]
    assert total(helper.ask(sealed)) == 4006
    answer = other.ask(sealed)
    assert answer.reason == "key-gone"
    assert answer.report_indices == [4, 5]


def test_a_key_is_used_for_a_day_and_dropped_when_its_last_window_is_over(helper: Helper) -> None:
    first, sealed = helper.key, reports(helper)
    helper.pass_time(DAY - 1)
    assert helper.key == first
    helper.pass_time(1)
    assert helper.key.made > first.made
    helper.pass_time(DAY + 14)
    assert total(helper.ask(sealed)) == 6015
    late = Helper()
    sealed = reports(late)
    late.pass_time(2 * DAY + 15)
    answer = late.ask(sealed)
    assert answer.reason == "key-gone"


def test_an_answer_is_remembered_as_long_as_its_reports_could_be_opened(helper: Helper) -> None:
    sealed = reports(helper)
    helper.pass_time(2 * DAY + 14)
    first = helper.ask(sealed)
    helper.pass_time(1)
    assert helper.ask(sealed[1:]) == first
    helper.pass_time(3 * DAY)
    answer = helper.ask(sealed[1:])
    assert answer.reason == "key-gone"


def test_an_early_answer_is_remembered_as_long_as_the_key_is_there(helper: Helper) -> None:
    """Two sums that differ by one home are that home's count."""
    sealed = reports(helper)
    first = helper.ask(sealed)
    helper.pass_time(2 * DAY + 14)
    assert helper.ask(sealed[1:]) == first


def test_homes_whose_key_is_gone_and_the_others_are_enough_together(helper: Helper) -> None:
    other = Helper()
    assert helper.ask([*reports(helper)[:2], *reports(other, homes=HOMES[2:4])]).reason == "key-gone"
    assert other.ask([*reports(helper)[:1], *reports(other, homes=HOMES[2:4])]).reason == "too-few"


def test_a_helper_with_as_many_answers_as_it_remembers_gives_no_new_one(
    helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it does not remember could be asked for with another set."""
    monkeypatch.setattr("fugu_helper.opening.MAX_ANSWERS", 1)
    first = helper.ask(reports(helper))
    assert helper.ask(reports(helper, 6), 6) is None
    assert helper.ask(reports(helper)) == first


def test_a_wall_clock_that_was_set_drops_all_keys(helper: Helper) -> None:
    sealed = reports(helper)
    before = helper.key
    helper.group.forget()
    helper.group.maintain(helper.unix - 10 * DAY, helper.elapsed)
    assert helper.key.made > before.made  # of one process: its devices go on with the new key
    answer = helper.ask(sealed)
    assert answer.reason == "key-gone"


def in_two_pages(sealed: list[SealedMasks], number: int = 5) -> list[OpeningRequest]:
    head = DOCUMENT.digest, number, set_digest(DOCUMENT.digest, number, sealed)
    return [OpeningRequest(*head, 0, 2, tuple(sealed[:3])), OpeningRequest(*head, 1, 2, tuple(sealed[3:]))]


def test_masks_of_a_page_that_came_before_the_clock_was_set_are_in_no_sum(helper: Helper) -> None:
    """Nothing is left of what the keys of before have opened."""
    first, last = in_two_pages(reports(helper))
    assert helper.group.add_page(first, helper.elapsed) is None
    helper.group.forget()
    helper.pass_time(1)
    assert helper.group.add_page(last, helper.elapsed) is None


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_request_of_more_reports_than_an_answer_has_bits_is_dropped(helper: Helper, surplus: int) -> None:
    first, last = in_two_pages(reports(helper))
    helper.group.add_page(first, helper.elapsed)
    (gathering,) = helper.group._gatherings.values()
    gathering.report_count = MAX_REPORTS - len(last.reports) + surplus
    assert (helper.group.add_page(last, helper.elapsed) is None) == bool(surplus)
    assert not helper.group._gatherings, "none of its pages is remembered"
    assert helper.ask(reports(helper)) is not None


def test_an_answer_is_sent_again_once_for_a_whole_request(helper: Helper) -> None:
    first, last = in_two_pages(reports(helper))
    answers = [helper.group.add_page(page, helper.elapsed) for page in (first, last, first, last)]
    assert answers[0] is None
    assert answers[2] is None
    assert answers[3] == answers[1]
    assert total(read(answers[1])) == 6015


@pytest.mark.long
def test_a_flood_of_begun_requests_keeps_a_few_of_them(helper: Helper) -> None:
    sealed = reports(helper) * 10
    for number in range(20):
        first, *rest = split_pages(DOCUMENT.digest, number, sealed)
        assert rest
        assert helper.group.add_page(first, helper.elapsed) is None
    assert len(helper.group._gatherings) <= 8


@pytest.mark.long
def test_requests_of_nobody_are_answered_and_not_remembered(helper: Helper) -> None:
    stranger = Member("stranger")
    for number in range(50):
        answer = helper.ask([stranger.sealed(helper.key, DOCUMENT, number, [1])], number)
        assert answer.reason == "too-few"
    assert not helper.group._answers


def test_keys_of_small_order_are_refused_in_every_encoding() -> None:
    """With such a key a signature of zeros is good for any message."""
    prime = 2**255 - 19
    y8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
    weak = [0, 1, prime - 1, y8, prime - y8, prime, prime + 1]
    for y in weak:
        for sign_bit in (0, 1 << 255):
            assert is_weak((y | sign_bit).to_bytes(32, "little"))
    assert not any(is_weak(home.public) for home in HOMES)
    d = -121665 * pow(121666, -1, prime) % prime
    for y in weak:  # eight times the point is the neutral one
        x_squared = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
        x = pow(x_squared, (prime + 3) // 8, prime)
        x = x if x * x % prime == x_squared else x * pow(2, (prime - 1) // 4, prime) % prime
        assert x * x % prime == x_squared
        point = x, y % prime
        for _ in range(3):
            a, b = point
            product = d * a * a * b * b % prime
            point = (
                2 * a * b * pow(1 + product, -1, prime) % prime,
                (b * b + a * a) * pow(1 - product, -1, prime) % prime,
            )
        assert point == (0, 1)


def test_what_the_helper_is_sent_is_the_same_whatever_was_counted() -> None:
    """All that it ever has is drawn before the window begins, and its masks are uniform."""
    helper, generator = Helper(), random.Random(1)
    seen = [generator.getrandbits(64) for _ in range(4)]
    sealed = [home.sealed(helper.key, DOCUMENT, 5, [mask]) for home, mask in zip(HOMES, seen, strict=False)]
    page = next(split_pages(DOCUMENT.digest, 5, sealed))
    assert {field.name for field in OpeningRequest.fields} == {
        *("document", "number", "request", "page", "pages", "reports")
    }
    assert {field.name for field in SealedMasks.fields} == {
        *("device", "opening_key", "member", "ciphertext", "signature")
    }
    assert page.reports == tuple(sealed)


def test_the_list_of_members_has_one_key_of_a_name_and_one_name_of_a_key(tmp_path: Path) -> None:
    members = Members(tmp_path / "members")
    members.admit("home-0", key_digits(HOMES[0].public))
    assert members.find("home-0", HOMES[0].public)
    assert not members.find("home-0", HOMES[1].public)
    assert not members.find("home-1", HOMES[0].public)
    with pytest.raises(FuguError, match="already"):
        members.admit("home-0", key_digits(HOMES[1].public))
    with pytest.raises(FuguError, match="count twice"):
        members.admit("home-1", key_digits(HOMES[0].public))
    with pytest.raises(FuguError, match="30 digits"):
        members.admit("home-1", "12345")
    with pytest.raises(TopicError):
        members.admit("a/b", key_digits(HOMES[1].public))
    members.admit("weak", key_digits(bytes(32)))
    assert not members.find("weak", bytes(32))
    members.remove("home-0")
    with pytest.raises(FuguError, match="no member"):
        members.remove("home-0")
    assert not Members(tmp_path / "members").find("home-0", HOMES[0].public)
    for again in ("a: {0}\nb: {0}\n", "b: {0}\na: {1}\nb: {2}\n"):
        (tmp_path / "members").write_text(again.format("0" * 30, "1" * 30, "2" * 30))
        with pytest.raises(FuguError, match=f"line {again.count('{')} has a name or a key"):
            members.load()
    (tmp_path / "members").write_text(f"home-0: {key_digits(HOMES[0].public)}\n")
    assert members.find("home-0", HOMES[0].public)
    (tmp_path / "members").unlink()
    assert not members.find("home-0", HOMES[0].public)
    (tmp_path / "members").write_text("home-0: 1\n")
    with pytest.raises(FuguError, match="line 1"):
        members.load()
