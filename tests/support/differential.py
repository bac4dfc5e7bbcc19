"""Runs of the agent that differ in their readings only, and all that can be seen of each from outside."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nextafter
from pathlib import Path
from typing import Any, NamedTuple

from fugu.contract.chains import JointChains, JointStream, odds_ratio, two_steps
from fugu.contract.discretisers import Categories
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_policy import sparse_rows
from fugu.contract.policy import Discretiser, Policy
from fugu.contract.topics import parse_topic
from fugu.contract.windows import Blocks, Window
from fugu.mqtt import Link
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.forks import shell_words
from tests.support.measured import measure_policy
from tests.support.mqtt_packets import Splitter, read_length
from tests.support.scenes import policy
from tests.support.wiretap import Wiretap

PLACES = tuple(f"c{x}" for x in range(9))
WINDOWS = (
    Window(name="high", length=20, stride=10, states=("level 1",), scale="20"),
    Window(name="bars", length=15, stride=15, states="histogram", scale="7/3"),
    Window(
        name="day",
        length=86_400,
        stride=86_400,
        states=("level 1",),
        scale="20",
        blocks=Blocks(zone="UTC", seconds=43_200, offsets=((0, 0),)),
    ),
)
PUBLISH = 3


class Packet(NamedTuple):
    """An MQTT packet that the device has sent: its first byte, and the rest with the covered bytes blanked out."""

    first: int
    rest: bytes


@dataclass(frozen=True)
class Seen:
    """Everything that an observer of a device has.

    Attributes:
        packets: every byte that was sent, in order, but for what a certificate covers.
        times: virtual time, topic, size, retain flag and QoS of each publication, a line each.
        drawn: how many random bytes were drawn at a time, a line each.
        written: virtual time, offset and size of each write to the file of windows, and whether it is no blank.
        code: the program's exit code.
        covered: what a certificate covers, in order; may depend on readings.
        kinds: kinds of topics.
    """

    packets: tuple[Packet, ...]
    times: str
    drawn: str
    written: str
    code: int
    covered: tuple[bytes, ...]
    kinds: frozenset[str]


class Source(NamedTuple):
    """A sensor of the stream `hr`, by its kind and options, and its text: what it reads from.

    That is a column, lines, payloads, or a module with a function `read`; lines are said again and again, or once.
    """

    kind: str
    text: str
    options: str = ""
    once: bool = False


def run(
    broker: Mosquitto,
    folder: Path,
    source: Source,
    places: list[str],
    leak: str = "",
    discretiser: Discretiser | None = None,
    longer: bool = False,
    side: int = 3,
) -> Seen:
    """Run the agent once, with the same random bits and the same clock as in every other run.

    A grid of `places` with side 3 has tables of points, one with 11 draws from a staircase. If `longer`, the chain of
    `hr` is of order 2, and the steps between places change over a cycle.
    """
    folder.mkdir()
    cells = tuple(f"c{x}" for x in range(side * side))
    names = Categories(categories={name: x for x, name in enumerate(cells)}, states=cells)
    heart = policy(windows=WINDOWS)
    if discretiser is not None:
        windows = (Window(name="high", length=20, stride=10, states=(discretiser.states[1],), scale="20"), WINDOWS[1])
        heart = heart.model_copy(update={"discretiser": discretiser, "windows": windows})
    steps: dict[str, Any] = {}
    if longer:
        heart = of_order_2(heart)
        anywhere = sparse_rows([[1 / len(PLACES)] * len(PLACES)] * len(PLACES))
        steps = {"cycle": 6, "changes": ({"tick": 3, "transition": anywhere},)}
    (folder / "hr.json").write_text(heart.to_json())
    (folder / "place.json").write_text(measure_policy(side, discretiser=names, **steps).to_json())
    (folder / "places.csv").write_text("\n".join(["value", *places]) + "\n")
    if source.kind == "replay":
        (folder / "hr.csv").write_text(source.text)
        sensor = 'kind = "replay"\nfile = "hr.csv"'
    elif source.kind == "call":
        (folder / "driver.py").write_text(source.text)
        sensor = 'kind = "call"\ntarget = "driver:read"'
    elif source.kind == "command":
        (folder / "lines").write_text(source.text)
        script = "while cat lines; do sleep 0.002; done"
        sensor = f'kind = "command"\nruns = "always"\ncommand = ["/bin/sh", "-c", "{script}"]'
    else:
        sensor = 'kind = "stdin"'
    with contextlib.ExitStack() as open_now:
        tap = open_now.enter_context(Wiretap(broker.port))
        local = None
        if source.kind == "mqtt":
            (folder / "local").mkdir()
            local = open_now.enter_context(Mosquitto(folder / "local"))
            sensor = f'kind = "mqtt"\ntopic = "hall"\nport = {local.port}'
        (folder / "agent.toml").write_text(
            'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nceiling = 50.0\nmeasurement_ceiling = 1.0\n'
            'forget = "puback"\nstatus_seconds = 86400.0\ndrain_seconds = 60.0\n'
            f'[broker]\nport = {tap.port}\nprotocol = "5"\nkeepalive = 300\n'
            f'[[streams]]\npolicy = "hr.json"\n[streams.sensor]\n{sensor}\n{source.options}\n'
            '[[streams]]\npolicy = "place.json"\n[streams.sensor]\nkind = "replay"\nfile = "places.csv"\n'
        )
        command = [*shell_words(), "-m", "tests.support.virtual_agent", str(folder / "agent.toml"), "seed"]
        command += [str(folder / "times"), *([leak] if leak else [])]
        with (folder / "agent.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin"}
            )
        if local is None:
            _feed(process, source)
        else:
            _publish(process, local, source)
        process.wait(PATIENCE)
        wait_until(lambda: not tap.is_open, "the last bytes of the agent")
        sent = bytes(tap.upstream)
    unmasked = [_masked(first, rest) for first, rest in packets(sent)]
    return Seen(
        tuple(packet for packet, _, _ in unmasked),
        (folder / "times").read_text(),
        (folder / "times-drawn").read_text(),
        (folder / "times-written").read_text(),
        process.returncode,
        tuple(covered for _, covered, _ in unmasked if covered),
        frozenset(kind for _, _, kind in unmasked if kind),
    )


def of_order_2(policy: Policy) -> Policy:
    """The policy with a chain of pairs of states, and what it then loses at most."""
    shown = JointStream(name=policy.stream, states=2, rate=nextafter(float(policy.outputs.rate), inf))
    moves = ((0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.4, 0.6), (0.6, 0.4, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7))
    shows = ((0,), (1,), (0,), (1,))
    odds, period_us = odds_ratio(two_steps(moves, shows)), policy.clock.period_us
    chains = JointChains(streams=(shown,), period_us=period_us, shows=shows, odds_ratio=odds, steps=2, transition=moves)
    epsilon = chains.joint_loss("universal").epsilon
    return policy.model_copy(update={"chains": chains, "guarantee": Guarantee(epsilon=epsilon, adversary="universal")})


def _feed(process: subprocess.Popen[bytes], source: Source) -> None:
    """Be the source that writes to standard input, for as long as somebody reads."""
    with contextlib.suppress(BrokenPipeError), process.stdin as lines:
        while source.kind == "stdin" and process.poll() is None:
            lines.write(source.text.encode())
            lines.flush()
            if source.once:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.002)


def _publish(process: subprocess.Popen[bytes], local: Mosquitto, source: Source) -> None:
    """Be a device that publishes at a local broker, for as long as the process runs."""
    hall = Link(local.broker, "hall")
    hall.start()
    while process.poll() is None:
        for payload in source.text.splitlines():
            hall.publish("hall", payload.encode())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)
    hall.stop()


def packets(sent: bytes) -> Iterator[tuple[int, bytes]]:
    """First byte and content of each MQTT packet."""
    for packet in Splitter().feed(sent):
        yield packet[0], packet[read_length(packet, 1)[1] :]


def _masked(first: int, rest: bytes) -> tuple[Packet, bytes, str]:
    """A packet without what a certificate covers, that, and the kind of its topic."""
    if first >> 4 != PUBLISH:
        return Packet(first, rest), b"", ""
    size = int.from_bytes(rest[:2], "big")
    kind = parse_topic(rest[2 : 2 + size].decode()).kind
    properties, at = read_length(rest, 2 + size + 2)
    at += properties
    places = [at + place for place in covered_places(kind, rest[at:])]
    blank = bytearray(rest)
    for place in places:
        blank[place] = 0
    return Packet(first, bytes(blank)), bytes(rest[place] for place in places), kind


def covered_places(kind: str, payload: bytes) -> list[int]:
    """Where the symbols, the points and the counts of a payload are; its every other byte is nobody's reading."""
    end = len(payload)
    if kind == "window":
        counts = len(WindowFrame.decode(payload).counts)
        return [place for i in range(counts) for place in range(end - 9 * (i + 1) + 1, end - 9 * i)]
    if kind != "symbols":
        return []
    if payload[0] == SymbolFrame.SCHEMA:
        frame = SymbolFrame.decode(payload)
        return list(range(end - -(-(len(frame.symbols) + frame.padding) * frame.bits // 8), end))
    points = MeasureFrame.decode(payload)
    cell = 4 + 4 * points.dimensions
    ticks = len(points.released) + points.padding
    return [end - cell * ticks + cell * i + place for i in range(ticks) for place in range(4, cell)]
