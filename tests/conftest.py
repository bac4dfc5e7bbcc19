"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, settings

from tests.support import compiling, forks, workers
from tests.support.brokers import PATIENCE, WORKER, Mosquitto
from tests.support.soak import LEFT_OUT, list_all, note

if TYPE_CHECKING:
    from gateway.store.location import Location, Server
    from tests.support.command import Fugu
    from tests.support.postgres import Postgres

# The same examples in every run: a test that fails by chance is worse than one that finds its bug a day later.
# How long one takes says nothing about the code: the machine may be busy.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# Threads for small matrices, and for memory that tables of pandas leave, get into the way of other tests and of forks.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

_LOG_CHARACTERS = 8000
_MEMORY, _GIGABYTES = Path("/dev/shm"), 4
SERVERS = {"broker", "fleet", "written", "postgres"}
"""Fixtures that are processes."""


def pytest_configure() -> None:
    """Thousands of tests are made once and stay: looking for garbage among them takes as long as many of them run.

    Processes say where they are when they are aborted. Their files are in memory: what they survive is the end of
    processes, not of the machine. To wait until a disk has them is most of what agents and gateways do.
    """
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"], tempfile.tempdir = str(_MEMORY), None
    gc.disable()
    os.environ["PYTHONFAULTHANDLER"] = "1"


def _has_room(folder: Path) -> bool:
    """True if programs may be there, and gigabytes."""
    if not os.access(folder, os.W_OK):
        return False
    there, memory = os.statvfs(folder), re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    free = min(there.f_bavail * there.f_frsize, int(memory[1]) << 10 if memory else 0)
    return free > _GIGABYTES << 30 and not there.f_flag & os.ST_NOEXEC


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember tests of `make soak`: each has a row in its list."""
    for item in items:
        if item.get_closest_marker("soak"):
            item.config.stash.setdefault(LEFT_OUT, set()).add(item.nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage is what tests leave; what is compiled is known now. The soak's list has all of its tests."""
    option, source = session.config.option, session.config.args_source
    if option.markexpr == "soak" and not option.keyword and source is not pytest.Config.ArgsSource.ARGS:
        list_all(item.nodeid for item in session.items)
    compiling.take_turns()
    gc.freeze()
    gc.enable()


_LONGEST = ("tests/system/test_installed.py", "tests/system/faults/", "tests/docs/test_documents.py")
_WAIT = ("tests/system/", _LONGEST[-1])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all left out, as `make quick` leaves out those with processes: that takes long.

    They have a mark of the file's, or each has one of its own, or asks for what needs a broker.
    """
    expression: str = config.option.markexpr
    if not re.fullmatch(r"not \w+( and not \w+)*", expression) or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text()
    marks = set(re.findall(r"^pytestmark = pytest\.mark\.(\w+)$", text, re.MULTILINE))
    if re.search(r"^import subprocess$", text, re.MULTILINE):
        marks.add("processes")
    left_out = set(re.findall(r"not (\w+)", expression))
    return True if marks & left_out or ((each := _marks(text)) and all(own & left_out for own in each)) else None


def _marks(text: str) -> list[set[str]]:
    """For each test of a file, as far as its lines say it; nothing of a file that makes tests in another way."""
    before, *tests = re.split(r"^def test_", text, flags=re.MULTILINE)
    names = []
    for test in tests if "TestCase" not in text else ():
        asked = set(re.findall(r"(\w+):", test.partition("->")[0]))
        own = re.findall(r"^@pytest\.mark\.(\w+)$", before.rpartition("\n\n\n")[2], re.MULTILINE)
        names.append({*own, *(["processes"] if asked & SERVERS else [])})
        before = test
    return names


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a broker or other processes: by their fixtures, and by what their modules import."""
    for item in items:
        assert isinstance(item, pytest.Function)  # there are no doctests
        if SERVERS & set(item.fixturenames) or _starts_processes(item.module.__name__):
            item.add_marker("processes")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many processes run tests."""
    parser.addoption("--workers", type=int, default=1, help="run tests in as many processes, forks of this one")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Deal the tests to several processes if that is asked for."""
    option = session.config.option
    if option.workers == 1 or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    if any(function.get_closest_marker("processes") for function in session.items):
        forks.server()
    if any("postgres" in cast(pytest.Function, function).fixturenames for function in session.items):
        _postgres()
    workers.run(session, _lists(session.items), option.workers)
    return True


