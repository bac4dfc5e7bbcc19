"""Print what a recording is."""

from __future__ import annotations

from pathlib import Path

from fugu.recordings.summary import Recording
from fugu_cli.view.terminal import answer, say

__all__ = ["tell_recording"]


def tell_recording(as_json: bool, recording: Recording, output: Path | None) -> None:
    """Print a recording's summary, its picture and what was left out; and where its plain file is."""

    def show() -> None:
        for line in (*recording.summary, "", *recording.picture, ""):
            say(line)
        if recording.unused:
            say(f"Not used: {', '.join(recording.unused)}.")
        for note in recording.notes:
            say(f"- {note}")
        if output is not None:
            say(f"written: {output}")

    answer(as_json, recording.document, show, indent=2)
