"""Questions to processes of their own: every one is answered, whatever becomes of the process."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.sensors.source import ConfigError
from fugu.contract.errors import FuguError
from fugu.host.child import Answer, Child, run_forked
from tests.support.brokers import PATIENCE

pytestmark = pytest.mark.processes
MODULES = {
    "echo": "import json, sys\nprint(json.dumps({'said': sys.stdin.read(), 'to': sys.argv[1]}))",
    "sleeper": "import time\ntime.sleep(1000)",
    "deaf": "import os\nos._exit(0)",
}


def refuse() -> Answer:
    raise FuguError("not so")


def die() -> Answer:
    raise SystemExit


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Child, queue.Queue[Answer]]]:
    """Asks a module, of so many seconds; the child, and where its answer comes."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}_module.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def asked(name: str, question: bytes = b"", seconds: float = PATIENCE) -> tuple[Child, queue.Queue[Answer]]:
        answers: queue.Queue[Answer] = queue.Queue()
        child = Child(f"{name}_module", "the work", seconds, lambda event: event())
        child.ask(("me",), question, answers.put)
        return child, answers

    return asked


def test_a_question_of_any_size_is_answered(ask: Callable[..., tuple[Child, queue.Queue[Answer]]]) -> None:
    text = "x" * (1 << 21)
    _, answers = ask("echo", text.encode())
    assert answers.get(timeout=PATIENCE) == {"said": text, "to": "me"}


@pytest.mark.parametrize(
    ("module", "seconds", "detail"),
    [
        ("sleeper", 0.2, "the work took too long"),
        ("deaf", PATIENCE, "the work died"),
        ("none", PATIENCE, "the work died"),
    ],
)
def test_without_an_answer_it_is_said_why(
    ask: Callable[..., tuple[Child, queue.Queue[Answer]]], module: str, seconds: float, detail: str
) -> None:
    _, answers = ask(module, b"x" * (1 << 21), seconds)
    assert answers.get(timeout=PATIENCE)["detail"] == detail


def test_what_is_under_way_ends_with_its_child(ask: Callable[..., tuple[Child, queue.Queue[Answer]]]) -> None:
    child, answers = ask("sleeper")
    while answers.empty():
        child.close()
    assert answers.get()["detail"] == "the work died"
    child.close()


def test_a_fork_gives_what_its_work_returns() -> None:
    assert run_forked(lambda: {"plan": 1}, " while reading", ConfigError)() == {"plan": 1}


@pytest.mark.parametrize(
    ("work", "detail"),
    [
        (refuse, "not so"),
        (lambda: {"plan": 1 // 0}, "ZeroDivisionError while reading"),
        (die, "the check of the configuration died"),
    ],
)
def test_a_fork_says_why_its_work_has_failed(work: Callable[[], Answer], detail: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_forked(work, " while reading", ConfigError)()
    assert str(error.value) == detail
