"""The audit's black-box tests on a board's bytes: as on an agent's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from firmware_sim.constant import Outputs, run_constant
from fugu.audit.device import device_tests
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import Window
from tests.support.audited import alone
from tests.support.board_policies import board_policy, quick
from tests.support.boards import MICROPYTHON
from tests.support.brokers import PATIENCE, Mosquitto

assert MICROPYTHON  # where MicroPython is not packaged, importing it skips this file
HONEST = ("firmware_sim.on_board",)
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="3")
TABLE = NoiseTable.binary(1_200_000_000, 900_000_000)
POLICY = quick(board_policy(TEN))
POLICY = POLICY.model_copy(update={"table": TABLE, "guarantee": POLICY.guarantee.model_copy(update={"epsilon": 9.0})})


def alarms(broker: Mosquitto, folder: Path, module: tuple[str, ...], part: str, enough: int, rate: float) -> set[str]:
    """Run a board, and the tests that are not passed."""
    piece = alone(POLICY, part)
    command = (sys.executable, "-m", *module)
    outputs: Outputs = run_constant(command, piece, broker.broker, folder, enough, 1000, PATIENCE)
    assert outputs.problem == ""
    assert min(outputs.draw_counts) >= enough
    drawn = outputs.symbols, outputs.noise, outputs.points
    tested = device_tests(POLICY, *drawn, rate, outputs.script, outputs.changes)
    return {alarm.test for judgement in tested for alarm in judgement.alarms}


@pytest.mark.long
@pytest.mark.parametrize(("part", "enough"), [("windows", 90), pytest.param("symbols", 8_000, marks=pytest.mark.soak)])
def test_an_honest_board_passes(broker: Mosquitto, tmp_path: Path, part: str, enough: int) -> None:
    """It fails by chance once in a thousand million runs; that its symbols pass, docs/firmware.md shows."""
    assert alarms(broker, tmp_path, HONEST, part, enough, 1e-9) == set()


@pytest.mark.long
def test_a_board_with_a_fault_is_caught(broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes a probability by more than 0.05, which 4000 draws show at the command's rate, after one start."""
    monkeypatch.setattr("firmware_sim.constant._STARTS", 1)
    assert "frequencies" in alarms(broker, tmp_path, ("tests.support.broken_board",), "symbols", 4000, 1e-3)
