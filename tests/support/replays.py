"""A recording to try, and how a page of a replay has to lie in its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.browser import Browser

SECRET = "17.25"
"""A reading of the recording."""
LAYOUT = """
const box = (one) => { const at = one.getBoundingClientRect(); return [at.left, at.top, at.right, at.bottom]; };
const all = (what) => [...document.querySelectorAll(what)].filter((one) => one.offsetParent !== null).map(box);
const root = document.documentElement;
return {
  beyond: root.scrollWidth - root.clientWidth, figures: all("figure"), images: all("img"), blocks: all("main > *"),
  clipped: [...document.querySelectorAll("h1, h2, h3, p, li, figcaption")].filter(
    (one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline").length,
};
"""


def recorded(folder: Path, stay: float, ticks: int) -> Path:
    """A recording of two levels, one row a minute, whose level stays with a probability."""
    generator = np.random.default_rng(3)
    level = np.cumsum(generator.random(ticks) > stay) % 2
    rows = [f"{60 * tick},{SECRET if one else '3.5'}" for tick, one in enumerate(level.tolist())]
    (folder / "history.csv").write_text("\n".join(["t,value", *rows]) + "\n")
    return folder / "history.csv"


def check_layout(browser: Browser, width: int, columns: int) -> None:
    """Nothing is beyond the window or cut off, and nothing lies on anything else."""
    found: dict[str, Any] = browser.run(LAYOUT)
    assert found["beyond"] <= 0, width
    assert found["clipped"] == 0, width
    assert all(0 <= left < right <= width for left, _, right, _ in found["figures"] + found["images"]), width
    assert max(right - left for left, _, right, _ in found["images"]) <= 640
    for boxes in (found["figures"], found["blocks"]):
        for number, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[number + 1 :]:
                assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1], width
    for figure, image in zip(found["figures"], found["images"], strict=True):
        assert figure[0] < image[0] < image[2] < figure[2]
        assert figure[1] < image[1] < image[3] < figure[3]
    rows = np.array([top for _, top, _, _ in found["figures"]])
    assert max((rows == top).sum() for top in rows) == columns, width
