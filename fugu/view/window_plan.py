"""The noise of windows as JSON, or as a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fugu.view.stretches import STRETCH_COLUMNS, STRETCH_TITLE, stretch_documents, stretch_rows
from fugu.view.terminal import say, show_table
from gateway.planning.window_plan import PlannedNoise
from gateway.privacy.window_mechanisms import Mechanism, WindowRequest

__all__ = ["noise_document", "show_noise"]

_COLUMNS = ("mechanism", "scale", "about", "further windows", "determined by")


def show_noise(
    request: WindowRequest,
    notes: Sequence[str],
    found: Sequence[PlannedNoise],
    best: PlannedNoise,
    refused: Mapping[Mechanism, str] | None = None,
) -> None:
    """Print the noise of mechanisms.

    Args:
        request: what was planned.
        notes: how the class of chains came about.
        found: noise to show.
        best: the one whose stretches are shown.
        refused: why others cannot be had; none if only one was asked for.
    """
    for note in notes:
        say(note)
    span = "windows without end" if request.length is None else f"one window of {request.length} ticks"
    title = f"Noise for a {request.query} at epsilon {request.epsilon:g}, {request.adversary} adversary, {span}"
    show_table(title, _COLUMNS, [_row(each, least=refused is not None and each is best) for each in found])
    for other, why in (refused or {}).items():
        say(f"{other}: {why}", style="dim")
    show_table(f"{STRETCH_TITLE} ({best.noise.mechanism})", STRETCH_COLUMNS, stretch_rows(best.planned.stretches))
    say(
        "scale: of the Laplace noise on every number, in ticks, as a policy writes it. further windows: whether the "
        "same epsilon covers a stream of such windows that do not overlap."
    )
    if request.length is not None:
        say("with --endless instead of --length, chain and quilts compose, and a device's policy takes their scale.")
    elif best.planned.device is None:
        say("no policy can declare these chains with their start: a device cannot check this noise.")


def _row(each: PlannedNoise, *, least: bool = False) -> tuple[str, ...]:
    noise, planned = each
    name = f"{noise.mechanism} (least)" if least else noise.mechanism
    reason = noise.reason
    if planned.raised:
        reason += f"; raised from {noise.scale:.6g} to what a device accepts"
    return name, str(planned.scale), f"{float(planned.scale):.6g}", "yes" if noise.composes else "no", reason


def noise_document(request: WindowRequest, each: PlannedNoise) -> dict[str, Any]:
    """Noise as an object for JSON."""
    noise, planned = each
    return {
        "mechanism": noise.mechanism,
        "scale": str(planned.scale),
        "epsilon": noise.epsilon,
        "adversary": noise.adversary,
        "query": request.query,
        "length": request.length,
        "composes": noise.composes,
        "protects_correlated": noise.mechanism != "entry",
        "chains": None if planned.device is None else planned.device.model_dump(mode="json"),
        "stretches": stretch_documents(planned.stretches),
        "reason": noise.reason,
    }
