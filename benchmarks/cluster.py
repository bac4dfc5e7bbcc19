"""Seconds until the shards of a node that is killed, or frozen, store again elsewhere; and what the frozen ones do.

Usage: python benchmarks/cluster.py [--json] [--shards N] [--devices N]      (needs Mosquitto and PostgreSQL)

Three nodes of Ray on this machine, at loopback addresses, with the health checks of docs/cluster.md; PostgreSQL, which
writes through to the disk; 200 frames of 10 ticks a second. Everything shares this machine's cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from figures import command_line, show

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.clusters import lose_nodes


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--devices", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(lose_nodes(Path(folder), shards=options.shards, devices=options.devices), as_json=options.json)


if __name__ == "__main__":
    main()
