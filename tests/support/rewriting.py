"""Asserts of tests are rewritten by pytest, so that they show their values: a shorter way to the same code.

Most of its time goes to places in files, which it gives to each node that it makes for an assert.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from _pytest.assertion import rewrite

__all__ = ["USUAL", "made", "take_short_way"]

USUAL = rewrite.traverse_node
"""All nodes below one, and itself: those without a place are given that of their assert."""


def take_short_way() -> None:
    """From now on files are rewritten with `made`: what they become is the same."""
    rewrite.traverse_node = made


def made(top: ast.AST) -> Iterator[ast.AST]:
    """The first node below one, or itself, that has no place yet; all others without one are given what it is given."""
    nodes: list[ast.AST] = [top]
    without: list[Any] = []
    for node in nodes:
        if node._attributes and getattr(node, "lineno", None) is None:
            without.append(node)
        for name in node._fields:
            held = getattr(node, name, None)
            if type(held) is list:
                nodes += [one for one in held if isinstance(one, ast.AST)]
            elif isinstance(held, ast.AST) and (held._fields or held._attributes):  # no operator, nothing like it
                nodes.append(held)
    if not without:
        return
    first: Any = without[0]
    yield first
    place = first.lineno, first.col_offset, first.end_lineno, first.end_col_offset
    for node in without:
        node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = place
