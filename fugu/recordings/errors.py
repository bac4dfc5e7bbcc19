"""Errors of recordings: what cannot be read, and what the file alone does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fugu.contract.errors import FuguError, UsageError

__all__ = ["Option", "QuestionError", "RecordingError"]


class RecordingError(FuguError):
    """A recording cannot be read or used. One line says what is wrong, where, and what to do; no reading is in it."""


class Option(NamedTuple):
    """One answer to a question: words of a command line, and what they mean."""

    words: tuple[str, ...]
    meaning: str


class QuestionError(UsageError):
    """A recording can be read in more than one way, and the options say which.

    Attributes:
        rule: the name of the question, which `--as-it-is` takes.
        question: one line that says what is not clear.
        options: the answers.
    """

    def __init__(self, rule: str, question: str, options: Sequence[Option]) -> None:
        self.rule, self.question, self.options = rule, question, tuple(options)
        answers = [f"{' '.join(option.words)} ({option.meaning})" for option in options]
        super().__init__(f"{question}: {'; '.join(answers)}")
