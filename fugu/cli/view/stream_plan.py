"""A plan as JSON, or as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fugu.attack import success_bound
from fugu.cli.view.guarantee import SEGMENTS, show_stretches, stretch_documents
from fugu.cli.view.terminal import say, show_table
from fugu.contract.discretisers import Discretiser
from fugu.contract.guarantee import Loss
from fugu.contract.noise_table import SCALE
from fugu.contract.sentences import protected_sentence
from fugu.planning.chain_source import ChainSource
from fugu.planning.planner import Option, Refusal, StreamPlan
from fugu.privacy.utility import Utility

__all__ = ["Segments", "advice", "plan_document", "show_plan"]

_FEW_BITS = 0.01
_ROUNDING = 1e-6


class Segments(NamedTuple):
    """What the symbols would lose in independent segments.

    Attributes:
        ticks: the most of a segment.
        epsilon: in nats.
    """

    ticks: int
    epsilon: float


def plan_document(
    plan: StreamPlan, source: ChainSource, discretiser: Discretiser | None, segments: Segments | None = None
) -> dict[str, Any]:
    """Return a plan as an object for JSON.

    rho0 and rho1 are the exact values threshold / 2^32; epsilon is what the table really loses, epsilon_asked what was
    asked for. Information per hour is null, and bits_per_tick still given, if the length of a tick is not known.
    """
    request, chosen = plan.request, plan.chosen
    return {
        **_option_document(plan, chosen),
        "protected": protected_sentence(discretiser),
        "adversary": request.adversary,
        "objective": request.objective,
        "epsilon_asked": request.epsilon,
        "chains": chosen.chains.model_dump(mode="json"),
        "transition": chosen.transition.tolist(),
        "weights": chosen.table.weights(),
        "periods": [
            {"every": option.every, "refused": option.reason}
            if isinstance(option, Refusal)
            else _option_document(plan, option)
            for option in plan.periods
        ],
        "baselines": [
            {
                "name": other.name,
                "rho0": other.rho0,
                "rho1": other.rho1,
                "epsilon": None if real is None else real.epsilon,
                **worth._asdict(),
            }
            for other, worth, real in plan.others
        ],
        "segments": None if segments is None else segments._asdict(),
        "better_every": None if plan.better is None else plan.better.every,
        "advice": advice(plan),
        "notes": list(source.notes),
        "warnings": list(source.warnings),
    }


def _option_document(plan: StreamPlan, option: Option) -> dict[str, Any]:
    seconds, loss = plan.request.period_seconds, option.loss._asdict()
    flips = _flips(option) if option.table.states == 2 else (None, None)
    return {
        "every": option.every,
        "period_seconds": None if seconds is None else seconds * option.every,
        **{f"rho{state}": None if flip is None else flip / SCALE for state, flip in enumerate(flips)},
        **{f"threshold{state}": flip for state, flip in enumerate(flips)},
        **{name: loss[name] for name in ("epsilon", "epsilon_01", "epsilon_10", "bound")},
        "expected_flips": option.flips,
        **option.utility._asdict(),
        "bits_per_tick": option.utility.bits_per_reading / option.every,
        "bits_per_hour": None if seconds is None else option.bits_per_hour,
        "stretches": stretch_documents(option.stretches),
    }


def show_plan(
    plan: StreamPlan, source: ChainSource, discretiser: Discretiser | None, segments: Segments | None = None
) -> None:
    """Print a plan."""
    request, chosen = plan.request, plan.chosen
    noise = ("rho0", "rho1") if chosen.table.states == 2 else ("wrong symbol",)
    unit = "bits/tick" if request.period_seconds is None else "bits/hour"
    for note in source.notes:
        say(note)
    say(f"Chains: {_chains(chosen)}; one reading every {_length(plan, chosen.every)}")
    say(protected_sentence(discretiser))
    show_table("The stream", ("", ""), _facts(plan))
    if segments is not None:
        told = f"in independent segments of at most {segments.ticks} ticks these symbols would lose"
        say(f"{told} {segments.epsilon:.10f}; {SEGMENTS}")
    show_stretches(chosen.stretches)
    show_table(
        f"The same epsilon ({request.epsilon:g}, {request.adversary}) at longer sampling periods",
        ("a reading every", *noise, "estimate right", "majority", "bits/reading", unit),
        [_period_row(plan, option) for option in plan.periods],
    )
    if plan.others:
        show_table(
            f"Other noise for epsilon {request.epsilon:g}: what it really loses to the {request.adversary} adversary",
            ("", "rho0", "rho1", "real epsilon", "estimate right", "promise"),
            [
                _noise_row(plan, "this plan", [flip / SCALE for flip in _flips(chosen)], chosen.loss, chosen.utility),
                *(_noise_row(plan, one.name, (one.rho0, one.rho1), real, worth) for one, worth, real in plan.others),
            ],
        )
    for sentence in advice(plan):
        say(sentence, style="bold")


def advice(plan: StreamPlan) -> list[str]:
    """Return what the comparison says, in plain sentences."""
    chosen = plan.chosen
    sentences = []
    if chosen.utility.bits_per_reading < _FEW_BITS:
        sentences.append(
            f"At this period a symbol carries only {chosen.utility.bits_per_reading:.2g} bits: neighbouring readings "
            "tell so much of one another that each must be hidden almost entirely."
        )
    if plan.better is not None:
        sentences.append(_recommendation(plan, plan.better))
    elif any(isinstance(o, Option) and o.utility.accuracy > chosen.utility.accuracy + 0.01 for o in plan.periods):
        sentences.append(
            "Sampling less often makes each estimate better, but an hour of them carries less information."
        )
    elif len(plan.periods) > 1:
        sentences.append("Sampling less often gains nothing here.")
    return sentences


def _recommendation(plan: StreamPlan, better: Option) -> str:
    chosen = plan.chosen
    factor = better.bits_per_hour / chosen.bits_per_hour
    right = f"{better.utility.accuracy:.1%} of the estimates right instead of {chosen.utility.accuracy:.1%}"
    if better.utility.accuracy < better.utility.majority + 0.01:
        right += " (a guess without any symbol is as good: epsilon is small for so rare a state)"
    return (
        f"Sampling less often is the better choice: one reading every {_length(plan, better.every)} makes {right}, and "
        f"carries {factor:.3g} times the information in the same time, at the same epsilon. "
        f"Plan it with --every {better.every}."
    )


def _facts(plan: StreamPlan) -> list[tuple[str, str]]:
    chosen, flips = plan.chosen, _flips(plan.chosen)
    names = ("rho0 = Pr(symbol 1 | state 0)", "rho1 = Pr(symbol 0 | state 1)")
    facts = [
        (name, f"{flip / SCALE:.10f}  ({flip} of 2^32)")
        for name, flip in zip(names if len(flips) == 2 else ("Pr(each wrong symbol)",), flips, strict=True)
    ]
    facts += [
        ("epsilon achieved", f"{chosen.loss.epsilon:.10f}  ({plan.request.adversary}; {chosen.loss.bound})"),
        ("symbols that are not the state", f"{chosen.flips:.2%}"),
        ("gateway's estimate is right", f"{chosen.utility.accuracy:.2%}"),
        ("a guess without any symbol", f"{chosen.utility.majority:.2%}"),
    ]
    if len(flips) == 2:
        enter, leave = chosen.transition[0, 1], chosen.transition[1, 0]
        distribution = [leave / (enter + leave), enter / (enter + leave)]
        bound = success_bound(distribution, chosen.loss.epsilon_01, chosen.loss.epsilon_10)
        facts.append(("an attacker is right, if readings are in the class, at most", f"{bound:.2%}"))
    return facts


def _flips(option: Option) -> tuple[int, ...]:
    """Weights of wrong symbols, of 2^32: of both states if there are two, else the one that all have."""
    table = option.table
    return (table.threshold0, table.threshold1) if table.states == 2 else (table.weights()[0][1],)


def _period_row(plan: StreamPlan, option: Option | Refusal) -> list[str]:
    name = _length(plan, option.every) + (" *" if option.every == plan.chosen.every else "")
    if isinstance(option, Refusal):
        return [name, *["-"] * (len(_flips(plan.chosen)) + 4)]
    return [
        name,
        *(f"{flip / SCALE:.5f}" for flip in _flips(option)),
        f"{option.utility.accuracy:.2%}",
        f"{option.utility.majority:.2%}",
        f"{option.utility.bits_per_reading:.4f}",
        f"{option.bits_per_hour:.4g}",
    ]


def _noise_row(plan: StreamPlan, name: str, flips: Sequence[float], real: Loss | None, worth: Utility) -> list[str]:
    holds = real is not None and real.epsilon <= plan.request.epsilon * (1.0 + _ROUNDING)
    epsilon = "no bound" if real is None else f"{real.epsilon:.6f}"
    accuracy = f"{worth.accuracy:.2%}"
    return [name, *(f"{flip:.5f}" for flip in flips), epsilon, accuracy, "kept" if holds else "BROKEN"]


def _length(plan: StreamPlan, every: int) -> str:
    seconds = plan.request.period_seconds
    if seconds is not None:
        return f"{seconds * every:g} s"
    return "tick" if every == 1 else f"{every} ticks"


def _chains(option: Option) -> str:
    return option.chains.label
