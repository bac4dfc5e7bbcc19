"""The edge commands carry no framework, every command explains itself, and the version is that of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli import edge
from fugu_cli.app import COMMANDS, load
from fugu_cli.reading import parser
from tests.support.command import Fugu

ROOT = Path(__file__).parents[2]
FRAMEWORK = {"typer", "rich", "click"}
NUMBERS = {"numpy", "numba", "scipy"}
MODULES = """
import sys
from fugu_cli.main import main
codes = []
for line in sys.argv[1:]:
    try:
        codes.append(main(line.split()))
    except SystemExit as stop:
        codes.append(stop.code)
print(*codes, '|', *{*sys.modules} | {name.partition('.')[0] for name in sys.modules}, file=sys.stderr)
"""


def loaded(*lines: str) -> tuple[list[str], set[str]]:
    """Exit codes of commands run one after the other in a fresh interpreter, and all that they have loaded."""
    done = subprocess.run([sys.executable, "-c", MODULES, *lines], cwd=ROOT, capture_output=True, text=True, check=True)
    codes, _, modules = done.stderr.splitlines()[-1].partition(" | ")
    return codes.split(), set(modules.split())


def test_edge_commands_load_neither_framework_nor_numbers() -> None:
    codes, modules = loaded(
        "agent run --help",
        "agent run no-such.toml",
        "agent pause no-such.toml",
        "agent --help",
        "subscribe --help",
        "subscribe --fleet f --broker 127.0.0.1:1 --timeout 0.1",
        "--version",
    )
    assert codes == ["0", "1", "1", "0", "0", "1", "0"]
    assert not modules & (FRAMEWORK | NUMBERS | {"gateway"})


def test_fugu_read_loads_no_framework_and_has_the_options_that_its_help_has() -> None:
    codes, modules = loaded("read tests/data/occupancy_office.csv.gz --rows samples --json", "read no-such.csv")
    assert codes == ["0", "1"]
    assert not modules & (FRAMEWORK | {"pydantic", "numba", "scipy", "gateway"})
    command = load("read")
    declared = {name for option in command.params if option.param_type_name == "option" for name in option.opts}
    assert {name for action in parser()._actions for name in action.option_strings} == declared - {"--help", "-h"}


def test_other_commands_load_numbers_only_to_compute() -> None:
    codes, modules = loaded("plan stream --help", "check policy none.json", "deploy --help", "--help")
    assert codes == ["0", "1", "0", "0"]
    assert "fugu_cli.commands" in modules
    assert not modules & (NUMBERS | {"gateway", "paho", "cryptography"})


@pytest.mark.parametrize("command", [*COMMANDS, "gateway ledger show"])
def test_every_command_has_help_with_an_example(fugu: Fugu, command: str) -> None:
    done = fugu(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert "example" in done.out or "COMMAND [ARGS]" in done.out or command == "helper", "or commands of its own"
    assert f"fugu {command}" in done.out or command == "agent run"


def test_the_list_of_commands_is_complete(fugu: Fugu) -> None:
    done = fugu("--help")
    for group in (
        *("start", "try", "demo", "plan", "check", "agent", "gateway", "subscribe", "fleet", "deploy", "doctor"),
    ):
        assert f"\n  {group} " in done.out
    assert [line.split()[0] for line in done.out.partition("Commands:\n")[2].splitlines() if line[2:3] != " "] == [
        *dict.fromkeys(words.partition(" ")[0] for words in COMMANDS)
    ]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in edge.COMMANDS])
def test_the_list_of_commands_says_what_each_command_says_of_itself(name: str) -> None:
    command = load(name)
    assert (command.help or "").partition("\n\n")[0].strip() == COMMANDS[name][1]


def test_a_group_is_loaded_only_when_it_is_used() -> None:
    codes, modules = loaded("", "--help", "no-such-group")
    assert codes == ["2", "0", "2"]
    assert "fugu_cli.app" in modules
    assert not any(name.startswith("fugu_cli.commands") for name in modules)


@pytest.mark.fresh
def test_the_installed_command_is_this_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fugu", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("fugu ")
