"""`fugu gateway export`, `fugu gateway learn` and `fugu gateway smooth`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fugu.library.report import Result, Table
from fugu_cli.app import command
from fugu_cli.connection import place_of, store_of
from fugu_cli.view.gateway import learned_chains
from fugu_cli.view.terminal import working

if TYPE_CHECKING:
    from gateway.history.stored import Span

SourceArgument = Annotated[
    str, Argument(metavar="FILE|URL", help="A gateway's store, or a folder that fugu gateway export wrote.")
]
RayOption = Annotated[
    str | None, Option(metavar="ADDRESS", help="A Ray cluster that does the work; local: one on this machine.")
]

learn = typer.Typer(rich_markup_mode=None, add_completion=False)
smooth = typer.Typer(rich_markup_mode=None, add_completion=False)
export = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(frozen=True, slots=True)
class SpanOptions:
    """A stretch of wall-clock time."""

    since: Annotated[
        str | None, Option("--from", metavar="TIME", help="The first moment (default: the first that is stored).")
    ] = None
    until: Annotated[str | None, Option("--to", metavar="TIME", help="The moment after the last (default: now).")] = (
        None
    )

    def span(self) -> Span:
        """Read both times; they are in UTC unless they say otherwise."""
        from fugu.library.history import span_of

        return span_of(self.since, self.until)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams."""

    stream: Annotated[str | None, Option(help="Only streams of this name.")] = None
    device: Annotated[list[str] | None, Option(help="Only this device; repeatable.")] = None


@command(export, shows=True)
def _export(
    store: Annotated[str, Argument(metavar="FILE|URL", help="The store; its gateway may be running.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder for the files.")],
    *,
    time: SpanOptions,
) -> Result:
    """Write what a gateway has stored as Parquet files.

    Symbols, points, estimates, windows and releases, by date.

    \b
    examples:
      fugu gateway export home.db everything
      fugu gateway export home.db october --from 2026-10-01 --to 2026-11-01
    """
    from gateway.history import export

    span, place = time.span(), place_of(store)
    with working(f"exporting {place.store.name}", measured=True) as told:
        rows = export.export_history(place.store, place.ledger, span, folder, lag=place.lag, told=told)
    return _written(folder, rows)


@command(smooth, shows=True)
def _smooth(
    source: SourceArgument,
    *,
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="A new folder for the files.")],
    streams: StreamOptions,
    time: SpanOptions,
    ray: RayOption = None,
) -> Result:
    """Tell states from all symbols, as Parquet files.

    Of every tick, from those before it and those after it.

    \b
    examples:
      fugu gateway smooth home.db -o smoothed
      fugu gateway smooth october --stream hr --device watch -o smoothed --ray local
    """
    from gateway.history import smoothing, tasks

    span, location = time.span(), store_of(source)
    chosen = tasks.Source(location, span, tuple(streams.device or ()), streams.stream)
    with tasks.open_tasks(ray) as where, working(f"smoothing {location.name}", measured=True) as told:
        rows = smoothing.smooth_history(chosen, output, tasks=where, told=told)
    return _written(output, rows)


@command(learn, shows=True)
def _learn(
    source: SourceArgument,
    *,
    streams: StreamOptions,
    time: SpanOptions,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write the class, for the plan commands.")
    ] = None,
    ray: RayOption = None,
) -> Result:
    """Learn a class of chains from randomised symbols.

    Of one stream of a whole fleet, or of some devices; exit code 1 if the symbols tell too little.

    \b
    examples:
      fugu gateway learn home.db --stream hr -o class.json
      fugu gateway learn october --stream hr --device watch --from 2026-10-01 --to 2026-10-15 --json
    """
    from gateway.history import learning, tasks

    span, location = time.span(), store_of(source)
    chosen = tasks.Source(location, span, tuple(streams.device or ()), streams.stream)
    with tasks.open_tasks(ray) as where, working(f"learning from {location.name}") as told:
        model = learning.learn_class(chosen, tasks=where, told=told)
    if output is not None:
        output.write_text(model.to_json(), encoding="utf-8")
    return learned_chains(model)


def _written(folder: Path, rows: Mapping[str, int]) -> Result:
    """How many rows each table of a folder has."""
    cells = [(name, f"{count:,}") for name, count in rows.items()]
    return Result(rows, [Table(f"Written to {folder}", ("table", "rows"), cells)])
