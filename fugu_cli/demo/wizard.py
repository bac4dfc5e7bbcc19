"""`fugu start`: from a file or a topic to the configuration of an agent, on the page of one browser.

It runs where the sensor is. Uploads and recorded topics lie in a folder that only this account can read, and that is
deleted at the end. Nothing of them is printed, sent, or left anywhere but in the plan's own files.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import replace
from http import HTTPStatus
from io import BufferedIOBase, StringIO
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edge_agent.config import load
from edge_agent.config_schema import Mqtt
from edge_agent.local_broker import LocalBrokerError, dial
from edge_agent.sensors.mqtt_topic import MqttSensor
from edge_agent.sensors.source import Reading
from fugu.contract._document import first_problem
from fugu.contract.errors import FuguError, cause
from fugu.contract.topics import topic_of
from fugu.host.arguments import number
from fugu.host.database import STORE
from fugu.library.recordings import read_recording
from fugu.library.report import JsonObject
from fugu.mqtt import Broker
from fugu.planning.question import choose_states
from fugu.recordings.errors import QuestionError
from fugu_cli.commands.auto_plan import is_answer, question_asked
from fugu_cli.commands.doctor import is_gateway_file
from fugu_cli.commands.plan_options import AutoOptions
from fugu_cli.connection import broker_of
from fugu_cli.demo.page import Page, fault_text, queue_request
from fugu_cli.demo.topic_sensor import topic_sensor
from fugu_cli.demo.trial import readings_of, show_readings
from fugu_cli.view.terminal import say

if TYPE_CHECKING:
    from fugu.library.plans import Plan

__all__ = ["run"]

_MOST_BYTES = 64 << 20
"""The most bytes of a file of a recording."""
_MOST_UPLOADED = 4 * _MOST_BYTES
"""The most bytes of all uploads, finished or not."""
_MOST_TOPIC_FILES = 4
_MOST_WAITING = 100_000
"""The most messages that are kept until `take_messages`."""
_BLOCK = 1 << 16
_POLL_SECONDS = 0.05
_INSTALLED = (Path("/etc/fugu-gateway"), Path("/var/lib/fugu-gateway"))
"""The folders of an installed gateway."""
_DOES = ("record", "plan", "write", "finish")
_QUESTION = (
    *("column", "time", "only", "zone", "missing_values", "rows", "gap", "as_it_is"),
    *("period", "epsilon", "protect", "baseline", "threshold", "states", "missing", "window"),
    *("fleet", "device", "broker"),
)
_LISTS = {"only": re.compile(",(?=[^,=]+=)"), "as_it_is": re.compile(",")}
"""Fields with several words, and the pattern between the words."""
_MOST_READ = 10 << 20
"""The most bytes of an upload that is read at once, before any plan."""
_FIELDS = ("do", "topic", "path", "local", "folder", *_QUESTION)
_BEGIN = "Choose a file, or record a topic."
_RUN = (
    "Run it",
    "This is all that the sensor's machine needs. The recording is deleted when this program ends. plan.html stays, "
    "and has pictures of the recording: only you may read it.",
)
_STDIN = 'kind = "stdin"  # a reading a line'


def run(*, not_private: bool, browser: bool) -> int:
    """Serve the page until it sends "finish", or until Ctrl-C; return 0.

    FuguError: a gateway is installed here, and readings may not be beside it.
    """
    refuse_beside_gateway(Path())
    with tempfile.TemporaryDirectory(prefix="fugu-start-") as folder:
        wizard = _Wizard(Path(folder), not_private=not_private, browser=browser)
        with wizard.page as page:
            page.show(title="From a sensor to private values", stage=_BEGIN, stalled="", ask=True, step=1)
            try:
                with suppress(KeyboardInterrupt):
                    wizard.serve()
            finally:
                wizard.close()  # before the folder is deleted, so that no upload is written into it
    return 0


def refuse_beside_gateway(*folders: Path) -> None:
    """Raise FuguError if a gateway is installed here, or one of the folders has a gateway's file or store."""
    files = [file for folder in folders for file in (folder.iterdir() if folder.is_dir() else ()) if file.is_file()]
    check_by_suffix = {".toml": is_gateway_file, ".sqlite": _is_store, ".db": _is_store}
    gateway_files = [file for file in files if file.suffix in check_by_suffix and check_by_suffix[file.suffix](file)]
    for file in (*(path for path in _INSTALLED if path.exists()), *gateway_files):
        raise FuguError(f"{file} is a gateway's: run fugu start where the sensor is, never beside a gateway")


def _is_store(file: Path) -> bool:
    """Return whether a file is the store of a gateway."""
    with suppress(OSError), file.open("rb") as stream:
        stream.seek(68)  # the number of the application in SQLite's header
        return stream.read(4) == STORE.application_id.to_bytes(4, "big")
    return False


