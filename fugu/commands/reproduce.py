"""`fugu reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def _reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET...", help="Figures, tables, errata, groups of them, or all.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for report.html and CSV files.")
    ] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and trials: all within a minute.")] = False,
    traces: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Location traces for dphmm-traces, such as GeoLife's: CSV.")
    ] = None,
    as_list: Annotated[bool, typer.Option("--list", help="Name the targets.")] = False,
) -> None:
    """Reproduce the papers' figures and tables, ours beside them.

    Writes a report with the paper's number, ours, and why they differ, for every figure and table of the four papers
    that this project builds on. Each of their errors has a target that shows it by enumeration.

    \b
    examples:
      fugu reproduce --list
      fugu reproduce bdp-3 erratum-bdp-theorem-2 -o bdp
      fugu reproduce all --quick
      fugu reproduce all
    """
    from fugu.view.reproduction import chosen_targets, list_targets, reproduce

    if as_list:
        list_targets()
    else:
        reproduce(chosen_targets(targets or (["all"] if quick else [])), out, quick, traces)
