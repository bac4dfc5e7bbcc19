"""Files that are written for others to use: secrets are readable by their owner only, from the moment they exist."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fugu.contract.errors import FuguError

__all__ = ["new_folder", "read_text", "write_public", "write_secret"]


class FileError(FuguError):
    """A file or folder cannot be read or written, or a folder is not empty."""


def new_folder(path: Path) -> Path:
    """Make a folder, which must not hold anything yet.

    Raises:
        FileError: it holds something, or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileError(f"{path} is not empty: name a new folder, or remove it first")
    except OSError as error:
        raise FileError(f"cannot make the folder {path}: {error.strerror}") from None
    return path


def write_secret(path: Path, content: str | bytes) -> None:
    """Write or replace a file that only its owner may read."""
    _write(path, content, 0o600)


def write_public(path: Path, content: str | bytes) -> None:
    """Write or replace a file that everybody on the machine may read."""
    _write(path, content, 0o644)


def read_text(path: Path, what: str) -> str:
    """Read a text file.

    Raises:
        FileError: it cannot be read; names what was looked for.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {what} {path}: {getattr(error, 'strerror', None) or 'no text'}") from None


def _write(path: Path, content: str | bytes, mode: int) -> None:
    """Replace the file in one step; whoever reads it sees the old content or the new."""
    data = content.encode() if isinstance(content, str) else content
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}") from None
