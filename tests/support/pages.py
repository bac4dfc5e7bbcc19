"""The live page, asked as a browser would ask it."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from fugu.mqtt import Broker
from tests.support.brokers import PATIENCE, free_port, wait_until
from tests.support.gateway_files import gateway_file


class Site:
    """A page at a port of this machine; `open` is how the file of a gateway has it, without a login."""

    def __init__(self, port: int, certificate: Path | None = None) -> None:
        self.port = port
        self.address = f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"
        self._trusted = None if certificate is None else ssl.create_default_context(cafile=str(certificate))
        self.open = {"listen": f"127.0.0.1:{port}", "no_login": True}

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> tuple[int, bytes]:
        """Status and body of an answer; of a stream of events the first, or two of a device."""
        connection = self._connect("127.0.0.1")
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            if response.getheader("content-type", "").startswith("text/event-stream"):
                lines, end = list[bytes](), 2 if "device" in path else 1
                while sum(line.startswith(b"data:") for line in lines) < end:
                    lines.append(response.fp.readline())
                return response.status, b"".join(lines)
            return response.status, response.read()
        finally:
            connection.close()

    @contextmanager
    def following(self, path: str, cookie: str, source: str = "127.0.0.1") -> Iterator[IO[bytes]]:
        """Lines of a stream of events, while the context lasts."""
        with closing(self._connect(source)) as connection:
            connection.request("GET", path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            assert answer.status == 200
            yield answer.fp

    def enter(self, password: str, source: str = "127.0.0.1") -> str | None:
        """The cookie of a new session; none if the password is wrong."""
        return (self.log_in(password, source)[1] or "").partition(";")[0] or None

    def log_in(self, password: str, source: str = "127.0.0.1") -> tuple[int, str | None]:
        """Status of the answer to a password, and the cookie with its attributes."""
        connection = self._connect(source)
        try:
            connection.request("POST", "/login", f"password={password}")
            answer = connection.getresponse()
            return answer.status, answer.getheader("set-cookie")
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            return self.ask("/login")[0] < 500
        except (OSError, http.client.HTTPException):  # a port that nobody listens at may be connected to itself
            return False

    def _connect(self, source: str) -> http.client.HTTPConnection:
        if self._trusted is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, source_address=(source, 0))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=(source, 0), context=self._trusted
        )


_WITH_SUPERVISOR = """
import sys
import gateway.page.server
from fugu_cli.main import main
gateway.page.server.SUPERVISOR = sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""


class ServedPage(Site):
    """`fugu gateway dashboard` in a process of its own; `supervisor` stands for Home Assistant's address."""

    def __init__(
        self,
        folder: Path,
        broker: Broker | int,
        ledger: Path | None = None,
        certificate: Path | None = None,
        supervisor: str | None = None,
        **page: object,
    ) -> None:
        super().__init__(free_port(), certificate)
        page = {"listen": f"127.0.0.1:{self.port}", **(page or {"no_login": True})}
        file = gateway_file(folder / f"page-{self.port}.toml", broker, ledger=ledger, page=page)
        program = ["-m", "fugu"] if supervisor is None else ["-c", _WITH_SUPERVISOR, supervisor]
        command = [sys.executable, *program, "gateway", "dashboard", str(file)]
        with (folder / "page.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._serves, "the page")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def _serves(self) -> bool:
        assert self.process.poll() is None
        return self.answers()
