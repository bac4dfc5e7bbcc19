"""What was drawn of one stream and is in no frame yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_agent.plan import StreamPlan
from fugu.contract.frames import SymbolFrame
from fugu.contract.measure_frames import MeasureFrame, unpack_released

__all__ = ["OpenFrame"]


@dataclass(slots=True)
class OpenFrame:
    """The frame of a stream that is under way.

    Attributes:
        reserved: no tick above it may have been drawn, as far as the disk knows.
        last: the last tick that was drawn, or may have been before a restart.
        last_framed: the last tick of the newest frame.
        shift, since: by how many ticks the numbers are ahead of the wall clock, from which tick on.
        first, outputs: what was drawn and is in no frame yet, of consecutive ticks.
        version, frame_ticks, bits: of the policy that it was drawn under.
        stored: how many of the outputs are on the disk.
    """

    reserved: int
    last: int
    last_framed: int
    shift: int = 0
    since: int = 0
    first: int = 0
    version: int = 0
    frame_ticks: int = 0
    bits: int = 0
    outputs: list[bytes] = field(default_factory=list)
    stored: int = 0

    def goes_on(self, plan: StreamPlan, tick: int) -> bool:
        """Whether a tick belongs into the frame that is under way."""
        count = len(self.outputs)
        return tick == self.first + count and plan.version == self.version and count < self.frame_ticks

    def take(self, tick: int, output: bytes, version: int, frame_ticks: int, bits: int) -> None:
        """Add what was drawn for a tick."""
        if not self.outputs:
            self.first, self.version, self.frame_ticks, self.bits = tick, version, frame_ticks, bits
        self.outputs.append(output)

    def rows(self) -> list[tuple[int, bytes, int, int, int]]:
        """What is not on the disk: tick, output, version, frame_ticks and bits of each."""
        head = self.version, self.frame_ticks, self.bits
        return [(self.first + i, self.outputs[i], *head) for i in range(self.stored, len(self.outputs))]

    def encode(self) -> bytes:
        """What is in no frame yet, as one: filled up to a full one; symbols of some bits, or points."""
        padding = self.frame_ticks - len(self.outputs)
        head = self.version, self.last_framed, self.first
        if self.bits:
            return SymbolFrame(*head, b"".join(self.outputs), padding, self.bits, self.shift).encode()
        points = tuple(map(unpack_released, self.outputs))
        return MeasureFrame(*head, len(points[0].point), points, padding, self.shift).encode()