class _Wizard:
    """The program behind the page: it queues requests, and handles one after another in the main thread."""

    def __init__(self, folder: Path, *, not_private: bool, browser: bool) -> None:
        self._not_private = not_private
        self.page = Page(browser=browser, handle_post=self._receive)
        self._folder = folder
        self._queue: Queue[dict[str, str]] = Queue(1)
        self._lock = threading.Lock()
        self._is_closed = self._is_busy = False
        self._uploads: dict[Path, int] = {}
        self._last_number = 0
        self._topics = _TopicFiles(folder)
        self._recording: Path | None = None
        self._planned_recording: Path | None = None
        self._plan: Plan | None = None

    def close(self) -> None:
        """Refuse all further uploads."""
        with self._lock:
            self._is_closed = True

    def _receive(self, path: str, query: dict[str, str], body: BufferedIOBase, length: int) -> HTTPStatus:
        """Receive an upload or a request from the page, in a thread of the page."""
        if path == "/upload":
            return self._receive_upload(query.get("name", ""), body, length)
        return queue_request(self._queue, _form_fields, body, length) if path == "/ask" else HTTPStatus.BAD_REQUEST

    def _receive_upload(self, name: str, body: BufferedIOBase, length: int) -> HTTPStatus:
        """Write an upload into a folder of its own, so that equal names do not clash; the newest whole one counts."""
        if length > _MOST_BYTES:
            self.page.show(stalled=f"The file has more than {_MOST_BYTES >> 20} MB: give a part of it.")
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        file_name = re.sub(r"[^\w.-]", "-", f"of-{name[-80:]}" if name[:1] in (".", "") else name[-80:])
        with self._lock:
            if self._is_closed or self._is_busy:
                self.page.show(stalled="A plan is being made: choose the file again when it is there.")
                return HTTPStatus.CONFLICT
            if sum(self._uploads.values()) + length > _MOST_UPLOADED:
                self.page.show(stalled=f"More than {_MOST_UPLOADED >> 20} MB are on their way: wait for the others.")
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            self._last_number += 1
            path = self._folder / str(self._last_number) / file_name
            path.parent.mkdir(0o700)
            file = path.open("wb")
            self._uploads[path] = length  # only of a file that is there
        try:
            with file:
                while length and (block := body.read(min(length, _BLOCK))):
                    file.write(block)
                    length -= len(block)
        except OSError as error:
            length = max(length, 1)
            self.page.show(stalled=f"The upload failed: {_error_line(error)}.")
        with self._lock:
            if length:
                self._delete(path)
                return HTTPStatus.BAD_REQUEST
            if path in self._uploads:  # else a newer upload has replaced it
                self._recording = path
                if not self._is_busy:
                    self._delete_older()
        self._describe_upload(path)
        return HTTPStatus.CREATED

    def _describe_upload(self, path: Path) -> None:
        """Describe an upload as `fugu read` does, or ask about it; a large upload is read only for a plan."""
        stage, problem_text, offers, summary_lines = "", "", list[JsonObject](), list[str]()
        try:
            stage = _arrival_words(path)
            if path.stat().st_size <= _MOST_READ:
                recording = read_recording(path)
                summary_lines = [*recording.summary]
                show_readings(self.page, recording.readings)
                if recording.readings is not None:
                    with suppress(FuguError):  # a plan says what it lacks
                        states = choose_states(recording.readings, question_asked(AutoOptions()))
                        summary_lines.append(f"states: {', '.join(states.discretiser.states)}")
        except QuestionError as error:
            problem_text, offers = _error_line(error), _answer_buttons(error, dict.fromkeys(_FIELDS, ""))
        except (FuguError, OSError) as error:
            if path not in self._uploads:  # a newer upload has replaced it
                return
            problem_text = _error_line(error)
        self.page.show(stage=stage, stalled=problem_text, offers=offers, understood=summary_lines, step=2)

    def _delete_older(self) -> None:
        """Delete finished uploads that no plan will use; the caller holds the lock."""
        for path in [*self._uploads]:
            if path not in (self._recording, self._planned_recording) and path.stat().st_size == self._uploads[path]:
                self._delete(path)

    def _delete(self, path: Path) -> None:
        del self._uploads[path]
        shutil.rmtree(path.parent, ignore_errors=True)

    def serve(self) -> None:
        """Handle requests until the request to finish."""
        actions = {"record": self._record, "plan": self._show_plan, "write": self._write_plan}
        while (fields := self._queue.get())["do"] != "finish":
            with self._lock:
                self._is_busy = fields["do"] != "record"
            try:
                self.page.show(stalled="", ended=False)
                actions[fields["do"]](fields)
            except Exception as error:  # of whatever kind: a day's recording must not end with it
                stage = _BEGIN if self._recording is None else _arrival_words(self._recording)
                offers = _answer_buttons(error, fields) if isinstance(error, QuestionError) else []
                problem_text = re.sub(r"--([a-z]+)", r"\1", _error_line(error))
                self.page.show(stage=stage, done=0.0, stalled=problem_text, offers=offers)
            finally:
                with self._lock:
                    self._is_busy, self._planned_recording = False, None
                    self._delete_older()

    def _record(self, fields: dict[str, str]) -> None:
        """Record every message of a topic until the next request; a plan is made from the last full file, if any."""
        sensor, broker = _mqtt_sensor(fields), broker_of(fields["broker"])
        _refuse_fleet_broker(sensor, broker, must_connect=True)
        sensor_config = {**sensor.model_dump(), "fleet_broker": [broker.host, broker.port]}
        message_count, notice = 0, ""
        with closing(_EveryMessage(sensor_config)) as live_topic, closing(self._topics):
            self._topics.begin()
            while self._queue.empty():
                live_topic.poll(0)
                for moment, reading in live_topic.take_messages():
                    message_count += 1
                    if self._topics.add(moment, reading.reveal()):
                        notice = (
                            f" {self._topics.full.name} is full ({_MOST_BYTES >> 20} MB) and is planned from; what "
                        )
                        notice += f"comes now is in {self._topics.newest.name}. The newest four are kept."
                if message_count:
                    self._recording = self._topics.full if notice else self._topics.newest
                loss_words = f" {live_topic.lost} came too fast and are lost." if live_topic.lost else ""
                arrivals = f"{message_count} messages have come.{notice}{loss_words}"
                stage = f"recording: {arrivals} After a day or more, show what would leave."
                self.page.show(stage=stage, stalled=live_topic.trouble, step=2 if message_count else 1)
                time.sleep(_POLL_SECONDS)
        self.page.show(stalled="")

    def _show_plan(self, fields: dict[str, str]) -> None:
        """Plan from the recording, and show what would leave."""
        from fugu_cli.demo.planned import plan_and_draw, show_stretches  # they take a while to load

        if self._recording is None:
            raise FuguError("there is no recording yet: choose a file, or record a topic")
        self._plan = None
        empty_fields: JsonObject = {name: [] for name in ("verdicts", "replays", "details", "offers", "stretches")}
        self.page.show(stage="reading", paste=None, report=None, step=2, **empty_fields)
        options = _plan_options(fields)
        readings = readings_of(self._recording, options)
        show_readings(self.page, readings)
        self._plan = plan_and_draw(self.page, self._recording, readings, options, _QUESTION)
        self.page.show(step=3 if is_answer(self._plan) else 2)
        if readings is not None:
            with self._lock:
                self._is_busy, self._planned_recording = False, self._recording  # uploads may come again
            show_stretches(self.page, self._recording, readings, options, self._plan, lambda: not self._queue.empty())

    def _write_plan(self, fields: dict[str, str]) -> None:
        """Write the plan's files. Their agent reads the topic, else standard input, in place of the recording."""
        if self._plan is None or not self._plan.useful:
            raise FuguError("there is no plan to write yet")
        if self._plan.privacy == "none" and not self._not_private:
            raise FuguError(
                "this plan is not private: ask for a smaller epsilon, or start the page with fugu start --not-private"
            )
        broker, folder = broker_of(fields["broker"]), Path(fields["folder"] or "plan")
        sensor_lines, command = [_STDIN], shlex.join(["fugu", "agent", "run", str(folder / "agent.toml")])
        if fields["topic"]:
            sensor = _mqtt_sensor(fields)
            _refuse_fleet_broker(sensor, broker, must_connect=False)
            sensor_lines = topic_sensor(self._plan, sensor)
        else:
            command = f"YOUR-SENSOR | {command}"
        refuse_beside_gateway(folder, folder.parent)
        topic_of("symbols", fields["fleet"], fields["device"], "readings")  # names that no topic has are refused
        target = self._plan.target._replace(fleet=fields["fleet"], device=fields["device"])
        plan = replace(self._plan, target=target)
        files = plan.save(folder, not_private=self._not_private, broker=broker, sensor=sensor_lines)
        if self._plan.privacy != "none":  # else its owner has to write the ceiling
            load(folder / "agent.toml")  # as the agent will
        self.page.show(stage=f"written: {', '.join(map(str, files))}", ended=True, paste=[*_RUN, command])
        say(f"written: {', '.join(map(str, files))}\n\n{command}")


