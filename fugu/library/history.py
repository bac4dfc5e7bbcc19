"""Read tables of a gateway, from its store or from an export, as DataFrames."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fugu.contract.errors import UsageError
from fugu.host.arguments import moment
from gateway.config import Place
from gateway.history.stored import Span

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["history", "span_of"]

_AFTER_NOW = 2 * 86_400
"""Seconds after now; no stored time is later."""


def span_of(since: str | None, until: str | None, names: tuple[str, str] = ("--from", "--to")) -> Span:
    """Read a stretch of wall-clock time from two moments: Unix seconds or ISO 8601, in UTC if a moment has no zone.

    `names` are those of both options in errors. UsageError: a time cannot be read, or it ends before it begins.
    """
    start = 0 if since is None else moment(since, names[0])
    end = int(time.time()) + _AFTER_NOW if until is None else moment(until, names[1])
    if start >= end:
        raise UsageError(f"{names[0]} must be before {names[1]}")
    return Span(start * 10**6, end * 10**6)


def history(
    source: str | Path,
    table: str = "estimates",
    *,
    device: str | Sequence[str] | None = None,
    stream: str | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
) -> DataFrame:
    """Read a table of what a fleet has published; reading it costs no privacy.

    Args:
        source: A gateway's store or `gateway.toml`, or a folder that `fugu gateway export` wrote.
        table: `estimates`, `symbols`, `windows`, `releases`, `points`, `measurements` or `policies`.
        device: Only rows of this device or of these devices.
        stream: Only rows of streams with this name.
        since: The first moment, as Unix seconds or ISO 8601 (UTC where there is no zone).
        until: The first moment after the stretch, in the same form.

    Returns:
        A pandas DataFrame; the columns are those of the table in the manual's page on months of many devices.

    Raises:
        FuguError: there is no such store, table or time.
        ModuleNotFoundError: pandas or pyarrow is not installed: `pip install 'fugu-edge[notebook]'`.
    """
    moments = [None if moment is None else str(moment) for moment in (since, until)]
    span = span_of(moments[0], moments[1], ("since", "until"))
    if Path(source).is_dir():
        return _load(Path(source), table, device, stream, span)
    from gateway.history.export import export_history

    place = Place.of(str(source))
    with TemporaryDirectory() as folder:
        export_history(place.store, place.ledger, span, Path(folder) / "history", lag=place.lag)
        return _load(Path(folder) / "history", table, device, stream, span)


def _load(folder: Path, table: str, device: str | Sequence[str] | None, stream: str | None, span: Span) -> DataFrame:
    import pandas as pd

    tables = sorted(file.name.partition(".")[0] for file in folder.iterdir() if file.name[0] != ".")
    if table not in tables:
        raise UsageError(f"{folder.name} has no table {table!r}; it has {', '.join(tables) or 'none'}")
    filters: list[tuple[str, str, Any]] = []
    if device is not None:
        filters.append(("device", "in", [device] if isinstance(device, str) else [*device]))
    if stream is not None:
        filters.append(("stream", "==", stream))
    if table != "policies":
        filters += [
            ("time", operator, pd.Timestamp(moment_us, unit="us", tz="UTC"))
            for operator, moment_us in ((">=", span.since), ("<", span.until))
        ]
    parquet_file = next(file for file in folder.iterdir() if file.name.partition(".")[0] == table)
    return pd.read_parquet(parquet_file, filters=filters or None).drop(columns="date", errors="ignore")
