"""Files of deploy/examples for Prometheus, Grafana and Telegraf, against the gateway's messages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import parse_topic
from gateway.config import Listen
from gateway.health.metrics import Metrics, Reading
from tests.support.asyncapi import DOCUMENT, payload
from tests.support.brokers import free_port
from tests.support.fault_schedule import KINDS

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
METRIC = re.compile(r"\bfugu_gateway_[a-z_]+")
FAULTS = {
    "agent killed": "FuguSilent",
    "agent stopped": "FuguSilent",
    "agent suspended": "FuguSilent",
    "gateway killed": "FuguGatewayRestarts",
    "gateway stopped": "FuguGatewayDown",
    "gateway suspended": "FuguGatewayDown",
    "broker killed": "FuguBroker",
    "broker killed, its database lost": "FuguBroker",
    "broker suspended": "FuguBroker",
    "line cut": "FuguSilent",
    "line slow": "FuguSilent",
    "line silent": "FuguNothingArrives",
    "line dead": "FuguNothingArrives",
    "said again": None,
    "clock ahead": "FuguFuture",
    "clock behind": "FuguSilent",
    "disk full": "FuguStore",
    "disk slow": "FuguStuck",
    "disk read-only": "FuguStore",
    "agent power lost": "FuguSilent",
    "gateway power lost": "FuguGatewayRestarts",
    "gateway clock behind": "FuguClock",
    "reader deaf": None,
}
"""Which alert tells of a fault that lasts; what is said again, and who does not read, are no fault to anybody else."""


def exposition() -> str:
    """Metrics for Prometheus of a gateway to which nothing has happened."""
    reading = Reading(Health(True, 2, 1), Counter(), True, 0.0, 0, 0)
    serving = Metrics(Listen("127.0.0.1", free_port()), lambda: reading)
    try:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(serving)
        return generate_latest(registry).decode()
    finally:
        serving.stop()


def promtool(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run([program, *words], cwd=EXAMPLES, input=stdin, capture_output=True, text=True)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
)
def test_alerts_are_rules_that_begin_and_end_as_they_should(words: tuple[str, ...]) -> None:
    done = promtool(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    done = promtool("check", "metrics", stdin=exposition())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["alerts.yml", "alerts_test.yml", "grafana.json"])
def test_examples_ask_for_metrics_that_there_are(name: str) -> None:
    served = set(METRIC.findall(exposition()))
    asked = set(METRIC.findall((EXAMPLES / name).read_text()))
    assert asked
    assert asked <= served


def test_every_alarm_and_every_fault_that_the_harness_knows_has_an_alert() -> None:
    text = (EXAMPLES / "alerts.yml").read_text()
    assert set(re.findall(r'fugu_gateway_alarms\{code="([a-z-]+)"\}', text)) == set(AlarmCode)
    alerts = set(re.findall(r"alert: (\w+)", text))
    assert set(FAULTS) == set(KINDS)
    assert {alert for alert in FAULTS.values() if alert} <= alerts
    assert len(alerts) == text.count("severity: ") == text.count("summary: ") == text.count("description: ")


def consumers() -> list[dict[str, Any]]:
    """Telegraf's inputs."""
    return tomllib.loads((EXAMPLES / "telegraf.conf").read_text())["inputs"]["mqtt_consumer"]


def test_telegraf_reads_the_topics_and_fields_that_there_are() -> None:
    heard = set()
    for consumer in consumers():
        (parsing,) = consumer["topic_parsing"]
        for topic_filter in consumer["topics"]:
            topic = parse_topic(topic_filter.replace("+", "name"))
            heard.add(topic.kind)
            parts = topic_parts(parsing, topic_filter.replace("+", "name"))
            assert parts.pop("measurement") == topic.kind
            assert parts == {"fleet": "home", **dict.fromkeys(parts.keys() - {"fleet"}, "name")}
            messages = [payload(name) for name in DOCUMENT["channels"][topic.kind]["messages"]]
            for message in messages:
                assert message["properties"][consumer["json_time_key"]]["format"] == "date-time"
            names = {name for message in messages for name in message["properties"]}
            for name in consumer["json_string_fields"] + consumer["tag_keys"]:
                assert name in names | {"state", "window"}, name
    assert heard == {"estimate", "count", "release"}


def topic_parts(parsing: dict[str, str], topic: str) -> dict[str, str]:
    """Parts of a topic, by Telegraf's rules: each has the name at its place, or none at `_`."""
    parts, form = topic.split("/"), parsing["topic"].split("/")
    assert all(wanted in ("+", part) for wanted, part in zip(form, parts, strict=True))
    names = [parsing["measurement"].split("/"), parsing["tags"].split("/")]
    return {name: part for row in names for name, part in zip(row, parts, strict=True) if name != "_"}


def test_the_dashboard_asks_influxdb_for_what_telegraf_writes() -> None:
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    inputs = {field["name"] for field in board["__inputs"]}
    tags = {tag for consumer in consumers() for row in consumer["topic_parsing"] for tag in row["tags"].split("/")} - {
        "_"
    }
    tags |= {tag for consumer in consumers() for tag in consumer["tag_keys"]}
    fields = {name for message in DOCUMENT["components"]["schemas"].values() for name in message.get("properties", {})}
    asked = 0
    for panel in board["panels"]:
        assert panel["datasource"]["uid"][2:-1] in inputs
        for query in (target["query"] for target in panel["targets"] if "query" in target):
            selected, _, rest = query.partition(" FROM ")
            assert re.match('"(estimate|count|release)"', rest)
            assert set(re.findall('"([a-z]+)"', rest.partition("GROUP BY")[2])) <= tags
            assert set(re.findall('"([a-z]+)"', selected)) <= fields
            asked += 1
    assert asked == 3
    for panel in (shown for shown in board["panels"] if shown["type"] == "stat"):  # without any, 80 and more is red
        colours = {step["value"]: step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]}
        assert colours in ({None: "text"}, {None: "red", 1: "green"}), panel["title"]
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)
