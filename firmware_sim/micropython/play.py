"""Run an image whose sensors are recordings, under MicroPython's Unix port. The argument is a file of settings."""

import asyncio
import json
import os
import sys

_LOOK_MS = 20


def patient_clock(streams: int):
    """Return a clock of the machine that waits for the slowest of `streams` streams, so that no tick is late."""
    from sanitiser.clock import SystemClock

    class Clock(SystemClock):
        def __init__(self):
            super().__init__()
            self._waited, self._first, self._until = 0, {}, {}
            self._began = super().now_us() - super().elapsed_us()

        def now_us(self):
            return self._began + self.elapsed_us()

        def note_tick(self, policy, tick):
            """Note a drawn tick of a stream: the clock waits for the next tick, a period later, even if it was late."""
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
    """Sensors that read the value of a recording at the tick that is being drawn."""

    def __init__(self, clock) -> None:
        from fugu.core.ticks import Ticker

        self.tick = 0
        tick = Ticker._tick

        def tick_noted(ticker):
            self.tick = ticker.next_tick
            try:
                return tick(ticker)
            finally:
                clock.note_tick(ticker.policy, self.tick)

        Ticker._tick = tick_noted

    def sensor(self, states: str, readings: list):
        """Return a function that reads the current tick's reading; `states` is a file with a byte for each tick."""
        file = open(states, "rb")
        size = file.seek(0, 2)

        def read():
            file.seek(self.tick % size)
            return readings[file.read(1)[0]]

        return read


async def run(settings) -> None:
    """Run the image until it ends, or the file `stop` of the settings exists."""
    import image

    from sanitiser import watchdog

    watchdog.watchdog = lambda _board: lambda: None  # the program that has started this one ends it
    from sanitiser.start import board

    clock = patient_clock(len(settings["streams"]))
    playing = Playing(clock)
    device = board(image, {name: playing.sensor(*stream) for name, stream in settings["streams"].items()}, clock)
    task = asyncio.create_task(device.run())
    while not task.done():
        await asyncio.sleep_ms(_LOOK_MS)
        try:
            os.stat(settings["stop"])
            device.stopping = True
        except OSError:
            pass
    await task


def main(file) -> None:
    """Run the image that a file of settings names."""
    with open(file) as source:
        settings = json.load(source)
    sys.path.insert(0, settings["image"])
    os.chdir(settings["image"])
    asyncio.run(run(settings))


if __name__ == "__main__":
    main(sys.argv[1])
