"""The benchmark of the firmware: what it runs on a board is text, so that no checker sees a name that has gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_READINGS = """
import sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
import firmware
folder = Path(sys.argv[1])
policy = firmware._policy(frame_ticks=60, period_us=1_000_000)
image = firmware.build([policy], folder / "stream", firmware.Burnt())
print(firmware._run(folder, firmware._STREAM.format(folder=str(image.folder), readings=300), 64))
"""


def test_the_benchmark_reads_on_a_board(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _READINGS, str(tmp_path)]
    microseconds, frames = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert float(microseconds) > 0.0
    assert int(frames) == 300 // 60 + 300 // 100  # of symbols, and of one of its two windows
