"""Energy and flash wear of a board by a model: measured operations, times what data sheets say that each takes.

Nothing here was measured on a board. Run by `firmware.py`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from firmware_sim.build import Burnt, build
from fugu.contract.policy import Policy
from fugu_cli.demo.processes import start_broker

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.faulty_boards import UNIT, BoardProcess, readings
from tests.support.wiretap import Line

__all__ = ["energy"]

VOLTS = 3.3
FRAMES = 20_000
"""So many that littlefs moves what it writes often, which it does after 100 erasures of a block."""
_HEARD = 30
_SECONDS = 60.0


class Chip(NamedTuple):
    """Inputs from elsewhere: milliamperes from data sheets, and assumptions.

    Attributes:
        slower: how many times longer a reading takes than on the machine that measures. It is assumed, in the
            proportions of published times of one MicroPython program on the three (10.3 s, 15.4 s and 19.8 s,
            scruss.com/blog, 2025).
        active: while it computes, the radio off.
        waiting: between readings, as MicroPython waits, the radio saving power.
        send, receive: while the radio does.
        blocks, program: of its file system in the flash, of 4096 bytes; the least that littlefs writes.
    """

    slower: float
    active: float
    waiting: float
    send: float
    receive: float
    blocks: int
    program: int


CHIPS = {
    # ESP32 data sheet, tables of current by RF mode and by power mode: 802.11b 240 mA, receiving 100 mA, modem sleep at
    # 160 MHz 27 to 44 mA.
    "ESP32": Chip(150, 44, 27, 240, 100, 512, 32),
    # RP2040 data sheet, figure of the core's current by its frequency, about 25 mA at 125 MHz; CYW43439 data sheet:
    # sending 320 mA, receiving 43 mA, saving power 1.2 mA. For the RP2350 the core's current is taken to be the same.
    "RP2350 with CYW43439": Chip(100, 25, 26.2, 345, 68, 640, 256),
    "RP2040 with CYW43439": Chip(200, 25, 26.2, 345, 68, 212, 256),
}
# W25Q16JV data sheet, typical: a sector of 4096 bytes is erased in 45 ms and 256 bytes are written in 0.4 ms, at 20 mA;
# at least 100,000 erasures.
ERASE_MS, PAGE_MS, FLASH_MA, CYCLES = 45.0, 0.4, 20.0, 100_000
AWAKE_MS = 50.0
"""For how long the radio receives at a frame: assumed."""
_AIR_US_PER_BYTE, _PACKET_BYTES, _PREAMBLE_US = 8.0, 94, 192.0
"""At 1 Mbit/s, the slowest: bytes of TCP, IP and 802.11 of a packet."""

_WRITES = """
import sys, vfs, os
sys.path.insert(0, {folder!r})
import image
from simulated import flash
flash.BLOCK = 4096
class Flash(flash.Flash):
    def __init__(self, blocks):
        super().__init__(bytearray(4096 * blocks))
        self.by_block = [0] * blocks
    def ioctl(self, operation, argument):
        if operation == 6:
            self.by_block[argument] += 1
        return super().ioctl(operation, argument)
from fugu.core.compiled import read_policy
from sanitiser.entropy import system_entropy
from sanitiser.outbox import Outbox
from fugu.core.stream import Stream
device = Flash({blocks})
vfs.VfsLfs2.mkfs(device, progsize={program})
vfs.mount(vfs.VfsLfs2(device, progsize={program}), "/flash")
os.chdir("/flash")
policy = read_policy(image.POLICIES[0])
outbox = Outbox("outbox", policy)
made = Stream(policy, system_entropy("unix"), outbox)
frame = [done for tick in range(policy.frame_ticks) for done in made.tick(tick, 70)][0][3]
device.by_block = [0] * {blocks}
device.programmed = device.erased = 0
for number in range({frames}):
    tick = policy.frame_ticks * number
    outbox.seal([(policy.stream, tick - 1, tick + policy.frame_ticks - 1, frame)], tick + 2 * policy.frame_ticks - 1)
    if number > 3:
        outbox.forget(outbox.newest - 3)
