"""A trial in a real Home Assistant: keep what a replay's gateway publishes, and send it to another broker.

The noise of a recording is drawn once, since the noise of several trials could be averaged. The first trial keeps the
numbers in a file that only its owner can read, and each later trial sends the same numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue

from fugu.contract._document import Document
from fugu.contract.errors import FuguError, TopicError
from fugu.contract.topics import available_topic, discovery_topic, parse_topic, topic_of
from fugu.host.files import read_text, write_secret
from fugu.library.report import JsonObject
from fugu.mqtt import Broker, Link
from fugu.mqtt.link import Will
from fugu_cli.demo.processes import wait_for
from fugu_cli.view.terminal import say

__all__ = ["DEVICE", "TrialNumbers"]

DEVICE: Final = "trial"
"""The name of the device and of the fleet, which no real one has."""
_KINDS: Final = ("description", "estimate", "count")
_VALUES: Final = ("estimate", "count")
_SECONDS, _MOST_SECONDS = 60.0, 2.0
"""The seconds in which all values are sent, and the longest pause after one value."""
_CONNECTED_SECONDS, _ANSWER_SECONDS = 30.0, 10.0


class _MessageFile(Document):
    """A file of messages: topics and payloads, in their order."""

    format: Literal["fugu-trial/1"] = "fugu-trial/1"
    messages: tuple[tuple[str, JsonValue], ...]


class TrialNumbers:
    """The numbers of one recording, planned in one way; `file` keeps them."""

    def __init__(self, recording: Path, inputs: object, broker: Broker) -> None:
        """Name the file by the recording and all other `inputs` of its plan. OSError without the recording."""
        state = os.environ.get("XDG_STATE_HOME")
        folder = (Path(state) if state else Path.home() / ".local/state") / "fugu"
        self._recording = hashlib.sha256(recording.read_bytes()).hexdigest()[:16]
        self.file = folder / f"trial-{self._recording}-{hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]}.json"
        self._broker = broker
        self._answers = dict[int, bool]()

    @property
    def drawn(self) -> bool:
        """True if the file exists, so that the noise was drawn before."""
        return self.file.exists()

    @contextmanager
    def listen(self, broker: Broker) -> Iterator[None]:
        """Collect a broker's messages while the context lasts, and write them to the file if any has values."""
        messages = list[tuple[str, JsonValue]]()

        def keep_message(topic: str, payload: bytes, _retained: bool) -> None:
            with suppress(ValueError):
                messages.append((topic, payload.decode()))

        topics = (*(topic_of(kind, DEVICE, DEVICE, "+") for kind in _KINDS), discovery_topic(DEVICE, DEVICE))
        link = Link(broker, client_id="trial", subscriptions=topics, on_message=keep_message)
        link.start()
        try:
            wait_for("what is published is heard", lambda: link.subscribed, _CONNECTED_SECONDS)
            yield
        finally:
            link.stop()
        if any(_is_value(topic) for topic, _ in messages):
            self.file.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_secret(self.file, _MessageFile(messages=tuple(messages)).model_dump_json())

    def publish(self) -> None:
        """Send the messages to the broker of Home Assistant, stay until Ctrl-C, and clear them there.

        FuguError: there is no connection, the broker refuses a message, or the file is damaged.
        """
        messages = self._read()
        documents = {topic: str(payload) for topic, payload in messages if not _is_value(topic)}
        value_messages = [(topic, str(payload)) for topic, payload in messages if _is_value(topic)]
        documents[topic_of("health", DEVICE)] = '{"online": true}'
        documents[available_topic(DEVICE, DEVICE)] = "online"
        other_trials = len([*self.file.parent.glob(f"trial-{self._recording}-*.json")]) - 1
        say(
            f"\n{len(value_messages)} message(s) with numbers of a real recording leave this machine now, for "
            f"{self._broker.address}.",
            style="bold",
        )
        say(f"They are the same at each trial, and kept in {self.file}.")
        say("An agent that replays the recording draws noise of its own: what both tell adds up.")
        if other_trials:
            say(f"{other_trials} other trial(s) of this recording had noise of their own: what they told adds up.")
        link = Link(
            self._broker,
            client_id="fugu-trial",
            will=Will(available_topic(DEVICE, DEVICE), b"offline"),
            on_published=self._answers.__setitem__,
        )
        link.start()
        sent_topics: list[str] = []
        try:
            deadline = time.monotonic() + _CONNECTED_SECONDS
            while not link.connected:
                if time.monotonic() > deadline:
                    raise FuguError(f"no connection to {self._broker.address}: {link.last_error or 'no answer'}")
                link.maintain()
                time.sleep(0.05)
            sent_topics = [*documents, *dict(value_messages)]
            self._send(link, documents)
            with suppress(KeyboardInterrupt):
                for index, (topic, payload) in enumerate(value_messages):
                    self._send(link, {topic: payload})
                    say(f"{index + 1} of {len(value_messages)}: {_value_line(json.loads(payload))}")
                    time.sleep(min(_MOST_SECONDS, _SECONDS / len(value_messages)))
                say("Home Assistant has them as the device 'trial', until Ctrl-C.")
                while True:
                    link.maintain()
                    time.sleep(0.5)
        finally:
            self._send(link, dict.fromkeys(sent_topics, ""))
            link.stop()

    def _read(self) -> tuple[tuple[str, JsonValue], ...]:
        """Read the messages of the file; FuguError if it is damaged."""
        try:
            messages = _MessageFile.model_validate_json(read_text(self.file, "numbers of a trial")).messages
            for topic, payload in messages:
                if _is_value(topic):
                    _value_line(json.loads(str(payload)))
        except (TopicError, TypeError, AttributeError, ValueError):
            damage_words = "is damaged: without it the next trial draws new noise, whose epsilon adds up"
            raise FuguError(f"{self.file} {damage_words}") from None
        return messages

    def _send(self, link: Link, messages: dict[str, str]) -> None:
        """Publish retained messages, and wait for the broker's answers."""
        for topic, payload in messages.items():
            deadline, message_id = time.monotonic() + _ANSWER_SECONDS, None
            while message_id not in self._answers:
                if message_id is None:
                    message_id = link.publish(topic, payload.encode(), retain=True)
                if time.monotonic() > deadline:
                    raise FuguError(f"{self._broker.address} does not answer: {link.last_error or 'no connection'}")
                link.maintain()
                time.sleep(0.01)
            if not self._answers.pop(message_id):
                raise FuguError(f"{self._broker.address} does not take {topic}: its access list has to allow it")


def _value_line(report: JsonObject) -> str:
    """Return a message with numbers as one line of text."""
    named_numbers = [(name.removeprefix("value_"), report[name]) for name in report if name.startswith("value")]
    numbers = [f"{name}: {number:g}" for name, number in named_numbers]
    observed_words = f" of {report['observed']} {report.get('unit', 'ticks')}" if "observed" in report else ""
    return f"{report.get('time', '')} {', '.join(numbers) or report.get('state', '')}{observed_words}"


def _is_value(topic: str) -> bool:
    return not topic.startswith("homeassistant/") and parse_topic(topic).kind in _VALUES
