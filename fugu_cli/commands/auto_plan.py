"""The work of `fugu plan auto` for a device or for many homes: from options to a plan, its JSON and its files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.sentences import LARGEST_PRIVATE
from fugu.contract.stretches import LARGEST_PROTECTED
from fugu.library.auto_words import error_texts
from fugu.library.plans import Plan, Planner, planner, question_of, refuse_overwriting, target_of
from fugu.library.report import NOTHING, Line, Result
from fugu.planning.auto import AutoPlan
from fugu.planning.auto_places import PlacePlan
from fugu.planning.errors import TooShortError
from fugu.planning.question import Question
from fugu.recordings.options import ReadOptions, read_options
from fugu_cli.commands.plan_options import AutoOptions, GroupOptions, RecordingOptions, TrialOptions, changed_options
from fugu_cli.connection import broker_of
from fugu_cli.view.terminal import warn, working

if TYPE_CHECKING:
    from fugu.library.streets import Street

__all__ = [
    "Offer",
    "is_answer",
    "offer_line",
    "offers_of",
    "option_words",
    "other_options",
    "plan_homes",
    "plan_recordings",
    "question_asked",
    "reading_options",
]

Offer = tuple[str, AutoOptions]
"""A useful answer in words, with its error and the error of guessing, and the settings that lead to it."""

_NAMED = ("fleet", "device", "stream", "epoch", "broker")
_READ_BY = (*(field.name for field in fields(RecordingOptions)), *_NAMED)
"""Names of options that are not part of the question."""
_NOT_OF_HOMES = ("device", "broker")
"""Names of options that neither a group of homes nor its question has."""
_BASELINE = 50
"""The ticks of the baseline that is tried if a plan recommends nothing."""
_NOTHING_ELSE = "Nothing that was tried instead is useful: a recording of more days may do."
_NOT_WRITTEN = (
    f"Not written, since it is not private: ask for an epsilon of at most {LARGEST_PROTECTED:g}, or add --not-private."
)
_OWN_CEILING = "agent.toml has no ceiling: its owner writes it, and the agent does not start before."
_HELD_BACK = (
    "agent.toml replays only what was held back: no answer was chosen by it, and the policy has two digits of it, "
    "those of its class. In earnest a sensor takes its place."
)
_STDIN = (
    "agent.toml reads standard input, a reading a line: this recording cannot be replayed as it is (fugu read FILE -o "
    "plain.csv makes one that can). Put a sensor in its place."
)


def plan_recordings(
    files: Sequence[Path], options: AutoOptions, *, output: Path | None, not_private: bool, force: bool
) -> Result:
    """Plan from recordings, one of each donor, and write the plan if an output folder is named.

    A plan that is not private is written only with `not_private`. FuguError: an option or a recording cannot be read or
    answers nothing, or the output folder holds a plan.
    """
    if output is not None and not force:
        refuse_overwriting(output)
    question = question_asked(options)
    reading = reading_options(options, question)
    target = target_of(options.fleet, options.device, options.stream, options.epoch)
    broker = None if options.broker is None else broker_of(options.broker)
    for name in changed_options(options, _NAMED if output is None else ()):
        warn(f"--{name} is for {'agent.toml' if name == 'broker' else 'policy.json'}, which is not written without -o")
    recording_words = str(files[0]) if len(files) == 1 else "RECORDINGS"  # of several donors only the number is told
    command = ["fugu", "plan", "auto", recording_words]
    with working("planning", measured=True) as progress:
        progress("reading", 0.0)
        make_plan = planner(files, question, target, reading)
        try:
            plan = make_plan(question, progress=progress)
        except TooShortError as error:
            offers = offers_of(make_plan, _shorter_baseline(error.baseline_ticks, _cap_epsilon(options)), progress)
            return _too_short_result(error, [offer_line(offer, command) for offer in offers])
        offers = [] if is_answer(plan) else offers_of(make_plan, other_options(plan.details, options), progress)
    lines = [offer_line(offer, command) for offer in offers]
    offer_fields = {"offers": [*lines]}
    if not is_answer(plan) and not lines:
        lines = [_NOTHING_ELSE]
    if output is not None and plan.useful and plan.privacy == "none" and not not_private:
        lines.append(_NOT_WRITTEN)
    elif output is not None:
        files_written = plan.save(output, force=force, not_private=not_private, broker=broker)
        if plan.useful:
            lines.append(f"written: {', '.join(map(str, files_written))}")
            lines += [_OWN_CEILING] if plan.privacy == "none" else []
            needs_stdin = isinstance(plan.details, AutoPlan) and plan.details.readings.rows is None
            lines.append(_STDIN if needs_stdin else _HELD_BACK)
    report, code = [*plan.report, *map(Line, lines)], 0 if is_answer(plan) else NOTHING
    return Result(lambda: plan.document() | offer_fields, report, code)


def _too_short_result(error: TooShortError, offers: list[str]) -> Result:
    """Return the result for a recording that is too short: how it was read, and offers."""
    verdict = f"Not useful: {error}"
    document = {"useful": False, "recommended": {"kind": "none"}, "candidates": [], "verdict": [verdict]}
    reading_lines = [*error.lines, ""] if error.lines else []
    return Result(document | {"offers": offers}, map(Line, (*reading_lines, verdict, *offers)), NOTHING)


def is_answer(plan: Plan | Street) -> bool:
    """Return whether a plan is useful, and at least weakly private."""
    return plan.useful and plan.privacy != "none"


def offers_of(
    make_plan: Planner, choices: Iterable[AutoOptions], progress: Callable[[str, float], None]
) -> list[Offer]:
    """Plan with each choice of options; return an offer for each useful plan, with its error on held-back rows.

    No held-back row had a part in the choice of options: a baseline is chosen by no reading, an epsilon by all others.
    """
    offers = []
    for choice_number, options in enumerate(choices, 1):

        def report(part: str, share: float, choice_number: int = choice_number) -> None:
            progress(f"what else may be useful, {choice_number}: {part}", share)

        try:
            plan = make_plan(question_asked(options), progress=report)
        except FuguError:
            continue
        best_row = next((row for row in plan.errors if row.recommended), None)
        if best_row is not None and best_row.held_back is not None:
            error_text, guess_text = error_texts(plan.recommended.unit, best_row.held_back, best_row.guessing)
            offer_words = f"{best_row.answer}, off by {error_text} on held-back rows; guessing is off by {guess_text}"
            offers.append((f"Try instead: {offer_words}", options))
    return offers


def offer_line(offer: Offer, command: Sequence[str], command_options: type[TrialOptions] = AutoOptions) -> str:
    """Return an offer in words, with a command that makes its plan and has only `command_options`."""
    offer_words, options = offer
    return f"{offer_words}: {shlex.join([*command, *option_words(options, command_options)])}"


def option_words(options: AutoOptions, command_options: type[TrialOptions] = AutoOptions) -> list[str]:
    """Return the options that differ from their defaults, as words of a command that has `command_options`."""
    arguments: list[str] = []
    for option in fields(command_options):
        option_value, name = getattr(options, option.name), f"--{option.name.replace('_', '-')}"
        if option_value is True:
            arguments.append(name)
        elif str(option_value) != str(option.default):
            items = option_value if isinstance(option_value, list) else [option_value]
            arguments += [word for item in items for word in (name, str(item))]
    return arguments


def other_options(plan: AutoPlan | PlacePlan, options: AutoOptions) -> Iterator[AutoOptions]:
    """Yield up to seven choices of options to try after a plan that is no answer, all with a private epsilon."""
    options = _cap_epsilon(options)
    if options.epsilon < plan.question.epsilon:
        yield options
    if options.window is not None:
        yield replace(options, window=None)
    if isinstance(plan, AutoPlan):
        if plan.states.discretiser.missing is not None and plan.gaps is not None and plan.gaps.independent:
            options = replace(options, missing="ignore")
            yield options
        if plan.merged is not None:
            options = replace(options, states=",".join(plan.merged))
            yield options
        yield from _shorter_baseline(plan.states.baseline_ticks, options)
    least_epsilon = plan.least_epsilon or 0.0
    if options.epsilon < least_epsilon <= LARGEST_PRIVATE:
        yield replace(options, epsilon=least_epsilon)
    if isinstance(plan, AutoPlan) and plan.question.protect:
        yield replace(options, protect="tick")
    elif options.epsilon < LARGEST_PRIVATE != least_epsilon:
        yield replace(options, epsilon=LARGEST_PRIVATE)


def _cap_epsilon(options: AutoOptions) -> AutoOptions:
    """Lower an epsilon to the largest private one, since no larger one is offered."""
    return replace(options, epsilon=min(options.epsilon, LARGEST_PRIVATE))


def _shorter_baseline(baseline_ticks: int, options: AutoOptions) -> Iterator[AutoOptions]:
    """Yield options with a baseline of 50 ticks, if that is shorter than the baseline of a plan."""
    if baseline_ticks > _BASELINE:
        yield replace(options, baseline=str(_BASELINE))


def reading_options(options: RecordingOptions, question: Question) -> ReadOptions:
    """Return the options by which a recording is read for a question; UsageError if one cannot be parsed."""
    return read_options(**options.texts(), day_parts=question.profile_zone)


def question_asked(options: AutoOptions) -> Question:
    """Return the question that options ask; FuguError if an option cannot be parsed."""
    values = {option.name: getattr(options, option.name) for option in fields(options) if option.name not in _READ_BY}
    return question_of(values.pop("want"), **values)


_NEXT = (
    "The helper puts {file} into helper.toml and signs it: fugu helper group helper.toml street > street.json. Then "
    "the same command with --group street.json writes the policies of the homes."
)


def plan_homes(
    files: Sequence[Path],
    options: AutoOptions,
    group: GroupOptions,
    output: Path | None,
    *,
    not_private: bool,
    force: bool,
) -> Result:
    """Plan a group of homes, and write its file for the helper, or the policies of its homes.

    A plan that is not private is written only with `not_private`. FuguError: an option or a file cannot be read, or no
    such group is possible.
    """
    from fugu.library.streets import read_group, refuse_not_of_homes, street_of

    if group.homes is None:
        raise UsageError("--honest, --colluding and --group are of a group of homes: give --homes")
    refuse_not_of_homes(changed_options(options, _NOT_OF_HOMES))
    question = question_asked(options)
    with working("planning", measured=True) as progress:
        street = street_of(
            files,
            question,
            target_of(options.fleet, options.device, options.stream, options.epoch),
            reading_options(options, question),
            group.homes,
            group=None if group.group is None else read_group(group.group),
            honest=group.honest,
            colluding=group.colluding,
            progress=progress,
        )
    lines = []
    if output is not None and street.privacy == "none" and not not_private:
        lines.append(_NOT_WRITTEN)
    elif output is not None:
        files_written = street.save(output, force=force, not_private=not_private)
        files_text = f"{len(files_written)} files in {files_written[0].parent}"
        lines.append(f"written: {files_written[0] if len(files_written) == 1 else files_text}")
        if group.group is None:
            lines.append(_NEXT.format(file=files_written[0]))
    return Result(street.document(), [*street.report, *map(Line, lines)], 0 if is_answer(street) else NOTHING)
