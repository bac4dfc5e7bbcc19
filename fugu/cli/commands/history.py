"""`fugu gateway export`, `fugu gateway learn` and `fugu gateway smooth`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.arguments import moment
from fugu.cli.commands.options import JsonOption, command, place_of, store_of
from fugu.cli.errors import CommandLineError
from fugu.cli.view.gateway import show_learned, show_rows
from fugu.cli.view.terminal import answer, working

_LATEST = 2 * 86_400
"""Seconds after now: nothing that is stored is later."""

SourceArgument = Annotated[
    str, typer.Argument(metavar="FILE|URL", help="A gateway's store, or a folder that fugu gateway export wrote.")
]
RayOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster that does the work; local: one on this machine.")
]

learn = typer.Typer(rich_markup_mode=None, add_completion=False)
smooth = typer.Typer(rich_markup_mode=None, add_completion=False)
export = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """A stretch of wall-clock time.

    Attributes:
        since (--from TIME): The first moment (default: the first that is stored).
        until (--to TIME): The moment after the last (default: now).
    """

    since: str | None = None
    until: str | None = None

    def microseconds(self) -> tuple[int, int]:
        """Both in Unix time; they are in UTC unless they say otherwise."""
        since = 0 if self.since is None else moment(self.since, "--from")
        until = int(time.time()) + _LATEST if self.until is None else moment(self.until, "--to")
        if since >= until:
            raise CommandLineError("--from must be before --to")
        return since * 10**6, until * 10**6


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams.

    Attributes:
        stream: Only streams of this name.
        device: Only this device; repeatable.
    """

    stream: str | None = None
    device: list[str] | None = None


@command(export)
def _export(store: str, *, parquet: Path, time: SpanOptions, as_json: JsonOption = False) -> int:
    """Write what a gateway has stored as Parquet files.

    Symbols, points, estimates, windows and releases, by date.

    \b
    examples:
      fugu gateway export home.db --parquet everything
      fugu gateway export home.db --from 2026-10-01 --to 2026-11-01 --parquet october

    Args:
        store (FILE|URL): The store; its gateway may be running.
        parquet (DIR): A new folder for the files.
    """
    since_until, place = time.microseconds(), place_of(store)
    from gateway.history import export, stored

    with working(f"exporting {place.store.name}", measured=True) as told:
        rows = export.export_history(
            place.store, place.ledger, stored.Span(*since_until), parquet, lag=place.lag, told=told
        )
    answer(as_json, lambda: rows, lambda: show_rows(parquet, rows))
    return 0


@command(smooth)
def _smooth(
    source: SourceArgument,
    *,
    output: Path,
    streams: StreamOptions,
    time: SpanOptions,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> int:
    """Tell states from all symbols, as Parquet files.

    Of every tick, from those before it and those after it.

    \b
    examples:
      fugu gateway smooth home.db -o smoothed
      fugu gateway smooth october --stream hr --device watch -o smoothed --ray local

    Args:
        output (-o DIR): A new folder for the files.
    """
    since_until = time.microseconds()
    from gateway.history import smoothing, stored, tasks

    location = store_of(source)
    chosen = tasks.Source(location, stored.Span(*since_until), tuple(streams.device or ()), streams.stream)
    with tasks.open_tasks(ray) as where, working(f"smoothing {location.name}", measured=True) as told:
        rows = smoothing.smooth_history(chosen, output, tasks=where, told=told)
    answer(as_json, lambda: rows, lambda: show_rows(output, rows))
    return 0


@command(learn)
def _learn(
    source: SourceArgument,
    *,
    streams: StreamOptions,
    time: SpanOptions,
    output: Path | None = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> int:
    """Learn a class of chains from randomised symbols.

    Of one stream of a whole fleet, or of some devices; exit code 1 if the symbols tell too little.

    \b
    examples:
      fugu gateway learn home.db --stream hr -o class.json
      fugu gateway learn october --stream hr --device watch --from 2026-10-01 --to 2026-10-15 --json

    Args:
        output (-o FILE): Write the class, for the plan commands.
    """
    since_until = time.microseconds()
    from gateway.history import learning, stored, tasks

    location = store_of(source)
    chosen = tasks.Source(location, stored.Span(*since_until), tuple(streams.device or ()), streams.stream)
    with tasks.open_tasks(ray) as where, working(f"learning from {location.name}") as told:
        model = learning.learn_class(chosen, tasks=where, told=told)
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    answer(as_json, model.to_json, lambda: show_learned(model))
    return 1 if model.chains is None else 0
