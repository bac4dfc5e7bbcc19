"""A rollout as JSON, and as a table that may be live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from fugu.cli.view.fleet import counted, moment_text
from fugu.cli.view.terminal import console, table
from gateway.fleet import Registry, Rollout, RolloutPlan, Rollouts, Stage
from gateway.fleet.rollout import ACTIVE, StageCounts

__all__ = ["rollout_document", "show_plan", "show_rollout", "watch"]

_COLUMNS = ("stage", "goes on at", "gate", "devices", "unoffered", *("pending", "accepted", "refused", "failed"))
_STYLES = {"running": "bold", "waiting": "bold yellow", "stopped": "bold red", "completed": "bold green"}


def rollout_document(registry: Registry, number: int) -> dict[str, Any]:
    """A rollout as JSON; times are microseconds of Unix time."""
    rollouts = Rollouts(registry)
    with registry.snapshot():
        found, back = rollouts.show(number), rollouts.way_back(number).devices
    plan, state = found.plan, found.state
    return {
        "rollout": number,
        "version": plan.version,
        "phase": state.phase,
        "cause": state.cause,
        "stage": state.stage + 1,
        "error": float(plan.error),
        "pace": plan.pace,
        "patience_seconds": plan.patience_seconds,
        "seed": plan.seed,
        "created_us": found.created_us,
        "ended_us": found.ended_us,
        "stages": [
            {
                "of": _reach(stage),
                "success": float(stage.success),
                "gate": stage.gate,
                **(found.tallies[i]._asdict() if i < len(found.tallies) else {}),
            }
            for i, stage in enumerate(plan.stages)
        ],
        "way_back": [{"former": former, "devices": names} for former, names in back.items()],
    }


def show_rollout(registry: Registry, number: int) -> None:
    """Print a rollout."""
    console().print(_rendered(registry, number))


def show_plan(plan: RolloutPlan, stages: tuple[tuple[str, ...], ...]) -> None:
    """Print who would get a document in which stage."""
    rows = table(f"Rollout of version {plan.version}, as it would be", ("stage", "goes on at", "gate", "devices", ""))
    for i, (stage, names) in enumerate(zip(plan.stages, stages, strict=True)):
        first = " ".join(names[:6]) + (" ..." if len(names) > 6 else "")
        rows.add_row(*_stage(i, stage), str(len(names)), first)
    console().print(rows, _plan(plan))


def watch(registry: Registry, number: int, interval: float, sleep: Callable[[float], None] = time.sleep) -> str:
    """Show a rollout until it has ended; on a pipe, one line whenever something has changed.

    Returns:
        The phase that it has ended in.
    """
    rollouts = Rollouts(registry)
    if not sys.stdout.isatty():
        said = ""
        while True:
            found = rollouts.show(number)
            if (line := _line(found)) != said:
                print(said := line, flush=True)
            if found.state.phase not in ACTIVE:
                return found.state.phase
            sleep(interval)
    with Live(_rendered(registry, number), auto_refresh=False) as live:
        while (phase := rollouts.show(number).state.phase) in ACTIVE:
            sleep(interval)
            live.update(_rendered(registry, number), refresh=True)
        live.update(_rendered(registry, number), refresh=True)
    return phase


def _rendered(registry: Registry, number: int) -> Group:
    rollouts = Rollouts(registry)
    with registry.snapshot():
        found, back = rollouts.show(number), rollouts.way_back(number).devices
    plan, state = found.plan, found.state
    rows = table(f"Rollout {number} of version {plan.version}", (*_COLUMNS, "silent", "absent"))
    for i, stage in enumerate(plan.stages):
        count = found.tallies[i] if i < len(found.tallies) else StageCounts()
        numbers = (count.size, count.unoffered, count.pending, count.accepted, count.refused, count.failed)
        now = state.phase in ACTIVE and i == state.stage
        rows.add_row(
            *_stage(i, stage), *map(str, (*numbers, count.silent, count.absent)), style="bold" if now else None
        )
    ended = "" if found.ended_us is None else f" at {moment_text(found.ended_us)} UTC"
    cause = f": {state.cause}" if state.cause else ""
    lines = [_plan(plan), Text(f"{state.phase}{ended}{cause}", style=_STYLES.get(state.phase, ""))]
    if state.phase in ("stopped", "aborted"):
        lines += [Text(_way_back(former, len(names))) for former, names in back.items()]
    return Group(rows, *lines)


def _way_back(former: int | None, count: int) -> str:
    devices = counted(count)
    if former is None:
        return f"{devices} had no document before: sign one for them without this content"
    return f"{devices} had version {former}: the way back is 'fugu fleet sign --restores {former}', then push"


def _plan(plan: RolloutPlan) -> Text:
    seed = f", seed {plan.seed}" if plan.seed else ""
    return Text(
        f"Stops at {100 * float(plan.error):g} % errors; {plan.pace} devices a minute; "
        f"{plan.patience_seconds} s to answer{seed}."
    )


def _line(found: Rollout) -> str:
    total = [sum(column) for column in zip(*found.tallies, strict=True)] or [0] * len(StageCounts._fields)
    count = StageCounts(*total)
    cause = f" ({found.state.cause})" if found.state.cause else ""
    return (
        f"{found.state.phase}{cause}: stage {found.state.stage + 1} of {len(found.plan.stages)}, "
        f"{count.accepted} of {count.size} accepted, {count.errors} errors"
    )


def _stage(index: int, stage: Stage) -> tuple[str, str, str]:
    return (f"{index + 1}: {_reach(stage)}", f"{100 * float(stage.success):g} %", "gate" if stage.gate else "")


def _reach(stage: Stage) -> str:
    return f"group {stage.group}" if stage.share is None else f"{100 * float(stage.share):g} %"
