"""Read a policy, check its promise, also against a recording, describe the check, and attack the policy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.errors import FrameError, PolicyError, UsageError
from fugu.contract.frames import MAX_TICK
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Loss
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.sentences import privacy_of, protected_sentence
from fugu.contract.stretches import Ceiling, Stretch, StretchBound
from fugu.contract.windows import Window
from fugu.host.arguments import ceiling_of
from fugu.library.guarantee import change_words, stretch_documents, stretch_lines
from fugu.library.keywords import READ_OPTIONS, python_call
from fugu.library.report import NOTHING, JsonObject, Line, Report, Result

if TYPE_CHECKING:
    from fugu.library.recordings import Source
    from fugu.planning.answers import WindowAccuracy
    from fugu.planning.recorded_policy import RecordedClass, Released, Trial

__all__ = [
    "Check",
    "attack",
    "check",
    "check_policy",
    "check_result",
    "drawn_releases",
    "load_policy",
    "missing_sentence",
]


def load_policy(path: str | Path) -> AnyPolicy:
    """Read a policy file, or a signed document with one policy; signatures are not checked.

    Returns:
        A `Policy` of symbols and windows, or a `MeasurePolicy` of points.

    Raises:
        PolicyError: the file is no policy, or its compiled form differs; names the file and the first difference.
        OSError: the file cannot be read.
    """
    file_bytes = Path(path).read_bytes()
    try:
        return read_policy(file_bytes) if file_bytes.lstrip()[:1] == b"{" else _policy_of_document(file_bytes)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


def _policy_of_document(file_bytes: bytes) -> AnyPolicy:
    """Read the policy in a signed document. PolicyError: the content is no document, or has not one policy."""
    from fugu.contract.envelope import Envelope
    from fugu.contract.fleet_documents import PolicyDocument, check_compiled, read_document

    try:
        envelope = Envelope.decode(file_bytes)
    except FrameError:
        return read_policy(file_bytes)
    document = read_document(PolicyDocument, envelope.payload)
    check_compiled(document)
    policies = document.for_device(document.to.device or "device")
    if len(policies) != 1:
        raise PolicyError(f"a document of {len(policies)} policies; fugu fleet push --dry-run shows them")
    return policies[0]


class Check(NamedTuple):
    """A policy whose promise holds.

    Attributes:
        policy: the policy that was checked.
        epsilon: the loss derived for the promise's stretch, in nats; `None` if a measured stream claims no bound.
        stretches: losses about longer stretches of time.
        recorded: comparison of the recording with the policy's class; `inside` is the verdict. `None`: no recording.
        loss: the bound and how it was derived.
        windows: the loss of the windows alone, if there are symbols too.
    """

    policy: AnyPolicy
    epsilon: float | None
    stretches: tuple[Stretch, ...]
    recorded: RecordedClass | None
    loss: Any
    windows: Loss | None


def _as_policy(policy: AnyPolicy | str | Path | None) -> AnyPolicy:
    if isinstance(policy, str | Path):
        return load_policy(policy)
    if not isinstance(policy, Policy | MeasurePolicy):
        raise UsageError("give a policy, or its file; a plan that recommends nothing has none")
    return policy


def check(
    policy: AnyPolicy | str | Path | None,
    recording: Source | None = None,
    *,
    ceiling: float | str | None = None,
    **reading_options: Any,
) -> Check:
    """Check a policy as a device does, by deriving its guarantee from its tables and scales.

    Args:
        policy: A policy, or its file.
        recording: Readings, as for `plan`; the check says whether they are in the policy's class.
        ceiling: Largest accepted epsilon, about a tick (1) or about any stretch of a length ("1@1h").
        reading_options: How the recording is read, as for `plan`: `time`, `column`, `only`, `zone`,
            `missing_values`, `rows`, `period`, `gap`, `as_it_is`. A log of changes is sampled once per tick.

    Raises:
        GuaranteeError: the promise does not hold, or is above the ceiling.
        FuguError: the policy or the recording cannot be read or compared.
    """
    with python_call(check, reading_options, READ_OPTIONS):
        return check_policy(policy, recording, ceiling, reading_options)


def check_policy(
    policy: AnyPolicy | str | Path | None,
    recording: Source | None,
    ceiling: float | str | None,
    reading_options: Mapping[str, Any],
) -> Check:
    """Check a policy as a device does; arguments and errors as for `check`."""
    limit: Ceiling | None = None if ceiling is None else ceiling_of(str(ceiling))
    policy = _as_policy(policy)
    # Only now: a file that is no policy must not need the signature library that this loads.
    from fugu.contract.compiler import compile_policy

    compile_policy(policy)
    if isinstance(policy, Policy):
        loss = policy.verify(limit)
        windows_loss = None if policy.table is None else policy.verify_windows()
        bound = policy.bound(loss)
        stretches = bound.rows(policy.clock.period_us, policy.guarantee.epsilon)
        comparison = None
        if recording is not None:
            from fugu.library.recordings import recording_table
            from fugu.planning.recorded_policy import recorded_class
            from fugu.recordings.options import read_options

            options = read_options(**reading_options)
            comparison = recorded_class(policy, recording_table(recording, options), options)
        return Check(policy, bound.epsilon(policy.guarantee.stretch_ticks), stretches, comparison, loss, windows_loss)
    policy.verify(None if limit is None else limit.epsilon)
    if recording is not None:
        raise UsageError("a recording is for streams of symbols and windows")
    if (claimed_epsilon := policy.stream_loss.epsilon) is None:
        return Check(policy, None, (), None, None, None)
    from fugu.places.composition import measured_stretches, verify_stream

    stream_loss = verify_stream(policy)
    stretches = measured_stretches(policy.measurement, claimed_epsilon, policy.clock.period_us)
    return Check(policy, stream_loss.epsilon, stretches, None, stream_loss, None)


def attack(
    policy: AnyPolicy | str | Path | None, recording: Source, *, known: int | None = None, **reading_options: Any
) -> tuple[Trial, ...]:
    """Attack what a device with a policy would release of a recording; attackers are judged by the recording.

    Args:
        policy: A policy, or its file.
        recording: Readings, as for `plan`; or a list of recordings.
        known: Attackers know one state in every `known`; with 2, both neighbours of each state that they guess.
        reading_options: How a recording is read, as for `check`.

    Returns:
        A trial for each release and recording: its `attacks`, the most successful first.

    Raises:
        FuguError: the policy or a recording cannot be read, or the policy is of points.
    """
    with python_call(attack, reading_options, READ_OPTIONS):
        if known is not None and not (isinstance(known, Integral) and known >= 2):
            raise UsageError(f"known must be a whole number from 2 on, got {known!r}")
        draws = drawn_releases(_as_policy(policy), recording, **reading_options)
        return tuple(trial for recorded_policy in draws for trial in recorded_policy.trials(known))


def drawn_releases(policy: AnyPolicy, recording: Source, **reading_options: Any) -> Iterator[Released]:
    """Draw what a device with a policy would release of each recording; arguments and errors as for `attack`."""
    from fugu.library.recordings import recording_table, source_list
    from fugu.planning.recorded_policy import draw_released
    from fugu.recordings.options import read_options

    if not isinstance(policy, Policy):
        raise PolicyError("measured points are not attacked here: plan_places attacks them as it plans")
    options = read_options(**reading_options)
    for source in source_list(recording):
        yield draw_released(policy, recording_table(source, options), options)


def check_result(check: Check) -> Result:
    """Describe a checked policy; the exit code is 3 if a recording is not in its class."""
    if not isinstance(policy := check.policy, Policy):
        return Result(_measure_document(policy, check.stretches), _measure_report(policy, check))
    loss, windows_loss, comparison = check.loss, check.windows, check.recorded
    document: JsonObject = {
        **loss._asdict(),
        "claimed": policy.guarantee.epsilon,
        "privacy": privacy_of(policy.guarantee.epsilon),
        "protected": protected_sentence(policy.discretiser),
        "stretches": stretch_documents(_stretches(policy, policy.bound(loss))),
        "weights": None if policy.table is None else policy.table.weights(),
        "flips": None if policy.table is None else dict(policy.table.flips),
    }
    if policy.chains.named_streams:
        document["together"] = {stream.name: stream.rate for stream in policy.chains.named_streams}
    if policy.windows:
        windows: JsonObject = {
            "rates": {window.name: str(window.rate) for window in policy.windows},
            "errors": {window.name: _window_error(window, policy)._asdict() for window in policy.windows},
            "mechanisms": {window.name: window.mechanism for window in policy.windows},
        }
        if policy.windows_guarantee is not None and windows_loss is not None:
            stretches = stretch_documents(_stretches(policy, policy.windows_bound(windows_loss)))
            windows |= {**windows_loss._asdict(), "claimed": policy.windows_guarantee.epsilon, "stretches": stretches}
        document["windows"] = windows
    if policy.sums:
        document["sums"] = {
            shared_sum.group.name: {"rate": str(shared_sum.group.rate), "condition": shared_sum.condition}
            for shared_sum in policy.sums
        }
    if comparison is not None:
        document["recording"] = {
            **comparison._asdict(),
            "epsilon": comparison.epsilon if math.isfinite(comparison.epsilon) else None,
        }
    exit_code = 0 if comparison is None or comparison.inside else NOTHING
    return Result(document, _policy_report(policy, loss, windows_loss, comparison), exit_code)


def _stretches(policy: Policy, bound: StretchBound | None) -> tuple[Stretch, ...]:
    return () if bound is None else bound.rows(policy.clock.period_us, policy.guarantee.epsilon)


def _recording_sentence(comparison: RecordedClass) -> str:
    """Say whether a recording is in the class; its epsilon gets as many digits as distinguish it from the promise."""
    epsilon, promise = comparison.epsilon, comparison.claimed
    epsilon_digits = next((count for count in range(2, 9) if f"{epsilon:.{count}g}" != f"{promise:.{count}g}"), 2)
    needed_ratio, declared_ratio, epsilon_text, promise_text = (
        f"{float(f'{figure:.{digits}g}'):g}"
        for figure, digits in (
            (comparison.odds_ratio, 2),
            (comparison.declared, 2),
            (epsilon, epsilon_digits),
            (promise, epsilon_digits),
        )
    )
    steps_words = f"this recording needs odds ratio {needed_ratio}, and the class has {declared_ratio}"
    if comparison.inside:
        return f"in the class: {steps_words}"
    if epsilon <= promise:
        return f"not in the class: its probabilities are others. Then epsilon is {epsilon_text}, within {promise_text}"
    return f"not in the class: {steps_words}. Then epsilon is {epsilon_text}, not {promise_text}"


def _window_error(window: Window, policy: Policy) -> WindowAccuracy:
    from fugu.planning.answers import error_of  # a policy that cannot be read needs no gateway

    return error_of(window, policy.clock.period_us)


def _policy_report(policy: Policy, loss: Loss, windows_loss: Loss | None, comparison: RecordedClass | None) -> Report:
    if comparison is not None:
        yield Line(_recording_sentence(comparison))
    verdict = "the guarantee holds" if windows_loss is None else "both guarantees hold"
    yield Line(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: {verdict}")
    yield Line(f"  {policy.privacy}")
    yield Line(f"  {protected_sentence(policy.discretiser)}")
    scope_words = "" if windows_loss is None else ", for symbols and windows together"
    yield from _promise_lines(policy, policy.guarantee, loss, scope_words, policy.bound(loss))
    if streams := policy.chains.named_streams:
        rates_text = ", ".join(f"{stream.name} at most {stream.rate:.6g} nats a tick" for stream in streams)
        yield Line(f"  for all that these streams tell together, if each has a policy of this class: {rates_text}")
    weight_rows = () if policy.table is None else policy.table.weights()
    for state, (name, weights) in enumerate(zip(policy.discretiser.states, weight_rows, strict=False)):
        yield Line(f"  state {state} ({name}): symbol weights {' '.join(map(str, weights))} of 2^32")
    for flip_name, flip_text in () if policy.table is None else policy.table.flips:
        yield Line(f"  {flip_name}: {flip_text}")
    yield Line(f"  {missing_sentence(policy)}")
    if policy.windows_guarantee is not None and windows_loss is not None:
        yield from _promise_lines(
            policy, policy.windows_guarantee, windows_loss, ", for windows alone", policy.windows_bound(windows_loss)
        )
    for window in policy.windows:
        error_words = f"its share is off by {_window_error(window, policy).share_mean:.2%} on average"
        yield Line(
            f"  window {window.name}: scale {window.scale} by {window.mechanism}, adds {float(window.rate):.6g} to the "
            f"loss of every tick; {error_words}"
        )
    for shared_sum in policy.sums:
        rate = float(shared_sum.group.rate)
        yield Line(f"  sum {shared_sum.group.name}: adds {rate:.6g} to the loss of every tick; {shared_sum.condition}")


def _measure_document(policy: MeasurePolicy, stretches: Sequence[Stretch]) -> JsonObject:
    constraints, stream_loss = ConstraintSets(policy.measurement), policy.stream_loss
    return {
        "privacy": privacy_of(policy.stream_loss.epsilon),
        "protected": protected_sentence(policy.discretiser),
        "epsilon_tick": policy.epsilon,
        "factor": policy.factor,
        "epsilon_stream": stream_loss.epsilon,
        "adversary": stream_loss.adversary,
        "start": stream_loss.start,
        "stretches": stretch_documents(stretches),
        "sets": [states.bit_count() for states in constraints.all_sets()],
        "repeats_from": constraints.cycle_tick,
        "tables": _table_documents(policy),
    }


def _measure_report(policy: MeasurePolicy, check: Check) -> Report:
    constraints = ConstraintSets(policy.measurement)
    state_sets = constraints.all_sets()
    edge_count = sum(neighbours.bit_count() for neighbours in policy.measurement.neighbours) // 2
    stream_words = f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}"
    yield Line(f"{stream_words}: every table keeps the promise")
    yield Line(f"  {policy.privacy}")
    yield Line(f"  {len(policy.coordinates)} states, {edge_count} pairs joined by the policy graph")
    yield Line(f"  {protected_sentence(policy.discretiser)}")
    pair_words = f"{policy.epsilon:.10g} for joined pairs, {policy.factor} times that for any two states"
    yield Line(f"  each point: epsilon {pair_words}")
    yield Line(f"  whole stream: {_stream_loss_words(policy, check.loss)}")
    for line in stretch_lines(check.stretches, policy.discretiser):
        yield Line(f"  {line}")
    yield Line(f"  {missing_sentence(policy)}")
    sizes = [str(state_set.bit_count()) for state_set in state_sets[:8]] + ["..."] * (len(state_sets) > 8)
    repeat_words = f"the sets repeat from tick {constraints.cycle_tick} on"
    yield Line(f"  possible states from tick 0 on: {', '.join(sizes)}; {repeat_words}")
    for table in _table_documents(policy):
        name = "fallback" if table["number"] == 0 else f"table {table['number']}"
        until_words = "" if table["until"] is None else f" to {table['until'] - 1}"
        noise = "a staircase" if table["points"] is None else f"{table['points']} points"
        states_words = "any set of" if table["possible_states"] is None else table["possible_states"]
        yield Line(f"  {name}: {noise}, for {states_words} possible states, from tick {table['first']}{until_words}")


def _stream_loss_words(policy: MeasurePolicy, loss: Any) -> str:
    """Describe the loss of a whole measured stream."""
    from fugu.places.composition import START_WORDS

    claimed_loss = policy.stream_loss
    if claimed_loss.epsilon is None:
        return "no bound is claimed"
    return (
        f"epsilon {claimed_loss.epsilon:.10g} about a single tick, {claimed_loss.adversary} adversary, "
        f"{START_WORDS[claimed_loss.start]} (derived: {loss.epsilon:.10g}, {loss.bound})"
    )


def missing_sentence(policy: PolicyHeader) -> str:
    """Say which state missing readings have; if they have none, by how much they can distort estimates."""
    states, state = policy.discretiser.states, policy.discretiser.missing
    if state is not None:
        return f"missing readings are in state {states.index(state)} ({state}), protected like the others"
    if policy.missing_share is None:
        return "missing readings have no state, and no bound on their share is declared: estimates do not know of them"
    # With m of the ticks missing, a share p among the others shows as (1 - m) p + m / k, for k states, up to 2^-32.
    bias = policy.missing_share * (1.0 - 1.0 / len(states))
    return (
        f"missing readings have no state: at most {policy.missing_share:.3%} of the ticks. A state's share is off "
        f"by at most {bias:.3g}, a window's count by {policy.missing_share:.3g} of its length"
    )


def _table_documents(policy: MeasurePolicy) -> list[JsonObject]:
    return [
        {
            "number": table.number,
            "possible_states": table.constraint.bit_count() or None,
            "first": table.first,
            "until": table.until if table.until <= MAX_TICK else None,
            "points": len(table.noise.points) if isinstance(table.noise, NoiseTable) else None,
        }
        for table in policy.measure_tables
    ]


def _promise_lines(policy: Policy, guarantee: Guarantee, loss: Loss, scope: str, bound: StretchBound | None) -> Report:
    ticks = guarantee.stretch_ticks
    stretch_words = f" about any {ticks} ticks in a row" if ticks > 1 else ""
    epsilon = loss.epsilon if bound is None else bound.epsilon(ticks)
    yield Line(f"  claimed  epsilon {guarantee.epsilon:.10g}{stretch_words}, {guarantee.adversary} adversary{scope}")
    yield Line(f"  derived  epsilon {epsilon:.10g} ({loss.bound})")
    for line in stretch_lines(_stretches(policy, bound), policy.discretiser):
        yield Line(f"  {line}")
    period, slack = policy.clock.period_us / 1_000_000, max(guarantee.epsilon - epsilon, 0.0)
    yield Line(f"  {change_words(policy.chains, guarantee.epsilon, period, slack)}")
