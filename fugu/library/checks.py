"""A policy from its file; check its promise, for a recording too, say what was found, and attack it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from fugu.host.arguments import epsilon_of
from fugu.library.guarantee import change_words, stretch_documents, stretch_lines
from fugu.library.report import NOTHING, Line, Part, Result

if TYPE_CHECKING:
    from fugu.library.recordings import Source
    from fugu.planning.answers import WindowAccuracy
    from fugu.planning.recorded_policy import RecordedClass, Released, Trial

__all__ = ["Check", "attack", "check", "checked_policy", "drawn", "load_policy", "missing_sentence"]


def load_policy(path: str | Path) -> AnyPolicy:
    """Read a policy file, or that of a signed document with one policy; signatures are not checked.

    Returns:
        A `Policy` of symbols and windows, or a `MeasurePolicy` of points.

    Raises:
        PolicyError: it is no policy, or its compiled form is another one; names the file and the first difference.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        return read_policy(content) if content.lstrip()[:1] == b"{" else _in_document(content)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


def _in_document(content: bytes) -> AnyPolicy:
    """The policy of a signed document; PolicyError as for a file of another kind if it is no document."""
    from fugu.contract.envelope import Envelope
    from fugu.contract.fleet_documents import PolicyDocument, check_compiled, read_document

    try:
        envelope = Envelope.decode(content)
    except FrameError:
        return read_policy(content)
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
        epsilon: what was derived for the stretch of the promise, in nats; `None` if a measured stream claims no bound.
        stretches: what longer stretches of time lose.
        recorded: the recording beside the class of the policy, if there was one; `inside` is the verdict.
        loss: the bound and how it was derived.
        windows: the same of the windows alone, where there are symbols too.
    """

    policy: AnyPolicy
    epsilon: float | None
    stretches: tuple[Stretch, ...]
    recorded: RecordedClass | None
    loss: Any
    windows: Loss | None


def _policy(policy: AnyPolicy | str | Path | None) -> AnyPolicy:
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
    **read: Any,
) -> Check:
    """Check a policy as a device does: derive its guarantee anew.

    Args:
        policy: A policy, or its file.
        recording: Somebody's readings, as for `plan`: are they in the policy's class?
        ceiling: Largest epsilon that is accepted, of a tick (1), or about any stretch of a time ("1@1h").
        read: How the recording is read, as for `plan`: `time`, `column`, `only`, `zone`, `missing_values`, `rows`,
            `period`, `gap`, `as_it_is`. A log of changes is looked at once a tick of the policy.

    Raises:
        GuaranteeError: the promise does not hold, or is above the ceiling.
        FuguError: the policy or the recording cannot be read or compared.
    """
    accepted: Ceiling | None = None if ceiling is None else epsilon_of(str(ceiling))
    policy = _policy(policy)
    from fugu.contract.compiler import compile_policy  # it loads signatures, which a file that is none needs not

    compile_policy(policy)
    if isinstance(policy, Policy):
        loss = policy.verify(accepted)
        windows_loss = None if policy.table is None else policy.verify_windows()
        bound = policy.bound(loss)
        rows = bound.rows(policy.clock.period_us, policy.guarantee.epsilon)
        chains = None
        if recording is not None:
            from fugu.library.recordings import recorded
            from fugu.planning.recorded_policy import recorded_class
            from fugu.recordings.options import read_options

            options = read_options(**read)
            chains = recorded_class(policy, recorded(recording, options)[0], options)
        return Check(policy, bound.epsilon(policy.guarantee.stretch_ticks), rows, chains, loss, windows_loss)
    policy.verify(None if accepted is None else accepted.epsilon)
    if recording is not None:
        raise UsageError("a recording is for streams of symbols and windows")
    if (claimed := policy.stream_loss.epsilon) is None:
        return Check(policy, None, (), None, None, None)
    from fugu.places.composition import measured_stretches, verify_stream

    derived = verify_stream(policy)
    rows = measured_stretches(policy.measurement, claimed, policy.clock.period_us)
    return Check(policy, derived.epsilon, rows, None, derived, None)


def attack(
    policy: AnyPolicy | str | Path | None, recording: Source, *, known: int | None = None, **read: Any
) -> tuple[Trial, ...]:
    """Attack what a device with a policy would release of a recording, which is the truth that attackers are judged by.

    Args:
        policy: A policy, or its file.
        recording: Readings, as for `plan`; or a list of recordings.
        known: Attackers are told every so many states; 2: both neighbours of each.
        read: How a recording is read, as for `check`.

    Returns:
        A trial for each release and recording: its `attacks`, the most successful first.

    Raises:
        FuguError: the policy or a recording cannot be read, or measures points.
    """
    return tuple(
        trial
        for recorded_policy in drawn(_policy(policy), recording, **read)
        for trial in recorded_policy.attacked(known)
    )


def drawn(policy: AnyPolicy, recording: Source, **read: Any) -> Iterator[Released]:
    """Draw what a device with a policy would release of each recording; arguments and errors as of `attack`."""
    from fugu.library.recordings import recorded, several
    from fugu.planning.recorded_policy import released
    from fugu.recordings.options import read_options

    if not isinstance(policy, Policy):
        raise PolicyError("measured points are not attacked here: plan_places attacks them as it plans")
    options = read_options(**read)
    for source in several(recording):
        yield released(policy, recorded(source, options)[0], options)


def checked_policy(check: Check) -> Result:
    """A policy that was checked; exit code 3 if a recording is not in its class."""
    if not isinstance(policy := check.policy, Policy):
        document, report = _measure_document(policy, check.stretches), _measure_report(policy, check)
        return Result(document, [*report])
    details = policy, check.loss, check.windows, check.recorded
    code = 0 if check.recorded is None or check.recorded.inside else NOTHING
    return Result(_policy_document(*details), _policy_report(*details), code)


def _policy_document(
    policy: Policy, loss: Loss, windows_loss: Loss | None, recorded: RecordedClass | None
) -> dict[str, object]:
    document = {
        **loss._asdict(),
        "claimed": policy.guarantee.epsilon,
        "privacy": privacy_of(policy.guarantee.epsilon),
        "protected": protected_sentence(policy.discretiser),
        "stretches": stretch_documents(_rows(policy, policy.bound(loss))),
        "weights": None if policy.table is None else policy.table.weights(),
        "flips": None if policy.table is None else dict(policy.table.flips),
    }
    if policy.chains.named_streams:
        document["together"] = {stream.name: stream.rate for stream in policy.chains.named_streams}
    if policy.windows:
        windows: dict[str, object] = {
            "rates": {window.name: str(window.rate) for window in policy.windows},
            "errors": {window.name: _error(window, policy)._asdict() for window in policy.windows},
            "mechanisms": {window.name: window.mechanism for window in policy.windows},
        }
        if policy.windows_guarantee is not None and windows_loss is not None:
            stretches = stretch_documents(_rows(policy, policy.windows_bound(windows_loss)))
            windows |= {**windows_loss._asdict(), "claimed": policy.windows_guarantee.epsilon, "stretches": stretches}
        document["windows"] = windows
    if policy.sums:
        document["sums"] = {
            shared.group.name: {"rate": str(shared.group.rate), "condition": shared.condition} for shared in policy.sums
        }
    if recorded is not None:
        document["recording"] = {
            **recorded._asdict(),
            "epsilon": recorded.epsilon if math.isfinite(recorded.epsilon) else None,
        }
    return document


def _rows(policy: Policy, bound: StretchBound | None) -> tuple[Stretch, ...]:
    return () if bound is None else bound.rows(policy.clock.period_us, policy.guarantee.epsilon)


def _recorded(recorded: RecordedClass) -> str:
    """Give the verdict on somebody's recording, in two digits, or in as many as tell its epsilon from the promise."""
    digits = next((d for d in range(2, 9) if f"{recorded.epsilon:.{d}g}" != f"{recorded.claimed:.{d}g}"), 2)
    needed, declared, epsilon, claimed = (
        f"{float(f'{number:.{places}g}'):g}"
        for number, places in (
            (recorded.odds_ratio, 2),
            (recorded.declared, 2),
            (recorded.epsilon, digits),
            (recorded.claimed, digits),
        )
    )
    steps = f"this recording needs odds ratio {needed}, and the class has {declared}"
    if recorded.inside:
        return f"in the class: {steps}"
    return f"not in the class: {steps}. Then epsilon is {epsilon}, not {claimed}"


