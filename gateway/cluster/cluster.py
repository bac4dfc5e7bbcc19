"""The actors of a fleet in a Ray cluster, one on each node: found or made, watched, and stopped in order.

Actors have names in a namespace of the fleet, and belong to no process: they go on when the process that made them has
gone. Each actor looks for vacant parts of the fleet's gateway. It serves each part in a process of its own. That is
forked from a process that has loaded all that a gateway needs, never from the actor's own, which has Ray's threads.

A claim is a lease in the shards' channel, by a session that sends a query to the server twice a second. When a process
is killed, the server closes its session at once. When a process is frozen or cut off, its session is silent. So all
others notice both long before anything that asks the machines.

A claim only says who serves a part at present. The store keeps others from writing: the newest holder of its lease may
write. A mistaken claim on a living process's part costs that process the part, and the devices a few seconds.
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
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from math import ceil
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError, cause
from fugu.host.database import DatabaseError, FileLostError
from fugu.host.process import Notifier, Wake, at_stop_signals
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
_RENEWAL_SECONDS = 0.5
_SILENT_SECONDS = 5.0
_SURE_SECONDS = 2.0
_ORDER_SECONDS = 10.0
_AGAIN_SECONDS = 7.0
"""Longer than a gateway waits, at most, before it tries again to reach a server that was away."""


class Vacancies:
    """Looks for parts that no process serves; one thread uses it.

    A part is vacant if, at every look for two seconds, no session has a claim on it, or the session is silent. After
    the server was away, all sessions are gone, also those of living processes. Therefore no part is vacant for seven
    seconds. Raises FuguError if the channel cannot be opened.
    """

    def __init__(self, channel: Server, parts: Iterable[str]) -> None:
        self._lease_names = {part: _lease_of(part).name for part in parts}
        self._db = PostgresDatabase(channel, KIND, create=True)
        self._silences: dict[str, float] = {}
        self._not_before = float("-inf")

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def vacant_parts(self, now: float, grace: float = 0.0) -> list[str]:
        """Look once. Return the parts that have been vacant for two seconds and `grace` more.

        `now` is the time before the call, in seconds of a steady clock.
        """
        try:
            silence = self._db.silence(self._lease_names.values())
        except DatabaseError:
            self._silences, self._not_before = {}, now + _AGAIN_SECONDS
            return []
        self._silences = {
            part: self._silences.get(part, now)
            for part, lease_name in self._lease_names.items()
            if silence.get(lease_name, _SILENT_SECONDS) >= _SILENT_SECONDS
        }
        if now < self._not_before:
            return []
        return [part for part, since in self._silences.items() if now - since >= _SURE_SECONDS + grace]


class Claim:
    """A claim of this process on a part, until `close`. FuguError if another process has it, or without a server."""

    def __init__(self, channel: Server, part: str) -> None:
        self.part = part
        self._db = PostgresDatabase(channel, KIND, create=True, lease=_lease_of(part))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="claim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the claim back."""
        self._ending.set()
        self._thread.join()
        self._db.close()

    def _renew(self) -> None:
        """Send a query twice a second, until the claim is closed or lost; a lost claim is only logged."""
        while not self._ending.wait(_RENEWAL_SECONDS):
            try:
                self._db.check()
            except FileLostError:
                _log.warning("another process has claimed %s", self.part)
                return
            except DatabaseError:
                continue  # it is renewed when there is a connection again


def _lease_of(part: str) -> Lease:
    return Lease(f"part {part}", silent=_SILENT_SECONDS)


_SHARD = "shard-"
_FLEET = "fleet"
"""The part that a fleet has once."""


class PartJob(NamedTuple):
    """The arguments of all processes of a gateway in a cluster. Relative paths are in `folder` on every node."""

    settings: GatewayConfig
    shards: int
    folder: Path
    logs: LogSettings

    @property
    def channel(self) -> Server:
        """The location at which parts are claimed."""
        location = channel_of(self.settings.store)
        assert isinstance(location, Server)
        return location


def all_parts(shards: int) -> list[str]:
    """The names of the parts of a gateway with `shards` shards."""
    return [_FLEET, *(f"{_SHARD}{index}" for index in range(shards))]