def _lists(items: list[pytest.Item]) -> tuple[list[list[pytest.Item]], list[list[pytest.Item]]]:
    """Pieces of tests that wait, and of those that compute: what takes longest is first.

    A file is a piece, as its fixtures are made once, but of those that wait each is one if none of its fixtures is the
    file's.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting, long, short = [], [], []
    for some in files.values():
        marked = sum(function.get_closest_marker("long") is not None for function in some)
        if some[0].nodeid.startswith(_WAIT):
            waiting += [[function] for function in some] if not any(map(_of_its_file, some)) else [some]
        elif marked and any(function.get_closest_marker("processes") for function in some):
            waiting.append(some)
        else:
            (long if marked else short).append(some)
    waiting.sort(key=lambda some: [not some[0].nodeid.startswith(first) for first in (_LONGEST, _WAIT)])
    return waiting, long + short


def _of_its_file(item: pytest.Item) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs
    return any(
        fixture.scope in ("module", "class", "package") for definitions in fixtures.values() for fixture in definitions
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let programs be forks of one that has imported them, but in tests of what they import, or how much they hold."""
    subprocess.Popen = forks.REAL if item.get_closest_marker("fresh") else forks.Popen
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its processes printed at last, and where they are: the machine may be gone soon."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for child in _children():
            _abort(child)
        for folder in (thing for thing in item.funcargs.values() if isinstance(thing, Path)):
            for log in sorted(folder.rglob("*.log")):
                report.sections.append(
                    (str(log.relative_to(folder)), log.read_text(errors="replace")[-_LOG_CHARACTERS:])
                )
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep when a soak test ran, and on what: `make soak` takes hours, and is run in parts.

    A worker tells the process that forked it, which alone writes: two at once have lost rows of others.
    """
    note(report)


@cache
def _starts_processes(name: str) -> bool:
    """True if a module holds `subprocess`, or a class whose own module does, through any number of helpers' modules."""
    held = list(vars(sys.modules[name]).values())
    if any(thing is subprocess for thing in held):
        return True
    classes = {base.__module__ for thing in held if isinstance(thing, type) for base in thing.__mro__}
    helpers = {helper for helper in classes - {name} if helper.startswith(("tests.", "firmware_sim."))}
    return name.startswith("tests.") and any(map(_starts_processes, helpers))


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    """A test leaves agents, gateways and connections behind, above all if it fails half-way; they end here.

    A gateway in this process has had kernels compiled beside its work: those of later tests would begin as plain ones.
    """
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("paho-mqtt-client-") and (target := vars(thread).get("_target")):  # none at its end
            target.__self__.disconnect()
    for child in _children():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, signal.SIGKILL)
    if (kernels := sys.modules.get("fugu.chains.kernel")) is not None:
        kernels.compile_in_background(None)


def _children() -> list[int]:
    """The processes that this one has started, but for the server of forks."""
    children: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            children += map(int, (task / "children").read_text().split())
    return [child for child in children if child != forks.server_process()] + forks.running()


def _abort(process: int) -> None:
    """End a process if it is one of Python, which writes first where it is, and wait until it has."""
    with contextlib.suppress(OSError):  # it has just ended
        if "python" not in str(Path(f"/proc/{process}/exe").readlink()):
            return
        ended = os.pidfd_open(process)
        os.kill(process, signal.SIGABRT)
        select.select([ended], [], [], PATIENCE)
        os.close(ended)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder that is not in memory, for a test of what is on a disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@cache
def _postgres() -> Postgres:
    """A running PostgreSQL, which ends with this process and those that were forked after this was called."""
    from tests.support.postgres import Postgres

    return Postgres().start()


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """A database of this process's own on a running PostgreSQL: each test takes a schema of it."""
    return _postgres().database(f"worker{os.environ.get(WORKER, '0')}")


@pytest.fixture
def server(postgres: Postgres) -> Server:
    """A schema of its own on a running PostgreSQL, with nothing in it."""
    return postgres.fresh()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where a new store may be: in a file, and on a server."""
    if request.param == "sqlite":
        return tmp_path / "s.sqlite"
    return request.getfixturevalue("server")


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A running Mosquitto that anybody may use."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with Mosquitto(folder) as running:
        yield running


@pytest.fixture
def fugu(capsys: pytest.CaptureFixture[str]) -> Fugu:
    """Run a command in this process."""
    from tests.support.command import runner

    return runner(capsys)


@pytest.fixture(scope="module")
def planned_once() -> Iterator[None]:
    """The same readings, question and seed are planned once for all commands and calls of a module."""
    from tests.support.plans import remembered_plans

    with remembered_plans():
        yield
