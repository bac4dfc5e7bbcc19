"""A shell that asks for words gets those of `fugu`."""

from __future__ import annotations

import pytest

from fugu_cli.app import COMMANDS
from tests.support.command import Fugu


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), list(dict.fromkeys(words.partition(" ")[0] for words in COMMANDS))),
        (("pl",), ["plan"]),
        (("--ver",), ["--version"]),
        (("plan", "st"), ["stream"]),
        (("plan", "auto", "--eps"), ["--epsilon"]),
        (("gateway", "ledger", ""), ["show", "resume", "progress"]),
        (("gateway", "run", "--log"), ["--log-format"]),
        (("deploy", "firmware", "b"), ["build"]),
        (("fleet", "rollout", "a"), ["approve", "abort"]),
    ],
)
def test_words_that_may_follow(
    fugu: Fugu, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: list[str]
) -> None:
    """The words that bash would offer after some, the last of which has begun."""
    monkeypatch.setenv("_FUGU_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("COMP_WORDS", " ".join(["fugu", *words]))
    done = fugu()
    assert (done.code, done.out.split(), done.err) == (0, expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(fugu: Fugu, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_FUGU_COMPLETE", f"source_{shell}")
    done = fugu()
    assert done.code == 0
    assert "_FUGU_COMPLETE" in done.out
