"""The work of `fugu plan stream`, `window` and `joint`, and of `fugu check windows`: from chains to noise.

All raise FuguError if an input cannot be parsed or no such plan exists, and OSError if a file cannot be read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.frames import WINDOW_NAME_PATTERN
from fugu.contract.policy import Policy
from fugu.contract.queries import EACH, WINDOW_QUERIES, Query
from fugu.contract.windows import Composing
from fugu.host import arguments
from fugu.host.files import write_public
from fugu.library.checks import missing_sentence
from fugu.library.report import Result
from fugu.library.stream_words import joint_result, noise_result, releases_loss, stream_result, windows_result
from fugu.planning.chain_source import ChainSource, file_source, interval_source, longest_segment_ticks, read_declared
from fugu.planning.planner import Request, make_plan
from fugu.planning.policy_builder import PolicyHeader, build_policy, build_window_policy, next_version, thresholds
from fugu.planning.profiles import profile_blocks
from fugu.planning.question import microseconds, protected_seconds, protected_ticks
from fugu.planning.streams_plan import StreamsPlan, StreamsRequest, plan_streams, stream_policies
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.accountant import Chains
from fugu.privacy.accountant.accountant import covered_start
from fugu.privacy.chain_class import ChainClassError, Start
from fugu.privacy.chain_model import ChainModel
from fugu.privacy.randomised_response import Objective, stream_states
from fugu.privacy.window_mechanisms import (
    COMPOSING,
    MECHANISMS,
    Mechanism,
    WindowRelease,
    WindowRequest,
    compare_noise,
    joint_losses,
    plan_noise,
)
from fugu_cli.commands.plan_options import (
    ChainOptions,
    HeaderOptions,
    JointOptions,
    PolicyOptions,
    StreamOptions,
    WindowOptions,
    changed_options,
)
from fugu_cli.view.terminal import warn, working

__all__ = ["plan_joint", "plan_stream", "plan_window", "window_loss"]

_LONGEST = 1 << 31
_HEADER = ("target", "latency", "epoch")
"""Names of options that are only for a policy."""
_STARTS: tuple[Start, ...] = ("any", "stationary")


def chain_source(options: ChainOptions) -> ChainSource:
    """Make the class of chains that options describe.

    UsageError: options give no class, or two. FuguError: a number is out of range, or the model cannot be used.
    """
    if options.model is not None:
        if options.q is not None or options.r is not None:
            raise UsageError("give either --model or --q and --r, not both")
        return file_source(options.model)
    if options.q is None or options.r is None:
        raise UsageError("give --q and --r, or --model")
    return interval_source(arguments.interval(options.q, "q"), arguments.interval(options.r, "r"))


def declared_chains(options: ChainOptions) -> tuple[Chains, float | None, tuple[str, ...], tuple[str, ...]]:
    """Return the class of chains that options describe. If a file declares chains, they keep their own starts.

    Return also the seconds from tick to tick or None, notes about its origin, and warnings. Errors as `chain_source`.
    """
    model = options.model if options.q is None and options.r is None else None
    if model is not None and (declared := read_declared(model)) is not None:
        chain_words = "the chain" if len(declared) == 1 else f"the {len(declared)} chains"
        return declared, None, (f"class of chains: {chain_words} of {model}, taken as it is",), ()
    source = chain_source(options)
    return source.chains, source.period_seconds, source.notes, source.warnings


def chosen_start(start_text: str | None) -> Start | None:
    """Parse --start, None as None; UsageError if it is no start."""
    return None if start_text is None else arguments.one_of(start_text, "start", _STARTS)


def chosen_segments(segments_text: str | None, options: ChainOptions) -> int | None:
    """Parse --segments as the most ticks of a segment, None as None; FuguError if that is no number of ticks."""
    if segments_text is None:
        return None
    if segments_text == "fitted":
        if options.model is None:
            raise UsageError("--segments fitted: give --model, a file of 'fugu plan model'")
        return longest_segment_ticks(options.model)
    ticks = arguments.number(segments_text, "segments")
    if not 1.0 <= ticks < _LONGEST or ticks != int(ticks):
        raise UsageError(f"segments must be a whole number of ticks from 1 on, or fitted, got {segments_text!r:.40}")
    return int(ticks)


def policy_header(
    command: str, options: HeaderOptions, discretiser: Discretiser | None, source: ChainSource, period: float | None
) -> PolicyHeader:
    """Make the header of a policy from options; `period` is in seconds, None if unknown.

    UsageError: a part of the header is missing; the error names the help of `command`.
    """
    fleet, device, stream = options.names("home/watch/heart-rate")
    if fleet is None or device is None or stream is None or period is None or discretiser is None:
        option_values: dict[str, object] = {"--for": fleet, "--period": period, "--threshold": discretiser}
        missing = ", ".join(name for name, option_value in option_values.items() if option_value is None)
        raise UsageError(f"a policy needs {missing} (try '{command} --help')")
    latency, missing_share = arguments.positive(options.latency, "latency"), source.missing_share
    epoch = options.epoch
    return PolicyHeader(fleet, device, stream, discretiser, period, latency, epoch=epoch, missing_share=missing_share)


def chosen_discretiser(options: PolicyOptions, source: ChainSource) -> Discretiser | None:
    """Return the discretiser with the given edges, else that of the fitted chain; None if there is neither.

    UsageError: the options make other states than the chain has.
    """
    chosen_names = None if options.states is None else tuple(arguments.split_words(options.states))
    discretiser = source.discretiser
    if isinstance(discretiser, Baseline) and options.threshold:
        raise UsageError("--threshold makes other states than the model's, which are made by a running mean")
    missing = source.missing_state is not None
    if options.threshold is not None:
        edges = tuple(arguments.number(edge_text, "threshold") for edge_text in options.threshold.split(","))
        return thresholds(edges, chosen_names, hysteresis=0.0, missing=missing)
    if isinstance(discretiser, Thresholds):
        names = chosen_names or discretiser.states
        return thresholds(discretiser.edges, names, hysteresis=discretiser.hysteresis, missing=missing)
    if discretiser is None:
        return None
    state_names = (*(chosen_names or ()), *discretiser.states[len(chosen_names or ()) :])
    name = None if discretiser.missing is None else state_names[discretiser.states.index(discretiser.missing)]
    return type(discretiser)(**{**discretiser.model_dump(), "states": state_names, "missing": name})


def _warn_unwritten(header: HeaderOptions, names: Iterable[str] = _HEADER) -> None:
    """Warn of options that are only for a policy, which is not written."""
    for name in changed_options(header, names):
        warn(f"--{'for' if name == 'target' else name} is for the policy, which is not written without -o")


def plan_stream(options: StreamOptions, chains: ChainOptions, policy: PolicyOptions, output: Path | None) -> Result:
    """Plan a stream, and write its policy if a file is named."""
    source = chain_source(chains)
    discretiser = chosen_discretiser(policy, source)
    objectives: tuple[Objective, ...] = get_args(Objective)
    period = arguments.period(options.period, source.period_seconds)
    request = Request(
        chains=source.chains,
        transition=source.transition,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        adversary=arguments.adversary(options.adversary),
        objective=arguments.one_of(options.objective, "objective", objectives),
        every=options.every,
        period_seconds=period,
        longer_periods=discretiser is None or not discretiser.remembers,
        protect=protected_seconds(arguments.protected(options.protect), period and period * options.every),
    )
    header = None
    if output is None:
        _warn_unwritten(policy)
    else:
        header = policy_header("fugu plan stream", policy, discretiser, source, request.period_seconds)
    with working("planning a stream"):
        plan = make_plan(request)
        policies = {} if output is None or header is None else {output: build_policy(plan, header)}
    return _write_policies(stream_result(plan, source, discretiser), policies, source.warnings)


def _write_policies(result: Result, policies: Mapping[Path, Policy], warnings: Iterable[str]) -> Result:
    """Write policies, each as the successor of the one in its file; return the result with a line for each."""
    for file, policy in policies.items():
        previous_text = file.read_bytes() if file.exists() else None
        write_public(file, next_version(policy, previous_text).to_json())
    lines = [f"policy written to {file}: {missing_sentence(policy)}" for file, policy in policies.items()]
    return result.with_lines(lines, warnings)


_SLOW_STATES = 6
_NAMES: tuple[Any, ...] = (*MECHANISMS, "auto")


def plan_window(options: WindowOptions, chains: ChainOptions, policy: PolicyOptions, output: Path | None) -> Result:
    """Plan windows, and write their policy if a file is named."""
    if output is None:
        _warn_unwritten(policy, _HEADER if options.window else (*_HEADER, "threshold", "states"))
    if options.window:
        return _plan_policy(options, chains, policy, output)
    if output is not None or options.symbols is not None:
        raise UsageError("a policy needs --window, with the ticks of a window")
    return _plan_noise(options, chains)


def _plan_policy(options: WindowOptions, chains: ChainOptions, policy: PolicyOptions, output: Path | None) -> Result:
    """Plan the endless windows of a device, and symbols beside them, under one epsilon."""
    if options.length is not None:
        raise UsageError("--window plans for a policy, whose windows never end: without --length")
    if options.segments is not None:
        raise UsageError("--segments compares noise: a policy cannot hold it, so plan without --window")
    mechanism = _composing_mechanism(options)
    source = chain_source(chains)
    discretiser = chosen_discretiser(policy, source)
    period = arguments.period(options.period, source.period_seconds)
    windows = _wanted_windows(options, source, period)
    epsilon, stretch = arguments.positive(options.epsilon, "epsilon"), arguments.protected(options.protect)
    if mechanism != "chain" and stretch is None:
        stretch = 0  # the published mechanisms are for single ticks
    protect = protected_seconds(stretch, period)
    with working("planning windows"):
        adversary, start = arguments.adversary(options.adversary or "informed"), chosen_start(options.start)
        plan_options: Any = {"start": start, "mechanism": mechanism, "stretch_ticks": protected_ticks(protect, period)}
        plan = joint_plan(source.chains, epsilon, adversary, windows, options.symbols, **plan_options)
    policies = {}
    if output is not None:
        header = policy_header("fugu plan window", policy, discretiser, source, period)
        policies[output] = build_window_policy(plan, header)
    return _write_policies(windows_result(plan, protect, period, source.notes, discretiser), policies, source.warnings)


def _composing_mechanism(options: WindowOptions) -> Composing:
    """Return the mechanism of a policy's endless windows. "auto" is the accountant, which never needs more noise."""
    name = arguments.one_of(options.mechanism or "chain", "mechanism", _NAMES)
    if name == "auto":
        return "chain"
    if name not in COMPOSING:
        raise FuguError(
            f"mechanism {name} does not compose, and a device releases windows for ever: plan them by "
            f"{', '.join(COMPOSING)}"
        )
    return COMPOSING[COMPOSING.index(name)]


