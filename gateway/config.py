"""The settings of a gateway, and their file: what `fugu gateway run` and `cluster` serve, and who is told what of it.

File names in it are relative to its folder.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, model_validator

from fugu.contract._document import Document
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.frames import MAX_FRAME_TICKS
from fugu.contract.topics import NAME_PATTERN
from fugu.host.toml_file import read_toml
from fugu.mqtt import Broker
from gateway.store.location import Location, ledger_beside, store_location

__all__ = [
    *("SESSION_SECONDS", "FleetConfig", "GatewayConfig", "Keep", "Listen", "PageConfig", "PageFile", "PageSettings"),
    *("Place", "FuguError"),
]


class Listen(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read `port` (on the loopback interface), `host:port` or `[ipv6]:port`. Raises UsageError for others."""
        host, colon, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535) or (colon and not host):
            raise UsageError(f"metrics are served at PORT or HOST:PORT, not at {text[:80]!r}")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


def _hours(value: object) -> int:
    if isinstance(value, str) and (age := re.fullmatch("([1-9][0-9]{0,6})([hd])", value)):
        return int(age[1]) * {"h": 1, "d": 24}[age[2]]
    raise ValueError("give an age, such as 12h or 400d")


Age = Annotated[int, PlainValidator(_hours)]


class Keep(Document):
    """For how many hours each kind is kept, counted from its last tick; a file says `90d` or `12h`."""

    symbols: Age = 400 * 24
    points: Age = 400 * 24
    windows: Age = 400 * 24


OnConflict = Literal["alarm", "stop"]


SESSION_SECONDS = 12 * 3600.0


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_Given = TypeVar("_Given")
_Value = TypeVar("_Value")


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("give a text")
    return value


def _file(value: object, info: ValidationInfo) -> Path:
    return value if isinstance(value, Path) else Path(info.context or "") / _text(value)


def _read(parse: Callable[[_Given], _Value], value: _Given) -> _Value:
    try:
        return parse(value)
    except FuguError as error:
        raise ValueError(str(error)) from None


def _location(value: object, info: ValidationInfo) -> Location:
    if isinstance(value, Location):
        return value
    location = _read(store_location, _text(value))
    return _file(str(location), info) if isinstance(location, Path) else location


def _listen(value: object) -> Listen:
    return value if isinstance(value, Listen) else _read(Listen.parse, str(value))


def _placed(broker: Broker, info: ValidationInfo) -> Broker:
    return broker.beside(Path(info.context or ""))


FileName = Annotated[Path, PlainValidator(_file)]
PlacedBroker = Annotated[Broker, AfterValidator(_placed)]
StoreName = Annotated[Location, PlainValidator(_location)]


class Account(Document):
    """As whom to connect, where that is not the gateway's own account."""

    username: str | None = None
    password_file: FileName | None = None
    cert_file: FileName | None = None
    key_file: FileName | None = None

    def of(self, broker: Broker) -> Broker:
        """The same connection, by this account."""
        files = {name: None if (file := getattr(self, name)) is None else str(file) for name in _ACCOUNT_FILES}
        if self.username is not None:
            broker = replace(broker, username=self.username, password_file=files["password_file"])
        if self.cert_file is not None:
            broker = replace(broker, cert_file=files["cert_file"], key_file=files["key_file"])
        return broker


_ACCOUNT_FILES = ("password_file", "cert_file", "key_file")


class FleetConfig(Document):
    """A fleet whose devices are sent signed policies.

    Attributes:
        registry: its devices and their documents.
        roots: every root.envelope that there has been.
        key: of the gateway, for tables, the time and stops; without it nothing is signed.
        operator: as whom policies are published.
        trusted_clock: the time is signed although nothing synchronises the clock, which is right.
    """

    registry: FileName
    roots: tuple[FileName, ...] = Field(min_length=1)
    key: FileName | None = None
    passphrase_file: FileName | None = None
    operator: Account = Account()
    trusted_clock: bool = False


class PageConfig(Document):
    """The live page.

    Attributes:
        listen: HOST:PORT.
        login_file: the hash of the page's password, as `fugu gateway dashboard --new-login` writes it.
        no_login: shows it to whoever is on this machine.
        ingress: shows it to Home Assistant's Supervisor and nobody else, as an add-on does; there readers log in.
        tls_cert, tls_key: its certificate, where it is beyond loopback.
        audience: whose part of the ledger is shown; all of it if there is none.
        account: whose view it shows.
    """

    listen: str
    login_file: FileName | None = None
    no_login: bool = False
    ingress: bool = False
    tls_cert: FileName | None = None
    tls_key: FileName | None = None
    session_seconds: float = Field(default=SESSION_SECONDS, gt=0.0)
    audience: str | None = None
    account: Account = Account()

    @model_validator(mode="after")
    def _shown_to_nobody_else(self) -> Self:
        """Refuse what would show the fleet to others, or a password to the network."""
        if (self.login_file is not None) + self.no_login + self.ingress != 1:
            raise ValueError("the page needs one of login_file, no_login = true and ingress = true")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs a certificate and its key")
        if not self.ingress and not _loopback(_read(Broker.parse, self.listen).host):
            if self.login_file is None:
                raise ValueError("the page can be reached from other machines: it needs a password")
            if self.tls_cert is None:
                raise ValueError("the page can be reached from other machines: it needs a certificate and its key")
        return self


