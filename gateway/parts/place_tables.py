"""Tables of a measured stream, made from its policy and nothing secret, and sent ahead of their ticks.

Each set of possible states without a table in the policy gets a table. If the policy has a delta, the likely states of
the set, by the newest belief, get another table. A table is stored before it is sent, because frames name it by its
number. A device that comes online is sent all tables again. Without a fitting table, a device uses its fallback.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Bools
from fugu.contract.errors import FuguError, RefusedError, cause
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_table import MOST_HELD, Noise, TimedTable, set_of
from fugu.contract.measurement import check_noise
from fugu.contract.topics import topic_of
from fugu.host.database import DatabaseError, is_lost
from fugu.mqtt import Link
from fugu.places.graphs import GraphError, delta_set, surrogates
from fugu.places.hull import complete_hull
from fugu.places.protection import protect_likely
from fugu.places.tables import TableError, compile_noise
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.points import MeasureModel, Points
from gateway.parts import Part
from gateway.store.journal import Heard, tick_at, time_us
from gateway.store.points import Measured
from gateway.store.store import Store

__all__ = ["TableSender"]


def make_noise(model: MeasureModel, possible: Bools, likely: Bools) -> tuple[Noise, tuple[tuple[int, int], ...]]:
    """Make noise that passes the device's check while some states are possible.

    `possible` and `likely` have N booleans; at least two states are possible. A possible state that is not `likely` has
    the nearest likely state as surrogate. Also returns the pairs (exposed state, partner) that were joined, as the
    first has no possible neighbour. Raises TableError, GraphError or FuguError if the device has to use its fallback.
    """
    policy, values = model.policy, model.values
    graph = policy_graph(model)
    protection = protect_likely(values, graph, possible, likely, objective=policy.objective, cap=policy.factor)
    hull = protection.hull
    if protection.factor > policy.factor:
        hull = hull.capped(complete_hull(values[surrogates(values, likely)][possible]), policy.factor)
    noise = compile_noise(hull, values, possible, policy.epsilon, likely, short=True)
    check_noise(model.measurement, noise, set_of(np.flatnonzero(possible).tolist()))
    return noise, protection.added


def policy_graph(model: MeasureModel) -> NDArray[np.bool_]:
    """Return the policy graph as an N x N matrix."""
    states = len(model.values)
    return np.array([[bool(neighbours >> y & 1) for y in range(states)] for neighbours in model.measurement.neighbours])


_log = logging.getLogger(__name__)
_Stream = tuple[str, str]
_TableKey = tuple[_Stream, int, bytes]
"""A stream, the version of its policy, and the table's key in the store."""
_LEAST_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_REST_SECONDS = 30.0
_SLICE_SECONDS = 0.05
_RESTS = 20
"""Ratio of the time without new tables of a stream to the time that its tables took."""
_SPARE = 4
"""Places of a device that tables of possible states leave to tables of likely states."""
_MOST_REMEMBERED = 256
_MOST_NUMBER = 2**32 - 1
FOR_EVER = MAX_TICK + 1


