"""The pages on privacy: their headings and links, and their numbers against those that tests compute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRIVACY = ROOT / "docs" / "privacy.md"
PROOFS = sorted((ROOT / "docs" / "proofs").glob("*.md"))
ERRATA = ROOT / "docs" / "proofs" / "errata.md"
CAUTIONS = ROOT / "docs" / "building.md"
_NUMBER = r"(\d*\.?\d+)"


def sentence_pattern(sentence: str) -> re.Pattern[str]:
    """Pattern that finds a sentence, with a number in place of each {}, in text whose blanks are single."""
    return re.compile(re.escape(sentence).replace(r"\{\}", _NUMBER))


def one_line(page: Path) -> str:
    """A page with single blanks."""
    return " ".join(page.read_text().split())


def last_digit(printed: str) -> float:
    """The unit of the last digit of a number."""
    return 10.0 ** -len(printed.partition(".")[2])


def check_printed(sentence: str, *values: float) -> None:
    """Assert that a sentence stands once on the pages on privacy, with these numbers, within a unit of the last digit.

    It is a literal, since `test_proof_pages` reads it, with {} for each number that is computed.
    """
    matches = [
        match for page in (PRIVACY, CAUTIONS, *PROOFS) for match in sentence_pattern(sentence).finditer(one_line(page))
    ]
    assert len(matches) == 1, f"{len(matches)} times on the pages: {sentence}"
    for printed, value in zip(matches[0].groups(), values, strict=True):
        assert abs(float(printed) - value) <= last_digit(printed), f"{printed} is {value}: {sentence}"


def headings(page: Path) -> list[str]:
    """The headings of a page, outside blocks of code."""
    return re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def shown_items(page: Path, kind: str) -> Iterator[tuple[str, str]]:
    """The targets of a kind, such as errata, that a page names, each with the item about it."""
    for item in re.findall(r"^\* (.*?)\n\n?(?=\*|#|Without|\Z)", page.read_text(), re.MULTILINE | re.DOTALL):
        for target in re.findall(rf"`({kind}-[\w-]+)`", item):
            yield target, item
