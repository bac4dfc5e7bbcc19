"""Mutated envelopes and frames: no crash, no acceptance, bounded memory and time."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fugu.contract.descriptions import Description
from fugu.contract.envelope import Envelope
from fugu.contract.errors import Reason
from fugu.contract.frames import SymbolFrame
from fugu.contract.measure_table import TimedTable
from fugu.contract.reports import Health, ReleaseFrame, WindowCount, decode_estimate
from tests.support.fuzz_target import DECODERS, one_input
from tests.support.mutations import SEEDS, mutated

MESSAGE_REASONS = (
    *(Reason.EMPTY, Reason.MALFORMED, Reason.UNKNOWN_SCHEMA, Reason.WRONG_TYPE, Reason.WRONG_LENGTH),
    *(Reason.OUT_OF_RANGE, Reason.TRAILING_BYTES),
)


def test_every_decoder_is_fuzzed() -> None:
    assert {SymbolFrame.decode, TimedTable.decode, Envelope.decode, Health.decode} <= set(DECODERS)
    assert {Description.decode, decode_estimate, WindowCount.decode, ReleaseFrame.decode} <= set(DECODERS)
    assert len(DECODERS) == len(set(DECODERS)) >= 18


@pytest.mark.long
@pytest.mark.parametrize("count", [2_000, pytest.param(40_000, marks=pytest.mark.soak)])
def test_mutated_frames_crash_no_decoder_and_each_is_refused_for_a_reason(count: int) -> None:
    generator = random.Random(2026)
    counted: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        while (data := mutated(generator.choice(SEEDS), generator)) in SEEDS:
            pass
        one_input(data, counted)
    one_input(b"", counted)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{count} frames, {len(DECODERS)} decoders, {grown} kB: {dict(counted)}")
    assert grown < 100_000, f"memory grew by {grown} kB"
    assert counted.total() == (count + 1) * len(DECODERS)
    assert counted.keys() <= {"taken", *MESSAGE_REASONS}, "each reason says what is wrong with a message"
    assert counted.keys() >= set(MESSAGE_REASONS), "the fuzzer reaches every reason"


@pytest.mark.soak
def test_bytes_that_a_fuzzer_has_chosen(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    for number, seed in enumerate(SEEDS):
        (tmp_path / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "tests.support.fuzz_target", str(tmp_path), "-runs=8000", "-rss_limit_mb=1000"]
    done = subprocess.run([*command, "-timeout=10"], capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