class TableSender(Part):
    """Makes and sends the tables that each device needs, in short steps; the stream that waits longest comes first.

    `counters` counts `tables_made`, `tables_sent` and `tables_failed`. `table_bytes` gives the message with a table for
    a device's stream; `None` for the table's unsigned message.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        points: Points,
        link: Link,
        counters: Counter[str],
        now_us: Callable[[], int] = time_us,
        table_bytes: Callable[[str, str, TimedTable], bytes] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._points = points
        self._link = link
        self._counters = counters
        self._now_us = now_us
        self._seconds = seconds
        self._bytes_of = table_bytes or (lambda _device, _stream, table: table.encode())
        self._streams = catalogue.measured_streams()
        self._sent: dict[_Stream, dict[int, int]] = {stream: {} for stream in self._streams}
        self._versions: dict[_Stream, int] = {}
        self._next_looks: dict[_Stream, float] = {}
        self._rest_ends: dict[_Stream, float] = {}
        self._last_looks: dict[_Stream, float] = {}
        self._has_waiting = False
        self._failed_keys: set[_TableKey] = set()
        self._cached_tables: dict[_TableKey, TimedTable] = {}

    def renew(self) -> None:
        """Read the measured streams again: the catalogue has new policies."""
        self._streams = self._catalogue.measured_streams()
        for stream in self._streams:
            self._sent.setdefault(stream, {})

    def born(self, device: str) -> None:
        """Note that a device has come online, and has lost all tables that were sent."""
        for stream in self._streams:
            if stream[0] == device:
                self._sent[stream].clear()
                self._next_looks.pop(stream, None)

    def stored(self, newest_frames: Sequence[Heard]) -> None:
        """Look soon at streams with new frames: the belief has changed."""
        for frame in newest_frames:
            self._next_looks.pop((frame.device, frame.stream), None)

    def pump(self, *, idle: bool = False) -> None:
        """Send tables that are needed soon and were not sent. Raises DatabaseError for a damaged or lost store."""
        if not self._link.connected:
            return
        now, slice_end = self._seconds(), math.inf
        next_looks, rest_ends = self._next_looks, self._rest_ends
        due_streams = [
            stream for stream in self._streams if max(next_looks.get(stream, 0.0), rest_ends.get(stream, 0.0)) <= now
        ]
        self._has_waiting = False
        for stream in sorted(due_streams, key=lambda stream: self._last_looks.get(stream, -math.inf)):
            if (start_time := time.perf_counter()) >= slice_end:
                self._has_waiting = True
                return
            slice_end = min(slice_end, start_time + _SLICE_SECONDS)
            self._last_looks[stream], self._next_looks[stream] = now, now + _LOOK_SECONDS
            try:
                self._send_tables(stream)
            except DatabaseError as error:
                if is_lost(error):
                    raise
                self._counters["store_errors"] += 1
            except Exception as error:  # the device has its fallback, and the gateway goes on
                self._counters["unexpected"] += 1
                _log.error("%s/%s: no tables: %s", *stream, cause(error))
                self._next_looks[stream] = now + _REST_SECONDS
            self._rest_ends[stream] = now + _RESTS * (time.perf_counter() - start_time)

    @property
    def busy(self) -> bool:
        """True if streams wait for a look."""
        return self._has_waiting and self._link.connected

    def _send_tables(self, stream: _Stream) -> None:
        newest_frame = self._points.newest(*stream)
        model = self._running_model(stream, newest_frame)
        if self._versions.get(stream) != model.policy.version:  # a device forgets its tables with their policy
            self._versions[stream] = model.policy.version
            self._sent[stream] = {}
        clock = model.policy.clock
        tick = tick_at(clock, self._now_us()) + 1
        if tick < 0:
            return
        if newest_frame is not None:
            tick += newest_frame.frame.shift  # tables have the device's own tick numbers
        sent_tables = self._sent[stream] = {
            number: until for number, until in self._sent[stream].items() if until > tick
        }
        for table in self._tables(stream, model, newest_frame, tick):
            if sent_tables.get(table.number) == table.until:
                continue
            topic = topic_of("table", self._catalogue.fleet, *stream)
            if self._link.publish(topic, self._bytes_of(*stream, table)) is None:
                return
            sent_tables[table.number] = table.until
            self._counters["tables_sent"] += 1

    def _running_model(self, stream: _Stream, newest_frame: Measured | None) -> MeasureModel:
        """Return the model of the policy that the newest frame names; of the newest policy without a valid frame."""
        if newest_frame is not None:
            with suppress(RefusedError):
                return self._catalogue.find(*stream, newest_frame.frame.policy_version, MeasureModel)
        policy = self._catalogue.newest(*stream)
        assert policy is not None
        return self._catalogue.find(*stream, policy.version, MeasureModel)

    def _tables(
        self, stream: _Stream, model: MeasureModel, newest_frame: Measured | None, tick: int
    ) -> Iterator[TimedTable]:
        """Yield the tables that a device needs from a tick on."""
        policy = model.policy
        ticks_ahead = max(2 * policy.frame_ticks, int(_LEAST_SECONDS * 1e6) // policy.clock.period_us)
        yield from self._scheduled_tables(stream, model, tick, ticks_ahead)
        if policy.delta > 0.0 and newest_frame is not None and newest_frame.frame.last < tick:
            yield from self._likely_tables(stream, model, newest_frame, tick, ticks_ahead)

    def _scheduled_tables(
        self, stream: _Stream, model: MeasureModel, tick: int, ticks_ahead: int
    ) -> Iterator[TimedTable]:
        """Yield tables for the sets of possible states of the next ticks, the earliest set first."""
        policy_sets = {table.constraint for table in model.policy.measure_tables}
        if not model.policy.changes:  # otherwise sets may stay for many ticks, and change later
            ticks_ahead = min(ticks_ahead, len(model.reach.all()))
        tick_of_set = {model.reach.at(set_tick): set_tick for set_tick in range(tick + ticks_ahead, tick - 1, -1)}
        for constraint, set_tick in sorted(tick_of_set.items(), key=itemgetter(1)):
            if constraint in policy_sets or constraint.bit_count() < 2:
                continue
            first_tick, until = model.reach.ticks(constraint)
            possible, ticks = model.possible_states(set_tick), (first_tick, FOR_EVER if until is None else until)
            table = self._obtain_table(stream, model, possible, possible, ticks, MOST_HELD - _SPARE)
            if table is not None:
                yield table

    def _likely_tables(
        self, stream: _Stream, model: MeasureModel, newest_frame: Measured, tick: int, ticks_ahead: int
    ) -> Iterator[TimedTable]:
        """Yield the table of the likely states of the next ticks, if they are fewer than the possible ones."""
        if self._catalogue.recall(*stream, newest_frame.frame.policy_version, MeasureModel).meaning != model.meaning:
            return
        possible = model.possible_states(tick)
        distribution = model.predict_ahead(newest_frame.belief, newest_frame.frame.last, tick - newest_frame.frame.last)
        beliefs = map(model.measured_belief, (distribution, model.predict_ahead(distribution, tick, ticks_ahead)))
        likely = np.logical_or(*(delta_set(belief, model.policy.delta) for belief in beliefs)) & possible
        if likely.sum() < 2 or np.array_equal(likely, possible):
            return
        # validity in whole steps, so that the same table is not sent again for every tick
        until = (tick // ticks_ahead + 2) * ticks_ahead
        table = self._obtain_table(stream, model, possible, likely, (tick, until), MOST_HELD)
        if table is not None:
            yield table

    def _obtain_table(
        self,
        stream: _Stream,
        model: MeasureModel,
        possible: Bools,
        likely: Bools,
        ticks: tuple[int, int],
        capacity: int,
    ) -> TimedTable | None:
        """Return the table for some states, stored or newly made; `None` if it cannot be made, or the device is full.

        The table is for the ticks from `ticks[0]` until before `ticks[1]`; a device holds `capacity` tables.
        """
        policy, store = model.policy, self._store.points
        table_bits = np.packbits(possible).tobytes() + np.packbits(likely).tobytes()
        table_key = stream, policy.version, table_bits
        if table_key in self._failed_keys:
            return None
        stream_number = self._store.number_of(*stream)
        earlier = self._cached_tables.get(table_key) or store.table_for(stream_number, policy.version, table_bits)
        if (earlier is None or earlier.number not in self._sent[stream]) and len(self._sent[stream]) >= capacity:
            return None
        if earlier is not None and earlier.until >= ticks[1]:
            self._remember(table_key, earlier)
            return earlier
        if earlier is not None:
            table_number, noise = earlier.number, earlier.noise
        else:
            try:
                noise, joined_pairs = make_noise(model, possible, likely)
            except (TableError, GraphError, FuguError) as error:
                if len(self._failed_keys) >= _MOST_REMEMBERED:
                    self._failed_keys.clear()
                self._failed_keys.add(table_key)
                self._counters["tables_failed"] += 1
                _log.warning("%s/%s: no table for %d possible states: %s", *stream, possible.sum(), error)
                return None
            if joined_pairs:
                pairs = ", ".join(f"{state} with {partner}" for state, partner in joined_pairs[:5])
                _log.warning("exposure: %s/%s: states without a possible neighbour are hidden: %s", *stream, pairs)
            # Numbers follow the clock, so that a new store repeats none of a lost one.
            least_number = min(max(len(policy.measure_tables), self._now_us() // 1_000_000), _MOST_NUMBER)
            table_number = store.next_number(stream_number, policy.version, least_number)
            self._counters["tables_made"] += 1
        constraint = set_of(np.flatnonzero(possible).tolist())
        table = TimedTable(policy.version, table_number, constraint, ticks[0], ticks[1], noise)
        with self._store.transaction():
            store.put_table(stream_number, table_bits, table)
        self._remember(table_key, table)
        return table

    def _remember(self, table_key: _TableKey, table: TimedTable) -> None:
        if table_key not in self._cached_tables and len(self._cached_tables) >= _MOST_REMEMBERED:
            del self._cached_tables[next(iter(self._cached_tables))]
        self._cached_tables[table_key] = table
