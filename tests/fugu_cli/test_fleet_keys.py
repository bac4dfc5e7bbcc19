"""`fugu fleet init`, `keys` and `sign`: keys in files, and what is signed with them, before a device's own rules."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.compiler import compile_board_policy
from fugu.contract.envelope import Envelope, encode_roots, sign
from fugu.contract.errors import FuguError, Reason
from fugu.contract.fleet_documents import (
    Address,
    Enrolment,
    PolicyDocument,
    RootDocument,
    board_units,
    read_document,
    read_enrolment,
    write_document,
)
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import TimedTable
from fugu.contract.noise_table import NoiseTable
from fugu.contract.pins import pins_of
from fugu.contract.trust import Trust, Verdict
from fugu.core.derived import accept
from fugu.core.judge import judge
from fugu.core.policy import Policy as CorePolicy
from fugu.core.trust import TrustState
from fugu.host.database import add_functions
from fugu_cli.main import main
from gateway.fleet import keys as keys_module
from gateway.fleet.entries import Document, Target
from gateway.fleet.keys import Passphrases, decrypt_key, key_files
from gateway.fleet.registry import Registry
from gateway.fleet.signing import make_document, weaker_promises
from tests.support.board_modules import verified
from tests.support.board_trust import burnt_image
from tests.support.command import Fugu
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.refusals import refused_for
from tests.support.signing import new_keys, policy_document

PASSPHRASE = "correct horse battery"
POLICY = policy(epoch_us=0, period_us=1_000_000)
INSERTED = ("fleet", "device", "version")


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """A guess takes less than a hundredth of its time."""
    with pytest.MonkeyPatch.context() as patch:
        quick = {"_COST": 1 << 8, "_PARALLEL": 1, "_KEY_DER": keys_module._KEY_DER.replace("02024000", "02020100")}
        for name, value in quick.items():
            patch.setattr(keys_module, name, value)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of fleet home, made once: two of three root keys, two of two policy keys."""
    folder = tmp_path_factory.mktemp("fleet")
    secret(folder / "secret", PASSPHRASE)
    words = ("fleet", "init", "--fleet", "home", "--keys", folder / "keys", "--policy", "2/2")
    assert main([str(word) for word in (*words, "--passphrase-file", folder / "secret")]) == 0
    return folder / "keys"


