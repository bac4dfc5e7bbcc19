"""The broker's folder: configuration, certificates, accounts, access list; and how an account is added to it.

    mosquitto.conf               for Mosquitto 2.0 or newer, started in this folder
    ca.pem server.pem server.key the authority's certificate, the broker's certificate and key
    passwords access.acl         accounts (none with mutual TLS) and what they may do
    fugu-broker.service          a systemd unit
    fugu-broker.nft              rules for nftables: connections of one address
    broker.json                  what `fugu deploy` must know to add accounts
    readers.json                 who reads releases, and the most they may be told; for the gateway

The authority's key belongs on a disk in a drawer, and is never in this folder. It lies beside it, in a folder of the
same name with `-offline` behind.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from fugu.contract._document import first_problem
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.topics import NAME_PATTERN, RESERVED_DEVICES, available_topic, discovery_topic
from fugu.host.files import new_folder, read_text, write_public, write_secret
from gateway.deployment.mosquitto import AUTHORITY_DAYS, Account, Role, Settings, access_list, public_files

if TYPE_CHECKING:
    from fugu.contract.losses import Adversary
    from fugu.contract.stretches import Ceiling
    from gateway.deployment.certificates import Authority, Issued
    from gateway.releases.config import Bound

__all__ = ["BrokerFolder", "Credentials", "check_name", "password_line"]


_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MOST_HOST = 253
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9._-]+)?")
_NAME = re.compile(NAME_PATTERN)
_ITERATIONS = 101
"""Mosquitto's own number; more would only slow the broker down, since a password of 256 random bits is not guessed."""
_SALT_BYTES = 12  # the only length that Mosquitto 2.0 reads


@dataclass(frozen=True, slots=True)
class Credentials:
    """How one account proves who it is: by a password, or by a certificate and its key."""

    name: str
    password: str | None
    issued: Issued | None

    def write(self, folder: Path, name_of: Callable[[str], str] = str) -> dict[str, str]:
        """Write them into a folder; returns the fields of `fugu.mqtt.Broker` that name them, without the folder.

        `name_of` gives a file's name, from what it is called in the folder's own account.
        """
        if self.issued is not None:
            files = {"cert_file": name_of("client.pem"), "key_file": name_of("client.key")}
            write_public(folder / files["cert_file"], self.issued.certificate)
            write_secret(folder / files["key_file"], self.issued.key)
            return files
        file = name_of("password")
        write_secret(folder / file, f"{self.password}\n")
        return {"username": self.name, "password_file": file}


