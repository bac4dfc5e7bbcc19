"""Check a device's installation: everything that an agent needs, whether the agent runs or not.

Unless the agent is connected, an empty message is published on each of the device's topics, and its gateway counts it
as empty. Only so does a broker tell whether its access list lets the device publish. Nothing else is changed.

A trial opens and reads each sensor; nothing is drawn or sent. Its sentence says in fixed words whether a usable reading
came, never what it was. `limits` says what the device's owner has pinned, and how much the owner lets it tell at most.
"""

from __future__ import annotations

import math
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from edge_agent.config import check_in_child
from edge_agent.config_schema import AgentConfig, read_config, read_policies
from edge_agent.enrolled import open_trust
from edge_agent.local_control import NO_USE, LocalStatusError, ask_status
from edge_agent.outbox import identifiers
from edge_agent.plan import AgentPlan, StreamPlan
from edge_agent.sensors.sharing import open_sensors
from edge_agent.sensors.source import Sensor
from fugu.contract.classify import classifier_of
from fugu.contract.errors import FuguError, Reason, StatusCode
from fugu.contract.fleet_documents import read_enrolment
from fugu.contract.measure_table import states_in
from fugu.contract.pins import MeasuredPins, SymbolPins
from fugu.contract.topics import topic_of
from fugu.host import checks
from fugu.host.checks import Finding, Findings, loopback_only
from fugu.host.clock import synchronised
from fugu.mqtt.link import Say, say_nothing
from fugu.mqtt.probe import probe

__all__ = ["examine", "limits", "private_socket", "try_sensors"]


PATIENCE_SECONDS = 5.0
_LONGER = {"bluetooth-heart-rate": 20.0}
"""Patience of kinds of sensors that need longer: the library takes up to ten seconds to find a monitor."""
_ROWS = 1000
"""Rows of a recording that a trial reads."""


def try_sensors(plans: Sequence[StreamPlan], patience: float | None = None) -> list[tuple[str, bool]]:
    """Open the sensors of streams, and wait until each gives a usable reading or reports a trouble.

    Return for each stream a sentence, and whether something is wrong. `patience` is in seconds, by default 5, or 20 for
    a heart rate; a source of changes may be silent for longer. Raises ConfigError if a sensor cannot be opened.
    """
    if patience is None:
        patience = max([PATIENCE_SECONDS, *(_LONGER.get(plan.sensor.get("kind", ""), 0.0) for plan in plans)])
    sensors = open_sensors(plans)
    separate_sensors = dict.fromkeys(sensors)  # streams share them
    trials = [_Trial(plan, sensor) for plan, sensor in zip(plans, sensors, strict=True)]
    try:
        deadline, pause_seconds, tick = time.monotonic() + patience, 0.02, 0
        while True:
            troubles = [bool(sensor.trouble) for sensor in sensors]  # read before a reading that may come with it
            readings = {sensor: sensor.read(tick) for sensor in separate_sensors}
            for trial, sensor in zip(trials, sensors, strict=True):
                reading = readings[sensor]
                trial.observe(tick, None if reading is None else reading.reveal())
            seconds_left = deadline - time.monotonic()
            is_done = all(trial.is_over or has_failed for trial, has_failed in zip(trials, troubles, strict=True))
            if seconds_left <= 0 or is_done:
                return [(f"stream {trial.plan.stream}: {trial.sentence(patience)}", trial.is_wrong) for trial in trials]
            tick += 1
            if not all(sensor.recorded for sensor in sensors):
                time.sleep(min(pause_seconds, seconds_left))
                pause_seconds *= 1.5  # so a function is called, or a command run, about ten times at most
    finally:
        for sensor in separate_sensors:
            sensor.close()


