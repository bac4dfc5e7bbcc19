"""`fugu check statement`: what it states of a policy and since when, and what it finds wrong with one."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.dating import dates_of
from fugu.contract.envelope import Envelope
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span
from fugu.contract.pins import SymbolPins, pins_of
from fugu.contract.policy import Policy
from fugu.host.files import new_folder
from fugu.privacy.randomised_response import calibrate
from fugu_cli.main import main
from gateway.audit.access import AccessList, read_access
from gateway.audit.statement import policy_statement
from gateway.deployment.mosquitto import Account, Role
from gateway.fleet.keys import write_key
from tests.support.audited import CHAINS, WINDOWS, broker_of, planned
from tests.support.command import Fugu
from tests.support.measured import measure_policy
from tests.support.scenes import Scene, frames, policy
from tests.support.signing import Keys


def audited(fugu: Fugu, folder: Path, policy: Any, *words: object) -> tuple[int, Any]:
    """The exit code and the statement of a policy, or of its JSON after a change."""
    file = folder / "policy.json"
    file.write_text(policy.to_json() if not isinstance(policy, dict) else json.dumps(policy))
    done = fugu("check", "statement", file, *words, "--json")
    assert done.err == ""
    return done.code, done.json()


def names(statement: Any) -> list[str]:
    return [finding["name"] for finding in statement["findings"]]


def changed(policy: Policy, **fields: Any) -> dict[str, Any]:
    """The JSON of a policy with other fields."""
    return {**json.loads(policy.to_json()), **fields}


@pytest.mark.long
def test_an_honest_policy_is_confirmed(fugu: Fugu, tmp_path: Path) -> None:
    code, report = audited(fugu, tmp_path, planned(windows=WINDOWS))
    assert (code, names(report), report["confirmed"]) == (0, [], True)
    assert [output["topic"] for output in report["outputs"]] == [
        "fugu/2/home/watch/symbols/hr",
        "fugu/2/home/watch/window/hr",
        "fugu/2/home/count/watch/hr",
        "fugu/2/home/estimate/watch/hr",
        "fugu/2/home/description/watch/hr",
    ]
    every, alone = report["claims"]
    assert every["epsilon"] - 1e-6 < every["recomputed"] <= every["epsilon"] == 1
    assert alone["recomputed"] == alone["epsilon"]
    ignorant, informed, universal = (adversary["epsilon"] for adversary in report["adversaries"])
    assert ignorant <= informed == every["recomputed"] <= universal
    others = {alternative["truth"].split()[0]: alternative["epsilon"] for alternative in report["alternatives"]}
    assert others["independent"] < 1 < others["a"] < others["longer"]
    assert others["any"] is None
    assert SymbolPins.model_validate_json(json.dumps(report["pins"])) == pins_of(planned(windows=WINDOWS))
    assert len(report["assumptions"]) == 6
    text = fugu("check", "statement", tmp_path / "policy.json").out
    assert "fugu/2/home/watch/symbols/hr" in text
    assert text.endswith("Every epsilon that is stated was computed again, and holds.\n")


@pytest.mark.long
@pytest.mark.parametrize("name", ["guarantee", "windows_guarantee"])
def test_an_epsilon_that_is_misstated_by_a_millionth_is_found(fugu: Fugu, tmp_path: Path, name: str) -> None:
    policy = planned(windows=WINDOWS)
    stated = getattr(policy, name)
    less = {"epsilon": stated.epsilon - 1e-6, "adversary": stated.adversary}
    code, report = audited(fugu, tmp_path, changed(policy, **{name: less}))
    assert (code, report["confirmed"]) == (1, False)
    assert names(report)[0] == "epsilon-understated"


def test_a_class_that_is_too_wide_for_the_table_is_found(fugu: Fugu, tmp_path: Path) -> None:
    wide = BinaryChains(q=(0.049, 0.1), r=(0.06, 0.2))
    code, report = audited(fugu, tmp_path, changed(planned(), chains=wide.model_dump(mode="json")))
    assert (code, names(report)) == (1, ["epsilon-understated"])


@pytest.mark.parametrize(
    ("chains", "narrow"),
    [
        (CHAINS, {"kind": "binary", "q": [0.06, 0.1], "r": [0.07, 0.2]}),
        (BoundedChains(states=2, odds_ratio=13.5), {"kind": "bounded", "states": 2, "odds_ratio": 9.0}),
    ],
)
def test_a_class_that_is_narrower_than_the_table_allows_is_named(
    fugu: Fugu, tmp_path: Path, chains: Any, narrow: dict[str, Any]
) -> None:
    """More than a tenth: what is stated is true of it, but nobody plans so; an owner's pins say the same."""
    policy = planned(chains, "universal")
    wrong = changed(policy, chains=narrow)
    code, report = audited(fugu, tmp_path, wrong)
    assert (code, names(report), report["confirmed"]) == (1, ["class-narrower-than-noise-allows"], False)
    assert "NOT CONFIRMED: 1 wrong." in fugu("check", "statement", tmp_path / "policy.json").out
    assert audited(fugu, tmp_path, policy)[1]["findings"] == []
    enrolment = Keys().enrolment(pins={policy.stream: pins_of(policy)})
    (tmp_path / "enrolment.json").write_text(enrolment.model_dump_json())
    code, report = audited(fugu, tmp_path, wrong, "--enrolment", tmp_path / "enrolment.json")
    assert code == 1
    assert "class-narrower-than-pinned" in names(report)
    code, report = audited(fugu, tmp_path, policy, "--enrolment", tmp_path / "enrolment.json")
    assert (code, names(report)) == (0, [])


