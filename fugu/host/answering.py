"""A socket at which a process tells its status, to its own account and to root."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fugu.contract.errors import FuguError

__all__ = ["StatusSocket", "ask"]

_PATIENCE_SECONDS = 5.0
_SEND_SECONDS = 0.2  # a text of more than some 200 kB does not fit into the socket at once
_MOST_WAITING = 4
_MOST_BYTES = 1 << 20


class StatusSocket:
    """The socket of the process that answers; closed if the system has no such sockets, or the path is too long.

    The socket has mode 0600, and replaces a socket that a killed process left: one process at a time may use the path.
    With `own_folder` its folder is made, and there is no socket unless the folder is this account's alone.
    """

    def __init__(self, path: Path, *, own_folder: bool = False) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._inode = 0
        try:
            if own_folder:
                _make_private(path.parent)
            if path.is_socket():
                path.unlink()
            server_socket = socket.socket(socket.AF_UNIX)
            try:
                os.fchmod(server_socket.fileno(), 0o600)  # Linux gives the file this mode, less the umask
                server_socket.bind(str(path))
                self._inode = path.stat().st_ino
                path.chmod(0o600)
                server_socket.listen(_MOST_WAITING)  # only now can anybody connect
            except BaseException:
                server_socket.close()
                raise
            self._socket = server_socket
        except (OSError, AttributeError):
            pass

    def answer(self, get_text: Callable[[], str], seconds: float = 0.0) -> bool:
        """Send a text to one process that asks within some seconds. True if one has asked.

        Of `get_text()` at most a megabyte is sent. The process has as many seconds again, and at least 0.2, to read it.
        Without a socket, only time passes.
        """
        if self._socket is None:
            time.sleep(seconds)
            return False
        self._socket.settimeout(seconds)
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return False
        with connection, suppress(OSError):
            connection.settimeout(max(seconds, _SEND_SECONDS))
            connection.sendall(get_text().encode()[:_MOST_BYTES])
        return True

    @property
    def is_open(self) -> bool:
        """True if there is a socket, so that others can ask."""
        return self._socket is not None

    def close(self) -> None:
        """Close and remove the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                if self._path.stat().st_ino == self._inode:  # else a later process has replaced it
                    self._path.unlink()


def ask(path: Path, *, owner_of_folder: bool = True) -> str | None:
    """Return what the process at a socket answers; `None` if none answers in 5 s, or this account may not ask it.

    Raises FuguError unless the process belongs to this account or to root. With `owner_of_folder`, it may also belong
    to the owner of the socket's folder. If only the owner may write to the folder, the socket is the owner's, whatever
    the account of the process. Systemd 257 maps a service's temporary account to another one on the disk.
    In a folder that anybody may write to, anybody may have made the socket.
    """
    answer_bytes = b""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_SECONDS)
            connection.connect(str(path))
            folder_status = path.parent.stat()
            owners = {0, os.geteuid(), *([folder_status.st_uid] if owner_of_folder else [])}
            is_owner_only = owner_of_folder and not folder_status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if (account := _account_of(connection)) not in {None, *owners} and not is_owner_only:
                raise FuguError(
                    f"what answers at {path} is a process of account {account}, and is not believed: end it, remove "
                    "the socket, and start the gateway or agent again"
                )
            while chunk := connection.recv(1 << 16):
                answer_bytes += chunk
    except (OSError, AttributeError):
        return None
    return answer_bytes.decode(errors="replace")


def _account_of(connection: socket.socket) -> int | None:
    """Return the number of the account at the other end; `None` on systems that do not tell it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = struct.Struct("3i")
    _, account, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return int(account)


def _make_private(folder: Path) -> None:
    """Make a folder for this account alone. PermissionError if its path is taken, or open to others."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    folder_status = folder.lstat()
    if not stat.S_ISDIR(folder_status.st_mode) or folder_status.st_uid != os.geteuid() or folder_status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not of this account alone")
