"""A shell that asks for words gets them: of `fugu`, also where only the edge is installed, and of `fugu-agent`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edge_agent.__main__ import main as agent
from fugu.cli import edge
from fugu.cli.app import COMMANDS
from fugu.host.command_line import script
from tests.support.command import Fugu

ROOT = Path(__file__).parents[2]
IN_BASH = """
eval "$SCRIPT"
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 ))
complete -p "$1" >/dev/null && _fugu_words "$1" && printf '%s\\n' "${COMPREPLY[@]}"
"""


def words(fugu: Fugu, monkeypatch: pytest.MonkeyPatch, *given: str) -> list[str]:
    """What may follow, without the helps."""
    monkeypatch.setenv("_FUGU_COMPLETE", "1")
    done = fugu(*given)
    assert (done.code, done.err) == (0, "")
    return [line.partition("\t")[0] for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("",), list(COMMANDS)),
        (("pl",), ["plan"]),
        (("--ver",), ["--version"]),
        (("--completion", ""), ["bash", "zsh", "fish"]),
        (("plan", ""), ["auto", "stream", "window", "joint", "measure", "network"]),
        (("plan", "auto", "--eps"), ["--epsilon"]),
        (("plan", "auto", "--epsilon", ""), []),
        (("plan", "auto", "night.c"), []),
        (("fleet", "rollout", "a"), ["approve", "abort"]),
        (("release", "--led"), ["--ledger"]),
        (("agent", ""), list(edge.AGENT)),
        (("agent", "run", "--lo"), ["--log-format"]),
        (("agent", "run", "--log-format", ""), ["text", "json"]),
        (("agent", "pause", "agent.toml", "--f"), ["--for"]),
        (("subscribe", "--fl"), ["--fleet"]),
        (("subscribe", "--protocol", ""), ["auto", "5", "3.1.1"]),
        (("no-such", ""), list(COMMANDS)),
    ],
)
def test_words_of_fugu(
    fugu: Fugu, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], expected: list[str]
) -> None:
    assert words(fugu, monkeypatch, *given) == expected


def test_every_option_of_every_command_is_offered(fugu: Fugu, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = words(fugu, monkeypatch, "gateway", "run", "--")
    assert {"--shard", "--log-format", "--verbose", "--help"} <= set(offered)


def test_without_the_framework_the_edge_s_own_words(fugu: Fugu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "fugu.cli.app", raising=False)
    assert words(fugu, monkeypatch, "") == ["agent", "subscribe"]
    assert words(fugu, monkeypatch, "agent", "p") == ["pause"]
    assert words(fugu, monkeypatch, "plan", "") == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("",), ["pause", "resume", "moved"]),
        (("--ch",), ["--check"]),
        (("agent.toml", "--st"), ["--status"]),
        (("--log-format", "j"), ["json"]),
        (("pause", "--f"), ["--for"]),
    ],
)
def test_words_of_the_agent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], expected: list[str]
) -> None:
    monkeypatch.setenv("_FUGU_COMPLETE", "1")
    assert agent(given) == 0
    assert [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()] == expected


@pytest.fixture
def shell(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a shell that finds both programs."""
    for program, module in (("fugu", "fugu"), ("fugu-agent", "edge_agent")):
        (tmp_path / program).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (tmp_path / program).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("fugu", "subscribe", "--pro"), ["--protocol"]),
        (("fugu", "plan", "me"), ["measure"]),
        (("fugu-agent", "re"), ["resume"]),
    ],
)
def test_bash_asks_and_is_answered(shell: Mapping[str, str], typed: tuple[str, ...], expected: list[str]) -> None:
    environment = {**shell, "SCRIPT": script("bash")}
    done = subprocess.run(
        ["bash", "--norc", "-c", IN_BASH, "bash", *typed], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_asks_and_is_answered(shell: Mapping[str, str]) -> None:
    code = f"{script('fish')}\ncomplete -C 'fugu plan me'; complete -C 'fugu-agent re'"
    done = subprocess.run(["fish", "--no-config", "-c", code], env=shell, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["measure", "resume"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_the_script() -> None:
    done = subprocess.run(["zsh", "-f", "-n"], input=script("zsh"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_both_programs_print_the_script_for_both(fugu: Fugu, capsys: pytest.CaptureFixture[str], name: str) -> None:
    printed = fugu("--completion", name)
    assert (printed.code, printed.out, printed.err) == (0, script(name), "")
    with pytest.raises(SystemExit, match=r"^0$"):
        agent(["--completion", name])
    assert capsys.readouterr().out == script(name)
    for program in ("fugu", "fugu-agent"):
        assert program in script(name).split()


def test_a_shell_that_nobody_knows(fugu: Fugu, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (("--completion",), ("--completion", "tcsh")):
        done = fugu(*given)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert agent(given) == 2
        assert capsys.readouterr().err.count("\n") == 1
