"""Plan from a recording, a question and an epsilon: policy, errors, attackers and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from html import escape
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fugu.attackers.evaluation import Attack
from fugu.attackers.stretches import StretchAttack
from fugu.contract.errors import FuguError, TopicError, UsageError
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from fugu.contract.sentences import Privacy, privacy_of
from fugu.contract.stretches import LARGEST_PROTECTED
from fugu.contract.topics import topic_of
from fugu.host import arguments
from fugu.host.files import write_public, write_secret
from fugu.host.toml_file import toml_lines
from fugu.library.auto_words import answer_words, auto_document, auto_report, percent, verdict
from fugu.library.keywords import option_names, python_call
from fugu.library.place_words import place_document, place_report, place_verdict, place_words
from fugu.library.plan_page import answer_pictures, errors_table, place_page, plan_page
from fugu.library.recordings import Source, readings_of, recording_table, source_list
from fugu.library.report import Report, plain_text
from fugu.mqtt.broker import Broker
from fugu.planning.auto import AutoPlan, auto_policy, plan_auto
from fugu.planning.auto_places import PlacePlan, place_policy, plan_places, read_places
from fugu.planning.candidates import Candidate
from fugu.planning.errors import TooShortError
from fugu.planning.policy_builder import Target, next_version
from fugu.planning.question import Question, Want
from fugu.recordings.options import ReadOptions, read_options
from fugu.recordings.readings import Facts
from fugu.recordings.summary import summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Plan", "Planner", "plan", "planner", "question_of", "refuse_not_private", "refuse_overwriting", "target_of"]

_WANTS: tuple[Want, ...] = get_args(Want)
_MISSING: tuple[Literal["ignore"], ...] = ("ignore",)
_LATEST_EPOCH = 250_000_000_000  # zones have to be computed for ten years more, and years end with 9999
_toml_text = partial(json.dumps, ensure_ascii=False)  # TOML has no pairs of escaped surrogates
_POLICY, _AGENT, _PAGE = "policy.json", "agent.toml", "plan.html"

Planner = Callable[..., "Plan"]
"""A function that plans from recordings read before; it takes a question and optionally `seed` and `progress`."""


class Errors(NamedTuple):
    """How far off the answers of one candidate are, as shares of 1, or metres for places.

    Attributes:
        answer: the candidate in words.
        expected: mean absolute error.
        within_95: error that 95 % of the answers do not exceed.
        held_back: mean absolute error on the part of the recording that chose nothing; `None` without an answer there.
        guessing: mean absolute error of the usual answer, always.
        useful: whether it is twice as good as guessing, judged by at least four answers.
        recommended: whether the plan recommends it.
    """

    answer: str
    expected: float
    within_95: float
    held_back: float | None
    guessing: float
    useful: bool
    recommended: bool


class _Kind(NamedTuple):
    """Functions that describe one kind of plan; each takes the plan's details and, as a rule, its policy."""

    policy: Callable[[Any, Target], AnyPolicy]
    words: Callable[[Any, Candidate], str]
    verdict: Callable[[Any, AnyPolicy | None], Iterator[str]]
    report: Callable[[Any, AnyPolicy | None], Report]
    document: Callable[[Any, AnyPolicy | None], dict[str, Any]]
    page: Callable[[Any, AnyPolicy | None], str]


_KINDS: dict[type, _Kind] = {
    AutoPlan: _Kind(auto_policy, answer_words, verdict, auto_report, auto_document, plan_page),
    PlacePlan: _Kind(place_policy, place_words, place_verdict, place_report, place_document, place_page),
}