class PageSettings(NamedTuple):
    """The page, and as whom it connects to the broker.

    Attributes:
        listen: host and port.
        ledger: where the gateway's ledger is; `None` if the page shows none.
        store: of the gateway beside it, for counts of a week; `None` if it has none.
    """

    fleet: str
    broker: Broker
    page: PageConfig
    listen: tuple[str, int]
    ledger: Location | None = None
    store: Location | None = None

    @classmethod
    def of(cls, fleet: str, broker: Broker, page: PageConfig, ledger: Location | None) -> Self:
        """Settings by the account that the page has."""
        where = Broker.parse(page.listen)
        return cls(fleet, page.account.of(broker), page, (where.host, where.port), ledger)

    @property
    def address(self) -> str:
        """Where it is, for a browser."""
        host, port = self.listen
        scheme = "http" if self.page.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


class GatewayConfig(Document):
    """Everything that a gateway is started with.

    Attributes:
        store: a file, or postgresql://USER@HOST/DATABASE.
        policies: folder of policy files; none if all policies are in a fleet's registry.
        lag: ticks of later symbols or points that each estimate sees.
        releases: audiences and schedules.
        ledger: of the releases; beside the store if there is none.
        on_conflict: what is done about a device that contradicts itself: an operator is told, or it is stopped as well.
        home_assistant: whether Home Assistant is told of devices.
        page_url: where readers find the live page: Home Assistant links each device to it.
        metrics: PORT or HOST:PORT where Prometheus may ask.
        keep: how long symbols, points and windows are kept, such as 90d or 12h.
        signed: the fleet's registry and keys.
    """

    fleet: Annotated[str, Field(pattern=NAME_PATTERN)]
    store: StoreName
    policies: FileName | None = None
    lag: int = Field(default=8, ge=0, le=MAX_FRAME_TICKS)
    releases: FileName | None = None
    ledger: StoreName | None = None
    on_conflict: OnConflict = "alarm"
    home_assistant: bool = False
    page_url: Annotated[str, Field(pattern=r"^(https?|homeassistant)://[!-~]+$")] | None = None
    metrics: Annotated[Listen, PlainValidator(_listen)] | None = None
    broker: PlacedBroker = Broker()
    keep: Keep = Keep()
    signed: FleetConfig | None = None
    page: PageConfig | None = None

    @property
    def operator(self) -> Broker:
        """The broker with the credentials by which policies are published; nobody else may do so."""
        return self.broker if self.signed is None else self.signed.operator.of(self.broker)

    def page_settings(self) -> PageSettings | None:
        """The page beside it, if any. Raises FuguError if it would be shown by the gateway's account."""
        if self.page is None:
            return None
        own = self.page.account.username is not None or self.page.account.cert_file is not None
        if not own and (self.broker.username is not None or self.broker.cert_file is not None):
            raise FuguError("the page needs an account of its own: username or cert_file in [page.account]")
        ledger = None if self.releases is None else self.ledger or ledger_beside(self.store)
        store = self.store if self.page.audience is None else None  # an audience is told of no counts
        return PageSettings.of(self.fleet, self.broker, self.page, ledger)._replace(store=store)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of a gateway. Raises FuguError if it cannot be read, or a key is wrong."""
        return read_toml(path, cls, FuguError)


class PageFile(Document):
    """The page by itself.

    Attributes:
        ledger: the gateway's, to show charges and budgets.
    """

    fleet: Annotated[str, Field(pattern=NAME_PATTERN)]
    broker: PlacedBroker = Broker()
    ledger: StoreName | None = None
    page: PageConfig

    def settings(self) -> PageSettings:
        """Settings of the page. Raises FuguError if an audience has no ledger."""
        if self.page.audience is not None and self.ledger is None:
            raise FuguError("of which ledger is that audience: say ledger")
        return PageSettings.of(self.fleet, self.broker, self.page, self.ledger)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of a page by itself. Raises FuguError if it cannot be read, or a key is wrong."""
        return read_toml(path, cls, FuguError)


class Place(NamedTuple):
    """Where a gateway keeps what it has, and how late its estimates are.

    Attributes:
        ledger: `None` if it is beside the store.
        lag: ticks of later symbols or points that an estimate sees.
    """

    store: Location
    ledger: Location | None = None
    lag: int = 8

    @classmethod
    def of(cls, text: str) -> Self:
        """Resolve an option that names a store: a file, a URL, or a gateway.toml, which knows more.

        Raises:
            FuguError: it is none of them.
        """
        if not text.endswith(".toml"):
            return cls(store_location(text))
        gateway = GatewayConfig.read(Path(text))
        return cls(gateway.store, gateway.ledger, gateway.lag)
