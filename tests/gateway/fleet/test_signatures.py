"""Device, gateway and operator believe the same signatures: whatever one refuses, no other takes; and files of keys."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.compiler import compile_board_policy, compile_policy
from fugu.contract.envelope import Envelope, Signature, sign
from fugu.contract.errors import FuguError, PolicyError, Reason, TrustError
from fugu.contract.fleet_documents import Address, RootDocument, verify_signatures, write_document
from fugu.contract.noise_table import NoiseTable
from fugu.contract.trust import Trust
from fugu.host.files import write_secret
from gateway.config import FleetConfig
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.enrolled import EnrolledDevices, FleetPolicies, read_roots
from gateway.fleet.entries import Document, FleetError, Target
from gateway.fleet.keys import Root, decrypt_key, encrypt_key
from gateway.fleet.registry import Registry
from gateway.fleet.signing import Signed
from tests.support.processes import policy
from tests.support.refusals import refused_for
from tests.support.signing import NOW, Keys, new_keys, policy_document

KEYS = Keys()
STRANGERS = new_keys(1)
POLICY = policy(epoch_us=0, period_us=1_000_000)
DOCUMENT = policy_document(POLICY, version=5)


def spoiled(envelope: Envelope, which: int) -> Envelope:
    """The same envelope with one signature that does not match."""
    signatures = list(envelope.signatures)
    signature = signatures[which]
    signatures[which] = Signature(signature.key, signature.signature[:-1] + bytes([signature.signature[-1] ^ 1]))
    return replace(envelope, signatures=tuple(signatures))


def lying(**compiled: tuple[str, ...]) -> Envelope:
    """A document whose forms differ, signed by enough keys."""
    return KEYS.envelope(DOCUMENT.model_copy(update=compiled))


LOUDER = POLICY.model_copy(update={"version": 5, "table": NoiseTable.binary(1000, 1000)})
CASES = {
    "exactly enough": (KEYS.envelope(DOCUMENT, KEYS.policy[:2]), None),
    "all": (KEYS.envelope(DOCUMENT, KEYS.policy), None),
    "nobody": (KEYS.envelope(DOCUMENT, []), Reason.WRONG_ROLE),
    "a stranger": (KEYS.envelope(DOCUMENT, STRANGERS), Reason.WRONG_ROLE),
    "another role": (KEYS.envelope(DOCUMENT, KEYS.root), Reason.WRONG_ROLE),
    "one too few": (KEYS.envelope(DOCUMENT, KEYS.policy[:1]), Reason.THRESHOLD),
    "one of each role": (KEYS.envelope(DOCUMENT, [KEYS.policy[0], KEYS.root[0], KEYS.gateway[0]]), Reason.THRESHOLD),
    "one of two spoiled": (spoiled(KEYS.envelope(DOCUMENT, KEYS.policy[:2]), 0), Reason.BAD_SIGNATURE),
    "enough, and one more that is spoiled": (spoiled(KEYS.envelope(DOCUMENT, KEYS.policy), 2), Reason.BAD_SIGNATURE),
    "other bytes for agents": (lying(compiled=(compile_policy(LOUDER).hex(),)), Reason.GUARANTEE),
    "other bytes for boards": (lying(boards=(compile_board_policy(LOUDER).hex(),)), Reason.GUARANTEE),
    "no bytes": (lying(compiled=()), Reason.GUARANTEE),
}
"""Envelopes of a document that two of three policy keys have to sign, and how the rule refuses them."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Envelope, Reason | None]:
    return CASES[request.param]


def test_device_and_gateway_follow_the_rule(case: tuple[Envelope, Reason | None], tmp_path: Path) -> None:
    envelope, refusal = case
    root = KEYS.root_document()
    device = Trust(KEYS.enrolment())
    if refusal is None:
        verify_signatures(envelope, root)
        assert device.judge(envelope.encode(), "policy", NOW).changes
    else:
        if refusal is not Reason.GUARANTEE:
            with refused_for(refusal):
                verify_signatures(envelope, root)
        with refused_for(refusal):
            device.judge(envelope.encode(), "policy", NOW)
    assert taken(envelope, [root], tmp_path / "registry.sqlite") == (refusal is None)


