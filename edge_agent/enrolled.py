"""The documents that an enrolled device has accepted so far, and what runs of a policy by the owner's terms."""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path
from typing import Any

from edge_agent.config_schema import AgentConfig, SensorConfig, StreamConfig, sensor_values
from edge_agent.sensors.source import ConfigError
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import GuaranteeError, Reason, TrustError
from fugu.contract.fleet_documents import read_enrolment
from fugu.contract.groups import GroupPin, SharedWindow
from fugu.contract.history import Noise
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.trust import Trust, Verdict

__all__ = ["accepted", "open_trust", "to_run", "to_run_of", "with_sensor"]


def accepted(config: AgentConfig, path: Path) -> tuple[dict[str, Any], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """The fields of `Managed` and the streams accepted so far, if any. Raises FuguError if they hold no more."""
    trust = open_trust(config, path.parent)
    managed_fields: dict[str, Any] = {
        "streams": [stream.stream for stream in config.streams],
        "config": str(path.resolve()),
        "trust": str((path.parent / config.trust).resolve()),
        "trusted": trust.state.pack().hex(),
        "fresh_seconds": trust.enrolment.fresh_seconds,
        "key": trust.enrolment.key,
    }
    verdict = trust.in_force()
    return managed_fields, [] if verdict is None else to_run(verdict, config, path.parent)


def to_run_of(policy: AnyPolicy, compiled: bytes) -> dict[str, Any]:
    """Return what is run of a verified policy: its compiled form, and for points their tables.

    Of symbols and windows also the rate that all which a tick adds to has together, and a bound on the noise.
    """
    form: dict[str, Any] = {"compiled": compiled.hex()}
    if not isinstance(policy, Policy):
        return form | {"points": policy.model_dump(mode="json")}
    return form | {"rate": float(policy.outputs.rate), "noise_bound": Noise.of(policy).text()}


def with_sensor(
    policy: AnyPolicy, compiled: bytes, stream: StreamConfig, config: AgentConfig, folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is run of a verified policy, and its sensor, as JSON can carry them.

    Raises ConfigError if the sensor does not fit, TrustError for a group that the owner has not joined.
    """
    _check_declared(policy.discretiser, stream.sensor)
    _check_joined(policy, config)
    return to_run_of(policy, compiled), sensor_values(stream, folder, config.broker)


def to_run(verdict: Verdict, config: AgentConfig, folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each policy with its stream's sensor, if it has one, else TrustError; other errors as of `with_sensor`."""
    streams = {stream.stream: stream for stream in config.streams}
    stream_forms = []
    for policy, compiled in zip(verdict.policies, verdict.compiled, strict=True):
        if (stream := streams.get(policy.stream)) is None:
            raise TrustError(f"this device has no sensor for stream {policy.stream}", Reason.GUARANTEE)
        stream_forms.append(with_sensor(policy, compiled, stream, config, folder))
    return stream_forms


def open_trust(config: AgentConfig, folder: Path) -> Trust:
    """The trust of an enrolled device, as it was left. Raises ConfigError for the enrolment, TrustError for damage."""
    assert config.enrolment is not None
    path = folder / config.enrolment
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            enrolment = read_enrolment(file.read())
    except OSError as error:
        raise ConfigError(f"cannot read enrolment {config.enrolment}: {error.strerror}") from None
    if enrolment.key is not None and mode & 0o077 and not _of_systemd(path):
        raise ConfigError(
            f"enrolment {config.enrolment} holds a secret that others may read (mode {mode & 0o777:04o}): "
            "chmod 600 it, and if others may have read it, enrol the device anew"
        )
    if (enrolment.fleet, enrolment.device) != (config.fleet, config.device):
        raise ConfigError(f"the enrolment is that of {enrolment.fleet}/{enrolment.device}, not of this device")
    sensors = {stream.stream or "": stream.sensor.model_dump_json() for stream in config.streams}
    return Trust(enrolment, _stored(folder / config.trust), sensors)


def _of_systemd(path: Path) -> bool:
    """True if systemd has handed a file over: others may not read it then, whatever its mode seems to say."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return folder is not None and path.resolve().parent == Path(folder).resolve()


def _stored(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def _check_declared(discretiser: Discretiser, sensor: SensorConfig) -> None:
    """Raise a ConfigError if a missing reading tells of what is measured, and is no state: it would have no noise."""
    if sensor.kind == "bluetooth-heart-rate" and sensor.no_contact == "missing" and discretiser.missing is None:
        raise ConfigError(
            'no_contact = "missing" needs a policy whose discretiser names a state for missing readings, since '
            "contact is lost because of what is measured"
        )


def _check_joined(policy: AnyPolicy, config: AgentConfig) -> None:
    """Refuse a policy with a sum that the owner has not joined, or whose terms it does not keep; TrustError.

    Epsilon is derived here, from the group's noise with the device's own class, windows and symbols.
    """
    pin_of_group = {pin.name: pin for pin in config.groups}
    for window in policy.sums if isinstance(policy, Policy) else ():
        if (pin := pin_of_group.get(window.group.name)) is None:
            raise TrustError(
                f"stream {policy.stream} is to report to group {window.group.name}, which its owner has not joined: "
                "fugu-agent join, on the device",
                Reason.PINNED,
            )
        if (refusal := pin.refusal(window.group)) is not None:
            raise TrustError(refusal, Reason.PINNED)
        assert isinstance(policy, Policy)
        _check_epsilon(policy, window, pin)


def _check_epsilon(policy: Policy, target: SharedWindow, pin: GroupPin) -> None:
    ticks = pin.most.ticks(policy.clock.period_us)
    claim = policy.guarantee.model_copy(update={"epsilon": pin.most.epsilon, "stretch_ticks": ticks})

    def passes(noise: int) -> bool:
        group = target.group.model_copy(update={"noise": noise})
        sums = tuple(
            window.model_copy(update={"group": group}) if window is target else window for window in policy.sums
        )
        try:
            policy.model_copy(update={"sums": sums, "guarantee": claim}).verify()
        except GuaranteeError:
            return False
        return True

    if passes(target.group.noise):
        return
    limit = bisect_left(range(1, target.group.noise), True, key=lambda noise: not passes(noise))  # less is more noise
    remedy = f"at most {limit} would do" if limit else "no A would do: the stream tells too much beside it"
    raise TrustError(
        f"epsilon {policy.derived().epsilon(ticks):.4g} about {ticks} ticks of stream {policy.stream} is above the "
        f"{pin.most} of group {target.group.name}: its A is {target.group.noise}, {remedy}",
        Reason.PINNED,
    )
