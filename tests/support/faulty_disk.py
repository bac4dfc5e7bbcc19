"""Disks that lose power, are slow, or refuse to be written, for processes that need no privileges for that."""

from __future__ import annotations

import random
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["FaultyDisk", "disks_can_fail"]

_SOURCE = Path(__file__).with_suffix(".c")
_SECTOR = 512


def disks_can_fail() -> bool:
    """True if the library can be built that stands between a process and its disk."""
    return shutil.which("cc") is not None


@cache
def _library(folder: Path) -> Path:
    library = folder / "faulty_disk.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def _torn(synced: bytes, written: bytes, chosen: random.Random) -> bytes:
    """A file of which some sectors are as they were synced, and others as they were written since; of either length."""
    size = chosen.choice((len(synced), len(written)))
    sectors = []
    for at in range(0, size, _SECTOR):
        source = written if chosen.random() < 0.5 else synced
        sectors.append(source[at : at + _SECTOR].ljust(_SECTOR, b"\0"))
    return b"".join(sectors)[:size]


class FaultyDisk:
    """A folder whose files are kept a second time, as a power cut would leave them: with what has been synced.

    The images go `beside` it; processes that write there have its `environment`.
    """

    def __init__(self, folder: Path, beside: Path) -> None:
        self._folder = folder
        self._images = beside / f"{folder.parent.name}-{folder.name}-synced"
        self._images.mkdir()
        self.environment: dict[str, str] = {}
        if disks_can_fail():
            images = {"FAULTY_DISK": folder.resolve(), "FAULTY_DISK_IMAGE": self._images.resolve()}
            self.environment = {"LD_PRELOAD": str(_library(beside)), **{name: str(at) for name, at in images.items()}}

    def slow(self, microseconds: int) -> None:
        """Let each sync take so much longer."""
        self._switch(".slow", str(microseconds) if microseconds else None)

    def refuse(self, on: bool) -> None:
        """Let nothing be written, as on a file system that has been mounted anew, to be read only; or let it again."""
        self._switch(".readonly", "" if on else None)

    def lose_power(self, which: float = 0.0) -> None:
        """Drop what was not synced; its process must not run.

        Args:
            which: below 0.4 all of it; above, of what it chooses, since a disk may have written the rest. It is of
                databases sector by sector, of other files all or nothing.
        """
        chosen = random.Random(which)
        (self._images / ".names").unlink(missing_ok=True)  # names that were not synced are those of before
        for path in sorted(file for file in self._folder.iterdir() if file.is_file()):
            image = self._images / path.name
            if path.name.endswith("-shm") or not image.exists():
                path.unlink()
            elif which < 0.4:
                path.write_bytes(image.read_bytes())
            elif ".sqlite" in path.name or ".db" in path.name:
                path.write_bytes(_torn(image.read_bytes(), path.read_bytes(), chosen))
            elif chosen.random() < 0.5:
                path.write_bytes(image.read_bytes())
        for image in self._images.iterdir():
            if not image.name.startswith(".") and not (self._folder / image.name).exists():
                shutil.copyfile(image, self._folder / image.name)

    def _switch(self, name: str, content: str | None) -> None:
        path = self._images / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            beside = path.with_name(f"{name}.new")
            beside.write_text(content)
            beside.replace(path)
