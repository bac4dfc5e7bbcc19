"""The settings of a gateway and their file, which `fugu gateway run` and `fugu gateway cluster` serve.

File names in the file are relative to its folder.
"""

from __future__ import annotations

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
    "SESSION_SECONDS",
    "FleetConfig",
    "FuguError",
    "GatewayConfig",
    "Keep",
    "Listen",
    "PageConfig",
    "PageFile",
    "PageSettings",
    "Place",
]


class Listen(NamedTuple):
    """An address to listen at."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listen:
        """Read `port` (on the loopback interface), `host:port` or `[ipv6]:port`. Raises UsageError for others."""
        host, colon, port = text.rpartition(":")
        if not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535) or (colon and not host):
            raise UsageError(f"metrics are served at PORT or HOST:PORT, not at {text[:80]!r}")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


def _parse_hours(text: object) -> int:
    """Convert an age such as `12h` or `400d` to hours."""
    if isinstance(text, str) and (age := re.fullmatch("([1-9][0-9]{0,6})([hd])", text)):
        return int(age[1]) * {"h": 1, "d": 24}[age[2]]
    raise ValueError("give an age, such as 12h or 400d")


Age = Annotated[int, PlainValidator(_parse_hours)]


class Keep(Document):
    """How many hours each kind of frames is kept, counted from a frame's last tick. A file says `90d` or `12h`."""

    symbols: Age = 400 * 24
    points: Age = 400 * 24
    windows: Age = 400 * 24


OnConflict = Literal["alarm", "stop"]


SESSION_SECONDS = 12 * 3600.0


_Text = TypeVar("_Text")
_Parsed = TypeVar("_Parsed")


def _check_text(text: object) -> str:
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("give a text")
    return text


def _resolve_path(path: object, info: ValidationInfo) -> Path:
    """Convert a file name to a path beside the file of settings."""
    return path if isinstance(path, Path) else Path(info.context or "") / _check_text(path)


def _parse_with(parse: Callable[[_Text], _Parsed], text: _Text) -> _Parsed:
    """Return `parse(text)`; convert a FuguError to the ValueError that pydantic expects."""
    try:
        return parse(text)
    except FuguError as error:
        raise ValueError(str(error)) from None


def _parse_store(value: object, info: ValidationInfo) -> Location:
    if isinstance(value, Location):
        return value
    location = _parse_with(store_location, _check_text(value))
    return _resolve_path(str(location), info) if isinstance(location, Path) else location


def _parse_listen(value: object) -> Listen:
    return value if isinstance(value, Listen) else _parse_with(Listen.parse, str(value))


def _resolve_broker(broker: Broker, info: ValidationInfo) -> Broker:
    return broker.beside(Path(info.context or ""))


FileName = Annotated[Path, PlainValidator(_resolve_path)]
PlacedBroker = Annotated[Broker, AfterValidator(_resolve_broker)]
StoreName = Annotated[Location, PlainValidator(_parse_store)]


class Account(Document):
    """The account of a connection that does not use the gateway's own."""

    username: str | None = None
    password_file: FileName | None = None
    cert_file: FileName | None = None
    key_file: FileName | None = None

    def of(self, broker: Broker) -> Broker:
        """Return the broker with this account's credentials in place of its own."""
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
        registry: the fleet's devices and their documents.
        roots: every root.envelope that the fleet has had.
        key: the gateway's key, which signs tables, the time and stops; without it nothing is signed.
        passphrase_file: a file whose first line is the key's passphrase.
        operator: the account that publishes policies.
        trusted_clock: sign the time although nothing synchronises this machine's clock.
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
        no_login: show the page to every user of this machine.
        ingress: show the page only to Home Assistant's Supervisor, as an add-on does; readers log in there.
        tls_cert, tls_key: the page's certificate, needed beyond loopback.
        audience: the audience whose part of the ledger is shown; the whole ledger if there is none.
        account: the account by which the page connects to the broker.
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
    def _refuse_exposure(self) -> Self:
        """Refuse settings that would show the fleet to others, or send a password unencrypted over a network."""
        if (self.login_file is not None) + self.no_login + self.ingress != 1:
            raise ValueError("the page needs one of login_file, no_login = true and ingress = true")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs a certificate and its key")
        from fugu.host.addresses import is_loopback  # only a gateway with a page needs it

        if not self.ingress and not is_loopback(_parse_with(Broker.parse, self.listen).host):
            if self.login_file is None:
                raise ValueError("the page can be reached from other machines: it needs a password")
            if self.tls_cert is None:
                raise ValueError("the page can be reached from other machines: it needs a certificate and its key")
        return self


