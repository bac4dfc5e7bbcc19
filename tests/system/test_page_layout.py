"""The pages at the widths of a phone, a tablet, a laptop and a large screen, in light, in dark and on paper.

Pictures of all of them are in `build/pages`, for a person to look at.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.mqtt import Broker
from tests.support.brokers import Mosquitto, wait_until
from tests.support.browser import Browser
from tests.support.page_scene import LONG, Told
from tests.support.pages import ServedPage

pytestmark = pytest.mark.long
PICTURES = Path(__file__).parents[2] / "build" / "pages"
WIDTHS = (390, 1200, 800, 1920)
PATHS = {
    "fleet": ("/", "tr[data-name='watch'] strong"),
    "watch": ("/device/watch", ".charts .plot path.shape"),
    "empty": ("/device/quiet", ".promise summary span"),
    "sick": ("/device/sick", ".mark.sick"),
    "long": (f"/device/{LONG}", ".mark.away"),
    "place": ("/place/tag", ".map ellipse"),
    "releases": ("/releases", "tbody tr"),
    "ledger": ("/ledger", ".alarm"),
}
_GEOMETRY = """
const shown = (one) => one.checkVisibility() && one.getClientRects().length > 0;
const name = (one) => `${one.tagName}.${one.getAttribute('class') ?? ''} “${one.textContent.slice(0, 40)}”`;
const inside = (one) => one.closest('.scroll, .messages, .skip, thead');
const inline = (one) => getComputedStyle(one).display === 'inline';
const root = document.documentElement;
const found = root.scrollWidth > innerWidth ? [`the page is ${root.scrollWidth} wide`] : [];
for (const one of document.body.querySelectorAll('*')) {
  if (inside(one) || one.closest('svg') || !shown(one)) continue;
  const { left, right, bottom } = one.getBoundingClientRect();
  if (bottom > one.closest('details')?.getBoundingClientRect().bottom + 0.5) found.push(`below its fold: ${name(one)}`);
  if (left < -0.5 || right > root.clientWidth + 0.5) found.push(`beyond the edge: ${name(one)}`);
  const wider = one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
  if (wider && !inline(one)) found.push(`too wide: ${name(one)}`);
}
for (const parent of document.querySelectorAll('body, main, main *')) {
  if (parent.closest('svg, .canvas')) continue;
  const boxes = [...parent.children].filter((one) => shown(one) && !one.closest('.skip, thead') && !inline(one))
    .map((one) => [one, one.getBoundingClientRect()]);
  boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) found.push(`${name(one)} over ${name(other)}`);
  }));
}
return found;
"""

_ON_PAPER = """
const lines = [...document.querySelectorAll('.charts path.line')].slice(0, 1);
const words = (plot) => [...plot.querySelectorAll('.mark')].map((one) => one.textContent);
return [lines.map((one) => [one.getBoundingClientRect().width, getComputedStyle(one).stroke]),
  [...document.querySelectorAll('.series .plot')].map(words)];
"""
"""Of the first line on paper its width and colour; words along time of each chart."""
_MARKS = """
const all = (what, read) => [...document.querySelectorAll(what)].map(read);
return [all('.gauge .mark', (one) => one.getAttribute('d')), all('.gauge .at', (one) => one.textContent)];
"""


@pytest.fixture
def story_page(broker: Mosquitto, tmp_path: Path) -> Iterator[tuple[Told, ServedPage]]:
    page = ServedPage(tmp_path, broker.port)
    scene = Told(Broker(port=broker.port))
    try:
        scene.introduce()
        yield scene, page
    finally:
        scene.close()
        assert page.stop() == 0


def picture(browser: Browser, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    taken = browser.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "optimizeForSpeed": True}
    )
    (PICTURES / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def test_nothing_overflows_or_lies_over_another(story_page: tuple[Told, ServedPage], browser: Browser) -> None:
    scene, page = story_page
    wait_until(lambda: b'"epsilon":1.0' in page.ask("/events/fleet")[1], "devices that are remembered")
    scene.history(1.0)
    for name, (path, ready) in PATHS.items():
        browser.look(WIDTHS[0], dark=False)
        browser.open(page.address + path)
        wait_until(lambda ready=ready: scene.live() or browser.count(ready) > 0, f"{name}: {ready}")
        browser.check_still()
        for details in (False, True):
            browser.run("document.querySelectorAll('details').forEach((one) => { one.open = arguments[0]; })", details)
            for width in WIDTHS[: 2 if details else 4]:
                browser.look(width, dark=width in (390, 1920))
                assert browser.run(_GEOMETRY) == [], (name, width, details)
                if not details and width in (390, 1200):
                    picture(browser, f"{name}-{width}")
        browser.look(800, dark=True, media="print")
        assert browser.run(_GEOMETRY) == [], (name, "on paper")
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"
        if name == "watch":
            drawn, marks = browser.run(_ON_PAPER)
            assert all(width > 300 and colour == "rgb(15, 107, 98)" for width, colour in drawn), drawn
            assert all(len(set(words)) == len(words) > 3 for words in marks), marks
        if name == "empty":
            assert "Waiting for messages. The marks show" in browser.text(".attack")
            assert browser.run(_MARKS) == [["M26.9 0V16", "M73.1 0V16"], ["27 %", "73 %"]]
        assert browser.complaints() == [], name
