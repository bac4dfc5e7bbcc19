"""A broker of one's own on a free loopback port: Mosquitto if it is there, else the embedded one."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fugu.contract.errors import FuguError

__all__ = ["BrokerError", "start_broker"]

START_SECONDS = 300.0
_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
set_tcp_nodelay true
{options}
"""


class BrokerError(FuguError):
    """No broker could be started."""


@contextmanager
def start_broker(kind: str, folder: Path, options: str = "") -> Iterator[tuple[int, str]]:
    """Run a broker while the context lasts.

    Args:
        kind: "mosquitto", "embedded", or "auto" for the first of these that is installed.
        folder: where its configuration and log go.
        options: further lines for Mosquitto's configuration.

    Yields:
        Its port, and its name.

    Raises:
        BrokerError: if it does not start.
    """
    mosquitto = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if kind == "mosquitto" and mosquitto is None:
        raise BrokerError("mosquitto is not installed: apt-get install mosquitto")
    port = _free_port()
    if mosquitto is not None and kind != "embedded":
        config = folder / "mosquitto.conf"
        config.write_text(_MOSQUITTO.format(port=port, options=options))
        command, name = [mosquitto, "-c", str(config)], "Mosquitto"
    else:
        command, name = [sys.executable, "-m", "fugu.cli.demo.broker", str(port)], "embedded broker (amqtt)"
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_listening(process, port, folder / "broker.log")
        yield port, name
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _await_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise BrokerError(f"the broker did not start: see {log}")


async def _serve_embedded(port: int) -> None:
    from amqtt.broker import Broker

    anonymous = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    broker = Broker({"listeners": {"default": listener}, "plugins": anonymous})
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(_serve_embedded(int(sys.argv[1])))
