"""Several workers tell what one process would have told, and a worker that ends before its tests is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = """
import os, warnings
import pytest

def test_it_warns():
    warnings.warn("mind the gap")

def test_it_fails():
    print("what it printed")
    assert 1 == 2

@pytest.fixture(scope="session")
def held():
    yield 1
    raise ValueError("at the end of all")

def test_it_holds(held, tmp_path):
    assert "worker" in str(tmp_path)
"""
SECOND = """
import os, signal

def test_it_passes():
    assert os.environ["TESTS_WORKER"] in "12"

def test_it_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_it_is_not_reached():
    pass
"""


@pytest.mark.long
def test_failures_ends_and_warnings_are_told(tmp_path: Path) -> None:
    for number, text in enumerate((FIRST, SECOND)):
        (tmp_path / f"test_{number}.py").write_text(text)
    words = ["-p", "tests.conftest", "--rootdir", tmp_path, "--workers", "2", "-p", "no:cacheprovider", tmp_path]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=wide, capture_output=True, text=True)
    assert done.returncode == 1
    assert "test_0.py::test_it_fails - assert 1 == 2" in done.stdout
    assert "what it printed" in done.stdout
    assert "mind the gap" in done.stdout
    assert "at the end of all" in done.stderr
    assert "tests - its process has ended with status 1" in done.stdout
    assert "test_1.py::test_it_is_killed - its process has ended with status -9" in done.stdout
    assert "3 failed, 3 passed, 1 warning" in done.stdout
