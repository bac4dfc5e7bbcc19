"""The actors of a fleet in a Ray cluster, one on each node: found or made, looked at, and stopped in order.

They have names in a namespace of the fleet, and belong to nobody: they go on when the process that made them has gone.
Each looks for parts of the fleet's gateway that nobody has. It serves each in a process forked from one that has loaded
all that a gateway needs; never from its own, with Ray's threads.

A claim is a lease in the shards' channel, by a session that says something to the server twice a second. When a process
is killed the server closes its session at once; when it is frozen or cut off, its session is silent. So all others see
both long before anything that asks machines how they are.

A claim only says who has a part at present. The store keeps others from writing: its newest holder has it. A claim on
what a living process has, by mistake, costs that process its part and the devices a few seconds.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import ceil
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError, cause
from fugu.host.database import DatabaseError, FileLostError
from fugu.host.process import Notifier, Wake
from fugu.host.terminal import LogSettings, log_settings, log_to_stderr
from gateway.cluster.duties import duty_of
from gateway.cluster.shard_watch import KIND, channel_of
from gateway.config import GatewayConfig
from gateway.loop.gateway import STUCK_SECONDS, Gateway
from gateway.loop.process import serve
from gateway.store.engine import Lease
from gateway.store.location import Server
from gateway.store.postgresql import PostgresDatabase
from gateway.store.shards import MOST_SHARDS

__all__ = ["Vacancies", "run_cluster", "serve_part"]


_log = logging.getLogger(__name__)
_SAY_SECONDS = 0.5
_SILENT_SECONDS = 5.0
_SURE_SECONDS = 2.0
_ORDER_SECONDS = 10.0
_AGAIN_SECONDS = 7.0
"""More than what a gateway waits at most before it tries again to reach a server that was away."""


class Vacancies:
    """Looks for parts that nobody has; one thread uses it.

    A part is vacant if nobody has a claim on it, or who has one says nothing, at every look for two seconds. After the
    server was away all sessions are gone, also of those that live: then nothing is vacant for a while. Raises FuguError
    if the channel cannot be opened.
    """

    def __init__(self, channel: Server, parts: Sequence[str]) -> None:
        self._parts = parts
        self._db = PostgresDatabase(channel, KIND, create=True)
        self._silences: dict[str, float] = {}
        self._not_before = float("-inf")

    def close(self) -> None:
        """Look no more."""
        self._db.close()

    def look(self, now: float, grace: float = 0.0) -> list[str]:
        """Look once; the parts vacant `grace` seconds beyond the usual. `now`, by a steady clock, is from before."""
        try:
            silence = self._db.silence([_lease_of(p).name for p in self._parts])
        except DatabaseError:
            self._silences, self._not_before = {}, now + _AGAIN_SECONDS
            return []
        silent_parts = [p for p in self._parts if silence.get(_lease_of(p).name, _SILENT_SECONDS) >= _SILENT_SECONDS]
        self._silences = {p: self._silences.get(p, now) for p in silent_parts}
        return [p for p in silent_parts if now - self._silences[p] >= _SURE_SECONDS + grace and now >= self._not_before]


class Claim:
    """That this process has a part, until it ends. Raises FuguError: another has it, or no server."""

    def __init__(self, channel: Server, part: str) -> None:
        self.part = part
        self._db = PostgresDatabase(channel, KIND, create=True, lease=_lease_of(part))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._say, name="claim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give it back."""
        self._ending.set()
        self._thread.join()
        self._db.close()

    def _say(self) -> None:
        while not self._ending.wait(_SAY_SECONDS):
            try:
                self._db.check()
            except FileLostError:
                _log.warning("another process has claimed %s", self.part)
                return
            except DatabaseError:
                continue  # it says so again when there is a connection


def _lease_of(part: str) -> Lease:
    return Lease(f"part {part}", silent=_SILENT_SECONDS)


_SHARD = "shard-"
_FLEET = "fleet"
"""The part that a fleet has once."""


class PartJob(NamedTuple):
    """Common arguments of all processes of a gateway in a cluster; paths are relative to `folder` on every node."""

    settings: GatewayConfig
    shards: int
    folder: Path
    logs: LogSettings

    @property
    def channel(self) -> Server:
        """Where parts are claimed."""
        location = channel_of(self.settings.store)
        assert isinstance(location, Server)
        return location


def all_parts(shards: int) -> list[str]:
    """The names of the parts that a fleet's gateway has."""
    return [_FLEET, *(f"{_SHARD}{index}" for index in range(shards))]