def _error(window: Window, policy: Policy) -> WindowAccuracy:
    from fugu.planning.answers import error_of  # a policy that cannot be read needs no gateway

    return error_of(window, policy.clock.period_us)


def _policy_report(
    policy: Policy, loss: Loss, windows_loss: Loss | None, recorded: RecordedClass | None
) -> Iterator[Part]:
    if recorded is not None:
        yield Line(_recorded(recorded))
    holds = "the guarantee holds" if windows_loss is None else "both guarantees hold"
    yield Line(f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: {holds}")
    yield Line(f"  {policy.privacy}")
    yield Line(f"  {protected_sentence(policy.discretiser)}")
    both = "" if windows_loss is None else ", for symbols and windows together"
    yield from _show_guarantee(policy, policy.guarantee, loss, both, policy.bound(loss))
    if named := policy.chains.named_streams:
        together = ", ".join(f"{stream.name} at most {stream.rate:.6g} nats a tick" for stream in named)
        yield Line(f"  for all that these streams tell together, if each has a policy of this class: {together}")
    rows = () if policy.table is None else policy.table.weights()
    for state, (name, weights) in enumerate(zip(policy.discretiser.states, rows, strict=False)):
        yield Line(f"  state {state} ({name}): symbol weights {' '.join(map(str, weights))} of 2^32")
    for flip, value in () if policy.table is None else policy.table.flips:
        yield Line(f"  {flip}: {value}")
    yield Line(f"  {missing_sentence(policy)}")
    if policy.windows_guarantee is not None and windows_loss is not None:
        yield from _show_guarantee(
            policy, policy.windows_guarantee, windows_loss, ", for windows alone", policy.windows_bound(windows_loss)
        )
    for window in policy.windows:
        error = f"its share is off by {_error(window, policy).share_mean:.2%} on average"
        yield Line(
            f"  window {window.name}: scale {window.scale} by {window.mechanism}, adds {float(window.rate):.6g} to the "
            f"loss of every tick; {error}"
        )
    for shared in policy.sums:
        rate = float(shared.group.rate)
        yield Line(f"  sum {shared.group.name}: adds {rate:.6g} to the loss of every tick; {shared.condition}")


def _measure_document(policy: MeasurePolicy, stretches: Sequence[Stretch]) -> dict[str, Any]:
    reach, stream = ConstraintSets(policy.measurement), policy.stream_loss
    return {
        "privacy": privacy_of(policy.stream_loss.epsilon),
        "protected": protected_sentence(policy.discretiser),
        "epsilon_tick": policy.epsilon,
        "factor": policy.factor,
        "epsilon_stream": stream.epsilon,
        "adversary": stream.adversary,
        "start": stream.start,
        "stretches": stretch_documents(stretches),
        "sets": [states.bit_count() for states in reach.all()],
        "repeats_from": reach.start,
        "tables": _tables(policy),
    }


def _measure_report(policy: MeasurePolicy, check: Check) -> Iterator[Part]:
    stretches = check.stretches
    reach = ConstraintSets(policy.measurement)
    sets = reach.all()
    edges = sum(others.bit_count() for others in policy.measurement.neighbours) // 2
    yield Line(
        f"{policy.fleet}/{policy.device}/{policy.stream} version {policy.version}: every table keeps the promise"
    )
    yield Line(f"  {policy.privacy}")
    yield Line(f"  {len(policy.coordinates)} states, {edges} pairs joined by the policy graph")
    yield Line(f"  {protected_sentence(policy.discretiser)}")
    yield Line(
        f"  each point: epsilon {policy.epsilon:.10g} for joined pairs, {policy.factor} times that for any two states"
    )
    yield Line(f"  whole stream: {_stream_loss_words(policy, check.loss)}")
    for line in stretch_lines(stretches, policy.discretiser):
        yield Line(f"  {line}")
    yield Line(f"  {missing_sentence(policy)}")
    counts = ", ".join(str(states.bit_count()) for states in sets[:8]) + (", ..." if len(sets) > 8 else "")
    yield Line(f"  possible states from tick 0 on: {counts}; the sets repeat from tick {reach.start} on")
    for table in _tables(policy):
        name = "fallback" if table["number"] == 0 else f"table {table['number']}"
        until = "" if table["until"] is None else f" to {table['until'] - 1}"
        drawn = "a staircase" if table["points"] is None else f"{table['points']} points"
        states = "any set of" if table["possible_states"] is None else table["possible_states"]
        yield Line(f"  {name}: {drawn}, for {states} possible states, from tick {table['first']}{until}")


def _stream_loss_words(policy: MeasurePolicy, derived: Any) -> str:
    """Words for what a whole measured stream loses."""
    from fugu.places.composition import START_WORDS

    stream = policy.stream_loss
    if stream.epsilon is None:
        return "no bound is claimed"
    return (
        f"epsilon {stream.epsilon:.10g} about a single tick, {stream.adversary} adversary, "
        f"{START_WORDS[stream.start]} (derived: {derived.epsilon:.10g}, {derived.bound})"
    )


def missing_sentence(policy: PolicyHeader) -> str:
    """Which state missing readings have; without one, how far off they can put estimates."""
    states, named = policy.discretiser.states, policy.discretiser.missing
    if named is not None:
        return f"missing readings are in state {states.index(named)} ({named}), protected like the others"
    if policy.missing_share is None:
        return "missing readings have no state, and no bound on their share is declared: estimates do not know of them"
    # With m of the ticks missing, a share p among the others shows as (1 - m) p + m / k, for k states, up to 2^-32.
    bias = policy.missing_share * (1.0 - 1.0 / len(states))
    return (
        f"missing readings have no state: at most {policy.missing_share:.3%} of the ticks. A state's share is off "
        f"by at most {bias:.3g}, "
        f"a window's count by {policy.missing_share:.3g} of its length"
    )


def _tables(policy: MeasurePolicy) -> list[dict[str, Any]]:
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


def _show_guarantee(
    policy: Policy, claimed: Guarantee, derived: Loss, scope: str, bound: StretchBound | None
) -> Iterator[Part]:
    ticks = claimed.stretch_ticks
    stretch_words = f" about any {ticks} ticks in a row" if ticks > 1 else ""
    epsilon = derived.epsilon if bound is None else bound.epsilon(ticks)
    yield Line(f"  claimed  epsilon {claimed.epsilon:.10g}{stretch_words}, {claimed.adversary} adversary{scope}")
    yield Line(f"  derived  epsilon {epsilon:.10g} ({derived.bound})")
    for line in stretch_lines(_rows(policy, bound), policy.discretiser):
        yield Line(f"  {line}")
    period, slack = policy.clock.period_us / 1_000_000, max(claimed.epsilon - epsilon, 0.0)
    yield Line(f"  {change_words(policy.chains, claimed.epsilon, period, slack)}")
