"""Makes a measured stream's tables, from its policy and nothing secret, and sends them ahead of their ticks.

Sets of possible states that the policy has no table for get one. With a delta, so do the likely states that the newest
belief leaves of them. A table is stored before it is sent, because frames name it by its number. A device that comes
online is sent everything again; until then, and whenever nothing fits, it uses its fallback.
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
from gateway.store.journal import Heard, tick_at
from gateway.store.points import Measured
from gateway.store.store import Store

__all__ = ["TableSender"]


def make_noise(model: MeasureModel, possible: Bools, likely: Bools) -> tuple[Noise, tuple[tuple[int, int], ...]]:
    """Make noise that passes the device's check while some states are possible.

    `possible` has N booleans, at least two true; those not `likely` have the nearest of these as surrogates. Returned
    beside it are pairs (exposed state, partner) that were joined. Raises TableError, GraphError or FuguError if the
    fallback has to do.
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
    """The policy graph as an N x N matrix."""
    states = len(model.values)
    return np.array([[bool(neighbours >> y & 1) for y in range(states)] for neighbours in model.measurement.neighbours])


_log = logging.getLogger(__name__)
_Key = tuple[str, str]
_LEAST_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_REST_SECONDS = 30.0
_SLICE_SECONDS = 0.05
_RESTS = 20
"""Times as long as its tables took, a stream gets no other ones."""
_SPARE = 4
"""Places that the schedule leaves to tables that follow the belief."""
_MOST_REMEMBERED = 256
_MOST_NUMBER = 2**32 - 1
FOR_EVER = MAX_TICK + 1


