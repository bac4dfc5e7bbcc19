"""MicroPython's Unix port, and the sanitiser in it; tests are skipped on machines that it is not packaged for."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from firmware_sim.build import compile_modules
from tests.support.brokers import PATIENCE

pytest.importorskip("micropython_unix", reason="MicroPython's Unix port is packaged for x86-64 only")

MICROPYTHON = (sys.executable, "-c", "import sys, micropython_unix; sys.exit(micropython_unix.main())")
SUPPORT = Path(__file__).parent
HEAP = "48k"
BOARD_HEAP = "160k"
"""Of the whole image on the 64-bit Unix port, its code included."""


@cache
def library() -> Path:
    """A folder with the compiled sanitiser, as an image has it."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    compile_modules(folder)
    return folder


def micropython(script: Path, *words: object, heap: str = HEAP, seconds: float = 3000.0) -> str:
    """Output of a script, with the sanitiser on its path and so much heap; it may not fail."""
    command = [*MICROPYTHON, "-X", f"heapsize={heap}", str(script), *map(str, words)]
    environment = {**os.environ, "MICROPYPATH": f"{library()}:{SUPPORT}:.frozen"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class BoardProcess:
    """A board that runs the image in a folder, with readings that wander.

    What it prints is in `board.log` there. It is ended if it hangs for as many seconds as `watchdog` says.
    """

    def __init__(self, folder: Path, *streams: str, heap: str = BOARD_HEAP, watchdog: int = 300) -> None:
        self._folder = folder
        command = [*MICROPYTHON, "-X", f"heapsize={heap}", str(SUPPORT / "board_run.py"), str(folder), *streams]
        with (folder / "board.log").open("ab") as log:
            environment = {**os.environ, "WATCHDOG_SECONDS": str(watchdog)}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    @property
    def log(self) -> str:
        return (self._folder / "board.log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        (self._folder / "stop").touch()
        code = self.process.wait(PATIENCE)
        (self._folder / "stop").unlink()
        return code
