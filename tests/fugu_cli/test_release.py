"""`fugu gateway release` and `ledger`: a release by hand is charged, printed, published, and refused as any other."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.fleet_documents import Address
from fugu.contract.reports import ReleaseFrame
from fugu.host.database import add_functions
from gateway.releases.ledger import Ledger
from gateway.store.engine import Lease
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file
from tests.support.release_scenes import FLEET, Public, scheduled, write_config
from tests.support.scenes import Scene, frames, write_policies
from tests.support.signing import Keys, policy_document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policies, a store of 60 ticks of two devices, and a configuration."""
    folder = tmp_path_factory.mktemp("site")
    write_policies(folder / "policies", FLEET)
    scene = Scene(folder / "s.sqlite", 8, FLEET)
    for seed, device in enumerate(("watch", "ring")):
        scene.record(*frames([10] * 6, seed=seed), device=device)
    scene.store.close()
    histogram = scheduled("levels", query="histogram", states=[], share=0.5, devices=["ring"], confidence=0.9)
    write_config(folder, scheduled(), scheduled("each", per_device=True), histogram)
    return folder


@pytest.fixture
def site(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path, dirs_exist_ok=True)


def words(site: Path, name: str, first: int, *more: object) -> tuple[object, ...]:
    files = {"releases": "releases.toml", "store": "s.sqlite", "policies": "policies", "ledger": "l.sqlite"}
    file = gateway_file(site / "gateway.toml", 1, **files)
    return ("gateway", "release", file, "--name", name, "--first", first, *more)


def test_a_release_is_printed_with_its_intervals_and_charged(fugu: Fugu, site: Path) -> None:
    done = fugu(*words(site, "active", 0))
    assert (done.code, done.err[:28], done.err.count("\n")) == (0, "fugu: release active: off by", 1)
    assert "active: hr, ticks 0..19, 2 devices" in done.out
    assert "count of level 1" in done.out
    assert "95 % from" in done.out
    assert "Ledger entry 1" in done.out
    shown = fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite", "--json").json()
    assert [entry["state"] for entry in shown["entries"]] == ["published"]
    by_device = {account["device"]: account for account in shown["accounts"] if account["audience"] == "public"}
    for device, charge in shown["entries"][0]["charges"].items():
        assert by_device[device]["spent"] == charge
        assert (by_device[device]["first"], by_device[device]["last"]) == (0, 19)
    assert min(account["remaining"] for account in by_device.values()) < 1e-6  # one table took all, to the last digit


