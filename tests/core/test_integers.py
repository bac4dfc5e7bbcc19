"""Nothing that decides privacy on a board uses a floating-point number, which has 24 bits on some of them."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from firmware_sim.build import modules
from fugu.contract.compiler import compile_board_policy
from fugu.contract.losses import ratio_below
from fugu.contract.windows import Window
from fugu.core.clocks import TickClock
from fugu.core.compiled import read_policy
from fugu.core.guarantee import check
from fugu.core.policy import Window as CoreWindow
from fugu.core.stream import Stream
from tests.support.board_modules import board_module
from tests.support.board_policies import board_policy

MAKES_FLOATS = {"float", "complex", "round", "sum"}
FLOATS = {"math", "cmath", "decimal"}
GUESSES = {"random", "urandom"}
KNOWN = {"ed25519": ["a power, whose exponent may be below 0"]}
"""Of a root whose power is 2 or 3: constants of SHA-512, which the tests of signatures compare."""
MAY_GUESS = {"mqtt.py"}
"""When to connect again is no secret."""
CODES = set("defg")


def floats_in(source: str) -> list[str]:
    """Places of a module that make or may make a floating-point number: line and expression."""
    floats = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=float() | complex()):
                what = "a constant"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                what = "a division"
            case (
                ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int()))
                | ast.Call(func=ast.Name(id="pow"), args=[_, _, _])
            ):
                continue  # of integers; modular
            case ast.BinOp(op=ast.Pow()) | ast.AugAssign(op=ast.Pow()):
                what = "a power, whose exponent may be below 0"
            case ast.Name(id=name) if name in MAKES_FLOATS:
                what = name
            case ast.Call(func=ast.Name(id="pow")):
                what = "a power"
            case ast.Import(names=names) if {name.name for name in names} & FLOATS:
                what = "mathematics"
            case ast.ImportFrom(module=module) if module in FLOATS:
                what = "mathematics"
            case ast.Attribute(value=ast.Name(id="time"), attr="time"):
                what = "seconds of a clock"
            case ast.Call(
                func=ast.Attribute(attr="pack" | "unpack" | "pack_into" | "unpack_from"), args=[first, *_]
            ) if isinstance(first, ast.Constant) and isinstance(first.value, str) and CODES & set(first.value):
                what = "a packed number"
            case _:
                continue
        floats.append(f"{getattr(node, 'lineno', 0)}: {what}")
    return floats


def test_what_makes_a_float_is_found() -> None:
    lines = (
        "x = .5", "x = a / b", "x /= 2", "x = 2 ** y", "x **= y", "x = float(y)", "import math", "from math import exp",
        "x = time.time()", "x = struct.unpack('>d', y)", "x = struct.pack_into('<f', y, 0)", "x = 1e3", "x = 2j",
        "map(float, y)", "x = sum(y)", "x = pow(y, z)",
    )  # fmt: skip
    assert [line for line in lines if not floats_in(line)] == []
    assert (
        floats_in(
            "x = pow(y, z, w); x = 10**9; x = a // b; x = struct.unpack('>q', y); x = 3 * y % 7 >> 2; time.time_ns()"
        )
        == []
    )


@pytest.mark.parametrize("file", modules().values(), ids=[*modules()])
def test_no_module_of_a_board_makes_floats(file: Path) -> None:
    assert [what.partition(": ")[2] for what in floats_in(file.read_text())] == KNOWN.get(file.stem, [])


@pytest.mark.parametrize("file", modules().values(), ids=[*modules()])
def test_no_module_guesses(file: Path) -> None:
    """The generator for games is used for nothing but when to connect again."""
    nodes = ast.walk(ast.parse(file.read_text()))
    used = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert file.name in MAY_GUESS or not used & GUESSES


@contextmanager
def no_floats() -> Iterator[list[str]]:
    """Look at every value that a name of the core has on any line, or that it gives back; where one is a float."""
    floats: list[str] = []
    lines, files = 0, set(map(str, modules().values()))

    def holds_float(value: Any, depth: int = 2) -> bool:
        if isinstance(value, list | tuple) and depth and len(value) < 100:
            return any(holds_float(part, depth - 1) for part in value)
        return isinstance(value, float | complex)

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        lines += 1
        named = [name for name, value in frame.f_locals.items() if holds_float(value)]
        if named or (event == "return" and holds_float(argument)):
            floats.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {named}")
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield floats
    finally:
        sys.settrace(before)
    assert lines > 1000


SIX = Window(name="six", length=6, stride=3, states=(1,), scale="7/3")


@pytest.mark.long
def test_no_value_of_a_running_stream_is_a_float() -> None:
    """From reading the policy and deriving its guarantee to frames, with randomness of its own."""
    compiled, generator = compile_board_policy(board_policy(SIX)), random.Random(1)
    drbg = board_module("drbg").Drbg(bytes(range(64)))

    def entropy(buffer: bytearray) -> None:
        buffer[:] = drbg.generate(len(buffer))

    with no_floats() as floats:
        policy = read_policy(compiled)
        check(policy, ((ratio_below(4.0), 0),))
        stream = Stream(policy, entropy, SimpleNamespace(last_framed=-1, indices={}, since=0, shift=0))
        frames = []
        for tick in range(60):
            frames += stream.close_gap(tick) + stream.tick(tick, generator.choice([None, 60, 80]))
        clock = TickClock(policy.epoch_us, policy.period_us)
        clock.begin(5, 17)
        assert clock.due(6, 17) > clock.due(5, 17)
    assert len(frames) > 15
    assert floats == []


def test_a_float_would_be_found() -> None:
    window = CoreWindow()
    window.start, window.stride, window.length = 0, 3, 6.5
    with no_floats() as floats:
        assert {window.last(1) for _ in range(400)} == {8.5}
    assert floats