def serve_part(job: PartJob, part: str, host: Connection) -> None:
    """Claim a part and serve it until SIGTERM, or its gateway ends, or the host is gone; then end the process.

    `host` is sent an empty text when the gateway serves, or why it cannot.
    """
    log_to_stderr(job.logs.log_format, verbose=job.logs.verbose)
    stop_event = Wake()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop_event.set())
    threading.Thread(target=_end_with_host, args=(host, stop_event), name="host", daemon=True).start()
    try:
        claim = Claim(job.channel, part)
    except FuguError:
        return  # another process was faster
    try:
        _log.info("%s is claimed", part)
        os.chdir(job.folder)
        with closing(claim):
            code = _serve_gateway(job, part, host, stop_event)
    except Exception as error:
        problem = cause(error)
        _log.critical("%s has ended: %s", part, problem)
        _send_text(host, problem)
        code = 1
    if code:
        sys.stderr.flush()
        os._exit(code)  # whatever its threads do


def _serve_gateway(job: PartJob, part: str, host: Connection, stop_event: Wake) -> int:
    settings = job.settings if part == _FLEET else job.settings.model_copy(update={"metrics": None})
    gateway = Gateway(settings, duty_of(settings, f"{part.removeprefix(_SHARD)}/{job.shards}"))

    def started() -> None:
        _log.info("%s has started", part)
        _send_text(host, "")

    return serve(gateway, stop_event, started, _stuck_check(gateway))


def _send_text(host: Connection, text: str) -> None:
    with suppress(OSError):  # it is gone: who waits for that ends this process
        host.send(text)


def _end_with_host(host: Connection, stop_event: Wake) -> None:
    """End this process when its host has: in order, or after a while whatever it does, a start that hangs, too."""
    with suppress(OSError):
        host.poll(None)  # nothing is ever sent here
    _log.critical("the process that has started this one is gone: this one ends")
    stop_event.set()
    time.sleep(_ORDER_SECONDS)
    os._exit(1)


def _stuck_check(gateway: Gateway) -> Callable[[], None]:
    """A look at a gateway: one that has done nothing of late cannot be stopped: its process ends at once."""
    last_alive = time.monotonic()

    def turn() -> None:
        nonlocal last_alive
        now = time.monotonic()
        if gateway.is_alive:
            last_alive = now
        elif now - last_alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)

    return turn


_PAUSE_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_MORE_SECONDS = 1.0
_STOP_SECONDS = 20.0
_LOADED = ["gateway.cluster.prepared", "ray"]  # each forked process reads the main module, which imports Ray


class State(NamedTuple):
    """How an actor is: whether it can serve, the processes of its parts by name, and in a line what is wrong."""

    ready: bool
    parts: dict[str, int]
    problem: str


def parts_served(states: Iterable[State]) -> dict[str, int]:
    """The parts that actors serve, and their processes."""
    return {part: process for state in states for part, process in state.parts.items()}


@dataclass(slots=True)
class _Worker:
    """A process that serves a part, is about to, or has lost it and will find that out."""

    part: str
    process: BaseProcess
    pipe: Connection
    is_serving: bool = False


