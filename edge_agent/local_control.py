"""Controls of an agent for people at the device: a pause, and `fugu-agent --status`.

A pause is a file beside the outbox, so it outlasts restarts and needs no running agent. The file holds the Unix time,
in seconds, at which the pause ends, or nothing for a pause without an end. During a pause nothing is drawn, and no
sensor is read.

Troubles of a sensor may depend on what it measures. The findings of the watch, and the owner's own epsilon, follow from
true states without noise. So no file holds them. The agent tells them on a socket beside the outbox that only its own
account can open. It tells counts and fixed words, never a reading.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fugu.contract.errors import FuguError, cause
from fugu.host.answering import StatusSocket, ask
from fugu.host.files import write_public

__all__ = ["NO_USE", "LocalStatus", "LocalStatusError", "Pause", "ask_status", "status_words"]


class LocalStatusError(FuguError):
    """A pause cannot be begun or ended, or no agent answers here, or the agent cannot tell its status."""


class Pause:
    """The pause of the agent with an outbox; `path` is the path of its file."""

    def __init__(self, outbox: str | Path) -> None:
        self.path = Path(f"{outbox}.pause")
        self._fingerprint: tuple[int, ...] = ()
        self._pause_end = -math.inf

    def holds(self, now: float) -> bool:
        """True if the device is paused at a Unix time in seconds, also if the file cannot be read or understood."""
        try:
            file_status = self.path.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        fingerprint = file_status.st_ino, file_status.st_mtime_ns, file_status.st_size
        if fingerprint != self._fingerprint:
            self._fingerprint, self._pause_end = fingerprint, self._read_end()
        return not now >= self._pause_end

    def begin(self, pause_end: float | None) -> None:
        """Pause until a Unix time in seconds, or for ever if None. Raises FuguError if the file cannot be written."""
        write_public(self.path, "" if pause_end is None else f"{pause_end:.0f}\n")  # the agent may have another account

    def end(self) -> None:
        """End the pause. Raises LocalStatusError if the file cannot be removed."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise LocalStatusError(f"cannot remove {self.path}: {error.strerror}") from None

    def _read_end(self) -> float:
        try:
            end_text = self.path.read_text(encoding="utf-8").strip()
            return float(end_text) if end_text else math.inf
        except (OSError, ValueError):
            return math.inf


NO_USE = "what came is no number, category or place of its policy"
"""Message on a sensor whose readings are all unusable."""


class LocalStatus:
    """The agent's end of the socket."""

    def __init__(self, outbox: str | Path) -> None:
        self._answering = StatusSocket(_socket_path(outbox))

    def answer(self, status: Callable[[], dict[str, Any]]) -> None:
        """Send the status to all who ask now; an answer with `fault` if `status` raises."""

        def status_text() -> str:
            try:
                return json.dumps(status())
            except Exception as error:  # whatever it is, ticks must go on
                return json.dumps({"fault": cause(error)})

        while self._answering.answer(status_text):
            pass

    def close(self) -> None:
        """Close the socket."""
        self._answering.close()


def ask_status(outbox: str | Path) -> dict[str, Any]:
    """Ask the agent with an outbox for its status. Raises LocalStatusError if none answers, or it cannot tell."""
    path = _socket_path(outbox)
    try:
        document: dict[str, Any] = json.loads(ask(path) or "")
    except ValueError:
        raise LocalStatusError(
            f"no agent answers at {path}: none runs with this configuration, or another account than yours runs it"
        ) from None
    if "fault" in document:
        fault = document["fault"]
        raise LocalStatusError(f"the agent goes on, but cannot say how it is: {fault} inside it, please report it")
    return document


def status_words(status: dict[str, Any], promises: Mapping[str, Sequence[str]]) -> str:
    """Return a status as lines for people; `promises` has sentences by stream."""
    link_words = "connected" if status["connected"] else "not connected"
    lines = [
        f"{status['device']}: {link_words}, {status['outbox_depth']} frames in the outbox, "
        f"{status['outbox_bytes'] / 1e6:.1f} of {status['max_bytes'] / 1e6:.1f} MB used"
    ]
    if status["codes"]:
        lines.append(f"  trouble: {', '.join(status['codes'])}")
    if status["not_drawn"] or status["dropped"]:
        lines.append(
            f"  since the start {status['not_drawn']} ticks were not drawn for, as the outbox had no room, "
            f"and {status['dropped']} frames were dropped"
        )
    if status["refused"]:
        count_words = ", ".join(f"{count} {reason}" for reason, count in sorted(status["refused"].items()))
        lines.append(f"  messages that were of no use: {count_words}")
    for stream in status["streams"]:
        lines.append(
            f"  stream {stream['stream']}: policy version {stream['policy_version']}, next tick {stream['next_tick']}; "
            f"{stream['silent']} of {stream['ticks']} ticks without a reading, {stream['unusable']} unusable readings"
        )
        lines += [f"    promises {sentence}" for sentence in promises.get(stream["stream"], ())]
        if stream["unusable"] and stream["unusable"] == stream["ticks"] - stream["silent"]:
            lines.append(f"    sensor: {NO_USE}: compare the names in its policy with those of the sensor")
        if stream["sensor"]:
            lines.append(f"    sensor: {stream['sensor']}")
    no_finding_words = "nothing that the guarantee assumes of the readings' chain could be seen to be wrong"
    for stream in status["streams"]:
        lines.append(f"  model watch, stream {stream['stream']}: {stream['watch'] or no_finding_words}")
        if stream["own_epsilon"] is not None:
            lines.append(f"    by your own states of the last day this noise has epsilon {stream['own_epsilon']:.2g}")
    return "\n".join(lines)


def _socket_path(outbox: str | Path) -> Path:
    return Path(f"{outbox}.socket")
