"""Start, watch and stop the processes of a demo: a broker, a gateway, devices and a subscriber."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeAlias

from firmware_sim.devices import write_config
from fugu.contract.errors import FuguError
from fugu.contract.policies import AnyPolicy
from fugu.contract.topics import Topic, parse_topic
from fugu.host.toml_file import toml_lines
from fugu.mqtt import Broker, Link
from fugu_cli.view.terminal import say

__all__ = [
    "Device",
    "Listener",
    "Process",
    "Site",
    "end",
    "find_mosquitto",
    "kill",
    "program",
    "start_broker",
    "start_site",
    "wait_for",
]

Process: TypeAlias = subprocess.Popen[bytes]


class Listener:
    """A subscriber to topics of a broker while the context lasts; unreadable messages are dropped."""

    def __init__(self, broker: Broker, *topics: str) -> None:
        self.link = Link(broker, client_id="listener", subscriptions=topics, on_message=self._arrived)

    def __enter__(self) -> Self:
        self.link.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.link.stop()

    def _arrived(self, topic: str, payload: bytes, _retained: bool) -> None:
        with suppress(FuguError):
            self.handle(parse_topic(topic), payload)

    def handle(self, topic: Topic, payload: bytes) -> None:
        """Handle a message; FuguError if it cannot be read."""
        raise NotImplementedError


_BROKER_SECONDS = 300.0
_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
set_tcp_nodelay true
{options}
"""


@contextmanager
def start_broker(kind: str, folder: Path, options: str = "") -> Iterator[tuple[int, str]]:
    """Run a broker while the context lasts, and give its port and name.

    `kind` is "mosquitto", "embedded", or "auto" for the first of these that is installed. The folder gets its log, and
    a configuration with further lines, `options`, for Mosquitto. FuguError: no broker of this kind is installed, or it
    does not start.
    """
    mosquitto = find_mosquitto(kind)
    port = _free_port()
    if mosquitto is not None and kind != "embedded":
        config = folder / "mosquitto.conf"
        config.write_text(_MOSQUITTO.format(port=port, options=options))
        command, name = [mosquitto, "-c", str(config)], "Mosquitto"
    else:
        command, name = [sys.executable, "-m", "fugu_cli.demo.processes", str(port)], "embedded broker (amqtt)"
    log = folder / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _await_listening(process, port, log)
        yield port, name
    finally:
        end(process, "the broker", log)


def find_mosquitto(kind: str) -> str | None:
    """Return the path of Mosquitto; None if it is not installed. FuguError if no broker of this kind is installed."""
    mosquitto = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if kind == "mosquitto" and mosquitto is None:
        raise FuguError("mosquitto is not installed: apt-get install mosquitto")
    if (mosquitto is None or kind == "embedded") and find_spec("amqtt") is None:
        raise FuguError("there is no broker: apt-get install mosquitto, or pip install 'fugu-edge[demo]'")
    return mosquitto


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _await_listening(process: Process, port: int, log: Path) -> None:
    """Wait until a broker accepts connections; FuguError if the broker does not start."""
    deadline = time.monotonic() + _BROKER_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise FuguError(f"the broker did not start: see {log}")


async def _serve_embedded(port: int) -> None:
    """Run the embedded broker until the process ends."""
    from amqtt.broker import Broker

    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    broker = Broker({"listeners": {"default": listener}, "plugins": plugins})
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(_serve_embedded(int(sys.argv[1])))


_GATEWAY_SECONDS = 900.0
_STOP_SECONDS = 120.0


def wait_for(goal_words: str, condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition; FuguError with `goal_words` if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise FuguError(f"waited {seconds:.0f} s in vain until {goal_words}")
        time.sleep(0.1)


@contextmanager
def program(module: str, arguments: Sequence[str], log: Path) -> Iterator[Process]:
    """Run a program, such as `fugu`, in a process of its own, and stop it in order when the context ends."""
    log.unlink(missing_ok=True)
    process = launch(module, arguments, log)
    try:
        yield process
        if end(process, arguments[0], log) != 0:
            raise FuguError(f"{arguments[0]} ended with code {process.returncode}: see {log}")
    finally:
        process.kill()


def launch(module: str, arguments: Sequence[str], log: Path) -> Process:
    """Start a module as a program whose output is added to a log."""
    with log.open("ab") as output:
        return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=output, stderr=output)


def kill(process: Process) -> None:
    """Kill a process at once, as a power cut would."""
    process.kill()
    process.wait()


def end(process: Process, name: str, log: Path) -> int:
    """Terminate a process, and return its exit code. If it does not end, kill it, print that, and return 0."""
    process.terminate()
    try:
        return process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        kill(process)
        say(f"{name} did not end within {_STOP_SECONDS:.0f} s and was killed: see {log}")
        return 0


@dataclass
class Device:
    """A program with a folder of its own, which can be killed and started again.

    `command` is the module of the program, and further arguments after the agent's file `config`. Output is added to
    `log`. `stack` kills the program in the end.
    """

    name: str
    config: Path
    log: Path
    command: Sequence[str]
    stack: ExitStack
    process: Process = field(init=False)

    def start(self) -> None:
        """Start the program."""
        module, *arguments = self.command
        self.process = launch(module, [str(self.config), *arguments], self.log)
        self.stack.callback(kill, self.process)


@dataclass(frozen=True)
class Site:
    """A broker, a gateway and devices of one fleet, on this machine.

    `folder` has all files but the logs, which are in `logs`. `stack` ends all processes.
    """

    fleet: str
    folder: Path
    logs: Path
    broker: Broker
    broker_name: str
    stack: ExitStack

    @contextmanager
    def gateway(self, log_name: str = "gateway.log", *, wait: bool = True, **settings: object) -> Iterator[Process]:
        """Run a gateway with the devices' policies and further settings; with `wait`, wait until it has started."""
        file, log = self.folder / "gateway.toml", self.logs / log_name
        settings = {"fleet": self.fleet, "store": "gateway.sqlite", "policies": "policies", **settings}
        file.write_text("\n".join([*toml_lines(settings), f"broker = {{port = {self.broker.port}}}", ""]))
        with program("fugu", ["gateway", "run", "--verbose", str(file)], log) as process:
            if wait:
                wait_for("the gateway has started", lambda: "has started" in log.read_text(), _GATEWAY_SECONDS)
            yield process

    def device(
        self,
        policy: AnyPolicy,
        sensor: Mapping[str, object],
        log: Path,
        command: Sequence[str] = ("edge_agent",),
        **options: object,
    ) -> Device:
        """Write the files of a device. A gateway knows it from the next start of the gateway on.

        The device has one stream, with this policy and this table of the sensor. Its log begins anew. `command` is as
        of `Device`, and `options` are further options of the agent's file.
        """
        log.unlink(missing_ok=True)
        folder = self.folder / policy.device
        for file in (self.folder / "policies" / f"{policy.device}.json", folder / "policy.json"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(policy.to_json())
        options = {"fleet": self.fleet, "device": policy.device, "outbox": "outbox.sqlite", **options}
        config = write_config(folder, options, self.broker, {"policy.json": dict(sensor)})
        return Device(policy.device, config, log, command, self.stack)


@contextmanager
def start_site(fleet: str, broker_kind: str, logs: Path) -> Iterator[Site]:
    """Run a broker and a fleet's processes while the context lasts; errors as `start_broker`."""
    with TemporaryDirectory(prefix="fugu-replay-") as folder, ExitStack() as stack:
        port, name = stack.enter_context(start_broker(broker_kind, logs))
        yield Site(fleet, Path(folder), logs, Broker(port=port, max_backoff=1), name, stack)
