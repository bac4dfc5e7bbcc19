"""The work of `fugu plan stream`: options to plan, plan to terminal, JSON and policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

from fugu.cli.commands import arguments
from fugu.cli.commands.plan_options import ChainOptions, DiscretiserOptions, HeaderOptions, StreamOptions
from fugu.cli.commands.plan_values import chain_source, chosen_discretiser, chosen_segments, policy_header
from fugu.cli.errors import CommandError
from fugu.cli.view.policy import missing_sentence
from fugu.cli.view.stream_plan import Segments, plan_document, show_plan
from fugu.cli.view.terminal import say, warn, working
from fugu.contract.discretisers import remembers
from fugu.planning.chain_source import ChainSource
from fugu.planning.planner import Request, make_plan
from fugu.planning.policy_builder import build_policy
from fugu.planning.segments import segment_loss
from fugu.privacy.randomised_response import Objective

__all__ = ["plan_stream"]

_LONGEST = 1_000_000


def plan_stream(
    options: StreamOptions,
    chains: ChainOptions,
    header: HeaderOptions,
    discretiser: DiscretiserOptions,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Plan a stream, print the plan, and write its policy if a file is named.

    Raises:
        FuguError: something cannot be read, or there is no such plan.
        OSError: a file cannot be read or written.
    """
    source = chain_source(chains)
    segments = chosen_segments(options.segments, chains)
    made = chosen_discretiser(discretiser, source)
    request = _request(options, source, longer_periods=made is None or not remembers(made))
    about = None
    if output is not None:
        about = policy_header("fugu plan stream", header, made, source, request.period_seconds)
    with working("planning a stream"):
        plan = make_plan(request)
        policy = None if about is None else build_policy(plan, about)
    if output is not None and policy is not None:
        output.write_text(policy.to_json(), encoding="utf-8")
    apart = None
    if segments is not None:
        apart = Segments(segments, segment_loss(plan.chosen, plan.request.adversary, segments))
    if as_json:
        print(json.dumps(plan_document(plan, source, made, apart), indent=2))
    else:
        show_plan(plan, source, made, apart)
        if policy is not None:
            say(f"policy written to {output}: {missing_sentence(policy)}")
    for warning in source.warnings:
        warn(warning)


def _request(options: StreamOptions, source: ChainSource, *, longer_periods: bool) -> Request:
    objectives: tuple[Objective, ...] = get_args(Objective)
    if not 1 <= options.every <= _LONGEST:
        raise CommandError(f"every must be from 1 to {_LONGEST}, got {options.every}")
    return Request(
        chains=source.chains,
        transition=source.transition,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        adversary=arguments.adversary(options.adversary),
        objective=arguments.one_of(options.objective, "objective", objectives),
        every=options.every,
        period_seconds=arguments.period(options.period, source.period_seconds),
        longer_periods=longer_periods,
    )
