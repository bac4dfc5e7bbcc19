"""The core is MicroPython's subset of Python, and its files are the ones that run on a board."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.build import modules
from tests.support.boards import SUPPORT, micropython

CORE = {name: file for name, file in modules().items() if name.startswith("fugu/core/")}
ROOT = Path(__file__).parents[2]
TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
SMALL = {"array", "gc", "hashlib", "os", "struct", "sys"}
"""All that the core imports besides itself."""


def not_its_own(source: str) -> list[str]:
    """All that a module has that MicroPython has not, or imports that is neither small nor of the core."""
    tree, wrong = ast.parse(source), []
    for checked in [node for node in tree.body if isinstance(node, ast.If)]:
        if isinstance(checked.test, ast.Name) and checked.test.id == "TYPE_CHECKING":
            tree.body.remove(checked)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                wrong += [alias.name for alias in names if alias.name not in SMALL]
            case ast.ImportFrom(module=module, level=level) if level != 1:
                wrong.append(str(module))
            case ast.Match() | ast.ClassDef(decorator_list=[_, *_]):
                wrong.append(type(node).__name__)
            case _:
                pass
    return wrong


def test_what_is_not_of_the_core_is_found() -> None:
    assert not_its_own("from __future__ import annotations") == ["__future__"]
    assert not_its_own("import typing\nfrom dataclasses import dataclass") == ["typing", "dataclasses"]
    assert not_its_own("from fugu.contract import frames") == ["fugu.contract"]
    assert not_its_own("match 1:\n    case _: pass") == ["Match"]
    assert not_its_own("@final\nclass A: pass") == ["ClassDef"]
    assert not_its_own("if TYPE_CHECKING:\n    import typing\nif True:\n    import typing") == ["typing"]
    assert not_its_own("import struct\nfrom .policy import Policy") == []


@pytest.mark.parametrize("file", CORE.values(), ids=[*CORE])
def test_a_module_of_the_core_imports_nothing_but_small_ones_and_the_core(file: Path) -> None:
    assert not_its_own(file.read_text()) == []


def test_every_module_of_the_core_is_imported_on_micropython() -> None:
    assert len(CORE) > 10
    names = [name.replace("/", ".").removesuffix(".__init__") for name in CORE]
    assert micropython(SUPPORT / "board_core.py", *names, heap="200k").split() == names


def test_a_board_draws_the_shares_that_the_agent_draws() -> None:
    script = SUPPORT / "board_shares.py"
    here = subprocess.run([sys.executable, script, "40"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, **TEXT)
    assert micropython(script, "40", heap="200k") == here.stdout
    assert len(set(here.stdout.split())) > 10
