"""Replays of symbols: the probability of a state by a filter, beside the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fugu.attackers.evaluation import odds_change
from fugu.attackers.learning import ATTACKERS
from fugu.attackers.outputs import Knowledge, Outputs, SymbolOutputs, release_symbols
from fugu.chains.inference import filter_beliefs
from fugu.chains.model import stationary_distribution
from fugu.contract.frames import SymbolFrame
from fugu_cli.demo.evaluation import AnyFrame, Frames, Replay, Results

__all__ = ["SymbolReplay"]

_SHOWN = 300
"""The number of newest ticks in the picture."""


@dataclass(frozen=True)
class SymbolResults(Results):
    """The released symbols of a replay beside the truth: `released` are probabilities of a state by a filter.

    Attributes:
        right_share: the share of ticks whose likelier state by the filter is the true one.
        majority_share: the share of ticks that have the more frequent state.
    """

    right_share: float = 0.0
    majority_share: float = 0.0
    attackers: ClassVar[int] = len(ATTACKERS)

    @property
    def error_text(self) -> str:
        """The share of ticks whose state the filter names rightly, in a few words."""
        return f"a filter names the state rightly {100 * self.right_share:.0f} % of the time"

    def use_sentence(self) -> str:
        """Return a sentence about how often the filter names the state rightly."""
        return (
            f"Useful: the state that a filter names is right {100 * self.right_share:.1f} % of the time; always naming "
            f"the more frequent one is right {100 * self.majority_share:.1f} %."
        )


@dataclass(frozen=True)
class SymbolReplay(Replay):
    """A recording of two states that a device replays as randomised symbols."""

    topic: ClassVar[Literal["window", "symbols"]] = "symbols"

    @property
    def expected_count(self) -> int:
        """The number of symbols that the device will send."""
        return int(self.states.size)

    def decode(self, payload: bytes) -> tuple[int, int, AnyFrame]:
        """Return the first tick of a message, the tick after its last, and its frame; FrameError if it is none."""
        frame = SymbolFrame.decode(payload)
        return frame.first, frame.first + len(frame.symbols), frame

    def count_values(self, frames: Frames) -> int:
        """Return the number of symbols in frames."""
        return sum(len(frame.symbols) for frame in frames.values() if isinstance(frame, SymbolFrame))

    @property
    def day_parts(self) -> tuple[str, ...]:
        """An empty tuple: a symbol is of one tick, and counts no parts of the day."""
        return ()

    @property
    def caption(self) -> str:
        """The header of the lane of released values."""
        shown_words = f"the newest {_SHOWN} {self.tick}s"
        return f"probability of {self.share_of}, by a filter of the symbols, {shown_words} · dashes: truth"

    def span(self, ticks: int) -> tuple[float, float]:
        """Return the hours at which the drawing begins and ends after some ticks: those of the newest 300 ticks."""
        end_tick = min(max(ticks, _SHOWN), self.states.size)
        return max(end_tick - _SHOWN, 0) * self.hours, end_tick * self.hours

    def simulated_frames(self) -> Frames:
        """Return one frame of all symbols, drawn by the policy's table."""
        if self.policy.table is None:
            return {}
        symbols = release_symbols(self.states, self.policy.table, np.random.default_rng()).symbols
        return {0: SymbolFrame(1, -1, 0, bytes(np.maximum(symbols, 0).astype(np.uint8).tolist()))}

    def results(self, frames: Frames, *, attack_all: bool = False) -> SymbolResults | None:
        """Filter the symbols that arrived, compare with the truth, and attack them; None if there are none."""
        symbols = np.full(self.states.size, -1, dtype=np.int64)
        for first_tick, frame in frames.items():
            if isinstance(frame, SymbolFrame):
                frame_symbols = np.frombuffer(frame.symbols, dtype=np.uint8)[: max(0, symbols.size - first_tick)]
                symbols[first_tick : first_tick + frame_symbols.size] = frame_symbols
        if self.policy.table is None or not (symbols >= 0).any():
            return None
        end_tick = int(np.flatnonzero(symbols >= 0)[-1]) + 1
        weights = np.array(self.policy.table.weights(), dtype=np.float64)
        outputs = SymbolOutputs(symbols[:end_tick], weights / weights.sum(axis=1, keepdims=True))
        true_states, is_stated = self.states[:end_tick], self.states[:end_tick] >= 0
        initial = stationary_distribution(self.transition)
        beliefs = filter_beliefs(outputs.symbols, initial, self.transition, outputs.emission).beliefs
        knowledge = Knowledge(self.transition, np.zeros(end_tick, dtype=np.int64))
        table = self.policy.table

        def redraw(generator: np.random.Generator) -> Outputs:
            drawn_symbols = release_symbols(true_states, table, generator).symbols
            return replace(outputs, symbols=np.where(symbols[:end_tick] < 0, -1, drawn_symbols))

        best_attack, learners = self.attacks(outputs, redraw, knowledge) if attack_all else (None, ())
        shown_ticks = np.flatnonzero(is_stated)[-_SHOWN:]
        state_counts = np.bincount(true_states[is_stated], minlength=2)
        return SymbolResults(
            replay=self,
            hours=np.asarray((shown_ticks + 0.5) * self.hours, dtype=np.float64),
            truth=true_states[shown_ticks].astype(np.float64),
            released=beliefs[shown_ticks, 1],
            arrivals=int((symbols >= 0).sum()),
            end_tick=end_tick,
            band=0.0,
            ticks=np.flatnonzero(is_stated),
            ordinary_changes=None,
            own_changes=odds_change(outputs, knowledge)[is_stated],
            learners=learners,
            attack=best_attack,
            right_share=float((beliefs[is_stated].argmax(axis=1) == true_states[is_stated]).mean()),
            majority_share=float(state_counts.max() / state_counts.sum()),
        )