@dataclass(frozen=True)
class Plan:
    """A plan: the policy that it recommends, or why there is none.

    Attributes:
        details: everything that was compared, as `fugu.planning` has it; it holds the recording.
        file: the CSV file of the recording, if there is one.
        target: the stream that the policy is for.
    """

    details: AutoPlan | PlacePlan = field(repr=False)
    file: Path | None
    target: Target

    @property
    def _kind(self) -> _Kind:
        return _KINDS[type(self.details)]

    @property
    def recommended(self) -> Candidate:
        """The recommended release; its kind is `none` if no release is useful."""
        return self.details.recommended

    @property
    def useful(self) -> bool:
        """True if the plan recommends a release."""
        return self.recommended.kind != "none"

    @cached_property
    def policy(self) -> AnyPolicy | None:
        """The policy for a device, checked as the device will check it; `None` if no release is recommended."""
        return self._kind.policy(self.details, self.target) if self.useful else None

    @property
    def verdict(self) -> list[str]:
        """Sentences on the plan: whether it is useful, whether it is private, then the reasons."""
        return [*self._kind.verdict(self.details, self.policy)]

    @property
    def privacy(self) -> Privacy:
        """The class of the epsilon that was asked for: private, weak or none."""
        return privacy_of(self.details.question.epsilon)

    @property
    def errors(self) -> tuple[Errors, ...]:
        """The errors of each candidate; `pandas.DataFrame(plan.errors)` makes a table of them."""
        return tuple(
            Errors(
                answer=self._kind.words(self.details, candidate),
                expected=candidate.expected_error,
                within_95=candidate.error_95,
                held_back=candidate.held_back_error,
                guessing=candidate.guess_error,
                useful=candidate.useful,
                recommended=candidate.same_release(self.recommended),
            )
            for candidate in self.details.candidates
        )

    @property
    def attackers(self) -> dict[str, Attack | StretchAttack]:
        """Attacks on the recommended release, by name; empty if there is no release.

        All run on the held-back part of the recording, but `learns the habits` on the whole. `strongest` is right most
        often. Epsilon bounds `knows the habits`, but not `learns the habits`. `about a stretch` knows all other days.
        """
        recommended = self.recommended
        attacks = {
            "strongest": recommended.attack,
            "knows the habits": recommended.known_chain,
            "learns the habits": recommended.learner,
            "about a stretch": recommended.stretch,
        }
        return {name: attack for name, attack in attacks.items() if attack is not None}

    def __repr__(self) -> str:
        return f"<Plan: {' '.join(self.verdict[:2])}>"

    def __str__(self) -> str:
        return plain_text(self.report)

    @property
    def report(self) -> Report:
        """The plan as lines and tables; as text it is `str(plan)`."""
        return [*self._kind.report(self.details, self.policy)]

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, *, truth: bool = False) -> str:
        """The plan as a fragment of HTML: sentences and pictures.

        Args:
            truth: Draw the recording beside the released values. It is private: do not store such a notebook.
        """
        pictures = []
        if isinstance(self.details, AutoPlan):
            if self.details.curves:
                pictures.append(errors_table(self.details, answer_words, percent))
            pictures += answer_pictures(self.details, truth=truth)
        usefulness, promise, *reasons = self.verdict
        sentences = f"<p><b>{escape(usefulness)}<br>{escape(promise)}</b></p>" + "".join(
            f"<p>{escape(sentence)}</p>" for sentence in reasons
        )
        return f'<div style="max-width:760px;font:12px system-ui">{sentences}{"".join(pictures)}</div>'

    def plot(self, *, truth: bool = False, ax: Axes | None = None) -> Axes:
        """Draw released values of the held-back part of the recording, with the band that holds 95 % of the answers.

        Args:
            truth: Draw the recording too. It is private: do not store such a picture.
            ax: Axes of matplotlib (default: new ones).

        Raises:
            FuguError: the plan recommends no windows, so there is nothing to draw.
            ModuleNotFoundError: matplotlib is not installed: `pip install 'fugu-edge[notebook]'`.
        """
        from matplotlib import pyplot

        if not isinstance(self.details, AutoPlan) or self.details.example is None:
            raise FuguError("there are no released shares to draw: the plan recommends no windows")
        axes = pyplot.subplots(figsize=(8.0, 3.0))[1] if ax is None else ax
        example, error_95 = self.details.example, self.recommended.error_95
        answer_indices = np.arange(len(example.released))
        state_names, blocks = self.details.states.discretiser.states, self.recommended.blocks
        labels = [", ".join(state_names[state] for state in states) for states in self.details.bins]
        for lane, label in enumerate(labels if blocks is None else blocks.labels):
            shares = example.released[:, lane]
            (line,) = axes.plot(answer_indices, shares, marker="o", label=f"released: {label}")
            axes.fill_between(answer_indices, shares - error_95, shares + error_95, alpha=0.2, color=line.get_color())
            if truth:
                true_shares, text_color = example.truth[:, lane], pyplot.rcParams["text.color"]
                axes.step(answer_indices, true_shares, where="mid", color=text_color, label="recording")
        axes.set(xlabel="answer", ylabel="share", ylim=(-0.05, 1.05))
        axes.legend()
        return axes

    def document(self) -> dict[str, Any]:
        """The plan as an object for JSON, without readings."""
        return self._kind.document(self.details, self.policy)

    def save(
        self,
        folder: str | Path,
        *,
        force: bool = False,
        not_private: bool = False,
        broker: Broker | None = None,
        sensor: Sequence[str] | None = None,
    ) -> tuple[Path, ...]:
        """Write the plan's files to a folder: `policy.json`, `agent.toml` and `plan.html`; return their paths.

        `plan.html` draws a part of the recording, so only its owner may read the file. Without a recommendation only
        the page is written.

        Args:
            folder: The folder; created if it does not exist.
            force: Overwrite a plan in the folder; the new policy replaces the old one.
            not_private: Write a plan whose `privacy` is none; its owner then writes the ceiling into `agent.toml`.
            broker: The agent's connection (default: port 1883 of this machine).
            sensor: TOML lines of the agent's sensor (default: a replay of the held-back part of the recording).

        Raises:
            FuguError: the folder holds a plan already, this plan is not private, or a file cannot be written.
            OSError: the folder cannot be made.
        """
        folder = Path(folder)
        if self.useful and not not_private:
            refuse_not_private(self.privacy)
        if not force:
            refuse_overwriting(folder)
        texts = {_PAGE: self.page()}
        if self.policy is not None:
            texts[_POLICY] = self.policy.to_json()
            if configuration := self.configuration(broker, sensor):
                texts[_AGENT] = configuration
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _POLICY).exists() and _POLICY in texts:
            old_policy = (folder / _POLICY).read_bytes()
            texts[_POLICY] = next_version(read_policy(texts[_POLICY]), old_policy).to_json()
        try:
            contents = {name: text.encode() for name, text in texts.items()}
        except UnicodeEncodeError:
            raise FuguError(f"{self.file} has a name that is not UTF-8: rename it") from None
        for name, content in contents.items():
            (write_secret if name == _PAGE else write_public)(folder / name, content)  # a page shows the recording
        for name in {_POLICY, _AGENT, _PAGE} - texts.keys():
            (folder / name).unlink(missing_ok=True)  # of the plan that is overwritten
        return tuple(folder / name for name in texts)

    def page(self) -> str:
        """The text of `plan.html`: the verdict, and pictures of the recording."""
        return self._kind.page(self.details, self.policy)

    def configuration(self, broker: Broker | None = None, sensor: Sequence[str] | None = None) -> str:
        """The text of `agent.toml`; "" without a policy, or without a file of places. Arguments as for `save`."""
        if self.policy is None or (isinstance(self.details, PlacePlan) and self.file is None):
            return ""
        return _agent_configuration(self.details, self.policy, self.file or Path(), _broker_keys(broker), sensor)


