"""Connections to brokers on this machine, which sensors may read, and to no other address.

Local devices publish raw readings, so only a loopback address or a Unix socket is connected to, and never the fleet's
broker, which others read. Both rules are checked before every connection, since the addresses of a name can change.
"""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["LocalBrokerError", "dial", "is_loopback"]

_Address = tuple[object, ...] | str
"""Address in the form that a socket of its family takes."""
_CONNECT_SECONDS = 5.0


class LocalBrokerError(OSError):
    """A broker may not be connected to; `trouble` says why, in fixed words."""

    def __init__(self, trouble: str) -> None:
        super().__init__(trouble)
        self.trouble = trouble


def is_loopback(host: str) -> bool:
    """True if a host, as it is written, can only be this machine: `localhost`, 127.0.0.0/8 or ::1."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def dial(host: str, port: int, fleet_address: tuple[str, int]) -> socket.socket:
    """Connect to a broker on this machine.

    `host` is `localhost`, a loopback address or the path of a Unix socket; all addresses of a name are checked.
    `fleet_address`, host and port of the fleet's broker, is refused. Raises LocalBrokerError if the broker may not be
    connected to, OSError if the connection fails.
    """
    if host.startswith("/"):
        return _connect(socket.AF_UNIX, host)
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not all(is_loopback(str(address[0])) for *_, address in addresses):
        raise LocalBrokerError("its broker is not on this machine")
    if port == fleet_address[1] and is_local(fleet_address[0]):
        raise LocalBrokerError("its broker is that of the fleet, where nothing raw may be")
    last_error: OSError = OSError("no address")
    for family, _, _, _, address in addresses:
        try:
            return _connect(family, address)
        except OSError as error:
            last_error = error
    raise last_error


def is_local(host: str) -> bool:
    """True if a host has an address of this machine, or is a loopback address whose lookup fails."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return is_loopback(host)
    return any(_can_bind(family, address) for family, _, _, _, address in addresses)


def _can_bind(family: int, address: _Address) -> bool:
    """True if this machine can bind an address: then it is an address of this machine."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def _connect(family: int, address: _Address) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
