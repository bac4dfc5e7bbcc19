"""The location of a store: a file, or a database of a PostgreSQL server."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fugu.contract.errors import UsageError

__all__ = ["Location", "Server", "ledger_beside", "part_of", "sockets", "store_location"]

_SCHEMES = ("postgresql", "postgres")
_RUN = Path("/run/fugu-gateway")


@dataclass(frozen=True, slots=True)
class Server:
    """A database, or one of its schemas, of a PostgreSQL server.

    Attributes:
        url: a URL of libpq, `postgresql://USER@HOST:PORT/DATABASE?OPTION=VALUE`, without a password.
        part: '' for the first schema of the search path; otherwise for the schema `{that schema}_{part}` beside it.
    """

    url: str
    part: str = ""

    @property
    def name(self) -> str:
        """The name in messages: host, database and part."""
        url_parts = urlsplit(self.url)
        return f"postgresql://{url_parts.netloc.rpartition('@')[2]}{url_parts.path}{self.part and ' '}{self.part}"

    @property
    def status_path(self) -> Path:
        """The socket at which the database's gateway answers: in /run/fugu-gateway, else in a folder of the account."""
        socket_name = f"{hashlib.sha256(self.url.encode()).hexdigest()[:16]}{self.part and '-'}{self.part}.status"
        return (self._own_folder or _RUN) / socket_name

    @property
    def has_own_folder(self) -> bool:
        """Tell whether the gateway makes the socket's folder itself, so that only its account may write there."""
        return self._own_folder is not None

    @property
    def _own_folder(self) -> Path | None:
        return None if _RUN.is_dir() else Path(tempfile.gettempdir()) / f"fugu-gateway-{os.geteuid()}"

    def __str__(self) -> str:
        """The name in messages."""
        return self.name


Location = Path | Server


def part_of(location: Location, name: str) -> Location:
    """The location of a part, a file or schema beside the given one; `name` has small letters, digits and dashes."""
    if isinstance(location, Path):
        return location.parent / f"{location.stem}-{name}{location.suffix}"
    return replace(location, part=f"{location.part}{location.part and '-'}{name}")


def sockets(store: Location) -> Iterator[Path]:
    """The sockets at which a store's gateway answers on this machine: its own, then the existing sockets of shards."""
    for location in (store, part_of(store, "shard-*")):
        path = Path(f"{location}.status") if isinstance(location, Path) else location.status_path
        prefix, star, suffix = path.name.rpartition("*")
        yield from sorted(path.parent.glob(f"{escape(prefix)}*{escape(suffix)}")) if star else [path]


def ledger_beside(store: Location) -> Location:
    """The default location of a gateway's ledger: `home-ledger.db` beside `home.db`, or a schema beside the store's."""
    return part_of(store, "ledger")


def store_location(text: str) -> Location:
    """Read a path or a postgresql:// URL. Raises UsageError for another URL, or one with a password."""
    scheme, colon, _ = text.partition("://")
    if not colon:
        return Path(text)
    if scheme not in _SCHEMES:
        raise UsageError(f"a store is a file, or postgresql://USER@HOST/DATABASE, not {scheme}://")
    try:
        url_parts = urlsplit(text)
        secret = url_parts.password is not None or {"password", "sslpassword"} & parse_qs(url_parts.query).keys()
    except ValueError as error:
        raise UsageError(f"the store's URL cannot be read: {error}") from None
    if secret:
        raise UsageError(
            "no password in the store's URL, where everybody can read it: name a file with PGPASSFILE or ?passfile="
        )
    return Server(text)
