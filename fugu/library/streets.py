"""Plan a group of homes from recordings: verdicts, the table for the group's helper, and the homes' policies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from fugu.contract._document import first_problem
from fugu.contract.errors import FuguError, PolicyError, UsageError
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.contract.sentences import Privacy, privacy_of
from fugu.host.toml_file import toml_lines
from fugu.library.auto_words import error_words
from fugu.library.guarantee import promise_document
from fugu.library.keywords import READ_OPTIONS, option_names, python_call
from fugu.library.plans import question_of, refuse_not_private, target_of
from fugu.library.recordings import Source, readings_of, source_list
from fugu.library.report import JsonObject, Line, Report, Table, plain_text
from fugu.planning.policy_builder import Target, next_version
from fugu.planning.question import Question
from fugu.planning.street import SIZES, Size, StreetPlan, plan_street
from fugu.recordings.options import ReadOptions, read_options
from fugu.recordings.summary import time_text

__all__ = ["Street", "read_group", "refuse_not_of_homes", "street", "street_of"]

_GROUP, _POLICIES = "group.toml", "policies"
_SHOWN_SIZES = (10, 24, 58, 140, 350, 1000)
_NOT_OF_HOMES = ("devices", "blocks", "days", "cell", "latency_seconds", "within")
"""Fields of a question that no group of homes answers."""


@dataclass(frozen=True)
class Street:
    """A plan of a group.

    Attributes:
        details: everything that was computed, including the days of the recordings.
        target: fleet, stream and tick 0 of the policies.
        zone: time zone of the recordings' days.
        group: the group's document, signed by its helper; `None` before the helper has signed.
    """

    details: StreetPlan = field(repr=False)
    target: Target
    zone: ZoneInfo
    group: SharedWindow | None

    @property
    def useful(self) -> bool:
        """True if the group's sum is twice as good as guessing."""
        return self.details.size.useful

    @property
    def privacy(self) -> Privacy:
        """The class of the epsilon that was asked for: private, weak or none."""
        return privacy_of(self.details.question.epsilon)

    @property
    def condition(self) -> str:
        """The condition under which the epsilon of a sum holds."""
        return (
            f"That is so if the helper keeps its word and {self.details.honest} of the homes in the sum are real and "
            "honest. Otherwise the exact count can be seen."
        )

    @cached_property
    def fields(self) -> dict[str, object]:
        """The group's table for its helper's file. FuguError: no group can have such windows or names."""
        if self.group is not None:
            return self.group.group.model_dump(mode="json", exclude={"document", "fleet", "helper"}, exclude_none=True)
        epoch = self.target.epoch
        if epoch is None:
            today = datetime.now(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
            epoch = today.timestamp()
        fields = self.details.fields("street", self.target.stream or "readings", round(epoch))
        try:
            GroupDocument.model_validate_json(json.dumps({**fields, "fleet": self.target.fleet, "helper": 64 * "0"}))
        except ValidationError as error:
            raise FuguError(f"no group can be like that: {first_problem(error, 'document')}") from None
        return fields

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by device, checked as devices will check them; empty before the helper has signed.

        FuguError: the signed document does not fit the recordings.
        """
        if self.group is None:
            return {}
        names = self._home_names()
        return dict(zip(names, self.details.policies(self.group, names), strict=True))

    def _home_names(self) -> list[str]:
        sources = [home.source for home in self.details.recordings]
        if len(sources) == 1:
            return [f"home-{home_number}" for home_number in range(1, self.details.homes + 1)]
        names = [re.sub(r"[^A-Za-z0-9_-]+", "-", Path(source).name.partition(".")[0]) for source in sources]
        return names if len(set(names)) == len(names) else [f"{name}-{number}" for number, name in enumerate(names, 1)]

    @property
    def verdict(self) -> list[str]:
        """Sentences: is the sum useful, is it private, under which condition, and how many homes may be missing."""
        plan, size = self.details, self.details.size
        window_text = time_text(plan.length * plan.period)
        error_text = f"off by {error_words(size.off)} on average; guessing is off by {error_words(size.constant)}"
        usefulness = "Useful" if self.useful else "Not useful"
        sentences = [
            f"{usefulness}: the sum of {size.homes} homes over {window_text}, {error_text}.",
            f"{self._promise_document()['promise']} {self.condition}",
            f"{plan.homes - plan.honest - plan.colluding} of {plan.homes} homes may be missing: a sum opens with "
            f"{plan.honest + plan.colluding} or more.",
        ]
        if not math.isnan(size.habit):
            comparison = "more" if size.beats_habit else "less"
            sentences.append(
                f"Habit (the mean of that part of the day over other days of the same kind of weekday) is off by "
                f"{error_words(size.habit)}. The sum tells {comparison}."
            )
        least_homes = {"useful": plan.least_useful, "better than habit": plan.least_beating_habit}
        for property_words, homes in least_homes.items():
            none_words = f"No {SIZES[0]} to {SIZES[-1]:,} homes are {property_words}."
            sentences.append(f"From {homes} homes on it is {property_words}." if homes else none_words)
        if not plan.shared_dates:
            sentences.append(
                "Homes were days of the recording, drawn by the kind of weekday. Real homes have more in common (the "
                "weather, a feast), which a habit does not know."
            )
        noise = f"noise of {float(plan.neediest.scale):.0f} ticks, as if it were alone"
        if len(plan.recordings) > 1:
            sentences.append(f"{plan.neediest.source} needs the most: {noise}. Each home has that of the whole group.")
        else:
            sentences.append(f"A home needs {noise}.")
        return sentences

    def _promise_document(self) -> JsonObject:
        question = self.details.question
        return promise_document(question.epsilon, question.protect or 0, question.ticks(self.details.period))

    @property
    def report(self) -> Report:
        """The plan as lines and a table; `str(street)` is the same as text."""
        usefulness, promise, *sentences = self.verdict
        sizes = sorted({*(size for size in self.details.sizes if size.homes in _SHOWN_SIZES), self.details.size})
        size_rows = [[f"{size.homes:,}", *map(error_words, size[1:])] for size in sizes]
        return [
            Line(usefulness, bold=True),
            Line(promise, bold=True),
            *map(Line, sentences),
            Table("Mean errors of a sum, a fifth of the homes away", ["homes", "sum", "guessing", "habit"], size_rows),
        ]

    def __repr__(self) -> str:
        return f"<Street: {' '.join(self.verdict[:2])}>"

    def __str__(self) -> str:
        return plain_text(self.report)

    def document(self) -> dict[str, Any]:
        """The plan as an object for JSON, without readings."""
        plan = self.details

        def size_document(size: Size) -> JsonObject:
            size_fields = {name: None if math.isnan(value) else value for name, value in size._asdict().items()}
            return size_fields | {"useful": size.useful, "beats_habit": size.beats_habit}

        return {
            "useful": self.useful,
            **self._promise_document(),
            "condition": self.condition,
            **{name: getattr(plan, name) for name in ("homes", "honest", "colluding", "noise")},
            "may_be_missing": plan.homes - plan.honest - plan.colluding,
            "least_useful": plan.least_useful,
            "least_better_than_habit": plan.least_beating_habit,
            "error": size_document(plan.size),
            "errors": [size_document(size) for size in plan.sizes],
            "homes_alone": {home.source: float(home.scale) for home in plan.recordings},
            "group": self.fields,
            "verdict": self.verdict,
        }

    def save(self, folder: str | Path, *, force: bool = False, not_private: bool = False) -> tuple[Path, ...]:
        """Write `group.toml`, the table for the group's helper; or `policies/` once the helper has signed.

        Without `not_private` a plan whose `privacy` is none is refused. With `force`, policies of homes that are no
        longer in the group are deleted.

        Raises:
            FuguError: the plan is refused, the folder holds one, or the signed document does not fit the recordings.
            OSError: a file cannot be written.
        """
        if not not_private:
            refuse_not_private(self.privacy)
        folder = Path(folder)
        texts = {Path(_POLICIES, f"{device}.json"): policy.to_json() for device, policy in self.policies.items()}
        if not texts:
            texts = {Path(_GROUP): "\n".join(["[[groups]]", *toml_lines(self.fields), ""])}
        for file_name in texts:
            if (file := folder / file_name).exists():
                if not force:
                    raise FuguError(f"{file} is there already: name another folder, or add --force to overwrite it")
                if file_name.suffix == ".json":
                    texts[file_name] = next_version(read_policy(texts[file_name]), file.read_bytes()).to_json()
        for file_name, text in texts.items():
            (folder / file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / file_name).write_text(text, encoding="utf-8")
        written_files = tuple(folder / file_name for file_name in texts)
        if force and self.group is not None:
            for file in {*folder.glob(f"{_POLICIES}/*.json")}.difference(written_files):
                if _is_policy_of(self.group.group, file):
                    file.unlink()
        return written_files


def _is_policy_of(group: GroupDocument, file: Path) -> bool:
    """True if a file holds the policy of a home in a group of the same fleet, stream and name."""
    try:
        policy = read_policy(file.read_bytes())
    except PolicyError:
        return False
    sums = policy.sums if isinstance(policy, Policy) else ()
    identity = group.fleet, group.stream, group.name
    return any((policy.fleet, policy.stream, window_sum.group.name) == identity for window_sum in sums)


def read_group(file: str | Path) -> SharedWindow:
    """Read a group's signed document, as `fugu helper group` prints it. FuguError: the file holds no such document."""
    try:
        return SharedWindow.model_validate_json(Path(file).read_bytes())
    except ValidationError as error:
        raise FuguError(f"{file} is no signed document of a group: {first_problem(error, 'document')}") from None


def refuse_not_of_homes(names: Sequence[str]) -> None:
    """Raise a UsageError if there are names of options that say nothing about a group of homes."""
    if names:
        options_text = " and ".join(f"--{name.removesuffix('_seconds')}" for name in names)
        raise UsageError(f"a group counts ticks in some states, for its homes: --homes goes without {options_text}")


def street_of(
    sources: Sequence[Source],
    question: Question,
    target: Target,
    options: ReadOptions,
    homes: int,
    *,
    group: SharedWindow | None,
    **plan_options: Any,
) -> Street:
    """Read recordings and plan a group; `plan_options` are arguments of `plan_street`. Errors as for `street`."""
    asked_names = [name for name in _NOT_OF_HOMES if getattr(question, name) != getattr(Question(), name)]
    refuse_not_of_homes(asked_names if question.want in (None, "share") else ["want", *asked_names])
    recordings = [readings_of([source], options) for source in sources]
    zone = options.zone if isinstance(options.zone, ZoneInfo) else ZoneInfo("UTC")
    document = None if group is None else group.group
    details = plan_street(recordings, question, homes, zone=zone, document=document, **plan_options)
    stream_name = re.sub(r"[^A-Za-z0-9_-]+", "-", recordings[0].column).strip("-").lower()
    return Street(details, target._replace(stream=target.stream or stream_name or None), zone, group)


def street(
    recordings: Source | Sequence[Source],
    homes: int,
    epsilon: float = 1.0,
    *,
    protect: str | float | None = None,
    honest: int | None = None,
    colluding: int | None = None,
    group: str | Path | None = None,
    fleet: str = "home",
    stream: str | None = None,
    seed: int = 1,
    progress: Callable[[str, float], None] = lambda _part, _share: None,
    **options: Any,
) -> Street:
    """Plan a group of homes of which only sums become known, protected by one noise that all homes share.

    Args:
        recordings: One recording that stands for all homes, or a list with one recording per home.
        homes: Number of homes.
        epsilon: The largest loss, in nats, about any stretch of length `protect` in one home.
        protect: Length of the protected stretches, as for `plan`.
        honest: Number of homes that must be real, honest and silent: their shares add up to the whole noise (default:
            half).
        colluding: Number of further homes that a sum must have (default: a tenth).
        group: A file with the signed document, from which policies are made; its noise is not changed.
        fleet: Fleet of the policies.
        stream: Stream of each home (default: named after the column).
        seed: Seed of the days that are drawn.
        progress: Called with the name of each part of the work, and the share of the work done before it.
        options: How recordings are read, and the question's `threshold`, `baseline`, `states`, `missing`, `window` and
            `adversary`, all as for `plan`.

    Raises:
        QuestionError: a recording can be read in more than one way; its `options` are the answers.
        UsageError: an option says nothing about a group, as `latency` and `within`.
        FuguError: a recording does not fit, or no such group is possible. One line says what to do.
    """
    with python_call(street, options, READ_OPTIONS | option_names(question_of)):
        reading_options: Mapping[str, Any] = {name: options.pop(name) for name in READ_OPTIONS & options.keys()}
        return street_of(
            source_list(recordings),
            question_of("share", epsilon, protect, **options),
            target_of(fleet, "home", stream),
            read_options(**reading_options),
            homes,
            group=None if group is None else read_group(group),
            honest=honest,
            colluding=colluding,
            seed=seed,
            progress=progress,
        )
