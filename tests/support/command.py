"""Run `fugu` inside the test process, and hold it to what every command promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fugu_cli.main import main

__all__ = ["Done", "Fugu"]


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def refusal(self, *codes: int) -> str:
        """Return the one line on stderr of a command that prints nothing else and ends in one of the codes, or in 1."""
        assert self.code in (codes or (1,)), self
        assert (self.out, self.err[:6], self.err.count("\n")) == ("", "fugu: ", 1), self
        return self.err


Fugu = Callable[..., Done]


def runner(capsys: pytest.CaptureFixture[str], command: Callable[[list[str]], int] = main) -> Fugu:
    """Make a function that runs a command with the words given."""

    def run(*words: object) -> Done:
        try:
            code = command([str(word) for word in words])
        except SystemExit as stop:  # argparse, for --help
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)

    return run
