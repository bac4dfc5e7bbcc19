"""Options that are fields of a dataclass: as if each were a parameter of the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from fugu.cli.commands.options import grouped


@dataclass(frozen=True, slots=True)
class Noise:
    epsilon: Annotated[float, typer.Option(help="In nats.")]
    rho: Annotated[str | None, typer.Option("--rho0", help="Exactly.")] = None


@dataclass(frozen=True, slots=True)
class Names:
    fleet: str = "home"
    device: Annotated[list[str] | None, typer.Option(help="Again for more.")] = None


def run(*words: str) -> list[object]:
    """Parse the words of a command with two groups and an option of its own; returns what it was called with."""
    called: list[object] = []
    app = typer.Typer(add_completion=False)

    @app.command()
    @grouped
    def command(noise: Noise, context: typer.Context, names: Names, quick: bool = False) -> None:
        """Called."""
        called.extend([noise, names, quick, context.info_name])

    typer.main.get_command(app)(args=list(words), prog_name="fugu", standalone_mode=False)
    return called


def test_fields_are_options_and_groups_are_made_of_them() -> None:
    words = ("--rho0", "1/3", "--epsilon", "2", "--device", "a", "--device", "b", "--quick")
    assert run(*words) == [Noise(2.0, "1/3"), Names("home", ["a", "b"]), True, "fugu"]


def test_what_is_not_given_is_the_default_of_its_field() -> None:
    assert run("--epsilon", "1") == [Noise(1.0), Names(), False, "fugu"]


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(typer.TyperException, match="epsilon"):
        run("--fleet", "f")
