"""Promises of every command: one rule for exit codes, one line for each fault, summaries that are not cut off."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import typer

from edge_agent.__main__ import main as agent
from fugu_cli import edge
from fugu_cli.app import COMMANDS, app, load
from fugu_cli.main import main
from fugu_cli.view.terminal import show_table
from tests.support.command import Fugu

ROOT = Path(__file__).parents[2]


class Leaf(NamedTuple):
    """A command or a group, with the words that call it."""

    words: tuple[str, ...]
    command: Any

    @property
    def below(self) -> dict[str, Any]:
        """A group's commands, by name."""
        return getattr(self.command, "commands", {})

    @property
    def files(self) -> list[Any]:
        """Its parameters that name files and folders."""
        return [param for param in self.command.params if kind(param) is Path]

    def call(self, file: str, *further: Any) -> list[str]:
        """Words that give it all that it requires, and some options besides."""
        words = list(self.words)
        for param in self.command.params:
            if param.required or param in further:
                value = file if kind(param) is Path else LIKELY[kind(param)]
                words += [value] if param.param_type_name == "argument" else [param.opts[0], value]
        return words


def kind(parameter: Any) -> type:
    """The type of a parameter, or of each of its values."""
    if parameter.metavar == "FILE|URL":
        return Path
    annotation = parameter.type_descriptor.annotation
    return next((kind for kind in get_args(annotation) if isinstance(kind, type)), annotation)


def tree(words: tuple[str, ...], command: Any) -> Iterator[Leaf]:
    """A command, and all that are below it."""
    own_leaf = Leaf(words, command)
    yield own_leaf
    for name, leaf in own_leaf.below.items():
        yield from tree((*words, name), leaf)


ALL = [
    *(Leaf((name,), command) for name, command in typer.main.get_command(app).commands.items() if command.commands),
    *(leaf for name in COMMANDS if name not in edge.COMMANDS for leaf in tree(tuple(name.split()), load(name))),
]
LEAVES = [leaf for leaf in ALL if not leaf.below]
LIKELY = {float: "0.5", int: "1", str: "x"}
ANSWERS = {"doctor", "deploy broker", "deploy schemas"}
"""Commands with an answer to files that are not there, or that are empty: findings, or a new folder."""


@pytest.fixture
def nothing_useful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to be in, with files that hold nothing of use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FUGU_PASSPHRASE", raising=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(bytes(range(256)))


@pytest.mark.usefixtures("nothing_useful")
@pytest.mark.parametrize(
    "leaf",
    [leaf for leaf in LEAVES if leaf.files and "demo" not in leaf.words[0]],
    ids=lambda leaf: " ".join(leaf.words) or "fugu",
)
def test_files_that_are_not_there_or_of_no_use(leaf: Leaf, fugu: Fugu) -> None:
    for file in ("none", "folder", "empty", "bytes"):
        alone = [] if leaf.words == ("try",) else [[]]  # which tries a recording of ours
        for further in (*alone, *([file] for file in leaf.files if not file.required)):
            done = fugu(*(words := leaf.call(file, *further)))
            if " ".join(leaf.words) in ANSWERS and not done.err:
                assert done.code in (0, 1), words
                assert done.out or leaf.words != ("doctor",)
            else:
                assert done.code in (1, 2), words
                assert done.err.startswith("fugu: "), words
                assert done.err.count("\n") == 1, words


@pytest.mark.usefixtures("nothing_useful")
@pytest.mark.parametrize("leaf", ALL, ids=lambda leaf: " ".join(leaf.words) or "fugu")
def test_words_that_cannot_be_read(leaf: Leaf, fugu: Fugu) -> None:
    numbers = [
        param for param in leaf.command.params if kind(param) in (int, float) and param.param_type_name == "option"
    ]
    wrong = [[*leaf.words, "--no-such-option"], *([*leaf.words, number.opts[0], "many"] for number in numbers)]
    wrong += [[*leaf.words, "no-such-command"]] if leaf.below else []
    wrong += [list(leaf.words)] if any(param.required for param in leaf.command.params) else []
    for words in wrong:
        done = fugu(*words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), words
        assert done.err.startswith("fugu: "), words
        assert f"(try 'fugu {' '.join(leaf.words)} --help')" in done.err, words


