"""Files that are written for others to use: secrets are readable by their owner only, from the moment they exist."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fugu.contract.errors import FuguError, Reason

__all__ = [
    *("CERTIFICATE_DAYS", "certificate_end", "create_private", "hold", "is_held", "naming", "new_folder"),
    *("read_text", "write_public", "write_secret"),
]

CERTIFICATE_DAYS = 30
"""A certificate is to be renewed when it has no more left."""


def new_folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, perhaps of its owner alone; FuguError if it holds something, or cannot be made."""
    try:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FuguError(f"{path} is not empty: name a new folder, or remove it first", Reason.STORAGE)
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise FuguError(f"cannot make the folder {path}: {error.strerror}", Reason.STORAGE) from None
    return path


def write_secret(path: Path, content: str | bytes) -> None:
    """Write or replace a file that only its owner may read."""
    _write(path, content, 0o600)


def create_private(path: Path) -> None:
    """Make an empty file of mode 0600, whatever the umask, unless there is one or the folder takes none."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def hold(path: Path) -> TextIO | None:
    """Hold a file until it is closed or the process ends; others may hold it too. `None` if it cannot be opened."""
    create_private(path)
    try:
        file = path.open("a")
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return None
    return file


def is_held(path: Path) -> bool | None:
    """True if a process holds a file; `None` if this account cannot know."""
    try:
        with path.open("a" if path.exists() else "r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def write_public(path: Path, content: str | bytes) -> None:
    """Write or replace a file that everybody on the machine may read."""
    _write(path, content, 0o644)


def read_text(path: Path, label: str) -> str:
    """Read a text file; FuguError names what was looked for."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FuguError(
            f"cannot read {label} {path}: {getattr(error, 'strerror', None) or 'no text'}", Reason.STORAGE
        ) from None


@contextmanager
def naming(path: Path, label: str) -> Iterator[None]:
    """Name a file in the errors of a context: FuguError if it cannot be read, else what the context raises."""
    try:
        yield
    except OSError as error:
        raise FuguError(f"cannot read {label} {path}: {error.strerror}", Reason.STORAGE) from None
    except FuguError as error:
        raise type(error)(f"{path}: {error}") from None


def _write(path: Path, content: str | bytes, mode: int) -> None:
    """Replace the file in one step, forced to disk; whoever reads it sees the old content or the new."""
    content_bytes = content.encode() if isinstance(content, str) else content
    try:
        descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content_bytes)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary_name).chmod(mode)
            Path(temporary_name).replace(path)
        except BaseException:
            Path(temporary_name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FuguError(f"cannot write {path}: {error.strerror}", Reason.STORAGE) from None
    with suppress(OSError):  # the new file is in place; a power cut may only bring the old one back
        folder_descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder_descriptor)
        finally:
            os.close(folder_descriptor)


def certificate_end(path: Path) -> tuple[float, float]:
    """Unix seconds when a PEM file's certificates begin and end to be valid together; OSError, ValueError if none."""
    from cryptography import x509  # here, because a running agent does without

    certificates = x509.load_pem_x509_certificates(path.read_bytes())
    begin = max(certificate.not_valid_before_utc for certificate in certificates)
    return begin.timestamp(), min(certificate.not_valid_after_utc for certificate in certificates).timestamp()
