"""The documents that an enrolled device has accepted, and the forms in which its agent runs policies."""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path

from edge_agent.config_schema import AgentConfig, SensorConfig, StreamConfig, sensor_values
from edge_agent.plan import Form
from edge_agent.sensors.source import ConfigError
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import GuaranteeError, Reason, TrustError
from fugu.contract.fleet_documents import read_enrolment
from fugu.contract.groups import GroupPin, SharedWindow
from fugu.contract.history import Noise
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.trust import Trust, Verdict

__all__ = ["managed_plan", "open_trust", "policy_form", "stream_form", "stream_forms"]


def managed_plan(config: AgentConfig, path: Path) -> tuple[Form, list[tuple[Form, Form]]]:
    """Return the fields of `Managed`, and the forms of the accepted streams. FuguError if their guarantees fail now."""
    trust = open_trust(config, path.parent)
    managed_fields: Form = {
        "streams": [stream.stream for stream in config.streams],
        "config": str(path.resolve()),
        "trust": str((path.parent / config.trust).resolve()),
        "trusted": trust.state.pack().hex(),
        "fresh_seconds": trust.enrolment.fresh_seconds,
        "key": trust.enrolment.key,
    }
    verdict = trust.in_force()
    return managed_fields, [] if verdict is None else stream_forms(verdict, config, path.parent)


def policy_form(policy: AnyPolicy, compiled: bytes) -> Form:
    """Return the form in which an agent runs a verified policy: compiled, with the whole policy for points.

    For symbols and windows it also has the rate of all noisy outputs that a tick adds to, and a bound on the noise.
    """
    form: Form = {"compiled": compiled.hex()}
    if not isinstance(policy, Policy):
        return form | {"points": policy.model_dump(mode="json")}
    return form | {"rate": float(policy.outputs.rate), "noise_bound": Noise.of(policy).text()}


def stream_form(
    policy: AnyPolicy, compiled: bytes, stream: StreamConfig, config: AgentConfig, folder: Path
) -> tuple[Form, Form]:
    """Return the forms of a verified policy and of its sensor's configuration, for JSON.

    Raises ConfigError if the sensor does not fit the policy, TrustError for a group on other terms than the owner's.
    """
    _check_missing(policy.discretiser, stream.sensor)
    _check_groups(policy, config)
    return policy_form(policy, compiled), sensor_values(stream, folder, config.broker)


def stream_forms(verdict: Verdict, config: AgentConfig, folder: Path) -> list[tuple[Form, Form]]:
    """Return the stream form of each policy of a document. Raises as `stream_form`; TrustError without a sensor."""
    streams = {stream.stream: stream for stream in config.streams}
    forms = []
    for policy, compiled in zip(verdict.policies, verdict.compiled, strict=True):
        if (stream := streams.get(policy.stream)) is None:
            raise TrustError(f"this device has no sensor for stream {policy.stream}", Reason.GUARANTEE)
        forms.append(stream_form(policy, compiled, stream, config, folder))
    return forms


def open_trust(config: AgentConfig, folder: Path) -> Trust:
    """Read an enrolment and the stored trust. ConfigError, PolicyError or TrustError if either cannot be used."""
    assert config.enrolment is not None
    path = folder / config.enrolment
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            enrolment = read_enrolment(file.read())
    except OSError as error:
        raise ConfigError(f"cannot read enrolment {config.enrolment}: {error.strerror}") from None
    if enrolment.key is not None and mode & 0o077 and not _is_credential(path):
        raise ConfigError(
            f"enrolment {config.enrolment} holds a secret that others may read (mode {mode & 0o777:04o}): "
            "chmod 600 it, and if others may have read it, enrol the device anew"
        )
    if (enrolment.fleet, enrolment.device) != (config.fleet, config.device):
        raise ConfigError(f"the enrolment is that of {enrolment.fleet}/{enrolment.device}, not of this device")
    sensors = {stream.stream or "": stream.sensor.model_dump_json() for stream in config.streams}
    return Trust(enrolment, _read_stored(folder / config.trust), sensors)


def _is_credential(path: Path) -> bool:
    """True if systemd has passed a file as a credential: others cannot read it, whatever its mode says."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return folder is not None and path.resolve().parent == Path(folder).resolve()


def _read_stored(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def _check_missing(discretiser: Discretiser, sensor: SensorConfig) -> None:
    """Raise a ConfigError if missing readings depend on the measured value, and have no state: they get no noise."""
    if sensor.kind == "bluetooth-heart-rate" and sensor.no_contact == "missing" and discretiser.missing is None:
        raise ConfigError(
            'no_contact = "missing" needs a policy whose discretiser names a state for missing readings, since '
            "contact is lost because of what is measured"
        )


def _check_groups(policy: AnyPolicy, config: AgentConfig) -> None:
    """Raise a TrustError if a policy reports to a group that the owner has not joined, or breaks the owner's terms.

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


def _check_epsilon(policy: Policy, target_window: SharedWindow, pin: GroupPin) -> None:
    ticks = pin.most.ticks(policy.clock.period_us)
    claimed_guarantee = policy.guarantee.model_copy(update={"epsilon": pin.most.epsilon, "stretch_ticks": ticks})

    def keeps_terms(noise: int) -> bool:
        group = target_window.group.model_copy(update={"noise": noise})
        sums = tuple(
            window.model_copy(update={"group": group}) if window is target_window else window for window in policy.sums
        )
        try:
            policy.model_copy(update={"sums": sums, "guarantee": claimed_guarantee}).verify()
        except GuaranteeError:
            return False
        return True

    if keeps_terms(target_window.group.noise):
        return
    # A smaller A is more noise, so the terms are kept up to a limit.
    most_noise = bisect_left(range(1, target_window.group.noise), True, key=lambda noise: not keeps_terms(noise))
    epsilon = policy.bound(policy.verify()).epsilon(ticks)
    remedy = f"at most {most_noise} would do" if most_noise else "no A would do: the stream tells too much beside it"
    raise TrustError(
        f"epsilon {epsilon:.4g} about {ticks} ticks of stream {policy.stream} is above the "
        f"{pin.most} of group {target_window.group.name}: its A is {target_window.group.noise}, {remedy}",
        Reason.PINNED,
    )
