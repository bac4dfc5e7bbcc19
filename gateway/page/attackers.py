"""Attackers on the symbols and counts of a stream, in a process of their own: the page loads no numerical library.

The attackers' process is started for the first messages of a watched device. It ends with the page, or when nothing has
been asked for a minute.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from fugu.contract.descriptions import DescribedWindow, Description
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_TICK, SymbolFrame, WindowFrame
from gateway.page import Fields
from gateway.store.location import Location

__all__ = ["MOST_WINDOWS", "Ask", "AttackProcess", "AttackView", "shift_odds"]


EVERYTHING, ONE_SYMBOL, ONE_WINDOW = "forward-backward", "single symbol", "single window"
"""Names of attackers in `fugu.attackers`."""
MOST_TICKS = 240
"""Most ticks of a stream that attackers use together: the newest ones."""
_MAX_BANDS = 8
"""The most states whose bands are drawn."""
MOST_WINDOWS = 2_016
"""The most windows that are kept: a week of windows of five minutes."""
_ROUNDING = 1e-9


Ask = Callable[..., Fields]
"""Calls a function of `fugu.attackers.described`, or `stored_counts`, by its name with arguments."""


def answer(function_name: str, *args: Any) -> Fields:
    """Call `stored_counts` or the named function of `fugu.attackers.described` in this process."""
    if function_name == "stored_counts":
        return stored_counts(*args)
    from fugu.attackers import described  # not for `stored_counts`, as it takes longer to load

    answer: Fields = getattr(described, function_name)(*args)
    return answer


def stored_counts(location: Location, device: str, first_ticks: Mapping[tuple[str, str], int]) -> Fields:
    """Return under `frames` the stored frames of a device's windows by stream, or under `none` the fault.

    Args:
        location: the store, which its gateway may use meanwhile.
        device: a name of the fleet.
        first_ticks: the first tick to read, by stream and window.
    """
    from gateway.store.store import Store  # with the numerical library

    frames = defaultdict[str, list[WindowFrame]](list)
    try:
        with contextlib.closing(Store(location, create=False)) as store, store.snapshot():
            for (stream, window), tick in first_ticks.items():
                stream_id = store.stream_id(device, f"{stream}/{window}")
                if stream_id is not None:
                    frames[stream] += store.windows.within(stream_id, tick, MAX_TICK)
    except FuguError as error:
        return {"none": str(error)}
    return {"frames": dict(frames)}


_NICE = 10
_PATIENCE_SECONDS = 120.0
"""The longest wait for an answer: the first may compile kernels."""
_IDLE_SECONDS = 60.0
_PAUSE_SECONDS = 60.0


class AttackProcess:
    """The process of the attackers. One thread at a time may ask; any thread may end the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._is_closed = False
        self._asked_at = self._not_before = float("-inf")

    def ask(self, function_name: str, *args: Any) -> Fields:
        """Ask, and wait for the answer; under `none` it says that the process has ended or took too long."""
        if time.monotonic() < self._not_before:
            return {"none": "The attackers' process has ended: it is started again in a minute."}
        with contextlib.suppress(EOFError, OSError):
            pipe = self._open_pipe()
            pipe.send((function_name, args))
            if pipe.poll(_PATIENCE_SECONDS):
                self._asked_at = time.monotonic()
                answer: Fields = pipe.recv()
                return answer
        self.end()
        self._not_before = time.monotonic() + _PAUSE_SECONDS
        return {"none": "The attackers' process has ended, or took too long."}

    def end_if_idle(self) -> None:
        """End the process if nothing has been asked for a while."""
        if self._process is not None and time.monotonic() > self._asked_at + _IDLE_SECONDS:
            self.end()

    def close(self) -> None:
        """End the process for good. A thread that waits for an answer is told that the process has ended."""
        self._is_closed = True
        self.end()

    def end(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _open_pipe(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise EOFError
            if self._process is None or self._pipe is None:
                self._pipe, far_end = Pipe()
                descriptor = far_end.fileno()
                command = [sys.executable, "-P", "-m", __name__, str(descriptor)]
                with contextlib.closing(far_end):  # so that each process sees the end of the other
                    self._process = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL)
            return self._pipe


def _serve(pipe: Connection) -> None:
    """Answer requests until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal the parent gets it, too
    os.nice(_NICE)
    with contextlib.suppress(EOFError, OSError):
        while True:
            function_name, args = pipe.recv()
            pipe.send(answer(function_name, *args))


def shift_odds(probability: float, epsilon: float) -> float:
    """Multiply the odds of a probability by e^epsilon, without overflow, and return the new probability."""
    if epsilon > 0.0:
        return 1.0 - shift_odds(1.0 - probability, -epsilon)
    share = probability * math.exp(epsilon)
    return share / (share + 1.0 - probability) if share > 0.0 else 0.0


def counted_window(description: Description) -> tuple[DescribedWindow, list[tuple[int, ...]]]:
    """Return the first window of a stream that attackers can read, and the indices of the states of each count.

    Raises FuguError if there is no such window.
    """
    index_of_state = {state: x for x, state in enumerate(description.states)}
    for window in description.windows:
        state_groups = window.groups(description.states)
        groups = [tuple(index_of_state[state] for state in group if state in index_of_state) for group in state_groups]
        if window.query.is_additive and all(0 < len(group) < len(description.states) for group in groups):
            return window, groups
    if any(window.blocks is not None for window in description.windows):
        raise FuguError("No attacker of this page reads counts by parts of the day: fugu check attack does.")
    raise FuguError("No attacker of this page reads such counts: fugu check attack does.")


_Symbol = tuple[int, int]
"""A symbol and the shift of its tick."""


class AttackView:
    """Keeps the newest symbols and counts of a stream, of any policy version, and its newest description."""

    def __init__(self) -> None:
        self._description: Description | None = None
        self._ticks: dict[int, tuple[int, _Symbol]] = {}
        self._windows: dict[tuple[str, int], WindowFrame] = {}
        self._has_changed = False

    def describe(self, description: Description) -> None:
        """Attack messages of this description's policy version from now on, and keep messages of other versions."""
        self._description, self._has_changed = description, True

    def take(self, frame: SymbolFrame) -> None:
        """Take the symbols of a frame, which may be late or repeated."""
        first_tick = frame.first + max(0, len(frame.symbols) - MOST_TICKS)
        for tick, symbol in enumerate(frame.symbols[-MOST_TICKS:], first_tick):
            self._ticks[tick] = frame.policy_version, (symbol, frame.shift)
        oldest_tick = max(self._ticks) - MOST_TICKS
        self._ticks = {tick: self._ticks[tick] for tick in sorted(self._ticks) if tick > oldest_tick}
        self._has_changed = True

    def take_window(self, frame: WindowFrame) -> None:
        """Take the counts of a window if the device observed all of its ticks."""
        if frame.observed == frame.length:
            self._windows[frame.window, frame.first] = frame
            if len(self._windows) > MOST_WINDOWS:
                del self._windows[min(self._windows, key=lambda window: window[1])]
            self._has_changed = True

    def due_attack(self) -> Callable[[Ask], Fields] | None:
        """Return a function, for any thread, that asks for an update; `None` without a change or a description."""
        if not self._has_changed or self._description is None:
            return None
        self._has_changed = False
        description = self._description
        ticks = {tick: symbol for tick, (version, symbol) in self._ticks.items() if version == description.version}
        windows = [self._windows[window_key] for window_key in sorted(self._windows, key=lambda window: window[1])]

        def ask_update(ask: Ask) -> Fields:
            common_fields = {"kind": "attack", "stream": description.stream, "version": description.version}
            try:
                if description.kind == "windows":
                    return common_fields | _counts_update(description, windows, ask)
                return common_fields | _symbols_update(description, ticks, ask)
            except FuguError as error:
                return common_fields | {"none": str(error)}

        return ask_update


def _symbols_update(description: Description, ticks: Mapping[int, _Symbol], ask: Ask) -> Fields:
    if description.kind == "points":
        raise FuguError(
            "No attacker of this page reads points. To name the state behind a point takes the table that it was drawn "
            "from, which only devices have."
        )
    if not ticks:
        return {"waits": True}
    first_tick, last_tick = min(ticks), max(ticks)
    symbols, shifts = zip(*(ticks.get(t, (-1, 0)) for t in range(first_tick, last_tick + 1)), strict=True)
    # A shift only grows, and is not said of a tick without a symbol.
    times = [tick - shift for tick, shift in enumerate(accumulate(shifts, max), first_tick)]
    read_words = f"the {len(ticks)} newest symbols that this page received, those after a moment, too"
    read_words += ", and no counts beside them" if description.windows else ""
    texts = {"read": read_words, "alone": ONE_SYMBOL, "alone_read": "the newest symbol and nothing else"}
    answer = ask("read_symbols", description, symbols)
    return _update(description, answer, (first_tick, last_tick), times, description.states) | texts


def _counts_update(description: Description, windows: Sequence[WindowFrame], ask: Ask) -> Fields:
    window, groups = counted_window(description)
    name, length = window.name, window.length
    shape = description.version, name, length, len(groups)
    frames = [f for f in windows if (f.policy_version, f.window, f.length, len(f.counts)) == shape]
    if not frames:
        return {"waits": True}
    try:
        scale = Fraction(window.scale)
    except (ValueError, ArithmeticError):
        raise FuguError("The description of the stream does not say how large the noise of its counts is.") from None
    answer = ask("read_counts", description, length, scale, groups, [f.counts for f in frames])
    frames = frames[-len(answer.get("low", ())) :]
    states = [" or ".join(description.states[x] for x in group) for group in groups]
    if len(groups) == 1:
        other_states = [state for x, state in enumerate(description.states) if x not in groups[0]]
        states = [other_states[0] if len(other_states) == 1 else "another state", *states]
    words = f"the counts of window {name}, one window at a time. It shows the probability that any one tick of the "
    texts = {"read": f"{words}window was in that state", "alone": ONE_WINDOW}
    texts["alone_read"] = "the newest count, and takes ticks for independent"
    times = [f.first + length - f.shift for f in frames]
    return _update(description, answer, (frames[0].first, frames[-1].last), times, states) | texts


def _update(
    description: Description, answer: Fields, span: tuple[int, int], times: Iterable[int], states: Sequence[str]
) -> Fields:
    """Make the page's update from an answer about a span, which is a pair of first and last tick.

    The answer has a column for each of `states`; of two states, only the second is drawn. `times` are wall ticks.
    """
    if "none" in answer:
        raise FuguError(answer["none"])
    promise = description.guarantee.epsilon_at(*span)
    epsilon = math.inf if promise is None else promise
    lower_bounds = [shift_odds(p, -epsilon) for p in answer["low_before"]]
    upper_bounds = [shift_odds(p, epsilon) for p in answer["high_before"]]
    is_beyond = any(
        low < lower_bounds[x] - _ROUNDING or high > upper_bounds[x] + _ROUNDING
        for lows, highs in zip(answer["low"], answer["high"], strict=True)
        for x, (low, high) in enumerate(zip(lows, highs, strict=True))
    )
    indices = [1] if len(states) == 2 else list(range(min(len(states), _MAX_BANDS)))
    bound_names = ("low_before", "high_before", "low_alone", "high_alone")
    bound_rows = {"least": lower_bounds, "most": upper_bounds, **{name: answer[name] for name in bound_names}}
    is_typical = description.chains is not None and description.chains.kind == "bounded"
    return {
        "attacker": EVERYTHING,
        "believes": "the typical chain" if is_typical else answer["chains"],
        "epsilon": promise,
        "states": [states[x] for x in indices],
        "times": [(description.epoch_us + tick * description.period_us) / 1e6 for tick in times],
        **{name: [[round(row[x], 4) for row in answer[name]] for x in indices] for name in ("low", "high")},
        **{name: [round(row[x], 4) for x in indices] for name, row in bound_rows.items()},
        "guesses": [states[x] for x in answer["guesses"]],
        "beyond": is_beyond,
    }


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
