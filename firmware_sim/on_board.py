"""`python -m firmware_sim.on_board CONFIG`: what `fugu-agent CONFIG` does, on a board.

The streams of the configuration go into one image, which MicroPython's Unix port runs. Each sensor is a recording,
which begins anew after its last reading.
"""

from __future__ import annotations

import csv
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firmware_sim.boards import UNIT, BoardProcess
from firmware_sim.build import Burnt, build, compile_module
from firmware_sim.compiled_policy import FirmwareError
from fugu.contract.discretisers import Categories
from fugu.contract.errors import FuguError
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.host.clock import Wake

_LARGEST = 1000.0
"""Epsilon that the firmware can write down; a configuration of a device under test may have any."""
_HEAP_KB = 1024
"""Frames of 4096 ticks of several streams."""
_LOOK_SECONDS = 0.1


def main(words: list[str], prepare: Callable[[Policy], Policy] = lambda policy: policy, damage: str = "") -> int:
    """Run a board until SIGTERM; exit codes as of the agent.

    Tests weaken each policy by `prepare`, and break `entropy`: `damage` is the source of that module, instead of its
    own.
    """
    stop = Wake()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        [config] = map(Path, words)
        board = image_of(config, prepare, damage)
        board.start()
        while not stop.wait(_LOOK_SECONDS):
            if not board.runs:
                raise FirmwareError(f"the board has ended: {board.printed.strip().splitlines()[-1]}")
        board.stop()
    except (FuguError, OSError, ValueError) as error:
        print(f"on_board: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def image_of(config: Path, prepare: Callable[[Policy], Policy], damage: str = "") -> BoardProcess:
    """The board of an agent's configuration."""
    told: dict[str, Any] = tomllib.loads(config.read_text())
    folder = config.parent / "board"
    folder.mkdir(exist_ok=True)
    policies, sensors = [], {}
    for stream in told["streams"]:
        policy = read_policy((config.parent / stream["policy"]).read_bytes())
        if not isinstance(policy, Policy):
            raise FirmwareError("the firmware does symbols and windows, and this policy measures points")
        epsilon = min(policy.guarantee.epsilon, _LARGEST)
        policy = policy.model_copy(update={"guarantee": policy.guarantee.model_copy(update={"epsilon": epsilon})})
        policies.append(prepare(policy))
        with (config.parent / stream["sensor"]["file"]).open(newline="") as file:
            texts = [row[stream["sensor"]["column"]] for row in csv.DictReader(file)]
        shown = list(dict.fromkeys(texts))
        names = isinstance(policy.discretiser, Categories)
        values = [text if names else round(float(text) / UNIT) if text else None for text in shown]
        states = folder / f"{policy.stream}.states"
        states.write_bytes(bytes(map(shown.index, texts)))
        sensors[policy.stream] = (states, values)
    broker, any_policy = told["broker"], (Ceiling(epsilon=_LARGEST),)
    burnt = Burnt(ceilings=any_policy, host=broker["host"], port=broker["port"], not_before_us=0)
    image = build(policies, folder / "image", burnt, UNIT)
    if damage:
        source = folder / "entropy.py"
        source.write_text(damage)
        compile_module(source, image.folder / "sanitiser" / "entropy.mpy")
    return BoardProcess(image.folder, folder, sensors, heap_kb=_HEAP_KB, under_test=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