def _wanted_windows(options: WindowOptions, source: ChainSource, period: float | None) -> list[WantedWindow]:
    """Return the windows that options ask for, all with the same query."""
    try:
        name, _, block_words = options.query.partition(":")
        profile = Query(name, blocks=profile_blocks(block_words)) if name == "profile" else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    query = profile or WINDOW_QUERIES[arguments.one_of(options.query, "query", (*WINDOW_QUERIES, "profile:TIME/ZONE"))]
    states: Any
    if options.count is not None:
        states = _counted_states(options.count, query)
    elif query.per_state:
        states = EACH
    elif stream_states(source.chains) == 2:
        states = (1,)
    else:
        raise UsageError(f"--count which of the {stream_states(source.chains)} states, or --query histogram?")
    return [wanted_window(window_text, states, period)._replace(query=query) for window_text in options.window or ()]


def wanted_window(window_text: str, states: Any, period: float | None) -> WantedWindow:
    """Parse a window as [NAME=]LENGTH[:SHARE]; `period` is in seconds, None if unknown. FuguError: it is no window."""
    named_length, colon, share_text = window_text.partition(":")
    name, equals, length_text = named_length.rpartition("=")
    ticks, is_time = arguments.span(length_text, "window")
    if is_time:
        if period is None:
            raise UsageError(f"window {window_text} is a time: give --period, the seconds from tick to tick")
        ticks /= period
    if not 1.0 <= ticks + 1e-9 < _LONGEST or (not is_time and ticks != int(ticks)):
        raise FuguError(f"window {window_text} has {ticks:g} ticks: it needs a whole number of them, at least 1")
    name = name if equals else length_text
    if not re.fullmatch(WINDOW_NAME_PATTERN, name):
        raise UsageError(f"window {window_text} needs a name of letters, digits, - and _, as in NAME=LENGTH")
    return WantedWindow(name, round(ticks), states, share=arguments.number(share_text, "share") if colon else None)