class _Trial:
    def __init__(self, plan: StreamPlan, sensor: Sensor) -> None:
        self.plan = plan
        self._sensor = sensor
        self._discretiser = classifier_of(plan.discretiser)
        self._tick_count = self._readings = 0

    def observe(self, tick: int, raw_value: object) -> None:
        """Classify the raw value of a tick, unless a usable reading has come before."""
        if not self._is_usable:
            self._tick_count += 1
            self._readings += raw_value is not None
            self._discretiser.observe(tick, raw_value)

    @property
    def _is_usable(self) -> bool:
        return self._readings > self._discretiser.unusable

    @property
    def is_over(self) -> bool:
        """True if there is nothing to wait for: a usable reading has come, or the recording has ended."""
        is_ended = self._sensor.recorded and (self._tick_count >= _ROWS or self._sensor.finished(self._tick_count))
        return self._is_usable or is_ended

    @property
    def is_wrong(self) -> bool:
        """True if the sensor or its readings are unusable; a live source that is silent so far may be all right."""
        return not self._is_usable and bool(self._readings or self._sensor.recorded or self._sensor.trouble)

    def sentence(self, patience: float) -> str:
        if self._is_usable:
            return "a usable reading came"
        reason = "no reading came" if self._sensor.recorded else f"no reading came within {patience:g} s"
        if self._readings:
            reason = NO_USE
        if self._sensor.trouble:
            return f"{reason}: {self._sensor.trouble}"
        sensor_keys = self.plan.sensor
        if sensor_keys.get("kind") == "mqtt" and sensor_keys.get("silence") == "changes" and not self._readings:
            reason += (
                "; its broker retains none. After each start ticks are missing until the first change, "
                "and so tell when that came: let the source retain its state"
            )
        return reason


def limits(path: str | Path) -> list[str]:
    """List the pins and the ceilings of each stream of a valid configuration, in lines for people."""
    folder, config = Path(path).parent, read_config(Path(path))
    pins_of_stream: dict[str, SymbolPins | MeasuredPins | None]
    if config.enrolment is None:
        ceilings = config.ceiling, config.measurement_ceiling, config.total_ceiling
        policies = read_policies(config, folder)
        pins_of_stream = {policy.stream: stream.pins for policy, stream in zip(policies, config.streams, strict=True)}
        chooser, refuses_unpinned = "whoever writes its policy file", False
    else:
        enrolment = read_enrolment((folder / config.enrolment).read_bytes())
        ceilings = enrolment.ceiling, enrolment.measurement_ceiling, enrolment.total_ceiling
        pins_of_stream = {stream.stream or "": enrolment.pins.get(stream.stream or "") for stream in config.streams}
        chooser, refuses_unpinned = "whoever holds the policy keys", bool(enrolment.pins)
    terms = f"as its policy says, up to the ceiling; no pins here, so {chooser} chooses states, ticks and the class"
    if refuses_unpinned:
        terms = "refused, because nothing is pinned of it, unlike of others"
    lines = [f"stream {name}: {terms if pins is None else _pin_text(pins)}" for name, pins in pins_of_stream.items()]
    per_stream, per_point, total = (None if ceiling is None else f"at most epsilon {ceiling}" for ceiling in ceilings)
    lines.append(f"each stream: {per_stream}; each released point: {per_point or 'none may leave'}")
    if total or len(pins_of_stream) > 1:
        lines.append(f"all streams together: {total or 'not limited; the sum of their epsilons is no bound'}")
    lines += [
        f"group {pin.name}: joined, on these terms: its helper's digits are {pin.helper}, at least {pin.honest} honest "
        f"homes, at most epsilon {pin.most} of the stream"
        for pin in config.groups
    ]
    return lines


def _pin_text(pins: SymbolPins | MeasuredPins) -> str:
    state_words = f"pinned are its {len(pins.discretiser.states)} states ({pins.discretiser.kind})"
    if isinstance(pins, MeasuredPins):
        pair_count = sum(len(states_in(neighbour_set)) for neighbour_set in pins.neighbours()) // 2
        return (
            f"{state_words}, its clock, first states and steps, {pair_count} pairs of its graph, a factor of at most "
            f"{pins.factor} and a degree of protection of at least {pins.degree}. The rest of its graph is not pinned"
        )
    window_words = "windows are not pinned"
    if pins.windows is not None:
        window_words = f"windows alone at most epsilon {pins.windows.epsilon:g}, {pins.windows.adversary}"
    period_words = "exactly" if pins.discretiser.remembers else "a multiple of"
    chain_words = f"chains with {pins.chains.label}"
    if streams := pins.chains.named_streams:
        stream_words = ", ".join(f"{stream.name} at most {stream.rate:g} nats a tick" for stream in streams)
        chain_words = f"joint chains, {pins.chains.label} ({stream_words})"
    return (
        f"{state_words}, {period_words} {pins.period_us / 1e6:g} s a tick, {chain_words} and the "
        f"{pins.adversary} adversary at least; {window_words}"
    )


