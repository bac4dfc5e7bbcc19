"""Tables of a measured stream, made from its policy and nothing secret, and sent ahead of their ticks.

Each set of possible states without a table in the policy gets a table. If the policy has a delta, the likely states of
the set, by the newest belief, get another table. A table is stored before it is sent, because frames name it by its
number. A device that comes online is sent all tables again. Without a fitting table, a device uses its fallback.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from fugu.places.graphs import GraphError, delta_set, surrogates
from fugu.places.hull import complete_hull
from fugu.places.protection import protect_likely
from fugu.places.tables import TableError, compile_noise
from gateway.estimates.points import MeasureModel, Points
from gateway.parts import Loop, Part
from gateway.store.journal import NewestFrame, tick_at
from gateway.store.points import MeasuredFrame

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
    return noise, protection.added_edges


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


@dataclass(slots=True)
class _StreamState:
    """The tables of a stream that its device has, and the times of looks at the stream.

    Attributes:
        sent: the tick at which each table ends, by the table's number.
        version: the version of the policy that the tables are for.
        due, rested: the next look is at the later of these times.
    """

    sent: dict[int, int] = field(default_factory=dict)
    version: int = 0
    due: float = 0.0
    rested: float = 0.0
    last_look: float = -math.inf


_Needed = tuple[Bools, Bools, tuple[int, int], int]
"""Possible and likely states of a table, its first tick and the one after its last, and the most tables of a device."""


class TableSender(Part):
    """Makes and sends the tables that each device needs, in short steps; the stream that waits longest comes first.

    The loop's counters count `tables_made`, `tables_sent` and `tables_failed`.
    """

    def __init__(self, loop: Loop, points: Points) -> None:
        super().__init__(loop)
        self._points = points
        self._states: dict[_Stream, _StreamState] = {}
        self._has_waiting = False
        self._failed_keys: set[_TableKey] = set()
        self._cached_tables: dict[_TableKey, TimedTable] = {}
        self.renew()

    def renew(self) -> None:
        """Read the measured streams again: the catalogue has new policies."""
        streams = self._catalogue.measured_streams()
        self._states = {stream: self._states.get(stream) or _StreamState() for stream in streams}

    def born(self, device: str) -> None:
        """Note that a device has come online, and has lost all tables that were sent."""
        for stream, state in self._states.items():
            if stream[0] == device:
                state.sent.clear()
                state.due = 0.0

    def stored(self, newest_frames: Sequence[NewestFrame]) -> None:
        """Look soon at streams with new frames: the belief has changed."""
        for frame in newest_frames:
            if (state := self._states.get((frame.device, frame.stream))) is not None:
                state.due = 0.0

    def pump(self, *, idle: bool = False) -> None:
        """Send tables that are needed soon and were not sent. Raises DatabaseError for a damaged or lost store."""
        if not self._link.connected:
            return
        now, slice_end = self._seconds(), math.inf
        due_streams = [(stream, state) for stream, state in self._states.items() if max(state.due, state.rested) <= now]
        self._has_waiting = False
        for stream, state in sorted(due_streams, key=lambda due_stream: due_stream[1].last_look):
            if (start_time := time.perf_counter()) >= slice_end:
                self._has_waiting = True
                return
            slice_end = min(slice_end, start_time + _SLICE_SECONDS)
            state.last_look, state.due = now, now + _LOOK_SECONDS
            try:
                self._send_tables(stream, state)
            except DatabaseError as error:
                if is_lost(error):
                    raise
                self._counters["store_errors"] += 1
            except Exception as error:  # the device has its fallback, and the gateway goes on
                self._counters["unexpected"] += 1
                _log.error("%s/%s: no tables: %s", *stream, cause(error))
                state.due = now + _REST_SECONDS
            state.rested = now + _RESTS * (time.perf_counter() - start_time)

    @property
    def busy(self) -> bool:
        """True if streams wait for a look."""
        return self._has_waiting and self._link.connected

    def _send_tables(self, stream: _Stream, state: _StreamState) -> None:
        newest_frame = self._points.newest(*stream)
        model = self._running_model(stream, newest_frame)
        if state.version != model.policy.version:  # a device forgets its tables with their policy
            state.version, state.sent = model.policy.version, {}
        tick = tick_at(model.policy.clock, self._now_us()) + 1
        if tick < 0:
            return
        if newest_frame is not None:
            tick += newest_frame.frame.shift  # tables have the device's own tick numbers
        state.sent = {table_number: until for table_number, until in state.sent.items() if until > tick}
        for needed_table in self._needed_tables(stream, model, newest_frame, tick):
            table = self._obtain_table(stream, model, state.sent, *needed_table)
            if table is None or state.sent.get(table.number) == table.until:
                continue
            topic = topic_of("table", self._fleet, *stream)
            if self._link.publish(topic, self._registered.table_bytes(*stream, table)) is None:
                return
            state.sent[table.number] = table.until
            self._counters["tables_sent"] += 1

    def _running_model(self, stream: _Stream, newest_frame: MeasuredFrame | None) -> MeasureModel:
        """Return the model of the newest frame's policy; without a valid frame, of the newest policy."""
        if newest_frame is not None:
            with suppress(RefusedError):
                return self._catalogue.find(*stream, newest_frame.frame.policy_version, MeasureModel)
        policy = self._catalogue.newest(*stream)
        assert policy is not None
        return self._catalogue.find(*stream, policy.version, MeasureModel)

    def _needed_tables(
        self, stream: _Stream, model: MeasureModel, newest_frame: MeasuredFrame | None, tick: int
    ) -> Iterator[_Needed]:
        """Yield the tables that a device needs from a tick on.

        Each set of possible states of the next ticks has a table, the earliest set first. Then the likely states of
        these ticks have a table, if they are fewer than the possible ones.
        """
        policy = model.policy
        ticks_ahead = max(2 * policy.frame_ticks, int(_LEAST_SECONDS * 1e6) // policy.clock.period_us)
        policy_sets = {table.constraint for table in policy.measure_tables}
        # Without changes, later sets are those of the next ticks.
        set_ticks = ticks_ahead if policy.changes else min(ticks_ahead, len(model.reach.all_sets()))
        tick_of_set = {model.reach.set_at(set_tick): set_tick for set_tick in range(tick + set_ticks, tick - 1, -1)}
        for constraint, set_tick in sorted(tick_of_set.items(), key=itemgetter(1)):
            if constraint not in policy_sets and constraint.bit_count() >= 2:
                first_tick, until = model.reach.ticks_of(constraint)
                possible = model.possible_states(set_tick)
                yield possible, possible, (first_tick, FOR_EVER if until is None else until), MOST_HELD - _SPARE
        if policy.delta <= 0.0 or newest_frame is None or newest_frame.frame.last >= tick:
            return
        version, last_tick = newest_frame.frame.policy_version, newest_frame.frame.last
        if self._catalogue.recall(*stream, version, MeasureModel).meaning != model.meaning:
            return
        possible = model.possible_states(tick)
        distribution = model.predict_ahead(newest_frame.belief, last_tick, tick - last_tick)
        beliefs = map(model.measured_belief, (distribution, model.predict_ahead(distribution, tick, ticks_ahead)))
        likely = np.logical_or(*(delta_set(belief, policy.delta) for belief in beliefs)) & possible
        if likely.sum() >= 2 and not np.array_equal(likely, possible):
            # validity in whole steps, so that the same table is not sent again for every tick
            yield possible, likely, (tick, (tick // ticks_ahead + 2) * ticks_ahead), MOST_HELD

    def _obtain_table(
        self,
        stream: _Stream,
        model: MeasureModel,
        sent_tables: Mapping[int, int],
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
        stored_table = self._cached_tables.get(table_key) or store.table_for(stream_number, policy.version, table_bits)
        if (stored_table is None or stored_table.number not in sent_tables) and len(sent_tables) >= capacity:
            return None
        if stored_table is not None and stored_table.until >= ticks[1]:
            self._remember(table_key, stored_table)
            return stored_table
        if stored_table is not None:
            table_number, noise = stored_table.number, stored_table.noise
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
