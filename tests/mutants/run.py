"""Plants mutants one by one in a copy of the tree and runs what is to kill them: `make mutants`.

Whatever outlives the tests of `make quick` meets those of `make test`, of the same files.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import hypothesis  # noqa: F401  # loaded once for all forks
import numba  # noqa: F401
import numpy as np  # noqa: F401
import pydantic  # noqa: F401
import pytest

from tests.support.planted import PRODUCT, Mutant, find, functions, mutants, planted

ROOT = Path(__file__).parents[2]
MATRIX = Path(__file__).with_name("matrix.tsv")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", ".hypothesis", "*_cache")
QUICK, WHOLE = "not soak and not processes and not long", "not soak"
PATIENCE = 900.0


def run(root: Path, tests: Iterable[str], marks: str) -> int:
    """The status of pytest on the tree in a folder: 1 if a test failed, -1 if it took too long.

    It runs in a fork that has the libraries loaded, but nothing of the product: imports take longer than most tests.
    """
    if not (pid := os.fork()):
        _become(root, ["-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests])
    timer = threading.Timer(PATIENCE, os.kill, (pid, signal.SIGKILL))
    timer.start()
    try:
        return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -1)
    finally:
        timer.cancel()


def _become(root: Path, arguments: list[str]) -> NoReturn:
    """Be pytest on the tree in a folder, and nothing else any more."""
    status = -1
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        os.chdir(root)
        os.environ["PYTHONPATH"] = sys.path[0] = str(root)
        sys.dont_write_bytecode = True
        for name in [name for name in sys.modules if name.partition(".")[0] in (*PRODUCT, "tests")]:
            del sys.modules[name]
        sys.path_importer_cache.clear()
        status = int(pytest.main(arguments))
    finally:
        os._exit(status & 0xFF)


def verdict(root: Path, mutant: Mutant, *, each: bool) -> list[tuple[str, str, float]]:
    """Which file killed a mutant, in which target, after how many seconds; with `each`, of all its files."""
    place = find(mutant, functions(root))
    before, was = place.path.read_text(), place.path.stat()
    place.path.write_text(planted(mutant, place))
    verdicts = []
    try:
        for target, marks in (("quick", QUICK), ("test", WHOLE)):
            for file in mutant.tests:
                began = time.monotonic()
                status = run(root, [file], marks)
                if status not in (-1, 0, 1, 2, 5):
                    raise RuntimeError(f"pytest ends with status {status} on {file}")
                if status in (-1, 1, 2):  # 2: a file cannot even be imported
                    verdicts.append((file, "timeout" if status < 0 else target, time.monotonic() - began))
                    if not each:
                        return verdicts
            if verdicts:
                return verdicts
    finally:
        place.path.write_text(before)
        os.utime(place.path, ns=(was.st_atime_ns, was.st_mtime_ns))  # what was compiled of it is of this moment
    return [("-", "survived", 0.0)]


def check_clean(root: Path, chosen: list[Mutant]) -> None:
    """Refuse to judge mutants by tests that fail without any, or that look at another tree, where there is none."""
    files = sorted({file for mutant in chosen for file in mutant.tests})
    contract = root / "fugu" / "contract" / "__init__.py"
    was = contract.read_text()
    contract.write_text("raise ImportError")
    seen = run(root, files[:1], QUICK)
    contract.write_text(was)
    if seen == 0:
        raise SystemExit("the tests are of another tree than the copy")
    if failing := [file for file in files if run(root, [file], QUICK) not in (0, 5)]:
        raise SystemExit(f"without any mutant these fail: {', '.join(failing)}")


def main() -> int:
    """Run a sample, or all; 1 if one that lowers privacy or loses data survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="all mutants")
    parser.add_argument("--sample", type=int, default=40, help="how many otherwise")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the sample")
    parser.add_argument("--subject", action="append", help="only mutants of this subject")
    parser.add_argument("--name", action="append", help="only this one, by its name in the matrix")
    parser.add_argument("--alive", action="store_true", help="only those that no test kills, by the stored matrix")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--each", action="store_true", help="run all files of a mutant, also after one has killed it")
    parser.add_argument("--matrix", action="store_true", help="store what was found in tests/mutants/matrix.tsv")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if not options.subject or mutant.subject in options.subject]
    chosen = [mutant for mutant in chosen if not options.name or mutant.name in options.name]
    if options.alive:
        stored = _known()
        chosen = [mutant for mutant in chosen if "\tsurvived\t" in stored.get(mutant.name, "\tsurvived\t")]
    if not (options.all or options.name or options.alive):
        print(f"seed {options.seed}")
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    rows: dict[str, list[tuple[str, str, float]]] = {}
    writing = threading.Lock()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            copies.put(Path(shutil.copytree(ROOT, Path(folder).resolve() / str(number), ignore=LEFT_OUT)))
        first = copies.get()
        check_clean(first, chosen)
        copies.put(first)

        def judge(mutant: Mutant) -> None:
            root = copies.get()
            try:
                killers = verdict(root, mutant, each=options.each)
            finally:
                copies.put(root)
            rows[mutant.name] = killers
            file, target, seconds = killers[0]
            print(f"{target:8} {mutant.kind:7} {mutant.name} {seconds:5.1f} s {file} {mutant.function}", flush=True)
            if options.matrix:
                with writing:
                    _store(mutant.name, killers)

        list(pool.map(judge, chosen))
    return report(chosen, {name: row[0][1] for name, row in rows.items()})


def report(chosen: list[Mutant], targets: dict[str, str]) -> int:
    """Print the share that dies in `make quick`, and what survives; 1 if anything that should not does."""
    alive = [mutant for mutant in chosen if targets[mutant.name] == "survived"]
    same = [mutant for mutant in chosen if mutant.equivalent]
    survived = [mutant for mutant in alive if not mutant.equivalent]
    dead = [mutant for mutant in same if mutant not in alive]
    quick = sum(target == "quick" for target in targets.values())
    print(
        f"{len(chosen)} mutants, {len(same)} of them equivalent: {quick} die in make quick "
        f"({quick / max(len(chosen) - len(same), 1):.0%} of those that can), {len(survived)} survive"
    )
    for what, which in (("survived", survived), ("equivalent", same), ("equivalent, and dead", dead)):
        for mutant in which:
            why = f": {mutant.equivalent}" if mutant.equivalent else ""
            print(f"{what}: {mutant.kind} {mutant.function}: {mutant.before!r} -> {mutant.after!r}{why}")
    return int(bool(dead) or any(mutant.kind != "other" for mutant in survived))


def _store(name: str, killers: list[tuple[str, str, float]]) -> None:
    """Put what was found of a mutant into the matrix at once: a run over all of them takes hours, and may be ended."""
    lines_of = _known() | {
        name: "".join(f"{name}\t{file}\t{target}\t{seconds:.1f}\n" for file, target, seconds in killers)
    }
    MATRIX.write_text("".join(lines_of[mutant.name] for mutant in mutants() if mutant.name in lines_of))


def _known() -> dict[str, str]:
    lines_of: dict[str, str] = {}
    for line in MATRIX.read_text().splitlines(keepends=True) if MATRIX.exists() else []:
        lines_of[line.partition("\t")[0]] = lines_of.get(line.partition("\t")[0], "") + line
    return lines_of


if __name__ == "__main__":
    sys.exit(main())
