"""The broker's folder: configuration, certificates, accounts and access list, and changes of accounts.

    mosquitto.conf               for Mosquitto 2.0 or newer, started in this folder
    ca.pem server.pem server.key the authority's certificate, the broker's certificate and key
    passwords access.acl         accounts (none with mutual TLS) and what they may do
    fugu-broker.service          a systemd unit
    fugu-broker.nft              rules for nftables: connections of one address
    broker.json                  settings and accounts, for `fugu deploy`
    readers.json                 who reads releases, and their limits, for the gateway

The authority's key belongs on a disk in a drawer, and is never in this folder. It is written beside the folder, into
one of the same name with `-offline` at the end.
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
from fugu.mqtt import Broker
from gateway.deployment.mosquitto import AUTHORITY_DAYS, Account, Role, Settings, access_list, public_files

if TYPE_CHECKING:
    from fugu.contract.losses import Adversary
    from fugu.contract.stretches import Ceiling
    from gateway.deployment.certificates import Authority, CertifiedKey
    from gateway.releases.config import Bound

__all__ = ["BrokerFolder", "Credentials", "check_name", "password_line"]


_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MOST_HOST = 253
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9._-]+)?")
_NAME = re.compile(NAME_PATTERN)
_ITERATIONS = 101
"""Mosquitto's default. More iterations only slow the broker down: no one can guess a password of 256 random bits."""
_PASSWORD_BYTES = 32
_SALT_BYTES = 12  # the only length that Mosquitto 2.0 reads


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret of one account: a password, or a certificate and its key."""

    name: str
    password: str | None
    certified_key: CertifiedKey | None

    def write(self, folder: Path, name_of: Callable[[str], str] = str) -> dict[str, str]:
        """Write the files into a folder. Return the fields of `fugu.mqtt.Broker` that name them, without the folder.

        `name_of` returns the name of the written file for its usual name.
        """
        if self.certified_key is not None:
            files = {"cert_file": name_of("client.pem"), "key_file": name_of("client.key")}
            write_public(folder / files["cert_file"], self.certified_key.certificate)
            write_secret(folder / files["key_file"], self.certified_key.key)
            return files
        file = name_of("password")
        write_secret(folder / file, f"{self.password}\n")
        return {"username": self.name, "password_file": file}


@dataclass(slots=True)
class BrokerFolder:
    """A broker's folder, and the settings in its document."""

    path: Path
    settings: Settings

    @classmethod
    def create(cls, path: Path, settings: Settings, now: datetime) -> Self:
        """Write the folder of a new broker, without any account.

        Raises FuguError if the folder is not empty, or cannot be written; UsageError for a bad name or address.
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
        folder._write_certificate(authority, now)
        if not settings.mutual:
            write_secret(path / "passwords", "")
        folder._set_accounts(())
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the folder of a broker. FuguError if the folder is no broker's."""
        try:
            settings = Settings.model_validate_json(read_text(path / "broker.json", "the broker's document"))
        except ValidationError as error:
            raise FuguError(f"{path / 'broker.json'}: {first_problem(error, 'document')}") from None
        return cls(path, settings)

    @property
    def address(self) -> str:
        """The broker's HOST:PORT for clients."""
        return Broker(self.settings.hosts[0], self.settings.port).address

    @property
    def authority_key(self) -> Path:
        """The file to which `create` wrote the authority's key."""
        folder = self.path.resolve()
        return folder.with_name(f"{folder.name}-offline") / "ca.key"

    @property
    def authority_certificate(self) -> str:
        """The authority's certificate, which clients trust."""
        return read_text(self.path / "ca.pem", "the authority's certificate")

    def add(self, account: Account, now: datetime, *, ca_key: Path | None = None, renew: bool = False) -> Credentials:
        """Make an account, or give an existing one new credentials.

        Raises FuguError if the account's name is taken, or the authority's key is missing.

        `now` has a zone. `ca_key` is the file of the authority's key if it has moved, needed with mutual TLS only.
        `renew` allows an account that exists: only its credentials change, and a device's streams if any are given.
        """
        self.check_free(account.name, account.role, renew=renew)
        credentials = self.issue(account.name, now, ca_key=ca_key)
        self.admit([(account, credentials)])
        return credentials

    def issue(self, name: str, now: datetime, *, ca_key: Path | None = None) -> Credentials:
        """Make credentials without writing a file; they are valid after `admit`. Raises as `add`."""
        if self.settings.mutual:
            return Credentials(name, None, self._load_authority(ca_key).issue_client(name, now, self.settings.days))
        return Credentials(name, secrets.token_urlsafe(_PASSWORD_BYTES), None)

    def admit(self, accounts: Sequence[tuple[Account, Credentials]]) -> None:
        """Add accounts with their credentials to the broker's files, after `check_free` has allowed their names."""
        self._write_passwords({c.name: password_line(c.name, c.password) for _, c in accounts if c.password})
        accounts_by_name = {account.name: account for account in self.settings.accounts}
        for account, _ in accounts:
            old_account = accounts_by_name.setdefault(account.name, account)
            was_removed = old_account.role == "removed"
            if was_removed:
                old_account = old_account.model_copy(update={"role": account.role, "uncleared": False})
            if was_removed or account.streams:
                accounts_by_name[account.name] = old_account.with_streams(account.streams)
        self._set_accounts(tuple(accounts_by_name.values()))

    def check_free(self, name: str, role: Role, *, renew: bool) -> Account | None:
        """Refuse a malformed name (UsageError) or a taken one (FuguError). Return its existing account, or `None`."""
        check_name(name, "account")
        account = self._find_account(name)
        is_free = account is not None and account.uncleared and role == "device" and not self.settings.mutual
        if account is not None and not (renew and account.role == role) and not is_free:
            state_words = "was removed" if account.role == "removed" else f"exists, as {account.role}"
            hint = "; fugu deploy renew gives it new credentials" if account.role == role and not renew else ""
            raise FuguError(f"the account {name} {state_words}{hint}")
        return account

    def renew(self, now: datetime, *, ca_key: Path | None = None) -> None:
        """Replace the broker's certificate and key; clients need no new file.

        Raises FuguError if the authority's key (see `add`) is missing, or the authority's certificate has ended.
        """
        self._write_certificate(self._load_authority(ca_key), now)

    def _write_certificate(self, authority: Authority, now: datetime) -> None:
        server = authority.issue_server(self.settings.hosts, now, self.settings.days)
        write_public(self.path / "server.pem", server.certificate)
        write_secret(self.path / "server.key", server.key)

    def remove(self, name: str) -> None:
        """Remove all rights of an account. FuguError if there is no such account.

        With mutual TLS the name stays taken, without rights, because its certificate stays valid. A reader's name stays
        taken, too, because what the reader was told still counts. Operators may clear what a device has left.
        """
        account = self.account(name)
        is_device = account.role == "device"
        changes = {"role": "removed", "audiences": (), "left": account.all_audiences, "uncleared": is_device}
        self._drop_account(account.model_copy(update=changes))
        if not self.settings.mutual:
            self._write_passwords({name: None})

    def uncleared(self, name: str) -> Account | None:
        """Return a removed device if the broker may still retain its messages; `None` otherwise."""
        account = self._find_account(name)
        return account if account is not None and account.uncleared else None

    def topics_of_removed(self, device: Account) -> list[str]:
        """Return all topics on which the broker may retain messages of a removed device."""
        fleet = self.settings.fleet
        is_announced = any(account.role == "home-assistant" for account in self.settings.accounts)
        discovery = [discovery_topic(fleet, device.name), available_topic(fleet, device.name)] if is_announced else []
        return [*device.topics(fleet), *discovery]

    def note_cleared(self, account: Account) -> None:
        """Note that the broker retains no message of a removed device."""
        self._drop_account(account.model_copy(update={"streams": (), "former": (), "uncleared": False}))

    def _drop_account(self, account: Account) -> None:
        """Drop a removed account, unless its name must stay taken, or the broker may still retain its messages."""
        other_accounts = tuple(other for other in self.settings.accounts if other.name != account.name)
        must_stay = self.settings.mutual or account.all_audiences or account.uncleared
        self._set_accounts((*other_accounts, account) if must_stay else other_accounts)

    def account(self, name: str) -> Account:
        """Return the account of a name. FuguError if there is none, or it was removed."""
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
        """Make a reader of audiences without adding it. Return its account and the bounds on its losses.

        The bounds follow from the files of releases and policies. The limit, if not given, is the first audience's
        promise. Raises FuguError if a bound is above the limit, or cannot be computed.
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
        """Add a reader to an audience. Return its new account and bounds; errors as of `new_reader`."""
        account = self._find_reader(name)
        if audience in account.audiences:
            raise FuguError(f"the account {name} belongs to audience {audience}")
        left_audiences = tuple(other_audience for other_audience in account.left if other_audience != audience)
        account = account.model_copy(update={"audiences": (*account.audiences, audience), "left": left_audiences})
        bounds = self._bounds_of_reader(account, releases, policies)
        self.replace_account(account)
        return account, bounds

    def leave(self, name: str, audience: str) -> None:
        """Remove a reader from an audience; its loss so far still counts. FuguError if it is not in the audience."""
        account = self._find_reader(name)
        if audience not in account.audiences:
            raise FuguError(f"the account {name} does not belong to audience {audience}")
        audiences = tuple(other_audience for other_audience in account.audiences if other_audience != audience)
        self.replace_account(account.model_copy(update={"audiences": audiences, "left": (*account.left, audience)}))

    def _find_reader(self, name: str) -> Account:
        account = self.account(name)
        if account.role != "reader":
            hint = "; the site reads symbols and all releases" if account.role == "site" else ""
            raise FuguError(f"the account {name} is no reader of audiences, but {account.role}{hint}")
        return account

    def _bounds_of_reader(self, account: Account, releases: Path, policies: Path) -> list[Bound]:
        """Return the bound on a reader's loss about each stream. FuguError if a bound is above the reader's limit."""
        from gateway.estimates.catalogue import Catalogue
        from gateway.releases.config import Reader, ReleaseConfig

        assert account.epsilon is not None
        assert account.adversary is not None
        limit_fields = {"epsilon": account.epsilon, "adversary": account.adversary, "seconds": account.seconds}
        reader = Reader.model_validate({"name": account.name, "audiences": account.all_audiences, **limit_fields})
        return reader.check(ReleaseConfig.load(releases), Catalogue.load(policies, self.settings.fleet))

    def replace_account(self, account: Account) -> None:
        """Replace the account of the same name."""
        self._set_accounts(tuple(account if other.name == account.name else other for other in self.settings.accounts))

    def _set_accounts(self, accounts: tuple[Account, ...]) -> None:
        self.settings = self.settings.model_copy(update={"accounts": accounts})
        write_secret(self.path / "access.acl", access_list(self.settings.fleet, accounts))
        for name, file_text in public_files(self.settings).items():
            write_public(self.path / name, file_text)
        readers = [
            {name: getattr(account, name) for name in ("name", "epsilon", "adversary", "seconds")}
            | {"audiences": account.all_audiences}
            for account in accounts
            if account.all_audiences
        ]
        document = {"format": "fugu/2", "fleet": self.settings.fleet, "readers": readers}
        write_public(self.path / "readers.json", json.dumps(document, indent=2) + "\n")
        write_public(self.path / "broker.json", json.dumps(self.settings.model_dump(), indent=2) + "\n")

    def _write_passwords(self, changes: Mapping[str, str | None]) -> None:
        """Replace or add the lines of some accounts in the password file; `None` removes an account's line."""
        if not changes:
            return
        file = self.path / "passwords"
        lines = read_text(file, "the password file").splitlines()
        other_lines = [line for line in lines if line.partition(":")[0] not in changes]
        write_secret(file, "".join(f"{line}\n" for line in (*other_lines, *filter(None, changes.values()))))

    def _load_authority(self, ca_key: Path | None) -> Authority:
        file = self.authority_key if ca_key is None else ca_key
        if not file.exists():
            raise FuguError(f"the authority's key is not at {file}: say with FUGU_CA_KEY where it is")
        from gateway.deployment.certificates import Authority  # slow to import

        return Authority.load(self.authority_certificate.encode(), read_text(file, "the authority's key").encode())


def password_line(name: str, password: str, salt: bytes | None = None) -> str:
    """Return a line of a Mosquitto 2 password file, `name:$7$iterations$salt$hash`: PBKDF2, SHA-512, 12 bytes salt."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"{name}:$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def check_name(name: str, kind: str) -> None:
    """Raise UsageError if a name cannot be part of a topic. `kind` is the named thing, for the error."""
    if not _NAME.fullmatch(name) or (name in RESERVED_DEVICES and kind != "stream"):
        reserved = ", ".join(sorted(RESERVED_DEVICES))
        name_rules = f"1 to 64 letters, digits, '_' or '-', and none of {reserved}"
        raise UsageError(f"the name of the {kind} must be {name_rules}, got {name[:80]!r}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return _ADDRESS.fullmatch(text) is not None  # `ipaddress` allows any text after `%`
