"""Address of a broker, and the credentials for it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from fugu.contract.errors import FuguError, cause

__all__ = ["Broker", "LinkError"]

_RANGES = {"port": (1, 65535), "keepalive": (5, 300), "max_backoff": (1, 3600)}


class LinkError(FuguError, ValueError):
    """The broker's address or credentials cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Address of a broker, and the credentials for it: the table `[broker]` of a configuration file.

    Attributes:
        FILES: the names of the fields that hold file names.
        password_file: file whose first line is the password.
        ca_file: file of the certificate authority. This file, or a client certificate, switches TLS on.
        cert_file, key_file: files of the client certificate and of its key.
        protocol: "auto" tries MQTT 5 and falls back to 3.1.1.
        keepalive: seconds without traffic after which the client pings the broker.
        max_backoff: longest pause in seconds between two attempts to connect.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "strict": True}
    FILES: ClassVar = ("password_file", "ca_file", "cert_file", "key_file")

    host: str = "127.0.0.1"
    port: int = 1883
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive: int = 30
    max_backoff: int = 60

    def __post_init__(self) -> None:
        """Raise a LinkError for a value that would end the network thread, or that no system call takes."""
        try:
            self.host.encode("idna")
        except UnicodeError:
            raise LinkError(f"{self.host[:80]!r} is no name of a host") from None
        for name, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, name) <= highest:
                raise LinkError(f"{name} is {getattr(self, name)}, not from {lowest} to {highest}")
        for name in self.FILES:
            if "\0" in (getattr(self, name) or ""):
                raise LinkError(f"{name} has a zero byte")

    def beside(self, folder: Path) -> Broker:
        """Return this broker with its file names relative to a folder."""
        files: dict[str, Any] = {
            name: str(folder / file_name) for name in self.FILES if (file_name := getattr(self, name)) is not None
        }
        return replace(self, **files)

    @classmethod
    def parse(cls, address: str) -> Broker:
        """Read `host`, `host:port` or `[ipv6]:port`; LinkError if the port is not a number from 1 to 65535."""
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]"):
            host, port = address, "1883"
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535 or not host:
            raise LinkError(f"broker address {address[:80]!r} is not host:port")
        return cls(host=host.strip("[]"), port=int(port))

    @property
    def address(self) -> str:
        """The broker as HOST:PORT, which `parse` reads."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def has_tls(self) -> bool:
        """True if a file of the broker switches TLS on."""
        return bool(self.ca_file or self.cert_file or self.key_file)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, or `None` for a plain connection; LinkError if a file cannot be read."""
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise LinkError(f"cannot load the TLS files: {cause(error)}") from None
        return context

    def password(self) -> str | None:
        """Return the password; `None` without a password file. LinkError if the file cannot be read."""
        if self.password_file is None:
            return None
        try:
            lines = Path(self.password_file).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise LinkError(f"cannot read the password file: {cause(error)}") from None
        return lines[0] if lines else ""