@pytest.mark.long
@pytest.mark.parametrize(("less", "expected"), [(1.05, (0, False)), (1.2, (1, True))])
def test_a_class_that_is_hardly_narrower_is_a_note(
    fugu: Fugu, tmp_path: Path, less: float, expected: tuple[int, bool]
) -> None:
    """Noise is rounded, and epsilon may be: up to a tenth of the class is left to that."""
    wrong = changed(planned(), chains={"kind": "binary", "q": [0.05 * less, 0.1], "r": [0.06 * less, 0.2]})
    code, report = audited(fugu, tmp_path, wrong)
    (finding,) = report["findings"]
    assert finding["name"] == "class-narrower-than-noise-allows"
    assert (code, finding["wrong"]) == expected


@pytest.mark.long
def test_windows_that_overlap_beyond_the_allowance_are_found(fugu: Fugu, tmp_path: Path) -> None:
    wrong = changed(planned(windows=WINDOWS))
    wrong["windows"][0]["stride"] = 4
    code, report = audited(fugu, tmp_path, wrong)
    assert (code, names(report)) == (1, ["epsilon-understated", "windows-overlap"] * 2)
    every, alone = (finding["about"] for finding in report["findings"][1::2])
    assert "high 5, bars 1" in every
    added, allowed = (float(alone.split(f" {word} ")[1].split()[0]) for word in ("add", "and"))
    assert added == pytest.approx(5 / 400 + 2 * 3 / 700, rel=1e-5)
    assert allowed == pytest.approx(2 / 400 + 2 * 3 / 700, rel=1e-5)


