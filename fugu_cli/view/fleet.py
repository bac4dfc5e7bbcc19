"""A fleet's registry as JSON, tables and sentences, with warnings before devices get a document."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.live import Live

from fugu.contract.fleet_documents import Enrolment, PolicyDocument
from fugu.host.checks import shortened_names
from fugu.library.guarantee import stretch_documents, stretch_table
from fugu.library.report import JsonObject, Line, Report, Result, Table, newest_rows
from fugu_cli.view.terminal import render, warn, working
from gateway.fleet.documents import read_checked, rollouts_at
from gateway.fleet.entries import Event, Refusal, RolloutPlan, Stage
from gateway.fleet.registry import Device, Registry
from gateway.fleet.rollouts import ACTIVE, Rollout, Rollouts, StageCounts
from gateway.fleet.signing import Signed, StreamPromise, content_lines, weaker_promises

if TYPE_CHECKING:
    from gateway.fleet.documents import Change, StreamChange, Worth

__all__ = [
    "content_document",
    "content_report",
    "device_count",
    "device_document",
    "device_report",
    "dry_run",
    "event_report",
    "every_entry",
    "moment_text",
    "read_document",
    "refusal_report",
    "rollout_result",
    "state_of",
    "warn_of_rollouts",
    "watch",
]

_PAGE = 1000
_LOOK_SECONDS = 1.0
_MOST_SHOWN = 300
_Entry = TypeVar("_Entry", "Event", "Refusal")


def every_entry(read_page: Callable[..., Sequence[_Entry]]) -> Iterator[_Entry]:
    """Yield all entries of a list that `read_page` reads in pages, oldest first."""
    last_number = 0
    while entries := read_page(last_number=last_number, limit=_PAGE):
        yield from entries
        last_number = entries[-1].number


def moment_text(time_us: int) -> str:
    """Return a Unix time in microseconds as text, in UTC."""
    return datetime.fromtimestamp(time_us // 10**6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def device_count(count: int) -> str:
    """Return a number of devices in words."""
    return "1 device" if count == 1 else f"{count} devices"


def state_of(device: Device) -> str:
    """Return the rollout state of a device in a word or two."""
    desired, reported = device.desired, device.reported
    if desired is None:
        return "stale" if reported is not None and reported.stale else "nothing to do"
    if reported is not None and reported.version == desired.version and reported.outcome != "accepted":
        return reported.outcome
    if reported is not None and (reported.in_force or 0) >= desired.version:
        return "stale" if reported.stale else "up to date"
    return "sent" if desired.published else "to be sent"


def read_document(path: Path, root: Path, enrolments: Sequence[Enrolment] = ()) -> Signed:
    """Read a document, and check it as the devices will; warn if it is valid only later.

    FuguError names the file: too few policy keys have signed it, or no device would ever accept it.
    """
    with working(f"checking {path.name}"):
        signed, is_valid_now = read_checked(path, root, int(time.time()), enrolments)
    if not is_valid_now:
        warn(f"{path}: valid from {signed.document.valid_from} on; devices refuse it until then, then take it")
    return signed


def warn_of_rollouts(registry: Registry, devices: Sequence[str]) -> None:
    """Warn of active rollouts at some devices: a push does not wait for their stages and gates."""
    for rollout_number in rollouts_at(registry, devices):
        warn(f"rollout {rollout_number} is under way at some of these devices: a push does not wait for its stages")


def device_document(device: Device, refusal: Refusal | None) -> JsonObject:
    """Return a device as JSON; times are microseconds of Unix time."""
    desired, reported = device.desired, device.reported
    return {
        "device": device.name,
        "groups": sorted(device.groups),
        "online": device.online,
        "last_seen_us": device.last_seen_us or None,
        "agent_version": device.agent_version,
        "outbox_depth": device.outbox_depth,
        "codes": device.codes.split(),
        "desired": None if desired is None else desired.version,
        "published": desired is not None and desired.published,
        "in_force": None if reported is None else reported.in_force,
        "stale": reported is not None and reported.stale,
        "state": state_of(device),
        "refusal": None if refusal is None else refusal._asdict(),
    }


def device_report(devices: Sequence[Device], refusals: dict[str, Refusal], gateway: bool | None) -> Report:
    """Show devices and the counts of their states, and warn if no gateway runs here (`gateway` is None if unknown)."""
    device_rows = []
    for device in devices:
        refusal = refusals.get(device.name)
        document = device_document(device, refusal)
        reason = "" if refusal is None else f"{refusal.version}: {refusal.reason}"
        last_seen = moment_text(device.last_seen_us) if device.last_seen_us else "never seen"
        versions = ("-" if document[name] is None else str(document[name]) for name in ("desired", "in_force"))
        seen_words = "online" if device.online else last_seen
        groups = " ".join(document["groups"])
        device_rows.append((device.name, groups, seen_words, *versions, document["state"], reason))
    columns = ("device", "groups", "seen (UTC)", "wanted", "in force", "state", "last refusal")
    yield Table("Devices", columns, device_rows)
    count_by_state = Counter(state_of(device) for device in devices)
    state_counts = [f"{sum(device.online for device in devices)} online"]
    state_counts += [f"{count} {state}" for state, count in sorted(count_by_state.items())]
    yield Line(f"{device_count(len(devices))}: {', '.join(state_counts)}.")
    if gateway is False:
        yield Line(
            "No gateway runs with this registry here: nothing is sent to devices, and what they say is not heard."
        )


def event_report(events: Sequence[Event]) -> Report:
    """Show the newest events."""
    rows = [
        (str(event.number), moment_text(event.time_us), event.who, event.what, event.subject, _shortened(event.detail))
        for event in events
    ]
    return newest_rows(Table("History", ("", "when (UTC)", "who", "what", "of", "detail"), rows))


def refusal_report(refusals: Sequence[Refusal]) -> Report:
    """Show the newest refusals."""
    rows = [
        (str(entry_number), moment_text(time_us), device, str(version), outcome, reason)
        for entry_number, time_us, device, version, outcome, reason in refusals
    ]
    return newest_rows(Table("Refusals", ("", "when (UTC)", "device", "version", "what", "reason"), rows))


def content_document(document: PolicyDocument, previous: PolicyDocument | None) -> JsonObject:
    """Return the content of a document as JSON, beside that of the previous document."""
    return {
        "content": content_lines(document),
        "former": None if previous is None else previous.version,
        "former_content": None if previous is None else content_lines(previous),
        "weaker": [] if previous is None else weaker_promises(previous, document),
    }


def content_report(document: PolicyDocument, previous: PolicyDocument | None) -> Report:
    """Show the content of a document, and where the previous document differs."""
    new_content, old_content = content_lines(document), {} if previous is None else content_lines(previous)
    content_rows = []
    for name in dict.fromkeys((*new_content, *old_content)):
        length = sys.maxsize if "discretiser" in name else _MOST_SHOWN  # of a table or a chain a part is shown
        new_text, old_text = (_shortened(content.get(name, "-"), length) for content in (new_content, old_content))
        is_same = new_content.get(name) == old_content.get(name)
        content_rows.append((name, new_text, "same" if is_same else f"{old_text} CHANGED" if old_content else ""))
    former_words = "no version before it is known" if previous is None else f"version {previous.version}"
    yield Table(f"What version {document.version} says", ("", "is to be", former_words), content_rows)


def dry_run(
    document: PolicyDocument,
    previous: PolicyDocument | None,
    changes: Sequence[Change],
    plan: RolloutPlan | None,
    stages: Sequence[Sequence[str]],
) -> Result:
    """Show the changes on devices that would get a document, and for a rollout the devices of each stage."""
    result_fields = {**_changes_document(changes, document.version), **content_document(document, previous)}
    report = [*content_report(document, previous), *_show_changes(changes, document.version)]
    if plan is not None:
        result_fields["stages"] = stages
        report = [*_show_plan(plan, stages), *report]
    return Result(result_fields, report, warnings=result_fields["weaker"])


def _changes_document(changes: Sequence[Change], version: int) -> JsonObject:

    def worth_document(worth: Worth | None) -> JsonObject | None:
        if worth is None:
            return None
        promise = worth.promise
        worth_fields = {"epsilon": promise.epsilon, "adversary": promise.adversary, **worth._asdict()}
        del worth_fields["promise"]
        return {**worth_fields, "stretch_ticks": promise.ticks, "stretches": stretch_documents(worth.stretches)}

    def stream_fields(stream: StreamChange) -> JsonObject:
        worth_documents = {"before": worth_document(stream.before), "after": worth_document(stream.after)}
        profile = {"open_profile_days": stream.open_profile} if stream.open_profile else {}
        return {**worth_documents, "other_ticks": stream.other_ticks, **profile}

    return {
        "version": version,
        "changes": [
            {
                "devices": change.devices,
                "former": change.former,
                "unknown": change.unknown,
                "streams": {stream.stream: stream_fields(stream) for stream in change.streams},
            }
            for change in changes
        ],
    }


def _show_changes(changes: Sequence[Change], version: int) -> Report:
    for change in changes:
        if change.former is not None and change.former >= version:
            yield Line(f"{_device_words(change.devices)}: has version {change.former} already; nothing changes.")
            continue
        former_words = "nothing" if change.former is None else f"version {change.former}"
        title = f"{_device_words(change.devices)}: from {former_words} to version {version}"
        columns = ("stream", "epsilon before", "after", "worth before", "after", "")
        yield Table(title, columns, [_stream_row(stream, change.unknown) for stream in change.streams])
        stretches = [(stretch, name) for name, _, after, *_ in change.streams if after for stretch in after.stretches]
        if stretches:
            yield stretch_table([stretch for stretch, _ in stretches], stream_names=[name for _, name in stretches])
        for stream in change.streams:
            for condition in stream.after.conditions if stream.after else ():
                yield Line(f"{stream.stream}: {condition}.")
            if stream.open_profile:
                yield Line(f"{stream.stream}: an open profile of {stream.open_profile:g} days ends without a release.")
        if change.unknown:
            yield Line(f"Version {change.former} is not in this registry: what it says of the streams is not known.")
    yield Line(
        "Worth: the share of ticks whose state the gateway's estimate finds, for a typical chain. For measured streams "
        "it is the error of a released point (root mean square), and epsilon is that of each point."
    )


def _stream_row(stream_change: StreamChange, is_unknown: bool) -> tuple[str, ...]:
    blank, (name, before, after, other_ticks, _) = "?" if is_unknown else "-", stream_change
    remark = "new" if before is None and not is_unknown else ""
    if after is None:
        remark = "ends"
    elif other_ticks:
        remark = "OTHER TICKS: refused"
    elif before is not None:
        remark = "same" if before == after else _change_remark(before.promise, after.promise)
    cells = ((cell_of(before) if before else blank, cell_of(after) if after else "-") for cell_of in (_epsilon, _worth))
    return (name, *chain.from_iterable(cells), remark)


def _change_remark(before: StreamPromise, after: StreamPromise) -> str:
    if before.kind != after.kind:
        return "another kind"
    loss_before, loss_after = before.loses(before), after.loses(before)  # about the stretch that was promised
    if loss_after != loss_before:
        return "MORE IS LOST" if loss_after > loss_before else "less is lost"
    return "another adversary" if before.adversary != after.adversary else ""


def _epsilon(worth: Worth) -> str:
    promise = worth.promise
    stretch_words = f" of {promise.ticks} ticks" if promise.ticks > 1 else ""
    return f"{promise.epsilon:g}{stretch_words} {promise.adversary}".strip()


def _worth(worth: Worth) -> str:
    if worth.accuracy is not None:
        return f"{100.0 * worth.accuracy:.1f} %"
    return "?" if worth.error is None else f"{worth.error:.4g} {worth.unit}".strip()


def _device_words(devices: Sequence[str]) -> str:
    if len(devices) == 1:
        return f"device {devices[0]}"
    return f"{len(devices)} devices ({shortened_names(devices)})"


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


_COLUMNS = ("stage", "goes on at", "gate", "devices", "unoffered", "pending", "accepted", "refused")


def rollout_result(registry: Registry, rollout_number: int) -> Result:
    """Show a rollout; times in JSON are microseconds of Unix time."""
    rollout = Rollouts(registry).show(rollout_number)
    plan, state = rollout.plan, rollout.state
    stages = [
        {"of": _scope(stage), "success": float(stage.success), "gate": stage.gate, **(tally._asdict() if tally else {})}
        for stage, tally in zip_longest(plan.stages, rollout.tallies)
    ]
    document = {
        "rollout": rollout_number,
        "version": plan.version,
        "phase": state.phase,
        "cause": state.cause,
        "stage": state.stage + 1,
        "error": float(plan.error),
        **{name: getattr(plan, name) for name in ("pace", "patience_seconds", "seed")},
        "created_us": rollout.created_us,
        "ended_us": rollout.ended_us,
        "stages": stages,
        "way_back": [{"former": former, "devices": names} for former, names in state.way_back().items()],
    }
    return Result(document, _rollout_parts(rollout, rollout_number))


def _show_plan(plan: RolloutPlan, stages: Sequence[Sequence[str]]) -> Report:
    stage_rows = []
    for index, (stage, device_names) in enumerate(zip(plan.stages, stages, strict=True)):
        first_names = " ".join(device_names[:6]) + (" ..." if len(device_names) > 6 else "")
        stage_rows.append((*_stage_cells(index, stage), str(len(device_names)), first_names))
    title = f"Rollout of version {plan.version}, as it would be"
    yield Table(title, ("stage", "goes on at", "gate", "devices", ""), stage_rows)
    yield _plan_line(plan)


def watch(registry: Registry, rollout_number: int, sleep: Callable[[float], None] = time.sleep) -> str:
    """Show a rollout until it has ended, in a pipe by a line at each change; return its last phase."""
    previous_line, is_terminal = "", sys.stdout.isatty()
    with Live(auto_refresh=False) if is_terminal else nullcontext() as live:
        while True:
            rollout = Rollouts(registry).show(rollout_number)
            if live is not None:
                live.update(render(_rollout_parts(rollout, rollout_number)), refresh=True)
            elif (line := _rollout_line(rollout)) != previous_line:
                print(previous_line := line, flush=True)
            if rollout.state.phase not in ACTIVE:
                return rollout.state.phase
            sleep(_LOOK_SECONDS)


def _rollout_parts(rollout: Rollout, rollout_number: int) -> Report:
    plan, state = rollout.plan, rollout.state
    stage_rows = []
    for index, (stage, tally) in enumerate(zip_longest(plan.stages, rollout.tallies)):
        counts = tally or StageCounts()
        device_counts = (counts.size, counts.unoffered, counts.pending, counts.accepted, counts.refused)
        stage_rows.append((*_stage_cells(index, stage), *map(str, (*device_counts, counts.silent, counts.absent))))
    yield Table(f"Rollout {rollout_number} of version {plan.version}", (*_COLUMNS, "silent", "absent"), stage_rows)
    end_words = "" if rollout.ended_us is None else f" at {moment_text(rollout.ended_us)} UTC"
    yield _plan_line(plan)
    yield Line(f"{state.phase}{end_words}{f': {state.cause}' if state.cause else ''}", bold=True)
    for version, device_names in state.way_back().items() if state.phase in ("stopped", "aborted") else ():
        restore_words = f"version {version}: the way back is 'fugu fleet sign --restores {version}', then push"
        if version is None:
            restore_words = "no document before: sign one for them without this content"
        yield Line(f"{device_count(len(device_names))} had {restore_words}")


def _plan_line(plan: RolloutPlan) -> Line:
    seed = f", seed {plan.seed}" if plan.seed else ""
    return Line(
        f"Stops at {100 * float(plan.error):g} % errors; {plan.pace} devices a minute; "
        f"{plan.patience_seconds} s to answer{seed}."
    )


def _rollout_line(rollout: Rollout) -> str:
    field_sums = [sum(column) for column in zip(*rollout.tallies, strict=True)] or [0] * len(StageCounts._fields)
    all_counts = StageCounts(*field_sums)
    cause = f" ({rollout.state.cause})" if rollout.state.cause else ""
    return (
        f"{rollout.state.phase}{cause}: stage {rollout.state.stage + 1} of {len(rollout.plan.stages)}, "
        f"{all_counts.accepted} of {all_counts.size} accepted, {all_counts.errors} errors"
    )


def _stage_cells(index: int, stage: Stage) -> tuple[str, str, str]:
    return (f"{index + 1}: {_scope(stage)}", f"{100 * float(stage.success):g} %", "gate" if stage.gate else "")


def _scope(stage: Stage) -> str:
    return f"group {stage.group}" if stage.share is None else f"{100 * float(stage.share):g} %"
