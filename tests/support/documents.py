"""Runs the code blocks of a page of the manual, as a reader would, in a folder of their own.

```sh              run with bash; must end with 0
```sh background   started, and ended with the page
```python          run with this interpreter
```toml file=NAME  written to a file (also conf)
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.brokers import COMPUTING, PATIENCE
from tests.support.forks import programs, shell_words

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    """The code blocks of a page with some texts replaced, and the processes that they leave running."""

    def __init__(self, name: str, folder: Path, replace: Mapping[str, str]) -> None:
        text = (ROOT / name).read_text()
        for old, new in replace.items():
            text = text.replace(old, new)
        self.said = ""
        self.blocks = [(match[1], match[2].strip(), match[3]) for match in _BLOCK.finditer(text)]
        self._folder = folder
        self._background: list[subprocess.Popen[bytes]] = []
        path = os.pathsep.join([str(programs()), str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
        self._environment = {**os.environ, "PATH": path, "FUGU_SOURCE": str(ROOT), "PYTHONPATH": str(ROOT)}
        self._environment["PIP_COMPILE"] = "no"  # most of what is installed is never imported

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._background):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)

    def run(self) -> int:
        """Run all blocks in order; returns how many commands and programs were run."""
        count = 0
        for language, option, body in self.blocks:
            if option.startswith("file="):
                (self._folder / option.removeprefix("file=")).write_text(body)
            elif language == "sh" and option == "background":
                self._start(body)
                count += 1
            elif language in ("sh", "python"):
                self._run(language, body)
                count += 1
        return count

    def _start(self, body: str) -> None:
        log = (self._folder / "background.log").open("ab")
        command = ["bash", "-c", body]
        self._background.append(
            subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        )

    def _run(self, language: str, body: str) -> None:
        command = ["bash", "-euc", body] if language == "sh" else [*shell_words(), "-c", body]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=COMPUTING
        )
        self.said += done.stdout
        log = self._folder / "background.log"
        assert done.returncode == 0, (
            f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}\n{log.read_text() if log.exists() else ''}"
        )