@dataclass(slots=True)
class BrokerFolder:
    """A broker's folder, and what is known about it."""

    path: Path
    settings: Settings

    @classmethod
    def create(cls, path: Path, settings: Settings, now: datetime) -> Self:
        """Write the folder of a new broker, without any account.

        Raises FuguError if it is not empty, or cannot be written; UsageError for a bad name or address.
        """
        check_name(settings.fleet, "fleet")
        for host in settings.hosts:
            is_host_name = len(host) <= _MOST_HOST and all(map(_LABEL.fullmatch, host.split(".")))
            if not (is_host_name or _is_address(host)):
                raise UsageError(f"{host[:80]!r} is neither a host name nor an address")
        if settings.bind is not None and not _is_address(settings.bind):
            raise UsageError(f"--bind must be an address of this machine, got {settings.bind[:80]!r}")
        folder = cls(new_folder(path), settings)
        new_folder(folder.authority_key.parent, private=True)
        from gateway.deployment.certificates import Authority

        authority = Authority.create(settings.fleet, now, AUTHORITY_DAYS)
        write_secret(folder.authority_key, authority.pem().key)
        write_public(path / "ca.pem", authority.pem().certificate)
        folder._certify(authority, now)
        if not settings.mutual:
            write_secret(path / "passwords", "")
        folder._write_list(())
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the folder of a broker. FuguError if it is none."""
        try:
            settings = Settings.model_validate_json(read_text(path / "broker.json", "the broker's document"))
        except ValidationError as error:
            raise FuguError(f"{path / 'broker.json'}: {first_problem(error, 'document')}") from None
        return cls(path, settings)

    @property
    def address(self) -> str:
        """HOST:PORT as clients are told."""
        host = self.settings.hosts[0]
        return f"[{host}]:{self.settings.port}" if ":" in host else f"{host}:{self.settings.port}"

    @property
    def authority_key(self) -> Path:
        """Where the authority's key was written to."""
        folder = self.path.resolve()
        return folder.with_name(f"{folder.name}-offline") / "ca.key"

    @property
    def authority_certificate(self) -> str:
        """The authority's certificate, which clients trust."""
        return read_text(self.path / "ca.pem", "the authority's certificate")

    def add(self, account: Account, now: datetime, *, ca_key: Path | None = None, renew: bool = False) -> Credentials:
        """Make an account, or give one new credentials.

        FuguError if its name is taken, or the authority's key missing.

        `now` has a zone. `ca_key`, needed with mutual TLS only, is for a key that is not where it was written to.
        `renew` changes nothing about an account that exists but its credentials, and the streams of a device that are
        given.
        """
        self.check_free(account.name, account.role, renew=renew)
        credentials = self.issue(account.name, now, ca_key=ca_key)
        self.admit([(account, credentials)])
        return credentials

    def issue(self, name: str, now: datetime, *, ca_key: Path | None = None) -> Credentials:
        """Make credentials that open nothing before `admit`; no file is written. Raises as `add`."""
        if self.settings.mutual:
            return Credentials(name, None, self._authority(ca_key).issue_client(name, now, self.settings.days))
        return Credentials(name, _new_password(), None)

    def admit(self, accounts: Sequence[tuple[Account, Credentials]]) -> None:
        """Enter accounts, whose names `check_free` has allowed, with their credentials."""
        proofs = [credentials for _, credentials in accounts]
        self._write_passwords(
            {account.name: password_line(account.name, account.password) for account in proofs if account.password}
        )
        accounts_by_name = {listed_account.name: listed_account for listed_account in self.settings.accounts}
        for account, _ in accounts:
            old_account = accounts_by_name.setdefault(account.name, account)
            if old_account.role == "removed":
                old_account = old_account.model_copy(update={"role": account.role, "uncleared": False})
                accounts_by_name[account.name] = old_account.with_streams(account.streams)
            elif account.streams:
                accounts_by_name[account.name] = old_account.with_streams(account.streams)
        self._write_list(tuple(accounts_by_name.values()))

    def check_free(self, name: str, role: Role, *, renew: bool) -> Account | None:
        """Refuse an account that cannot be made (UsageError, FuguError); returns what there is under its name."""
        check_name(name, "account")
        account = self._find_account(name)
        is_free = account is not None and account.uncleared and role == "device" and not self.settings.mutual
        if account is not None and not (renew and account.role == role) and not is_free:
            state_words = "was removed" if account.role == "removed" else f"exists, as {account.role}"
            hint = "; fugu deploy renew gives it new credentials" if account.role == role and not renew else ""
            raise FuguError(f"the account {name} {state_words}{hint}")
        return account

    def renew(self, now: datetime, *, ca_key: Path | None = None) -> None:
        """Replace the broker's certificate and its key; clients trust the new one as they did the old one.

        Raises FuguError if the authority's key (see `add`) is missing, or its certificate has ended.
        """
        self._certify(self._authority(ca_key), now)

    def _certify(self, authority: Authority, now: datetime) -> None:
        server = authority.issue_server(self.settings.hosts, now, self.settings.days)
        write_public(self.path / "server.pem", server.certificate)
        write_secret(self.path / "server.key", server.key)

    def remove(self, name: str) -> None:
        """Take everything away from an account. FuguError if there is no such account.

        With mutual TLS the name stays taken, because its certificate stays valid, and has no rights. A reader's name
        stays taken, too, because what it was told is not forgotten. Of a device, operators may clear what it has left.
        """
        account = self.account(name)
        changes = {"role": "removed", "audiences": (), "left": account.ever, "uncleared": account.role == "device"}
        self._drop_account(account.model_copy(update=changes))
        if not self.settings.mutual:
            self._write_passwords({name: None})

    def uncleared(self, name: str) -> Account | None:
        """A device that was removed, if the broker may still have what it left."""
        account = self._find_account(name)
        return account if account is not None and account.uncleared else None

    def topics_of_removed(self, removed: Account) -> list[str]:
        """All topics on which the broker may have something of a removed device."""
        fleet = self.settings.fleet
        is_announced = any(account.role == "home-assistant" for account in self.settings.accounts)
        discovery = [discovery_topic(fleet, removed.name), available_topic(fleet, removed.name)] if is_announced else []
        return [*removed.topics(fleet), *discovery]

    def note_cleared(self, account: Account) -> None:
        """The broker has nothing of a removed device any more."""
        self._drop_account(account.model_copy(update={"streams": (), "former": (), "uncleared": False}))

    def _drop_account(self, removed: Account) -> None:
        accounts = tuple(account for account in self.settings.accounts if account.name != removed.name)
        self._write_list(
            (*accounts, removed) if self.settings.mutual or removed.ever or removed.uncleared else accounts
        )

    def account(self, name: str) -> Account:
        """An account that was not removed. FuguError if there is none."""
        if (account := self._find_account(name)) is None or account.role == "removed":
            raise FuguError(f"there is no account {name}")
        return account

    def _find_account(self, name: str) -> Account | None:
        return next((account for account in self.settings.accounts if account.name == name), None)

    def new_reader(
        self,
        name: str,
        audiences: tuple[str, ...],
        releases: Path,
        policies: Path,
        *,
        limit: Ceiling | None = None,
        adversary: Adversary | None = None,
    ) -> tuple[Account, list[Bound]]:
        """An account of audiences, not added yet, and what it may be told, by files of releases and policies.

        Its limit, where not stated, is that of the first audience. Raises FuguError if it would be told more, or that
        cannot be computed.
        """
        from gateway.releases.config import ReleaseConfig

        promise = ReleaseConfig.load(releases).audience_of(name, audiences[0])
        account = Account(
            name=name,
            role="reader",
            audiences=tuple(dict.fromkeys(audiences)),
            epsilon=promise.epsilon if limit is None else limit.epsilon,
            adversary=adversary or promise.adversary,
            seconds=promise.protect if limit is None else limit.seconds,
        )
        return account, self._bounds_of_reader(account, releases, policies)

    def join(self, name: str, audience: str, releases: Path, policies: Path) -> tuple[Account, list[Bound]]:
        """Let a reader belong to one audience more; what it is then, and may be told. Raises as `new_reader`."""
        account = self._find_reader(name)
        if audience in account.audiences:
            raise FuguError(f"the account {name} belongs to audience {audience}")
        left_audiences = tuple(former for former in account.left if former != audience)
        account = account.model_copy(update={"audiences": (*account.audiences, audience), "left": left_audiences})
        bounds = self._bounds_of_reader(account, releases, policies)
        self.replace_account(account)
        return account, bounds

    def leave(self, name: str, audience: str) -> None:
        """Let a reader leave an audience; what it was told still counts. FuguError if it is not in it."""
        account = self._find_reader(name)
        if audience not in account.audiences:
            raise FuguError(f"the account {name} does not belong to audience {audience}")
        audiences = tuple(other for other in account.audiences if other != audience)
        self.replace_account(account.model_copy(update={"audiences": audiences, "left": (*account.left, audience)}))

    def _find_reader(self, name: str) -> Account:
        account = self.account(name)
        if account.role != "reader":
            hint = "; the site reads symbols and all releases" if account.role == "site" else ""
            raise FuguError(f"the account {name} is no reader of audiences, but {account.role}{hint}")
        return account

    def _bounds_of_reader(self, account: Account, releases: Path, policies: Path) -> list[Bound]:
        """The most that a reader may be told about each stream, within its limit. Raises FuguError if it is not."""
        from gateway.estimates.catalogue import Catalogue
        from gateway.releases.config import Reader, ReleaseConfig

        assert account.epsilon is not None
        assert account.adversary is not None
        limit = {"epsilon": account.epsilon, "adversary": account.adversary, "seconds": account.seconds}
        reader = Reader.model_validate({"name": account.name, "audiences": account.ever, **limit})
        return reader.check(ReleaseConfig.load(releases), Catalogue.load(policies, self.settings.fleet))

    def replace_account(self, account: Account) -> None:
        """Let an account be another one of the same name."""
        self._write_list(tuple(account if other.name == account.name else other for other in self.settings.accounts))

    def _write_list(self, accounts: tuple[Account, ...]) -> None:
        self.settings = self.settings.model_copy(update={"accounts": accounts})
        write_secret(self.path / "access.acl", access_list(self.settings.fleet, accounts))
        for name, text in public_files(self.settings).items():
            write_public(self.path / name, text)
        readers = [
            {name: getattr(account, name) for name in ("name", "epsilon", "adversary", "seconds")}
            | {"audiences": account.ever}
            for account in accounts
            if account.ever
        ]
        document = {"format": "fugu/2", "fleet": self.settings.fleet, "readers": readers}
        write_public(self.path / "readers.json", json.dumps(document, indent=2) + "\n")
        write_public(self.path / "broker.json", json.dumps(self.settings.model_dump(), indent=2) + "\n")

    def _write_passwords(self, changes: Mapping[str, str | None]) -> None:
        """Replace or add the lines of some accounts; `None` takes an account's line out."""
        if not changes:
            return
        file = self.path / "passwords"
        lines = read_text(file, "the password file").splitlines()
        other_lines = [line for line in lines if line.partition(":")[0] not in changes]
        write_secret(file, "".join(f"{line}\n" for line in (*other_lines, *filter(None, changes.values()))))

    def _authority(self, ca_key: Path | None) -> Authority:
        file = self.authority_key if ca_key is None else ca_key
        if not file.exists():
            raise FuguError(f"the authority's key is not at {file}: say with FUGU_CA_KEY where it is")
        from gateway.deployment.certificates import Authority  # nobody else waits for the certificates' library

        return Authority.load(self.authority_certificate.encode(), read_text(file, "the authority's key").encode())


def _new_password() -> str:
    """A random password of 256 bits, of letters, digits, `_` and `-`."""
    return secrets.token_urlsafe(32)


def password_line(name: str, password: str, salt: bytes | None = None) -> str:
    """A line of a Mosquitto 2 password file: `name:$7$iterations$salt$hash`, by PBKDF2 with SHA-512; 12 bytes salt."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"{name}:$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def check_name(name: str, kind: str) -> None:
    """Refuse what cannot be a name in a topic, by UsageError."""
    if not _NAME.fullmatch(name) or (name in RESERVED_DEVICES and kind != "stream"):
        reserved = ", ".join(sorted(RESERVED_DEVICES))
        allowed = f"1 to 64 letters, digits, '_' or '-', and none of {reserved}"
        raise UsageError(f"the name of the {kind} must be {allowed}, got {name[:80]!r}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return _ADDRESS.fullmatch(text) is not None  # the name of a link may be anything there
