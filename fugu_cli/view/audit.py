"""The findings of audits, as tables, sentences and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fugu.attackers.evaluation import Attack
from fugu.attackers.stretches import StretchAttack
from fugu.contract.policy import Policy
from fugu.contract.sentences import class_sentence, protected_sentence
from fugu.library.guarantee import stretch_table
from fugu.library.report import JsonObject, Line, Report, Result, Table
from fugu.planning.recorded_policy import StretchTrial, Trial

if TYPE_CHECKING:
    from fugu.audit.device import DrawTest
    from gateway.audit.statement import Bound, Statement
    from gateway.audit.stream import StreamAudit


__all__ = ["attack_result", "device_result", "statement_result", "stream_result"]

_ATTACKERS = ("attacker", "right", "interval", "without", "ceiling", "epsilon at least", "odds change by")
_TRIALS = ("released", "noise", "strongest", "without", "ceiling", "odds, known", "odds, learned")


def attack_result(trials: Sequence[Trial], stretches: Sequence[StretchTrial], conditions: Sequence[str]) -> Result:
    """Show attacks on recordings: a table for each recording, and for a single one all attackers of all trials.

    `conditions` are the conditions of the promises about sums.
    """
    document = _attacks_document(trials, stretches, conditions)
    return Result(document, [*_trial_parts(trials), *_stretch_trials(stretches), *_condition_lines(conditions)])


def _condition_lines(conditions: Iterable[str]) -> list[Line]:
    return [Line(f"Attackers know all other homes of a sum. The promise: {condition}.") for condition in conditions]


def _attacks_document(
    trials: Sequence[Trial], stretches: Sequence[StretchTrial], conditions: Sequence[str]
) -> JsonObject:
    return {
        "conditions": list(conditions),
        "trials": [
            {**trial._asdict(), **{name: list(map(asdict, getattr(trial, name))) for name in ("attacks", "learners")}}
            for trial in trials
        ],
        "stretches": [
            {**stretch._asdict(), "attacks": [attack._asdict() for attack in stretch.attacks]} for stretch in stretches
        ],
    }


def _trial_parts(trials: Sequence[Trial]) -> Report:
    sources = dict.fromkeys(trial.source for trial in trials)
    for source in sources:
        group = [trial for trial in trials if trial.source == source]
        yield Table(f"{source}: epsilon {group[0].epsilon:g}", _TRIALS, [_summary_row(trial) for trial in group])
    if len(sources) == 1:
        for trial in trials:
            attack_rows = [(attack.attacker, *_rates(attack), _odds_words(attack)) for attack in trial.attacks]
            yield Table(f"{trial.released}, epsilon {trial.epsilon:g}", _ATTACKERS, attack_rows)
    yield Line(
        "Right: share of the states that an attacker names who is given the recording's mean chain. Without: the same "
        "attacker without what was released. Ceiling: what epsilon allows, proven if the readings are in the class; * "
        "beyond it. Odds: the largest change on any tick, and on how many it is beyond e^epsilon. Epsilon bounds them "
        "for an attacker who knows the chain beforehand (known: forward-backward, with the mean chain). It bounds "
        "nothing for one who learns a person's habits, from what is released or from other times (learned: the one "
        "who moved furthest). Noise that was not published is drawn once, and for those who learn six times."
    )


def _rates(attack: Attack | StretchAttack) -> tuple[str, ...]:
    """Return an attack's success, its interval, the success without the release, the ceiling and least epsilon."""
    interval, epsilon = f"{attack.low:.3f} to {attack.high:.3f}", f"{attack.epsilon_low:.2f}"
    return f"{attack.success:.3f}", interval, f"{attack.guess:.3f}", f"{attack.ceiling:.3f}", epsilon


def _summary_row(trial: Trial) -> tuple[str, ...]:
    attack = trial.attacks[0]
    excess_mark = "*" if attack.success > attack.ceiling else ""
    return (
        trial.released, f"{trial.noise:.3g}", f"{attack.success:.3f}{excess_mark}", f"{attack.guess:.3f}",
        f"{attack.ceiling:.3f}", _odds_words(trial.known_chain), _learned_words(trial.learners),
    )  # fmt: skip


