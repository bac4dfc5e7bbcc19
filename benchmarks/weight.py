"""Weight of the product: lines, modules, names and variants, counted the same way every time.

Usage: python benchmarks/weight.py [--json]

Definitions:
  lines          of all Python files of the packages below, `papers/`, tests, benchmarks and deploy left out
  code           lines with a token that is neither a comment, a docstring nor part of an import
  modules        Python files other than `__init__.py`
  public names   names in `__all__` of modules, which are all that another module uses; packages only pass names on
  error classes  classes whose name ends in Error
  options        options of all leaf commands of `fugu` and `fugu-agent`, `--help` left out
  chain tests    `isinstance` calls that name a class of chains
  "histogram"    files with that string
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import command_line

from edge_agent import __main__ as agent
from fugu_cli import app, edge
from fugu_cli.commands import subscribe

PACKAGES = ("edge_agent", "gateway", "firmware_sim", "fugu", "fugu_cli", "fugu_helper")
CHAIN_CLASSES = ("Chains", "Chain", "MarkovChain")
_QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def main() -> None:
    """Count and print."""
    options = command_line(__doc__).parse_args()
    counts = weigh(Path(__file__).resolve().parent.parent)
    if options.json:
        print(json.dumps(counts))
    else:
        for name, count in counts.items():
            print(f"{name:15} {count:8,d}")


def weigh(root: Path) -> dict[str, int]:
    """Count what the docstring of this module defines.

    Args:
        root: of a checkout.
    """
    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    texts = [file.read_text(encoding="utf-8") for file in files]
    trees = [ast.parse(text) for text in texts]
    modules = [tree for file, tree in zip(files, trees, strict=True) if file.name != "__init__.py"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {
        "lines": sum(text.count("\n") for text in texts),
        "code": sum(_code_lines(text, tree) for text, tree in zip(texts, trees, strict=True)),
        "modules": len(modules),
        "public names": sum(_public_names(tree) for tree in modules),
        "error classes": sum(isinstance(node, ast.ClassDef) and node.name.endswith("Error") for node in nodes),
        "options": sum(1 for _ in _command_options()) + sum(1 for _ in _edge_options()),
        "chain tests": sum(_tests_chains(node) for node in nodes),
        '"histogram"': sum('"histogram"' in text for text in texts),
    }


def _code_lines(text: str, tree: ast.Module) -> int:
    """Lines with code: docstrings, imports, comments and blank lines are none."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _QUIET:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and (isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node)):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _public_names(tree: ast.Module) -> int:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return len(node.value.elts) if isinstance(node.value, ast.List) else 0
    return 0


def _tests_chains(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"):
        return False
    names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    return any(name.endswith(CHAIN_CLASSES) for name in names)


def _command_options() -> Iterator[str]:
    """Options of the commands that the framework parses."""

    def leaves(command: Any) -> Iterator[str]:
        for child in getattr(command, "commands", {}).values():
            yield from leaves(child)
        if not hasattr(command, "commands"):
            yield from (option.name for option in command.params if option.param_type_name == "option")

    for name in app.COMMANDS:
        if name not in edge.COMMANDS:
            yield from leaves(app.load(name))


def _edge_options() -> Iterator[str]:
    """Options of the commands that a device has, which know no framework."""
    for parser in (agent._parser(), subscribe.parser()):
        yield from (action.dest for action in parser._actions if action.option_strings and action.dest != "help")


if __name__ == "__main__":
    main()
