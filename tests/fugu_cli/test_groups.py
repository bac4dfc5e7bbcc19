"""Commands are functions: annotated parameters become arguments and options, a dataclass several."""

from __future__ import annotations

import importlib
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer import Argument, Option

from fugu_cli import app, commands
from fugu_cli.app import command_group, option_group


@option_group
class Noise:
    """Options about noise."""

    epsilon: Annotated[float, Option(metavar="E", help="In nats.")]
    rho: Annotated[str | None, Option("--rho0", help="Exactly, or nearly so.")] = None


@option_group
class Names:
    """Options about a fleet."""

    fleet: Annotated[str, Option(help="Its name.")] = "home"
    device: Annotated[list[str] | None, Option("--device", "-d", metavar="NAME", help="Again for more.")] = None


called: list[object] = []


def command_of() -> Any:
    """A command with two groups, an argument and options of its own."""

    def called_with(
        context: typer.Context,
        file: Annotated[str, Argument(metavar="FILE", help="To read.")] = "-",
        *,
        noise: Noise,
        names: Names,
        quick: Annotated[bool, Option("--quick", help="In a hurry.")] = False,
        count: Annotated[int, Option(metavar="N", min=1, max=9, help="How often.")] = 1,
    ) -> None:
        """Called."""
        called[:] = [noise, names, quick, count, file, context.info_name]

    group: Any = typer.main.get_command(command_group({"fugu": called_with}))
    return group.commands["fugu"]


def run(*words: str) -> list[object]:
    """Parse the words of the command; returns what it was called with."""
    command_of()(args=list(words), prog_name="fugu", standalone_mode=False)
    return called


def test_fields_are_options_and_groups_are_made_of_them() -> None:
    words = ("--rho0", "1/3", "--epsilon", "2", "-d", "a", "--device", "b", "--quick", "a.csv", "--count", "9")
    assert run(*words) == [Noise(2.0, "1/3"), Names("home", ["a", "b"]), True, 9, "a.csv", "fugu"]


def test_what_is_not_given_is_the_default_of_its_field() -> None:
    assert run("--epsilon", "1") == [Noise(1.0), Names(), False, 1, "-", "fugu"]


@pytest.mark.parametrize(("words", "what"), [(("--fleet", "f"), "epsilon"), (("--epsilon", "1", "--count", "10"), "9")])
def test_a_field_without_default_must_be_given_and_bounds_hold(words: tuple[str, ...], what: str) -> None:
    with pytest.raises(typer.TyperException, match=what):
        run(*words)


def test_an_annotation_is_names_help_and_metavar() -> None:
    shown = {param.name: param for param in command_of().params}
    assert command_of().help == "Called."
    assert (shown["rho"].opts, shown["rho"].help) == (["--rho0"], "Exactly, or nearly so.")
    assert (shown["device"].opts, shown["device"].metavar) == (["--device", "-d"], "NAME")
    assert shown["quick"].help == "In a hurry."
    assert (shown["file"].param_type_name, shown["file"].metavar) == ("argument", "FILE")


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        Annotated[int, Option(min=1)],
        Annotated[int, Option(help="")],
        Annotated[str, Option(min=1, help="No number.")],
        Annotated[int, Option(min=2, max=1, help="Nothing is within.")],
    ],
)
def test_an_option_without_help_or_with_bounds_that_hold_nothing_is_refused(annotation: Any) -> None:
    def shards(count: Any = 1) -> None: ...

    shards.__annotations__["count"] = annotation
    with pytest.raises(TypeError, match=r"shards: .*count"):
        command_group({"shards": shards})


def test_an_option_of_a_group_without_help_is_an_error_where_the_group_is_declared() -> None:
    with pytest.raises(TypeError, match="Shards: parameter count has no help"):

        @option_group
        class Shards:
            count: Annotated[int, Option(min=1)] = 1


@pytest.mark.parametrize("module", sorted({place.partition(":")[0] for place, _ in app.COMMANDS.values()} - {""}))
def test_the_import_of_a_module_checks_the_options_of_each_of_its_commands(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"fugu_cli.commands.{module}"
    declared = importlib.import_module(path)
    places = [place.split(":") for place, _ in app.COMMANDS.values() if place.startswith(f"{module}:")]
    functions = [getattr(declared, name) for _, name in places]
    checked: set[str] = set()
    monkeypatch.setattr(app, "_check_parameter", lambda _, command: checked.add(command))
    monkeypatch.setattr(commands, module, declared)  # put back afterwards, as the next line does
    monkeypatch.delitem(sys.modules, path)
    importlib.import_module(path)
    assert checked >= {
        function.__name__
        for function in functions
        if not isinstance(function, typer.Typer) and signature(function).parameters
    }
    assert checked


@pytest.mark.fresh
@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("deploy gateway gw --broker b --shards -3", 2, "greater than or equal to 1"),
        ("plan stream --q 0.1 --r 0.4 --epsilon 1 --period 60 --for f/d/s --threshold 1 -o policy.json", 0, ""),
        ("plan stream --help", 0, "Plan a stream: how to randomise each reading."),
    ],
)
def test_an_interpreter_that_drops_docstrings_keeps_options_and_bounds(
    tmp_path: Path, words: str, code: int, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "fugu", *words.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code
    assert says in done.stdout + done.stderr
    assert (tmp_path / "policy.json").is_file() == ("-o" in words)