def _agent_configuration(
    plan: AutoPlan | PlacePlan,
    policy: AnyPolicy,
    recording: Path,
    broker: Mapping[str, object],
    sensor: Sequence[str] | None,
) -> str:
    """Write the text of `agent.toml`.

    `broker` holds the keys of the table `[broker]`. The default `sensor` replays what was held back of a recording.
    """
    recording_lines, rows_per_tick = list[str](), 1
    reading_rows: NDArray[np.int64] | None
    if isinstance(plan, PlacePlan):
        assert isinstance(policy, MeasurePolicy)
        facts, column = plan.traces.facts, ",".join(plan.traces.columns)
        reading_rows = plan.traces.row_indices if facts.replayable else None
        stream_epsilon, epsilon = float(policy.stream_loss.epsilon or 0.0), float(policy.epsilon)
        ceilings = [f"ceiling = {stream_epsilon!r}", f"measurement_ceiling = {epsilon!r}"]
    else:
        assert isinstance(policy, Policy)
        facts, reading_rows, ceiling = plan.readings.facts[0], plan.readings.rows, repr(float(policy.guarantee.epsilon))
        column = facts.column
        if plan.question.protect:
            ceiling = f"{{ epsilon = {ceiling}, seconds = {plan.question.protect} }}"
        ceilings = [f"ceiling = {ceiling}"]
        if plan.readings.changes:
            rows_per_tick = plan.recommended.every
            recording_lines = [
                f"time = {_toml_text(facts.time)}  # its rows are changes, each holds until the next",
                f"every = {policy.clock.period_us / 1e6!r}  # seconds",
            ]
        if facts.codes:
            recording_lines.append(f"missing_values = {_toml_text(facts.codes)}  # they are no readings")
    if facts.only:
        recording_lines.append(f"only = {_toml_text([f'{name}={cell}' for name, cell in facts.only])}")
    if sensor is None and reading_rows is None:
        sensor = ['kind = "stdin"  # for a trial: a reading a line; docs/deploy.md has the sensors of real devices']
    elif sensor is None and reading_rows is not None:
        sensor = [
            'kind = "replay"  # for a trial: a row a tick; docs/deploy.md has the sensors of real devices',
            f"file = {_toml_text(str(recording.resolve()))}",
            f"column = {_toml_text(column)}",
            *recording_lines,
            "loop = false  # a second time its readings would be told with new noise, beyond the promise",
            _held_back_line(reading_rows, plan.held_back, rows_per_tick),
        ]
    if privacy_of(plan.question.epsilon) == "none":
        ceilings = [f"# Not private: write the ceiling yourself if you accept that.\n# {line}" for line in ceilings]
    head_lines = toml_lines({"fleet": policy.fleet, "device": policy.device, "outbox": "outbox.sqlite"})
    stream_lines = ["", "[[streams]]", f"policy = {_toml_text(_POLICY)}", "", "[streams.sensor]", *(sensor or ()), ""]
    return "\n".join([*head_lines, *ceilings, "", "[broker]", *toml_lines(broker), *stream_lines])