@pytest.fixture
def keys(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them; the passphrase is in the environment."""
    monkeypatch.setenv("FUGU_PASSPHRASE", PASSPHRASE)
    shutil.copytree(folder, tmp_path / "keys")
    (tmp_path / "hr.json").write_text(POLICY.to_json())
    return tmp_path / "keys"


@pytest.fixture
def sign_file(fugu: Fugu, keys: Path, tmp_path: Path) -> Fugu:
    """`fugu fleet sign` of hr.json for everyone as version 1 into the file out, unless further words say otherwise."""
    words = ("--to", "everyone", "--version", 1, "--keys", keys, "-o", tmp_path / "out")
    return partial(fugu, "fleet", "sign", tmp_path / "hr.json", *words)


@pytest.fixture
def add_signature(fugu: Fugu, keys: Path, tmp_path: Path) -> Fugu:
    """`fugu fleet sign` that adds a signature to the file out."""
    return partial(fugu, "fleet", "sign", "--add-to", tmp_path / "out", "--keys", keys)


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


def one_key(keys: Path, role: str) -> Path:
    return next(keys.glob(f"{role}-*.key"))


def root_of(keys: Path) -> bytes:
    return (keys / "root.envelope").read_bytes()


def roots_of(keys: Path) -> bytes:
    return encode_roots([path.read_bytes() for path in sorted(keys.glob("root-*.envelope"))])


def device(keys: Path, **fields: Any) -> Trust:
    defaults = {"fleet": "home", "device": "watch", "groups": ("wrists",), "ceiling": 1.0}
    return Trust(Enrolment(root=root_of(keys).hex(), **{**defaults, **fields}))


def root_in(trust: Trust) -> RootDocument:
    """The root that a device follows."""
    return read_document(RootDocument, trust.state.root)


def taken(board: Any, trusted: TrustState, path: Path) -> tuple[TrustState, list[CorePolicy]]:
    """Trust and policies of a board that takes a document."""
    _, content = judge("policy", path.read_bytes(), board, trusted, int(time.time()), verified)
    assert content is not None
    return accept(content, board, trusted, lambda: None)


def accepted(keys: Path, path: Path, **fields: Any) -> Verdict:
    return device(keys, **fields).judge(path.read_bytes(), "policy", int(time.time()))


# Keys


def test_init_makes_private_files_for_their_owner_only(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    files = sorted(folder.glob("*.key"))
    assert [file.name.partition("-")[0] for file in files] == ["gateway", "policy", "policy", "root", "root", "root"]
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    root = root_in(device(folder))
    assert (root.version, root.root.threshold, root.policy.threshold, root.gateway.threshold) == (1, 2, 2, 1)
    assert {name[:8] for name in root.keys} == {file.stem.partition("-")[2] for file in files}


def test_init_refuses_a_folder_with_something_in_it_and_thresholds_that_nobody_meets(
    fugu: Fugu, keys: Path, tmp_path: Path
) -> None:
    again = fugu("fleet", "init", "--fleet", "home", "--keys", keys)
    assert (again.code, again.err) == (1, f"fugu: {keys} is not empty: name a new folder, or remove it first\n")
    never = fugu("fleet", "init", "--fleet", "home", "--keys", tmp_path / "new", "--root", "4/3")
    assert (never.code, never.err) == (1, "fugu: a threshold of 4 with 3 keys can never be met\n")
    for wrong in ("3", "0/3", "1/0", "1/17", "2/3/4", "-1/3"):
        none = fugu("fleet", "init", "--fleet", "home", "--keys", tmp_path / "new", f"--policy={wrong}")
        assert f"policy must be M/N, M of N keys and N from 1 to 16, got {wrong!r}" in none.refusal(2)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        (PASSPHRASE, 0o640, "that others may read (mode 0640) is not used: chmod 600 it"),
        ("", 0o600, "the first line is empty: keys without a passphrase are not used"),
        ("short", 0o600, "a passphrase for a new key must have at least 8 characters"),
    ],
)
def test_init_refuses_passphrases(fugu: Fugu, tmp_path: Path, text: str, mode: int, complaint: str) -> None:
    file = secret(tmp_path / "secret", text, mode)
    done = fugu("fleet", "init", "--fleet", "home", "--keys", tmp_path / "keys", "--passphrase-file", file)
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith(f"{complaint}\n")
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        (["", ""], "no passphrase: keys without one are not used"),
        (["correct horse", "correct house"], "the two passphrases differ; nothing was written"),
        (None, "no passphrase: give --passphrase-file or FUGU_PASSPHRASE, or run it at a terminal"),
    ],
)
def test_at_a_terminal_a_new_passphrase_is_asked_for_twice(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str] | None, complaint: str
) -> None:
    monkeypatch.delenv("FUGU_PASSPHRASE", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: answers is not None, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: (answers or []).pop(0))
    done = fugu("fleet", "init", "--fleet", "home", "--keys", tmp_path / "keys")
    assert (done.code, done.err) == (1, f"fugu: {complaint}\n")
    assert not (tmp_path / "keys").exists()


def test_keys_show_says_where_they_are(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    moved = one_key(keys, "root").rename(tmp_path / "disk" / one_key(keys, "root").name)
    document = fugu("fleet", "keys", "show", "--keys", keys, "--json").json()
    assert (document["fleet"], document["version"], document["policy"]["threshold"]) == ("home", 1, 2)
    assert [entry["file"] for entry in document["root"]["keys"]].count(None) == 1
    assert "elsewhere" in fugu("fleet", "keys", "show", "--keys", keys).out
    both = fugu("fleet", "keys", "show", "--keys", keys, "--keys", tmp_path / "disk", "--json").json()
    assert str(moved) in [entry["file"] for entry in both["root"]["keys"]]


def test_keys_that_others_may_read_are_not_used(sign_file: Fugu, keys: Path, tmp_path: Path) -> None:
    file = one_key(keys, "policy")
    for mode in (0o640, 0o604):
        file.chmod(mode)
        complaint = f"a key that others may read (mode {mode:04o}) is not used: chmod 600 it"
        done = sign_file()
        assert (done.code, done.err) == (1, f"fugu: {file}: {complaint}\n")
    file.chmod(0o600)
    keys.chmod(0o750)
    done = sign_file()
    assert done.code == 1
    assert "a folder of keys that others may use (mode 0750) is not used: chmod 700 it" in done.err
    assert not (tmp_path / "out").exists()


def test_keys_that_cannot_be_opened(
    sign_file: Fugu, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in keys.glob("policy-*.key"):
        shutil.copy(file, tmp_path)
    first = sorted(keys.glob("policy-*.key"))[0]
    monkeypatch.setenv("FUGU_PASSPHRASE", "wrong horse battery")
    assert "the passphrase is not the one of this key" in sign_file().err
    monkeypatch.setenv("FUGU_PASSPHRASE", PASSPHRASE)
    (key,) = new_keys(1)
    for content, complaint in (
        (open_pem(key), "not a key under a passphrase: such a key is not used"),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n????", "or the file is damaged"),
        (one_key(keys, "gateway").read_bytes(), "not the one of its name"),
    ):
        for file in keys.glob("policy-*.key"):
            file.write_bytes(content)
        done = sign_file()
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert complaint in done.err
    assert first.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_of_wrong_passphrases_one_in_256_fits_the_padding_and_the_next_is_tried_all_the_same(keys: Path) -> None:
    wrong = [f"wrong horse {number}" for number in range(1000)]
    file = key_files([keys])[0]
    assert file.unlock(Passphrases([*wrong, PASSPHRASE], input))


def test_a_key_that_is_damaged_anywhere_is_not_used(keys: Path) -> None:
    file = key_files([keys])[0]
    first, *lines, last = file.path.read_text().splitlines()
    whole = base64.b64decode("".join(lines))
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        file.path.write_text("\n".join((first, base64.b64encode(damaged).decode(), last, "")))
        with pytest.raises(FuguError):
            file.unlock(Passphrases([PASSPHRASE], input))


def open_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


# Rotation


def test_a_policy_key_is_replaced_and_devices_follow(fugu: Fugu, sign_file: Fugu, keys: Path, tmp_path: Path) -> None:
    before, old = device(keys), one_key(keys, "policy")
    stays = next(file for file in keys.glob("policy-*.key") if file != old)
    name = old.stem.partition("-")[2]
    document = fugu("fleet", "keys", "rotate", "--role", "policy", "--key", name, "--keys", keys, "--json").json()
    assert (document["version"], len(document["new"]), document["retired"]) == (2, 1, [str(old)])
    assert str(stays) in [entry["file"] for entry in document["policy"]["keys"]]
    assert (keys / "root-2.envelope").read_bytes() == root_of(keys)
    assert before.judge(roots_of(keys), "root", 0).changes
    assert root_in(before).version == 2
    assert sign_file().code == 0
    assert before.judge((tmp_path / "out").read_bytes(), "policy", 0).changes
    Path(document["new"][0]).unlink()
    done = sign_file("--json").json()
    assert (done["complete"], done["signatures"]) == (False, 1), "the old key counts no more"


def test_no_second_root_of_a_version_is_made_from_an_outdated_folder(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    shutil.copytree(keys, tmp_path / "old")
    fugu("fleet", "keys", "rotate", "--role", "policy", "--keys", keys)
    before = sorted((tmp_path / "old").iterdir())
    refused = fugu("fleet", "keys", "rotate", "--role", "policy", "--keys", tmp_path / "old", "--keys", keys)
    assert (refused.code, "another folder has 2" in refused.err) == (1, True)
    assert sorted((tmp_path / "old").iterdir()) == before


def test_a_short_passphrase_is_refused_for_every_new_key(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    short = secret(tmp_path / "short", "1")
    words = ("fleet", "keys", "rotate", "--role", "gateway", "--keys", keys, "--new-passphrase-file", short)
    assert "at least 8 characters" in fugu(*words).err
    words = ("fleet", "init", "--fleet", "home", "--keys", tmp_path / "new", "--gateway-passphrase-file", short)
    assert "at least 8 characters" in fugu(*words).err
    assert not (tmp_path / "new").exists()


def test_all_root_keys_are_replaced_by_old_ones_that_lie_elsewhere(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    before, disk = device(keys), tmp_path / "disk"
    disk.mkdir(mode=0o700)
    for file in sorted(keys.glob("root-*.key"))[:2]:
        file.rename(disk / file.name)
    words = ("fleet", "keys", "rotate", "--role", "root", "--count", 2, "--threshold", 2, "--keys", keys)
    few = fugu(*words)
    complaint = "a new root takes 2 of the old root keys, 1 are at hand: name further folders with --keys"
    assert (few.code, few.err) == (1, f"fugu: {complaint}\n")
    assert not (keys / "root-2.envelope").exists()
    done = fugu(*words, "--keys", disk)
    assert done.code == 0, done.err
    assert before.judge(roots_of(keys), "root", 0).changes
    assert (len(root_in(before).root.keys), root_in(before).root.threshold) == (2, 2)


def test_a_lost_root_key_is_replaced_by_the_others(fugu: Fugu, keys: Path) -> None:
    before, lost = device(keys), one_key(keys, "root")
    lost.unlink()
    name = lost.stem.partition("-")[2]
    assert fugu("fleet", "keys", "rotate", "--role", "root", "--key", name, "--keys", keys).code == 0
    assert before.judge(roots_of(keys), "root", 0).changes
    assert name not in {key[:8] for key in root_in(before).keys}


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--role", "policy", "--key", "ffffffff"), 1, "names no policy key of root version 1; there are "),
        (("--role", "king"), 2, "--role must be one of root, policy, gateway, got 'king'"),
        (("--role", "gateway", "--threshold", "2"), 1, "a threshold of 2 with 1 keys can never be met"),
        (("--role", "gateway", "--key", "GATEWAY", "--count", "2"), 2, "--count goes with the replacement of all"),
    ],
)
def test_rotations_that_are_refused(fugu: Fugu, keys: Path, words: tuple[str, ...], code: int, complaint: str) -> None:
    gateway = one_key(keys, "gateway").stem.partition("-")[2]
    files = set(keys.iterdir())
    done = fugu("fleet", "keys", "rotate", "--keys", keys, *(word.replace("GATEWAY", gateway) for word in words))
    assert complaint in done.refusal(code)
    assert set(keys.iterdir()) == files


# Signing


def test_what_is_signed_is_accepted_by_devices(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    body = {name: value for name, value in json.loads(POLICY.to_json()).items() if name not in INSERTED}
    (tmp_path / "hr.json").write_text(json.dumps(body))
    out = tmp_path / "out"
    done = fugu(
        *("fleet", "sign", tmp_path / "hr.json", "--to", "group:wrists", "--version", 7, "--keys", keys, "-o", out),
        *("--valid-from", "2020-01-31", "--valid-until", "2100-01-31T12:00+02:00", "--on-expiry", "stop", "--json"),
    )
    assert (done.code, done.err) == (0, "")
    document = done.json()
    assert document["streams"] == [
        {"stream": "hr", "kind": "symbols", "epsilon": 1.0, "adversary": "universal", "stretch_ticks": 1}
    ]
    signing = (document["version"], document["to"], document["signatures"], document["complete"])
    assert signing == (7, "group wrists", 2, True)
    verdict = accepted(keys, out)
    assert verdict.policies == (POLICY.model_copy(update={"version": 7}),)
    assert isinstance(verdict.document, PolicyDocument)
    assert (verdict.document.valid_from, verdict.document.valid_until) == (1580428800, 4105072800)
    assert verdict.document.on_expiry == "stop"


def test_tables_of_measured_streams_get_the_documents_version(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    measured = measure_policy(3)
    (tmp_path / "place.json").write_text(measured.to_json())
    out = tmp_path / "out"
    files = (tmp_path / "hr.json", tmp_path / "place.json")
    done = fugu("fleet", "sign", *files, "--to", "device:watch", "--version", 9, "--keys", keys, "-o", out)
    assert done.code == 0, done.err
    assert "1 each point" in done.out
    _, place = accepted(keys, out, measurement_ceiling=1.0).policies
    assert isinstance(place, MeasurePolicy)
    tables = [TimedTable.of_text(text) for text in (place.fallback, *place.tables)]
    assert [table.policy_version for table in tables] == [9, 9]
    assert tables == [replace(table, policy_version=9) for table in measured.measure_tables]


def test_several_people_sign(fugu: Fugu, sign_file: Fugu, add_signature: Fugu, keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    second = sorted(keys.glob("policy-*.key"))[1]
    second.rename(other / second.name)
    shutil.copy(keys / "root.envelope", other)
    out = tmp_path / "out"
    first = sign_file()
    assert first.code == 0
    assert "1 of the 2 signatures" in first.out
    with refused_for(Reason.THRESHOLD):
        accepted(keys, out)
    again = add_signature()
    assert again.code == 1
    assert "no policy key of root version 1 that has not signed yet is there" in again.err
    for ignored in (("--boards",), ("--unit", "hr=1/10"), ("--version", 2)):
        done = fugu("fleet", "sign", "--add-to", out, "--keys", other, *ignored)
        assert (done.code, done.err.partition(":")[2][:39]) == (2, " --add-to signs a document as it is: of")
    done = fugu("fleet", "sign", "--add-to", out, "--keys", other, "--json").json()
    assert (done["signatures"], done["complete"]) == (2, True)
    assert accepted(keys, out).changes


def test_nothing_is_added_to_what_is_not_signed_as_it_says(
    sign_file: Fugu, add_signature: Fugu, keys: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert sign_file().code == 0
    whole = Envelope.decode(out.read_bytes())
    wrong = replace(whole, payload=whole.payload.replace(b"low", b"lov"), signatures=whole.signatures[:1])
    foreign = replace(whole, signatures=())
    for envelope in (wrong, foreign):
        out.write_bytes(envelope.encode())
        assert "of policy keys of root version 1, and no others" in add_signature().refusal()
        assert out.read_bytes() == envelope.encode()
    out.write_bytes(b"?")
    assert add_signature().code == 1
    shutil.copy(keys / "root.envelope", out)
    assert "a root document where a policy document was expected" in add_signature().err


def test_a_colleague_who_signs_a_false_guarantee_gets_no_second_signature(
    add_signature: Fugu, keys: Path, tmp_path: Path
) -> None:
    file, out = one_key(keys, "policy"), tmp_path / "out"
    document = policy_document(FALSE, to=Address(everyone=True))
    out.write_bytes(
        sign("policy", write_document(document), [decrypt_key(file.read_bytes(), PASSPHRASE, file)]).encode()
    )
    before = out.read_bytes()
    assert "epsilon" in add_signature().refusal()
    assert out.read_bytes() == before


FALSE = POLICY.model_copy(update={"table": NoiseTable.binary(1_000_000_000, 1_000_000_000)})
MEASURED = measure_policy(3)
MIXED = {**json.loads(MEASURED.to_json()), "tables": [MEASURED.fallback]}


@pytest.mark.parametrize(
    ("text", "words", "code", "complaint"),
    [
        (FALSE.to_json(), (), 1, "epsilon"),
        (json.dumps(MIXED), (), 1, "the fallback has number 0"),
        ("{}", (), 1, "not of format fugu/2"),
        ("[1]", (), 1, "no JSON object"),
        (POLICY.model_copy(update={"fleet": "other"}).to_json(), (), 1, "a policy of fleet other"),
        (POLICY.to_json(), ("--to", "device:ring"), 1, "a policy of device watch; the document is for device ring"),
        (POLICY.to_json(), ("--to", "nobody"), 2, "--to must be device:NAME, group:NAME or everyone"),
        (POLICY.to_json(), ("--version", "0"), 1, "version"),
        (POLICY.to_json(), ("--version", str(2**32 - 1)), 2, "--version must be at most 4000000000: above, few"),
        (POLICY.to_json(), ("--unit", "hr=1/10"), 2, "--unit is of documents for boards: give --boards too"),
        (POLICY.to_json(), ("--version", "new"), 2, "--version must be a number or 'next'"),
        (POLICY.to_json(), ("--version", "next"), 2, "--version next and --restores need --registry"),
        (POLICY.to_json(), ("--valid-until", "2001-01-01"), 1, "the document would be over since 978307200"),
        (POLICY.to_json(), ("--valid-until", "soon"), 2, "--valid-until must be Unix seconds or like"),
        (POLICY.to_json(), ("--on-expiry", "panic"), 2, "--on-expiry must be one of hold, stop"),
        (POLICY.to_json(), ("--add-to", "x"), 2, "name POLICY files with --to and -o, or"),
    ],
)
def test_what_no_device_would_accept_is_not_signed(
    sign_file: Fugu, tmp_path: Path, text: str, words: tuple[str, ...], code: int, complaint: str
) -> None:
    (tmp_path / "hr.json").write_text(text)
    assert complaint in sign_file(*words).refusal(code)
    assert not (tmp_path / "out").exists()


def test_two_policies_for_one_stream_are_not_signed(sign_file: Fugu, tmp_path: Path) -> None:
    done = sign_file(tmp_path / "hr.json")
    assert (done.code, done.err) == (1, "fugu: two policies of a document are for one stream\n")


def test_a_devices_own_ceiling_counts_if_its_enrolment_is_named(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    words = ("--root", keys / "root.envelope", "--device", "watch", "--total-ceiling", 3, "-o", tmp_path / "watch.json")
    assert fugu("fleet", "enrol", *words, "--ceiling", 0.9).code == 0
    sign = ("fleet", "sign", tmp_path / "hr.json", "--version", 1, "--keys", keys, "-o", tmp_path / "out")
    done = fugu(*sign, "--to", "everyone", "--enrolment", tmp_path / "watch.json")
    assert done.code == 1
    assert done.err == "fugu: epsilon 1 of stream hr is above this device's ceiling 0.9\n"
    other = fugu(*sign, "--to", "group:wrists", "--enrolment", tmp_path / "watch.json")
    assert other.err == "fugu: the document is for group wrists, not for device watch as it is enrolled\n"
    assert not (tmp_path / "out").exists()


def test_what_an_enrolment_pins_is_not_signed_otherwise_and_not_pushed(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    """A signer sees what devices would say, before it is signed and before it is sent; `keys` may be a thief's."""
    heart, place = tmp_path / "hr.json", tmp_path / "place.json"
    place.write_text(measure_policy(3).to_json())
    enrolment, out = tmp_path / "watch.json", tmp_path / "out"
    words = ("--root", keys / "root.envelope", "--device", "watch", "--group", "wrists", "--ceiling", 1)
    done = fugu("fleet", "enrol", *words, "--policy", heart, "--policy", place, "-o", enrolment)
    assert (done.code, done.err) == (0, "")
    assert read_enrolment(enrolment.read_bytes()).pins == {"hr": pins_of(POLICY), "place": pins_of(measure_policy(3))}
    coins = POLICY.model_copy(update={"chains": BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5))})
    heart.write_text(coins.to_json())
    sign = ("fleet", "sign", heart, "--to", "group:wrists", "--version", 1, "--keys", keys, "-o", out)
    complaint = "stream hr: another class of chains than is pinned\n"
    refused = fugu(*sign, "--enrolment", enrolment)
    assert (refused.code, refused.err) == (1, f"fugu: {complaint}")
    assert not out.exists()
    assert fugu(*sign).code == 0, "without the enrolment nobody knows"
    registry = tmp_path / "fleet.db"
    opened = Registry(registry, fleet="home")
    opened.enrol("watch", ["wrists"], actor="anna", time_us=1)
    opened.close()
    push = ("fleet", "push", out, "--registry", registry, "--root", keys / "root.envelope", "--enrolment", enrolment)
    for words in ((*push, "--dry-run"), push):
        done = fugu(*words)
        assert (done.code, done.out, done.err) == (1, "", f"fugu: {out}: {complaint}")
    heart.write_text(POLICY.to_json())
    assert fugu(*sign, "--enrolment", enrolment).code == 0
    assert fugu(*push, "--dry-run").code == 0