def _plan_noise(options: WindowOptions, chain_options: ChainOptions) -> Result:
    """Compare the noise of all mechanisms, or plan the noise of the named mechanism."""
    if arguments.protected(options.protect):
        raise UsageError("mechanisms are compared for single ticks: --protect a time only with --window")
    chains, period_seconds, notes, warnings = declared_chains(chain_options)
    period_seconds = arguments.period(options.period, period_seconds)
    period_us = microseconds(period_seconds)
    query = arguments.one_of(options.query, "query", tuple(WINDOW_QUERIES))
    request = WindowRequest(
        chains=chains,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        length=options.length,
        query=query,
        adversary=arguments.adversary(options.adversary or "ignorant"),
        states=None if options.count is None else _counted_states(options.count, WINDOW_QUERIES[query]),
        start=chosen_start(options.start),
        segments=chosen_segments(options.segments, chain_options),
    )
    if isinstance(chains, tuple) and request.adversary == "informed" and (states := chains[0].states) >= _SLOW_STATES:
        warn(f"what a device accepts for known chains of {states} states, informed adversary, can take minutes")
    refusals: dict[Mechanism, str] | None = None
    if options.mechanism is None:
        with working("planning windows") as progress:
            plans, best_plan, refusals = compare_noise(request, period_us, lambda name: progress(f"noise of {name}"))
    else:
        name = arguments.one_of(options.mechanism, "mechanism", _NAMES)
        with working(f"planning windows: noise of {name}"):
            best_plan = plan_noise(request, None if name == "auto" else name, period_us)
        plans = (best_plan,)
    return noise_result(request, notes, plans, best_plan, refusals).with_lines((), warnings)


