"""Command lines that are read without a framework: one line for what is wrong, the version, and words for a shell.

A shell that completes words runs the program itself, with `_FUGU_COMPLETE` in its environment and the words up to the
cursor as arguments, the last of which has just begun. The answer is a word a line, with a tab and its help after it.
Where there is none, the shell offers names of files.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from fugu.contract.errors import UsageError

__all__ = [
    "Parser",
    "Word",
    "add_completion",
    "add_version",
    "answers",
    "completing",
    "script",
    "version_line",
    "words_of",
]

Word = tuple[str, str]
"""A word that may come next, and its help."""

_VARIABLE = "_FUGU_COMPLETE"
_PROGRAMS = ("fugu", "fugu-agent")
_BASH = """\
_fugu_words() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("${line%%$'\\t'*}"); done \\
        < <(@VARIABLE@=1 "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _fugu_words @PROGRAMS@
"""
_ZSH = """\
_fugu_words() {
    local line
    local -a found
    for line in "${(@f)$(@VARIABLE@=1 "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${line%%$'\\t'*}:${line#*$'\\t'}")
    done
    if (( $#found )); then _describe 'word' found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _fugu_words @PROGRAMS@
"""
_FISH = """\
function _fugu_words
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    set -l found (env @VARIABLE@=1 $words "$begun" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$begun"
    end
end
for program in @PROGRAMS@
    complete -c $program -f -a '(_fugu_words)'
end
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Parser(argparse.ArgumentParser):
    """A parser that raises what is wrong instead of printing it, and takes no abbreviations."""

    def __init__(self, **given: Any) -> None:
        """As for `argparse`."""
        super().__init__(**{"allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        """Refuse a command line; a `UsageError`."""
        raise UsageError(f"{message} (try '{self.prog} --help')")


def version_line(program: str) -> str:
    """What `--version` prints."""
    from importlib.metadata import version  # takes longer to load than all else here

    return f"{program} {version('fugu-edge')}\n"


def script(shell: str) -> str:
    """What `--completion` prints: a shell that runs it completes the words of our programs.

    Raises:
        UsageError: it is none of bash, zsh and fish.
    """
    if shell not in _SCRIPTS:
        raise UsageError(f"--completion needs one of {', '.join(_SCRIPTS)}, got {shell[:40]!r}")
    return _SCRIPTS[shell].replace("@VARIABLE@", _VARIABLE).replace("@PROGRAMS@", " ".join(_PROGRAMS))


def add_version(parser: argparse.ArgumentParser, program: str) -> None:
    """Give a program the option `--version`."""
    action = _said(lambda _value: version_line(program))
    parser.add_argument("--version", action=action, nargs=0, help="print the version and stop")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Give a program the option `--completion`."""
    action = _said(script)
    parser.add_argument(
        "--completion",
        action=action,
        metavar="SHELL",
        help="print what makes bash, zsh or fish complete words, and stop",
    )


def _said(text: Callable[[str], str]) -> type[argparse.Action]:
    """An option that prints something and ends the program, as `--help` does."""

    class Said(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, _options: object, value: Any, _name: object = None) -> None:
            sys.stdout.write(text(value))
            parser.exit()

    return Said


def completing() -> bool:
    """Whether a shell asks what the next word may be."""
    return _VARIABLE in os.environ


def answers(words: Iterable[Word], begun: str) -> str:
    """The lines of an answer: the words that go on with what has begun, and options only with a dash."""
    found = (word for word in words if word[0].startswith(begun) and (begun or not word[0].startswith("-")))
    return "".join(f"{name}\t{' '.join(about.split())}\n" for name, about in found)


def words_of(parser: argparse.ArgumentParser, before: Sequence[str]) -> Iterator[Word]:
    """What may come next in the words of a parser.

    Args:
        before: the words before the one that has begun.
    """
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for number, word in enumerate(before):
        if below and word in below[0].choices:
            yield from words_of(below[0].choices[word], before[number + 1 :])
            return
    last = before[-1] if before else ""
    valued = [action for action in parser._actions if last in action.option_strings and action.nargs is None]
    if valued:
        yield from ((str(choice), "") for choice in valued[0].choices or ())
        return
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from ((name, (action.help or "") % vars(action)) for name in action.option_strings)
    for group in below:
        yield from ((name, one.description or "") for name, one in group.choices.items())
