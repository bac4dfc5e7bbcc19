"""Debian's Chromium, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.support.brokers import PATIENCE, wait_until
from tests.support.javascript import installed

_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-extensions", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900"),
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",  # pages of its own, ready before anybody types
    "--js-flags=--no-turbofan,--no-maglev",  # no page is open for so long that it gains by better machine code
)
_PREFERENCES = {"session.restore_on_startup": 4, "session.startup_urls": ["about:blank"]}  # and none of its own
_UNTIL_INPUT_ENDS = """#!/bin/sh
exec 3<&0
{{ {driver} "$@" 3<&- & cat <&3 >/dev/null; kill $! $(cat /proc/$!/task/*/children); }} 2>&1 &
"""
# A chart follows the width of the page when a frame is drawn, and is drawn itself in the next.
_DRAWN = "requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1]));"
_MOVED = """
const done = arguments[arguments.length - 1];
const shifts = [];
const name = ({ node }) => node?.id || node?.nodeName;
const box = ({ x, y, width, height }) => `${x},${y},${width}x${height}`.replaceAll(/[.][0-9]+/g, "");
const told = (source) => `${name(source)} ${box(source.previousRect)} to ${box(source.currentRect)}`;
const add = (seen) => {
  for (const shift of seen.getEntries().filter((one) => !one.hadRecentInput)) {
    shifts.push([shift.value, ...shift.sources.map(told)]);
  }
};
new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
requestAnimationFrame(() => setTimeout(() => done(shifts)));
"""
_MOST_MOVED = 0.1
"""Cumulative layout shift that is called good."""
_AXE = """
const done = arguments[arguments.length - 1];
const said = (found) => found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html));
const moved = document.getAnimations().map((one) => one.finished);  // text that fades in has little contrast as yet
const [where, rules] = arguments;
const options = { resultTypes: ["violations"], ...(rules.length ? { runOnly: rules } : {}) };
Promise.allSettled(moved).then(() => axe.run(where ?? document, options)).then((found) => done(said(found)));
"""


class Browser:
    """A window of a driver of selenium."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def text(self, selector: str = "body") -> str:
        """Text of the first element that fits; nothing if there is none."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str) -> None:
        """Click on the first element that fits; the page may have just drawn another in its place."""

        def clicked() -> bool:
            with suppress(StaleElementReferenceException):
                self.driver.find_element(By.CSS_SELECTOR, selector).click()
                return True
            return False

        wait_until(clicked, f"a click on {selector}")

    def type(self, selector: str, text: str) -> None:
        """Type into the first element that fits; `\\n` is Enter."""
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(text)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def look(self, width: int, *, dark: bool, media: str = "screen") -> None:
        """Change the width of the window, in pixels, the colours that a page is asked for, and what shows it."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme, still]})
        self.driver.execute_async_script(_DRAWN)

    def forget(self) -> None:
        """Leave every page, as if none had been there."""
        self.open("about:blank")
        for command, parameters in (
            ("Network.clearBrowserCookies", {}),
            ("Emulation.clearDeviceMetricsOverride", {}),
            ("Emulation.setEmulatedMedia", {"media": "", "features": []}),
        ):
            self.driver.execute_cdp_cmd(command, parameters)
        self.complaints()

    def violations(self, where: str | None = None, *rules: str) -> list[str]:
        self.run((installed() / "node_modules/axe-core/axe.min.js").read_text())
        return list(self.driver.execute_async_script(_AXE, where, rules))

    def check_still(self) -> None:
        """Refuse a page whose parts have moved, but for what somebody has just asked for."""
        shifts = self.driver.execute_async_script(_MOVED)
        assert sum(value for value, *_ in shifts) < _MOST_MOVED, shifts

    def complaints(self) -> list[str]:
        """Errors of scripts, and what the content security policy has refused, since it was asked last."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, which is no child of this process, and ends with it."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium is not installed (Debian: chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = program
    for word in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(word)
    options.add_experimental_option("prefs", _PREFERENCES)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    start = profile.with_suffix(".sh")
    start.write_text(_UNTIL_INPUT_ENDS.format(driver=driver))
    start.chmod(0o755)
    chrome = Chrome(options=options, service=Service(str(start)))
    chrome.set_script_timeout(PATIENCE)
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()
