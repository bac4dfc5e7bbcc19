"""Rules of writing that a machine can check: pages, docstrings and messages."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.rooms import TOPS

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = [*sorted(name for name in TOPS if name not in {"papers"}), "benchmarks", "deploy"]

HELD = (*CODE, "papers", "tests")
"""Sentences of their docstrings and comments have at most 25 words, those of messages too, but for tests."""
DOCSTRING = re.compile(r'(^ *r?)?"""(.*?)"""', re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^ *# .*\n)+", re.MULTILINE)
FIELDS = re.compile(r"[A-Z]\w+:(?: .*)?\n(?= )|[A-Z][^\n.]*:\n(?= )")
CODE_SIGNS = re.compile(r"=>|\(\)|\bNOT NULL\b|\bimport ")

WORDS = 25
"""The most words of a sentence on a page."""

BARE = re.compile(r"(?<![\w.)\]}\\/%])\.\d|(?<=\*\*)\.\d")
"""A decimal without its leading zero; not the end of a name, of a path or of a version, and no field of a format."""

DECIMAL = re.compile(r"(?<![\w.)\]}\\/%:])\.\d|\*\*\.\d|\\n\.\d")
"""Texts of a file, if any of them is `BARE`: to parse all files takes long."""

FORMAT = re.compile(r"[:;\"=]\.\d|%[+-]?\.\d")
"""Fields of a format, and styles of pictures and pages."""

QUESTION = re.compile(r"(?:What|Whatever|Whoever|Whether|Nor|How a)\b")

RETIRED = re.compile(
    r"\bfugu (?:asyncapi|attack|audit|dashboard|export|firmware|learn|ledger|loss|model|policy|reproduce|smooth)\b"
    r"|\bfugu gateway migrate\b|\bgateway[.]database\b|\bmqtt_link\b|\b(?:de|en)code_symbols\b"
)
"""Commands, modules and options that were given up; CHANGELOG.md says what there is instead."""


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page, with their numbers, outside blocks of code, whether fenced or indented after an empty line."""
    fenced = False
    empty, indented, in_list = True, False, False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        if not line.strip():
            empty = True
            yield number, ""
            continue
        indented = line.startswith("    ") and not in_list and (empty or indented)
        if not indented:
            in_list = bool(re.match(r"\s*(?:[*-]|\d+\.) ", line)) or (in_list and (line[0] == " " or not empty))
            yield number, line
        empty = False


def paragraphs(page: Path) -> Iterator[str]:
    """Paragraphs and items of lists, each in one line; no headings, tables or quoted formulas."""
    lines: list[str] = []
    for _, line in [*prose(page), (0, "")]:
        item = re.match(r"\s*(?:[*-]|\d+\.) ", line)
        if lines and (item or not line or line.startswith(("|", "#", "$$"))):
            yield " ".join(lines)
            lines = []
        if line and not line.startswith(("|", "#", "$$", "<")):
            lines.append(line.strip()[item.end() - item.start() if item and line[0] in "*-" else 0 :])


def sentences(text: str) -> list[str]:
    """Sentences of a paragraph: a name in code is `CODE`, a link its words."""
    plain = re.sub(r"`[^`]*`", "CODE", text)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain).replace("*", "")
    return re.split(r"(?<=[.?!])[\")]?\s+(?=[\"(A-Z0-9])", plain)


def words(sentence: str) -> int:
    """How many words a sentence has: names in code, numbers, signs and formulas are none."""
    return sum(bool(re.fullmatch(r"[(\"']*[A-Za-z][a-z'’-]+[)\"'.,:;?!]*", word)) for word in sentence.split())


