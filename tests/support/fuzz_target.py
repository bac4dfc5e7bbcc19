"""What is fuzzed: everything that a device or a gateway parses, and the rules of trust behind it.

As a program it lets atheris choose the bytes: python -m tests.support.fuzz_target -runs=N
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable

from fugu.contract.descriptions import decode_description
from fugu.contract.envelope import Envelope, decode_roots
from fugu.contract.errors import FrameError, FuguError, TrustError
from fugu.contract.fleet_frames import PolicyStatus
from fugu.contract.frames import Committed, Status, SymbolFrame
from fugu.contract.health import Health
from fugu.contract.measure_check import check_noise
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_table import TimedTable
from fugu.contract.release_frames import ReleaseFrame
from fugu.contract.reports import WindowCount, decode_estimate
from fugu.contract.trust import Trust
from fugu.contract.window_frames import WindowFrame
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.signing import NOW, Keys, policy_document

DECODERS: tuple[Callable[[bytes], object], ...] = (
    SymbolFrame.decode,
    Committed.decode,
    Status.decode,
    WindowFrame.decode,
    ReleaseFrame.decode,
    MeasureFrame.decode,
    TimedTable.decode,
    Envelope.decode,
    PolicyStatus.decode,
    decode_roots,
    Health.decode,
    decode_description,
    decode_estimate,
    WindowCount.decode,
)
"""Of all payloads; tests/fuzz looks whether one is missing."""
KEYS = Keys()
SIGNED = KEYS.signed(policy_document(policy(epoch_us=0, period_us=1_000_000), version=5))
MEASURED = measure_policy(3)
TRUST = Trust(KEYS.enrolment())


def one_input(data: bytes, counted: Counter[str] | None = None) -> None:
    """Parse some bytes in every way; only the errors that are meant for it may come, and nothing may be accepted.

    Args:
        counted: counts what became of them in each decoder, by reason.
    """
    counted = Counter() if counted is None else counted
    for decode in DECODERS:
        try:
            found = decode(data)
        except FrameError as error:
            counted[error.reason] += 1
            continue
        counted["taken"] += 1
        if decode is TimedTable.decode:
            try:
                check_noise(MEASURED.measurement, found.noise, found.constraint)  # type: ignore[attr-defined]
            except FuguError:
                continue
    if data == SIGNED:
        return
    before = TRUST.state
    for kind in ("policy", "table", "time"):
        try:
            TRUST.judge(data, kind, NOW)  # type: ignore[arg-type]
        except TrustError:
            continue
        raise AssertionError(f"a {kind} document was accepted that nobody has signed")
    with contextlib.suppress(TrustError):
        TRUST.follow_roots(data)
    assert TRUST.state == before


if __name__ == "__main__":
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
