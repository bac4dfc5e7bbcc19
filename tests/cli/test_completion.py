"""A shell that asks for words gets those of `fugu`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fugu.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]


def asked(*words: str) -> list[str]:
    """What bash would offer after some words, the last of which has begun."""
    environment = {**os.environ, "_FUGU_COMPLETE": "complete_bash", "COMP_CWORD": str(len(words))}
    environment["COMP_WORDS"] = " ".join(["fugu", *words])
    done = subprocess.run([sys.executable, "-m", "fugu"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_words_that_may_follow(given: tuple[str, ...], expected: list[str]) -> None:
    assert asked(*given) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    environment = {**os.environ, "_FUGU_COMPLETE": f"source_{shell}"}
    done = subprocess.run([sys.executable, "-m", "fugu"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert "_FUGU_COMPLETE" in done.stdout
