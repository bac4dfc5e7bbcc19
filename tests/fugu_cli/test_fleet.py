"""`fugu fleet` on a registry: enrol, groups, push with its dry run, status, history."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.chains import BoundedChains
from fugu.contract.envelope import Envelope
from fugu.contract.fleet_documents import Address, read_enrolment, write_document
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock
from fugu.contract.trust import Trust
from fugu.contract.windows import Window
from gateway.fleet.documents import worth
from gateway.fleet.registry import Registry
from tests.support.command import Fugu
from tests.support.fleet_home import HEART, KEYS, Home
from tests.support.measured import measure_policy

WEAK = HEART.model_copy(update={"guarantee": Guarantee(epsilon=2.0, adversary="universal")})
QUIET = HEART.model_copy(update={"table": NoiseTable.binary(2_140_000_000, 2_140_000_000)})
PLACE = measure_policy(3)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# Enrolment and groups


def test_an_enrolment_is_what_a_device_can_begin_with(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUGU_OPERATOR", "anna")
    (tmp_path / "root.envelope").write_bytes(KEYS.root_envelope())
    registry, out = tmp_path / "fleet.db", tmp_path / "watch.json"
    done = fugu(
        *("fleet", "enrol", "--root", tmp_path / "root.envelope", "--device", "watch", "--group", "wrists", "-o", out),
        *("--ceiling", 1, "--total-ceiling", 1.5, "--measurement-ceiling", 2, "--adversary", "informed"),
        *("--adversary", "universal", "--fresh-seconds", 3600, "--registry", registry),
    )
    assert done.code == 0
    assert done.err.startswith("fugu: warning: nothing is pinned (--policy): whoever holds the policy keys chooses")
    enrolment = read_enrolment(out.read_bytes())
    assert enrolment == KEYS.enrolment(
        **{"total_ceiling": 1.5, "measurement_ceiling": 2.0, "adversaries": ("informed", "universal")},
        **{"fresh_seconds": 3600, "root": enrolment.root, "key": enrolment.key},
    )
    assert out.stat().st_mode & 0o777 == registry.stat().st_mode & 0o777 == 0o600
    assert Trust(enrolment).state.root == write_document(KEYS.root_document())
    opened = Registry(registry)
    assert opened.device("watch").groups == {"wrists"}
    assert opened.keys() == {"watch": bytes.fromhex(enrolment.key or "")}
    assert [(event.who, event.what, event.subject) for event in opened.history()] == [("anna", "enrol", "watch")]


def test_a_device_that_is_enrolled_anew_has_a_new_key(fugu: Fugu, home: Home) -> None:
    before = home.registry.keys()["watch"]
    assert fugu("fleet", "remove", "watch", "--registry", home.path).code == 0
    out = home.folder / "watch.json"
    words = ("--root", home.root, "--device", "watch", "--ceiling", 1, "--registry", home.path, "-o", out)
    assert fugu("fleet", "enrol", *words).code == 0
    key = read_enrolment(out.read_bytes()).key or ""
    assert bytes.fromhex(key) == home.registry.keys()["watch"] != before
    assert key not in repr(read_enrolment(out.read_bytes()))
    without = home.folder / "pen.json"
    assert fugu("fleet", "enrol", "--root", home.root, "--device", "pen", "--ceiling", 1, "-o", without).code == 0
    assert read_enrolment(without.read_bytes()).key is None


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--device", "watch"), "device watch is enrolled already"),
        (("--device", "a/b"), "device: must be of the form"),
        (("--device", "new", "--ceiling", "0"), "ceiling must be above 0 and finite, got 0"),
        (("--device", "new", "--fresh-seconds", "0"), "fresh_seconds: must be at least 1"),
        (("--device", "new", "--root", "FOLDER/1.envelope"), "a policy document, not a root"),
        (("--device", "new", "--root", "FOLDER/none"), "cannot read the root"),
    ],
)
def test_enrolments_that_are_refused(fugu: Fugu, home: Home, words: tuple[str, ...], complaint: str) -> None:
    home.write(1, HEART)
    before, out = home.dump(), home.folder / "out.json"
    arguments = ("--ceiling", 1, "--total-ceiling", 1, "-o", out, *home.options)
    done = fugu("fleet", "enrol", *arguments, *(word.replace("FOLDER", str(home.folder)) for word in words))
    assert complaint in done.refusal()
    assert not out.exists()
    assert home.dump() == before


@pytest.mark.parametrize("device", ["estimate", "release"])
def test_a_reserved_name_is_not_enrolled_without_a_registry_either(fugu: Fugu, home: Home, device: str) -> None:
    out = home.folder / "out.json"
    words = ("--root", home.root, "--device", device, "--ceiling", 1, "--total-ceiling", 1, "-o", out)
    done = fugu("fleet", "enrol", *words)
    assert (done.code, done.err) == (1, f"fugu: no device can have the name '{device}': it is reserved\n")
    assert not out.exists()


def test_a_root_that_its_own_keys_have_not_signed_is_no_root(fugu: Fugu, home: Home) -> None:
    changed = home.root.read_bytes().replace(b"home", b"hone")
    home.root.write_bytes(changed)
    done = fugu("fleet", "push", home.write(1, HEART), *home.options)
    assert done.code == 1
    assert done.err == f"fugu: {home.root}: a signature does not match the document\n"


def test_groups_are_listed_and_changed(fugu: Fugu, home: Home) -> None:
    words = ("fleet", "groups", "--registry", home.path)
    assert fugu(*words, "--json").json() == {"fingers": ["ring"], "new": ["band"], "wrists": ["band", "watch"]}
    done = fugu(*words, "--device", "ring", "--add", "new", "--remove", "fingers", "--json")
    assert done.json() == {"new": ["band", "ring"], "wrists": ["band", "watch"]}
    assert "only if its own enrolment names the group" in done.err
    assert "band watch" in fugu(*words).out
    before = home.dump()
    wrong = fugu(*words, "--device", "ring", "--remove", "wrists")
    assert (wrong.code, wrong.err) == (1, "fugu: device ring is not in group wrists\n")
    assert fugu(*words, "--device", "pen", "--add", "new").err == "fugu: there is no device 'pen' in fleet home\n"
    assert fugu(*words, "--add", "new").code == 2
    assert home.dump() == before


def test_a_device_is_removed(fugu: Fugu, home: Home) -> None:
    assert fugu("fleet", "remove", "ring", "--registry", home.path).code == 0
    assert [device.name for device in home.registry.devices()] == ["band", "watch"]
    assert fugu("fleet", "remove", "ring", "--registry", home.path).code == 1


# Push


def test_push_lets_the_devices_it_is_for_have_it(fugu: Fugu, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGU_OPERATOR", "anna")
    path = home.write(3, HEART, to=Address(group="wrists"))
    done = fugu("fleet", "push", path, *home.options, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json() == {"version": 3, "devices": ["band", "watch"], "restores": None}
    assert [(due.device, due.version) for due in home.registry.unpublished(10)] == [("band", 3), ("watch", 3)]
    assert home.registry.device("ring").desired is None
    entry = home.registry.document(3)
    assert (entry.payload, entry.description, entry.added_by) == (path.read_bytes(), HEART.stream, "anna")
    assert entry.digest == Envelope.decode(entry.payload).digest
    assert fugu("fleet", "push", path, *home.options).code == 0, "the same again is no news"
    assert len(home.registry.documents()) == 1


def test_the_way_back_is_known_as_one(fugu: Fugu, home: Home) -> None:
    for version, policies, restores in (
        (1, (HEART,), None),
        (2, (QUIET,), None),
        (3, (QUIET,), None),
        (4, (HEART,), 1),
    ):
        done = fugu("fleet", "push", home.write(version, *policies), *home.options, "--json")
        assert done.json()["restores"] == restores
    measured = (measure_policy(3, version=5), measure_policy(3, version=7))
    fugu("fleet", "push", home.write(5, measured[0]), *home.options)
    fugu("fleet", "push", home.write(6, HEART), *home.options)
    done = fugu("fleet", "push", home.write(7, measured[1]), *home.options)
    assert "version 7, which brings version 5 back: 3 devices should have it" in done.out


REFUSED = [
    ({"keys": KEYS.policy[:1]}, "1 of the 2 signatures that are needed"),
    ({"keys": KEYS.root}, "no key that may sign a policy document has signed it"),
    ({"valid_until": 5}, "version 2 was valid until 5"),
    ({"fleet": "other"}, "a document of fleet other; the root is that of fleet home"),
    ({"to": Address(device="pen")}, "no device of fleet home is meant by device pen: enrol it first"),
    ({"version": 1}, "version 1 is not newer than 1, which the registry has"),
]


@pytest.mark.long
@pytest.mark.parametrize(("fields", "complaint"), REFUSED)
def test_what_devices_would_refuse_is_not_pushed(
    fugu: Fugu, home: Home, fields: dict[str, Any], complaint: str
) -> None:
    fugu("fleet", "push", home.write(1, QUIET), *home.options)
    before, document = home.dump(), dict(fields)
    path = home.write(document.pop("version", 2), HEART, **document)
    for dry in ((), ("--dry-run",)):
        done = fugu("fleet", "push", path, *home.options, *dry)
        assert complaint in done.refusal()
        assert home.dump() == before


def test_a_false_guarantee_is_not_pushed_whoever_signed_it(fugu: Fugu, home: Home) -> None:
    false = HEART.model_copy(update={"table": NoiseTable.binary(1_000_000_000, 1_000_000_000)})
    done = fugu("fleet", "push", home.write(1, false), *home.options)
    assert "epsilon" in done.refusal()
    assert home.registry.documents() == []


def test_a_document_whose_time_has_not_come_is_pushed_with_a_warning(fugu: Fugu, home: Home) -> None:
    done = fugu("fleet", "push", home.write(1, HEART, valid_from=int(time.time()) + 1000), *home.options)
    assert done.code == 0
    assert "devices refuse it until then, then take it" in done.err


def test_a_dry_run_shows_what_would_change_and_changes_nothing(fugu: Fugu, home: Home) -> None:
    fugu("fleet", "push", home.write(1, HEART, PLACE), *home.options)
    for name in ("watch", "band"):
        home.says(name, 1)
    fugu("fleet", "push", home.write(2, QUIET, to=Address(device="ring")), *home.options)
    home.says("ring", 1)
    home.says("ring", 2)
    before = home.dump()
    path = home.write(3, WEAK, to=Address(everyone=True))
    done = fugu("fleet", "push", path, *home.options, "--dry-run", "--json")
    assert home.dump() == before
    first, second = done.json()["changes"]
    assert (first["devices"], first["former"]) == (["band", "watch"], 1)
    assert (second["devices"], second["former"]) == (["ring"], 2)
    heart, place = first["streams"]["hr"], first["streams"]["place"]
    assert (heart["before"]["epsilon"], heart["after"]["epsilon"]) == (1.0, 2.0)
    assert heart["before"]["accuracy"] == heart["after"]["accuracy"] > second["streams"]["hr"]["before"]["accuracy"]
    assert (place["before"]["epsilon"], place["after"]) == (1.0, None)
    stretches = heart["after"]["stretches"]
    assert (stretches[0]["ticks"], stretches[0]["epsilon"]) == (1, 2.0)
    assert [each["epsilon"] for each in stretches] == [
        each.epsilon for each in WEAK.bound().rows(WEAK.clock.period_us, 2.0)
    ]
    table = PLACE.measure_tables[1].noise
    assert isinstance(table, NoiseTable)
    squares = 0.0
    for state, at in enumerate(PLACE.coordinates):  # the distribution that is stationary is by numbers of neighbours
        share = len(PLACE.transition[state]) / sum(map(len, PLACE.transition))
        for point, weight in zip(table.points, table.row_weights(state), strict=True):
            squares += share * weight / 2**32 * sum((a - b) ** 2 for a, b in zip(at, point, strict=True))
    assert place["before"]["error"] == pytest.approx(squares**0.5, rel=1e-6)
    shown = fugu("fleet", "push", path, *home.options, "--dry-run").out
    assert "MORE IS LOST" in shown
    assert "ends" in shown
    assert "8 hours" in shown
    assert "not protected" in shown
    assert "2 devices (band, watch): from version 1 to version 3" in shown


def test_the_owner_of_a_profile_under_way_is_told_that_it_ends(fugu: Fugu, home: Home) -> None:
    day = 86_400_000_000 // HEART.clock.period_us
    blocks = {"zone": "Europe/Berlin", "seconds": 4 * 3600, "offsets": ((0, 3600),)}
    profile = Window.model_validate(
        {"name": "day", "length": 14 * day, "stride": 14 * day, "states": (1,), "scale": "200", "blocks": blocks}
    )
    with_profile = HEART.model_copy(
        update={"table": None, "frame_ticks": 1, "windows": (profile,), "windows_guarantee": None}
    )
    fugu("fleet", "push", home.write(1, with_profile), *home.options)
    home.says("watch", 1)
    path = home.write(2, HEART)
    assert "hr: an open profile of 14 days ends without a release." in flat(
        fugu("fleet", "push", path, *home.options, "--dry-run").out
    )
    changes = fugu("fleet", "push", path, *home.options, "--dry-run", "--json").json()["changes"]
    assert [change["streams"]["hr"].get("open_profile_days") for change in changes if "watch" in change["devices"]] == [
        14.0
    ]


def flat(text: str) -> str:
    return " ".join(text.split())


HOUR = Window(name="hour", length=60, stride=60, states=(1,), scale="200")


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"clock": Clock(epoch_us=0, period_us=2_000_000)}, "hr has another epoch or period"),
        ({"windows": (HOUR.model_copy(update={"stride": 120}),)}, "hr has other ticks for window hour"),
    ],
)
def test_what_an_outbox_will_refuse_is_neither_signed_nor_pushed(
    fugu: Fugu, home: Home, changes: dict[str, Any], what: str
) -> None:
    promise = Guarantee(epsilon=9.0, adversary="universal")
    heart = HEART.model_copy(update={"windows": (HOUR,), "guarantee": promise, "windows_guarantee": promise})
    fugu("fleet", "push", home.write(1, heart, to=Address(device="ring")), *home.options)
    path = home.write(2, heart.model_copy(update=changes))
    dry, push = (fugu("fleet", "push", path, *home.options, *words) for words in (["--dry-run"], []))
    assert dry.out.count("OTHER TICKS: refused") == 1, "only the ring runs it"
    for done in (dry, push):
        assert done.code == 1
        assert done.err == (
            f"fugu: devices of version 1 would refuse version 2: {what}. "
            "Plan with the same ticks, or give the stream or the window a new name\n"
        )
    same = home.write(2, heart.model_copy(update={"windows": (HOUR.model_copy(update={"scale": "300"}),)}))
    assert fugu("fleet", "push", same, *home.options).code == 0


def test_a_dry_run_for_devices_whose_version_is_not_known_here(fugu: Fugu, home: Home) -> None:
    home.says("ring", 9)
    path = home.write(1, HEART, to=Address(device="ring"))
    assert "nothing changes" in fugu("fleet", "push", path, *home.options, "--dry-run").out
    path = home.write(10, HEART, to=Address(device="ring"))
    (change,) = fugu("fleet", "push", path, *home.options, "--dry-run", "--json").json()["changes"]
    assert (change["unknown"], change["streams"]["hr"]["before"]) == (True, None)
    assert "Version 9 is not in this registry" in fugu("fleet", "push", path, *home.options, "--dry-run").out


FILLED = ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.1, 0.1, 0.8))


@pytest.mark.parametrize(
    ("chains", "is_known"),
    [
        (BoundedChains(states=3, odds_ratio=70.0, transition=FILLED), True),
        (BoundedChains(states=3, odds_ratio=70.0), False),
    ],
)
def test_the_worth_of_streams_of_more_states(chains: BoundedChains, is_known: bool) -> None:
    clear = NoiseTable(rows=((4_000_000_000, 4_100_000_000), (100_000_000, 4_100_000_000), (50_000, 100_000)))
    rated = worth(HEART.model_copy(update={"chains": chains, "table": clear}))
    assert (rated.accuracy is not None) == is_known
    assert rated.accuracy is None or 0.9 < rated.accuracy < 1.0


def test_the_worth_of_windows_alone_is_the_error_of_the_best_share() -> None:
    windows = (
        Window(name="day", length=86_400, stride=86_400, states=(1,), scale="100"),
        Window(name="hour", length=3600, stride=3600, states=(1,), scale="100"),
    )
    update = {"table": None, "frame_ticks": 1, "windows": windows, "windows_guarantee": None}
    rated = worth(HEART.model_copy(update=update))
    assert rated.accuracy is None
    assert rated.error == pytest.approx(100 / 86_400, rel=1e-3)
    assert rated.unit == "of the share of day"


# Status and history


def test_status_says_how_every_device_stands(fugu: Fugu, home: Home) -> None:
    fugu("fleet", "push", home.write(1, HEART), *home.options)
    home.says("watch", 1)
    home.says("ring", 1, "refused", "ceiling")
    words = ("fleet", "status", "--registry", home.path)
    band, ring, watch = fugu(*words, "--json").json()["devices"]
    assert (watch["state"], watch["in_force"], watch["desired"], watch["online"]) == ("up to date", 1, 1, True)
    assert (ring["state"], ring["refusal"]["reason"], ring["refusal"]["version"]) == ("refused", "ceiling", 1)
    assert (band["state"], band["last_seen_us"], band["refusal"]) == ("to be sent", None, None)
    home.registry.note_published([("band", 1)])
    home.says("watch", 1, stale=True)
    shown = fugu(*words).out
    assert "3 devices: 2 online, 1 refused, 1 sent, 1 stale." in shown
    assert "1: ceiling" in shown
    assert [device["device"] for device in fugu(*words, "--group", "fingers", "--json").json()["devices"]] == ["ring"]


def test_status_has_an_exit_code_for_scripts(fugu: Fugu, home: Home) -> None:
    words = ("fleet", "status", "--registry", home.path, "--check")
    done = fugu(*words)
    assert done.code == 1
    assert done.err == "fugu: no gateway runs with this registry here: what devices do now is not known\n"
    home.serve()
    assert fugu(*words).code == 0
    fugu("fleet", "push", home.write(1, HEART), *home.options)
    home.says("watch", 1)
    home.says("ring", 1)
    done = fugu(*words)
    assert (done.code, done.err) == (1, "fugu: 1 of 3 are not as they should be: band\n")
    home.says("band", 1)
    assert fugu(*words).code == 0
    done = fugu(*words, "--group", "wirsts")
    assert (done.code, done.out, done.err) == (1, "", "fugu: no device of fleet home is in group wirsts\n")


def test_a_gateway_that_the_account_cannot_see_is_not_taken_for_one_that_runs(
    fugu: Fugu, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fugu_cli.commands.fleet.is_held", lambda _path: None)
    done = fugu("fleet", "status", "--registry", home.path, "--check")
    assert done.code == 1
    assert "this account cannot see whether a gateway runs" in done.err
    assert fugu("fleet", "status", "--registry", home.path).code == 0


def test_a_device_that_is_to_do_nothing_and_is_stale_is_not_as_it_should_be(fugu: Fugu, home: Home) -> None:
    home.serve()
    assert fugu("fleet", "status", "--registry", home.path, "--check").code == 0
    home.says("watch", 0, stale=True)
    assert fugu("fleet", "status", "--registry", home.path, "--check").code == 1


@pytest.mark.parametrize("words", [("show", 10**20), ("abort", 10**20), ("start", "--version", 10**20)])
def test_numbers_that_no_rollout_can_have(fugu: Fugu, home: Home, words: tuple[object, ...]) -> None:
    fugu("fleet", "rollout", *words, "--registry", home.path).refusal()


def test_history_says_who_did_what(fugu: Fugu, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUGU_OPERATOR", "bert")
    fugu("fleet", "push", home.write(1, HEART), *home.options)
    home.says("ring", 1, "refused", "ceiling")
    words = ("fleet", "history", "--registry", home.path)
    events = fugu(*words, "--json").json()
    assert [(event["who"], event["what"]) for event in events[-2:]] == [("bert", "document"), ("bert", "push")]
    assert "bert" in fugu(*words).out
    (refusal,) = fugu(*words, "--refusals", "--json").json()
    assert (refusal["device"], refusal["outcome"], refusal["reason"]) == ("ring", "refused", "ceiling")
    assert "ceiling" in fugu(*words, "--refusals").out


def test_a_long_history_is_shown_from_its_end(fugu: Fugu, home: Home) -> None:
    with home.registry.transaction():
        for number in range(1500):
            home.registry.record("anna", "note", str(number), time_us=number)
    words = ("fleet", "history", "--registry", home.path)
    assert len(fugu(*words, "--json").json()) == 1503
    shown = fugu(*words).out
    assert "1499" in shown
    assert "The newest 20 of 1503" in shown


@pytest.mark.parametrize("command", ["status", "groups", "rollout pause"])
def test_a_registry_that_is_none(fugu: Fugu, tmp_path: Path, command: str) -> None:
    missing = fugu("fleet", *command.split(), "--registry", tmp_path / "none.db")
    assert (missing.code, missing.err) == (1, "fugu: there is no fleet registry none.db\n")
    (tmp_path / "other.db").write_text(json.dumps({"no": "registry"}))
    fugu("fleet", *command.split(), "--registry", tmp_path / "other.db").refusal()
