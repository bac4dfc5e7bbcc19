"""Files that are replaced in one step. Secret files are readable by their owner only, from the moment they exist."""

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
    "CERTIFICATE_DAYS",
    "certificate_validity",
    "create_private",
    "file_errors",
    "hold",
    "is_held",
    "new_folder",
    "read_text",
    "write_public",
    "write_secret",
]

CERTIFICATE_DAYS = 30
"""A certificate that is valid for fewer days is to be renewed."""


def new_folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, with `private` for its owner alone. FuguError if it is not empty, or cannot be made."""
    try:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FuguError(f"{path} is not empty: name a new folder, or remove it first", Reason.STORAGE)
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise FuguError(f"cannot make the folder {path}: {error.strerror}", Reason.STORAGE) from None
    return path


def write_secret(path: Path, content: str | bytes, *, for_service: bool = False) -> None:
    """Write or replace a file that only its owner may read.

    With `for_service`, root gives the file to the owner of its folder.
    """
    _write(path, content, 0o600, for_service=for_service)


def create_private(path: Path) -> None:
    """Make an empty file of mode 0600, whatever the umask. Do nothing if it exists, or cannot be made."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def hold(path: Path) -> TextIO | None:
    """Lock a file, shared, until it is closed or the process ends. `None` if it cannot be opened or locked."""
    create_private(path)
    try:
        file = path.open("a")
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return None
    return file


def is_held(path: Path) -> bool | None:
    """True if a process holds a file by `hold`; `None` if this account may not open the file."""
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
    """Read a text file. FuguError, with the label and the path, if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FuguError(
            f"cannot read {label} {path}: {getattr(error, 'strerror', None) or 'no text'}", Reason.STORAGE
        ) from None


@contextmanager
def file_errors(path: Path, label: str) -> Iterator[None]:
    """Name a file in the errors of a context: an OSError becomes a FuguError, a FuguError begins with the path."""
    try:
        yield
    except OSError as error:
        raise FuguError(f"cannot read {label} {path}: {error.strerror}", Reason.STORAGE) from None
    except FuguError as error:
        raise type(error)(f"{path}: {error}") from None


def _write(path: Path, content: str | bytes, mode: int, *, for_service: bool = False) -> None:
    """Replace a file in one step, and force it to disk: readers see the old content or the new.

    No device or pipe is replaced, nor a link to one: root would take /dev/null from everybody.
    """
    content_bytes = content.encode() if isinstance(content, str) else content
    try:
        is_descriptor = path.is_symlink() and str(path.readlink()).startswith("/proc/")  # as /dev/stdout is
        if is_descriptor or (path.exists() and not path.is_file() and not path.is_dir()):
            raise FuguError(f"cannot write {path}: it is a device or a pipe, and no file", Reason.STORAGE)
        descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                if for_service and os.geteuid() == 0:
                    os.fchown(file.fileno(), (folder_status := path.parent.stat()).st_uid, folder_status.st_gid)
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


def certificate_validity(path: Path) -> tuple[float, float]:
    """Return the Unix seconds from which and until which all certificates of a PEM file are valid.

    Raises OSError if the file cannot be read, ValueError if it has no certificate.
    """
    from cryptography import x509  # here, so that a running agent does not load it

    certificates = x509.load_pem_x509_certificates(path.read_bytes())
    begin_time = max(certificate.not_valid_before_utc for certificate in certificates)
    return begin_time.timestamp(), min(certificate.not_valid_after_utc for certificate in certificates).timestamp()