def docstrings(file: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Where each docstring of a file is, also those of fields, and its text."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", text.strip()


def messages(file: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Strings of a file that a command may print, and where they are."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        match node:
            case ast.FormattedValue():
                nodes.append(node.value)  # its format is no text
            case ast.Constant(str(text)) if not FORMAT.search(text):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", text
            case _:
                nodes += ast.iter_child_nodes(node)


def passages(text: str) -> Iterator[str]:
    """Paragraphs of a docstring or comment, and items of its lists, each in one line; no blocks of code."""
    for part in inspect.cleandoc(text).split("\n\n"):
        if fields := FIELDS.match(part):
            items = re.split(r"(?:\A|\n)(?=\S)(?:[\w, *]+: )?", textwrap.dedent(part[fields.end() :]))
        else:
            items = re.split(r"\n(?= *(?:[*-]|\d+\.) )", part)
        yield from (" ".join(item.split()) for item in items if not item.startswith(("    ", "\\b")))


def lines_of(tree: ast.Module) -> Iterator[str]:
    """Lines of strings, or paragraphs where lines are full, with one word for each value that is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            parts = getattr(node, "values", [node])
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "Value" for part in parts)
            yield from re.sub(r"(?<=[^\n]{90})\n(?=[a-z])", " ", text).splitlines()


def long_sentences(package: str) -> Iterator[tuple[Path, str]]:
    """Sentences of more than 25 words, and the files of a package that have them."""
    for file in sorted((ROOT / package).rglob("*.py")):
        text = file.read_text()
        texts = [match[2] for match in DOCSTRING.finditer(text) if match[1] is not None]
        texts += [re.sub(r"^ *# ", "", match[0], flags=re.MULTILINE) for match in COMMENT.finditer(text)]
        lines = [line for every in texts for line in passages(every)]
        lines += lines_of(ast.parse(text)) if package != "tests" else []
        every = (sentence for line in lines if not CODE_SIGNS.search(line) for sentence in sentences(line))
        yield from ((file, sentence) for sentence in every if words(sentence) > 25)


def trees(like: re.Pattern[str], packages: Sequence[str] = CODE) -> Iterator[tuple[Path, ast.Module]]:
    """Files of packages that hold such a thing."""
    for file in sorted(file for package in packages for file in (ROOT / package).rglob("*.py")):
        if like.search(text := file.read_text()):
            yield file, ast.parse(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_numbers_on_pages_have_a_leading_zero(page: Path) -> None:
    assert [(number, line) for number, line in prose(page) if BARE.search(line)] == []


def test_numbers_in_docstrings_and_messages_have_a_leading_zero() -> None:
    texts = (text for tree in trees(DECIMAL) for texts_of in (docstrings, messages) for text in texts_of(*tree))
    assert [where for where, text in texts if BARE.search(text) and re.search(r"[a-z]{2}", text)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=lambda page: page.stem)
def test_no_page_has_a_name_that_was_given_up(page: Path) -> None:
    assert RETIRED.findall(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_sentence_is_long(page: Path) -> None:
    every = [sentence for text in paragraphs(page) for sentence in sentences(text)]
    assert [sentence for sentence in every if words(sentence) > WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_is_long(page: Path) -> None:
    """Tables are not broken, and links cannot be."""
    assert [line for _, line in prose(page) if len(line) > 120 and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("package", HELD)
def test_no_sentence_of_the_code_is_long(package: str) -> None:
    assert [sentence for _, sentence in long_sentences(package)] == []


def test_no_docstring_begins_as_a_question() -> None:
    first = re.compile(rf'^ *r?"(?:"")?\s*{QUESTION.pattern}', re.MULTILINE)
    assert [where for tree in trees(first, HELD) for where, text in docstrings(*tree) if QUESTION.match(text)] == []


@pytest.mark.parametrize(("text", "bare"), [("a share of .05", 1), ("**.05**", 1), ("0.05, v1.5, a.5, x/.5, 1.2.3", 0)])
def test_bare_decimals_are_told_from_names(text: str, bare: int) -> None:
    assert len(BARE.findall(text)) == bare


def test_words_and_sentences_are_counted() -> None:
    """Names in code, numbers and signs are no words."""
    assert words("One idea, 3 of `x`, f = 2.") == 3
    assert len(sentences("It ends. It begins (so). 3 are left.")) == 3
    assert [*passages("A\nb.\n\nArgs:\n    a: of\n        b.\n    c: d.\n\n* e")] == ["A b.", "", "of b.", "d.", "* e"]
    assert "Value is more" in lines_of(ast.parse('f"{x} is" " more"'))
    assert [bool(QUESTION.match(text)) for text in ("How a thing is.", "Whatsoever.")] == [True, False]
