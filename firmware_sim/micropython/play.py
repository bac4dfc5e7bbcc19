"""Runs under MicroPython's Unix port: an image whose sensors are recordings. Argument: a file of settings."""

import asyncio
import json
import os
import sys

LOOK_MS = 20


def patient_clock(streams: int):
    """The machine's clock, which waits for the slowest of so many streams, so that no tick is late."""
    from sanitiser.clock import SystemClock

    class Clock(SystemClock):
        def __init__(self):
            super().__init__()
            self._waited, self._first, self._until = 0, {}, {}
            self._began = super().now_us() - super().elapsed_us()

        def now_us(self):
            return self._began + self.elapsed_us()

        def ticked(self, policy, tick):
            """Wait for the tick after this one, which is due a period after it, however late this one was."""
            now, period = self.elapsed_us(), policy.period_us
            first, begin = self._first.setdefault(policy.stream, (tick, now))
            self._until[policy.stream] = max(begin + (tick - first + 2) * period, now + period)

        def elapsed_us(self):
            elapsed = super().elapsed_us() - self._waited
            if len(self._until) == streams:
                late = max(0, elapsed - min(self._until.values()))
                self._waited += late
                elapsed -= late
            return elapsed

    return Clock()


class Playing:
    """Sensors that read what their recording has for the tick that is being drawn."""

    def __init__(self, clock) -> None:
        from fugu.core.ticks import Ticker

        self.tick = 0
        tick = Ticker._tick

        def ticking(ticker):
            self.tick = ticker.next_tick
            try:
                return tick(ticker)
            finally:
                clock.ticked(ticker.policy, self.tick)

        Ticker._tick = ticking

    def sensor(self, states: str, readings: list):
        """Reads from a file with a byte for the state of each tick, and the reading of each state."""
        file = open(states, "rb")
        size = file.seek(0, 2)

        def read():
            file.seek(self.tick % size)
            return readings[file.read(1)[0]]

        return read


async def run(settings) -> None:
    """Run the image until there is a file that says stop, or it ends."""
    import image

    from sanitiser import watchdog

    watchdog.watchdog = lambda _board: lambda: None  # whoever has started this handles it
    from sanitiser.start import board

    clock = patient_clock(len(settings["streams"]))
    playing = Playing(clock)
    device = board(image, {name: playing.sensor(*stream) for name, stream in settings["streams"].items()}, clock)
    task = asyncio.create_task(device.run())
    while not task.done():
        await asyncio.sleep_ms(LOOK_MS)
        try:
            os.stat(settings["stop"])
            device.stopping = True
        except OSError:
            pass
    await task


def main(file) -> None:
    """Run what the settings say."""
    with open(file) as opened:
        settings = json.load(opened)
    sys.path.insert(0, settings["image"])
    os.chdir(settings["image"])
    asyncio.run(run(settings))


if __name__ == "__main__":
    main(sys.argv[1])