def taken(envelope: Envelope, roots: list[RootDocument], path: Path) -> bool:
    """True if a gateway believes a document that a registry holds."""
    counters: Counter[str] = Counter()
    catalogue = Catalogue("home")
    with closing(Registry(path, fleet="home")) as registry:
        registry.enrol("watch", actor="test", time_us=0)
        payload = envelope.encode()
        document = Document(5, Target("device", "watch"), envelope.digest, payload, "")
        registry.add_document(document, actor="test", time_us=0)
        FleetPolicies(registry, roots, catalogue, counters).refresh(registry.devices())
    assert counters["documents_taken"] + counters["documents_refused"] == 1
    assert catalogue.devices(POLICY.stream) == (("watch",) if counters["documents_taken"] else ())
    return bool(counters["documents_taken"])


def test_an_older_root_still_speaks_for_a_document(tmp_path: Path) -> None:
    other = Keys()
    envelope = KEYS.envelope(DOCUMENT)
    roots = [KEYS.root_document(), other.root_document(version=2)]
    assert taken(envelope, roots, tmp_path / "one.sqlite")
    assert not taken(envelope, roots[1:], tmp_path / "two.sqlite")


def test_a_document_of_another_version_fleet_or_kind_is_not_believed(tmp_path: Path) -> None:
    others = [
        KEYS.envelope(policy_document(POLICY, version=6)),
        KEYS.envelope(policy_document(POLICY, version=5, fleet="away")),
        sign("stop", write_document(DOCUMENT), KEYS.policy[:2]),
    ]
    for number, envelope in enumerate(others):
        assert not taken(envelope, [KEYS.root_document()], tmp_path / f"{number}.sqlite")


def test_what_the_operator_pushes_follows_the_rule(case: tuple[Envelope, Reason | None]) -> None:
    """Too few signatures are read, as others may follow, and are not pushed; each that is there has to count."""
    envelope, refusal = case
    root = Root(KEYS.root_document(), KEYS.root_envelope())
    if refusal is Reason.GUARANTEE:
        with pytest.raises(PolicyError, match="compiled polic"):
            Signed.read(envelope.encode(), root)
        return
    if refusal is not None and envelope != KEYS.envelope(DOCUMENT, KEYS.policy[:1]):
        with pytest.raises(FleetError, match="it takes 2 signatures of policy keys of root version 1, and no others"):
            Signed.read(envelope.encode(), root)
        return
    signed = Signed.read(envelope.encode(), root)
    assert signed.signatures == len(envelope.signatures)
    if refusal is None:
        assert signed.check(root, NOW)
    else:
        with refused_for(refusal):
            signed.check(root, NOW)


def test_nobody_signs_beside_others_or_pushes_for_later_what_is_not_true() -> None:
    root, guarantee = Root(KEYS.root_document(), KEYS.root_envelope()), POLICY.guarantee
    false = POLICY.model_copy(update={"guarantee": guarantee.model_copy(update={"epsilon": 0.001})})
    envelope = KEYS.envelope(policy_document(false, version=5, valid_from=NOW + 10))
    signed = Signed.read(envelope.encode(), root)
    with pytest.raises(FuguError, match=r"above the 0\.001 of its guarantee"):
        signed.with_signatures(KEYS.policy[2:])
    with refused_for(Reason.GUARANTEE):
        signed.check(root, NOW)
    past = Signed.read(KEYS.envelope(policy_document(POLICY, version=5, valid_until=NOW)).encode(), root)
    with refused_for(Reason.EXPIRED):
        past.check(root, NOW)
    with pytest.raises(FleetError, match="not for device watch as it is enrolled"):
        signed.check(root, NOW, [KEYS.enrolment().model_copy(update={"fleet": "away"})])
    with pytest.raises(FleetError, match="a document of fleet away; the root is that of fleet home"):
        Signed.read(KEYS.envelope(policy_document(POLICY, version=5, fleet="away")).encode(), root)


