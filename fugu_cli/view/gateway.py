"""The state of a running gateway, rows of its store, and learned classes, as tables and sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import permutations
from typing import TYPE_CHECKING, Any

from fugu.host.checks import shortened_names
from fugu.library.report import Line, Report, Result, Table

if TYPE_CHECKING:
    from fugu.privacy.learned_class import LearnedModel
    from gateway.estimates.history import Row

__all__ = ["chains_result", "print_history", "show_status"]

_MOST_DEVICES = 30


def show_status(status: Mapping[str, Any]) -> Report:
    """Show the status of a gateway: alarms, the devices whose last frame is oldest, next releases and counters."""
    problem = f"no connection to the broker ({status['connection']})" if status["connection"] else "not connected"
    link = "connected to the broker" if status["connected"] else problem
    process = f" ({status['process']} alone)" if "process" in status else ""
    yield Line(f"gateway of fleet {status['fleet']}{process}: up for {_span(status['uptime_seconds'])}, {link}")
    yield Line(
        f"store of {status['store_bytes'] / 1e6:.1f} MB; {status['inbox']} messages and {status['estimates_waiting']} "
        f"estimates wait; the last round of work was {_span(status['worker_round_seconds'])} ago"
    )
    if missing_parts := status.get("missing"):
        yield Line(f"missing: {', '.join(missing_parts)}")
    if status["alarms"]:
        alarms_by_kind: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for alarm in status["alarms"]:
            alarms_by_kind.setdefault((alarm["code"], alarm["detail"], alarm["advice"]), []).append(alarm)
        for (code, reason, advice), alarms in alarms_by_kind.items():
            names = shortened_names([alarm["name"] for alarm in alarms if alarm["name"]])
            cause = f" ({reason})" if reason else ""
            since_time = datetime.fromtimestamp(min(alarm["since"] for alarm in alarms), UTC)
            count_words = f"{sum(alarm['count'] for alarm in alarms)} x since {since_time:%Y-%m-%d %H:%M:%S} UTC"
            yield Line(f"ALARM {code}{names and f' {names}'}{cause}, {count_words}: {advice}", bold=True)
    else:
        yield Line("no alarms")
    ages = {name: device["seconds_since_frame"] for name, device in status["devices"].items()}
    devices = sorted(ages, key=lambda name: float("inf") if ages[name] is None else ages[name], reverse=True)
    oldest = devices[:_MOST_DEVICES]
    device_rows = [(name, _span(ages[name]), _span(status["devices"][name]["seconds_behind"])) for name in oldest]
    yield Table(f"{len(devices)} devices", ("device", "last frame", "behind"), device_rows)
    if len(devices) > _MOST_DEVICES:
        yield Line(f"Those whose last frame is oldest, {_MOST_DEVICES} of {len(devices)}; --json shows all.")
    if status["next_releases"]:
        next_releases = status["next_releases"].items()
        yield Table("Next releases", ("release", "first tick"), [(name, str(tick)) for name, tick in next_releases])
    yield Table("Counters", ("counter", ""), [(name, str(count)) for name, count in status["counters"].items()])


def _span(seconds: float | None) -> str:
    """Return a duration in the largest unit that it has twice or more; "never" for None."""
    if seconds is None:
        return "never"
    for unit, unit_seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * unit_seconds:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds:.0f} s"


def print_history(as_json: bool, row: Row) -> None:
    """Print the estimate of a tick on a line, as text or JSON."""
    from gateway.estimates.history import StateRow

    if as_json:
        kind = "estimate" if isinstance(row, StateRow) else "measurement"
        print(json.dumps({"kind": kind, **row._asdict()}, separators=(",", ":")))
        return
    position = f"{row.device}/{row.stream} tick {row.tick}"
    if isinstance(row, StateRow):
        probabilities = " ".join(f"{p:.4f}" for p in row.probabilities)
        print(f"{position}: most likely state {row.most_likely}, probabilities {probabilities}")
        return
    lag_words = f", {row.lag} ticks later" if row.lag else ""
    print(f"{position}{lag_words}: measurement {_numbers_text(row.mean)}, covariance {_numbers_text(row.covariance)}")


def _numbers_text(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def chains_result(model: LearnedModel) -> Result:
    """Show a learned class: its chain, and the stretches that widen it; exit code 1 if it was refused."""
    code, warnings = (0, ()) if model.refused is None else (1, (f"no class: {model.refused}",))
    return Result(model.to_json(), _learned_parts(model), code, warnings)


def _learned_parts(model: LearnedModel) -> Report:
    state_names = model.discretiser.states
    step_rows = [
        (
            f"{state_names[from_state]} to {state_names[to_state]}",
            f"{model.transition[from_state][to_state]:.6g}",
            f"{model.low[from_state][to_state]:.6g} to {model.high[from_state][to_state]:.6g}",
        )
        for from_state, to_state in permutations(range(model.states), 2)
    ]
    yield Line(f"Learned from {model.words}.")
    yield Table("The chain of all symbols", ("step", "probability", "each end with 90 %"), step_rows)
    scale_rows = [
        (f"{scale.ticks}", f"{scale.stretches}", f"{scale.odds_ratio:.4g}", f"{scale.p_value:.2g}")
        for scale in model.scales
    ]
    columns = ("ticks", "stretches", "odds ratio of all but 2 %", "p if the chain does not change")
    yield Table(f"Stretches (the chain itself has the odds ratio {model.known:.4g})", columns, scale_rows)
