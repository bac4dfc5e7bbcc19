"""Asserts show their values, and the files that pytest rewrites for it are those that it would make on its own."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.support import rewriting

FILES = ["conftest.py", "test_structure.py", "contract/test_discrete_laplace.py", "privacy/test_proof_pages.py"]


def rewritten(file: Path, config: pytest.Config) -> str:
    tree = ast.parse(source := file.read_bytes())
    rewrite.rewrite_asserts(tree, source, str(file), config)
    return ast.dump(tree, include_attributes=True)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_the_same_as_by_the_usual_way(
    name: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inspect.isgeneratorfunction(rewriting.USUAL)
    assert rewrite.traverse_node is rewriting.made
    short = rewritten(Path(__file__).parent / name, pytestconfig)
    monkeypatch.setattr(rewrite, "traverse_node", rewriting.USUAL)
    assert rewritten(Path(__file__).parent / name, pytestconfig) == short


def test_an_assert_that_fails_shows_its_values() -> None:
    left, right = [1, 2], {"a": 3}
    with pytest.raises(AssertionError, match=r"(?s)assert \(2 \+ 3\) == 6.*where 2 = len\(\[1, 2\]\)"):
        assert len(left) + right["a"] == 6
