"""A recording to try, and how a page of a replay has to lie in its window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.lanes import Lane, Plot, levels_width
from tests.support.brokers import wait_until
from tests.support.browser import Browser

SECRET = "17.25"
"""A reading of the recording."""
LAYOUT = """
const shown = (one) => one.checkVisibility() && one.getClientRects().length;
const box = (one) => { const at = one.getBoundingClientRect(); return [at.left, at.top, at.right, at.bottom]; };
const root = document.documentElement;
const texts = [...document.querySelectorAll(".plot")].filter(shown).map((plot) => ({
  plot: box(plot), texts: [...plot.querySelectorAll("text")].map((one) => [box(one), one.textContent]),
}));
const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
const words = [...document.querySelectorAll("body *")].filter((one) => shown(one) && own(one));
return {
  beyond: root.scrollWidth - root.clientWidth, texts,
  lanes: [...document.querySelectorAll(".lane")].filter(shown).map(box),
  blocks: [...document.querySelectorAll("main > *")].filter(shown).map(box),
  small: words.filter((one) => parseFloat(getComputedStyle(one).fontSize) < 12).map((one) => one.textContent),
  clipped: words.filter((one) => !one.closest("svg, pre, select") && getComputedStyle(one).display !== "inline"
    && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent),
};
"""

MOST_WORDS = 170
_FIRST_SCREEN = """
for (const one of document.querySelectorAll("details")) one.open = false;
const all = [...document.querySelectorAll("body *")];
const seen = all.filter((one) => one.checkVisibility() && one.getBoundingClientRect().top < innerHeight);
const texts = seen.flatMap((one) => [...one.childNodes].filter((node) => node.nodeType === 3));
return texts.map((node) => node.data).join(" ");
"""
_PATHS = """
const paths = (lane) => [...lane.querySelectorAll("path.shape")].map((one) => one.getAttribute("d"));
return [...document.querySelectorAll(".lane")].map(paths);
"""


def check_first_screen(browser: Browser) -> None:
    """Fold what is folded at first: in a window of 900 pixels are few words to read."""
    shown = browser.run(_FIRST_SCREEN).split()
    words = [word for word in shown if any(map(str.isalnum, word))]
    assert 20 < len(words) <= MOST_WORDS, (len(words), words)


def check_points(browser: Browser, lanes: Sequence[Lane]) -> None:
    """Every shape that is drawn has the points that a file has, once a browser has drawn it for its width."""
    wait_until(lambda: not _others(browser, lanes), "the points of a file")


def _others(browser: Browser, lanes: Sequence[Lane]) -> list[tuple[str, str]]:
    """Lanes and looks of the shapes that have other points."""
    looks = []
    widths = browser.run("return [...document.querySelectorAll('.plot')].map((one) => one.parentNode.clientWidth)")
    for lane, width, paths in zip(lanes, widths, browser.run(_PATHS), strict=True):
        plot = Plot(lane, width, levels_width(lanes))
        if len(paths) != len(lane.shapes):  # of the picture before
            looks.append((lane.title, "all"))
        for shape, path in zip(lane.shapes, paths, strict=False):
            ours, theirs = ([float(x) for x in re.findall(r"[\d.]+", text)] for text in (plot.path(shape), path))
            if theirs != pytest.approx(ours, abs=0.11):
                looks.append((lane.title, shape.look))
    return looks


def recorded(folder: Path, stay: float, ticks: int) -> Path:
    """A recording of two levels, one row a minute, whose level stays with a probability."""
    generator = np.random.default_rng(3)
    level = np.cumsum(generator.random(ticks) > stay) % 2
    rows = [f"{60 * tick},{SECRET if is_on else '3.5'}" for tick, is_on in enumerate(level.tolist())]
    (folder / "history.csv").write_text("\n".join(["t,value", *rows]) + "\n")
    return folder / "history.csv"


def apart(boxes: list[list[float]]) -> bool:
    """True if no box lies on another, but for half a pixel of rounding."""
    return all(
        left >= other[2] - 0.5 or right <= other[0] + 0.5 or top >= other[3] - 0.5 or bottom <= other[1] + 0.5
        for number, (left, top, right, bottom) in enumerate(boxes)
        for other in boxes[number + 1 :]
    )


def check_layout(browser: Browser, width: int) -> None:
    """Nothing is beyond the window, cut off or too small, nothing is on anything else, and words are in pictures."""
    layout: dict[str, Any] = browser.run(LAYOUT)
    assert layout["beyond"] <= 0, width
    assert layout["clipped"] == layout["small"] == [], width
    assert all(0 <= left < right <= width for left, _, right, _ in layout["lanes"]), width
    assert apart(layout["blocks"]), width
    assert apart(layout["lanes"]), width
    for picture in layout["texts"]:
        left, top, right, bottom = picture["plot"]
        for (x, y, end, low), words in picture["texts"]:
            assert left - 0.5 <= x < end <= right + 0.5, (width, words)
            assert top - 0.5 <= y < low <= bottom + 0.5, (width, words)
        assert apart([box for box, _ in picture["texts"]]), (width, picture["texts"])
