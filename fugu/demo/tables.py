"""The tables that the demo ends with in the terminal."""

from __future__ import annotations

from fractions import Fraction

from rich.console import RenderableType
from rich.table import Table

from fugu.demo.counts import LedgerLines
from fugu.demo.evaluation import Result
from fugu.view.terminal import table as rich_table

__all__ = ["attack_table", "ledger_text", "release_table", "window_table"]


def attack_table(result: Result) -> Table:
    """What attackers got, for each device."""
    table = rich_table(
        "How often an attacker who uses the correlation guesses a reading right",
        ("device", "ε", "guess", "promise", "ordinary", "real ε", "ours", "ceiling", "gateway"),
        "guess: always the more frequent state. promise: the most that epsilon allows. ordinary: against "
        "ordinary randomised response at that epsilon, whose real one comes next. ours: against Fugu Edge, with the "
        "proven ceiling. gateway: how often its own estimate is right.",
    )
    for device in result.devices:
        a = device.attack
        colour = "red" if a.ordinary > a.promised else "green"
        table.add_row(
            *(device.person.name, f"{device.person.epsilon:g}", f"{a.majority:.3f}", f"{a.promised:.3f}"),
            *(f"[{colour}]{a.ordinary:.3f}[/]", f"{a.ordinary_epsilon:.2f}", f"[green]{a.ours:.3f}[/]"),
            *(f"{a.ceiling:.3f}", f"{device.honest:.3f}"),
        )
    return table


def window_table(result: Result) -> RenderableType:
    """How far the devices' own counts were from the truth."""
    length = result.devices[0].windows.length
    table = rich_table(
        f"How far the devices' noisy counts of {length} heartbeats are from the truth",
        ("device", "ε", "windows", "scale", "error", "error %", "expected %", "quilts %", "group DP %"),
        "ε: of the windows alone. error: mean absolute error of the counts, in heartbeats and in percent of a window. "
        "expected: of such noise. quilts, group DP: expected of Markov quilts, and of protecting a window's "
        "heartbeats as one, at the same ε.",
    )
    for device in result.devices:
        w = device.windows
        mean = ("none", "") if w.mean is None else (f"{w.mean:.1f}", f"[green]{w.percent(w.mean):.1f}[/]")
        table.add_row(
            *(device.person.name, f"{w.guarantee.epsilon:g}", f"{len(w.errors)}", w.scale, *mean),
            *(f"{w.percent(ticks):.1f}" for ticks in (w.expected, w.quilts, w.group)),
        )
    return table


def release_table(result: Result) -> RenderableType:
    """How far the gateway's releases were from the truth."""
    if not result.releases:
        return "The gateway made no release: no window of all devices was over in time."
    frame = result.releases[0].frame
    table = rich_table(
        f"The gateway's counts of {frame.devices} times {frame.length} heartbeats, from symbols",
        ("entry", "heartbeats", "value", "95 % interval", "truth", "error", "scale"),
        f"Charged to the ledger of audience {frame.audience}: ε {frame.epsilon:g} over everything that it sees, "
        f"adversary {frame.adversary}. Most of the error is the randomness of the symbols.",
    )
    for release in result.releases:
        f = release.frame
        colour = "green" if release.inside else "red"
        table.add_row(
            *(f"{f.entry}", f"{f.first}..{f.last}", f"{f.values[0]:.0f}", f"{f.low[0]:.0f}..{f.high[0]:.0f}"),
            *(f"{release.truth}", f"[{colour}]{release.error:+.0f}[/]", f"{float(Fraction(f.scale)):.3g}"),
        )
    return table


def ledger_text(lines: LedgerLines) -> str:
    """The ledger's state, a line for each device."""
    return "\n  ".join((f"{lines.summary}:", *lines.devices))