print(device.erased / {frames}, device.programmed / {frames}, max(device.by_block) / {frames})
"""


def energy(policy: Policy, reading_us: float, run: Callable[[str, int], str]) -> dict[str, float | str]:
    """Energy of a reading, and how long the flash lasts, by chip.

    Args:
        policy: with symbols, a reading every period.
        reading_us: microseconds of a reading on this machine.
        run: runs a script with so many kB of heap; what it prints.
    """
    with tempfile.TemporaryDirectory() as folder:
        up, down = _carried(policy, Path(folder) / "air")
        image = build([policy], Path(folder) / "image", Burnt())
        figures: dict[str, float | str] = {"bytes a frame, to the broker": up, "bytes a frame, from the broker": down}
        for name, chip in CHIPS.items():
            script = _WRITES.format(folder=str(image.folder), blocks=chip.blocks, program=chip.program, frames=FRAMES)
            erased, programmed, worst = map(float, run(script, 16 * 1024).split())
            figures |= _of(name, chip, policy, reading_us, (up, erased, programmed, worst))
    return figures


def _of(
    name: str, chip: Chip, policy: Policy, reading_us: float, measured: tuple[float, float, float, float]
) -> dict[str, float | str]:
    up, erased, programmed, worst = measured
    ticks, period = policy.frame_ticks, policy.clock.period_us / 1e6
    air_ms = (2 * _PREAMBLE_US + (up + 2 * _PACKET_BYTES) * _AIR_US_PER_BYTE) / 1000
    flash_ms = erased * ERASE_MS + programmed / 256 * PAGE_MS
    microjoules = VOLTS
    per_frame_a_year = 365.25 * 86400 / (ticks * period)
    return {
        f"{name}: computing a reading, microjoules": reading_us * chip.slower / 1000 * chip.active * microjoules,
        f"{name}: flash, microjoules a reading": flash_ms * (FLASH_MA + chip.active) * microjoules / ticks,
        f"{name}: radio, microjoules a reading": (air_ms * chip.send + AWAKE_MS * chip.receive) * microjoules / ticks,
        f"{name}: waiting, microjoules a reading": period * 1000 * chip.waiting * microjoules,
        f"{name}: erasures a frame": erased,
        f"{name}: bytes written to the flash a frame": programmed,
        f"{name}: years until the flash is worn": CYCLES / (worst * per_frame_a_year),
    }


def _carried(policy: Policy, folder: Path) -> tuple[float, float]:
    """Bytes of MQTT that a frame takes, both ways, of a board that runs; its windows are left out."""
    folder.mkdir()
    clock = policy.clock.model_copy(update={"epoch_us": time.time_ns() // 1000, "period_us": 2000})
    fast = policy.model_copy(update={"clock": clock, "windows": (), "windows_guarantee": None})
    with start_broker("auto", folder) as (port, _):
        line = Line(port)
        image = build([fast], folder / "image", Burnt(port=line.port), UNIT)
        (folder / "state").write_bytes(b"\0")
        board = BoardProcess(image.folder, folder, {fast.stream: (folder / "state", readings(fast))})
        board.start()
        try:
            first, before = _after(board, line, 5)
            last, after = _after(board, line, first + _HEARD)
        finally:
            board.cut()
            line.close()
    return (after[0] - before[0]) / (last - first), (after[1] - before[1]) / (last - first)


def _after(board: BoardProcess, line: Line, count: int) -> tuple[int, tuple[int, int]]:
    """How many frames there are once there are so many and the line is quiet, and what it has carried."""
    end = time.monotonic() + _SECONDS
    while (sealed := len(board.life().sealed)) < count:
        if time.monotonic() > end:
            raise RuntimeError(f"no frames: {board.printed}")
        time.sleep(0.01)
    time.sleep(0.05)
    return sealed, (len(line.upstream), len(line.downstream))
