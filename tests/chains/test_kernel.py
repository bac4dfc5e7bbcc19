"""Compiled kernels that are kept on disk are those of the source as it is now."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fugu.chains import kernel as kernels
from fugu.chains import messages
from fugu.chains.kernel import compile_in_background, kernel, part
from fugu.chains.messages import lift, lift_row, scale
from tests.support.compiling import go_alone

_HELPER = """
from fugu.chains.kernel import kernel

STEP = {step}


@kernel
def plus(value: float) -> float:
    return value + {added}
"""
_MAIN = """
import sys

from fugu.chains.kernel import kernel
from helper import STEP, plus


@kernel
def both(value: float) -> float:
    return plus(value) * STEP


print(both(1.0), sum(both.stats.cache_hits.values()) if hasattr(both, "stats") else -1)
"""


def _said(folder: Path, module: str) -> list[str]:
    """Words that a module prints when it is imported, in a fork of this process: importing numba takes a second."""
    child = os.fork()
    if child == 0:
        try:
            go_alone()
            compile_in_background(None)  # a gateway in this process may have asked for it
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(folder))
            with (folder / "said").open("w") as output, redirect_stdout(output):
                importlib.import_module(module)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    return (folder / "said").read_text().split()


def _run(folder: Path, step: float, added: float) -> list[str]:
    (folder / "helper.py").write_text(_HELPER.format(step=step, added=added))
    (folder / "both_of_them.py").write_text(_MAIN)
    return _said(folder, "both_of_them")


def test_a_kernel_is_compiled_anew_when_a_constant_in_another_file_changes(tmp_path: Path) -> None:
    assert _run(tmp_path, step=2.0, added=1.0) == ["4.0", "0"]
    assert _run(tmp_path, step=2.0, added=5.0) == ["12.0", "0"]
    assert _run(tmp_path, step=2.0, added=1.0) == ["4.0", "1"]


_TWICE = """
from fugu.chains.kernel import kernel


def twice(values):
    return values[0] * 2


one, other, later = (kernel(twice) for _ in range(3))
"""
_AT_THE_SAME_TIME = """
import numpy as np
from twice import later, one, other

file = one._cache._cache_file
save = file._save_data


def late(name, data):
    other(np.array([1.5]))
    save(name, data)


file._save_data = late
other._cache._cache_file._load_index = dict  # it has read the index before the first one wrote it
one(np.array([3]))
print(later(np.array([1.5])), later(np.array([3])), sum(later.stats.cache_hits.values()))
"""


def test_what_two_processes_compile_at_the_same_time_is_not_taken_for_each_other_s(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(_TWICE)
    (tmp_path / "at_the_same_time.py").write_text(_AT_THE_SAME_TIME)
    assert _said(tmp_path, "at_the_same_time") == ["3.0", "6", "1"]


def test_a_full_disk_stops_no_kernel(tmp_path: Path) -> None:
    """A command ended with "File too large", and named no file."""
    (tmp_path / "twice.py").write_text(_TWICE)
    (tmp_path / "full.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "import numpy as np\nfrom twice import one\nprint(one(np.array([3])))"
    )
    assert _said(tmp_path, "full") == ["6"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("length", [0, 100])
def test_a_kernel_whose_stored_file_is_damaged_is_compiled_again(tmp_path: Path, ending: str, length: int) -> None:
    """A power cut left an empty file behind, and every later start ended with "EOFError: Ran out of input"."""
    (tmp_path / "twice.py").write_text(_TWICE)
    (tmp_path / "later.py").write_text(
        "import numpy as np\nfrom twice import one\nprint(one(np.array([3])), sum(one.stats.cache_hits.values()))"
    )
    assert [_said(tmp_path, "later") for _ in range(2)] == [["6", "0"], ["6", "1"]]
    (stored,) = (tmp_path / "__pycache__").rglob(f"*.{ending}")
    stored.write_bytes(stored.read_bytes()[:length])
    assert [_said(tmp_path, "later") for _ in range(2)] == [["6", "0"], ["6", "1"]]


def test_where_a_kernel_is_kept_depends_on_the_kernels_that_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(a: tuple[float, ...]) -> float:
        return 2.0 * scale(a, 2.0)[0]

    before = kernels._digest(twice, {})
    monkeypatch.setitem(kernels._digests, id(scale), "another")
    assert kernels._digest(twice, {}) != before
    assert kernels._digest(twice, {"no_cpython_wrapper": True}) != kernels._digest(twice, {})


def test_a_kernel_that_reaches_into_a_module_is_refused() -> None:
    def reaching() -> object:
        return messages.__name__

    with pytest.raises(TypeError, match="import what it uses by name"):
        kernel(reaching)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_part_is_compiled_once_for_all_constants_and_called_by_kernels_alone() -> None:
    @part
    def times(value: float, count: int) -> float:
        return value * count

    @kernel
    def sum_of_two(value: float) -> float:
        return times(value, 2) + times(value, 3)

    sides: Any = times
    assert sum_of_two(1.5) == 7.5
    assert len(sides.overloads) == 1
    with pytest.raises(TypeError, match="times is a part of kernels"):
        times(1.5, 2)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_until_a_kernel_is_compiled_beside_it_is_the_function_that_it_was_written_as() -> None:
    fresh: Any = kernel(getattr(lift, "py_func"))  # noqa: B009
    tiny, expected = (2.0**-250, 2.0**-260), ((2.0**-50, 2.0**-60), 2.0**-50 + 2.0**-60, 2)
    jobs: list[Callable[[], bool]] = []
    compile_in_background(jobs.append)
    try:
        assert [fresh(tiny), fresh(tiny)] == [expected] * 2
        assert (len(jobs), len(fresh.overloads)) == (1, 0), "asked for once, and waited for by nobody"
        jobs.pop()()
        assert (fresh(tiny), len(fresh.overloads), jobs) == (expected, 1, [])
        large: Any = kernel(getattr(lift_row, "py_func"))  # noqa: B009
        large(np.ones((2, kernels._MOST_PLAIN)), 0, 1.0)
        assert (len(large.overloads), jobs) == (1, []), "what would take long is compiled first"
    finally:
        compile_in_background(None)
