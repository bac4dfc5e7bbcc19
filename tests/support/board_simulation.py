"""A simulation with faults: a broker and a gateway of its own, boards, and a table of what became of it."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from firmware_sim.build import Board, Burnt, build, enrol
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.mqtt import Broker
from fugu_cli.demo.processes import start_broker
from gateway.fleet.registry import Registry
from gateway.health.monitor import ask_gateway
from gateway.store.store import Store
from tests.support.board_faults import BoardDevice, Fault, Heard, Outcome, Stored, outcome, schedule, suffer
from tests.support.brokers import wait_until
from tests.support.enrolled import Gateway, write_gateway_files
from tests.support.faulty_boards import UNIT, BoardProcess, readings
from tests.support.signing import Keys
from tests.support.simulated_states import simulate_states
from tests.support.wiretap import Line

__all__ = ["Result", "simulate"]

_SETTLE_SECONDS, _LAST_SECONDS = 120.0, 4.0
_LOOK_SECONDS = 0.2
_KINDS: tuple[Board, ...] = ("unix", "rp2040")
"""Kinds of randomness that boards are built for, in turns."""


class Result(NamedTuple):
    """Result of a run: faults as they were inflicted, and what the gateway has counted, by its names."""

    outcomes: list[Outcome]
    faults: list[Fault]
    counted: Counter[str]

    @property
    def sound(self) -> bool:
        """True if nothing was lost, and nothing drawn twice."""
        return all(outcome.sound for outcome in self.outcomes)


def simulate(
    template: Policy, folder: Path, *, boards: int, seconds: float, seed: int, rounds: int, broker: str
) -> Result:
    """Run boards for some time, with so many faults of every kind.

    `template` is given to every device, under its own name and beginning now.
    """
    (folder / "policies").mkdir()
    with ExitStack() as stack:
        port, _ = stack.enter_context(start_broker(broker, folder))
        write_gateway_files(folder, keys := Keys())
        maker = _Maker(template, folder, port, seconds, seed, keys)
        devices = [maker.board(number) for number in range(boards)]
        maker.registry.close()
        for device in devices:
            stack.callback(device.line.close)
        heard = Heard(Broker(port=port), template.fleet)
        stack.callback(heard.link.stop)
        gateway = Gateway(folder, port, policies="policies")
        stack.callback(gateway.kill)
        wait_until(lambda: gateway.process.poll() is not None or "has started" in gateway.log, "the gateway")
        if gateway.process.poll() is not None:
            raise FuguError(f"the gateway has ended: {gateway.log}")
        for device in devices:
            stack.callback(device.process.cut)
        faults = schedule([device.name for device in devices], seconds, seed, rounds)
        suffer(devices, faults, seconds, threading.Event())
        _settle(devices, folder, heard, gateway.process)
        counted = Counter(ask_gateway(folder / "gateway.sqlite")["counters"])
        gateway.stop()
        for device in devices:
            device.process.read_flash()
        stored = _stored(folder / "gateway.sqlite")
        return Result(
            [outcome(device, heard, stored.get(device.name, Stored())) for device in devices], faults, counted
        )


class _Maker:
    """Makes devices: their folders, keys, policies and sensors."""

    def __init__(self, template: Policy, folder: Path, port: int, seconds: float, seed: int, keys: Keys) -> None:
        self._template, self._folder, self._port, self._seed = template, folder, port, seed
        self._clock = template.clock.model_copy(update={"epoch_us": time.time_ns() // 1000})
        self._length = 1000 + round(3 * (seconds + _SETTLE_SECONDS) * 1e6 / self._clock.period_us)
        self._keys = keys
        self.registry = Registry(folder / "fleet.sqlite", fleet=template.fleet)

    def _policy(self, name: str) -> Policy:
        policy = self._template.model_copy(update={"device": name, "clock": self._clock})
        (self._folder / "policies" / f"{name}.json").write_text(policy.to_json())
        return policy

    def _states(self, name: str, policy: Policy) -> list[int]:
        generator = random.Random(f"{self._seed} {name}")
        return simulate_states(policy.chains.typical_matrices[0], self._length, generator)

    def board(self, number: int) -> BoardDevice:
        """A board, enrolled."""
        name, kind = f"board-{number}", _KINDS[number % len(_KINDS)]
        policy, folder = self._policy(name), self._folder / "devices" / name
        folder.mkdir(parents=True)
        key = self.registry.enrol(name, [], actor="simulation", time_us=time.time_ns() // 1000)
        ceiling = Ceiling(epsilon=policy.guarantee.epsilon)
        enrolment = self._keys.enrolment(device=name, groups=(), ceiling=ceiling, key=key.hex())
        line = Line(self._port)
        secret = random.Random(f"{self._seed} secret").randbytes(32) if kind == "rp2040" else b""
        burnt = enrol(Burnt(board=kind, port=line.port, secret=secret), enrolment, [policy])
        image = build([policy], folder / "image", burnt, UNIT)
        (folder / "states").write_bytes(bytes(self._states(name, policy)))
        sensors = {policy.stream: (folder / "states", readings(policy))}
        provisioned = [file for file in image.sizes if file.endswith(".seed")]
        return BoardDevice(name, BoardProcess(image.folder, folder, sensors, provisioned), line)


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _settle(devices: Sequence[BoardDevice], folder: Path, heard: Heard, gateway: subprocess.Popen[bytes]) -> None:
    """Let everything that was sealed arrive, and end the devices in order."""
    sealed = {device.name: len(device.process.life().sealed) for device in devices}

    def arrived() -> bool:
        stored = _stored(folder / "gateway.sqlite")
        return gateway.poll() is not None or not any(
            outcome(device, heard, stored.get(device.name, Stored()), sealed[device.name]).lost for device in devices
        )

    _wait(arrived, _SETTLE_SECONDS)
    for device in devices:
        device.process.stop()
    sealed = {device.name: len(device.process.life().sealed) for device in devices}
    _wait(arrived, _LAST_SECONDS)


def _stored(path: Path) -> dict[str, Stored]:
    by_device: dict[str, Stored] = {}
    with closing(Store(path)) as store:
        for sequence in store.aged.sequences(0, 1_000_000):
            stored = by_device.setdefault(sequence.device, Stored())
            if sequence.window_name:
                stored.windows[sequence.name] = store.windows.within(sequence.number, 0, 2**53)
            else:
                stored.symbols[sequence.name] = list(store.symbols.following(sequence.number, 0))
    return by_device
