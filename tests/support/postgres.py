"""A real PostgreSQL for tests, on a loopback port of its own; it can be killed and comes back on the same port.

It ends with the process that has started it, however that ends, and is no child of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from fugu.host.database import AwayError, FileLostError
from gateway.store.location import Server
from tests.support.brokers import PATIENCE, await_free, free_port, has_ended, wait_until

__all__ = ["Postgres", "break_connections", "refused", "refused_anew"]

_DEBIAN = Path("/usr/lib/postgresql")
_ACCOUNTS = ("postgres", "nobody")
# A shell in the background waits for the end of its input, then ends the server and removes its files. Files of a
# server that was killed (137) stay: it may come back.
_UNTIL_INPUT_ENDS = """
exec 3<&0
{ "$@" 3<&- & cat <&3 >/dev/null; kill -QUIT $!; wait $!; [ $? = 137 ] || rm -rf "$0"; } >>"$0/log" 2>&1 &
"""


class Postgres:
    """A server between `start` and `stop`, or as a context manager; what is committed outlives its processes."""

    def __init__(self, **settings: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fugu-postgres-"))
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:  # it refuses to run as root
            import pwd

            accounts = {account.pw_name: account for account in pwd.getpwall()}
            account = next(accounts[name] for name in _ACCOUNTS if name in accounts)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.port = free_port()
        self._settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": "400",
        } | settings
        self._data = self._folder / "data"
        self._input: Any = None
        self._schemas = count(1)
        self._database = "postgres"
        self._run("initdb", "-D", str(self._data), "-U", "fugu", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @property
    def server(self) -> Server:
        """The database, as its owner; on a busy machine it may take long to answer."""
        return Server(f"postgresql://fugu@127.0.0.1:{self.port}/{self._database}?connect_timeout=60")

    def database(self, name: str) -> Self:
        """The same server with a database of its own, which is made: of one process that runs tests."""
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        own = copy(self)
        own._database, own._schemas = name, count(1)
        return own

    def fresh(self) -> Server:
        name = f"s{next(self._schemas)}"
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return Server(f"{self.server.url}&options=-csearch_path%3D{name}")

    def start(self) -> Self:
        """Start it, and wait until it accepts connections."""
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        words = ["sh", "-c", _UNTIL_INPUT_ENDS, str(self._folder)]
        words += [_program("postgres"), "-D", str(self._data), *options]
        await_free(self.port)
        shell = subprocess.Popen(words, stdin=subprocess.PIPE, cwd=self._folder, **self._account)
        self._input = shell.stdin
        shell.wait(PATIENCE)
        wait_until(self._accepts, "PostgreSQL")
        return self

    def kill(self) -> None:
        """End all of its processes at once; the machine goes on."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGSTOP)
        # One that it makes meanwhile would live on for a moment, in which no other server starts.
        wait_until(lambda: _is_stopped(first), "the first process to make no more of them")
        processes = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: all(map(has_ended, processes)), "its end")
        self._input = None

    def stop(self) -> None:
        if self._input is not None:
            self._input.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accepts(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.server.url).close()
            return True
        return False

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [_program(program), *words], capture_output=True, text=True, cwd=self._folder, check=False, **self._account
        )
        assert done.returncode == 0, done.stderr


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _program(name: str) -> str:
    file = max(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]), default=None) or shutil.which(name)
    assert file is not None, "these tests need PostgreSQL: apt-get install postgresql"
    return str(file)


def break_connections(server: Server) -> None:
    """End all connections to a database."""
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid<>pg_backend_pid() AND datname=%s"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(others, (connection.info.dbname,))


def await_answer(ask: Callable[[], object]) -> None:
    """Ask until there is a connection again."""

    def answered() -> bool:
        try:
            ask()
        except AwayError:
            return False
        return True

    wait_until(answered, "a connection")


def refused(ask: Callable[[], object]) -> None:
    """See that another process has what was held: first because the session has gone, then for good."""
    _lost(ask, "another process has taken")


def refused_anew(ask: Callable[[], object]) -> None:
    """See that another generation has begun."""
    _lost(ask, "another generation of processes")


def _lost(ask: Callable[[], object], why: str) -> None:
    with pytest.raises(FileLostError, match=why):
        await_answer(ask)
