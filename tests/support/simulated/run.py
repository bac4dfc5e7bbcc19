"""Runs under MicroPython's Unix port: an image on hardware that is simulated. Argument: a file of settings.

The hardware is a flash memory in a file, a clock that drifts and jumps, a heap that somebody else fills, and sensors
that show the states of a chain. A log of the simulation's own says what has been drawn and sealed.
"""

import asyncio
import gc
import json
import os
import sys

from simulated.flash import BLOCK, FileFlash, make, mount

BLOCKS = 96
LOOK_MS = 20


class Hardware:
    """The settings, and the tick that is being drawn."""

    def __init__(self, settings) -> None:
        self.settings = settings
        self.log = open(settings["log"], "ab")
        self.flash = None
        self.tick = 0

    def say(self, *words) -> None:
        """Add a line to the log; it is there when this returns."""
        self.log.write(" ".join([str(word) for word in words]) + "\n")

    def begin(self) -> None:
        """Work in the flash memory, which is made on the first day."""
        name = self.settings["flash"]
        try:
            os.stat(name)
            fresh = False
        except OSError:
            fresh = True
            with open(name, "wb") as file:
                for _ in range(BLOCKS):
                    file.write(b"\xff" * BLOCK)
        self.flash = FileFlash(open(name, "r+b"), self.power_goes)
        if fresh:
            make(self.flash)
        mount(self.flash)
        if fresh:
            for seed in self.settings["provisioned"]:
                with open(self.settings["image"] + "/" + seed, "rb") as source, open(seed, "wb") as copy:
                    copy.write(source.read())

    def power_goes(self) -> None:
        """In the middle of a write."""
        self.say("c")
        os.system("kill -9 $PPID")

    def sensor(self, states: str, readings: list):
        """Reads what the state of the tick is that is being drawn."""
        file = open(states, "rb")
        size = file.seek(0, 2)

        def read():
            file.seek(self.tick % size)
            return readings[file.read(1)[0]]

        return read

    def watch(self) -> None:
        """Say what is drawn, before it is, and what is sealed, after it is."""
        from fugu.core.stream import Stream
        from fugu.core.ticks import Ticker
        from sanitiser.outbox import Outbox

        tick, draw, seal = Ticker._tick, Stream.tick, Outbox.seal

        def ticking(ticker):
            self.tick = ticker.next_tick
            return tick(ticker)

        def drawing(stream, number, reading):
            self.say("d", stream.policy.stream, number)
            return draw(stream, number, reading)

        def sealing(outbox, frames, reserved, shift=None, since=None):
            waiting = outbox._waiting + frames
            try:
                seal(outbox, frames, reserved, shift, since)
            except OSError:
                self.say("f")
                raise
            for name, _, last, frame in waiting:
                self.say("s", outbox.newest, name, last, frame.hex())

        Ticker._tick, Stream.tick, Outbox.seal = ticking, drawing, sealing

    async def suffer(self, clock) -> None:
        """Do what the file of faults says, whenever there is one."""
        name = self.settings["faults"]
        while True:
            await asyncio.sleep_ms(LOOK_MS)
            try:
                os.stat(name)
            except OSError:
                continue
            with open(name) as file:
                what, *amounts = file.read().split()
            os.remove(name)
            amounts = [int(amount) for amount in amounts]
            if what == "fail":
                self.flash.failing = amounts[0]
            elif what == "cut":
                self.flash.left, self.flash.torn = amounts[0], True
            elif what == "drift":
                clock.drift(amounts[0])
            elif what == "jump":
                clock.jump = amounts[0]
            elif what == "memory":
                await self.fill(*amounts)

    async def fill(self, leave: int, milliseconds: int) -> None:
        """Take memory until so many bytes are left, for some time."""
        hold, size = [], 4096
        while size >= 64:
            try:
                if gc.mem_free() < leave + size:
                    size //= 2
                else:
                    hold.append(bytearray(size))
            except MemoryError:
                size //= 2
        await asyncio.sleep_ms(milliseconds)
        hold.clear()


def device_clock(jump: int):
    """The board's clocks; the wall clock is off by `jump` microseconds."""
    from sanitiser.clock import SystemClock

    class Clock(SystemClock):
        def __init__(self):
            super().__init__()
            self.jump, self._ppm, self._from, self._to = jump, 0, 0, 0

        def now_us(self):
            return super().now_us() + self.jump

        def elapsed_us(self):
            raw = super().elapsed_us()
            return self._to + (raw - self._from) * (1000000 + self._ppm) // 1000000

        def drift(self, ppm):
            self._to = self.elapsed_us()
            self._from, self._ppm = super().elapsed_us(), ppm

    return Clock()


def unsent(hardware) -> None:
    """Say which frames are in the flash memory."""
    import image

    from fugu.core.compiled import read_policy
    from sanitiser.outbox import Outbox

    for data in image.POLICIES:
        policy = read_policy(data)
        outbox, number = Outbox("outbox/" + policy.stream, policy), 0
        while True:
            batch = outbox.next(number)
            if batch is None:
                break
            number, frames = batch
            for name, _, last, _ in frames:
                hardware.say("k", name, last)


async def run(hardware) -> None:
    """Run the image until there is a file that says stop, or it ends."""
    import image

    from sanitiser import watchdog

    watchdog.watchdog = lambda _board: lambda: None  # whoever has started this handles it
    from sanitiser.start import board

    settings = hardware.settings
    clock = device_clock(settings["jump"])
    sensors = {name: hardware.sensor(*shown) for name, shown in settings["streams"].items()}
    device = board(image, sensors, clock)
    hardware.watch()
    hardware.say("b")
    suffering = asyncio.create_task(hardware.suffer(clock))
    task = asyncio.create_task(device.run())
    while not task.done():
        await asyncio.sleep_ms(LOOK_MS)
        try:
            os.stat(settings["stop"])
            device.stopping = True
        except OSError:
            pass
    suffering.cancel()
    await task


def main(file) -> None:
    """Follow the settings: run the image, or say what is kept."""
    with open(file) as opened:
        hardware = Hardware(json.load(opened))
    sys.path.insert(0, hardware.settings["image"])
    hardware.begin()
    if hardware.settings["unsent"]:
        unsent(hardware)
    else:
        asyncio.run(run(hardware))


main(sys.argv[1])