@pytest.mark.usefixtures("nothing_useful")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--no-such-option",), 2),
        (("agent.toml", "more"), 2),
        (("--log-format", "xml", "agent.toml"), 2),
        (("pause",), 2),
        (("pause", "agent.toml", "--no-such-option"), 2),
        *(((word, "none"), 1) for word in ("--status", "--doctor", "pause", "resume", "moved", "set-back")),
        *(((word, "bytes"), 1) for word in ("--status", "--doctor", "pause", "resume", "moved", "set-back")),
        (("pause", "none", "--for", "soon"), 1),
    ],
)  # fmt: skip
def test_the_agent_keeps_the_same_rule(
    fugu: Fugu, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    assert agent(words) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("fugu-agent: ")
    assert fugu("agent", "run", *words).code == code


def test_who_interrupts_gets_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("fugu_cli.app.run", interrupted)
    monkeypatch.setattr("edge_agent.__main__._run", interrupted)
    assert (main(["plan", "stream"]), agent(["agent.toml"])) == (130, 130)
    assert capsys.readouterr() == ("", "")


def test_every_program_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    out = capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^0$"):
        agent(["--version"])
    assert capsys.readouterr().out == out.replace("fugu", "fugu-agent")


@pytest.mark.parametrize(
    "leaf",
    [Leaf((), typer.main.get_command(app)), *(leaf for leaf in ALL if leaf.below)],
    ids=lambda leaf: " ".join(leaf.words) or "fugu",
)
def test_no_summary_is_cut_off_on_80_columns(leaf: Leaf, fugu: Fugu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = fugu(*leaf.words, "--help").out.partition("\nCommands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(leaf.below)
    assert [line for line in listed if "..." in line or "…" in line or len(line) > 80] == []


def test_the_edge_alone_says_what_it_can_do(fugu: Fugu, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("typer", "click", "rich", "numpy", "numba", "scipy"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "fugu_cli.app", raising=False)
    helped = fugu("--help")
    assert (helped.code, helped.err) == (0, "")
    for word in ("\n  agent ", "\n  subscribe ", "\n  --version ", "pip install 'fugu-edge[gateway]'"):
        assert word in helped.out
    assert max(map(len, helped.out.splitlines())) <= 80
    assert (fugu("-h").out, fugu().err, fugu().code) == (helped.out, helped.out, 2)
    assert fugu("plan", "stream").code == 1
    for name, (_, about) in edge.AGENT.items():
        assert f"  {name} " in (out := fugu("agent", "--help").out)
        assert about in out
        assert fugu("agent", name, "--help").code == 0


def test_in_a_pipe_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("Title " * 40, ("name", "value"), [("word " * 60, "1"), ("b", "2")])
    title, _blank, _head, _rule, first, second, _end = capsys.readouterr().out.splitlines()
    assert title.split() == ["Title"] * 40
    assert first.split() == ["word"] * 60 + ["1"]
    assert second.split() == ["b", "2"]


@pytest.mark.long
def test_on_a_terminal_of_80_columns_without_colours() -> None:
    code = "from fugu_cli.view.terminal import *; show_table('T', ('what', 'number'), [('word ' * 30, '4.2 %')])"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=theirs, check=True)
    os.close(theirs)
    output = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\x1b[3" not in output
    assert "\x1b[38" not in output
    plain = output.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "\x1b" not in plain
    assert all(len(line) <= 80 for line in plain.splitlines())
    assert (plain.count("word"), plain.count("4.2 %"), "…" in plain) == (30, 1, False)