def _held_back_line(reading_rows: NDArray[np.int64], held_back: NDArray[np.int64], rows_per_tick: int) -> str:
    """Write the TOML line `rows`: spans of the file's rows, or of ticks, in which all readings are held back.

    `reading_rows` (n,) is the row of each reading, -1 if no row holds it; `rows_per_tick` is for the agent's ticks.
    """
    is_used = np.ones(len(reading_rows), dtype=bool)
    is_used[held_back] = False
    held_rows, used_rows = (np.unique(reading_rows[mask & (reading_rows >= 0)]) for mask in (~is_used, is_used))
    held_rows = np.setdiff1d(held_rows, used_rows)
    runs = np.split(held_rows, np.flatnonzero(np.diff(np.searchsorted(used_rows, held_rows))) + 1)
    spans = [(-(-int(run[0]) // rows_per_tick), int(run[-1]) // rows_per_tick + 1) for run in runs]
    spans_text = json.dumps([(first_tick, end_tick) for first_tick, end_tick in spans if first_tick < end_tick])
    return f"rows = {spans_text}  # held back: nothing was chosen by them"


def refuse_not_private(privacy: Privacy) -> None:
    """Raise a FuguError if a plan is of the class `none`."""
    if privacy == "none":
        raise FuguError(f"not private: ask for an epsilon of {LARGEST_PROTECTED:g} or less, or add --not-private")


def refuse_overwriting(folder: Path) -> None:
    """Raise a FuguError if a folder holds a plan."""
    if any((folder / name).exists() for name in (_POLICY, _AGENT, _PAGE)):
        raise FuguError(f"{folder} holds a plan already: name another folder, or add --force to overwrite it")


def _broker_keys(broker: Broker | None) -> dict[str, object]:
    """The table `[broker]`: host, port, and the other keys that differ from the default; paths are absolute."""
    broker = broker or Broker()
    defaults = {broker_field.name: broker_field.default for broker_field in fields(broker)}
    changed_keys = {name: getattr(broker, name) for name in defaults if getattr(broker, name) != defaults[name]}
    paths = {name: str(Path(str(changed_keys[name])).resolve()) for name in Broker.FILES if name in changed_keys}
    return {"host": broker.host, "port": broker.port, **changed_keys, **paths}


def target_of(fleet: str, device: str, stream: str | None, epoch: float | None = None) -> Target:
    """Name the stream that a plan is for, and the time of tick 0 in Unix seconds (`None`: now).

    TopicError: a topic cannot hold a name. UsageError: tick 0 is before 1970, or later than zones can be computed for.
    """
    topic_of("symbols", fleet, device, stream or "readings")
    if "+" in (fleet, device, stream):
        raise TopicError("a policy is of one stream of one device: '+' is no name")
    if epoch is not None and not 0.0 <= epoch <= _LATEST_EPOCH:
        raise UsageError(f"--epoch must be Unix seconds from 0 to {_LATEST_EPOCH}, got {epoch:g}")
    return Target(fleet, device, stream, epoch)


def plan(
    recording: Source | Sequence[Source],
    question: Want | None = None,
    epsilon: float = 1.0,
    *,
    protect: str | float | None = None,
    column: str | None = None,
    time: str | None = None,
    only: Mapping[str, str] | str | None = None,
    zone: str | None = None,
    missing_values: Sequence[str | float] | None = None,
    rows: str | None = None,
    period: float | None = None,
    gap: str | None = None,
    as_it_is: Sequence[str] = (),
    fleet: str = "home",
    device: str = "device-1",
    stream: str | None = None,
    seed: int = 1,
    **options: Any,
) -> Plan:
    """Plan what a device may release of readings like those of the recording, and how useful the release is.

    NaN and None are missing readings. Columns, and rows that are out of order or share a time, are treated as in a CSV
    file.

    Args:
        recording: A path, a pandas Series or DataFrame, or a numpy array; a list of several people's recordings.
        question: "now" (the state), "share" (of time), "histogram" (of states), "profile" (of the parts of a day),
            "place"; by default the question that suits the readings.
        epsilon: The largest loss, in nats, about any stretch of length `protect`: see `epsilon_to_odds`.
        protect: A time as "10m" or "1h", or seconds; "tick" for a single reading. By default 10 minutes where ticks
            are 30 s or more apart, else a tick.
        column: Column of the readings, where there are several.
        time: Column of the times, with their unit if it is not recognised, as "time:ms".
        only: Cells that a row must have to be read, as {"sensor": "hall"}.
        zone: Zone of times without a zone, as "Europe/Berlin".
        missing_values: Cells that count as missing readings, as -127 and 85.
        rows: What rows are: "events", "samples" or "changes".
        period: Seconds from row to row, if there are no times; for a log of changes, seconds between samples.
        gap: Longest time for which a value of a log of changes holds, as "8h".
        as_it_is: Names of rules that do not ask, but read the recording as it is.
        fleet: Fleet of the policy.
        device: Device of the policy.
        stream: Stream of the policy (default: named after the column).
        seed: Seed of the simulated devices.
        options: `baseline`, `threshold`, `states`, `within`, `adversary`, `devices`, `latency`, `blocks`, `days`,
            `window`, `missing`, `cell`: the options of `fugu plan auto`, with the same words.

    Raises:
        QuestionError: the recording can be read in more than one way; its `options` are the answers.
        FuguError: the recording does not fit, or cannot answer the question. One line says what to do.
    """
    with python_call(plan, options, option_names(question_of)):
        parsed_question = question_of(question, epsilon, protect, **options)
        reading_options = read_options(
            time=time,
            column=column,
            only=only,
            zone=zone,
            missing_values=missing_values,
            rows=rows,
            period=period,
            gap=gap,
            as_it_is=as_it_is,
            day_parts=parsed_question.profile_zone,
        )
        target = target_of(fleet, device, stream)
        return planner(source_list(recording), parsed_question, target, reading_options)(parsed_question, seed=seed)


def planner(sources: Sequence[Source], question: Question, target: Target, options: ReadOptions) -> Planner:
    """Read recordings once and return a function that plans from them for one question after another.

    The `question` decides whether the recordings are read as readings or as places. Errors as for `plan`.
    """
    file = Path(sources[0]) if isinstance(sources[0], str | Path) else None
    tables = [recording_table(source, options) for source in sources]
    compute_details: Callable[..., AutoPlan | PlacePlan]
    facts: tuple[Facts, ...]
    if question.of_places(tables[0], options.column or options.time):
        if len(sources) > 1:
            raise UsageError("a plan for places takes one recording")
        traces = read_places(tables[0], options)
        facts, source, compute_details = (traces[0].facts,), traces[0].source, partial(plan_places, *traces)
    else:
        readings = readings_of(tables, options)
        facts, source, compute_details = readings.facts, readings.source, partial(plan_auto, readings)

    def make_plan(new_question: Question, seed: int = 1, **progress: Any) -> Plan:
        try:
            return Plan(compute_details(new_question, np.random.default_rng(seed), **progress), file, target)
        except TooShortError as error:
            error.lines = tuple(line for fact in facts for line in summary(source, fact))
            raise

    return make_plan


def question_of(
    want: str | None,
    epsilon: float,
    protect: str | float | None,
    *,
    baseline: str | float | None = None,
    threshold: float | None = None,
    states: str | Sequence[str] | None = None,
    within: str | float | None = None,
    adversary: str = "universal",
    devices: int = 1,
    latency: str | None = None,
    blocks: str = "",
    days: int | None = None,
    window: str | float | None = None,
    missing: str | None = None,
    cell: float | None = None,
) -> Question:
    """Read a question from the words of a command line or a program.

    UsageError: a word cannot be read. FuguError: a number is out of range, or two options contradict each other.
    """
    baseline_length, is_baseline_time = (None, False) if baseline is None else arguments.span(str(baseline), "baseline")
    for name, count in (("devices", devices), ("days", 1 if days is None else days)):
        if not isinstance(count, Integral) or count < 1:
            raise UsageError(f"{name} must be a whole number above 0, got {count!r}")
    error_limit = None
    if within is not None:
        is_percent = str(within).endswith("%")
        error_limit = arguments.positive(arguments.number(str(within).removesuffix("%"), "within"), "within")
        error_limit /= 100.0 if is_percent else 1.0
        if error_limit >= 1.0:
            raise FuguError(f"within is a share, as 5% or 0.05, got {within!r}")
    latency_seconds = None
    if latency is not None:
        latency_seconds, is_latency_time = arguments.span(str(latency), "latency")
        if not is_latency_time:
            raise UsageError("latency is a time, as 30s, 10m or 1h")
    window_length, is_length_time = (None, False) if window is None else arguments.span(str(window), "window")
    state_names = states.split(",") if isinstance(states, str) else states
    return Question(
        epsilon=arguments.positive(
            epsilon if isinstance(epsilon, int | float) else arguments.number(str(epsilon), "epsilon"), "epsilon"
        ),
        want=None if want is None else arguments.one_of(want, "want", _WANTS),
        baseline=baseline_length,
        baseline_is_time=is_baseline_time,
        threshold=None if threshold is None else arguments.number(str(threshold), "threshold"),
        states=None if state_names is None else tuple(str(name).strip() for name in state_names),
        within=error_limit,
        adversary=arguments.adversary(adversary),
        devices=devices,
        latency_seconds=latency_seconds,
        blocks=blocks,
        days=days,
        protect=arguments.protected(None if protect is None else str(protect)),
        missing=None if missing is None else arguments.one_of(missing, "missing", _MISSING),
        cell=None if cell is None else arguments.positive(float(cell), "cell"),
        window=window_length,
        window_is_time=is_length_time,
    )