class HostActor:
    """Ray makes it in a process of its own, and again, with the same arguments, where that process has ended.

    An error in this constructor would end the actor for good: what works is a thread. It takes `share` parts before it
    leaves others to those who have less, for a second. It may take parts after `begin`, or at once where Ray has
    started it again: nobody may be there to tell it to begin.
    """

    def __init__(self, job: PartJob, share: int) -> None:
        import ray

        self._job = job
        self._share = share
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of how it finds that out
            self._may_take = bool(ray.get_runtime_context().was_current_actor_reconstructed)
        self._ready = False
        self._problem = ""
        self._workers: list[_Worker] = []
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Take parts from now on: those who share them are ready."""
        self._may_take = True

    def state(self) -> State:
        """How it is now."""
        process_of_part = {worker.part: worker.process.pid or 0 for worker in self._workers if worker.is_serving}
        return State(self._ready, process_of_part, self._problem)

    def rest(self) -> None:
        """Take no more parts, and end what the fleet has once."""
        self._resting.set()
        self._thread.join()
        self._end_workers([worker for worker in self._workers if worker.part == _FLEET])

    def stop(self) -> None:
        """Store and acknowledge what has arrived; after `rest`."""
        self._end_workers(self._workers)

    def _run(self) -> None:
        log_to_stderr(self._job.logs.log_format, verbose=self._job.logs.verbose)
        try:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(_LOADED)
            preload = context.Process(target=os.getpid)
            preload.start()
            preload.join()  # it is forked when all has been loaded
            with closing(Vacancies(self._job.channel, all_parts(self._job.shards))) as vacancies:
                while not self._resting.wait(_LOOK_SECONDS):
                    self._read_workers()
                    self._take_parts(vacancies)
                    self._ready = True
        except Exception as error:
            self._problem = cause(error)
            _log.critical("it cannot serve: %s", self._problem)
            self._resting.wait(_PAUSE_SECONDS)
            if not self._resting.is_set():
                os._exit(1)  # Ray starts it again

    def _take_parts(self, vacancies: Vacancies) -> None:
        open_share = self._share - len({worker.part for worker in self._workers})
        part_names = vacancies.look(time.monotonic(), 0.0 if open_share > 0 else _MORE_SECONDS)
        starting_parts = {worker.part for worker in self._workers if not worker.is_serving}
        part_names = [part for part in part_names if part not in starting_parts] if self._may_take else []
        start = os.getpid() % max(len(part_names), 1)  # so that those who look at the same time want different ones
        context = multiprocessing.get_context("forkserver")
        for part in [*part_names[start:], *part_names[:start]][: max((open_share + 1) // 2, 1)]:
            near_end, far_end = context.Pipe()
            process = context.Process(target=serve_part, args=(self._job, part, far_end), name=part)
            process.start()
            far_end.close()  # so that its end is seen when it is gone
            self._workers.append(_Worker(part, process, near_end))

    def _read_workers(self) -> None:
        """Take note of what the processes say, and of those that have ended: others may take their parts."""
        for worker in self._workers:
            with suppress(EOFError, OSError):
                while worker.pipe.poll():
                    problem = worker.pipe.recv()
                    worker.is_serving = not problem
                    self._problem = f"{worker.part}: {problem}" if problem else ""
        self._workers = [worker for worker in self._workers if worker.process.is_alive()]

    def _end_workers(self, workers: list[_Worker]) -> None:
        for ending_worker in workers:
            ending_worker.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in workers:
            worker.process.join(max(deadline - time.monotonic(), 0.0))
            if worker.process.is_alive():
                _log.error("%s does not stop: it is killed", worker.part)
                worker.process.kill()
        self._workers = [worker for worker in self._workers if worker.process.is_alive()]


_ANSWER_SECONDS = 2.0
_ORDERLY_SECONDS = 60.0
_CPUS = 0.001
"""Of a node's cores, as Ray counts them: a node that was started with none gets no actor."""


