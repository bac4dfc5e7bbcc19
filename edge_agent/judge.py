"""`python -m edge_agent.judge CONFIG KIND < ENVELOPE`: judge one document, in a process of its own that ends at once.

Signatures and documents need libraries that are larger than the agent, and a document comes from outside: here neither
can cost the running agent its memory, nor a fault in a parser its life. The process may use so much memory and time,
and write no file; its answer is one JSON object on standard output. What it accepts takes effect only when the agent
has stored it.
"""

from __future__ import annotations

import base64
import binascii
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from contract.envelope import MAX_ENVELOPE_BYTES
from contract.errors import FuguError
from contract.fleet_documents import PolicyDocument, TableDocument, read_enrolment
from contract.trust import EnvelopeError, FalseGuaranteeError, Trust, TrustState, Verdict
from edge_agent.config import ConfigError, read_config, sensor_values
from edge_agent.config_schema import AgentConfig

__all__ = ["kept"]

MEMORY_BYTES = 1 << 29
PROCESSOR_SECONDS = 60


def main(arguments: list[str]) -> int:
    """Answer for one document; always 0 unless the process itself cannot work."""
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, allowed = resource.getrlimit(what)
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(what, (most, most))
    path, kind = arguments
    payload = sys.stdin.buffer.read(MAX_ENVELOPE_BYTES + 1)
    try:
        answer = _judge(Path(path), kind, payload)
    except FuguError as error:
        answer = {"refused": error.reason, "detail": str(error)}
    except Exception as error:  # what nobody thought of is a refusal; its text may hold anything
        answer = {"refused": "unexpected", "detail": type(error).__name__}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def kept(config: AgentConfig, path: Path) -> tuple[dict[str, Any], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """What an enrolled device begins with: the fields of `Managed`, and its streams; none before its first policy.

    Raises:
        FuguError: what was kept is damaged, or does not hold any more.
    """
    trust = _open_trust(config, path.parent)
    managed: dict[str, Any] = {
        "streams": [stream.stream for stream in config.streams],
        "config": str(path.resolve()),
        "trust": str((path.parent / config.trust).resolve()),
        "version": 0,
        "valid_until": None,
        "on_expiry": "hold",
        "time": trust.state.time,
        "fresh_seconds": trust.enrolment.fresh_seconds,
    }
    verdict = trust.in_force()
    if verdict is None:
        return managed, []
    found = _document(verdict, config, path.parent)
    plans = found.pop("plans")
    return managed | found, plans


def _judge(path: Path, kind: str, payload: bytes) -> dict[str, Any]:
    config = read_config(path)
    trust = _open_trust(config, path.parent)
    if kind == "root":
        verdict = trust.follow_roots(payload)
    elif kind in ("policy", "table", "time"):
        verdict = trust.consider(payload, kind, int(time.time()))  # type: ignore[arg-type]
    else:
        raise EnvelopeError(f"documents of kind {kind} are not sent")
    answer: dict[str, Any] = {"kind": verdict.document.document, "news": verdict.news, "state": verdict.state.to_json()}
    if isinstance(verdict.document, PolicyDocument):
        answer |= _document(verdict, config, path.parent)
    elif isinstance(verdict.document, TableDocument):
        answer |= {"stream": verdict.document.stream, "table": _checked_base64(verdict.document.table)}
    return answer


def _document(verdict: Verdict, config: AgentConfig, folder: Path) -> dict[str, Any]:
    """What an agent needs of a policy document, as JSON can carry it."""
    document = verdict.document
    assert isinstance(document, PolicyDocument)
    return {
        "version": document.version,
        "valid_until": document.valid_until,
        "on_expiry": document.on_expiry,
        "plans": _streams(verdict, config, folder),
    }


def _streams(verdict: Verdict, config: AgentConfig, folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each policy of a document, with the sensor that the configuration gives to its stream.

    Raises:
        FalseGuaranteeError: a stream has no sensor on this device.
    """
    sensors = {stream.stream: stream.sensor for stream in config.streams}
    found = []
    for policy in verdict.policies:
        if (sensor := sensors.get(policy.stream)) is None:
            raise FalseGuaranteeError(f"this device has no sensor for stream {policy.stream}")
        found.append((policy.model_dump(mode="json"), sensor_values(sensor.model_dump(), folder)))
    return found


def _open_trust(config: AgentConfig, folder: Path) -> Trust:
    """The trust of an enrolled device, as it was left.

    Raises:
        ConfigError: the enrolment cannot be read.
        TrustError: what was kept is damaged.
    """
    assert config.enrolment is not None
    try:
        enrolment = read_enrolment((folder / config.enrolment).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read enrolment {config.enrolment}: {error.strerror}") from None
    if (enrolment.fleet, enrolment.device) != (config.fleet, config.device):
        raise ConfigError(f"the enrolment is that of {enrolment.fleet}/{enrolment.device}, not of this device")
    sensors = {stream.stream or "": stream.sensor.model_dump_json() for stream in config.streams}
    return Trust(enrolment, _kept(folder / config.trust), sensors)


def _kept(path: Path) -> TrustState | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        return TrustState.from_json(json.loads(text))
    except ValueError:
        raise EnvelopeError(f"{path} is damaged") from None


def _checked_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise EnvelopeError("a table that is no base64") from None
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
