"""Addresses of this machine."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

__all__ = ["is_local", "is_loopback"]


def is_loopback(host: str) -> bool:
    """True if a host, as it is written, can only be this machine: `localhost`, 127.0.0.0/8 or ::1."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(host: str) -> bool:
    """True if a host has an address of this machine, or is a loopback address whose lookup fails."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return is_loopback(host)
    for family, _, _, _, address in addresses:
        with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(address)  # only an address of this machine can be bound
            return True
    return False
