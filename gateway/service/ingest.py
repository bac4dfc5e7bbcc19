"""From what the broker delivers to a validated frame, or to a reason why not; nothing here can stop the gateway."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from contract.errors import FuguError
from contract.frames import MAX_FRAME_TICKS, SymbolFrame, decode_status, decode_symbols, encode_symbols
from contract.topics import parse_topic
from gateway.service.policies import Catalogue, UnknownDeviceError

__all__ = ["MAX_PAYLOAD_BYTES", "Birth", "Ingest", "Received"]

MAX_PAYLOAD_BYTES = len(encode_symbols(SymbolFrame(1, -1, 0, bytes(MAX_FRAME_TICKS))))
"""The largest symbol frame; a status message is smaller, too."""


class WrongFleetError(FuguError):
    """The message is another fleet's."""

    reason = "wrong_fleet"


class OversizedError(FuguError):
    """The payload is larger than any valid one."""

    reason = "oversized"


class SymbolRangeError(FuguError):
    """A symbol is not in the table of the policy that the frame names."""

    reason = "symbol_out_of_range"


class Received(NamedTuple):
    """A frame that may be stored."""

    device: str
    stream: str
    frame: SymbolFrame


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

    def read(self, topic: str, payload: bytes) -> Received | Birth | None:
        """The message's meaning; none if it is refused, or says that a device is offline."""
        self._counters["received"] += 1
        try:
            return self._read(topic, payload)
        except FuguError as error:
            self._counters[error.reason] += 1
        except Exception:  # what nobody thought of must not stop the gateway either; its text may hold payload
            self._counters["unexpected"] += 1
        return None

    def _read(self, topic: str, payload: bytes) -> Received | Birth | None:
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise OversizedError(f"payload of {len(payload)} bytes")
        parsed = parse_topic(topic)
        if parsed.fleet != self._catalogue.fleet:
            raise WrongFleetError(f"message of fleet {parsed.fleet}")
        if parsed.kind == "status":
            if not self._catalogue.streams(parsed.device):
                raise UnknownDeviceError(f"no policy for device {parsed.device}")
            return Birth(parsed.device) if decode_status(payload).online else None
        if parsed.kind != "symbols":
            return None
        frame = decode_symbols(payload)
        known = self._catalogue.find(parsed.device, parsed.stream, frame.policy_version)
        if frame.symbols.translate(None, delete=known.allowed):
            raise SymbolRangeError(f"symbol above {known.policy.table.symbols - 1}")
        return Received(parsed.device, parsed.stream, frame)
