"""The error that asks the user where a recording can be read in more than one way. Its text holds no reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fugu.contract.errors import UsageError

__all__ = ["Option", "QuestionError"]


class Option(NamedTuple):
    """One answer to a question: words of a command line, and their meaning."""

    words: tuple[str, ...]
    meaning: str


class QuestionError(UsageError):
    """A recording can be read in more than one way. The text holds no reading; the options may.

    Attributes:
        rule: the name of the rule that asks.
        question: one line that says what is not clear.
        options: the answers, which may hold names or codes of the recording.
    """

    def __init__(self, rule: str, question: str, options: Sequence[Option]) -> None:
        super().__init__(question)
        self.rule, self.question, self.options = rule, question, tuple(options)

    def document(self) -> dict[str, Any]:
        """Return the question and its options as an object for JSON."""
        options = [{"words": list(option.words), "meaning": option.meaning} for option in self.options]
        return {"rule": self.rule, "question": self.question, "options": options}
