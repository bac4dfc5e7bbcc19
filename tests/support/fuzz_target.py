"""Targets of fuzzing: everything that a device or a gateway parses, and the rules of trust behind it.

As a program it lets atheris choose the bytes: python -m tests.support.fuzz_target -runs=N
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from pydantic import BaseModel

from fugu import contract
from fugu.contract.errors import FrameError, FuguError, TrustError
from fugu.contract.json_message import JsonMessage
from fugu.contract.measure_table import TimedTable
from fugu.contract.measurement import check_noise
from fugu.contract.trust import Trust
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.signing import NOW, Keys, policy_document


def _decoders() -> tuple[Callable[[bytes], object], ...]:
    """Of all payloads: those of messages that are declared, methods of documents and functions that are called so."""
    modules = [import_module(f"fugu.contract.{module.name}") for module in iter_modules(contract.__path__)]
    things = [
        (name, thing)
        for module in modules
        for name, thing in vars(module).items()
        if module.__name__ == getattr(thing, "__module__", "")
    ]
    classes = [thing for _, thing in things if isinstance(thing, type)]
    flat = [thing for thing in classes if issubclass(thing, JsonMessage) and thing is not JsonMessage]
    declared = [thing.decode for thing in classes if thing in flat or hasattr(thing, "SCHEMA")]
    documents = [thing.decode for _, thing in things if _is_document(thing) and "decode" in vars(thing)]
    functions = [thing for name, thing in things if name.lstrip("_").startswith("decode_")]
    return (*declared, *documents, *functions)


def _is_document(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


DECODERS = _decoders()
KEYS = Keys()
SIGNED = KEYS.signed(policy_document(policy(epoch_us=0, period_us=1_000_000), version=5))
MEASURED = measure_policy(3)
TRUST = Trust(KEYS.enrolment())


def one_input(data: bytes, counted: Counter[str] | None = None) -> None:
    """Parse bytes in every way and count fates: only errors meant for it may come, and none may be accepted."""
    counted = Counter() if counted is None else counted
    for decode in DECODERS:
        try:
            table = decode(data)
        except FrameError as error:
            counted[error.reason] += 1
            continue
        counted["taken"] += 1
        if decode == TimedTable.decode:
            try:
                check_noise(MEASURED.measurement, table.noise, table.constraint)
            except FuguError:
                continue
    if data == SIGNED:
        return
    before = TRUST.state.pack()
    for kind in ("policy", "table", "time", "stop"):
        try:
            TRUST.judge(data, kind, NOW)
        except TrustError:
            continue
        raise AssertionError(f"a {kind} document was accepted that nobody has signed")
    with contextlib.suppress(TrustError):
        TRUST.judge(data, "root", NOW)
    assert TRUST.state.pack() == before


if __name__ == "__main__":
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
