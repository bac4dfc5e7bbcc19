"""Tests by several processes that are forks of one: all is imported and collected once, before them.

`pytest --workers 4`. Each takes the next of two lists whenever it is free. Half of the workers, or one more, begin with
tests that wait for brokers, browsers and databases, the others with those that compute. A worker whose list is at its
end goes on with the other. What they report is told by the process that forked them, as if it had run the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import select
import signal
import struct
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tests.support.brokers import WORKER

__all__ = ["run"]

_INDEX = struct.Struct("=H")
_LENGTH = struct.Struct("=I")
_LOOK_SECONDS = 1.0
"""After so long without a word it is seen whether a worker is still there: its children may hold its pipe."""


def run(session: pytest.Session, lists: tuple[Sequence[Sequence[pytest.Item]], ...], workers: int) -> None:
    """Run the pieces of two lists, each in one process from its first test to its last, and report what they are told.

    Raises:
        session.Interrupted: if the session is to stop, as after a first failure with `-x`.
    """
    pieces = [piece for some in lists for piece in some]
    queues, first = [], 0
    for some in lists:
        queues.append(_queue(range(first, first + len(some))))
        first += len(some)
    capturing: Any = session.config.pluginmanager.getplugin("capturemanager")
    session.config._tmp_path_factory.getbasetemp()
    capturing.stop_global_capturing()
    sys.stdout.flush()
    by_number: dict[int, _Worker] = {}
    for number in range(1, workers + 1):
        reading, writing = os.pipe()
        order = queues if number <= (workers + 1) // 2 else queues[::-1]
        if (process := os.fork()) == 0:
            for other in by_number:
                os.close(other)
            os.close(reading)
            _be(number, session, pieces, order, writing)
        os.close(writing)
        os.set_blocking(reading, False)
        by_number[reading] = _Worker(process)
    for queue in queues:
        os.close(queue)
    capturing.start_global_capturing()
    capturing.suspend_global_capture()
    try:
        if (ended := _listen(session, by_number)) < session.testscollected and not session.testsfailed:
            raise RuntimeError(f"{session.testscollected - ended} tests were collected and have not run")
    finally:
        for worker in by_number.values():
            _end(worker.process)
            os.waitpid(worker.process, 0)


def _end(process: int) -> None:
    """End a process, and then all that it has started, which would outlive it."""
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(process, signal.SIGSTOP)  # and starts no more
        started = [int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in _children(task)]
        os.kill(process, signal.SIGKILL)
        for worker in started:
            _end(worker)


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def _queue(numbers: Sequence[int]) -> int:
    """A pipe that holds numbers, which whoever reads takes out; it is at its end when all are."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_INDEX.pack, numbers)))
    os.close(writing)
    return reading


