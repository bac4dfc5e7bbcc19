"""Pictures as SVG text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["points", "svg"]


def svg(title: str, size: tuple[float, float], parts: Iterable[str], *, style: str = "", shown: str = "") -> str:
    """An element of this width and height, whose title is for screen readers as well; one with a style is on white."""
    width, height = size
    white = f'<rect class="paper" width="{width}" height="{height}" fill="#fff"/>' if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"{shown and " " + shown} role="img">'
        f"<title>{escape(title)}</title>{style}{white}{''.join(parts)}</svg>"
    )


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places one after the other, as in a path or a polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