def test_an_overlapping_release_is_refused_in_one_line(fugu: Fugu, site: Path) -> None:
    assert fugu(*words(site, "active", 0)).code == 0
    assert "audience public: ticks 19..19 would reach " in fugu(*words(site, "active", 19)).refusal()
    assert "allowed" in fugu(*words(site, "active", 19)).err
    assert fugu(*words(site, "active", 20)).code == 0
    assert len(fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite", "--json").json()["entries"]) == 2


def test_json_holds_every_field_of_every_device(fugu: Fugu, site: Path) -> None:
    each = fugu(*words(site, "each", 0, "--json")).json()
    assert [frame["name"] for frame in each] == ["each-ring", "each-watch"]
    (levels,) = fugu(*words(site, "levels", 20, "--json")).json()
    assert (levels["states"], levels["unit"], levels["confidence"]) == (["level 0", "level 1"], "ticks", 0.9)
    assert (levels["noisy"], levels["entry"], levels["devices"]) == (True, 3, 1)
    assert levels["value_level 0"] + levels["value_level 1"] == pytest.approx(levels["observed"], abs=200)


def test_with_a_broker_it_is_published_with_the_same_numbers(fugu: Fugu, broker: Mosquitto, site: Path) -> None:
    public = Public(broker)
    done = fugu(*words(site, "active", 40, "--json", "--broker", f"127.0.0.1:{broker.port}"))
    assert done.code == 0
    wait_until(lambda: public.payloads)
    frame = ReleaseFrame.decode(public.payloads[0])
    (printed,) = done.json()
    assert (frame.values, frame.entry) == ((printed["value"],), printed["entry"])


def test_without_a_broker_that_answers_the_charge_stays_and_the_release_waits(
    fugu: Fugu, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fugu.mqtt.probe._ACCEPT_SECONDS", 0.2)
    assert "entry 1 stays reserved and charged" in fugu(*words(site, "active", 0, "--broker", "127.0.0.1:1")).refusal()
    shown = fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite", "--json").json()
    assert [entry["state"] for entry in shown["entries"]] == ["reserved"]
    assert "too much" in fugu(*words(site, "active", 0)).refusal()


def test_a_device_that_is_refused_lets_nothing_of_the_others_out(fugu: Fugu, site: Path) -> None:
    assert fugu(*words(site, "each", 0)).code == 0
    with sqlite3.connect(site / "l.sqlite") as ledger:
        add_functions(ledger)
        ledger.execute("UPDATE runs SET first=20, last=39 WHERE account=(SELECT id FROM accounts WHERE device='watch')")
    assert "watch/hr, audience public: ticks 20..39" in fugu(*words(site, "each", 20)).refusal()
    shown = fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite", "--json").json()
    assert [(entry["name"], entry["state"]) for entry in shown["entries"]] == [
        *(("each-ring", "published"), ("each-watch", "published"), ("each-ring", "abandoned"))
    ]


def test_show_for_people_and_audit(fugu: Fugu, site: Path) -> None:
    for first in (0, 20, 40):
        assert fugu(*words(site, "active", first)).code == 0
    shown = fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite")
    assert shown.code == 0
    for text in ("watch/hr", "ring/hr", "public", "allowance", "remaining", "0..59", "40..59", "published"):
        assert text in shown.out
    audit = ("check", "ledger", "--ledger", site / "l.sqlite", "--store", site / "s.sqlite")
    audited = fugu(*audit)
    assert (audited.code, audited.err) == (0, "")
    assert "3 releases, 2 accounts, no stretch above its promise" in audited.out
    document = fugu(*audit, "--json").json()
    assert [(stream["device"], stream["promised"]) for stream in document["streams"]] == [("ring", 1.0), ("watch", 1.0)]
    assert all(0.4 < stream["epsilon"] <= 1.0 for stream in document["streams"])
    with sqlite3.connect(site / "l.sqlite") as ledger:
        add_functions(ledger)
        ledger.execute("UPDATE runs SET charge=charge-1")
    changed = fugu(*audit)
    assert (changed.code, changed.out.count("WRONG")) == (1, 2)
    assert "charges are not those of its entries" in changed.out
    machine = fugu(*audit, "--json")
    assert (machine.code, len(machine.json()["problems"])) == (1, 2)


def test_the_audit_believes_whom_the_auditor_believes(fugu: Fugu, site: Path) -> None:
    assert fugu(*words(site, "active", 0)).code == 0
    audit = ("check", "ledger", "--ledger", site / "l.sqlite")
    alone = fugu(*audit)
    assert alone.out.count("by the ledger alone") == 3
    arguments = (*audit, "--policies", site / "policies", "--releases", site / "releases.toml")
    done = fugu(*arguments)
    assert (done.code, done.err) == (0, "")
    assert (done.out.count("by the ledger alone"), done.out.count("from what the auditor gave")) == (1, 2)
    forgetful = BinaryChains(q=(0.45, 0.45), r=(0.45, 0.45)).model_dump(mode="json")
    with sqlite3.connect(site / "l.sqlite") as ledger:
        add_functions(ledger)
        ledger.execute("UPDATE classes SET chains=?", (json.dumps([forgetful]),))
    assert fugu(*audit).code == 0
    assert "class of chains of no policy that was given" in fugu(*arguments).out
    (site / "nothing").mkdir()
    assert "no policy of symbols or windows" in fugu(*audit, "--policies", site / "nothing").refusal(2)


@pytest.mark.parametrize(
    ("to", "keys", "error"),
    [
        (Address(everyone=True), 2, ""),
        (Address(group="wrists"), 2, "give --enrolment of the devices in it"),
        (Address(everyone=True), 1, "it has 1 of 2 signatures"),
    ],
)
def test_signed_policies_are_believed_by_their_signatures(
    fugu: Fugu, site: Path, to: Address, keys: int, error: str
) -> None:
    assert fugu(*words(site, "each", 0)).code == 0
    home = Keys()
    (site / "root.envelope").write_bytes(home.root_envelope())
    for policy in FLEET:
        address = Address(device=policy.device) if policy.device == "ring" else to
        document = policy_document(policy, version=1, to=address)
        (site / f"{policy.device}.envelope").write_bytes(home.signed(document, home.policy[:keys]))
    files = ("--policies", site / "watch.envelope", "--policies", site / "ring.envelope")
    audit = ("check", "ledger", "--ledger", site / "l.sqlite", *files)
    assert "a signed document needs the fleet's root: give --root" in fugu(*audit).refusal()
    done = fugu(*audit, "--root", site / "root.envelope")
    if error:
        assert error in done.refusal()
    else:
        assert (done.code, done.err) == (0, "")


def test_a_schedule_is_told_where_to_go_on(fugu: Fugu, site: Path) -> None:
    assert fugu(*words(site, "active", 0)).code == 0
    ledger, store = site / "l.sqlite", site / "s.sqlite"
    words_of = ("gateway", "ledger", "progress", "--ledger", ledger, "--store", store, "--release", "active", "--first")
    assert "the ledger l.sqlite has no schedule active; it has: none" in fugu(*words_of, 40).refusal()
    with closing(Ledger(ledger)) as opened:
        opened.set_progress("active", 2**52)
    done = fugu(*words_of, 40)
    assert done.code == 0
    assert f"active goes on with the first window from tick 40 on, not from {2**52}" in done.out
    with closing(Ledger(ledger)) as opened:
        assert opened.progress("active") == 40
    assert "first" in fugu(*words_of, -1).refusal(2)
    with closing(Store(store, lease=Lease())):
        assert "another gateway runs with the store s.sqlite" in fugu(*words_of, 60).refusal()


def test_what_cannot_be_done_is_one_line(fugu: Fugu, site: Path) -> None:
    assert "no release nothing is configured" in fugu(*words(site, "nothing", 0)).refusal()
    assert "no tick of 1000..1019 has a symbol" in fugu(*words(site, "active", 1000)).refusal()
    assert "first" in fugu(*words(site, "active", -1)).refusal(2)
    missing = fugu("gateway", "ledger", "show", "--ledger", site / "none.sqlite")
    assert "there is no ledger none.sqlite" in missing.refusal()
    store = fugu("check", "ledger", "--ledger", site / "s.sqlite", "--store", site / "s.sqlite")
    assert "s.sqlite is no ledger" in store.refusal()
    (site / "releases.toml").write_text("colour = 1\n")
    assert "releases.toml: " in fugu(*words(site, "active", 0)).refusal()
    (site / "s.sqlite").unlink()
    assert "there is no store s.sqlite" in fugu(*words(site, "active", 0)).refusal()
    assert not (site / "none.sqlite").exists()
    assert not (site / "s.sqlite").exists()
