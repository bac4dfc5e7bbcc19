"""One stream: ticks and readings go in, frames come out. There is no I/O: an outbox makes frames durable."""

from .frames import symbol_frame, window_frame
from .noise import randomiser, uniform_below, word_block
from .policy import Policy
from .states import Classifier, classifier_of
from .windows import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Stream"]


class Stream:
    """A stream under a verified policy; `entropy` fills a writable buffer with independent uniform bytes.

    The stream goes on after an outbox: `last_framed` is the last tick of the newest frame, -1 for none. `indices` has,
    by name, the index of the last window that was released. No window that begins before the tick `since` is counted.
    Tick numbers are `shift` ticks ahead of the wall clock. `noise_entropy` is for the noise of windows, by default
    `entropy`; tests give another.
    """

    def __init__(
        self,
        policy: Policy,
        entropy: "Callable[[memoryview], None]",
        outbox: "Any",
        noise_entropy: "Callable[[memoryview], None] | None" = None,
    ) -> None:
        self.policy = policy
        self.shift = outbox.shift
        self.last_framed = outbox.last_framed
        self._classifier = classifier_of(policy)
        self._draw = randomiser(policy.rows, *word_block(entropy))[0] if policy.symbols else None
        self._first = 0
        self._symbols = bytearray()
        draw = uniform_below(noise_entropy or entropy)
        self.counters = [
            Counter(window, draw, outbox.indices.get(window.name, -1), outbox.since) for window in policy.windows
        ]

    @property
    def memory(self) -> "tuple[bytes, Classifier]":
        """The discretiser's bytes, and its classifier with all that it remembers."""
        return self.policy.discretiser, self._classifier

    def go_on(self, memory: "tuple[bytes, Classifier]") -> None:
        """Take over the `memory` of an earlier stream if its discretiser is the same."""
        if memory[0] == self.policy.discretiser:
            self._classifier = memory[1]

    @property
    def is_empty(self) -> bool:
        """True if no frame is under way."""
        return not self._symbols

    def close_gap(self, tick: int) -> list[tuple[str, int, int, bytes]]:
        """Close the frame under way if a tick does not follow its last tick.

        Return the frames that this completes: (sequence, previous, last, bytes) of each.
        """
        if self._symbols and tick != self._first + len(self._symbols):
            return self.close()
        return []

    def close(self) -> list[tuple[str, int, int, bytes]]:
        """Close the frame under way, if there is one. Return it as `close_gap` does."""
        return [self._seal()] if self._symbols else []

    def tick(self, tick: int, reading: object) -> list[tuple[str, int, int, bytes]]:
        """Draw for a tick later than all before. Return the frames that this completes, as `close_gap` does."""
        policy, frames = self.policy, []
        state = self._classifier.observe(tick, reading)
        if self._draw is not None:
            if not self._symbols:
                self._first = tick
            self._symbols.append(self._draw(state))
            if len(self._symbols) >= policy.frame_ticks:
                frames.append(self._seal())
        for counter in self.counters:
            if not self._classifier.beginning:
                counter.observe(tick, state)
            for index, observed, counts in counter.close(tick):
                window, previous = counter.window, counter.last_index
                ticks = window.first(index), window.length
                frame = window_frame(policy.version, self.shift, window.name, ticks, previous, index, observed, counts)
                counter.last_index = index
                frames.append((policy.stream + "/" + window.name, previous, index, frame))
        return frames

    def _seal(self) -> tuple[str, int, int, bytes]:
        policy, previous = self.policy, self.last_framed
        head = policy.version, self.shift, previous, self._first
        frame = symbol_frame(*head, self._symbols, policy.frame_ticks, policy.bits)
        self.last_framed = self._first + len(self._symbols) - 1
        self._symbols = bytearray()
        return policy.stream, previous, self.last_framed, frame