class Cluster:
    """A connection, one in a process, to a Ray cluster at HOST:PORT or "auto". FuguError if there is none."""

    def __init__(self, address: str, fleet: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to its makers
        import ray
        import ray.util.scheduling_strategies

        self._ray: Any = ray
        try:
            ray.init(address=address, namespace=f"fugu-{fleet}", log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise FuguError(f"no Ray cluster at {address}: {str(error).partition(chr(10))[0]}") from None
        self._actors: dict[str, Any] = {}
        self.find()

    def close(self) -> None:
        """Disconnect; the actors go on."""
        self._ray.shutdown()

    def find(self) -> None:
        """Find the actors that there are, also those that another process has made by now."""
        for name in self._ray.util.list_named_actors():
            with suppress(ValueError):  # it has just ended
                self._actors.setdefault(name, self._ray.get_actor(name))

    @property
    def nodes(self) -> list[str]:
        """Those that live and take actors."""
        return [node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]

    @property
    def names(self) -> list[str]:
        """The actors that are known."""
        return sorted(self._actors)

    def make(self, node: str, mark: str, job: PartJob, share: int) -> str:
        """Make an actor for `share` parts, named by node and `mark`; Ray starts it again when its process has ended."""
        name = f"{node}{mark}"
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        options: dict[str, Any] = {"lifetime": "detached", "max_restarts": -1, "scheduling_strategy": strategy}
        actor_class = self._ray.remote(HostActor).options(name=name, num_cpus=_CPUS, **options)
        self._actors[name] = actor_class.remote(job, share)
        return name

    def begin(self, names: Iterable[str]) -> None:
        """Let actors take parts."""
        for name in names:
            self._actors[name].begin.remote()

    def states(self) -> dict[str, State]:
        """How each actor is that answers: one that is being started again does not, nor does one that is cut off."""
        return self._answers("state", self._living_names(), _ANSWER_SECONDS)

    def stop(self, names: Iterable[str]) -> None:
        """Stop actors in order, and what they serve, and end their processes."""
        stopped_names = set(names)
        running_names = stopped_names & set(self._living_names())
        for step in ("rest", "stop"):  # what the fleet has once is first, so that it misses no shard
            answers = self._answers(step, running_names, _ORDERLY_SECONDS)
            for name in running_names - answers.keys():
                _log.error("the actor %s does not answer: it is ended as it is", name)
            running_names &= answers.keys()
        for name in stopped_names:
            self._ray.kill(self._actors.pop(name))

    def _living_names(self) -> list[str]:
        nodes = set(self.nodes)
        return [name for name in self._actors if name.partition("-")[0] in nodes]

    def _answers(self, method: str, names: Iterable[str], seconds: float) -> dict[str, Any]:
        calls = {name: getattr(self._actors[name], method).remote() for name in names}
        answers: dict[str, Any] = {}
        ready = self._ray.wait([*calls.values()], num_returns=len(calls), timeout=seconds)[0] if calls else ()
        for name, call in calls.items():
            if call in ready:
                with suppress(self._ray.exceptions.RayError):
                    answers[name] = self._ray.get(call)
        return answers


_ROUND_SECONDS = 1.0


def run_cluster(settings: GatewayConfig, shards: int, address: str, started: Callable[[], None] = lambda: None) -> int:
    """Serve a fleet by actors of a Ray cluster until SIGTERM or SIGINT, then stop them in order; the exit code.

    The store of the `shards` is on a server. Actors that go on from before are kept if they were made
    with the same settings, and stopped otherwise. If this process is killed, they go on. `started` is called when all
    serve. Raises FuguError, a line on what keeps the gateway from starting; no actor that was made is left.
    """
    if shards > MOST_SHARDS:
        raise FuguError(f"{shards} shards: there are at most {MOST_SHARDS}")
    if not isinstance(settings.store, Server):
        raise FuguError(f"the store {settings.store.name} is a file: shards on several machines need a server")
    if isinstance(settings.ledger, Path):
        raise FuguError("a ledger in a file is on one machine: without --ledger it is on the store's server")
    job = PartJob(settings, shards, Path.cwd(), log_settings())
    mark = f"-{hashlib.sha256(repr(job).encode()).hexdigest()[:8]}"
    parts = all_parts(shards)
    with closing(Cluster(address, settings.fleet)) as cluster:
        stop = Wake()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, lambda _number, _frame: stop.set())
        cluster.stop([name for name in cluster.names if not name.endswith(mark)])
        nodes = cluster.nodes
        share = ceil(len(parts) / max(len(nodes), 1))
        actors = [cluster.make(node, mark, job, share) for node in nodes if f"{node}{mark}" not in cluster.names]
        try:
            is_stopped = _wait(cluster, actors, lambda s: all(state.ready for state in s), stop)
            cluster.begin(cluster.names)
            is_stopped = is_stopped or _wait(cluster, actors, lambda s: parts_served(s).keys() >= set(parts), stop)
        except BaseException:
            cluster.stop(actors)
            raise
        if not is_stopped:
            _log.info("all parts of the gateway of fleet %s have started", settings.fleet)
            started()
            _watch_parts(cluster, lambda node: cluster.make(node, mark, job, share), stop)
        cluster.stop(cluster.names)
    return 0


def _wait(cluster: Cluster, names: Iterable[str], is_enough: Callable[[Collection[State]], bool], stop: Wake) -> bool:
    """Wait for all nodes' actors; whether that is not wanted any more. Raises FuguError if one cannot serve."""
    while True:
        states = cluster.states()
        for name in names:
            if name in states and states[name].problem:
                raise FuguError(states[name].problem)
        if len(states) >= len(cluster.nodes) > 0 and is_enough(states.values()):
            return False
        if stop.wait(_ROUND_SECONDS):
            return True


def _watch_parts(cluster: Cluster, make: Callable[[str], str], stop_event: Wake) -> None:
    """Say which parts have other processes now, and make actors on new nodes, until that is not wanted any more."""
    notifier = Notifier.of_process()
    notifier.ready()
    processes: dict[str, int] = {}
    problems: set[str] = set()
    while not stop_event.wait(_ROUND_SECONDS):
        notifier.alive(time.monotonic())
        hosting_nodes = {name.partition("-")[0] for name in cluster.names}
        cluster.begin([make(node) for node in cluster.nodes if node not in hosting_nodes])
        states = cluster.states().values()
        for part, process in parts_served(states).items():
            if processes.get(part, process) != process:
                _log.warning("%s was started again", part)
            processes[part] = process
        for problem in {state.problem for state in states} - problems - {""}:
            _log.error("a part cannot start: %s", problem)
        problems = {state.problem for state in states}
    notifier.stopping()
