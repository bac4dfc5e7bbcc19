"""Connections to brokers on this machine, which sensors may read, and to no other address.

Local devices publish raw readings, so only a loopback address or a Unix socket is connected to, and never the fleet's
broker, which others read. Both rules are checked before every connection, since the addresses of a name can change.
"""

from __future__ import annotations

import socket

from fugu.host.addresses import is_local, is_loopback

__all__ = ["LocalBrokerError", "dial"]

_Address = tuple[object, ...] | str
"""Address in the form that a socket of its family takes."""
_CONNECT_SECONDS = 5.0


class LocalBrokerError(OSError):
    """A broker may not be connected to; the text says why, in fixed words."""


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


def _connect(family: int, address: _Address) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
