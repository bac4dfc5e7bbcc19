"""From the same readings and the same random words come the same states, symbols and noise, byte for byte, for ever."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Literal

import pytest

from firmware_sim.build import BOARD, Burnt, build, enrol
from fugu.contract.compiler import compile_board_policy
from fugu.contract.windows import Window
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython
from tests.support.clocks import SECOND
from tests.support.device_claims import CLAIMS, FEW_OF, claiming, claims_digest, lowest_rungs
from tests.support.device_documents import (
    DOCUMENTS,
    FEW_DOCUMENTS,
    MANY_DOCUMENTS,
    OWN,
    enrolment,
    sent,
    verdicts,
    verdicts_digest,
)
from tests.support.device_histories import HISTORIES, LONG, NOW, SHORT, history_digests, steps
from tests.support.device_net import CASES, FEW, GOLDEN, MANY, agent_digest, board_lines

DIGESTS: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text())
MINUTE = Window(name="minute", length=60, stride=60, states=(1,), scale="20")
MORE = Window(name="more", length=90, stride=90, states=(1,), scale="20")
FAR = ("frames of 4096 ticks", "hysteresis and windows", "places", "profile of the day", "running mean", "windows only")
"""Cases in which something comes after thousands of ticks only."""
BOARDS = [name for name, case in CASES.items() if case.board]


def _on_cpython(script: str, *words: object) -> str:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BOARD, BOARD.parents[1])))}
    command = [sys.executable, str(SUPPORT / script), *map(str, words)]
    return subprocess.run(command, env=path, capture_output=True, text=True, check=True).stdout


def _on_micropython(script: str, *words: object) -> str:
    return micropython(SUPPORT / script, *words, heap="256k")


Interpreter = Literal["CPython", "MicroPython"]
INTERPRETERS: dict[Interpreter, Callable[..., str]] = {"CPython": _on_cpython, "MicroPython": _on_micropython}


def test_every_case_has_its_digests() -> None:
    assert list(DIGESTS) == [*CASES, *HISTORIES, *CLAIMS, DOCUMENTS]
    assert MANY * len(CASES) + LONG * len(HISTORIES) > 10**6


@pytest.mark.parametrize(
    ("name", "count"),
    [*((name, FEW) for name in CASES), *(pytest.param(name, MANY, marks=pytest.mark.soak) for name in FAR)],
)
def test_an_agent_draws_what_it_always_drew(name: str, count: int, tmp_path: Path) -> None:
    assert agent_digest(name, count, tmp_path) == DIGESTS[name][str(count)]


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_an_agents_ticks_and_windows_come_through_jumps_and_restarts_as_they_did(
    name: str, count: int, tmp_path: Path
) -> None:
    assert " ".join(history_digests(name, count, tmp_path)) == DIGESTS[name][str(count)]


@pytest.mark.parametrize("each", [FEW_OF, pytest.param(1, marks=pytest.mark.soak)])
def test_an_agent_accepts_the_claims_that_it_always_accepted(each: int) -> None:
    for name in CLAIMS:
        assert claims_digest(lowest_rungs(name, each)) == DIGESTS[name][str(each)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("interpreter", "count"), [*product(INTERPRETERS, [FEW]), pytest.param("MicroPython", MANY, marks=pytest.mark.soak)]
)
def test_a_board_draws_what_an_agent_draws(interpreter: Interpreter, count: int, tmp_path: Path) -> None:
    with (tmp_path / "cases").open("w") as lines:
        for name in BOARDS:
            compiled = compile_board_policy(CASES[name].policy, CASES[name].unit)
            lines.writelines(f"{line}\n" for line in board_lines(name, count, compiled))
    printed = INTERPRETERS[interpreter]("board_net.py", tmp_path / "cases")
    drawn = dict(reversed(line.split(" ", 1)) for line in printed.splitlines())
    assert drawn == {name: DIGESTS[name][str(count)] for name in BOARDS}


@pytest.mark.long
@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_board_accepts_the_claims_that_an_agent_accepts_and_none_below(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    rungs = lowest_rungs("claims", FEW_OF)
    assert claims_digest(rungs) == DIGESTS["claims"][str(FEW_OF)]
    proven = [(policy, rung) for policy, rung in rungs if rung >= 0]
    with (tmp_path / "claims").open("w") as lines:
        for policy, rung in proven:
            lines.writelines(f"{compile_board_policy(claiming(policy, at)).hex()}\n" for at in (rung, rung + 1))
    printed = INTERPRETERS[interpreter]("board_claims.py", tmp_path / "claims")
    assert printed.split() == ["accepted", "refused"] * len(proven)
    assert len(proven) > len(rungs) * 3 // 4


SOME = [FEW_DOCUMENTS, pytest.param(MANY_DOCUMENTS, marks=pytest.mark.soak)]


@pytest.mark.long
@pytest.mark.parametrize("count", SOME)
def test_an_agent_says_of_documents_what_it_always_said(count: int) -> None:
    lines = list(verdicts(count))
    assert verdicts_digest(iter(lines)) == DIGESTS[DOCUMENTS][str(count)]
    assert len({line.split()[1] for line in lines}) > 10, "reasons"


@pytest.mark.long
@pytest.mark.parametrize("count", SOME)
@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_a_board_says_of_documents_what_an_agent_says(interpreter: Interpreter, count: int, tmp_path: Path) -> None:
    build([OWN], tmp_path / "image", enrol(Burnt(), enrolment(), [OWN]))
    with (tmp_path / "sent").open("w") as lines:
        lines.writelines(f"{kind} {now} {payload.hex()}\n" for kind, now, payload in sent(count))
    printed = INTERPRETERS[interpreter]("board_documents.py", tmp_path / "image", tmp_path / "sent")
    assert verdicts_digest(iter(printed.splitlines())) == DIGESTS[DOCUMENTS][str(count)]


@pytest.mark.long
@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_a_boards_ticks_come_when_an_agents_do(count: int, tmp_path: Path) -> None:
    for name in [name for name, lives in HISTORIES.items() if not lives]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "first").write_bytes(compile_board_policy(board_policy(MINUTE)))
        (folder / "second").write_bytes(compile_board_policy(board_policy(MORE, version=2)))
        happening = [step.what or f"{step.passed} {step.moved}" for step in islice(steps(name), count)]
        (folder / "moves").write_text("\n".join(happening) + "\n")
        files = folder / "first", folder / "second", (NOW - 1) * SECOND, folder / "outbox", folder / "moves"
        printed = micropython(SUPPORT / "board_clock.py", *files, heap="200k")
        drawn = hashlib.sha256(printed.encode()).hexdigest()[:32]
        assert drawn == DIGESTS[name][str(count)].split()[0]
