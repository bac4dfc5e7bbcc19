"""A group of homes planned from recordings: its verdicts, its table for the helper, and the policies of its homes."""

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
from fugu.contract.errors import FuguError
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.host.toml_file import toml_lines
from fugu.library.auto_words import error_words
from fugu.library.guarantee import promise_document
from fugu.library.plans import question_of, whose_of
from fugu.library.recordings import Source, readings_of, several
from fugu.library.report import Line, Report, Table, plain
from fugu.planning.policy_builder import Whose, replacing
from fugu.planning.question import Question
from fugu.planning.street import SIZES, Size, StreetPlan, plan_street
from fugu.recordings.options import ReadOptions, read_options
from fugu.recordings.summary import time_words

__all__ = ["Street", "read_group", "street", "street_of"]

_GROUP, _POLICIES = "group.toml", "policies"
_SHOWN = (10, 24, 58, 140, 350, 1000)
_READ_BY = ("time", "column", "only", "zone", "missing_values", "rows", "period", "gap", "as_it_is")


@dataclass(frozen=True)
class Street:
    """A plan of a group.

    Attributes:
        details: everything that was computed; it holds the days of the recordings.
        whose: fleet and stream, and tick 0.
        zone: of the recordings' days.
        group: the group's document as its helper has signed it; `None` before that.
    """

    details: StreetPlan = field(repr=False)
    whose: Whose
    zone: ZoneInfo
    group: SharedWindow | None

    @property
    def useful(self) -> bool:
        """True if the sum of so many homes is twice as good as guessing."""
        return self.details.size.useful

    @property
    def condition(self) -> str:
        """The sentence without which no epsilon of a sum is said."""
        return (
            f"That is so if the helper keeps its word and {self.details.honest} of the homes in the sum are real and "
            "honest. Otherwise the exact count can be seen."
        )

    @cached_property
    def fields(self) -> dict[str, object]:
        """The group's table in the file of its helper. FuguError: no group has such windows or names."""
        if self.group is not None:
            return self.group.group.model_dump(mode="json", exclude={"document", "fleet", "helper"}, exclude_none=True)
        epoch = self.whose.epoch
        if epoch is None:
            today = datetime.now(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
            epoch = today.timestamp()
        fields = self.details.fields("street", self.whose.stream or "readings", round(epoch))
        try:
            GroupDocument.model_validate_json(json.dumps({**fields, "fleet": self.whose.fleet, "helper": 64 * "0"}))
        except ValidationError as error:
            raise FuguError(f"no group can be like that: {first_problem(error, 'document')}") from None
        return fields

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by device, checked as devices will; empty before the helper has signed.

        Raises:
            FuguError: the document does not suit the recordings.
        """
        if self.group is None:
            return {}
        names, homes = self._names(), self.details.policies(self.group, self.whose, self._names())
        return dict(zip(names, homes, strict=True))

    def _names(self) -> list[str]:
        sources = [home.source for home in self.details.recordings]
        if len(sources) == 1:
            return [f"home-{number}" for number in range(1, self.details.homes + 1)]
        names = [re.sub(r"[^A-Za-z0-9_-]+", "-", Path(source).name.partition(".")[0]) for source in sources]
        return names if len(set(names)) == len(names) else [f"{name}-{i}" for i, name in enumerate(names, 1)]

    @property
    def verdict(self) -> list[str]:
        """Sentences: is it useful, is it private, under which condition, and how many homes may be missing."""
        plan, size = self.details, self.details.size
        window = time_words(plan.length * plan.period)
        error = f"off by {error_words(size.off)} on average; guessing is off by {error_words(size.constant)}"
        yes = "Useful" if self.useful else "Not useful"
        sentences = [
            f"{yes}: the sum of {size.homes} homes over {window}, {error}.",
            f"{self._promise()['promise']} {self.condition}",
            f"{plan.homes - plan.honest - plan.colluding} of {plan.homes} homes may be missing: a sum opens with "
            f"{plan.honest + plan.colluding} or more.",
        ]
        if not math.isnan(size.habit):
            more = "more" if size.beats_habit else "less"
            sentences.append(
                f"Habit (the mean of that part of the day over other days of the same kind of weekday) is off by "
                f"{error_words(size.habit)}. The sum tells {more}."
            )
        sentences += self._least("useful", plan.least_useful), self._least("better than habit", plan.least_beside_habit)
        if not plan.shared_dates:
            sentences.append(
                "Homes were days of the recording, drawn by the kind of weekday. Real homes have more in common (the "
                "weather, a feast), which a habit does not know."
            )
        need = f"noise of {float(plan.neediest.scale):.0f} ticks, as if it were alone"
        if len(plan.recordings) > 1:
            sentences.append(f"{plan.neediest.source} needs the most: {need}. Each home has that of the whole group.")
        else:
            sentences.append(f"A home needs {need}.")
        return sentences

    def _least(self, verdict: str, homes: int | None) -> str:
        if homes:
            return f"From {homes} homes on it is {verdict}."
        return f"No {SIZES[0]} to {SIZES[-1]:,} homes are {verdict}."

    def _promise(self) -> dict[str, Any]:
        question = self.details.question
        return promise_document(question.epsilon, question.protect or 0, question.ticks(self.details.period))

    @property
    def report(self) -> Report:
        """The plan as lines and a table; as text it is `str(street)`."""
        useful, private, *more = self.verdict
        sizes = sorted({*(size for size in self.details.sizes if size.homes in _SHOWN), self.details.size})
        rows = [[f"{size.homes:,}", *map(error_words, size[1:])] for size in sizes]
        return [
            Line(useful, bold=True),
            Line(private, bold=True),
            *map(Line, more),
            Table("Mean errors of a sum, a fifth of the homes away", ["homes", "sum", "guessing", "habit"], rows),
        ]

    def __repr__(self) -> str:
        return f"<Street: {' '.join(self.verdict[:2])}>"

    def __str__(self) -> str:
        return plain(self.report)

    def document(self) -> dict[str, Any]:
        """The plan as an object for JSON, without readings."""
        plan = self.details

        def row(size: Size) -> dict[str, Any]:
            values = {name: None if math.isnan(value) else value for name, value in size._asdict().items()}
            return values | {"useful": size.useful, "beats_habit": size.beats_habit}

        return {
            **{"useful": self.useful, **self._promise(), "condition": self.condition, "homes": plan.homes},
            **{"honest": plan.honest, "colluding": plan.colluding, "noise": plan.noise},
            "may_be_missing": plan.homes - plan.honest - plan.colluding,
            **{"least_useful": plan.least_useful, "least_better_than_habit": plan.least_beside_habit},
            **{"error": row(plan.size), "errors": [row(size) for size in plan.sizes]},
            "homes_alone": {home.source: float(home.scale) for home in plan.recordings},
            **{"group": self.fields, "verdict": self.verdict},
        }

    def save(self, folder: str | Path, *, force: bool = False) -> tuple[Path, ...]:
        """Write `group.toml`, the group's table for its helper's file; and `policies/` once its document is signed.

        Raises:
            FuguError: the folder holds a plan, or the document does not suit the recordings.
            OSError: it cannot be written.
        """
        folder = Path(folder)
        texts = {Path(_POLICIES, f"{name}.json"): policy.to_json() for name, policy in self.policies.items()}
        if not texts:
            texts = {Path(_GROUP): "\n".join(["[[groups]]", *toml_lines(self.fields), ""])}
        for name in texts:
            if (file := folder / name).exists():
                if not force:
                    raise FuguError(f"{file} is there already: name another folder, or add --force to overwrite it")
                if name.suffix == ".json":
                    texts[name] = replacing(read_policy(texts[name]), file.read_text(encoding="utf-8")).to_json()
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return tuple(folder / name for name in texts)


def read_group(file: str | Path) -> SharedWindow:
    """Read what `fugu helper group` prints: a document with its helper's signature. FuguError: it is none."""
    try:
        return SharedWindow.model_validate_json(Path(file).read_text(encoding="utf-8"))
    except ValidationError as error:
        raise FuguError(f"{file} is no signed document of a group: {first_problem(error, 'document')}") from None


def street_of(
    sources: Sequence[Source],
    question: Question,
    whose: Whose,
    options: ReadOptions,
    homes: int,
    *,
    group: SharedWindow | None = None,
    **more: Any,
) -> Street:
    """Read recordings and plan a group from them; `more` are arguments of `plan_street`. Errors as `street`."""
    recordings = [readings_of([source], options) for source in sources]
    zone = options.zone if isinstance(options.zone, ZoneInfo) else ZoneInfo("UTC")
    document = None if group is None else group.group
    details = plan_street(recordings, question, homes, zone=zone, document=document, **more)
    column = re.sub(r"[^A-Za-z0-9_-]+", "-", recordings[0].column).strip("-").lower()
    return Street(details, whose._replace(stream=whose.stream or column or None), zone, group)


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
    """Plan a group of homes of which only sums become known, with one noise for all of them.

    Args:
        recordings: One recording that stands for all homes, or a list with one of each.
        homes: How many there are.
        epsilon: The most that may be lost, in nats, about any stretch of `protect` of one home.
        protect: As for `plan`.
        honest: How many have to be real, honest and silent: so many shares are the whole noise (default: half).
        colluding: How many more are in every sum (default: a tenth).
        group: A file with the signed document, of which policies are made; its noise is not changed.
        fleet: Whose policies they are.
        stream: Which stream of each home (default: after the column).
        seed: Of the days that are drawn.
        progress: Told what is being done, and the share of the work before it.
        options: How recordings are read, and of the question `threshold`, `baseline`, `states`, `missing`, `window`
            and `adversary`, as for `plan`.

    Raises:
        QuestionError: a recording can be read in more than one way; its `options` are the answers.
        FuguError: a recording does not fit, or there is no such group. One line says what to do.
    """
    reading: Mapping[str, Any] = {name: options.pop(name) for name in _READ_BY if name in options}
    return street_of(
        several(recordings),
        question_of("share", epsilon, protect, **options),
        whose_of(fleet, "home", stream),
        read_options(**reading),
        homes,
        group=None if group is None else read_group(group),
        honest=honest,
        colluding=colluding,
        seed=seed,
        progress=progress,
    )
