"""Who can reach a service of this machine: where it listens, and who may open its socket."""

from __future__ import annotations

import stat
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from fugu.host.checks import Finding

__all__ = ["listening", "loopback_only", "private_socket"]

_LISTENS = "0A"
"""TCP_LISTEN in the kernel's tables."""


def loopback_only(what: str, port: int, *, sockets: Path = Path("/proc/net")) -> Finding:
    """Whether what listens on a TCP port of this machine can be reached from this machine only."""
    found = listening(port, sockets)
    if found is None:
        return Finding(what, "warn", "this system does not say where it listens: see to it that it is 127.0.0.1 only")
    if not found:
        return Finding(what, "warn", f"nothing listens on port {port}: start it, or look at the port")
    beyond = sorted(str(address) for address in found if not address.is_loopback)
    if beyond:
        text = (
            f"it listens on {', '.join(beyond)} port {port}: whoever reaches that may read raw readings. "
            f"For Mosquitto: listener {port} 127.0.0.1"
        )
        return Finding(what, "warn", text)
    return Finding(what, "ok", f"port {port} is open to this machine only")


def listening(port: int, sockets: Path) -> set[IPv4Address | IPv6Address] | None:
    """The addresses at which something listens on a TCP port, in any process; none if the system does not say."""
    found: set[IPv4Address | IPv6Address] = set()
    known = False
    for name in ("tcp", "tcp6"):
        try:
            rows = (sockets / name).read_text().splitlines()[1:]
        except OSError:
            continue
        known = True
        for local, state in ((row.split()[1], row.split()[3]) for row in rows):
            digits, _, number = local.partition(":")
            if state == _LISTENS and int(number, 16) == port:
                words = (int(digits[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(digits), 8))
                address = ip_address(b"".join(words))
                found.add(getattr(address, "ipv4_mapped", None) or address)
    return found if known else None


def private_socket(what: str, path: Path) -> Finding:
    """Whether a Unix socket is there, and not for everybody."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return Finding(what, "warn", f"{path}: {error.strerror}: start it, or look at the path")
    if not stat.S_ISSOCK(mode):
        return Finding(what, "FAIL", f"{path} is no socket")
    if mode & 0o002:
        text = f"{path} is open to every account of this machine, which may read raw readings: chmod o= it"
        return Finding(what, "warn", text)
    return Finding(what, "ok", f"{path} is open to its owner and group only")