class PageSettings(NamedTuple):
    """The page's settings, with its own connection to the broker.

    Attributes:
        listen: host and port.
        ledger: where the gateway's ledger is; `None` if the page shows none.
        store: the gateway's store, for counts of a week; `None` if the page has none.
    """

    fleet: str
    broker: Broker
    page: PageConfig
    listen: tuple[str, int]
    ledger: Location | None = None
    store: Location | None = None

    @classmethod
    def of(cls, fleet: str, broker: Broker, page: PageConfig, ledger: Location | None) -> Self:
        """Create the settings of a page, whose broker has the page's own account."""
        address = Broker.parse(page.listen)
        return cls(fleet, page.account.of(broker), page, (address.host, address.port), ledger)

    @property
    def address(self) -> str:
        """The page's URL."""
        host, port = self.listen
        scheme = "http" if self.page.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


class GatewayConfig(Document):
    """The settings that a gateway is started with.

    Attributes:
        store: a file, or postgresql://USER@HOST/DATABASE.
        policies: folder of policy files; none if all policies are in a fleet's registry.
        lag: ticks of later symbols or points that each estimate sees.
        releases: the file of audiences and schedules.
        ledger: the ledger of the releases; `None` for one beside the store.
        on_conflict: `alarm` tells an operator of a device that contradicts itself, `stop` also stops the device.
        home_assistant: whether devices are announced to Home Assistant.
        page_url: address of the live page, to which Home Assistant links each device.
        metrics: PORT or HOST:PORT at which metrics are served to Prometheus.
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
    metrics: Annotated[Listen, PlainValidator(_parse_listen)] | None = None
    broker: PlacedBroker = Broker()
    keep: Keep = Keep()
    signed: FleetConfig | None = None
    page: PageConfig | None = None

    @property
    def operator(self) -> Broker:
        """The broker with the operator's credentials, by which alone policies are published."""
        return self.broker if self.signed is None else self.signed.operator.of(self.broker)

    def page_settings(self) -> PageSettings | None:
        """Return the page's settings, `None` without a page. Raises FuguError if the page has no account of its own."""
        if self.page is None:
            return None
        has_account = self.page.account.username is not None or self.page.account.cert_file is not None
        if not has_account and (self.broker.username is not None or self.broker.cert_file is not None):
            raise FuguError("the page needs an account of its own: username or cert_file in [page.account]")
        ledger = None if self.releases is None else self.ledger or ledger_beside(self.store)
        store = self.store if self.page.audience is None else None  # an audience is told of no counts
        return PageSettings.of(self.fleet, self.broker, self.page, ledger)._replace(store=store)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the settings of a gateway. Raises FuguError for an unreadable file or a wrong key."""
        return read_toml(path, cls, FuguError)


class PageFile(Document):
    """The settings of a page that runs by itself.

    Attributes:
        ledger: the gateway's ledger, whose charges and budgets are shown.
    """

    fleet: Annotated[str, Field(pattern=NAME_PATTERN)]
    broker: PlacedBroker = Broker()
    ledger: StoreName | None = None
    page: PageConfig

    def settings(self) -> PageSettings:
        """Return the page's settings. Raises FuguError if an audience has no ledger."""
        if self.page.audience is not None and self.ledger is None:
            raise FuguError("of which ledger is that audience: say ledger")
        return PageSettings.of(self.fleet, self.broker, self.page, self.ledger)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the settings of a page that runs by itself. Raises FuguError for an unreadable file or a wrong key."""
        return read_toml(path, cls, FuguError)


class Place(NamedTuple):
    """The store and ledger of a gateway, and the lag of its estimates.

    Attributes:
        ledger: `None` for the ledger beside the store.
        lag: ticks of later symbols or points that an estimate sees.
    """

    store: Location
    ledger: Location | None = None
    lag: int = 8

    @classmethod
    def of(cls, text: str) -> Self:
        """Resolve an option that names a store: a file, a URL, or a gateway.toml, which also names ledger and lag.

        Raises:
            FuguError: a URL is of another kind or has a password, or a gateway.toml is unreadable or wrong.
        """
        if not text.endswith(".toml"):
            return cls(store_location(text))
        gateway = GatewayConfig.read(Path(text))
        return cls(gateway.store, gateway.ledger, gateway.lag)