def serve_part(job: PartJob, part: str, host: Connection) -> None:
    """Claim a part and serve it until SIGTERM, the end of its gateway, or the end of the host.

    Return at once if another process has the claim. Sends `host` an empty text when the gateway serves, or the reason
    why it cannot. After an error the process ends with code 1.
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
            exit_code = _serve_gateway(job, part, host, stop_event)
    except Exception as error:
        problem = cause(error)
        _log.critical("%s has ended: %s", part, problem)
        _send_text(host, problem)
        exit_code = 1
    if exit_code:
        sys.stderr.flush()
        os._exit(exit_code)  # its threads may hang


def _serve_gateway(job: PartJob, part: str, host: Connection, stop_event: Wake) -> int:
    """Serve a part until `stop_event` is set. Return the exit code."""
    settings = job.settings if part == _FLEET else job.settings.model_copy(update={"metrics": None})
    gateway = Gateway(settings, duty_of(settings, f"{part.removeprefix(_SHARD)}/{job.shards}"))

    def note_started() -> None:
        _log.info("%s has started", part)
        _send_text(host, "")

    return serve(gateway, stop_event, note_started, _stuck_check(gateway))


def _send_text(host: Connection, text: str) -> None:
    with suppress(OSError):  # the host is gone: a thread that waits for that ends this process
        host.send(text)


def _end_with_host(host: Connection, stop_event: Wake) -> None:
    """Wait for the end of the host, then end this process: in order, or after ten seconds by force."""
    with suppress(OSError):
        host.poll(None)  # nothing is ever sent here
    _log.critical("the process that has started this one is gone: this one ends")
    stop_event.set()
    time.sleep(_ORDER_SECONDS)
    os._exit(1)


def _stuck_check(gateway: Gateway) -> Callable[[], None]:
    """Return a check that ends the process if its gateway has not been alive for `STUCK_SECONDS`."""
    last_alive = time.monotonic()

    def check() -> None:
        nonlocal last_alive
        now = time.monotonic()
        if gateway.is_alive:
            last_alive = now
        elif now - last_alive > STUCK_SECONDS:
            _log.critical("the gateway has done nothing for %g s: its process ends", STUCK_SECONDS)
            os._exit(1)

    return check


_PAUSE_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_MORE_SECONDS = 1.0
_STOP_SECONDS = 20.0
_FORKS = multiprocessing.get_context("forkserver")
_LOADED = ["gateway.cluster.prepared", "ray"]  # each forked process reads the main module, which imports Ray


class State(NamedTuple):
    """The state of an actor.

    Attributes:
        ready: whether it can serve parts.
        parts: the ids of the processes of its parts, by name.
        problem: what is wrong, in a line; empty if nothing is.
    """

    ready: bool
    parts: dict[str, int]
    problem: str


def parts_served(states: Iterable[State]) -> dict[str, int]:
    """The parts that actors serve, with the ids of their processes."""
    return {part: process for state in states for part, process in state.parts.items()}


@dataclass(slots=True)
class _Worker:
    """A process that serves a part, is about to serve it, or has lost it and not noticed."""

    part: str
    process: BaseProcess
    pipe: Connection
    is_serving: bool = False


class HostActor:
    """The actor of a node. Ray makes it in a process of its own, and again with the same arguments when that has ended.

    An error in this constructor would end the actor for good, so a thread does the work. The actor takes up to `share`
    vacant parts, and further ones a second later, so that actors with fewer parts come first. It takes none before
    `begin`, unless Ray has started it again: there may be no process that would call `begin`.
    """

    def __init__(self, job: PartJob, share: int) -> None:
        import ray

        self._job = job
        self._share = share
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns of the way in which it finds that out
            self._may_take = bool(ray.get_runtime_context().was_current_actor_reconstructed)
        self._ready = False
        self._problem = ""
        self._workers: list[_Worker] = []
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Let the actor take parts from now on; called when all actors that share the parts are ready."""
        self._may_take = True

    def state(self) -> State:
        """The actor's state now."""
        process_of_part = {worker.part: worker.process.pid or 0 for worker in self._workers if worker.is_serving}
        return State(self._ready, process_of_part, self._problem)

    def rest(self) -> None:
        """Take no more parts, and stop the fleet's own part, if it is served here."""
        self._resting.set()
        self._thread.join()
        self._end_workers([worker for worker in self._workers if worker.part == _FLEET])

    def stop(self) -> None:
        """Stop all parts, which store and acknowledge what has arrived; called after `rest`."""
        self._end_workers(self._workers)

    def _run(self) -> None:
        """Look for vacant parts and serve them, until `rest`. After an error, end the process: Ray starts it again."""
        log_to_stderr(self._job.logs.log_format, verbose=self._job.logs.verbose)
        try:
            _FORKS.set_forkserver_preload(_LOADED)
            preload = _FORKS.Process(target=os.getpid)
            preload.start()
            preload.join()  # a process is forked only when all has been loaded
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
        """Start processes for vacant parts: for half of the free share, and for one part at least."""
        free_share = self._share - len({worker.part for worker in self._workers})
        part_names = vacancies.vacant_parts(time.monotonic(), 0.0 if free_share > 0 else _MORE_SECONDS)
        starting_parts = {worker.part for worker in self._workers if not worker.is_serving}
        part_names = [part for part in part_names if part not in starting_parts] if self._may_take else []
        start = os.getpid() % max(len(part_names), 1)  # so that actors that look at the same time take different parts
        for part in [*part_names[start:], *part_names[:start]][: max((free_share + 1) // 2, 1)]:
            near_end, far_end = _FORKS.Pipe()
            process = _FORKS.Process(target=serve_part, args=(self._job, part, far_end), name=part)
            process.start()
            far_end.close()  # so that reading fails once the process is gone
            self._workers.append(_Worker(part, process, near_end))

    def _read_workers(self) -> None:
        """Read the messages of the processes, and forget processes that have ended: others may take their parts."""
        for worker in self._workers:
            with suppress(EOFError, OSError):
                while worker.pipe.poll():
                    problem = worker.pipe.recv()
                    worker.is_serving = not problem
                    self._problem = f"{worker.part}: {problem}" if problem else ""
        self._workers = [worker for worker in self._workers if worker.process.is_alive()]

    def _end_workers(self, workers: list[_Worker]) -> None:
        """Stop processes, and kill those that do not end in time."""
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
"""Cores that an actor takes, as Ray counts them: a node that was started with no cores gets no actor."""


class Cluster:
    """The connection of a process to a Ray cluster at HOST:PORT or "auto". FuguError if there is no cluster."""

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
        """Find the fleet's actors, whichever process has made them."""
        for name in self._ray.util.list_named_actors():
            with suppress(ValueError):  # it has just ended
                self._actors.setdefault(name, self._ray.get_actor(name))

    @property
    def nodes(self) -> list[str]:
        """The ids of nodes that live and take actors."""
        return [node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]

    @property
    def names(self) -> list[str]:
        """The names of the actors that were found or made."""
        return sorted(self._actors)

    def make(self, node: str, suffix: str, job: PartJob, share: int) -> str:
        """Make an actor on a node for `share` parts. Return its name: the node's id, then `suffix`.

        Ray starts the actor again when its process has ended.
        """
        name = f"{node}{suffix}"
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        options: dict[str, Any] = {"lifetime": "detached", "max_restarts": -1, "scheduling_strategy": strategy}
        actor_class = self._ray.remote(HostActor).options(name=name, num_cpus=_CPUS, **options)
        self._actors[name] = actor_class.remote(job, share)
        return name

    def begin(self, actors: Iterable[str]) -> None:
        """Let actors take parts."""
        for actor in actors:
            self._actors[actor].begin.remote()

    def states(self) -> dict[str, State]:
        """The state of each actor that answers within two seconds, by name."""
        return self._answers("state", self.living_names(), _ANSWER_SECONDS)

    def stop(self, actors: Iterable[str]) -> None:
        """Stop the parts of actors in order, and end the actors' processes, also of actors that do not answer."""
        stopped_names = set(actors)
        running_names = stopped_names & set(self.living_names())
        for method in ("rest", "stop"):  # the fleet's own part stops first, so that it reports no shard missing
            answers = self._answers(method, running_names, _ORDERLY_SECONDS)
            for actor in running_names - answers.keys():
                _log.error("the actor %s does not answer: it is ended as it is", actor)
            running_names &= answers.keys()
        for actor in stopped_names:
            self._ray.kill(self._actors.pop(actor))

    def living_names(self) -> list[str]:
        """The names of the actors on nodes that live."""
        nodes = set(self.nodes)
        return [name for name in self._actors if name.partition("-")[0] in nodes]

    def _answers(self, method: str, actors: Iterable[str], seconds: float) -> dict[str, Any]:
        """Call a method of actors. Return the answers that come within `seconds`, by actor."""
        calls = {actor: getattr(self._actors[actor], method).remote() for actor in actors}
        answers = {}
        ready_calls = self._ray.wait([*calls.values()], num_returns=len(calls), timeout=seconds)[0] if calls else ()
        for actor, call in calls.items():
            if call in ready_calls:
                with suppress(self._ray.exceptions.RayError):
                    answers[actor] = self._ray.get(call)
        return answers


_ROUND_SECONDS = 1.0


def run_cluster(settings: GatewayConfig, shards: int, address: str, started: Callable[[], None] = lambda: None) -> int:
    """Serve a fleet by actors of a Ray cluster until SIGTERM or SIGINT, then stop them in order. Return the exit code.

    Earlier actors are kept if they were made with the same settings, and stopped otherwise. If this process is killed,
    the actors go on. `started` is called when all parts are served. Raises FuguError, a line on what keeps the gateway
    from starting; actors that were made are stopped then.
    """
    if shards > MOST_SHARDS:
        raise FuguError(f"{shards} shards: there are at most {MOST_SHARDS}")
    if not isinstance(settings.store, Server):
        raise FuguError(f"the store {settings.store.name} is a file: shards on several machines need a server")
    if isinstance(settings.ledger, Path):
        raise FuguError("a ledger in a file is on one machine: without --ledger it is on the store's server")
    job = PartJob(settings, shards, Path.cwd(), log_settings())
    suffix = f"-{hashlib.sha256(repr(job).encode()).hexdigest()[:8]}"
    parts = all_parts(shards)
    with closing(Cluster(address, settings.fleet)) as cluster:
        stop = Wake()
        at_stop_signals(stop.set)
        cluster.stop([name for name in cluster.names if not name.endswith(suffix)])
        if not cluster.nodes:
            _log.warning("no node of the cluster has cores: the gateway waits for one that has")
        while not (nodes := cluster.nodes) and not stop.wait(_ROUND_SECONDS):
            pass
        share = ceil(len(parts) / max(len(nodes), 1))
        actors = []
        try:
            for node in nodes:
                if f"{node}{suffix}" not in cluster.names:
                    actors.append(cluster.make(node, suffix, job, share))
            is_stopped = _wait(cluster, actors, lambda s: all(state.ready for state in s), stop)
            cluster.begin(cluster.names)
            is_stopped = is_stopped or _wait(cluster, actors, lambda s: parts_served(s).keys() >= set(parts), stop)
        except BaseException:
            cluster.stop(actors)
            raise
        if not is_stopped:
            _log.info("all parts of the gateway of fleet %s have started", settings.fleet)
            started()
            _watch_parts(cluster, lambda node: cluster.make(node, suffix, job, share), stop)
        cluster.stop(cluster.names)
    return 0


def _wait(cluster: Cluster, names: Iterable[str], is_enough: Callable[[Collection[State]], bool], stop: Wake) -> bool:
    """Wait until all actors of living nodes answer and `is_enough` holds for their states. Return if `stop` was set.

    Raises FuguError, an actor's problem, if one of the actors `names` has one.
    """
    while True:
        states = cluster.states()
        for name in names:
            if name in states and states[name].problem:
                raise FuguError(states[name].problem)
        if len(states) >= len(cluster.living_names()) > 0 and is_enough(states.values()):
            return False
        if stop.wait(_ROUND_SECONDS):
            return True


def _watch_parts(cluster: Cluster, make: Callable[[str], str], stop_event: Wake) -> None:
    """Log which parts were started again, and make actors on new nodes, until `stop_event` is set."""
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