class TableSender(Part):
    """Looks now and then at what each device will need, for a short while: the stream that waits longest comes first.

    `counters` counts `tables_made`, `tables_sent`, `tables_failed`. `sealed` gives the bytes of a table for a stream of
    a device; without it, those of its message are sent.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        points: Points,
        link: Link,
        counters: Counter[str],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        sealed: Callable[[str, str, TimedTable], bytes] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._points = points
        self._link = link
        self._counters = counters
        self._now_us = now_us
        self._seconds = seconds
        self._sealed = sealed or (lambda _device, _stream, table: table.encode())
        self._streams = catalogue.measured()
        self._sent: dict[_Key, dict[int, int]] = {key: {} for key in self._streams}
        self._versions: dict[_Key, int] = {}
        self._next_looks: dict[_Key, float] = {}
        self._rest_ends: dict[_Key, float] = {}
        self._last_looks: dict[_Key, float] = {}
        self._has_waiting = False
        self._failed_keys: set[tuple[_Key, int, bytes]] = set()
        self._cached_tables: dict[tuple[_Key, int, bytes], TimedTable] = {}

    def renew(self) -> None:
        """The catalogue has new policies."""
        self._streams = self._catalogue.measured()
        for key in self._streams:
            self._sent.setdefault(key, {})

    def born(self, device: str) -> None:
        """Note that a device has come online, and has none of the tables that were sent."""
        for key in self._streams:
            if key[0] == device:
                self._sent[key].clear()
                self._next_looks.pop(key, None)

    def stored(self, newest_frames: Sequence[Heard]) -> None:
        """Note that the beliefs about streams have changed."""
        for frame in newest_frames:
            self._next_looks.pop((frame.device, frame.stream), None)

    def pump(self, *, idle: bool = False) -> None:
        """Send what will be needed soon and has not been sent. Raises DatabaseError for a damaged or lost store."""
        if not self._link.connected:
            return
        now, slice_end = self._seconds(), math.inf
        due = [
            key for key in self._streams if max(self._next_looks.get(key, 0.0), self._rest_ends.get(key, 0.0)) <= now
        ]
        self._has_waiting = False
        for key in sorted(due, key=lambda key: self._last_looks.get(key, -math.inf)):
            if (start := time.perf_counter()) >= slice_end:
                self._has_waiting = True
                return
            slice_end = min(slice_end, start + _SLICE_SECONDS)
            self._last_looks[key], self._next_looks[key] = now, now + _LOOK_SECONDS
            try:
                self._send(key)
            except DatabaseError as error:
                if is_lost(error):
                    raise
                self._counters["store_errors"] += 1
            except Exception as error:  # the device has its fallback, and the gateway goes on
                self._counters["unexpected"] += 1
                _log.error("%s/%s: no tables: %s", *key, cause(error))
                self._next_looks[key] = now + _REST_SECONDS
            self._rest_ends[key] = now + _RESTS * (time.perf_counter() - start)

    @property
    def busy(self) -> bool:
        """True if streams wait to be looked at."""
        return self._has_waiting and self._link.connected

    def _send(self, key: _Key) -> None:
        newest_frame = self._points.newest(*key)
        model = self._model(key, newest_frame)
        if self._versions.get(key) != model.policy.version:  # a device forgets its tables with their policy
            self._versions[key] = model.policy.version
            self._sent[key] = {}
        clock = model.policy.clock
        tick = tick_at(clock, self._now_us()) + 1
        if tick < 0:
            return
        if newest_frame is not None:
            tick += newest_frame.frame.shift  # tables are for the device's own numbers
        sent_tables = self._sent[key] = {number: until for number, until in self._sent[key].items() if until > tick}
        for table in self._due_tables(key, model, newest_frame, tick):
            if sent_tables.get(table.number) == table.until:
                continue
            if self._link.publish(topic_of("table", self._catalogue.fleet, *key), self._sealed(*key, table)) is None:
                return
            sent_tables[table.number] = table.until
            self._counters["tables_sent"] += 1

    def _model(self, key: _Key, newest_frame: Measured | None) -> MeasureModel:
        """The policy that the device runs, as its newest frame says; the newest one as long as there is none."""
        if newest_frame is not None:
            with suppress(RefusedError):
                return self._catalogue.find(*key, newest_frame.frame.policy_version, MeasureModel)
        policy = self._catalogue.newest(*key)
        assert policy is not None
        return self._catalogue.find(*key, policy.version, MeasureModel)

    def _due_tables(self, key: _Key, model: MeasureModel, newest: Measured | None, tick: int) -> Iterator[TimedTable]:
        policy = model.policy
        ticks_ahead = max(2 * policy.frame_ticks, int(_LEAST_SECONDS * 1e6) // policy.clock.period_us)
        yield from self._scheduled(key, model, tick, ticks_ahead)
        if policy.delta > 0.0 and newest is not None and newest.frame.last < tick:
            yield from self._likely(key, model, newest, tick, ticks_ahead)

    def _scheduled(self, key: _Key, model: MeasureModel, tick: int, ahead: int) -> Iterator[TimedTable]:
        policy_sets = {table.constraint for table in model.policy.measure_tables}
        if not model.policy.changes:  # otherwise sets may stay for many ticks, and change later
            ahead = min(ahead, len(model.reach.all()))
        tick_of_set = {model.reach.at(set_tick): set_tick for set_tick in range(tick + ahead, tick - 1, -1)}
        for constraint, set_tick in sorted(tick_of_set.items(), key=itemgetter(1)):
            if constraint in policy_sets or constraint.bit_count() < 2:
                continue
            first, until = model.reach.ticks(constraint)
            possible, ticks = model.possible(set_tick), (first, FOR_EVER if until is None else until)
            table = self._table(key, model, possible, possible, ticks, MOST_HELD - _SPARE)
            if table is not None:
                yield table

    def _likely(self, key: _Key, model: MeasureModel, newest: Measured, tick: int, ahead: int) -> Iterator[TimedTable]:
        if self._catalogue.recall(*key, newest.frame.policy_version, MeasureModel).meaning != model.meaning:
            return
        possible = model.possible(tick)
        distribution = model.ahead(newest.belief, newest.frame.last, tick - newest.frame.last)
        distributions = (model.measured(distribution), model.measured(model.ahead(distribution, tick, ahead)))
        likely = (
            delta_set(distributions[0], model.policy.delta) | delta_set(distributions[1], model.policy.delta)
        ) & possible
        if likely.sum() < 2 or np.array_equal(likely, possible):
            return
        # validity in whole steps, so that the same table is not sent again for every tick
        table = self._table(key, model, possible, likely, (tick, (tick // ahead + 2) * ahead), MOST_HELD)
        if table is not None:
            yield table

    def _table(
        self, key: _Key, model: MeasureModel, possible: Bools, likely: Bools, ticks: tuple[int, int], capacity: int
    ) -> TimedTable | None:
        """The table for some states, as it was made before or made now; none if the device has no room for it.

        So a device never has to give up a table that is still valid: it could not say which one it misses then.
        """
        policy = model.policy
        name = np.packbits(possible).tobytes() + np.packbits(likely).tobytes()
        if (key, policy.version, name) in self._failed_keys:
            return None
        store = self._store.points
        stream = self._store.number(*key)
        before = self._cached_tables.get((key, policy.version, name)) or store.table_for(stream, policy.version, name)
        if (before is None or before.number not in self._sent[key]) and len(self._sent[key]) >= capacity:
            return None
        if before is not None and before.until >= ticks[1]:
            self._remember((key, policy.version, name), before)
            return before
        if before is not None:
            number, noise = before.number, before.noise
        else:
            try:
                noise, added = make_noise(model, possible, likely)
            except (TableError, GraphError, FuguError) as error:
                if len(self._failed_keys) >= _MOST_REMEMBERED:
                    self._failed_keys.clear()
                self._failed_keys.add((key, policy.version, name))
                self._counters["tables_failed"] += 1
                _log.warning("%s/%s: no table for %d possible states: %s", *key, possible.sum(), error)
                return None
            if added:
                joined = ", ".join(f"{state} with {partner}" for state, partner in added[:5])
                _log.warning("exposure: %s/%s: states without a possible neighbour are hidden: %s", *key, joined)
            # Numbers follow the clock, so that a lost store repeats none.
            least = min(max(len(policy.measure_tables), self._now_us() // 1_000_000), _MOST_NUMBER)
            number = store.next_number(stream, policy.version, least)
            self._counters["tables_made"] += 1
        constraint = set_of(np.flatnonzero(possible).tolist())
        table = TimedTable(policy.version, number, constraint, ticks[0], ticks[1], noise)
        with self._store.transaction():
            store.put_table(stream, name, table)
        self._remember((key, policy.version, name), table)
        return table

    def _remember(self, name: tuple[_Key, int, bytes], table: TimedTable) -> None:
        if name not in self._cached_tables and len(self._cached_tables) >= _MOST_REMEMBERED:
            del self._cached_tables[next(iter(self._cached_tables))]
        self._cached_tables[name] = table
