"""How soon `fugu try` shows something: the recording's picture, the first value that was released, and the end.

A browser opens the page as soon as its address is printed; times are of the clock, from the start of the program. Of
each case one run with the kernels that are stored, and one without any (`--cold`).

Usage: python benchmarks/first_seconds.py [FILE] [--cold] [--json] [--pictures FOLDER]

With a folder, the page as it is 0, 2, 5 and 10 seconds after the browser has opened it is written there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import command_line, show

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.browser import Browser, chromium

_MOMENTS = (0.0, 2.0, 5.0, 10.0)
_ADDRESS = re.compile(r"http://127\S+")
_STATE = """
const live = document.querySelector(".live")?.innerText ?? "";
return [
  !!document.querySelector("figure img:not([hidden])")?.naturalWidth,
  parseInt(live) > 0 && live.includes("have come"),
];
"""


def main() -> None:
    """Run and print."""
    parser = command_line(__doc__)
    parser.add_argument("file", nargs="*", type=Path)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as browser:
        environment = dict(os.environ)
        if options.cold:
            environment["NUMBA_CACHE_DIR"] = folder
        shown = _tried(browser, [str(file) for file in options.file], environment, options.pictures)
    show({f"{name}: s": round(seconds, 1) for name, seconds in shown.items()}, as_json=options.json)


def _tried(browser: Browser, files: list[str], environment: dict[str, str], pictures: Path | None) -> dict[str, float]:
    """The seconds until each thing was seen."""
    command = [sys.executable, "-u", "-m", "fugu", "try", *files, "--no-browser"]
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    seen, due = dict[str, float](), list(_MOMENTS)
    try:
        assert process.stdout is not None
        address = next(match[0] for line in process.stdout if (match := _ADDRESS.search(line)))
        seen["the page's address"] = time.monotonic() - began
        browser.open(address)
        opened = time.monotonic() - began
        names = ("the recording's picture", "the first released value")
        while process.poll() is None:
            now = time.monotonic() - began
            for name, there in zip(names, browser.run(_STATE), strict=True):
                if there:
                    seen.setdefault(name, now)
            while pictures is not None and due and now - opened >= due[0]:
                pictures.mkdir(parents=True, exist_ok=True)
                browser.driver.save_screenshot(str(pictures / f"{due.pop(0):.0f}s.png"))
            time.sleep(0.1)
        seen["the end"] = time.monotonic() - began
    finally:
        process.kill()
        process.wait()
    return seen


if __name__ == "__main__":
    main()
