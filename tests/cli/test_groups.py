"""Commands are functions: parameters become arguments and options, a docstring their help, a dataclass several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import typer

from fugu_cli.app import command


@dataclass(frozen=True, slots=True)
class Noise:
    """What noise there is.

    Attributes:
        epsilon (E): In nats.
        rho (--rho0): Exactly, or
            nearly so.
    """

    epsilon: float
    rho: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """What there is.

    Attributes:
        fleet: Its name.
        device (-d NAME): Again for more.
    """

    fleet: str = "home"
    device: list[str] | None = None


called: list[object] = []


def made() -> Any:
    """A command with two groups, an argument and options of its own."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @command(app)
    def _called(
        context: typer.Context, file: str = "-", *, noise: Noise, names: Names, quick: bool = False, count: int = 1
    ) -> None:
        """Called.

        Args:
            file (FILE): To read.
            quick: In a hurry.
            count (N 1..9): How often.
        """
        called[:] = [noise, names, quick, count, file, context.info_name]

    return typer.main.get_command(app)


def run(*words: str) -> list[object]:
    """Parse the words of the command; returns what it was called with."""
    made()(args=list(words), prog_name="fugu", standalone_mode=False)
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


def test_what_a_docstring_says_of_parameters_is_their_help() -> None:
    shown = {one.name: one for one in made().params}
    assert made().help == "Called."
    assert (shown["rho"].opts, shown["rho"].help) == (["--rho0"], "Exactly, or nearly so.")
    assert (shown["device"].opts, shown["device"].metavar, shown["quick"].help) == (
        ["--device", "-d"],
        "NAME",
        "In a hurry.",
    )
    assert (shown["file"].param_type_name, shown["file"].metavar) == ("argument", "FILE")
