"""From what the broker delivers to a validated frame, or to a reason why not; nothing here can stop the gateway."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from contract.errors import FuguError, Reason
from contract.frames import (
    MAX_FRAME_TICKS,
    SymbolFrame,
    decode_status,
    decode_symbols,
    encode_symbols,
    refuse_other_clock,
)
from contract.measure_frames import MAX_MEASURE_TICKS, MEASURE, MeasureFrame, Released, decode_measure, encode_measure
from contract.topics import parse_topic
from contract.window_frames import WindowFrame, decode_window
from gateway.service.policies import Catalogue, UnknownDeviceError

__all__ = ["MAX_PAYLOAD_BYTES", "AnyReceived", "Birth", "Ingest", "Received", "ReceivedPoints", "ReceivedWindow"]

MAX_PAYLOAD_BYTES = len(encode_symbols(SymbolFrame(1, -1, 0, bytes(MAX_FRAME_TICKS), bits=8)))
"""The largest symbol frame; a status message and window counts are smaller, too."""
MAX_POINTS_BYTES = len(encode_measure(MeasureFrame(1, -1, 0, 3, (Released(0, (0, 0, 0)),) * MAX_MEASURE_TICKS)))
"""The largest frame of points."""
_POINTS = bytes([MEASURE])


class WrongFleetError(FuguError):
    """The message is another fleet's."""

    reason = Reason.WRONG_FLEET


class OversizedError(FuguError):
    """The payload is larger than any valid one."""

    reason = Reason.OVERSIZED


class SymbolRangeError(FuguError):
    """A symbol is not in the table of the policy that the frame names, or takes other bits than there."""

    reason = Reason.SYMBOL_OUT_OF_RANGE


class UnknownWindowError(FuguError):
    """The policy that the frame names has no such window."""

    reason = Reason.UNKNOWN_WINDOW


class PointMismatchError(FuguError):
    """Points have other dimensions than the policy that the frame names says."""

    reason = Reason.POINT_MISMATCH


class WindowMismatchError(FuguError):
    """The window's ticks, or its number of counts, are not those of the policy that the frame names."""

    reason = Reason.WINDOW_MISMATCH


class Received(NamedTuple):
    """A frame of symbols that may be stored."""

    device: str
    stream: str
    frame: SymbolFrame


class ReceivedWindow(NamedTuple):
    """A frame of window counts that may be stored."""

    device: str
    stream: str
    frame: WindowFrame


class ReceivedPoints(NamedTuple):
    """A frame of points that may be stored."""

    device: str
    stream: str
    frame: MeasureFrame


AnyReceived = Received | ReceivedWindow | ReceivedPoints


class Birth(NamedTuple):
    """A known device has come online."""

    device: str


class Ingest:
    """Checks messages against the contract and the policies.

    Args:
        catalogue: the fleet's policies.
        counters: where refusals are counted, by reason.
    """

    def __init__(self, catalogue: Catalogue, counters: Counter[str]) -> None:
        self._catalogue = catalogue
        self._counters = counters

    def read(self, topic: str, payload: bytes) -> AnyReceived | Birth | None:
        """The message's meaning; none if it is refused, or says that a device is offline."""
        self._counters["received"] += 1
        try:
            return self._read(topic, payload)
        except FuguError as error:
            self._counters[error.reason] += 1
        except Exception:  # what nobody thought of must not stop the gateway either; its text may hold payload
            self._counters[Reason.UNEXPECTED] += 1
        return None

    def _read(self, topic: str, payload: bytes) -> AnyReceived | Birth | None:
        if len(payload) > (MAX_POINTS_BYTES if payload[:1] == _POINTS else MAX_PAYLOAD_BYTES):
            raise OversizedError(f"payload of {len(payload)} bytes")
        parsed = parse_topic(topic)
        if parsed.fleet != self._catalogue.fleet:
            raise WrongFleetError(f"message of fleet {parsed.fleet}")
        if parsed.kind == "status":
            if not self._catalogue.streams(parsed.device):
                raise UnknownDeviceError(f"no policy for device {parsed.device}")
            return Birth(parsed.device) if decode_status(payload).online else None
        if parsed.kind == "window":
            return self._window(parsed.device, parsed.stream, payload)
        if parsed.kind != "symbols":
            return None
        if payload[:1] == _POINTS:
            return self._points(parsed.device, parsed.stream, payload)
        frame = decode_symbols(payload)
        refuse_other_clock(frame.clock_epoch)
        known = self._catalogue.find(parsed.device, parsed.stream, frame.policy_version)
        if frame.symbols.translate(None, delete=known.allowed):
            raise SymbolRangeError(f"symbol above {known.policy.table.symbols - 1}")
        if frame.bits != known.bits:
            raise SymbolRangeError(f"{frame.bits} bits a symbol, not {known.bits}")
        return Received(parsed.device, parsed.stream, frame)

    def _points(self, device: str, stream: str, payload: bytes) -> ReceivedPoints:
        frame = decode_measure(payload)
        refuse_other_clock(frame.clock_epoch)
        model = self._catalogue.find_measure(device, stream, frame.policy_version)
        if frame.dimensions != len(model.policy.resolution):
            raise PointMismatchError(f"points of {frame.dimensions} dimensions")
        return ReceivedPoints(device, stream, frame)

    def _window(self, device: str, stream: str, payload: bytes) -> ReceivedWindow:
        frame = decode_window(payload)
        refuse_other_clock(frame.clock_epoch)
        policy = self._catalogue.find(device, stream, frame.policy_version).policy
        if (window := policy.window(frame.window)) is None:
            raise UnknownWindowError(f"policy version {policy.version} has no window {frame.window}")
        if not window.covers(frame.index, frame.first, frame.length):
            raise WindowMismatchError(f"window {frame.index} of {frame.window} has other ticks than its policy says")
        if len(frame.counts) != window.counts(len(policy.discretiser.states)):
            raise WindowMismatchError(f"{len(frame.counts)} counts in window {frame.window}")
        return ReceivedWindow(device, stream, frame)