def _learned_words(attacks: Sequence[Attack]) -> str:
    """Return the ranges of learners' odds factors and of their shares beyond e^epsilon, over all draws of noise."""
    odds_factors = sorted(attack.furthest for attack in attacks if attack.furthest is not None)
    excess_shares = sorted(attack.beyond for attack in attacks if attack.beyond is not None)
    if len(odds_factors) < 2 or odds_factors[0] == odds_factors[-1]:
        return _odds_words(attacks[0] if attacks else None)
    return f"x {odds_factors[0]:.3g} to {odds_factors[-1]:.3g} ({excess_shares[0]:.0%} to {excess_shares[-1]:.0%})"


def _odds_words(attack: Attack | None) -> str:
    """Return the largest factor on an attacker's odds, and the share of ticks beyond e^epsilon; "-" without odds."""
    if attack is None or attack.furthest is None:
        return "-"
    return f"x {attack.furthest:.3g} ({attack.beyond:.0%})"


_MOST_ALARMS = 20


def statement_result(statement: Statement) -> Result:
    """Show a statement about a policy; exit code 1 unless it is confirmed."""
    return Result(statement.document(), _statement_parts(statement), 0 if statement.confirmed else 1)


def _statement_parts(statement: Statement) -> Report:
    policy = statement.policy
    yield Line(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}", bold=True)
    yield Line(f"SHA-256 of the file: {statement.digest}")
    yield Line(protected_sentence(policy.discretiser))
    output_rows = [(output.what, output.topic, " ".join(output.readers) or "the site") for output in statement.outputs]
    yield Table("What is released, and who may read it", ("output", "topic", "readers"), output_rows)
    claim_rows = []
    for claim in statement.claims:
        recomputed_text = f"{claim.recomputed:.10g}" if claim.recomputed else "NOT RECOMPUTED"
        claim_rows.append((claim.of, f"{claim.epsilon:.10g}", recomputed_text, claim.adversary))
    yield Table("Epsilon, as stated and as computed again", ("of", "stated", "recomputed", "adversary"), claim_rows)
    if isinstance(policy, Policy):
        ticks = policy.guarantee.stretch_ticks
        yield Line(f"Epsilon is about {'a single tick' if ticks == 1 else f'any {ticks} ticks in a row'}.")
        yield stretch_table(statement.stretches, discretiser=policy.discretiser)
        for condition in statement.when:
            yield Line(f"Of {condition.of}, near other versions: {condition.words or 'true of every tick'}.")
        yield Line(f"The class of chains: {class_sentence(policy.chains)}.")
        yield from _bounds_table("Each kind of adversary, all that is released in sum", statement.adversaries)
        if statement.windows:
            yield from _bounds_table("Each kind of adversary, windows alone", statement.windows)
        yield from _bounds_table("If the truth is not in the class", statement.alternatives)
    yield Line("What nobody can recompute:", bold=True)
    for assumption in statement.document()["assumptions"]:
        yield Line(f"  {assumption}")
    for finding in statement.findings:
        yield Line(f"{'WRONG' if finding.wrong else 'NOTE'} {finding.name}: {finding.about}", bold=True)
    yield Line(statement.summary, bold=True)


def _bounds_table(title: str, bounds: Sequence[Bound]) -> Report:
    texts = [f"no bound: {bound.why}" if bound.epsilon is None else f"{bound.epsilon:.6g}" for bound in bounds]
    bound_rows = [(bound.truth, bound_text) for bound, bound_text in zip(bounds, texts, strict=True)]
    yield Table(title, ("", "epsilon, at most"), bound_rows)


def device_result(draw_tests: Sequence[DrawTest], problem: str, false_alarms: float) -> Result:
    """Show the tests of a device's outputs, or the `problem` if it breaks the protocol; exit code 1 for any fault.

    `false_alarms` is the probability of an alarm without a fault.
    """
    tests = [{**test._asdict(), "alarms": [alarm._asdict() for alarm in test.alarms]} for test in draw_tests]
    document = {"false_alarms": false_alarms, "problem": problem, "tests": tests}
    has_fault = problem or any(test.alarms for test in draw_tests)
    return Result(document, _device_parts(draw_tests, problem, false_alarms), 1 if has_fault else 0)