class _Worker:
    """A worker: its process, the part of a message that came last, and the test that it is in."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.heard = bytearray()
        self.test: tuple[str, tuple[str, int | None, str]] | None = None

    def messages(self, heard: bytes) -> Iterator[tuple[str, Any]]:
        self.heard += heard
        while len(self.heard) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.heard)[0]
            if len(self.heard) < end:
                return
            message: tuple[str, Any] = pickle.loads(self.heard[_LENGTH.size : end])
            del self.heard[:end]
            yield message


def _listen(session: pytest.Session, workers: dict[int, _Worker]) -> int:
    """Report until all workers have ended, whether or not their children hold their pipes; how many tests have run."""
    run = 0
    while workers:
        readable = select.select(list(workers), [], [], _LOOK_SECONDS)[0]
        for reading in readable or list(workers):
            worker = workers[reading]
            ended = None if readable else os.waitpid(worker.process, os.WNOHANG)
            heard = _read(reading)
            if ended is None and heard == b"":
                ended = os.waitpid(worker.process, 0)
            for kind, message in worker.messages(heard or b""):
                _tell(session, worker, kind, message)
                run += kind == "ends"
            if ended and ended[0]:
                os.close(reading)
                del workers[reading]
                if ended[1] or worker.test:
                    _report_end(session, worker, os.waitstatus_to_exitcode(ended[1]))
        for stop, error in ((session.shouldfail, session.Failed), (session.shouldstop, session.Interrupted)):
            if stop:
                raise error(stop)
    return run


def _read(reading: int) -> bytes | None:
    """Read a pipe: no bytes if it is at its end, None if there is nothing yet."""
    heard = b""
    with contextlib.suppress(BlockingIOError):
        while some := os.read(reading, 1 << 20):
            heard += some
        return heard
    return heard or None


def _tell(session: pytest.Session, worker: _Worker, kind: str, message: Any) -> None:
    """Tell the plugins of this process what a worker has told it."""
    config, hook = session.config, session.config.hook
    if kind == "begins":
        worker.test = message
        hook.pytest_runtest_logstart(nodeid=message[0], location=message[1])
    elif kind == "ends":
        worker.test = None
        for warning in message[2]:
            plain = isinstance(warning, dict)
            report = hook.pytest_report_from_serializable(config=config, data=warning) if plain else warning
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=message[0], location=message[1])
    else:
        text, file, line, when, nodeid = message
        seen = warnings.WarningMessage(text, UserWarning, file, line)
        fields = {"warning_message": seen, "when": when, "nodeid": nodeid, "location": None}
        hook.pytest_warning_recorded.call_historic(kwargs=fields)


def _report_end(session: pytest.Session, worker: _Worker, status: int) -> None:
    """A worker that has ended before its tests had is a failure, of the test that it was in if it was in one."""
    nodeid, location = worker.test or ("tests", ("tests", None, "workers"))
    text = f"its process has ended with status {status}; what it had still to run of its file has not run"
    report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


class _Teller:
    """The plugin of a worker: runs tests, and tells what came of them to the process that forked it."""

    def __init__(self, config: pytest.Config, writing: int) -> None:
        self._config = config
        self._writing = writing

    def tell(self, kind: str, message: Any) -> None:
        payload = pickle.dumps((kind, message))
        payload = _LENGTH.pack(len(payload)) + payload
        while payload:
            payload = payload[os.write(self._writing, payload) :]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        self.tell("begins", (item.nodeid, item.location))
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self.tell("ends", (item.nodeid, item.location, list(map(self._plain, reports))))
        return True

    def _plain(self, report: pytest.TestReport) -> Any:
        """As a pipe can take it: a report without an error is as it is, and most are."""
        if report.longrepr is None:
            return report
        return self._config.hook.pytest_report_to_serializable(config=self._config, report=report)

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self.tell("warning", (text, warning_message.filename, warning_message.lineno, when, nodeid))


def _be(
    number: int, session: pytest.Session, pieces: Sequence[Sequence[pytest.Item]], queues: list[int], writing: int
) -> NoReturn:
    """Be a worker until nothing is left to take."""
    os.environ[WORKER] = str(number)
    status = 1
    try:
        atexit._clear()
        plugins = session.config.pluginmanager
        for plugin in ("terminalreporter", "cacheprovider"):
            plugins.unregister(name=plugin)
        for plugin in [plugin for plugin in plugins.get_plugins() if type(plugin).__name__ in ("LogXML", "LFPlugin")]:
            plugins.unregister(plugin)
        plugins.register(_Teller(session.config, writing))
        capturing: Any = plugins.getplugin("capturemanager")
        capturing.start_global_capturing()
        capturing.suspend_global_capture()
        temporary: Any = session.config._tmp_path_factory
        temporary._basetemp = temporary.getbasetemp() / f"worker{number}"
        temporary._basetemp.mkdir(mode=0o700)
        gc.enable()
        for queue in queues:
            while taken := os.read(queue, _INDEX.size):
                piece = pieces[_INDEX.unpack(taken)[0]]
                for item, following in zip(piece, [*piece[1:], _Elsewhere(session)], strict=True):
                    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        session._setupstate.teardown_exact(None)
        status = 0
    except BaseException:
        faulthandler.dump_traceback()
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


class _Elsewhere:
    """Stands for the test after the last of a piece, which is not taken yet: only what is the session's own stays."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[Any]:
        return [self._session]
