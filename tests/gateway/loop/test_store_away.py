"""A store that is away while a part is called: an error is counted, other parts are called, and the loop goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fugu.contract.frames import Status, StreamStatus, SymbolFrame
from fugu.contract.topics import topic_of
from fugu.host.database import AwayError
from gateway.loop.gateway import IDLE_SECONDS
from gateway.parts import Part
from tests.support.loop_driver import START, Driver
from tests.support.scenes import loop_of

CALLS = ("heard", "born", "stored", "connected", "renew", "pump", "acknowledged")


class Away(Part):
    """Asks a store that is away at one call."""

    def __init__(self, call: str) -> None:
        super().__init__(loop_of())
        self.asked = 0
        setattr(self, call, self._ask)

    def _ask(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise AwayError("no connection")


class Called(Part):
    def __init__(self, call: str) -> None:
        super().__init__(loop_of())
        self.calls = 0
        setattr(self, call, self._note)

    def _note(self, *_: Any, **__: Any) -> bool:
        self.calls += 1
        return False


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_is_away_at_any_call_of_a_part_stops_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driver(tmp_path, monkeypatch, devices=4) as driver:
        gateway = driver.gateway
        for _ in range(3):
            driver.round()
        assert gateway.counters["store_errors"] == 0
        away, after = Away(call), Called(call)
        gateway._parts_by_call[call][:0] = [away, after]
        status = Status(True, "1", 0, (), (StreamStatus("hr", 1, 1),)).encode()
        frame = SymbolFrame(1, START - 1, START, bytes(4)).encode()
        gateway._note_answer(1, True)
        gateway._inbox.notify(None)
        monkeypatch.setattr(gateway._registered, "refresh", lambda: True)
        driver.deliver([(topic_of("status", "home", "d3"), status), (topic_of("symbols", "home", "d3", "hr"), frame)])
        assert away.asked > 0
        assert (after.calls > 0) == (call != "heard"), "the rest of a message that cannot be heard is not heard either"
        assert gateway.counters["store_errors"] >= away.asked
        assert not gateway.failed.is_set()
        assert gateway.counters["stored"] == 1


def test_parts_that_wait_for_a_store_that_is_away_do_not_keep_the_loop_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask a thousand times a second, and take the processor from the server that begins anew."""

    class Waiting(Part):
        busy = True

    with Driver(tmp_path, monkeypatch, devices=4) as driver:
        gateway = driver.gateway
        gateway._parts_by_call["busy"].append(Waiting(loop_of()))
        driver.round()
        assert gateway._patience() == 0.0
        gateway._parts_by_call["pump"][:0] = [Away("pump")]
        driver.round()
        assert gateway._patience() == IDLE_SECONDS
        del gateway._parts_by_call["pump"][0]
        driver.round()
        assert gateway._patience() == 0.0
