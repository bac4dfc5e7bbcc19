"""Functions run over the parts of a history: one after another in this process, or as parallel tasks of Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fugu.contract.errors import FuguError
from gateway.history.parquet import ExportedHistory
from gateway.history.stored import Span, StoredHistory, SymbolStream, stored_history
from gateway.store.location import Location

__all__ = ["Group", "History", "Source", "Tasks", "open_tasks"]

_LOOPBACK = "127.0.0.2"
"""Ray replaces 127.0.0.1 by the address of the network."""
_Result = TypeVar("_Result")
_Arguments = Sequence[tuple[Any, ...]]
_Progress = Callable[[int], None]
_MOST_STREAMS = 64
"""Most streams of a group, which is a task's work, and shares a file."""


History = StoredHistory | ExportedHistory
"""A history of symbols: a gateway's store, or files that were exported from one."""


class Source(NamedTuple):
    """A gateway's store or an exported folder, a span, and the chosen devices and stream; () and `None` for all."""

    path: Location
    span: Span
    devices: tuple[str, ...] = ()
    stream: str | None = None

    @contextmanager
    def open(self) -> Iterator[History]:
        """Open the history. FuguError if there is none."""
        if isinstance(self.path, Path) and self.path.is_dir():
            yield ExportedHistory(self.path)
        else:
            with stored_history(self.path) as history:
                yield history

    def streams(self, history: History) -> list[SymbolStream]:
        """Return the chosen streams. FuguError if there are none."""
        candidates = [stream for stream in history.streams() if self.stream in (None, stream.stream)]
        streams = [candidate for candidate in candidates if not self.devices or candidate.device in self.devices]
        if not streams:
            raise FuguError(f"{self.path.name} has no such stream of symbols")
        return streams


class Group(NamedTuple):
    """Some streams of a source, by device and name: group `number`, after `first` streams in earlier groups."""

    source: Source
    number: int
    first: int
    names: frozenset[tuple[str, str]]

    @classmethod
    def all(cls, source: Source) -> list[Group]:
        """Divide all streams of a source into groups."""
        with source.open() as history:
            names = [(stream.device, stream.stream) for stream in source.streams(history)]
        starts = range(0, len(names), _MOST_STREAMS)
        return [cls(source, i, low, frozenset(names[low : low + _MOST_STREAMS])) for i, low in enumerate(starts)]

    @contextmanager
    def open(self) -> Iterator[tuple[History, list[SymbolStream]]]:
        """Open the history, with the streams of the group."""
        with self.source.open() as history:
            yield history, [stream for stream in history.streams() if (stream.device, stream.stream) in self.names]


class Tasks:
    """Runs functions in this process."""

    def hold(self, function: Callable[..., Any], calls: _Arguments) -> list[Any]:
        """Run a function for each call's arguments. Return the outcomes, or references to outcomes, for `map`."""
        return self.map(function, calls)

    def map(
        self, function: Callable[..., _Result], calls: _Arguments, progress: _Progress = lambda _: None
    ) -> list[_Result]:
        """Run a function for each call's arguments. Return the outcomes in order; `progress` gets the number done."""
        outcomes = []
        for arguments in calls:
            outcomes.append(function(*arguments))
            progress(len(outcomes))
        return outcomes


@dataclass
class _RayTasks(Tasks):
    _ray: Any

    def _submit(self, function: Callable[..., Any], calls: _Arguments) -> list[Any]:
        remote = self._ray.remote(function)
        return [remote.remote(*arguments) for arguments in calls]

    def hold(self, function: Callable[..., Any], calls: _Arguments) -> list[Any]:
        references = self._submit(function, calls)
        self._ray.wait(references, num_returns=len(references), fetch_local=False)
        return references

    def map(
        self, function: Callable[..., _Result], calls: _Arguments, progress: _Progress = lambda _: None
    ) -> list[_Result]:
        pending = references = self._submit(function, calls)
        while pending:
            _, pending = self._ray.wait(pending)
            progress(len(references) - len(pending))
        try:
            outcomes: list[_Result] = self._ray.get(references)
        except self._ray.exceptions.RayError as error:
            raise FuguError(str(getattr(error, "cause", error)).partition("\n")[0]) from None
        return outcomes


@contextmanager
def open_tasks(address: str | None) -> Iterator[Tasks]:
    """Run tasks on the Ray cluster at an address, for "local" on one of this machine, for `None` in this process.

    The cluster's nodes must see the same files. Raises FuguError if there is no such cluster.
    """
    if address is None:
        yield Tasks()
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    import ray

    options: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": _LOOPBACK} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise FuguError(f"no Ray cluster at {address}: {str(error).partition(chr(10))[0]}") from None
    try:
        yield _RayTasks(ray)
    finally:
        ray.shutdown()
