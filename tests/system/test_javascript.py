"""Tools that nobody here wrote, of npm: AsyncAPI's own schema, mqtt.js with the document alone, a Node-RED function."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from fugu.contract.asyncapi import asyncapi_document, asyncapi_json
from fugu.contract.descriptions import describe
from fugu.contract.frames import Status, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.reports import Health
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.javascript import installed, node
from tests.support.scenes import policy

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
REPORTS = ROOT / "tests" / "golden" / "reports"
FRAMES = ROOT / "tests" / "golden" / "frames"


@pytest.mark.long
def test_the_document_is_valid_by_the_schema_that_asyncapi_publishes() -> None:
    folder = installed() / "node_modules" / "@asyncapi" / "specs" / "schemas"
    document = asyncapi_document()
    schema = json.loads((folder / f"{document['asyncapi']}-without-$id.json").read_text())
    validator = Draft7Validator(schema)
    assert [f"{list(error.absolute_path)}: {error.message[:300]}" for error in validator.iter_errors(document)] == []
    assert not validator.is_valid({**document, "components": {}, "channels": {"symbols": {"address": 7}}})


@pytest.mark.long
def test_mqtt_js_reads_every_topic_of_the_site_by_the_document_alone(broker: Mosquitto, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "subscribe.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(installed() / "node_modules")
    (tmp_path / "asyncapi.json").write_text(asyncapi_json())
    described = describe(policy())
    symbols = SymbolFrame(1, 99, 104, bytes([0, 1, 1, 0, 1]), 3, shift=64)
    points, window = (bytes.fromhex((FRAMES / f"{name}.hex").read_text()) for name in ("measure", "window"))
    status = Status(True, "0.1.0", 3, (), ())
    reports = {
        topic_of("estimate", "home", "watch", "hr"): REPORTS / "state_estimate.json",
        topic_of("estimate", "home", "watch", "place"): REPORTS / "place_estimate.json",
        topic_of("estimate", "home", "watch", "pair"): REPORTS / "vector_estimate.json",
        topic_of("count", "home", "watch", "hr"): REPORTS / "histogram.json",
        topic_of("release", "home", "public", "active"): REPORTS / "release.json",
    }
    sent = {
        **{topic: file.read_bytes().strip() for topic, file in reports.items()},
        topic_of("symbols", "home", "watch", "hr"): symbols.encode(),
        topic_of("symbols", "home", "watch", "place"): points,
        topic_of("window", "home", "watch", "hr"): window,
        topic_of("status", "home", "watch"): status.encode(),
        topic_of("health", "home"): Health(online=False).encode(),
    }
    link = Link(broker.broker, client_id="fleet")
    link.start()
    description = topic_of("description", "home", "watch", "hr")
    wait_until(lambda: link.publish(description, described.encode(), retain=True) is not None)
    out = tmp_path / "out"
    with out.open("wb") as written:
        command = [node(), "subscribe.mjs", "asyncapi.json", f"mqtt://127.0.0.1:{broker.port}", "home"]
        reader = subprocess.Popen(command, cwd=tmp_path, stdout=written, stderr=written)

    def heard(topic: str) -> list[str]:
        begun = f"{topic} "
        return [line.removeprefix(begun) for line in out.read_text().splitlines() if line.startswith(begun)]

    try:
        wait_until(lambda: heard(description) or reader.poll() is not None, "the retained description")
        assert reader.poll() is None, out.read_text()
        for topic, payload in sent.items():
            link.publish(topic, payload)
        wait_until(lambda: all(map(heard, sent)) or reader.poll() is not None, "a line of every topic")
        wait_until(lambda: len(heard(topic_of("symbols", "home", "watch", "hr"))) == 5 or reader.poll() is not None)
        assert reader.poll() is None, out.read_text()
    finally:
        reader.kill()
        reader.wait(PATIENCE)
        link.stop()

    def fields(topic: str) -> tuple[str, Any]:
        (line,) = heard(topic)
        name, _, body = line.partition(" ")
        return name, json.loads(body)

    names = ["StateEstimate", "PlaceEstimate", "ValueEstimate", "WindowCount", "ReleaseFrame"]
    for name, (topic, file) in zip(names, reports.items(), strict=True):
        assert fields(topic) == (name, json.loads(file.read_text()))
    assert fields(description) == ("Description", json.loads(described.encode()))
    assert heard(topic_of("symbols", "home", "watch", "hr")) == [
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(40 + i))}.000Z watch/hr level {symbol}"
        for i, symbol in enumerate(symbols.symbols)
    ]
    name, decoded = fields(topic_of("symbols", "home", "watch", "place"))
    assert name == "MeasureFrame"
    released = MeasureFrame.decode(points).released
    assert [(point["table"], tuple(point["point"])) for point in decoded["points"]] == [([t], p) for t, p in released]
    name, decoded = fields(topic_of("window", "home", "watch", "hr"))
    frame = WindowFrame.decode(window)
    assert (name, decoded["window"], decoded["counts"]) == ("WindowFrame", frame.window, list(frame.counts))
    assert (decoded["first"], decoded["shift"], decoded["observed"]) == (frame.first, frame.shift, frame.observed)
    name, decoded = fields(topic_of("status", "home", "watch"))
    assert (name, decoded["online"], decoded["agent_version"], decoded["outbox_depth"]) == ("Status", True, "0.1.0", 3)
    assert fields(topic_of("health", "home")) == ("Health", {"format": "fugu/2", "online": False})


FUNCTION = """
const { readFileSync } = require("fs");
const { code, messages } = JSON.parse(readFileSync(0, "utf8"));
const said = [];
const node = { status: () => {}, warn: (text) => said.push(text), error: (text) => said.push(text) };
const run = new Function("msg", "node", code);
console.log(JSON.stringify(messages.map((msg) => run(msg, node)).concat(said)));
"""


def test_the_function_of_the_node_red_flow_says_every_report_in_words() -> None:
    flow = json.loads((EXAMPLES / "node-red.json").read_text())
    (function,) = (each for each in flow if each["type"] == "function")
    cases = {
        "state_estimate": (topic_of("estimate", "home", "hall", "motion"), "on, sure to 90 %"),
        "place_estimate": (topic_of("estimate", "home", "hall", "motion"), "46.05, 14.5, within 174 m"),
        "value_estimate": (topic_of("estimate", "home", "hall", "motion"), "20.5 (19 to 22) C"),
        "vector_estimate": (topic_of("estimate", "home", "hall", "motion"), "0 1.5 (0.5 to 2.5), 1 2 (1 to 3) m"),
        "count": (topic_of("count", "home", "hall", "motion"), "-3 (-50 to 44) ticks"),
        "histogram": (
            topic_of("count", "home", "hall", "motion"),
            "off 3000 (2950 to 3050), on 597 (547 to 647) ticks",
        ),
        "release": (topic_of("release", "home", "public", "active"), "low 0.3 (-3 to 4), high -4.5 (-9 to 1) ticks"),
    }
    reports = {name: json.loads((REPORTS / f"{name}.json").read_text()) for name in cases}
    messages = [{"topic": cases[name][0], "payload": reports[name]} for name in cases]
    text = json.dumps({"code": function["func"], "messages": messages})
    done = subprocess.run([node(), "-e", FUNCTION], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whose = {name: "/".join(topic.split("/")[4:]) for name, (topic, _) in cases.items()}
    expected = [f"{whose[name]} at {reports[name]['time']}: {words}" for name, (_, words) in cases.items()]
    assert [message["payload"] for message in json.loads(done.stdout)] == expected
