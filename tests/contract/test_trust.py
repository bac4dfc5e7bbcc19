"""Attacks on the rules of trust, each refused with its own reason and without any change; and what is accepted."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.chains import BinaryChains
from fugu.contract.envelope import MAX_ENVELOPE_BYTES, MAX_ROOTS, Envelope, Kind, encode_roots, sign
from fugu.contract.errors import PolicyError, Reason, TrustError
from fugu.contract.fleet_documents import Address, PolicyDocument, RootDocument, compile_document, write_document
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.trust import Trust
from fugu.core.judge import Reader
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.refusals import refused_for
from tests.support.signing import NOW, Keys, new_keys, policy_document

KEYS = Keys()
POLICY = policy(epoch_us=0, period_us=1_000_000)
DOCUMENT = policy_document(POLICY, version=5)


def trust(**fields: Any) -> Trust:
    return Trust(KEYS.enrolment(**fields))


def refused(device: Trust, payload: bytes, kind: Kind = "policy", now: int = NOW, *, sure: bool = False) -> TrustError:
    """The reason why a document is refused; fails if it is not, or if anything has changed."""
    before = device.state.pack()
    with pytest.raises(TrustError) as caught:
        device.judge(payload, kind, now, is_synchronised=sure)
    assert device.state.pack() == before
    assert "\n" not in str(caught.value)
    return caught.value


# What is no envelope at all


@pytest.fixture
def device() -> Trust:
    return trust()


@pytest.fixture
def running(device: Trust) -> Trust:
    """A device that has accepted the document."""
    device.judge(KEYS.signed(DOCUMENT), "policy", NOW)
    return device


def test_a_large_message_is_no_envelope_whatever_is_in_it() -> None:
    signed = sign("policy", bytes(MAX_ENVELOPE_BYTES - 200), KEYS.policy[:1]).encode()
    assert Envelope.decode(signed).kind == "policy"
    padding = MAX_ENVELOPE_BYTES - len(signed)
    whole = sign("policy", bytes(MAX_ENVELOPE_BYTES - 200 + padding), KEYS.policy[:1]).encode()
    assert len(whole) == MAX_ENVELOPE_BYTES
    assert Envelope.decode(whole).kind == "policy"
    larger = sign("policy", bytes(MAX_ENVELOPE_BYTES - 199 + padding), KEYS.policy[:1]).encode()
    with refused_for(Reason.WRONG_LENGTH, match=f"an envelope of {MAX_ENVELOPE_BYTES + 1} bytes"):
        Envelope.decode(larger)


@pytest.mark.parametrize("roots", [0, MAX_ROOTS + 1])
def test_no_root_or_too_many_are_no_message_of_roots(roots: int) -> None:
    root = KEYS.root_envelope()
    assert not trust().judge(encode_roots([root] * MAX_ROOTS), "root", NOW).changes
    assert refused_root(trust(), *[root] * roots).reason is Reason.MALFORMED


def refused_root(device: Trust, *envelopes: bytes) -> TrustError:
    """The same for a chain of root documents."""
    return refused(device, encode_roots(envelopes), "root")


def changed(document: PolicyDocument, **fields: Any) -> PolicyDocument:
    return compile_document(PolicyDocument.model_validate({**document.model_dump(), **fields}))


def test_a_document_that_two_policy_keys_have_signed_is_accepted(device: Trust) -> None:
    verdict = device.judge(KEYS.signed(DOCUMENT), "policy", NOW)
    assert verdict.changes
    assert verdict.policies == (POLICY.model_copy(update={"version": 5}),)
    assert (device.state.version, device.state.policies) == (5, [write_document(DOCUMENT)])
    again = device.judge(KEYS.signed(DOCUMENT, KEYS.policy[1:]), "policy", NOW)
    assert not again.changes, "the same content is no news, whoever has signed it"
    assert device.state.version == 5


def test_a_number_that_no_envelope_can_hold_is_refused_in_a_line() -> None:
    policy = DOCUMENT.policies[0] | {"discretiser": {"kind": "cells", "cells": [[2**64, 0], [0, 0]]}}
    with pytest.raises(PolicyError, match="a whole number has more than 64 bits"):
        write_document(DOCUMENT.model_copy(update={"policies": (policy,)}))


def test_what_was_accepted_is_in_force_after_a_restart(device: Trust) -> None:
    assert device.in_force() is None
    device.judge(KEYS.signed(DOCUMENT), "policy", NOW)
    restarted = Trust(device.enrolment, device.state.pack())
    verdict = restarted.in_force()
    assert verdict.policies[0].version == 5
    assert restarted.state.pack() == device.state.pack()


@pytest.mark.parametrize("to", [Address(group="wrists"), Address(everyone=True)])
def test_a_group_and_the_whole_fleet_are_addresses(to: Address) -> None:
    verdict = trust().judge(KEYS.signed(changed(DOCUMENT, to=to.model_dump())), "policy", NOW)
    assert verdict.policies[0].device == "watch"


def test_arbitrary_document() -> None:
    generator = random.Random(1)
    for size in (0, 1, 10, 1000):
        assert refused(trust(), generator.randbytes(size)).reason is Reason.MALFORMED
    assert refused(trust(), POLICY.to_json().encode()).reason is Reason.MALFORMED


def test_wrong_roles_key() -> None:
    for keys in (KEYS.root, KEYS.gateway, new_keys(2)):
        assert refused(trust(), KEYS.signed(DOCUMENT, keys)).reason == "wrong_role"
    table = sign("time", write_document(DOCUMENT), KEYS.policy[:2])
    assert refused(trust(), table.encode(), "time").reason is Reason.WRONG_ROLE


def test_a_signature_is_for_one_kind_only() -> None:
    signed = KEYS.envelope(DOCUMENT)
    assert refused(trust(), replace(signed, kind="time").encode(), "policy").reason is Reason.MALFORMED
    moved = Envelope("policy", signed.payload, sign("table", signed.payload, KEYS.policy[:2]).signatures)
    assert refused(trust(), moved.encode()).reason is Reason.BAD_SIGNATURE


def test_threshold_not_met() -> None:
    assert refused(trust(), KEYS.signed(DOCUMENT, KEYS.policy[:1])).reason is Reason.THRESHOLD
    mixed = KEYS.signed(DOCUMENT, [KEYS.policy[0], KEYS.root[0], KEYS.gateway[0]])
    assert refused(trust(), mixed).reason is Reason.THRESHOLD


def test_one_key_twice_is_one_key() -> None:
    (signature,) = sign("policy", write_document(DOCUMENT), KEYS.policy[:1]).signatures
    body = msgpack.packb(["policy", write_document(DOCUMENT), [[signature.key, signature.signature]] * 2])
    assert refused(trust(), b"\x0a" + body).reason is Reason.MALFORMED
    with refused_for(Reason.OUT_OF_RANGE, match="two signatures of one key"):
        Envelope.decode(b"\x0a" + body)


def test_replayed_old_version(running: Trust) -> None:
    assert refused(running, KEYS.signed(changed(DOCUMENT, version=4))).reason is Reason.REPLAYED
    running.judge(KEYS.signed(changed(DOCUMENT, version=6)), "policy", NOW)
    assert refused(running, KEYS.signed(DOCUMENT)).reason is Reason.REPLAYED


def test_same_version_with_other_content(running: Trust) -> None:
    assert refused(running, KEYS.signed(changed(DOCUMENT, on_expiry="stop"))).reason is Reason.SAME_VERSION


def test_other_devices_policy() -> None:
    for fields in ({"to": {"device": "ring"}}, {"to": {"group": "ankles"}}, {"fleet": "other"}):
        assert refused(trust(), KEYS.signed(changed(DOCUMENT, **fields))).reason is Reason.NOT_ADDRESSED


def test_expired_and_not_yet_valid_from_both_sides() -> None:
    document = changed(DOCUMENT, valid_from=NOW, valid_until=NOW + 10)
    assert refused(trust(), KEYS.signed(document), now=NOW - 1).reason is Reason.NOT_YET_VALID
    assert refused(trust(), KEYS.signed(document), now=NOW + 10).reason is Reason.EXPIRED
    assert trust().judge(KEYS.signed(document), "policy", NOW).changes
    assert trust().judge(KEYS.signed(document), "policy", NOW + 9).changes


def test_a_document_that_has_expired_is_stale_and_silences_its_device_if_it_says_so(device: Trust) -> None:
    for version, on_expiry, code in ((6, "hold", None), (7, "stop", "policy-expired")):
        document = changed(DOCUMENT, version=version, valid_until=NOW + 10, on_expiry=on_expiry)
        device.judge(KEYS.signed(document), "policy", NOW)
        assert [device.state.silent(NOW + after, version) for after in (9, 10)] == [None, code]
        assert [device.state.stale(NOW + after, 0) for after in (9, 10)] == [False, True]


def test_a_clock_that_was_set_back_brings_no_expired_document_back(device: Trust) -> None:
    device.judge(KEYS.signed_time(NOW + 10), "time", NOW)
    document = changed(DOCUMENT, valid_until=NOW + 10)
    assert refused(device, KEYS.signed(document), now=NOW - 1000).reason is Reason.EXPIRED
    assert refused(device, KEYS.signed_time(NOW + 9), "time").reason is Reason.REPLAYED
    assert refused(device, KEYS.signed_time(NOW + 11, "other"), "time").reason is Reason.NOT_ADDRESSED


def test_a_stop_holds_until_a_newer_policy_and_says_nothing_when_it_is_replayed(running: Trust) -> None:
    before = running.state
    verdict = running.judge(KEYS.signed_stop(6), "stop", NOW)
    assert verdict.changes
    assert running.state.pack() == before.with_changes(stopped=6).pack(), "it changes nothing else"
    assert not running.judge(KEYS.signed_stop(6), "stop", NOW).changes
    assert not running.judge(KEYS.signed_stop(5), "stop", NOW).changes
    assert running.state.stopped == 6, "an older one takes nothing back"
    running.judge(KEYS.signed(changed(DOCUMENT, version=7)), "policy", NOW)
    saved = running.state.pack()
    assert not running.judge(KEYS.signed_stop(6), "stop", NOW).changes, "replayed after a newer policy"
    assert running.state.pack() == saved
    assert running.judge(KEYS.signed_stop(7), "stop", NOW).changes


def test_a_forged_stop_silences_nobody(running: Trust) -> None:
    genuine = KEYS.signed_stop(5)
    assert refused(running, Keys().signed_stop(5), "stop").reason is Reason.WRONG_ROLE
    assert refused(running, KEYS.signed_stop(5, device="ring"), "stop").reason is Reason.NOT_ADDRESSED
    assert refused(running, KEYS.signed_stop(5, fleet="work"), "stop").reason is Reason.NOT_ADDRESSED
    body = Envelope.decode(genuine).payload
    assert refused(running, sign("stop", body, KEYS.policy[:2]).encode(), "stop").reason is Reason.WRONG_ROLE
    assert refused(running, genuine, "time").reason is Reason.MALFORMED
    moved = replace(Envelope.decode(genuine), kind="table").encode()
    assert refused(running, moved, "table").reason is Reason.BAD_SIGNATURE


def test_a_stolen_gateway_key_stops_nobody_for_ever(running: Trust) -> None:
    running.judge(KEYS.signed_stop(2**32 - 1), "stop", NOW)
    fresh = replace(KEYS, gateway=new_keys(1))
    running.judge(encode_roots([fresh.root_envelope(2)]), "root", NOW)
    assert running.state.stopped == 0
    assert refused(running, KEYS.signed_stop(2**32 - 1), "stop").reason is Reason.WRONG_ROLE


def test_truncated() -> None:
    payload = KEYS.signed(DOCUMENT)
    for end in range(0, len(payload), 7):
        assert refused(trust(), payload[:end]).reason is Reason.MALFORMED
    assert refused(trust(), payload + b"\0").reason is Reason.MALFORMED


def test_bit_flipped_at_every_byte() -> None:
    payload = KEYS.signed(DOCUMENT)
    device = trust()
    for place in range(len(payload)):
        wrong = bytearray(payload)
        wrong[place] ^= 1 << (place % 8)
        assert refused(device, bytes(wrong)).reason in (
            Reason.MALFORMED,
            Reason.WRONG_ROLE,
            Reason.BAD_SIGNATURE,
            Reason.THRESHOLD,
        )


def test_gigantic() -> None:
    refusal = refused(trust(), bytes(MAX_ENVELOPE_BYTES + 1))
    assert refusal.reason is Reason.MALFORMED
    assert f"at most {MAX_ENVELOPE_BYTES} are allowed" in str(refusal)
    claims_much = b"\x0a\x93\xa6policy\xc6\xff\xff\xff\xff"
    assert refused(trust(), claims_much).reason is Reason.MALFORMED


def test_deeply_nested() -> None:
    assert refused(trust(), b"\x0a" + b"\x91" * 100_000).reason is Reason.MALFORMED
    nested = b"\x81\xa8document" + b"\x91" * 100_000 + b"\xc0"
    signed = sign("policy", nested, KEYS.policy[:2]).encode()
    assert refused(trust(), signed).reason is Reason.MALFORMED


def test_an_attackers_bytes_are_not_parsed_before_the_signature(device: Trust, monkeypatch: pytest.MonkeyPatch) -> None:

    def reader(payload: bytes) -> Reader:
        assert payload == device.state.root, "parsed before the signature was checked"
        return Reader(payload)

    monkeypatch.setattr("fugu.core.judge.Reader", reader)
    assert refused(device, KEYS.signed(DOCUMENT, new_keys(2))).reason is Reason.WRONG_ROLE
    assert refused(device, KEYS.signed(DOCUMENT, KEYS.policy[:1])).reason is Reason.THRESHOLD


def test_mix_and_match_of_table_and_device() -> None:
    measured = measure_policy(3)
    device = trust(measurement_ceiling=1.0)
    table = measured.measure_tables[1]
    verdict = device.judge(KEYS.signed_table(table), "table", NOW)
    assert verdict.state == device.state
    assert refused(device, KEYS.signed_table(table, device="ring"), "table").reason is Reason.NOT_ADDRESSED
    assert refused(device, KEYS.signed_table(table), "policy").reason is Reason.MALFORMED


def test_root_rotated_to_a_key_the_old_root_did_not_sign() -> None:
    device, thief = trust(), Keys()
    assert refused_root(device, thief.root_envelope(2)).reason is Reason.ROOT
    assert refused_root(device, thief.root_envelope(2, KEYS.root[0])).reason is Reason.ROOT, "one of two is too few"
    assert refused_root(device, thief.root_envelope(2, *KEYS.policy)).reason is Reason.ROOT
    assert refused(device, thief.root_envelope(2, *KEYS.root[:2])).reason is Reason.MALFORMED, "no policy"


def test_a_root_of_the_same_version_or_an_earlier_one_is_no_other_root() -> None:
    """Root keys that were stolen together with the old ones: what is in force is replaced by its successor only."""
    device, other = trust(), Keys()
    assert refused_root(device, other.root_envelope(1, *KEYS.root[:2])).reason is Reason.SAME_VERSION
    device.judge(encode_roots([other.root_envelope(2, *KEYS.root[:2])]), "root", NOW)
    envelope = sign("root", write_document(KEYS.root_document(1)), [*other.root[:2], *KEYS.root[:2]]).encode()
    assert refused_root(device, envelope).reason is Reason.REPLAYED


def test_a_root_that_its_own_keys_have_not_signed() -> None:
    new = Keys()
    envelope = sign("root", write_document(new.root_document(2)), KEYS.root[:2]).encode()
    assert refused_root(trust(), envelope).reason is Reason.ROOT


def test_a_root_is_rotated_by_the_old_one_and_old_keys_count_no_more() -> None:
    device, new = trust(), Keys()
    device.judge(KEYS.signed(DOCUMENT), "policy", NOW)
    device.judge(KEYS.signed_time(NOW * 2), "time", NOW)
    rotation = new.root_envelope(2, *KEYS.root[:2])
    assert device.judge(encode_roots([rotation]), "root", NOW).changes
    assert device.state.root == write_document(new.root_document(2))
    assert device.state.time == 0, "a time that a stolen key has signed is forgotten"
    assert not device.judge(encode_roots([KEYS.root_envelope(1), rotation]), "root", NOW).changes
    assert refused(device, KEYS.signed(changed(DOCUMENT, version=6))).reason is Reason.WRONG_ROLE
    assert device.judge(new.signed(changed(DOCUMENT, version=6)), "policy", NOW).changes
    assert refused_root(device, KEYS.root_envelope(1)).reason is Reason.ROOT
    skipped = Keys().root_envelope(4, *new.root[:2])
    assert refused_root(device, skipped).reason is Reason.ROOT
    assert Trust(device.enrolment, device.state.pack()).state.root == device.state.root


def test_a_device_that_was_long_away_follows_the_whole_chain() -> None:
    second, third, fourth = Keys(), Keys(), Keys()
    chain = [
        second.root_envelope(2, *KEYS.root[:2]),
        third.root_envelope(3, *second.root[:2]),
        fourth.root_envelope(4, *third.root[:2]),
    ]
    device = trust()
    assert refused_root(device, *chain[1:]).reason is Reason.ROOT, "a link is missing"
    assert device.judge(encode_roots(chain[:2]), "root", NOW).changes
    assert device.state.root == write_document(third.root_document(3))
    assert device.judge(encode_roots(chain), "root", NOW).changes
    assert device.state.root == write_document(fourth.root_document(4))
    assert not device.judge(encode_roots(chain), "root", NOW).changes
    assert refused_root(device, *chain, Keys().root_envelope(5)).reason is Reason.ROOT
    assert refused_root(device, KEYS.signed(DOCUMENT)).reason is Reason.MALFORMED


def test_a_new_enrolment_ends_the_trust_in_a_root_that_was_stolen() -> None:
    device, thief, owner = trust(), Keys(), Keys()
    device.judge(encode_roots([thief.root_envelope(2, *KEYS.root[:2])]), "root", NOW)
    device.judge(thief.signed(DOCUMENT), "policy", NOW)
    device.judge(thief.signed_time(2**53), "time", NOW)
    saved = device.state.pack()
    same = Trust(KEYS.enrolment(ceiling=0.9), saved)
    assert same.state.pack() == saved, "the same root: nothing is new"
    again = Trust(owner.enrolment(), saved)
    assert again.state.root == write_document(owner.root_document())
    assert (again.state.version, again.state.time) == (5, 0)
    assert refused(again, thief.signed(changed(DOCUMENT, version=6))).reason is Reason.WRONG_ROLE
    assert refused(again, owner.signed(changed(DOCUMENT, version=4))).reason is Reason.REPLAYED
    again.judge(owner.signed(changed(DOCUMENT, version=6)), "policy", NOW)
    assert Trust(owner.enrolment(), again.state.pack()).state.pack() == again.state.pack()


def test_a_root_of_another_fleet() -> None:
    other = KEYS.root_envelope(2, *KEYS.root[2:], fleet="other")
    assert refused_root(trust(), other).reason is Reason.NOT_ADDRESSED
    with refused_for(Reason.NOT_ADDRESSED):
        Trust(KEYS.enrolment(root=KEYS.root_envelope(fleet="other").hex()))


FALSE = {
    "thresholds too small": {"table": NoiseTable.binary(1_000_000_000, 1_000_000_000)},
    "wrong chain class": {"chains": BinaryChains(q=(0.001, 0.2), r=(0.001, 0.35))},
    "epsilon too small": {"guarantee": Guarantee(epsilon=0.2, adversary="universal")},
}


@pytest.mark.parametrize("fields", FALSE.values(), ids=FALSE)
def test_a_correctly_signed_policy_whose_guarantee_is_false(fields: dict[str, Any]) -> None:
    wrong = Policy.model_construct(**{**dict(POLICY), **fields})
    assert refused(trust(), KEYS.signed(policy_document(wrong, version=5))).reason is Reason.GUARANTEE


def test_a_correctly_signed_measured_policy_whose_guarantee_is_false() -> None:
    wrong = measure_policy(3, version=5).model_copy(update={"epsilon": 0.5})
    payload = KEYS.signed(policy_document(wrong, version=5))
    assert refused(trust(measurement_ceiling=1.0), payload).reason is Reason.GUARANTEE


def test_epsilon_above_the_ceiling_from_both_sides() -> None:
    payload = KEYS.signed(DOCUMENT)
    assert refused(trust(ceiling=0.999999), payload).reason is Reason.CEILING
    assert trust(ceiling=1.0).judge(payload, "policy", NOW).changes


def test_a_weaker_notion_than_the_owner_accepts() -> None:
    payload = KEYS.signed(DOCUMENT)
    assert refused(trust(adversaries=("informed",)), payload).reason is Reason.CEILING
    assert trust(adversaries=("informed", "universal")).judge(payload, "policy", NOW).changes


def test_measured_streams_need_a_ceiling_of_their_own() -> None:
    payload = KEYS.signed(policy_document(measure_policy(3, version=5), version=5))
    assert refused(trust(), payload).reason is Reason.CEILING
    assert refused(trust(measurement_ceiling=0.99), payload).reason is Reason.CEILING
    assert trust(measurement_ceiling=1.0).judge(payload, "policy", NOW).changes


def test_a_ceiling_that_was_lowered_ends_what_is_in_force(running: Trust) -> None:
    with refused_for(Reason.CEILING):
        Trust(KEYS.enrolment(ceiling=0.5), running.state.pack()).in_force()


def test_what_was_kept_and_tampered_with_is_refused(running: Trust) -> None:
    stored = bytes(running.state.pack())
    spoiled = (stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for at in range(0, len(stored), 11))
    for wrong in (*spoiled, *(stored[:at] for at in range(0, len(stored), 11)), b"{}"):
        with refused_for(Reason.MALFORMED, match="damaged, or of an older format"):
            Trust(running.enrolment, wrong)


def test_two_policies_for_one_stream_or_a_version_of_their_own() -> None:
    twice = DOCUMENT.model_copy(update={"policies": DOCUMENT.policies * 2, "compiled": DOCUMENT.compiled * 2})
    assert refused(trust(), KEYS.signed(twice)).reason is Reason.GUARANTEE
    with pytest.raises(ValueError, match="does not say its version again"):
        changed(DOCUMENT, policies=({"version": 3},))


@pytest.mark.parametrize(
    "change",
    [
        {"policy": {"keys": KEYS.root_document().policy.keys, "threshold": 0}},
        {"policy": {"keys": KEYS.root_document().policy.keys, "threshold": 4}},
        {"policy": {"keys": KEYS.root_document().policy.keys * 2, "threshold": 1}},
        {"policy": {"keys": KEYS.root_document().root.keys, "threshold": 1}},
        {"keys": {}},
        {"keys": [1]},
        {"keys": dict.fromkeys(KEYS.root_document().keys, "00" * 32)},
        {"fleet": "\N{COLLISION SYMBOL}" * 64},  # a board's status would have no room for the refusal
        {"fleet": 7},
    ],
)
def test_roots_that_contradict_themselves(change: dict[str, Any]) -> None:
    wrong = {**KEYS.root_document(2).model_dump(), **change}
    with pytest.raises(ValueError, match="validation error"):
        RootDocument.model_validate(wrong)
    envelope = sign("root", msgpack.packb(wrong), KEYS.root[:2])
    assert refused_root(trust(), envelope.encode()).reason is Reason.MALFORMED


TIME = msgpack.packb({"document": "time", "fleet": "home", "time": NOW})


@pytest.mark.parametrize(
    "content",
    [
        TIME + b"\0",
        b"\x84" + TIME[1:] + TIME[1:][TIME[1:].index(b"\xa4time\xce") :],
        TIME.replace(b"\xa4home", b"\x82\xa1a\1\xa1a\1"),
        TIME.replace(b"\xa4time\xa5", b"\xa4stop\xa5"),
        msgpack.packb({"document": "time", "fleet": "home", "time": True}),
    ],
    ids=["more", "twice", "twice inside", "another kind", "no number"],
)
def test_signed_content_that_is_not_one_document_is_malformed(device: Trust, content: bytes) -> None:
    assert device.judge(sign("time", TIME, KEYS.gateway).encode(), "time", NOW).changes
    assert refused(device, sign("time", content, KEYS.gateway).encode(), "time").reason is Reason.MALFORMED


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 400))
def test_mutated_envelopes_are_never_accepted(noise: bytes, start: int, end: int) -> None:
    payload = KEYS.signed(DOCUMENT)
    mutated = payload[:start] + noise + payload[max(start, end) :]
    if mutated != payload:
        assert refused(trust(), mutated).reason in ("malformed", "wrong_role", "bad_signature", "threshold")


def test_a_device_that_knows_the_time_takes_none_that_is_more_than_a_day_ahead(device: Trust) -> None:
    """A gateway whose clock is wrong, or whoever has its key, would have good documents refused as expired."""
    device.judge(KEYS.signed_time(NOW + 86_400), "time", NOW, is_synchronised=True)
    error = refused(trust(), KEYS.signed_time(NOW + 86_401), "time", sure=True)
    assert error.reason is Reason.FAR_AHEAD
    trust().judge(KEYS.signed_time(NOW * 2), "time", 0)  # a board without a battery learns the time here


def test_the_owner_s_word_sets_the_signed_time_back_and_not_below_the_newest_document(device: Trust) -> None:
    ahead = KEYS.signed_time(NOW + 300 * 86_400)
    device.judge(ahead, "time", NOW)
    good = KEYS.signed(changed(DOCUMENT, valid_from=NOW - 5, valid_until=NOW + 86_400))
    assert refused(device, good).reason is Reason.EXPIRED
    assert device.set_time_back(NOW) == NOW
    device.judge(good, "policy", NOW)
    device.judge(ahead, "time", NOW)
    assert device.set_time_back(NOW - 86_400) == NOW - 5
    assert device.set_time_back(NOW) == NOW - 5, "it is never set forward"
