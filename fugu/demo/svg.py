"""The demo's two pictures, as SVG text: a stream over time, and the attackers against the promise."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["AttackBars", "attack_picture", "stream_picture"]

WIDTH = 900
_STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#222}
.small{font-size:11px;fill:#666}
.true{fill:none;stroke:#222;stroke-width:1.5}
.estimate{fill:none;stroke:#0a7d5a;stroke-width:1.8}
.bad{fill:#c0392b}.good{fill:#0a7d5a}.plain{fill:#b9c1c8}
.line{stroke:#222;stroke-width:1.5;stroke-dasharray:5 3}
</style>"""


class AttackBars(NamedTuple):
    """One device in the attackers' picture; all numbers are probabilities of success."""

    label: str
    promised: float
    ordinary: float
    ours: float
    ceiling: float


def stream_picture(
    title: str, states: Sequence[int], symbols: Sequence[int | None], estimates: Sequence[float | None]
) -> str:
    """True states, symbols and the gateway's estimate of consecutive ticks.

    Args:
        states: 0 or 1 for each tick.
        symbols: 0, 1, or none where there was no symbol.
        estimates: probability of state 1, or none where there is no estimate.
    """
    left, step = 130, (WIDTH - 140) / max(1, len(states))

    def x(tick: int) -> float:
        return left + tick * step

    lanes = {"true state": 30, "symbols sent": 95, "gateway's estimate": 130}
    parts = [_open(190, title), f'<text x="{left}" y="14">{escape(title)}</text>']
    for label, top in lanes.items():
        parts.append(f'<text class="small" x="4" y="{top + 24}">{label}</text>')
    path = "".join(
        f"{'M' if tick == 0 else 'L'}{x(tick):.1f} {65 - 30 * state}H{x(tick + 1):.1f}"
        for tick, state in enumerate(states)
    )
    parts.append(f'<path class="true" d="{path}"/>')
    for tick, symbol in enumerate(symbols):
        if symbol is not None:
            colour = "#2f6fb3" if symbol else "#dfe6ec"
            parts.append(
                f'<rect x="{x(tick):.1f}" y="105" width="{max(step - 0.3, 0.7):.1f}" height="16" fill="{colour}"/>'
            )
    drawn = [(x(tick + 0) + step / 2, 180 - 40 * p) for tick, p in enumerate(estimates) if p is not None]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in drawn)
    parts.append(f'<path d="M{left} 160H{WIDTH - 10}" stroke="#ccc"/><polyline class="estimate" points="{line}"/>')
    parts.append(
        f'<text class="small" x="{left - 20}" y="144">1</text><text class="small" x="{left - 20}" y="184">0</text>'
    )
    return "".join([*parts, "</svg>"])


def attack_picture(devices: Sequence[AttackBars]) -> str:
    """For each device the attacker's success against both mechanisms, beside what was promised."""
    title = "How often an attacker who uses the correlation guesses a reading right"
    left, span, row = 210, WIDTH - 290, 78
    parts = [_open(48 + row * len(devices), title), f'<text x="4" y="16">{title}</text>']

    def x(value: float) -> float:
        return left + (value - 0.5) / 0.5 * span

    for number, device in enumerate(devices):
        top = 34 + number * row
        parts.append(f'<text x="4" y="{top + 14}">{escape(device.label)}</text>')
        bars = (("ordinary randomised response", device.ordinary), ("Fugu Edge", device.ours))
        for place, (label, value) in enumerate(bars):
            y = top + 18 + place * 20
            kind = "good" if place else ("bad" if value > device.promised else "plain")
            parts.append(f'<text class="small" x="4" y="{y + 12}">{label}</text>')
            parts.append(
                f'<rect class="{kind}" x="{left}" y="{y}" width="{max(1.0, x(value) - left):.1f}" height="15"/>'
            )
            parts.append(f'<text class="small" x="{max(x(value), left) + 6:.1f}" y="{y + 12}">{value:.3f}</text>')
        at = x(device.promised)
        parts.append(f'<path class="line" d="M{at:.1f} {top + 10}V{top + 60}"/>')
        parts.append(
            f'<text class="small" x="{at + 4:.1f}" y="{top + 14}">promised at most {device.promised:.3f}</text>'
        )
    note = 42 + row * len(devices)
    parts.append(
        f'<text class="small" x="{left}" y="{note}">bars begin at one half, a guess without any knowledge</text>'
    )
    return "".join([*parts, "</svg>"])


def _open(height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%" role="img">'
        f"<title>{escape(title)}</title>{_STYLE}"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    )