def test_a_root_is_signed_by_its_own_keys_for_gateway_and_device(tmp_path: Path) -> None:
    good = Envelope.decode(KEYS.root_envelope())
    (tmp_path / "good").write_bytes(good.encode())
    ((root, payload),) = read_roots([tmp_path / "good"], "home")
    assert root == KEYS.root_document()
    assert Root(root, payload).trust().state.root == write_document(root)
    few = replace(good, signatures=good.signatures[:1])
    for bad in (few, spoiled(good, 0), spoiled(Envelope.decode(KEYS.root_envelope(1, KEYS.root[2])), 1)):
        (tmp_path / "bad").write_bytes(bad.encode())
        with pytest.raises(FuguError, match="bad: "):
            read_roots([tmp_path / "bad"], "home")
        with pytest.raises(TrustError):
            Root(root, bad.encode()).trust()
    (tmp_path / "next").write_bytes(KEYS.root_envelope(2))
    assert [root.document.version for root in read_roots([tmp_path / "next", tmp_path / "good"], "home")] == [1, 2]
    with pytest.raises(PolicyError, match="good is not a root of fleet away"):
        read_roots([tmp_path / "good"], "away")


def test_a_gateway_signs_with_a_gateway_key_of_its_fleet_only(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(KEYS.root_envelope())
    write_secret(tmp_path / "secret", b"correct horse")
    Registry(tmp_path / "fleet.sqlite", fleet="home").close()
    Registry(tmp_path / "other.sqlite", fleet="away").close()
    cases = [
        (KEYS.gateway[0], "fleet.sqlite", ""),
        (KEYS.policy[0], "fleet.sqlite", "key is not a gateway key of root version 1"),
        (STRANGERS[0], "fleet.sqlite", "key is not a gateway key of root version 1"),
        (KEYS.gateway[0], "other.sqlite", "other.sqlite is the registry of fleet away"),
    ]
    for key, registry, problem in cases:
        write_secret(tmp_path / "key", encrypt_key(key, "correct horse"))
        config = FleetConfig(
            registry=tmp_path / registry,
            roots=(tmp_path / "root",),
            key=tmp_path / "key",
            passphrase_file=tmp_path / "secret",
        )
        with pytest.raises(FuguError, match=problem) if problem else nullcontext():
            EnrolledDevices("home", config, Catalogue("home"), Counter()).close()


def test_a_key_is_written_in_a_form_that_others_read_too(tmp_path: Path) -> None:
    (key,) = new_keys(1)
    path = tmp_path / "key.pem"
    path.write_bytes(encrypt_key(key, "correct horse"))
    shown = subprocess.run(["openssl", "asn1parse", "-in", str(path)], capture_output=True, text=True, check=True)
    assert re.findall(r"INTEGER +:(\w+)", shown.stdout) == ["4000", "08", "05"]
    assert decrypt_key(path.read_bytes(), "correct horse", path).private_bytes_raw() == key.private_bytes_raw()
    command = ["openssl", "pkey", "-in", str(path), "-passin", "pass:correct horse", "-pubout", "-outform", "DER"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.endswith(key.public_key().public_bytes_raw())


def test_a_document_and_a_device_meet_once_however_often_the_registry_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a document for each of n devices, a look at an unchanged registry would otherwise take n * n steps."""
    reaches, meetings = Address.reaches, list[str]()

    def counted(address: Address, device: str, groups: tuple[str, ...]) -> bool:
        meetings.append(device)
        return reaches(address, device, groups)

    monkeypatch.setattr(Address, "reaches", counted)
    with closing(Registry(tmp_path / "fleet.sqlite", fleet="home")) as registry:
        policies = FleetPolicies(registry, [KEYS.root_document()], catalogue := Catalogue("home"), Counter())

        def look() -> list[str]:
            meetings.clear()
            policies.refresh(registry.devices())
            return sorted(meetings)

        registry.enrol("watch", actor="test", time_us=0)
        envelope = KEYS.envelope(DOCUMENT)
        document = Document(5, Target("device", "watch"), envelope.digest, envelope.encode(), "")
        registry.add_document(document, actor="test", time_us=0)
        assert look() == ["watch"]
        assert catalogue.devices(POLICY.stream) == ("watch",)
        assert look() == []
        registry.enrol("ring", actor="test", time_us=0)
        assert look() == ["ring"]
        assert look() == []
        registry.set_groups("ring", ["hall"], actor="test", time_us=0)
        assert look() == ["ring"]
        registry.remove("ring", actor="test", time_us=0)
        assert look() == []
        registry.enrol("ring", ["hall"], actor="test", time_us=0)
        assert look() == ["ring"]
