"""Mutated envelopes and frames: no crash, no acceptance, bounded memory and time."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from contract.envelope import encode_roots
from contract.measure_table import encode_table
from tests.support.fuzz_target import KEYS, MEASURED, SIGNED, one_input

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
SEEDS = [
    SIGNED,
    KEYS.signed_time(5),
    KEYS.signed_table(MEASURED.measure_tables[1]),
    encode_roots([KEYS.root_envelope()]),
    encode_table(MEASURED.measure_tables[1]),
    *(bytes.fromhex(path.read_text()) for path in sorted(GOLDEN.glob("*.hex"))),
]


def mutated(seed: bytes, generator: random.Random) -> bytes:
    """Some bytes changed, put in, taken away or repeated."""
    data = bytearray(seed)
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        place = generator.randrange(len(data) + 1)
        match generator.randrange(4):
            case 0 if place < len(data):
                data[place] ^= 1 << generator.randrange(8)
            case 1:
                data[place:place] = generator.randbytes(generator.choice((1, 2, 8)))
            case 2:
                del data[place : place + generator.choice((1, 2, 8, 100))]
            case _:
                data[place:place] = data[place : place + generator.choice((1, 10, 100))]
    return bytes(data)


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_nothing_that_nobody_has_signed_is_accepted(count: int) -> None:
    generator = random.Random(2026)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        data = mutated(generator.choice(SEEDS), generator)
        if data not in SEEDS:
            one_input(data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"memory grew by {grown} kB"


@pytest.mark.soak
def test_bytes_that_a_fuzzer_has_chosen(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    for number, seed in enumerate(SEEDS):
        (tmp_path / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "tests.support.fuzz_target", str(tmp_path), "-runs=200000", "-rss_limit_mb=1000"]
    done = subprocess.run([*command, "-timeout=10"], capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr[-3000:]
