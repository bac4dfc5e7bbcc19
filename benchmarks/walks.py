"""Files of the product that a frame, a release and a plan really enter, counted in the running programs.

Usage: python benchmarks/walks.py [--json] [--files]      (make bench installs a broker)

Definitions:
  files       files of the packages of benchmarks/weight.py in which a function was entered; importing is not
              counted, nor what bodies of modules and classes call
  functions   named functions entered, by code object: a lambda or a comprehension is no step of a reader, and newer
              Pythons enter fewer of them. A kernel is none either: it runs as a plain function until it is compiled.
  climbs      pairs of rooms where a function of the first calls one of the second, which it may not import: what came
              as an argument is called back
  frame       a gateway with one policy and nothing else, after three frames: five more, their watermarks and estimates
  release     the same gateway with one scheduled release: from the frames that end a window until it is published
  plan auto   `fugu plan auto` on a recording of the demo, a row each 31 s
  plan stream `fugu plan stream` for two states and an epsilon
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from figures import command_line, show
from processes import started
from weight import PACKAGES

if TYPE_CHECKING:
    from tests.support.release_scenes import Public

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Count and print, or be a program whose walk is counted."""
    if sys.argv[1:2] == ["--traced"]:
        return _traced(Path(sys.argv[2]), sys.argv[3:])
    parser = command_line(__doc__)
    parser.add_argument("--files", action="store_true", help="name the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = str(ROOT / "fugu" / "data" / "motion_states.csv.gz")
        walks = {
            **_gateway(Path(folder)),
            "plan auto": _plan(Path(folder), "plan", "auto", data, "--period", "31"),
            "plan stream": _plan(Path(folder), "plan", "stream", "--q", "0.05", "--r", "0.05", "--epsilon", "1"),
        }
    shown: dict[str, object] = {}
    for name, calls in walks.items():
        files, climbs = sorted({file for file, _, _ in calls}), _climbs(calls)
        functions = len({(file, function) for file, function, _ in calls if ">:" not in function})
        shown |= {f"{name}: files": len(files), f"{name}: functions": functions, f"{name}: climbs": len(climbs)}
        if options.files:
            shown[f"{name}: up"] = ", ".join(sorted(climbs))
            shown[f"{name}: names"] = " ".join(files)
    show(shown, as_json=options.json)
    return 0


def _traced(out: Path, words: list[str]) -> int:
    """Run `fugu` with these words; write what was entered between two signals, or in all without any."""
    entered: set[tuple[CodeType, CodeType | None]] = set()
    recording = not out.name.startswith("signals")

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        caller = frame.f_back and frame.f_back.f_code
        if recording and event == "call" and frame.f_code.co_flags & CO_OPTIMIZED and not _imports(caller):
            entered.add((frame.f_code, caller))

    def switch(_number: int, _frame: FrameType | None) -> None:
        nonlocal recording
        recording = not recording
        if not recording:
            write()

    def write() -> None:
        kernels = _kernels()
        called = [call for call in list(entered) if call[0] not in kernels]
        rows = sorted({row for call in called if (row := _product(*call)) is not None})
        entered.clear()
        temporary = out.with_suffix(".part")
        temporary.write_text(json.dumps(rows))
        temporary.replace(out)

    signal.signal(signal.SIGUSR1, switch)
    threading.setprofile(profile)
    sys.setprofile(profile)
    sys.argv = ["fugu", *words]
    try:
        runpy.run_module("fugu", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.setprofile(None)
        if recording:
            write()
    return 0


def _kernels() -> set[CodeType]:
    every = [value for module in [*sys.modules.values()] for value in [*getattr(module, "__dict__", {}).values()]]
    return {value.py_func.__code__ for value in every if type(value).__name__ == "CPUDispatcher"}


def _imports(code: CodeType | None) -> bool:
    """True for the body of a module or of a class, which runs as it is imported, and not the start of all."""
    return code is not None and not code.co_flags & CO_OPTIMIZED and not code.co_filename.endswith("__main__.py")


def _product(code: CodeType, caller: CodeType | None) -> tuple[str, str, str] | None:
    """The file and the name of a function of the product, and the file of what called it, if that is of the product."""
    file = _file(code)
    return (file, f"{code.co_qualname}:{code.co_firstlineno}", (caller and _file(caller)) or "") if file else None


def _file(code: CodeType) -> str:
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return ""
    file = path.relative_to(ROOT)
    return str(file) if file.parts[0] in PACKAGES else ""


def _climbs(calls: list[tuple[str, str, str]]) -> set[str]:
    from tests.support.rooms import ROOMS, room_of

    pairs = {
        (below, room)
        for file, _, caller in calls
        if caller and (room := room_of(_module(file))) and (below := room_of(_module(caller))) and room != below
    }
    return {f"{below} calls {room}" for below, room in pairs if room not in ROOMS[below]}


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _plan(folder: Path, *words: str) -> list[tuple[str, str, str]]:
    out = folder / "plan.json"
    with started(__file__, "--traced", out, *words, cwd=folder, stdout=subprocess.DEVNULL) as plan:
        plan.wait()
    return _read(out)


def _gateway(folder: Path) -> dict[str, list[tuple[str, str, str]]]:
    sys.path.insert(0, str(ROOT))
    from tests.support.brokers import Mosquitto, wait_until
    from tests.support.gateway_files import gateway_file
    from tests.support.gateway_service import Device
    from tests.support.release_scenes import Public, scheduled, write_config
    from tests.support.scenes import frames, policy, write_policies

    write_policies(folder / "policies", (policy(1),))
    sent, walks = frames([10] * 12), {}
    config = write_config(folder, scheduled(devices=["watch"]))
    with Mosquitto(folder) as broker:
        for name, releases in (("frame", None), ("release", config)):
            out = folder / f"signals-{name}.json"
            home = folder / name
            home.mkdir()
            files = {"store": home / "s.sqlite", "policies": folder / "policies", "releases": releases}
            file = gateway_file(home / "gateway.toml", broker.port, **files)
            with started(__file__, "--traced", out, "gateway", "run", file) as gateway:
                device, public = Device(broker), Public(broker)
                seen = device.watermarks
                device.say_birth()
                wait_until(device.answered_after(seen), "the gateway")

                def send(first: int, last: int, device: Device = device) -> None:
                    for number in range(first, last):
                        before = device.watermarks
                        device.send(sent[number : number + 1])
                        wait_until(device.answered_after(before), "a watermark")

                send(0, 3)
                wait_until(partial(_has, public, 1 if releases else 0), "a release")
                time.sleep(4.0)  # what follows on the first frames, and the stream's description, has been done
                os.kill(gateway.pid, signal.SIGUSR1)
                time.sleep(0.2)
                send(3, 8)
                wait_until(partial(_has, public, 3 if releases else 0), "three releases")
                time.sleep(1.0)
                os.kill(gateway.pid, signal.SIGUSR1)
                wait_until(out.exists, "what was entered")
                device.stop()
                public.link.stop()
            walks[name] = _read(out)
    return walks


def _has(public: Public, least: int) -> bool:
    return len(public.payloads) >= least


def _read(out: Path) -> list[tuple[str, str, str]]:
    return [(file, name, caller) for file, name, caller in json.loads(out.read_text())]


if __name__ == "__main__":
    sys.exit(main())