def _counted_states(states_text: str, query: Query) -> tuple[int, ...]:
    """Parse the states of --count; UsageError for text that is none, or a query that counts each state."""
    if query.per_state:
        raise UsageError("--count is for counts; a histogram has all states")
    return arguments.states(states_text)


def plan_joint(file: Path, options: JointOptions, header: HeaderOptions, *, output: Path | None) -> Result:
    """Plan streams that move together, and write their policies if a folder is named."""
    try:
        model = ChainModel.from_json(file.read_bytes())
    except ChainClassError as error:
        raise ChainClassError(f"{file}: {error}") from None
    fleet, device = header.names("home/room")
    devices = [] if device is None else arguments.split_words(device)
    if len(devices) not in (0, 1, len(model.streams)):
        raise UsageError(f"--for names {len(devices)} devices for {len(model.streams)} streams")
    if len(devices) == 1:
        devices *= len(model.streams)
    request = _streams_request(model, options, devices)
    with working("planning streams"):
        plan = plan_streams(request)
    policies = {}
    if output is None:
        _warn_unwritten(header, _HEADER if len(set(devices)) < 2 else _HEADER[1:])  # names of several devices are shown
    else:
        stream_plans = stream_policies(plan, _headers(plan, header, fleet, devices))
        policies = {output / f"{policy.device}-{policy.stream}.json": policy for policy in stream_plans}
        if len(policies) < len(stream_plans):
            raise UsageError("two streams would have one file: name their devices otherwise with --for")
        output.mkdir(parents=True, exist_ok=True)
    return _write_policies(joint_result(plan), policies, [model.warning])