_SOON_DAYS = 7
_AGE_SECONDS = 900
_AHEAD_SECONDS = 60


def examine(path: Path, waiting: Say = say_nothing, *, elsewhere: bool = False) -> list[Finding]:
    """Check everything that the agent with a configuration needs; call this before any thread is started.

    `waiting` is called in any thread, with a line on broker and fleet, if there has been no answer for 3 seconds.
    `elsewhere` is for a folder that goes onto another machine: nothing of this machine is checked. Raises ConfigError
    if the configuration cannot be read.
    """
    config = read_config(path)
    findings: list[Finding] = []
    if not elsewhere:
        findings += [*checks.versions(), checks.randomness(), checks.clock(time.time(), synchronised())]
    try:
        plan = check_in_child(path)()
    except FuguError as error:
        return [*findings, Finding("configuration", "FAIL", f"{error}")]
    findings.append(Finding("configuration", "ok", f"{len(plan.streams)} streams, every guarantee holds"))
    if not (elsewhere or plan.clock.trusted or synchronised()):
        findings.append(Finding("ticks", "FAIL", "none is drawn until the clock is synchronised: see its line above"))
    findings += _check_policies(plan, time.time())
    enrolment = path.parent / config.enrolment if config.enrolment else None
    secrets = plan.broker.password_file, plan.broker.key_file, enrolment
    certificates = {"authority": plan.broker.ca_file, "client certificate": plan.broker.cert_file}
    findings += checks.credentials(secrets, certificates, time.time())
    agent_finding = _check_agent(plan)
    if not elsewhere:
        findings += [*_check_files(plan), *_check_binding(config), *_check_local_brokers(config)]
        findings += [agent_finding, *checks.unit("fugu-agent.service")]
    findings += _check_broker(config, plan, path.parent, waiting, is_connected=agent_finding.verdict == "ok")
    return findings


def _check_policies(plan: AgentPlan, now: float) -> Findings:
    managed = plan.managed
    ends = [stream.valid_until for stream in plan.streams] + ([] if managed is None else [managed.trusted.valid_until])
    days_left = (min(filter(None, ends), default=math.inf) - now) / 86_400
    if managed is not None and managed.trusted.silent(int(now), managed.trusted.version) == "stopped":
        text = "the gateway has stopped this device: find its copy, then have a newer policy document signed"
        yield Finding("policy", "FAIL", text)
    elif managed is not None and not managed.trusted.version:
        yield Finding("policy", "warn", "none has come yet: fugu fleet push")
    elif days_left <= 0:
        yield Finding("policy", "FAIL", "one is past its time: sign a newer one, or give the device a newer file")
    elif days_left <= _SOON_DAYS:
        yield Finding("policy", "warn", f"one ends in {days_left:.1f} days: renew it")
    else:
        yield Finding("policy", "ok", "in force, and valid for more than a week")


def _check_files(plan: AgentPlan) -> Findings:
    """Check the files that the agent keeps."""
    yield from checks.disk("outbox", Path(plan.outbox).parent)
    if Path(plan.outbox).exists():
        yield from checks.private_database(Path(plan.outbox))
    if plan.managed is not None and Path(plan.managed.trust).exists():
        yield checks.private_file(Path(plan.managed.trust))


def _check_binding(config: AgentConfig) -> Findings:
    machine_identifiers = identifiers(config.binding)
    if config.binding == "off":
        yield Finding("binding", "warn", "off: only the gateway would notice a copy of this device")
    elif not machine_identifiers:
        yield Finding("binding", "warn", 'this machine has no identifier: give it a name (binding = "...")')
    else:
        yield Finding("binding", "ok", f"{len(machine_identifiers)} identifiers of this machine")


