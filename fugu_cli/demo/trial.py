"""`fugu try`: draw a recording at once, then plan and replay it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from queue import Queue

from fugu.mqtt import Broker
from fugu.recordings.readings import Readings, load, read_readings
from fugu_cli.commands.auto_plan import question_asked, reading_options
from fugu_cli.commands.plan_options import AutoOptions
from fugu_cli.demo.evaluation import RECORDINGS
from fugu_cli.demo.page import Page, queue_request
from fugu_cli.demo.processes import find_mosquitto
from fugu_cli.demo.session import show_recording
from fugu_cli.demo.trial_numbers import DEVICE, TrialNumbers

__all__ = ["numbers_of", "readings_of", "run", "show_readings"]

_NOT_YET = [["", "Useful?", "It is being planned."], ["", "Private?", "It is being planned."]]
_OURS = RECORDINGS / "hr_sleep_N10.csv.gz"


def run(
    file: Path | None, options: AutoOptions, *, not_private: bool, browser: bool, broker: Broker | None = None
) -> int:
    """Try a recording, by default a night of heartbeats; return 1 if a process failed, 3 without an answer.

    With a broker, the numbers are sent there as those of a device of Home Assistant; their noise is drawn once.
    FuguError: the recording cannot be read or cannot answer the question, or a process fails.
    """
    path, trial = _OURS if file is None else file, None
    if broker is not None:
        options = replace(options, fleet=DEVICE, device=DEVICE)
        trial = numbers_of(path, options, broker, not_private=not_private)
        if trial.drawn:
            trial.publish()
            return 0
    readings = readings_of(path, options)
    find_mosquitto("auto")
    choices = Queue[int](1)
    with Page(browser=browser, handle_post=partial(_receive, choices)) as page:
        page.show(title=f"{path.name}: what would leave, and what that tells")
        while True:
            page.show(stage="planning", done=0.0, ended=False, verdicts=_NOT_YET, offers=[], paste=None)
            show_readings(page, readings)
            from fugu_cli.demo.planned import plan_and_replay  # the recording is seen while this is loaded

            code, offers = plan_and_replay(page, path, readings, options, not_private=not_private, trial=trial)
            choice = None if trial is not None and trial.drawn else page.stay(choices)
            if choice is None or not 0 <= choice < len(offers):
                return code
            options = offers[choice]


def _receive(choices: Queue[int], path: str, _query: dict[str, str], body: BufferedIOBase, length: int) -> HTTPStatus:
    """Queue the number of an offer that the page sends, in a thread of the page."""
    if path != "/ask":
        return HTTPStatus.BAD_REQUEST
    return queue_request(choices, lambda form: int(form["offer"]), body, length)


def numbers_of(path: Path, options: AutoOptions, broker: Broker, *, not_private: bool) -> TrialNumbers:
    """Return the numbers of a recording planned with some options. OSError if the recording cannot be read."""
    return TrialNumbers(path, (replace(options, fleet=DEVICE, device=DEVICE), not_private), broker)


def readings_of(path: Path, options: AutoOptions) -> Readings | None:
    """Return the readings of a recording; None if it is planned as places. Errors as of `run`."""
    question = question_asked(options)
    reading = reading_options(options, question)
    recording_table = load(path, reading)
    if question.of_places(recording_table, options.column or options.time):
        return None
    readings = read_readings(recording_table, reading)
    return readings if readings.period else None  # FuguError without a period


def show_readings(page: Page, readings: Readings | None) -> None:
    """Draw a recording, unless it holds places."""
    page.show_replay(0, name="The whole recording")
    if readings is not None:
        hours, quantity = readings.period / 3600.0, readings.column
        show_recording(page, 0, readings.values, hours, quantity)