def _streams_request(model: ChainModel, options: JointOptions, devices: list[str]) -> StreamsRequest:
    """Make the request for a plan of streams that move together."""
    period = model.period_seconds if options.period is None else arguments.positive(options.period, "period")
    if period is None:
        raise UsageError("the model does not know how long a tick is: give --period")
    if options.symbols is not None and not (options.window and 0.0 < options.symbols < 1.0):
        raise UsageError("--symbols is a share between 0 and 1, beside --window")
    share_texts = ["1"] * len(model.streams) if options.share is None else options.share.split(",")
    names = tuple(stream.name for stream in model.streams)
    if len(set(devices)) > 1:
        names = tuple(f"{device}/{name}" for device, name in zip(devices, names, strict=True))
    return StreamsRequest(
        model=model,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        adversary=arguments.adversary(options.adversary),
        known=options.known,
        names=names,
        period_seconds=period,
        shares=tuple(arguments.number(share_text, "share") for share_text in share_texts),
        windows=tuple(wanted_window(window_text, EACH, period) for window_text in options.window or ()),
        symbols=options.symbols if options.window else 1.0,
        protect=protected_seconds(arguments.protected(options.protect), period),
    )


def _headers(plan: StreamsPlan, header: HeaderOptions, fleet: str | None, devices: list[str]) -> list[PolicyHeader]:
    """Make the header of each stream's policy."""
    if fleet is None:
        raise UsageError("policies need --for (try 'fugu plan joint --help')")
    epoch = float(round(time.time())) if header.epoch is None else header.epoch
    latency = arguments.positive(header.latency, "latency")
    return [
        PolicyHeader(
            fleet,
            device,
            stream.name,
            stream.discretiser,
            plan.request.period_seconds,
            latency,
            epoch=epoch,
            missing_share=stream.missing_share if stream.missing_state is None else None,
        )
        for device, stream in zip(devices, plan.request.model.streams, strict=True)
    ]


def window_loss(release_texts: list[str], chains: ChainOptions, start: str | None) -> Result:
    """Show the joint loss of releases."""
    releases = [_read_release(release_text) for release_text in release_texts]
    chain_class, _, notes, warnings = declared_chains(chains)
    request = WindowRequest(chain_class, 1.0, None, "count", "ignorant", start=chosen_start(start))
    accounted_start = covered_start(request.chains_with_start)
    with working("adding up"):
        losses = joint_losses(request, releases)
    return releases_loss(releases, accounted_start, losses, notes).with_lines((), warnings)


def _read_release(release_text: str) -> WindowRelease:
    """Parse a release as FIRST:LENGTH:SCALE[:QUERY]."""
    parts = release_text.split(":")
    if not 3 <= len(parts) <= 4:
        raise UsageError(f"a release is FIRST:LENGTH:SCALE[:QUERY], got {release_text!r:.60}")
    ticks = [arguments.number(word, name) for word, name in zip(parts, ("first tick", "length"), strict=False)]
    if any(not 1.0 <= tick < 1e6 or tick != int(tick) for tick in ticks):
        raise UsageError(
            f"the first tick and the length of a release are whole numbers from 1 to 999,999, got {release_text!r:.60}"
        )
    return WindowRelease(
        first=int(ticks[0]),
        length=int(ticks[1]),
        scale=arguments.positive(arguments.number(parts[2], "scale"), "scale"),
        query=arguments.one_of(parts[3], "query", tuple(WINDOW_QUERIES)) if len(parts) == 4 else "count",
    )
