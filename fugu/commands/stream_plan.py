"""The work of `fugu plan stream`: options to plan, plan to terminal, JSON and policy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

from contract.discretisers import remembers
from fugu.commands import arguments
from fugu.commands.chain_options import chain_source, chosen_segments
from fugu.commands.plan_options import ChainOptions, DiscretiserOptions, HeaderOptions, StreamOptions
from fugu.commands.policy_header import chosen_discretiser, policy_header
from fugu.errors import CommandError
from fugu.view.policy import missing_sentence
from fugu.view.stream_plan import Segments, plan_document, show_plan
from fugu.view.terminal import say, warn, working
from gateway.planning.chain_source import ChainSource
from gateway.planning.comparison import compare
from gateway.planning.planner import Request, make_plan
from gateway.planning.policy_builder import build_policy
from gateway.planning.segments import segment_loss
from gateway.privacy.randomised_response import Objective

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
    request, source = _request(options, chains)
    segments = chosen_segments(options.segments, chains)
    made = chosen_discretiser(discretiser, source)
    with working("planning a stream"):
        plan = make_plan(replace(request, longer_periods=made is None or not remembers(made)))
    if output is not None:
        period = plan.request.period_seconds
        document = build_policy(plan, policy_header("fugu plan stream", header, made, source, period))
        output.write_text(document.to_json(), encoding="utf-8")
    with working("comparing with other noise"):
        others = compare(plan)
    apart = None
    if segments is not None:
        apart = Segments(segments, segment_loss(plan.chosen, plan.request.adversary, segments))
    if as_json:
        print(json.dumps(plan_document(plan, source, others, made, apart), indent=2))
    else:
        show_plan(plan, source, others, made, apart)
        if output is not None:
            say(f"policy written to {output}: {missing_sentence(document)}")
    for warning in source.warnings:
        warn(warning)


def _request(options: StreamOptions, chains: ChainOptions) -> tuple[Request, ChainSource]:
    adversary = arguments.adversary(options.adversary)
    objectives: tuple[Objective, ...] = get_args(Objective)
    objective = arguments.one_of(options.objective, "objective", objectives)
    source = chain_source(chains)
    if not 1 <= options.every <= _LONGEST:
        raise CommandError(f"every must be from 1 to {_LONGEST}, got {options.every}")
    period = source.period_seconds if options.period is None else arguments.positive(options.period, "period")
    request = Request(
        chains=source.chains,
        transition=source.transition,
        epsilon=arguments.positive(options.epsilon, "epsilon"),
        adversary=adversary,
        objective=objective,
        every=options.every,
        period_seconds=period,
    )
    return request, source
