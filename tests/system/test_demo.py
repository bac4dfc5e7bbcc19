"""What the demo promises, and what it says of counts, without its processes."""

from __future__ import annotations

import io
import json
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from contract.errors import FuguError, GuaranteeError
from contract.guarantee import Guarantee
from contract.noise_table import NoiseTable
from contract.release_frames import ReleaseFrame, encode_release
from contract.topics import release_topic, window_topic
from contract.window_frames import WindowFrame, encode_window
from fugu.demo.counts import LedgerLines, ledger_lines
from fugu.demo.evaluation import DemoError, evaluate
from fugu.demo.live import Observer
from fugu.demo.people import FLEET, STREAM, Person, load_people
from fugu.demo.policies import ADVERSARY, RELEASES, WINDOW, WINDOW_TICKS, WINDOWS_EPSILON, policy_for, table_beside
from fugu.demo.report import html_report
from fugu.demo.tables import attack_table, ledger_text, release_table, window_table
from gateway.service.policies import Catalogue
from gateway.service.release_config import load_releases
from gateway.service.release_jobs import allowances, jobs
from mqtt_link import Broker
from tests.support.ledgers import open_ledger, release, reserve

PEOPLE = load_people()
POLICIES = {person.device: policy_for(person, epoch_us=0, period_us=1600) for person in PEOPLE}
SENT = 3000


def printed(console_part: Any) -> str:
    """What the terminal shows, 80 columns wide."""
    text = io.StringIO()
    Console(file=text, width=80).print(console_part)
    return text.getvalue()


def symbols(person: Person) -> list[str]:
    """Lines of a subscriber for the first ticks of a device, noise left out."""
    common = {"device": person.device, "stream": STREAM}
    lines = []
    for tick, state in enumerate(person.states[:SENT].tolist()):
        lines.append({"kind": "symbol", **common, "tick": tick, "symbol": state})
        lines.append({"kind": "estimate", **common, "tick": tick, "probabilities": [0.6, 0.4], "most_likely": 0})
    return [json.dumps(line) for line in lines]


def window(person: Person, first: int, off: int, observed: int = WINDOW_TICKS) -> str:
    """A window's line whose count is off the truth by a number."""
    count = int(person.states[first : first + WINDOW_TICKS].sum()) + off
    place = {"window": WINDOW, "first": first, "length": WINDOW_TICKS, "observed": observed}
    return json.dumps({"kind": "window", "device": person.device, "stream": STREAM, **place, "counts": [count]})


def group_frame(off: int) -> ReleaseFrame:
    """A release whose value is off the truth by a number."""
    truth = sum(int(person.states[:2000].sum()) for person in PEOPLE)
    values = {"values": (float(truth + off),), "low": (truth + off - 50.0,), "high": (truth + off + 50.0,)}
    fields: dict[str, Any] = {
        **{"name": "above", "stream": STREAM, "audience": "public", "query": "count", "states": ("above",)},
        **{"devices": 3, "first": 0, "length": 2000, "observed": 6000, **values, "standard_errors": (25.0,)},
        **{"confidence": 0.95, "epsilon": 0.5, "adversary": "informed", "mechanism": "discrete-laplace"},
        **{"scale": "13/2", "charge": 0.02, "entry": 7},
    }
    return ReleaseFrame(**fields)


@pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person.name)
def test_symbols_and_windows_together_use_up_what_the_device_promises_and_no_more(person: Person) -> None:
    policy = POLICIES[person.device]
    assert policy.verify(person.epsilon).epsilon == pytest.approx(person.epsilon, rel=1e-6)
    alone = policy.verify_windows()
    assert alone is not None
    assert 0.9 * WINDOWS_EPSILON < alone.epsilon <= WINDOWS_EPSILON
    thresholds = (policy.table.threshold0 - 100, policy.table.threshold1 - 100)
    eager = policy.model_copy(update={"table": NoiseTable.binary(*thresholds)})
    with pytest.raises(GuaranteeError, match="windows beside it"):
        eager.verify(person.epsilon)


def test_windows_that_use_up_everything_leave_no_table() -> None:
    policy = POLICIES[PEOPLE[0].device]
    with pytest.raises(FuguError, match="leave nothing"):
        table_beside(PEOPLE[0].chains, Guarantee(epsilon=WINDOWS_EPSILON, adversary=ADVERSARY), 2 * policy.window_rate)


