"""A fleet of real processes on the shipped broker; every one can be disturbed, and comes back as its unit says.

Agents are enrolled, get their policy signed, and run on clocks that can be set. Outboxes, store and ledger are on small
file systems in memory, where the machine permits. Between everybody and the broker are lines that hear everything.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.topics import parse_topic
from fugu.contract.windows import Window
from fugu.mqtt import Broker
from gateway.fleet.registry import Registry
from tests.support.brokers import PATIENCE, wait_until
from tests.support.clocks import faketime_library
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_lines import Line, Lines, Opened
from tests.support.gateway_files import gateway_file
from tests.support.mqtt_packets import connect, subscribe
from tests.support.outboxes import is_committed
from tests.support.processes import policy
from tests.support.release_scenes import scheduled, write_config
from tests.support.shipped import Shipped, fugu

__all__ = ["GATEWAY", "READER", "Program", "World", "clocks_can_be_set", "disks_can_be_small"]

GATEWAY, READER = "gateway", "reader"
_FAKETIME = faketime_library()
_FAKED_CLOCK = Path(__file__).with_name("faked_clock")
_AGENT_DISK = 16 << 20
_GATEWAY_DISK = 1 << 30
_RESTART_SECONDS = 0.3
_EXCUSED_SECONDS = 10.0
_AUDIENCES = """
[audiences.public]
epsilon = 1.0
adversary = "informed"
[audiences.street]
epsilon = 2.0
adversary = "informed"
"""


def clocks_can_be_set() -> bool:
    """True if processes can be given clocks of their own."""
    return _FAKETIME is not None


@cache
def disks_can_be_small() -> bool:
    """True if file systems can be mounted here."""
    if os.geteuid() != 0:
        return False
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt && mount -o remount,size=512k /mnt"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def _releases(length: int) -> list[str]:
    """One of all devices, one of each, and one whose windows overlap, as TOML."""
    common: dict[str, Any] = {"states": ["high"], "length": length}
    waiting = common | {"patience": 20 * length}
    symbols = {"audience": "street", "source": "symbols"}
    return [
        scheduled("all", **waiting),
        scheduled("each", **waiting, **symbols, share=0.5, per_device=True),
        scheduled(
            "overlapping", **common, **symbols, query="frequency", stride=length // 2, share=0.25, devices=["d00"]
        ),
    ]


_decoded = cache(SymbolFrame.decode)


class Disk:
    """A folder with an end: a file system in memory, which is full whenever one wants it to be; `below` fails, too."""

    def __init__(self, folder: Path, most: int, images: Path) -> None:
        self.folder = folder
        self._most = most
        self._mounted = disks_can_be_small()
        self._full_until = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        if self._mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={most}", "none", folder], check=True)
        self.below = FaultyDisk(folder, images)

    def fill(self) -> None:
        """Leave no room at all."""
        if self._mounted:
            self._full_until = math.inf
            used = os.statvfs(self.folder)
            self._resize(max(used.f_blocks - used.f_bfree, 1) * used.f_frsize)

    def clear(self) -> None:
        """There is room again."""
        if self._mounted:
            self._resize(self._most)
            self._full_until = time.monotonic() + _EXCUSED_SECONDS

    def refuse(self, on: bool) -> None:
        """Take nothing, or take it again."""
        self.below.refuse(on)
        self._full_until = math.inf if on else time.monotonic() + _EXCUSED_SECONDS

    def lose_power(self, which: float) -> None:
        """Drop what was not synced, if there is room to put back what was; its process must not run."""
        if not self.was_full():
            self.below.lose_power(which)

    def was_full(self) -> bool:
        """True if it is full or refuses, or did of late."""
        return time.monotonic() < self._full_until

    def close(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", self.folder], check=False)
            self._mounted = False

    def _resize(self, size: int) -> None:
        # More may have been written since it was looked at: then it has a little room, as full disks do.
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=False, capture_output=True)


class Program:
    """A process that comes back when it has ended by itself, as its unit says, and is ended by faults.

    Its deaths are exit codes of errors; while its disk is full, it is `excused`.
    """

    def __init__(
        self, command: Sequence[str], log: Path, excused: Callable[[], bool], environment: dict[str, str] | None = None
    ) -> None:
        self.excused = excused
        self._command = command
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._back_at = 0.0
        self.deaths: list[int] = []
        self.starts = 0

    def start(self) -> None:
        self._wanted = True
        if self._process is None:
            self.starts += 1
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def kill(self) -> None:
        """End it as a power cut would, until it is started again."""
        self._wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def end(self) -> None:
        """Ask it to end in order, and not to come back."""
        self._wanted = False
        if self._process is not None:
            self._process.terminate()

    def ended(self, patience: float) -> int:
        return 0 if self._process is None else self._process.wait(patience)

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def supervise(self) -> None:
        """Start it again if it has ended by itself."""
        now = time.monotonic()
        if self._process is not None and (code := self._process.poll()) is not None:
            if code not in (0, -signal.SIGTERM) and not self.excused():
                self.deaths.append(code)
            self._process = None
            self._back_at = now + _RESTART_SECONDS
        if self._wanted and self._process is None and now >= self._back_at:
            self.start()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid


class World:
    """Runs within a context; ticks stand for seconds, and all faults were over at the one that is `healed`.

    `clocks`: whether those of what starts from now on can be set. `failing`: whose disks can fail; what
    starts elsewhere is a fork, and there at once.
    """

    def __init__(
        self, folder: Path, *, devices: int, period_us: int, frame_ticks: int = 25, window_ticks: int = 100
    ) -> None:
        self.folder = folder
        self.names = [f"d{number:02}" for number in range(devices)]
        self.period_us = period_us
        self.healed = -1
        self.clocks = clocks_can_be_set()
        self.failing = {GATEWAY, *self.names}
        self.window_ticks = window_ticks
        self.epoch_us = time.time_ns() // 1000
        self.broker = Shipped(folder)
        self.broker.add("gateway", GATEWAY, "--rollout")
        self.broker.add("subscriber", READER, "--audience", "site")
        window = Window(name="high", length=window_ticks, stride=window_ticks, states=("high",), scale="200")
        self.policy = policy(
            epoch_us=self.epoch_us, period_us=period_us, frame_ticks=frame_ticks, windows=(window,), epsilon=4.0
        )
        (folder / "policy.json").write_text(self.policy.to_json())
        rows = "\n".join("1" if number % 7 < 3 else "0" for number in range(997))
        (folder / "readings.csv").write_text(f"value\n{rows}\n")
        self._make_fleet()
        self.lines = Lines(self.broker.port, Opened.of(self.broker.folder), self._is_recorded)
        self.disks: dict[str, Disk] = {}
        self.programs: dict[str, Program] = {}

    @staticmethod
    def _is_recorded(topic: str) -> bool:
        return parse_topic(topic).kind in ("symbols", "window", "release")

    @property
    def time_factor(self) -> float:
        """How much faster than life it runs: a tick stands for a second."""
        return 1e6 / self.period_us

    def _make_fleet(self) -> None:
        folder = self.folder
        for name in ("secret", "gateway-secret"):
            (folder / name).write_text("correct horse\n")
            (folder / name).chmod(0o600)
        words = ("--passphrase-file", folder / "secret", "--gateway-passphrase-file", folder / "gateway-secret")
        fugu("fleet", "init", "--fleet", "home", "--keys", folder / "keys", *words)
        self.registry = folder / "fleet.sqlite"
        for name in self.names:
            self.broker.add("device", name, "--in-place")
            self._enrol(name)
        signing = ("--keys", folder / "keys", "--passphrase-file", folder / "secret", "--registry", self.registry)
        document = folder / "first.envelope"
        fugu("fleet", "sign", folder / "policy.json", "--to", "everyone", "--version", "next", *signing, "-o", document)
        root = folder / "keys" / "root.envelope"
        fugu("fleet", "push", document, "--registry", self.registry, "--root", root)

    def _enrol(self, name: str) -> None:
        folder = self.folder
        pinned = folder / f"{name}-pin.json"
        pinned.write_text(self.policy.model_copy(update={"device": name}).to_json())
        words = ("--root", folder / "keys" / "root.envelope", "--device", name, "--ceiling", 4)
        enrolment = folder / name / "enrolment.json"
        fugu("fleet", "enrol", *words, "--policy", pinned, "--registry", self.registry, "-o", enrolment)

    def __enter__(self) -> Self:
        self.lines.__enter__()
        self.broker.start()
        self._add_gateway()
        for name in self.names:
            self._add_agent(name)
        for program in self.programs.values():
            program.start()
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs.values():
            program.kill()
        self.broker.kill()
        self.lines.__exit__()
        for disk in self.disks.values():
            disk.close()

    def _add_agent(self, name: str) -> None:
        line = self.lines.add(name)
        folder = self.folder / name
        disk = self.disks[name] = Disk(folder / "state", _AGENT_DISK, self.folder)
        (folder / "agent.toml").write_text(
            f'fleet = "home"\ndevice = "{name}"\noutbox = "{disk.folder}/outbox.sqlite"\n'
            f'enrolment = "enrolment.json"\ntrust = "{disk.folder}/trust"\nstatus_seconds = 1.0\n'
            f'drain_seconds = 20.0\n[broker]\nhost = "127.0.0.1"\nport = {line.port}\nusername = "{name}"\n'
            'password_file = "password"\nca_file = "ca.pem"\nkeepalive = 5\nmax_backoff = 1\n'
            '[[streams]]\nstream = "hr"\n'
            f'sensor = {{kind = "replay", file = "{self.folder}/readings.csv"}}\n'
            "[clock]\ntrusted = true\nconfirm_seconds = 1\n"
        )
        command = [sys.executable, "-m", "edge_agent", str(folder / "agent.toml")]
        self.programs[name] = Program(command, self.folder / f"{name}.log", disk.was_full, self._environment(name))

    def _environment(self, name: str) -> dict[str, str]:
        """In which a program has a disk that fails and a clock that can be set, where this machine permits that."""
        environment = self.disks[name].below.environment if name in self.failing else {}
        if not self.clocks:
            return environment
        self.set_clock(name, 0.0)
        return environment | {
            "LD_PRELOAD": " ".join([*filter(None, [environment.get("LD_PRELOAD")]), str(_FAKETIME)]),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / name / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join([str(_FAKED_CLOCK), os.environ.get("PYTHONPATH", str(Path.cwd()))]),
        }

    def _add_gateway(self) -> None:
        line = self.lines.add(GATEWAY)
        disk = self.disks[GATEWAY] = Disk(self.folder / "gateway-state", _GATEWAY_DISK, self.folder)
        self.store, self.ledger = disk.folder / "store.sqlite", disk.folder / "ledger.sqlite"
        releases = write_config(self.folder, *_releases(self.window_ticks), audiences=_AUDIENCES)
        (key,) = (self.folder / "keys").glob("gateway-*.key")
        credentials = self.folder / GATEWAY
        broker = Broker(
            port=line.port,
            username=GATEWAY,
            password_file=str(credentials / "password"),
            ca_file=str(credentials / "ca.pem"),
        )
        operator = {"username": f"{GATEWAY}-rollout", "password_file": credentials / "rollout-password"}
        signed = {
            "registry": self.registry,
            "roots": [self.folder / "keys" / "root.envelope"],
            "key": key,
            "passphrase_file": self.folder / "gateway-secret",
            "trusted_clock": True,
            "operator": operator,
        }
        file = gateway_file(
            self.folder / "gateway.toml", broker, store=self.store, signed=signed, releases=releases, ledger=self.ledger
        )
        command = [sys.executable, "-m", "fugu", "gateway", "run", str(file), "--verbose"]
        self.programs[GATEWAY] = Program(
            command, self.folder / "gateway.log", disk.was_full, self._environment(GATEWAY)
        )

    def now_tick(self) -> int:
        """The tick that has come last, by a clock that is right."""
        return (time.time_ns() // 1000 - self.epoch_us) // self.period_us

    def set_clock(self, name: str, ahead: float) -> None:
        """Let the clock of a device or of the gateway be so many seconds ahead of the right time."""
        path = self.folder / name / "clock"
        beside = path.with_suffix(".new")
        beside.write_text(f"{ahead:+.3f}\n")
        beside.replace(path)

    def line(self, name: str) -> Line:
        """Of a device or of the gateway."""
        return self.lines.lines[name]

    def supervise(self) -> None:
        """Start what has ended by itself."""
        for program in self.programs.values():
            program.supervise()

    def read_nothing(self) -> Callable[[], None]:
        """Subscribe to everything, and read none of it until what is returned is called; nothing if no broker is up."""
        address = self.broker.address(READER)
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        opened.settimeout(_EXCUSED_SECONDS)
        with contextlib.suppress(OSError):
            opened.connect((address.host, address.port))
            context = address.tls_context()
            opened = context.wrap_socket(opened, server_hostname=address.host)
            opened.sendall(connect(READER, READER, str(address.password()), 0) + subscribe("fugu/2/home/#"))
        return opened.close

    def lose_broker_database(self) -> None:
        """Everything that the broker remembered is gone; it must not run."""
        for path in self.broker.folder.glob("mosquitto.db*"):
            path.unlink()

    def start_broker(self) -> None:
        """Let the broker run again, unless it does."""
        if self.broker._process is None:
            self.broker.start()

    def suspend_broker(self, on: bool) -> None:
        """Stop the broker's process where it is, or let it go on."""
        with contextlib.suppress(AttributeError, ProcessLookupError):
            self.broker._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def messages(self) -> Counter[tuple[str, bytes]]:
        """Every publication of frames and of releases that has left anybody, however often."""
        counter: Counter[tuple[str, bytes]] = Counter()
        for line in self.lines.lines.values():
            counter += line.said
        return counter

    def wait_for_policies(self) -> None:
        """Wait until all devices have taken the first policy."""
        registry = Registry(self.registry)
        try:
            for name in self.names:
                wait_until(lambda name=name: self._in_force(registry, name), f"the policy of {name}")
        finally:
            registry.close()

    def recover(self) -> None:
        """Wait until all is well again: what has been sent of ticks that have come is durable, and it goes on.

        Then end everything in order.
        """
        self.healed = healed = self.now_tick()
        for name in self.names:
            wait_until(lambda name=name: self._went_on(name, healed), f"{name} to go on after tick {healed}")
        for names in (self.names, [GATEWAY]):
            for name in names:
                self.programs[name].end()
            for name in names:
                code = self.programs[name].ended(PATIENCE)
                assert code == 0, f"{name}: {code}, {self.programs[name].log.read_text()[-2000:]}"

    def _went_on(self, name: str, healed: int) -> bool:
        """True if what a device has said of ticks that have come is durable, and some of it is of a tick after one."""
        self.supervise()
        line = self.line(name)
        committed = [message for up, message in list(line.lately) if not up and message.topic.endswith("/committed")]
        streams = [
            stream
            for message in committed[-5:]
            for stream in Committed.decode(message.payload).streams
            if stream.stream == "hr"
        ]
        if not streams:
            return False
        frames = [_decoded(payload) for topic, payload in list(line.said) if "/symbols/" in topic]
        now = self.now_tick()
        come = [frame for frame in frames if frame.last - frame.shift <= now]
        durable = [frame for frame in come if is_committed(streams[-1], frame)]
        if any(frame not in durable for frame in come if frame.last - frame.shift <= healed):
            return False
        return any(frame.first - frame.shift > healed for frame in durable)

    def _in_force(self, registry: Registry, name: str) -> bool:
        self.supervise()
        reported = registry.device(name).reported
        return reported is not None and reported.in_force > 0
