"""The page beside a gateway: the options of `fugu gateway run` that begin with `--dashboard`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fugu.contract.errors import UsageError

if TYPE_CHECKING:
    from fugu.mqtt import Broker
    from gateway.location import Location
    from gateway.page.server import PageBeside

__all__ = ["DashboardOptions"]


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    """Where the page is served, to whom, and with which account it reads."""

    dashboard: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve the live page there, in a process of its own.")
    ] = None
    dashboard_login_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hash of the page's password: fugu dashboard --new-login.")
    ] = None
    dashboard_no_login: Annotated[
        bool, typer.Option("--dashboard-no-login", help="Show it to whoever is on this machine; loopback only.")
    ] = False
    dashboard_tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the page, which is beyond loopback.")
    ] = None
    dashboard_tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")] = None
    dashboard_session_seconds: Annotated[
        float, typer.Option(metavar="S", help="How long a login to the page lasts.")
    ] = 43_200.0
    dashboard_audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the ledger show this audience's part only (default: all).")
    ] = None
    dashboard_username: Annotated[
        str | None, typer.Option(metavar="NAME", help="The account whose view it shows, not the gateway's.")
    ] = None
    dashboard_password_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of that account.")] = None
    dashboard_cert_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of that account.")] = None
    dashboard_key_file: Annotated[str | None, typer.Option(metavar="FILE", help="Of that account.")] = None

    def beside(self, fleet: str, gateway: Broker, ledger: Location | None) -> AbstractContextManager[PageBeside | None]:
        """The page, which listens already, and begins with the context; nothing if none is wanted.

        Args:
            ledger: of the gateway; none if it makes no releases.

        Raises:
            FuguError: it cannot be served as it is asked for.
        """
        if self.dashboard is None:
            if self != DashboardOptions():
                raise UsageError("where is the page to be: give --dashboard HOST:PORT")
            return nullcontext()
        from gateway.page.server import PageBeside, PageSettings

        if (self.dashboard_login_file is None) != self.dashboard_no_login:
            raise UsageError("the page needs either --dashboard-login-file or --dashboard-no-login")
        own = self.dashboard_username is not None or self.dashboard_cert_file is not None
        if not own and (gateway.username is not None or gateway.cert_file is not None):
            raise UsageError("the page needs an account of its own: give --dashboard-username or --dashboard-cert-file")
        account = gateway
        if self.dashboard_username is not None:
            account = replace(account, username=self.dashboard_username, password_file=self.dashboard_password_file)
        if self.dashboard_cert_file is not None:
            account = replace(account, cert_file=self.dashboard_cert_file, key_file=self.dashboard_key_file)
        where = gateway.parse(self.dashboard)
        return PageBeside(
            PageSettings(
                fleet,
                account,
                (where.host, where.port),
                password=self.dashboard_login_file,
                certificate=self.dashboard_tls_cert,
                key=self.dashboard_tls_key,
                session_seconds=self.dashboard_session_seconds,
                ledger=ledger,
                audience=self.dashboard_audience,
            )
        )