def test_the_releases_fit_the_policies(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    for device, policy in POLICIES.items():
        (tmp_path / "policies" / f"{device}.json").write_text(policy.to_json())
    (tmp_path / "releases.toml").write_text(RELEASES)
    catalogue, config = Catalogue.load(tmp_path / "policies", FLEET), load_releases(tmp_path / "releases.toml")
    made = jobs(config, catalogue)
    assert [job.devices for job in made] == [tuple(sorted(POLICIES))]
    for allowed in allowances(config, made, catalogue):
        assert allowed.base < allowed.allowance / 2


def test_counts_are_held_against_the_recordings(tmp_path: Path) -> None:
    lines = [line for person in PEOPLE for line in symbols(person)]
    lines += [window(person, 1000 * index, off) for person in PEOPLE for index, off in enumerate((-10, 20, 30))]
    lines.append(window(PEOPLE[0], 2000, 10_000, observed=999))  # a symbol is missing: not compared
    lines.append(json.dumps({"kind": "release", **asdict(group_frame(60))}))
    (tmp_path / "readings.jsonl").write_text("\n".join(lines) + "\n")
    result = evaluate(PEOPLE, POLICIES, tmp_path / "readings.jsonl")
    for device in result.devices:
        assert device.windows.errors.tolist() == [-10, 20, 30]
        assert device.windows.mean == 20.0
        assert device.windows.expected == pytest.approx(float(device.windows.scale), rel=0.01)
        assert device.windows.expected < device.windows.quilts < device.windows.group == 5000.0
    [made] = result.releases
    assert (made.error, made.inside) == (60.0, False)
    assert "7 0..1999" in " ".join(printed(release_table(result)).split())
    assert " 2.0 " in printed(window_table(result))
    report = html_report(result, LedgerLines("ledger", ()), "broker", 1.0)
    assert "<td>7</td><td>0..1999</td>" in report


def test_a_run_without_windows_says_so(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text("\n".join(line for person in PEOPLE for line in symbols(person)))
    result = evaluate(PEOPLE, POLICIES, tmp_path / "readings.jsonl")
    assert printed(window_table(result)).count("none") == 3
    assert "no release" in printed(release_table(result))
    assert printed(attack_table(result)).count("0.731") >= 2
    report = html_report(result, LedgerLines("ledger", ()), "broker", 1.0)
    assert report.count("none arrived") == 3
    assert "no window of all devices" in report


def test_next_to_no_symbols_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl").write_text("")
    with pytest.raises(DemoError, match="only 0 symbols of watch-N10"):
        evaluate(PEOPLE, POLICIES, tmp_path / "readings.jsonl")


def test_the_ledger_is_summed_up_and_checked(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite", base=10**11)
    reserve(ledger, release(0, 1999, 10**11))
    ledger.close()
    assert ledger_text(ledger_lines(tmp_path / "ledger.sqlite")).splitlines() == [
        "ledger of audience public: 1 entry, it adds up; nats a tick:",
        "  watch: 0.3000 allowed, 0.1000 for its own windows, 0.1000 spent",
    ]
    spoilt = sqlite3.connect(tmp_path / "ledger.sqlite")
    spoilt.execute("UPDATE runs SET charge = 1")
    spoilt.commit()
    spoilt.close()
    assert "its charges are not those of its entries" in ledger_lines(tmp_path / "ledger.sqlite").summary


def test_the_live_table_shows_the_newest_count_and_the_newest_release() -> None:
    """The observer is fed as the broker would feed it, without one."""
    observer = Observer(Broker(port=1), FLEET, list(POLICIES))
    assert "none yet" in printed(observer.table("title"))
    counted = WindowFrame(1, WINDOW, previous=-1, index=0, first=0, length=1000, observed=990, counts=(-7,))
    observer.link.on_message(window_topic(FLEET, "watch-N05", STREAM), encode_window(counted), False)
    released = encode_release(group_frame(60))
    observer.link.on_message(release_topic(FLEET, "public", "above"), released, False)
    observer.link.on_message(release_topic(FLEET, "public", "above"), b"\x06", False)
    shown = printed(observer.table("title"))
    assert "-7 of 990" in shown
    assert "release 7, ticks 0..1999 of 3 devices" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