@pytest.mark.long
def test_what_an_owner_does_not_accept_is_found(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "enrolment.json"
    keys = Keys()
    other = pins_of(planned(BinaryChains(q=(0.2, 0.3), r=(0.2, 0.3))))
    for fields, wanted in (
        ({"ceiling": 0.5}, ["above-ceiling"]),
        ({"adversaries": ("universal",)}, ["adversary-not-accepted"]),
        ({"pins": {"steps": pins_of(planned())}}, ["not-pinned"]),
        (
            {"pins": {"hr": other.model_copy(update={"period_us": 7_000})}},
            ["class-narrower-than-pinned", "pins-violated"],
        ),
    ):
        file.write_text(keys.enrolment(**fields).model_dump_json())
        code, report = audited(fugu, tmp_path, planned(), "--enrolment", file)
        assert code == 1
        assert sorted(set(names(report))) == wanted
    code, report = audited(fugu, tmp_path, measure_policy(3), "--enrolment", file)
    assert code == 1
    assert "above-ceiling" in names(report)


def test_what_is_not_recomputed_is_never_taken_for_fine(fugu: Fugu, tmp_path: Path) -> None:
    document = json.loads(measure_policy(3, start=0, tables=False).to_json())
    assert audited(fugu, tmp_path, document)[0] == 0
    document["stream_loss"] = {"epsilon": 40.0, "adversary": "ignorant", "start": "any"}
    code, report = audited(fugu, tmp_path, document)
    assert (code, names(report), report["confirmed"]) == (1, ["not-recomputed"], False)
    assert report["claims"][-1]["recomputed"] is None
    assert report["not_recomputed"] == ["all points"]
    done = fugu("check", "statement", tmp_path / "policy.json")
    assert done.code == 1
    assert "NOT RECOMPUTED" in done.out
    assert "holds" not in done.out
    assert done.out.splitlines()[-1].endswith("only the first certificate vouches for it: all points.")


def test_certificates_that_disagree_are_found(fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second one takes a looser view than devices, somebody has to look."""
    wrong = changed(planned(), guarantee={"epsilon": 0.9, "adversary": "informed"})
    monkeypatch.setattr("fugu.audit.exact.claims.binary_loss", lambda *_: Fraction(1))
    code, report = audited(fugu, tmp_path, wrong)
    assert code == 1
    assert names(report) == ["devices-refuse"]


SUBSCRIBER = Account(name="weather", role="reader", audiences=("public",), epsilon=0.1, adversary="informed")


def site(folder: Path) -> Path:
    """A broker's folder with accounts of every kind."""
    roles: dict[str, Role] = {"gateway": "gateway", "screen": "site", "ha": "home-assistant", "anna": "operator"}
    others = (Account(name=name, role=role) for name, role in roles.items())
    return broker_of(folder, Account(name="watch", role="device", streams=("hr",)), *others, SUBSCRIBER)


@pytest.mark.long
def test_a_public_account_that_reads_the_sites_releases_is_found(fugu: Fugu, tmp_path: Path) -> None:
    broker = site(tmp_path / "broker")
    code, report = audited(fugu, tmp_path, planned(), "--broker", broker)
    assert (code, names(report)) == (0, [])
    readers = {output["topic"].split("/")[3]: set(output["readers"]) for output in report["outputs"]}
    assert readers["watch"] == {"gateway", "screen"}
    assert readers["estimate"] == {"screen", "ha"}
    access = broker / "access.acl"
    honest = access.read_text()
    for line, reason in (
        ("user weather\ntopic read fugu/2/home/release/site/+", "fugu/2/home/release/site/any"),
        ("user weather\ntopic readwrite fugu/2/home/+/symbols/#", "fugu/2/home/watch/symbols/hr"),
        ("user nobody\ntopic fugu/2/home/estimate/+/+", "fugu/2/home/estimate/watch/hr"),
        ("pattern read fugu/2/home/watch/window/+", "fugu/2/home/watch/window/hr"),
    ):
        access.write_text(f"{honest}\n{line}\n")
        code, report = audited(fugu, tmp_path, planned(), "--broker", broker)
        assert code == 1
        assert set(names(report)) == {"reads-the-site"}
        assert all(reason in finding["about"] for finding in report["findings"])
    access.write_text(f"topic read #\n{honest}")
    code, report = audited(fugu, tmp_path, planned(), "--broker", broker)
    assert code == 1
    assert all("whoever gives no name" in finding["about"] for finding in report["findings"])


def test_what_is_denied_goes_before_what_is_granted() -> None:
    rules = read_access(
        "topic read open\nuser a\ntopic x/y\ntopic deny x/#\ntopic read z/+/w\npattern read %u/c\n# user b\n"
    )
    listed = AccessList(rules, {}, {})
    readable = {
        (user, topic)
        for user in ("", "a", "b")
        for topic in ("open", "x/y", "z/1/w", "z/1/2/w", "a/c", "b/c")
        if listed.may_read(user, topic)
    }
    assert readable == {("", "open"), ("a", "z/1/w"), ("a", "a/c"), ("b", "b/c")}
    assert not AccessList(read_access("user a\ntopic write x\n"), {}, {}).may_read("a", "x")
    assert AccessList(read_access("user a\ntopic read #\n"), {}, {}).may_read("a", "x/y")


@pytest.mark.long
def test_a_statement_is_signed_and_says_the_same(fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGU_PASSPHRASE", "a long passphrase")
    key = Ed25519PrivateKey.generate()
    file = write_key(new_folder(tmp_path / "keys", private=True), "policy", key, "a long passphrase")
    out = tmp_path / "statement.envelope"
    _, report = audited(fugu, tmp_path, planned(), "--sign", file, "-o", out)
    envelope = Envelope.decode(out.read_bytes())
    assert envelope.kind == "statement"
    key.public_key().verify(envelope.signatures[0].signature, envelope.message)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(envelope.signatures[0].signature, envelope.message + b" ")
    assert json.loads(envelope.payload) == report
    assert report["policy_sha256"] == policy_statement((tmp_path / "policy.json").read_bytes()).digest


def test_what_cannot_be_done_is_one_line(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(planned().to_json())
    assert fugu("check", "statement", file, "--sign", tmp_path / "key").code == 2
    new_folder(tmp_path / "keys", private=True)
    done = fugu("check", "statement", file, "--sign", tmp_path / "keys" / "other.key", "-o", tmp_path / "out")
    assert done.code == 1
    assert "no file of a key" in done.err
    assert fugu("check", "statement", file, "--broker", tmp_path).code == 1
    file.write_text("{}")
    done = fugu("check", "statement", file)
    assert done.code == 1
    assert done.err.startswith(f"fugu: {file}: ")


CHAINS = BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3))


def version_of(version: int, epsilon: float) -> Policy:
    table = calibrate(CHAINS, epsilon, "informed", slack=True).table
    promise = {"guarantee": Guarantee(epsilon=epsilon, adversary="informed")}
    return policy(version, chains=CHAINS, table=table).model_copy(update=promise)


LOUD, QUIET = version_of(1, 4.0), version_of(2, 1.0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    scene = Scene(tmp_path / "s.sqlite", policies=(LOUD, QUIET))
    scene.record(*frames((10,) * 30, versions=(1,) * 10 + (2,) * 20))
    scene.store.close()
    return tmp_path / "s.sqlite"


def test_by_a_store_it_is_dated_as_descriptions_are(store: Path) -> None:
    (when,) = policy_statement(QUIET.to_json().encode(), store=store).when
    truth = dates_of(QUIET, History((Span(1, Noise.of(LOUD), 0, 99), Span(2, Noise.of(QUIET), 100, None))))
    assert (when.since, when.until) == (truth.since, None)
    assert when.since > 100
    assert f"from tick {when.since} on" in when.words
    (before,) = policy_statement(LOUD.to_json().encode(), store=store).when
    assert before.since == 0
    assert (before.until, before.words) == (None, ""), "what follows is stronger"


def test_without_one_nothing_is_claimed_but_of_a_first_version(store: Path) -> None:
    (first,), (second,) = (policy_statement(version.to_json().encode()).when for version in (LOUD, QUIET))
    assert (first.since, first.words) == (0, "")
    assert second.since is None
    assert "not shown to be true of any tick yet" in second.words


def test_the_command_shows_it(store: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(QUIET.to_json())
    shown = StringIO()
    with redirect_stdout(shown):
        assert main(["check", "statement", str(tmp_path / "policy.json"), "--store", str(store), "--json"]) == 0
    (when,) = json.loads(shown.getvalue())["when"]
    assert when == policy_statement(QUIET.to_json().encode(), store=store).when[0]._asdict()
