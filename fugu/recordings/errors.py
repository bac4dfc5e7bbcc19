"""The question that is asked where a recording can be read in more than one way. No reading is in an error's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fugu.contract.errors import UsageError

__all__ = ["Option", "QuestionError"]


class Option(NamedTuple):
    """One answer to a question: words of a command line, and what they mean."""

    words: tuple[str, ...]
    meaning: str


class QuestionError(UsageError):
    """A recording can be read in more than one way. Its text has no reading; its options may.

    Attributes:
        rule: the name of the question.
        question: one line that says what is not clear.
        options: the answers; names or codes of the recording may be among them.
    """

    def __init__(self, rule: str, question: str, options: Sequence[Option]) -> None:
        super().__init__(question)
        self.rule, self.question, self.options = rule, question, tuple(options)

    def document(self) -> dict[str, Any]:
        """The question and its options, for JSON."""
        options = [{"words": list(option.words), "meaning": option.meaning} for option in self.options]
        return {"rule": self.rule, "question": self.question, "options": options}
