"""An epsilon of a sum of homes is said with its helper and the number of honest homes, wherever it is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.descriptions import describe
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import parse_topic, topic_of
from fugu.library.report import plain_text
from fugu.mqtt import Broker
from fugu.mqtt.readings import ReleaseReading
from fugu_cli.view.ledger import ledger_result, release_report
from fugu_cli.view.readings import ReadingLines, description_lines
from gateway.audit.statement import policy_statement
from gateway.fleet.documents import worth
from gateway.page.device_view import DeviceView
from gateway.page.feed import Feed
from gateway.page.ledger_view import LedgerView
from gateway.page.memory import Memory
from gateway.parts.home_assistant import device_document
from tests.support.groups import member_policy
from tests.support.opening import Helper
from tests.support.summing import WINDOW, Site, settled, take

POLICY = member_policy("home-0", WINDOW)
ASSETS = Path(__file__).parents[3] / "gateway" / "page" / "assets"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[tuple[Site, ReleaseFrame]]:
    """A site that has released a sum of five homes."""
    with closing(Site(tmp_path)) as site:
        helper = Helper()
        site.answer(take(helper, settled(site, helper)))
        (frame,) = site.released()
        yield site, frame


def test_the_sentence_names_the_helper_and_how_many_have_to_be_honest() -> None:
    assert re.search(r"its helper \((\d{5} ){5}\d{5}\) keeps its word and 3 of its homes are real", WINDOW.condition)
    assert "Otherwise the exact count can be seen" in WINDOW.condition


def test_it_is_in_a_release_wherever_its_epsilon_is(release: tuple[Site, ReleaseFrame]) -> None:
    site, frame = release
    assert frame.condition == WINDOW.condition
    for report in (list(release_report([frame])), list(ledger_result(site.ledger).report)):
        assert WINDOW.condition[3:] in plain_text(report)
    assert WINDOW.condition in ReadingLines()(ReleaseReading(frame.name, frame))
    feed = Feed("home", Broker(), LedgerView(None))
    feed._on_messages([(topic_of("release", "home", "site", "street"), frame.encode(), False)])
    assert [release["condition"] for release in feed.releases()] == [WINDOW.condition]


def test_it_is_in_all_that_is_said_of_a_stream() -> None:
    description = describe(POLICY)
    assert WINDOW.condition in description.does_not_protect
    assert any(WINDOW.condition in line for line in description_lines(description))
    (entity,) = device_document([description])["cmps"].values()  # and none for numbers that it never says by itself
    escaped = entity["json_attributes_template"]
    assert WINDOW.condition in re.sub(r"\\U([0-9a-f]{8})", lambda code: chr(int(code[1], 16)), escaped)
    assert worth(POLICY).conditions == (WINDOW.condition,)
    assert WINDOW.condition in policy_statement(POLICY.to_json().encode()).document()["assumptions"]
    place = parse_topic(topic_of("description", "home", "home-0", "power"))
    update = DeviceView().take(place, description.encode())
    assert update["conditions"] == [WINDOW.condition]
    memory = Memory()
    memory.remember(["home-0"])
    memory.take(place, description.encode())
    (headline,) = memory.headlines("home-0")
    assert headline["promise"]["conditions"] == [WINDOW.condition]


@pytest.mark.parametrize("file", ["fleet.js", "budget.js", "releases.js"])
def test_pages_show_it_beside_each_epsilon(file: str) -> None:
    """The page of a device shows `does_not_protect`, which has it."""
    text = (ASSETS / file).read_text()
    promised = [line for line in text.splitlines() if re.search(r"loss\((guarantee|budget|release)\.epsilon\)", line)]
    assert promised
    assert all("condition" in line or "budget.audience" in line for line in promised)
