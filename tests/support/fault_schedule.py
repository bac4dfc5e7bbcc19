"""Faults drawn from a seed, and the hand that lets them happen: the same seed, the same faults at the same moments."""

from __future__ import annotations

import heapq
import random
import signal
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from tests.support.fault_world import GATEWAY, READER, Disk, World, clocks_can_be_set, disks_can_be_small
from tests.support.faulty_disk import disks_can_fail

__all__ = ["KINDS", "Fault", "draw", "failing", "inflict"]

_POLL_SECONDS = 0.02

KINDS: dict[str, int] = {
    "agent killed": 20,
    "agent stopped": 6,
    "agent suspended": 10,
    "gateway killed": 8,
    "gateway stopped": 2,
    "gateway suspended": 5,
    "broker killed": 8,
    "broker killed, its database lost": 4,
    "broker suspended": 4,
    "line cut": 15,
    "line slow": 10,
    "line silent": 8,
    "line dead": 4,
    "said again": 10,
    "clock ahead": 5,
    "clock behind": 5,
    "disk full": 8,
    "disk slow": 6,
    "disk read-only": 6,
    "agent power lost": 8,
    "gateway power lost": 6,
    "gateway clock behind": 3,
    "reader deaf": 3,
}
"""How likely each is, among all."""
_CLOCKS = ("clock ahead", "clock behind", "gateway clock behind")
_DISKS = ("disk slow", "disk read-only", "agent power lost", "gateway power lost")


class Fault(NamedTuple):
    """One: when and for how many seconds, of what, and from 0 to 1 of what it has much or little."""

    at: float
    kind: str
    target: str
    seconds: float
    amount: float

    def __str__(self) -> str:
        return f"{self.at:8.2f} s  {self.target}: {self.kind} for {self.seconds:.2f} s ({self.amount:.4f})"


def draw(seed: int, many: int, devices: Sequence[str], seconds: float) -> list[Fault]:
    """So many faults within some seconds, of all kinds that this machine permits."""
    generator = random.Random(seed)
    faults = []
    for _ in range(many):
        kind = generator.choices(list(KINDS), list(KINDS.values()))[0]
        owner = kind.partition(" ")[0]
        device = generator.choice(devices)
        target = owner if owner in (GATEWAY, READER, "broker") else device
        if kind.startswith(("line", "disk")) and generator.random() < 0.3:
            target = GATEWAY
        lasts = generator.uniform(0.5, 6.0) if kind in _CLOCKS else 10 ** generator.uniform(-1.3, 0.6)
        faults.append(Fault(generator.uniform(0.0, seconds), kind, target, lasts, generator.random()))
    return [fault for fault in sorted(faults) if _possible(fault)]


def failing(faults: Sequence[Fault]) -> set[str]:
    """Whose disk fails."""
    return {fault.target for fault in faults if fault.kind in _DISKS}


def _possible(fault: Fault) -> bool:
    if fault.kind in _CLOCKS:
        return clocks_can_be_set()
    if fault.kind in _DISKS:
        return disks_can_fail()
    return fault.kind != "disk full" or disks_can_be_small()


def inflict(world: World, faults: Sequence[Fault], log: Callable[[str], object] = lambda _: None) -> None:
    """Let the faults happen, each when it is due, and all be over at the end."""
    begun = time.monotonic()
    order = count()
    waiting: list[tuple[float, int, Callable[[], None]]] = []
    for fault in faults:
        heapq.heappush(waiting, (fault.at, next(order), _happens(fault, world, waiting, order, begun, log)))
    while waiting:
        world.supervise()
        now = time.monotonic() - begun
        while waiting and waiting[0][0] <= now:
            heapq.heappop(waiting)[2]()
        if waiting:  # faults come by the clock: nothing tells when the next is due
            time.sleep(min(_POLL_SECONDS, max(0.0, waiting[0][0] - now)))


def _happens(
    fault: Fault,
    world: World,
    waiting: list[tuple[float, int, Callable[[], None]]],
    order: count[int],
    begun: float,
    log: Callable[[str], object],
) -> Callable[[], None]:
    def happen() -> None:
        log(str(fault))
        over = _begin(fault, world)
        if over is not None:
            end = time.monotonic() - begun + fault.seconds
            heapq.heappush(waiting, (end, next(order), over))

    return happen


def _begin(fault: Fault, world: World) -> Callable[[], None] | None:
    """Let a fault begin; returns what ends it, if anything has to."""
    what = fault.kind.partition(" ")[2]
    if fault.target == "broker":
        return _broker(fault.kind, world)
    if fault.kind.startswith("line"):
        return _line(fault, world)
    if fault.kind == "said again":
        return _say_again(fault, world)
    if fault.kind in _CLOCKS:
        return _clock(fault, world)
    if fault.kind == "reader deaf":
        return world.read_nothing()
    if fault.kind.startswith("disk"):
        return _disk(fault, world.disks[fault.target])
    program = world.programs[fault.target]
    if what == "suspended":
        program.signal(signal.SIGSTOP)
        return lambda: program.signal(signal.SIGCONT)
    if what == "stopped":
        program.signal(signal.SIGTERM)  # it ends in order, or is still at it when it is wanted again
        return None
    program.kill()
    if what == "power lost":
        world.disks[fault.target].lose_power(fault.amount)
    return program.start


def _disk(fault: Fault, disk: Disk) -> Callable[[], None]:
    match fault.kind:
        case "disk slow":
            disk.below.slow(int(fault.amount**2 * 1e6))
            return lambda: disk.below.slow(0)
        case "disk read-only":
            disk.refuse(True)
            return lambda: disk.refuse(False)
        case _:
            disk.fill()
            return disk.clear


def _broker(kind: str, world: World) -> Callable[[], None]:
    if kind == "broker suspended":
        world.suspend_broker(True)
        return lambda: world.suspend_broker(False)
    world.broker.kill()
    if "lost" in kind:
        world.lose_broker_database()
    return world.start_broker


def _line(fault: Fault, world: World) -> Callable[[], None] | None:
    lines, name = world.lines, fault.target
    match fault.kind:
        case "line cut":
            lines.cut(name)
            return None
        case "line slow":
            lines.delay(name, fault.amount**2 * 2.0)
            return lambda: lines.delay(name, 0.0)
        case "line silent":
            lines.hold(name)
            return lambda: lines.release(name)
        case _:
            lines.bury(name)
            return None


def _say_again(fault: Fault, world: World) -> None:
    """An attacker who has listened repeats what was said, by the device or to it."""
    lately = list(world.line(fault.target).lately)
    if lately:
        up, message = lately[int(fault.amount * len(lately))]
        for _ in range(1 + int(fault.amount * 1000) % 5):
            world.lines.say_again(fault.target, up, message)


def _clock(fault: Fault, world: World) -> Callable[[], None]:
    """By a second or by a month, most often by minutes."""
    seconds = 10 ** (6.4 * fault.amount)
    world.set_clock(fault.target, seconds if "ahead" in fault.kind else -seconds)
    return lambda: world.set_clock(fault.target, 0.0)
