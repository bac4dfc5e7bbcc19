"""The pages on privacy: each has what a proof needs, names code and tests that exist, and no number without a test."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.proofs import PRIVACY, PROOFS, ROOT, headings, one_line, sentence_pattern

OURS = ("edge_agent", "firmware_sim", "fugu", "fugu_cli", "fugu_helper", "gateway", "papers")
PAGES = [PRIVACY, *PROOFS]
PARTS = ["Statement", "Assumptions", "Proof", "Code", "Tests", "Command"]
NOT_SAID = re.compile(r"^\| (?:N\d\d|heart rate|activity|power|\|)[^\n]*$|^```.*?^```$", re.MULTILINE | re.DOTALL)
"""Commands, and rows about recordings, which `tests/fugu_cli/test_attack.py` and `test_printed_numbers.py` compute."""


def name(page: Path) -> str:
    return page.stem


def python_files() -> Iterator[Path]:
    for folder in (*OURS, "tests", "benchmarks"):
        yield from (ROOT / folder).rglob("*.py")


@pytest.mark.parametrize("page", [page for page in PROOFS if page.stem != "errata"], ids=name)
def test_a_proof_has_a_statement_assumptions_a_proof_code_tests_and_a_command(page: Path) -> None:
    assert sorted(set(headings(page)) & set(PARTS)) == sorted(PARTS)
    command = page.read_text().partition("\n## Command\n")[2]
    assert any(word in command for word in ("fugu ", "python -m papers ", "above"))


def test_every_page_is_in_the_index() -> None:
    text = PRIVACY.read_text()
    assert all(f"(proofs/{page.name})" in text for page in PROOFS)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_and_tests_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    for dotted in re.findall(rf"`((?:{'|'.join(OURS)})(?:\.\w+)+)`", text):
        parts = dotted.split(".")
        depth = max(i for i in range(1, len(parts) + 1) if is_module(parts[:i]))
        member: object = importlib.import_module(".".join(parts[:depth]))
        for part in parts[depth:]:
            member = getattr(member, part)
    for path in re.findall(r"`((?:\w+/)+[\w.-]+\.(?:py|json))`", text):
        assert (ROOT / path).exists(), path
    assert set(re.findall(r"`(test_\w+)`", text)) <= functions()


@cache
def functions() -> set[str]:
    """The names of all tests."""
    tests = (file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    return {function for test in tests for function in re.findall(r"def (test_\w+)", test)}


def is_module(parts: list[str]) -> bool:
    path = ROOT.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.long
def test_what_the_code_calls_its_source_is_there() -> None:
    """A docstring names a page, and in quotes its headings."""
    seen = 0
    for file in python_files():
        text = file.read_text()
        for page in set(re.findall(r"\bdocs/[\w/-]+\.md", text)):
            assert (ROOT / page).exists(), f"{file} refers to {page}"
        for page, first, second in re.findall(r'(docs/[\w/-]+\.md),\s+"([^"]+)"(?:\s+and\s+"([^"]+)")?', text):
            for title in filter(None, (first, second)):
                seen += 1
                assert " ".join(title.split()) in headings(ROOT / page), f"{file} refers to {title} of {page}"
    assert seen > 40


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "errata"], ids=name)
def test_every_number_of_three_digits_is_in_a_sentence_that_a_test_computes(page: Path) -> None:
    """Errata are compared with the rows of their targets, in `tests/papers`."""
    text = " ".join(NOT_SAID.sub("", page.read_text()).split())
    spans = [match.span() for sentence in sentences() for match in sentence_pattern(sentence).finditer(text)]
    unproven = [
        number[0]
        for number in re.finditer(r"(?<![\w./])\d*\.\d{2,}(?!\w)", text)
        if not any(start <= number.start() < end for start, end in spans)
    ]
    assert [number for number in unproven if len(number.replace(".", "").lstrip("0")) >= 3] == []


@cache
def sentences() -> tuple[str, ...]:
    """Sentences that tests look for on these pages: the first argument of every call of `check_printed`."""
    sentences = []
    for file in (ROOT / "tests").rglob("test_*.py"):
        if "check_printed" not in (text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check_printed":
                sentence = ast.literal_eval(node.args[0])
                assert "{}" in sentence
                sentences.append(sentence)
    return tuple(sentences)


def test_sentences_are_found_whatever_their_line_breaks() -> None:
    (page,) = (page for page in PROOFS if page.stem == "joint-streams")
    assert sentence_pattern("eight streams of 0.1 each lose {} together").findall(one_line(page)) == ["0.8646"]
