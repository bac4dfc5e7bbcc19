"""Costs of the firmware on MicroPython's Unix port: memory, size, time per reading, start, and a signature.

Also what a reading costs in energy, and a frame in flash, by a model (`board_energy.py`).

Usage: python benchmarks/firmware.py [--json]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from bisect import bisect_left
from pathlib import Path

from board_energy import energy
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from figures import command_line, seconds_of, show

from firmware_sim.build import Burnt, build, enrol
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.envelope import key_name, sign
from fugu.contract.fleet_documents import (
    Address,
    Enrolment,
    PolicyDocument,
    Role,
    RootDocument,
    compile_document,
    compile_for_boards,
    write_document,
)
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.stretches import Ceiling
from fugu.contract.windows import Window

READINGS = 20_000
ROUNDS = 5
_SUPPORT = Path(__file__).parents[1] / "tests" / "support"
"""Has the flash that is simulated."""
_MICROPYTHON = (sys.executable, "-c", "import sys, micropython_unix; sys.exit(micropython_unix.main())")
_STREAM = """
import gc, sys, time
sys.path.insert(0, {folder!r})
import image
from sanitiser.start import accepted
policy = accepted(image, lambda: None)[2][0]
from sanitiser.entropy import system_entropy
from fugu.core.stream import Stream
class Empty:  # an outbox before its first frame
    last_framed, indices, since, shift = -1, {{}}, 0, 0
stream = Stream(policy, system_entropy("unix"), Empty)
frames = 0
begin = time.ticks_us()
for tick in range({readings}):
    stream.close_gap(tick)
    frames += len(stream.tick(tick, 60 + tick % 30))
print(time.ticks_diff(time.ticks_us(), begin) / {readings}, frames)
"""
_START = """
import sys
sys.path.insert(0, {folder!r})
import os
os.chdir({folder!r})
import image
import asyncio
from sanitiser.start import board
made = board(image, lambda: 70)
async def main():
    task = asyncio.create_task(made.run())
    while made.lines[0].outbox.newest < 2:
        await asyncio.sleep_ms(1)
    {then}
    task.cancel()
asyncio.run(main())
"""
_JUDGE = """with open("later", "rb") as file:
        made.following._judge("policy", file.read())
    assert made.following.version == 2, made.following._detail"""
_VERIFY = """
import sys, time
sys.path.insert(0, {folder!r})
from sanitiser.ed25519 import verify
begin = time.ticks_us()
assert verify({key!r}, ({message!r},), {signature!r}, lambda: None)
print(time.ticks_diff(time.ticks_us(), begin) / 1000)
"""


def main() -> None:
    """Measure and print."""
    options = command_line(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(_figures(Path(folder)), as_json=options.json)


def _figures(folder: Path) -> dict[str, float | str]:
    slow, fast = _policy(frame_ticks=60, period_us=1_000_000), _policy(frame_ticks=1, period_us=10_000)
    image, keys = build([slow], folder / "stream", Burnt()), [Ed25519PrivateKey.generate() for _ in range(3)]
    start = build([fast], folder / "start", enrol(Burnt(), _enrolment(keys), [fast]))
    (start.folder / "later").write_bytes(_later(fast, keys[1]))
    stream = _STREAM.format(folder=str(image.folder), readings=READINGS)
    key = Ed25519PrivateKey.generate()
    signed = {"key": key.public_key().public_bytes_raw(), "signature": key.sign(image.compiled[0])}
    verify = _VERIFY.format(folder=str(image.folder), message=image.compiled[0], **signed)
    started, judging = (_START.format(folder=str(start.folder), then=then) for then in ("pass", _JUDGE))
    starts = [seconds_of(lambda: _run(folder, started, 160)) for _ in range(ROUNDS)]
    reading = statistics.median(float(_run(folder, stream, 64).split()[0]) for _ in range(ROUNDS))
    figures: dict[str, float | str] = {
        "image, bytes": image.size,
        "sanitiser's bytecode, bytes": sum(size for name, size in image.sizes.items() if name.endswith(".mpy")),
        "compiled policy, bytes": len(image.compiled[0]),
        "signed document for one stream, bytes": (start.folder / "later").stat().st_size,
        "least heap of a stream with two windows and its code, kB": _least(folder, stream, 16, 96),
        "least heap of the whole board with its code, kB": _least(folder, started, 40, 160),
        "least heap of the whole board that judges a policy, kB": _least(folder, judging, 40, 240),
        "microseconds a reading, two windows": reading,
        "start of the process to the first sealed frame, s": statistics.median(starts),
        "Ed25519 verification, ms": statistics.median(float(_run(folder, verify, 64)) for _ in range(ROUNDS)),
    }
    return figures | energy(slow, reading, lambda script, heap: _run(folder, script, heap))


def _policy(frame_ticks: int, period_us: int) -> Policy:
    promise = Guarantee(epsilon=4.0, adversary="informed")
    windows = (
        Window(name="hour", length=600, stride=600, states=(1,), scale="20"),
        Window(name="shares", length=100, stride=100, states="histogram", scale="40"),
    )
    return Policy(
        fleet="home",
        device="watch",
        stream="hr",
        version=1,
        clock=Clock(epoch_us=0, period_us=period_us),
        frame_ticks=frame_ticks,
        discretiser=Thresholds(edges=(72.5,), states=("low", "high")),
        table=NoiseTable.binary(1_500_000_000, 1_500_000_000),
        chains=BinaryChains(q=(0.2, 0.3), r=(0.3, 0.4)),
        guarantee=promise,
        windows=windows,
        windows_guarantee=promise,
    )


def _enrolment(keys: list[Ed25519PrivateKey]) -> Enrolment:
    """Of a fleet with a key for each role."""
    public = [key.public_key().public_bytes_raw() for key in keys]
    names = [key_name(key).hex() for key in public]
    root, policy, gateway = (Role(keys=(name,), threshold=1) for name in names)
    public_keys = {name: key.hex() for name, key in zip(names, public, strict=True)}
    document = RootDocument(fleet="home", version=1, keys=public_keys, root=root, policy=policy, gateway=gateway)
    envelope = sign("root", write_document(document), keys[:1]).encode()
    return Enrolment(fleet="home", device="watch", ceiling=Ceiling(epsilon=4.0), root=envelope.hex(), key="11" * 32)


def _later(policy: Policy, key: Ed25519PrivateKey) -> bytes:
    """A signed document with the second version of a policy."""
    body = policy.model_dump(mode="json", exclude={"fleet", "device", "version"})
    document = compile_document(PolicyDocument(fleet="home", version=2, to=Address(device="watch"), policies=(body,)))
    return sign("policy", write_document(compile_for_boards(document, {})), [key]).encode()


def _try(folder: Path, code: str, heap: int) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(code)
    for file in folder.glob("*/trust"):
        file.unlink()
    command = [*_MICROPYTHON, "-X", f"heapsize={heap}k", str(script)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MICROPYPATH": f"{_SUPPORT}:.frozen"}
    )


def _run(folder: Path, code: str, heap: int) -> str:
    done = _try(folder, code, heap)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def _least(folder: Path, code: str, low: int, high: int) -> int:
    """The least heap with which a script runs, in kB, to 1 kB."""
    return bisect_left(range(high), True, low + 1, key=lambda heap: _try(folder, code, heap).returncode == 0)


if __name__ == "__main__":
    main()
