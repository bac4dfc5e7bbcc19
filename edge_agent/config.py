"""An agent's configuration file, checked together with the policies it names.

The document parser needs more memory than the agent, so `check_in_child` runs it in a child process that then ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent.plan import AgentPlan, ClockSettings, Form, Managed, StreamPlan
from edge_agent.sensors.source import ConfigError
from fugu.host.child import run_forked

if TYPE_CHECKING:
    from edge_agent.config_schema import AgentConfig

__all__ = ["check_in_child", "load"]


def load(path: str | Path) -> AgentPlan:
    """Read a TOML file and verify every policy that it names; file names are relative to its folder.

    Raises ConfigError for the file, PolicyError for a malformed policy, TrustError for a group on other terms than the
    owner's. GuaranteeError: a guarantee is false, or above the ceiling.
    """
    return _read_plan(_validate(Path(path)))


def check_in_child(path: str | Path) -> Callable[[], AgentPlan]:
    """Begin to load a configuration in a forked child; call this before any thread is started.

    Return a function that waits for the plan. It raises ConfigError with the text of any error that `load` would raise.
    """
    wait_for_fields = run_forked(lambda: _validate(Path(path)), " while reading the configuration", ConfigError)
    return lambda: _read_plan(wait_for_fields())


def _read_plan(plan_fields: Form) -> AgentPlan:
    from fugu.mqtt import Broker  # here, so that the child is forked before it is loaded

    if (managed := plan_fields["managed"]) is not None:
        from fugu.core.trust import unpack

        managed |= {"streams": tuple(managed["streams"]), "trusted": unpack(bytes.fromhex(managed["trusted"]))}
    plan_fields |= {
        "broker": Broker(**plan_fields["broker"]),
        "clock": ClockSettings(**plan_fields["clock"]),
        "groups": tuple(plan_fields["groups"]),
        "managed": managed and Managed(**managed),
        "streams": tuple(StreamPlan.of(policy, sensor) for policy, sensor in plan_fields["streams"]),
    }
    return AgentPlan(**plan_fields)


def _validate(path: Path) -> Form:
    """Validate configuration and policies. Return the fields of the plan, as JSON can carry them."""
    from importlib.metadata import version  # here, so that a running agent does not load them

    from edge_agent.config_schema import read_config

    config = read_config(path)
    plan_fields = config.model_dump(
        exclude={"streams", "groups", "ceiling", "total_ceiling", "measurement_ceiling", "enrolment", "trust"}
    )
    if all(stream.sensor.kind == "replay" for stream in config.streams):  # a replay needs no true time
        plan_fields["clock"]["trusted"] = True
    plan_fields |= {
        "broker": asdict(config.broker.beside(path.parent)),
        "outbox": str(path.parent / config.outbox),
        "config": str(path.resolve()),
        "program": version("fugu-edge"),
        "managed": None,
        "groups": [pin.name for pin in config.groups],
    }
    if config.enrolment is None:
        forms, descriptions = _local_streams(config, path.parent)
        return {**plan_fields, "streams": forms, "descriptions": descriptions if config.forget == "puback" else {}}
    from edge_agent.enrolled import managed_plan

    managed, forms = managed_plan(config, path)
    return {**plan_fields, "managed": managed, "streams": forms, "descriptions": {}}


def _local_streams(config: AgentConfig, folder: Path) -> tuple[list[tuple[Form, Form]], dict[str, str]]:
    """Verify the policies that a configuration names. Return their forms with sensors, and descriptions by stream."""
    from edge_agent.config_schema import read_policies
    from edge_agent.enrolled import stream_form
    from fugu.contract.compiler import compile_policy
    from fugu.contract.descriptions import describe
    from fugu.contract.history import history_alone
    from fugu.contract.joint import check_joint_streams, joint_epsilon
    from fugu.contract.pins import violations
    from fugu.contract.policy import Policy

    assert config.ceiling is not None
    forms, policies, sensors = [], read_policies(config, folder), {}
    for policy, stream in zip(policies, config.streams, strict=True):
        policy_path = folder / (stream.policy or "")
        if (policy.fleet, policy.device) != (config.fleet, config.device):
            raise ConfigError(f"policy {policy_path} is for {policy.fleet}/{policy.device}, not this device")
        if isinstance(policy, Policy):
            policy.verify(config.ceiling)
        elif config.measurement_ceiling is None:
            raise ConfigError(
                f"policy {policy_path} is for measurements, whose epsilon is of another kind: "
                "set measurement_ceiling to the most that one released point may tell"
            )
        else:
            policy.verify(config.measurement_ceiling)
        if stream.pins is not None and (pin_problems := violations(policy, stream.pins)):
            raise ConfigError(f"policy {policy_path}: {pin_problems[0]}")
        sensors[policy.stream] = stream.sensor.model_dump_json()
        forms.append(stream_form(policy, compile_policy(policy), stream, config, folder))
    stream_names = [policy.stream for policy in policies]
    if len(set(stream_names)) != len(stream_names):
        raise ConfigError(f"two policies for one stream: {sorted(stream_names)}")
    check_joint_streams(policies)
    if total_ceiling := config.total_ceiling:
        joint_loss = joint_epsilon(policies, sensors, total_ceiling.seconds)
        if joint_loss > total_ceiling.epsilon:
            raise ConfigError(
                f"epsilon {joint_loss:g} of all streams together is above this device's total ceiling {total_ceiling}"
            )
    descriptions = [describe(policy, history=history_alone(policy)) for policy in policies]
    return forms, {description.stream: description.encode().decode() for description in descriptions}
