"""The page's login: one password, stored as a hash; sessions in memory; few attempts for each network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path

from fugu.contract.errors import FuguError
from gateway.config import SESSION_SECONDS

__all__ = ["Login", "network_of", "password_line"]

_N, _R, _P = 2**14, 8, 1
_MOST_SESSIONS = 1000
_MOST_FAILURES, _FAILURE_SECONDS = 5, 60.0
_MOST_NETWORKS = 4096
_LEAST_CHARACTERS, _MOST_CHARACTERS = 10, 1024


def password_line(password: str) -> str:
    """Return a password's salted scrypt hash as a line of a file. FuguError unless it has 10 to 1024 characters."""
    if not _LEAST_CHARACTERS <= len(password) <= _MOST_CHARACTERS:
        raise FuguError(f"a password has {_LEAST_CHARACTERS} to {_MOST_CHARACTERS} characters")
    salt = secrets.token_bytes(16)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(_password_hash(password, salt)).decode()}"


def network_of(peer: str) -> str:
    """Return the network of a peer, whose failures count together.

    The network is an IPv4 address itself, or the /64 of an IPv6 address, which one site has. Another peer is its own
    network.
    """
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


class Login:
    """Checks a password against the hash in a file's first line, and keeps sessions.

    Five failures within a minute shut out the network that they came from, and no other. At most 4096 networks are
    kept; a further one displaces the network whose last failure is the oldest. Raises FuguError for a wrong file.
    """

    def __init__(
        self, file: Path, session_seconds: float = SESSION_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            hash_kind, salt, digest = file.read_text().splitlines()[0].split("$")
            self._salt, self._digest = base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
            if hash_kind != "scrypt" or len(self._digest) != 64:
                raise ValueError
        except OSError as error:
            raise FuguError(f"cannot read the file of the password: {error.strerror}") from None
        except (ValueError, IndexError):
            raise FuguError("the file of the password has no hash of one") from None
        self.session_seconds = session_seconds
        self._clock = clock
        self._sessions: dict[bytes, float] = {}
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_seconds(self, peer: str) -> float:
        """Return the seconds for which a peer's network is still shut out; 0 if it is not."""
        failures = self._failures.get(network_of(peer), deque[float]())
        if len(failures) < _MOST_FAILURES:
            return 0.0
        return max(0.0, failures[0] + _FAILURE_SECONDS - self._clock())

    def enter(self, password: str, peer: str) -> str | None:
        """Begin a session and return its name; `None` for a wrong password, or if the peer's network is shut out."""
        if self.wait_seconds(peer) or len(password) > _MOST_CHARACTERS:
            return None
        if not hmac.compare_digest(_password_hash(password, self._salt), self._digest):
            self._note_failure(network_of(peer))
            return None
        session_name = secrets.token_urlsafe(32)
        if len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]  # the oldest, which ends first
        self._sessions[_session_key(session_name)] = self._clock() + self.session_seconds
        return session_name

    def knows(self, session: str) -> bool:
        """Return True if there is a session of this name that has not expired."""
        return self._sessions.get(_session_key(session), 0.0) > self._clock()

    def end(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_session_key(session), None)

    def _note_failure(self, network: str) -> None:
        self._failures.setdefault(network, deque(maxlen=_MOST_FAILURES)).append(self._clock())
        self._failures.move_to_end(network)
        if len(self._failures) > _MOST_NETWORKS:
            self._failures.popitem(last=False)


def _password_hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, n=_N, r=_R, p=_P)


def _session_key(session: str) -> bytes:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).digest()