def _device_parts(draw_tests: Sequence[DrawTest], problem: str, false_alarms: float) -> Report:
    if problem:
        yield Line(f"WRONG protocol: {problem}", bold=True)
        return
    test_rows = [
        (test.of, str(test.draws), f"{test.smallest:.2g}", "-" if test.longest is None else str(test.longest))
        for test in draw_tests
    ]
    yield Table("What was tested", ("draws of", "draws", "error of a probability", "no repeat of"), test_rows)
    alarms = [(test.of, alarm) for test in draw_tests for alarm in test.alarms]
    for output_name, alarm in alarms[:_MOST_ALARMS]:
        yield Line(f"WRONG {alarm.test}: {output_name}: {alarm.about}", bold=True)
    if len(alarms) > _MOST_ALARMS:
        yield Line(f"and {len(alarms) - _MOST_ALARMS} more")
    yield Line(
        f"A device without a fault is called wrong at most with probability {false_alarms:g}. One with an error of a "
        "probability as large as in the table is found with 99 %."
    )
    if not alarms:
        yield Line("Nothing is wrong that so many draws could show.", bold=True)


def stream_result(audit: StreamAudit) -> Result:
    """Show the success of attackers on a stream, by audience and on published outputs; exit code 1 with findings."""
    audiences = []
    for audience in audit.audiences:
        epsilons = {name: getattr(audience, name) for name in ("promised", "certified")}
        finite_epsilons = {name: epsilon if math.isfinite(epsilon) else None for name, epsilon in epsilons.items()}
        audiences.append({**audience._asdict(), **finite_epsilons, "refuted": audience.refuted})
    document = {
        "confirmed": not audit.findings,
        "audiences": audiences,
        **_attacks_document(audit.trials, audit.stretches, audit.conditions),
        "findings": [finding._asdict() for finding in audit.findings],
        "not_attacked": list(audit.unattacked),
    }
    return Result(document, _stream_parts(audit), 1 if audit.findings else 0)


def _stream_parts(audit: StreamAudit) -> Report:
    audience_rows = [
        (
            _audience_words(audience.audience, audience.ticks),
            audience.heard,
            audience.draws,
            f"{audience.promised:.6g}",
            f"{audience.certified:.6g}",
            f"{audience.least:.4g}",
            *map(_bound_text, (audience.extended, audience.witness)),
            f"{audience.hits} and {audience.alarms} of {audience.trials}",
        )
        for audience in audit.audiences
    ]
    titles = ("audience", "hears", "draws", "promised", "certified", "at least", "extended", "witness", "happened")
    yield Table("Epsilon of all that an audience may read", titles, audience_rows)
    yield Line(
        "At least: of an event that tells two states of a tick apart, by how often it happened under each, at a "
        "confidence of 95 % for the table. Extended: what single draws show of all outputs, if draws are independent. "
        "Witness: how much likelier some output is under one state, if draws are as the policy states; no interval."
    )
    yield from _stretch_trials(audit.stretches)
    if audit.trials:
        yield from _trial_parts(audit.trials)
    yield from _condition_lines(audit.conditions)
    for problem in audit.unattacked:
        yield Line(f"NOTE not-attacked: {problem}")
    for finding in audit.findings:
        yield Line(f"WRONG {finding.name}: {finding.about}", bold=True)
    if not audit.findings:
        yield Line("No attacker refutes what is promised.", bold=True)


def _audience_words(audience: str, ticks: int) -> str:
    return audience if ticks == 1 else f"{audience}, {ticks} ticks"


def _stretch_trials(trials: Sequence[StretchTrial]) -> Report:
    attack_rows = []
    for trial in trials:
        label = _audience_words(f"{trial.source}: {trial.released}", trial.ticks)
        for attack in trial.attacks:
            odds = f"x {attack.furthest:.3g}"
            attack_rows.append(
                (label, attack.secret, str(attack.scored), *_rates(attack), odds, f"x {math.exp(trial.epsilon):.3g}")
            )
    titles = ("asked of", "stretches", "right", "interval", "without", "ceiling", "epsilon at least", "odds", "allowed")
    if attack_rows:
        yield Table("Stretches, to who knows all other days", ("released", *titles), attack_rows)
    for trial in trials:
        if trial.why:
            stretch_words = f"{trial.ticks} ticks, {trial.source}: {trial.released}"
            yield Line(f"NOTE not-attacked: stretches of {stretch_words}: {trial.why}")


def _bound_text(bound: float | None) -> str:
    return "-" if bound is None else f"{bound:.4g}"
