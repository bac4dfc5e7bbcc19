"""`python -m papers`: reproduce the papers' figures and tables, from a checkout."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.demo.evaluation import RECORDINGS
from fugu_cli.main import guarded
from papers.report import chosen_targets, list_targets, reproduce
from papers.rows import Setting
from papers.table import show_rows

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a report with the paper's number, ours, and why they differ, for every figure and table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="figures, tables, errata, groups of them, or all")
    parser.add_argument("--out", "-o", type=Path, default=Path("reproduction"), help="folder for report and CSV files")
    parser.add_argument("--quick", action="store_true", help="fewer points and trials: all within a minute")
    parser.add_argument("--traces", type=Path, help="location traces for dphmm-traces, such as GeoLife's: CSV")
    parser.add_argument("--chains", type=Path, metavar="FILE", help="mqm-adversaries: assumed and actual chain, JSON")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="dphmm-sequences: a policy of points")
    parser.add_argument(
        "--between", nargs=2, type=_states, metavar="STATES", help="dphmm-sequences: two sequences, such as 0,1,1 2,2,3"
    )
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--rows", action="store_true", help="every row of the papers, with its verdict")
    options = parser.parse_args(arguments)

    def command() -> int:
        words = options.targets or (["all"] if options.quick else [])
        if options.list:
            list_targets()
        elif options.rows and not words:
            show_rows({})
        else:
            choices = {name: getattr(options, name) for name in ("quick", "traces", "chains", "policy", "between")}
            counts = reproduce(chosen_targets(words), options.out, Setting(RECORDINGS, **choices))
            if options.rows:
                show_rows(counts)
        return 0

    return guarded(command)


def _states(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
