"""Mutated envelopes and frames: no crash, no acceptance, bounded memory and time."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from fugu import contract
from fugu.contract.errors import Reason
from tests.support.fuzz_target import DECODERS, one_input
from tests.support.mutations import SEEDS, mutated

MESSAGE_REASONS = (
    Reason.MALFORMED,
    Reason.UNKNOWN_SCHEMA,
    Reason.WRONG_TYPE,
    Reason.WRONG_LENGTH,
    Reason.OUT_OF_RANGE,
    Reason.TRAILING_BYTES,
)


def test_every_decoder_is_fuzzed() -> None:
    modules = [import_module(f"fugu.contract.{one.name}") for one in iter_modules(contract.__path__)]
    found = {thing for module in modules for name, thing in vars(module).items() if name.startswith("decode_")}
    assert found == set(DECODERS)


@pytest.mark.long
@pytest.mark.parametrize("count", [100_000, pytest.param(10_000_000, marks=pytest.mark.soak)])
def test_mutated_frames_crash_no_decoder_and_each_is_refused_for_a_reason(count: int) -> None:
    generator = random.Random(2026)
    counted: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        while (data := mutated(generator.choice(SEEDS), generator)) in SEEDS:
            pass
        one_input(data, counted)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{count} frames, {len(DECODERS)} decoders, {grown} kB: {dict(counted)}")
    assert grown < 100_000, f"memory grew by {grown} kB"
    assert counted.total() == count * len(DECODERS)
    assert counted.keys() <= {"taken", *MESSAGE_REASONS}, "each reason says what is wrong with a message"
    assert counted.keys() >= set(MESSAGE_REASONS), "the fuzzer reaches every reason"


@pytest.mark.soak
def test_bytes_that_a_fuzzer_has_chosen(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    for number, seed in enumerate(SEEDS):
        (tmp_path / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "tests.support.fuzz_target", str(tmp_path), "-runs=200000", "-rss_limit_mb=1000"]
    done = subprocess.run([*command, "-timeout=10"], capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