def test_policies_that_cannot_be_pinned(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "watch.json"
    words = ("--root", keys / "root.envelope", "--device", "watch", "--ceiling", 1, "-o", out)
    heart, false = tmp_path / "hr.json", tmp_path / "false.json"
    false.write_text(POLICY.to_json().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    for options, complaint in (
        ((heart, heart), "two policies of a document are for one stream"),
        ((tmp_path / "none",), "cannot read the policy"),
        ((false,), "above the 0.1 of its guarantee"),
    ):
        done = fugu("fleet", "enrol", *words, *(word for file in options for word in ("--policy", file)))
        assert complaint in done.refusal()
        assert not out.exists()


def test_next_and_the_way_back_come_from_the_registry(fugu: Fugu, keys: Path, tmp_path: Path) -> None:
    registry, out = tmp_path / "fleet.db", tmp_path / "out"
    words = ("--keys", keys, "--registry", registry, "-o", out)
    opened = Registry(registry, fleet="home")
    for version in (4, 5):
        stream = POLICY.model_copy(update={"stream": f"hr{version}"})
        (tmp_path / "hr.json").write_text(stream.to_json())
        sign = ("fleet", "sign", tmp_path / "hr.json", "--to", "group:wrists", "--version", version)
        assert fugu(*sign, *words, "--on-expiry", "stop").code == 0
        envelope = Envelope.decode(out.read_bytes())
        entry = Document(version, Target("group", "wrists"), envelope.digest, out.read_bytes(), "")
        opened.add_document(entry, actor="anna", time_us=1)
    opened.close()
    taken = fugu("fleet", "sign", tmp_path / "hr.json", "--to", "group:wrists", "--version", 5, *words)
    assert (taken.code, taken.err) == (1, "fugu: version 5 is not newer than 5, which the registry has\n")
    done = fugu("fleet", "sign", "--restores", 4, *words, "--json").json()
    assert (done["version"], done["to"]) == (6, "group wrists")
    assert [stream["stream"] for stream in done["streams"]] == ["hr4"]
    document = read_document(PolicyDocument, Envelope.decode(out.read_bytes()).payload)
    assert document.on_expiry == "stop"
    missing = fugu("fleet", "sign", "--restores", 3, *words)
    assert missing.err == "fugu: there is no document of version 3 in fleet home\n"


@pytest.fixture
def home_registry(fugu: Fugu, keys: Path, tmp_path: Path) -> Path:
    """A registry with two signed documents: version 1 with epsilon 1, and version 2, which promises more."""
    less = POLICY.model_copy(update={"guarantee": POLICY.guarantee.model_copy(update={"epsilon": 40.0})})
    texts = [less.to_json().replace("100.5", "99.5"), POLICY.to_json()]
    with closing(Registry(tmp_path / "fleet.db", fleet="home")) as opened:
        opened.enrol("watch", ["wrists"], actor="anna", time_us=1)
        for version, text in enumerate(texts, 1):
            file = tmp_path / f"{version}.envelope"
            (tmp_path / "hr.json").write_text(text)
            words = ("fleet", "sign", tmp_path / "hr.json", "--to", "group:wrists", "--version", version)
            assert fugu(*words, "--keys", keys, "-o", file).code == 0
            envelope = Envelope.decode(file.read_bytes())
            entry = Document(version, Target("group", "wrists"), envelope.digest, file.read_bytes(), "")
            opened.add_document(entry, actor="anna", time_us=1)
    return tmp_path / "fleet.db"


def _forged(registry: Path, version: int, payload: bytes, place: int | None = None) -> None:
    """Change the registry as somebody can who has the gateway's host."""
    with closing(sqlite3.connect(registry)) as db:
        add_functions(db)
        (trigger,) = db.execute("SELECT sql FROM sqlite_master WHERE name='documents_stay'").fetchone()
        db.execute("DROP TRIGGER documents_stay")
        db.execute("UPDATE documents SET payload=?, version=? WHERE version=?", (payload, place or version, version))
        db.execute(trigger)
        db.commit()


def _stretch_document(version: int, epsilon: float, ticks: int, scale: str) -> PolicyDocument:
    window = {"name": "day", "length": 1440, "stride": 1440, "states": [1], "scale": scale}
    body = json.loads(POLICY.to_json()) | {
        "chains": {"kind": "bounded", "states": 2, "odds_ratio": 9.0},
        "windows": [window],
        "guarantee": {"epsilon": epsilon, "adversary": "universal", "stretch_ticks": ticks},
    }
    body = {name: value for name, value in body.items() if name not in ("table", "frame_ticks", *INSERTED)}
    return make_document("home", version, Address(group="wrists"), [body])


def test_what_is_weaker_is_so_about_the_stretch_that_was_promised() -> None:
    """Epsilon 1 of a tick is less than epsilon 1 of an hour, and epsilon 1.9 of a day more than neither."""
    tick, hour = _stretch_document(1, 1.0, 1, "3"), _stretch_document(2, 1.0, 61, "64")
    day = _stretch_document(3, 1.9, 481, "256")
    assert weaker_promises(tick, hour) == weaker_promises(tick, day) == weaker_promises(hour, day) == []
    (line,) = weaker_promises(hour, tick)
    match = re.fullmatch(
        r"version 1 is weaker: epsilon ([\d.]+) of stream hr about any 61 ticks in a row, where version 2 promises 1",
        line,
    )
    assert match
    assert float(match[1]) == pytest.approx(1.0 + 60 / 3, rel=1e-4)


def test_what_is_brought_back_is_shown_and_what_is_weaker_is_named(
    fugu: Fugu, keys: Path, home_registry: Path, tmp_path: Path
) -> None:
    words = ("fleet", "sign", "--restores", 1, "--keys", keys, "--registry", home_registry, "-o", tmp_path / "out")
    done = fugu(*words)
    assert done.code == 0
    assert done.err == ("fugu: warning: version 3 is weaker: epsilon 40 of stream hr, where version 2 promises 1\n")
    lines = {line.strip().split("  ")[0]: line for line in done.out.splitlines()}
    assert "group wrists" in lines["to"]
    assert "None" in lines["valid_until"]
    assert str(list(POLICY.discretiser.states)).replace("'", '"') in lines["hr: discretiser.states"]
    assert json.dumps(list(POLICY.discretiser.edges)) in lines["hr: discretiser.edges"]
    assert "CHANGED" in lines["hr: guarantee"]
    assert fugu(*words[:3], 2, *words[4:]).err == ""
    document = fugu(*words, "--json").json()
    assert (document["former"], len(document["weaker"])) == (2, 1)
    assert document["content"]["hr: guarantee"] != document["former_content"]["hr: guarantee"]
    root = ("--root", keys / "root.envelope")
    dry = fugu("fleet", "push", tmp_path / "out", "--registry", home_registry, *root, "--dry-run")
    assert "hr: discretiser.edges" in dry.out
    assert "is weaker" in dry.err


def test_a_registry_that_was_changed_gets_nothing_signed(
    fugu: Fugu, keys: Path, home_registry: Path, tmp_path: Path
) -> None:
    """Somebody who has the gateway's host has the registry's file."""
    envelope = Envelope.decode((tmp_path / "1.envelope").read_bytes())
    document = _policy_in(tmp_path / "1.envelope")
    other = document.model_copy(update={"on_expiry": "stop"})
    _forged(home_registry, 1, replace(envelope, payload=write_document(other)).encode())
    out = tmp_path / "out"
    words = ("fleet", "sign", "--restores", 1, "--keys", keys, "--registry", home_registry, "-o", out)
    done = fugu(*words)
    assert "version 1 of the registry is not believed: a signature does not match the document" in done.refusal()
    assert fugu(*words[:3], 2, *words[4:]).code == 0, "the other one is as it was signed"
    out.unlink()
    _forged(home_registry, 1, replace(envelope, signatures=envelope.signatures[:1]).encode())
    assert "version 1 of the registry is not believed: it has 1 of 2 signatures" in fugu(*words).err
    assert not out.exists()


def test_neither_place_nor_number_of_a_document_is_believed(
    fugu: Fugu, keys: Path, home_registry: Path, tmp_path: Path
) -> None:
    """A number that nobody signed would end the fleet's numbers: none is above it."""
    _forged(home_registry, 2, (tmp_path / "1.envelope").read_bytes(), 3_999_999_999)
    words = ("--keys", keys, "--registry", home_registry, "-o", tmp_path / "out")
    place = "the registry has version 1 in the place of version 3999999999"
    back = fugu("fleet", "sign", "--restores", 3_999_999_999, "--version", 4_000_000_000, *words)
    assert (back.code, place in back.err) == (1, True)
    done = fugu("fleet", "sign", tmp_path / "hr.json", "--to", "everyone", *words)
    assert (done.code, done.err) == (1, f"fugu: {place}: nor is its number; say the new one with --version\n")
    assert not (tmp_path / "out").exists()


def test_what_a_replaced_key_has_signed_is_given_as_a_file(
    fugu: Fugu, keys: Path, home_registry: Path, tmp_path: Path
) -> None:
    out, file = tmp_path / "out", tmp_path / "1.envelope"
    assert fugu("fleet", "keys", "rotate", "--role", "policy", "--keys", keys).code == 0
    words = ("--keys", keys, "--registry", home_registry, "-o", out)
    done = fugu("fleet", "sign", "--restores", 1, *words)
    assert (done.code, done.out, out.exists()) == (1, "", False)
    assert "of policy keys of root version 2" in done.err
    assert done.err.endswith("If a key that was replaced since has signed it, name the file: --restores FILE\n")
    assert fugu("fleet", "sign", "--restores", file, *words).code == 0
    assert _policy_in(out).version == 3
    again, newer = (
        fugu("fleet", "sign", "--restores", file, "--version", version, "--keys", keys, "-o", out) for version in (1, 2)
    )
    assert (again.code, newer.code) == (1, 0), newer.err
    assert "version 1 is not newer than version 1, which it brings back" in again.err
    envelope = Envelope.decode(file.read_bytes())
    file.write_bytes(sign("policy", envelope.payload, new_keys(2)).encode())
    assert "no key that may sign a policy document" in fugu("fleet", "sign", "--restores", file, *words).err


def _policy_in(path: Path) -> PolicyDocument:
    return read_document(PolicyDocument, Envelope.decode(path.read_bytes()).payload)


def test_a_document_for_boards_is_accepted_by_one_and_brought_back_with_its_units(
    fugu: Fugu, keys: Path, tmp_path: Path
) -> None:
    out, words = tmp_path / "out", ("--to", "everyone", "--keys", keys, "--registry", tmp_path / "fleet.db")
    with closing(Registry(tmp_path / "fleet.db", fleet="home")) as registry:
        registry.enrol("watch", actor="anna", time_us=1)
    boards = ("--boards", "--unit", "hr=1/10")
    assert fugu("fleet", "sign", tmp_path / "hr.json", *words, *boards, "-o", out).code == 0
    (compiled,) = _policy_in(out).boards
    somebody = POLICY.model_copy(update={"device": "device"})
    assert bytes.fromhex(compiled) == compile_board_policy(somebody, Fraction(1, 10))
    enrolment = Enrolment(fleet="home", device="watch", root=root_of(keys).hex(), ceiling=1.0)
    board, agent = burnt_image(tmp_path / "image", [POLICY], enrolment, unit=Fraction(1, 10)), device(keys)
    trusted = TrustState(board.ROOT)
    trusted, (judged,) = taken(board, trusted, out)
    assert (trusted.version, judged.version, judged.device) == (1, 1, "watch")
    assert agent.judge(out.read_bytes(), "policy", int(time.time())).changes
    assert fugu("fleet", "push", out, *words[4:], "--root", keys / "root.envelope").code == 0
    assert fugu("fleet", "sign", "--restores", 1, *words[2:], "-o", out).code == 0
    back = _policy_in(out)
    assert back.version == 2
    assert board_units(back) == {"hr": Fraction(1, 10)}
    trusted, (judged,) = taken(board, trusted, out)
    assert (trusted.version, judged.version) == (2, 2)


def test_a_colleague_who_signs_other_compiled_policies_gets_no_second_signature(
    fugu: Fugu, add_signature: Fugu, keys: Path, tmp_path: Path
) -> None:
    file, out = one_key(keys, "policy"), tmp_path / "out"
    other = POLICY.model_copy(update={"frame_ticks": POLICY.frame_ticks + 1, "device": "device"})
    document = policy_document(POLICY, to=Address(everyone=True))
    document = document.model_copy(update={"boards": (compile_board_policy(other).hex(),)})
    key = decrypt_key(file.read_bytes(), PASSPHRASE, file)
    out.write_bytes(sign("policy", write_document(document), [key]).encode())
    for done in (add_signature(), fugu("check", "policy", out)):
        assert done.refusal() == (
            f"fugu: {out}: the compiled policy of stream hr is not its JSON form: frame_ticks is "
            f"{POLICY.frame_ticks + 1}, and {POLICY.frame_ticks} by the JSON form\n"
        )


@pytest.mark.parametrize(
    ("unit", "code", "complaint"),
    [("x=1", 1, "stream x has a unit, but no policy"), ("1/10", 2, "--unit must be like hr=1/10")],
)
def test_units_that_are_none(sign_file: Fugu, unit: str, code: int, complaint: str) -> None:
    assert complaint in sign_file("--boards", "--unit", unit).refusal(code)


def test_a_passphrase_is_never_on_the_screen(sign_file: Fugu) -> None:
    done = sign_file()
    assert PASSPHRASE not in done.out + done.err
    assert os.environ["FUGU_PASSPHRASE"] == PASSPHRASE