class _EveryMessage(MqttSensor):
    """A sensor that keeps every message of a topic with its time of arrival; `lost` counts messages over the limit."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._messages: deque[tuple[float, Reading]] = deque()
        self.lost = 0
        super().__init__(config)

    def _add_update(self, reading: Reading | None = None, works: bool | None = None) -> None:
        if reading is not None:
            if len(self._messages) < _MOST_WAITING:
                self._messages.append((time.time(), reading))
            else:
                self.lost += 1
        super()._add_update(reading, works)

    def take_messages(self) -> list[tuple[float, Reading]]:
        """Return the times and readings of messages since the last call, and forget them."""
        return [self._messages.popleft() for _ in range(len(self._messages))]


class _TopicFiles:
    """Files of recorded messages, of 64 MB each. A new recording begins a file, and the newest four are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._last_number, self._size = folder, 0, 0
        self._files: list[Path] = []
        self._file: Any = None

    @property
    def newest(self) -> Path:
        """The file to which messages are written."""
        return self._files[-1]

    @property
    def full(self) -> Path:
        """The file before the newest."""
        return self._files[-2]

    def begin(self) -> None:
        """Begin a file, and delete the oldest beyond four."""
        self.close()
        self._last_number += 1
        self._files.append(self._folder / ("topic.csv" if self._last_number == 1 else f"topic-{self._last_number}.csv"))
        while len(self._files) > _MOST_TOPIC_FILES:
            self._files.pop(0).unlink()
        self._file, self._size = self.newest.open("wb"), 0
        self._file.write(b"time,value\r\n")

    def add(self, moment: float, value: object) -> bool:
        """Write a message. Return True if the file is then full; in that case begin a new file."""
        row = StringIO()
        csv.writer(row).writerow([f"{moment:.6f}", value])
        self._size += self._file.write(row.getvalue().encode(errors="replace"))  # JSON may have half a character
        if is_full := self._size >= _MOST_BYTES:
            self.begin()
        return is_full

    def close(self) -> None:
        """Close the file; delete it if it has no messages."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            if not self._size:
                self._files.pop().unlink()


def _form_fields(sent_form: Any) -> dict[str, str]:
    """Return the fields of the form that the page sends; ValueError if they name no action."""
    fields = dict.fromkeys(_FIELDS, "") | {str(name): str(value).strip() for name, value in sent_form.items()}
    if fields["do"] not in _DOES:
        raise ValueError
    return fields


def _plan_options(fields: dict[str, str]) -> AutoOptions:
    """Return the options of a plan from the fields of the form; empty fields are defaults."""
    options: dict[str, Any] = {name: fields[name] for name in _QUESTION if fields[name]}
    options |= {name: pattern.split(options[name]) for name, pattern in _LISTS.items() if name in options}
    options |= {name: number(options[name], name) for name in ("epsilon", "threshold", "period") if name in options}
    return AutoOptions(**options)


def _answer_buttons(question: QuestionError, fields: dict[str, str]) -> list[JsonObject]:
    """Return buttons that answer a question, in addition to earlier answers."""
    buttons = []
    for option_words, meaning in question.options:
        field, text = option_words[0].removeprefix("--").replace("-", "_"), option_words[1]
        if text.rpartition("=")[2] in ("NAME", "COLUMN"):  # the user has to type it
            continue
        if field in _LISTS and fields[field]:
            text = f"{fields[field]},{text}"
        buttons.append({"words": f"{' '.join(option_words)}: {meaning}".removeprefix("--"), "options": {field: text}})
    return buttons


def _mqtt_sensor(fields: dict[str, str]) -> Mqtt:
    """Return the sensor of the topic in the form."""
    broker = Broker.parse(fields["local"])
    sensor_fields = {"topic": fields["topic"], "path": fields["path"] or None, "host": broker.host, "port": broker.port}
    return Mqtt.model_validate({"kind": "mqtt", **sensor_fields})


def _refuse_fleet_broker(sensor: Mqtt, fleet_broker: Broker, *, must_connect: bool) -> None:
    """Raise FuguError if the sensor's broker is elsewhere or the fleet's, or if it must be reached and cannot."""
    try:
        dial(sensor.host, sensor.port, (fleet_broker.host, fleet_broker.port)).close()
    except OSError as error:
        if isinstance(error, LocalBrokerError):
            raise FuguError(f"the topic cannot be read: {error}") from None
        if must_connect:
            raise FuguError(f"the topic's broker cannot be reached: {cause(error)}") from None


def _arrival_words(recording: Path) -> str:
    return f"{recording.name} is here."


def _error_line(error: Exception) -> str:
    """Return an error as one line without any reading."""
    match error:
        case MemoryError():
            return "there is not enough memory for this recording: give a part of it"
        case ValidationError():
            return first_problem(error, "the topic")
        case OSError():
            return f"{Path(error.filename).name}: {cause(error)}" if error.filename else cause(error)
        case FuguError():
            return " ".join(str(error).split())
    return fault_text(error)
