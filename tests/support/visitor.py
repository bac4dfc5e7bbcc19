"""A visitor of a page of one browser, without a screen."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any

from tests.support.brokers import PATIENCE


class Visitor:
    """A browser without a screen, at an address."""

    def __init__(self, address: str) -> None:
        match = re.search(r"(http://(127\.0\.0\.1:\d+))(\S+)", address)
        assert match is not None, address
        self.address, self.host, self.entrance = match[1] + match[3], match[2], match[3]
        self.cookie = ""

    def enter(self) -> None:
        self.cookie = self.ask("GET", self.entrance)[1]["set-cookie"].partition(";")[0]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> tuple[int, Any, bytes]:
        """Status, headers and body of an answer; the usual headers are those of the page itself."""
        usual = (
            {"Origin": f"http://{self.host}", "Cookie": self.cookie} if method == "POST" else {"Cookie": self.cookie}
        )
        sent = {name: value for name, value in {**usual, **headers}.items() if value}
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        response = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return response

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.ask("GET", "/state")[2]))

    def do(self, what: str, **fields: str) -> int:
        usual = {"local": "127.0.0.1:1884", "broker": "127.0.0.1:1883", "fleet": "home", "device": "device-1"}
        return self.ask("POST", "/ask", json.dumps({**usual, **fields, "do": what}).encode())[0]
