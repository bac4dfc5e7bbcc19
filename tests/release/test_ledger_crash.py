"""A process that is killed at any point between reserving and publishing never under-counts and never draws again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from gateway.release.audit import verify
from gateway.release.charges import Run
from gateway.release.ledger import Ledger
from tests.support.brokers import wait_until
from tests.support.ledgers import ALLOWED, key, open_ledger

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import os, secrets, sys
from pathlib import Path
from gateway.release.ledger import Ledger
from tests.support.ledgers import release
ledger = Ledger(Path(sys.argv[1]))
out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
def publish(entry):
    os.write(out, f"{entry.number} {entry.first} {entry.payload.hex()}\\n".encode())
    ledger.mark(entry.number, "published")
for entry in ledger.pending():
    publish(entry)
while True:
    first = ledger.progress("count") or 0
    draw = lambda number: b"\\0" + secrets.token_bytes(8)
    publish(ledger.reserve(release(first, first + 9), draw, time_us=1, progress=first + 10))
"""


def test_killed_thirty_times_every_published_release_is_charged_and_is_one(tmp_path: Path) -> None:
    path, seen, generator = tmp_path / "l.sqlite", tmp_path / "published", random.Random(4)
    open_ledger(path).close()
    seen.touch()
    for _ in range(30):
        size = seen.stat().st_size
        more = size + generator.randrange(1, 400)
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(path), str(seen)], cwd=ROOT)
        wait_until(lambda more=more: seen.stat().st_size > more)  # type: ignore[misc]
        process.kill()
        process.wait()
        ledger = Ledger(path, create=False)
        lines = [line.split() for line in seen.read_text().splitlines()]
        published = {int(number): bytes.fromhex(payload) for number, _, payload in lines}
        assert all(published[int(number)] == bytes.fromhex(payload) for number, _, payload in lines)
        assert len({first for _, first, _ in lines}) == len(published)  # a window has one release
        assert verify(ledger, published).problems == ()
        entries = ledger.entries()
        assert ledger.spent(key(), 0, 10**9) == [Run(0, 10 * len(entries) - 1, ALLOWED)]
        assert {entry.number for entry in ledger.pending()} >= {entry.number for entry in entries} - set(published)
        assert len(ledger.pending()) <= 1
        ledger.close()
    assert len(entries) > 60
