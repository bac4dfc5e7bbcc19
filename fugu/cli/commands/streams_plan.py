"""The work of `fugu plan joint`: a joint chain to a plan, to terminal, JSON and a policy for each stream."""

from __future__ import annotations

import json
import time
from pathlib import Path

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import HeaderOptions, JointOptions
from fugu.cli.commands.plan_values import latency_seconds
from fugu.cli.commands.window_plan import wanted_window
from fugu.cli.errors import CommandLineError
from fugu.cli.view.policy import missing_sentence
from fugu.cli.view.streams_plan import show_streams, streams_document
from fugu.cli.view.terminal import say, warn, working
from fugu.contract.queries import EACH
from fugu.planning.policy_builder import PolicyHeader
from fugu.planning.streams_plan import StreamsPlan, StreamsRequest, plan_streams, stream_discretiser, stream_policies
from fugu.privacy.chain_model import ModelError
from fugu.privacy.joint_model import JointModel

__all__ = ["plan_joint"]


def plan_joint(file: Path, options: JointOptions, header: HeaderOptions, *, output: Path | None, as_json: bool) -> None:
    """Plan streams, print the plan, and write their policies if a directory is named.

    Raises:
        FuguError: something cannot be read, or there is no such plan.
        OSError: a file cannot be read or written.
    """
    try:
        model = JointModel.from_json(file.read_bytes())
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None
    fleet, device = header.names("home/room")
    devices = _devices(device, model)
    request = _request(model, options, devices)
    with working("planning streams"):
        plan = plan_streams(request)
    policies = () if output is None else stream_policies(plan, _headers(plan, header, fleet, devices))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for policy in policies:
            (output / f"{policy.device}-{policy.stream}.json").write_text(policy.to_json(), encoding="utf-8")
    if as_json:
        print(json.dumps(streams_document(plan), indent=2))
    else:
        show_streams(plan)
        for policy in policies:
            say(f"policy written to {output}/{policy.device}-{policy.stream}.json: {missing_sentence(policy)}")
    warn(model.warning)


def _devices(device: str | None, model: JointModel) -> list[str]:
    """The device of each stream; none if they are all of one that is not named."""
    devices = [] if device is None else [name.strip() for name in device.split(",")]
    if len(devices) not in (0, 1, len(model.streams)):
        raise CommandLineError(f"--for names {len(devices)} devices for {len(model.streams)} streams")
    return devices * len(model.streams) if len(devices) == 1 else devices


def _request(model: JointModel, options: JointOptions, devices: list[str]) -> StreamsRequest:
    period = model.period_seconds if options.period is None else arguments.positive(options.period, "period")
    if period is None:
        raise CommandLineError("the model does not know how long a tick is: give --period")
    if options.symbols is not None and not (options.window and 0.0 < options.symbols < 1.0):
        raise CommandLineError("--symbols is a share between 0 and 1, beside --window")
    words = ["1"] * len(model.streams) if options.share is None else options.share.split(",")
    names = tuple(one.name for one in model.streams)
    if len(set(devices)) > 1:
        names = tuple(f"{device}/{name}" for device, name in zip(devices, names, strict=True))
    return StreamsRequest(
        model=model,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        adversary=arguments.adversary(options.adversary),
        known=options.known,
        names=names,
        period_seconds=period,
        shares=tuple(arguments.number(word, "share") for word in words),
        windows=tuple(wanted_window(text, EACH, period) for text in options.window or ()),
        symbols=options.symbols if options.window else 1.0,
    )


def _headers(plan: StreamsPlan, header: HeaderOptions, fleet: str | None, devices: list[str]) -> list[PolicyHeader]:
    if fleet is None:
        raise CommandLineError("policies need --for (try 'fugu plan joint --help')")
    epoch = float(round(time.time())) if header.epoch is None else header.epoch
    return [
        PolicyHeader(
            fleet=fleet,
            device=device,
            stream=one.name,
            discretiser=stream_discretiser(one),
            period_seconds=plan.request.period_seconds,
            latency_seconds=latency_seconds(header),
            version=1 if header.version is None else header.version,
            epoch=epoch,
            valid_until=header.valid_until,
            missing_share=one.missing_share if one.missing_state is None else None,
        )
        for device, one in zip(devices, plan.request.model.streams, strict=True)
    ]