def _check_local_brokers(config: AgentConfig) -> Findings:
    """Check whether only this machine can reach the brokers that sensors read, as far as the system tells."""
    addresses = {(stream.sensor.host, stream.sensor.port) for stream in config.streams if stream.sensor.kind == "mqtt"}
    for host, port in sorted(addresses):
        if host.startswith("/"):
            yield private_socket("local broker", Path(host))
        else:
            yield loopback_only("local broker", port)


def private_socket(label: str, path: Path) -> Finding:
    """Check whether a Unix socket exists, and is not open to every account."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return Finding(label, "warn", f"{path}: {error.strerror}: start it, or look at the path")
    if not stat.S_ISSOCK(mode):
        return Finding(label, "FAIL", f"{path} is no socket")
    if mode & 0o002:
        text = f"{path} is open to every account of this machine, which may read raw readings: chmod o= it"
        return Finding(label, "warn", text)
    return Finding(label, "ok", f"{path} is open to its owner and group only")


def _check_agent(plan: AgentPlan) -> Finding:
    """Check the running agent: ok if it is connected, and has no troubles."""
    try:
        status = ask_status(plan.outbox)
    except LocalStatusError as error:
        return Finding("agent", "warn", f"{error}")
    codes, depth = status["codes"], status["outbox_depth"]
    if codes == [StatusCode.PAUSED]:
        return Finding("agent", "warn", "it runs, and is paused: fugu-agent resume ends that")
    if codes:
        return Finding("agent", "FAIL", f"it runs, and says {', '.join(codes)}: docs/protocol.md explains the codes")
    if not status["connected"]:
        return Finding("agent", "warn", f"it runs, and is not connected; {depth} frames wait in its outbox")
    return Finding("agent", "ok", f"it runs and is connected; {depth} frames wait in its outbox")


def _check_broker(config: AgentConfig, plan: AgentPlan, folder: Path, on_wait: Say, *, is_connected: bool) -> Findings:
    """Try the broker; only as far as TLS while the agent is connected, which shows that the login works."""
    streams = {stream.stream for stream in plan.streams} | {stream.stream for stream in config.streams if stream.stream}
    writable_topics = [
        topic_of("status", plan.fleet, plan.device),
        *(topic_of("symbols", plan.fleet, plan.device, name) for name in streams),
    ]
    time_topics = [] if plan.managed is None else [topic_of("time", plan.fleet)]
    outcome = probe(
        plan.broker,
        write_topics=writable_topics,
        read_topics=time_topics,
        log_in=not is_connected,
        on_wait=lambda reason: on_wait(f"{reason}; waiting for fleet {plan.fleet}"),
    )
    yield from checks.broker(
        *(plan.broker.address, outcome.step, outcome.problem),
        end_time=outcome.certificate_end,
        writable=dict.fromkeys(writable_topics, True) if is_connected else outcome.writable_topics,
        now=time.time(),
    )
    if plan.managed is not None and outcome.retained_payloads is not None:
        yield _check_signed_time(config, folder, outcome.retained_payloads.get(time_topics[0]))


def _check_signed_time(config: AgentConfig, folder: Path, payload: bytes | None) -> Finding:
    if payload is None:
        return Finding("signed time", "warn", "the broker has none: the gateway does not run, or has no key")
    now = time.time()
    try:
        signed_time = open_trust(config, folder).judge(payload, "time", int(now)).state.time
    except FuguError as error:
        if error.reason is Reason.REPLAYED:
            return Finding("signed time", "warn", "older than one that this device has seen: does the gateway run?")
        return Finding("signed time", "FAIL", f"it is not believed, {error}: has the fleet another root?")
    age = now - signed_time
    if age < -_AHEAD_SECONDS:
        return Finding("signed time", "FAIL", f"this clock is {-age:.0f} s behind the gateway's: set it")
    if age > _AGE_SECONDS:
        return Finding("signed time", "warn", f"{age:.0f} s old: this clock is ahead, or the gateway does not run")
    return Finding("signed time", "ok", f"{age:.0f} s ago by this clock")
