"""The tie of an outbox to one machine: identifiers of hardware, which no copy of its disk takes along.

Two devices with copies of one outbox would draw for the same ticks, and what they publish together tells more than
either may. The file holds salted hashes of the identifiers; they themselves never leave the machine or are logged. It
is no guarantee: not every machine has an identifier, and the gateway notices a copy by its frames.

A machine is recognised by its board, product or given name. A network card counts where none of these can be compared,
so that a changed card alone stops no device that has a number of its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

from fugu.contract.errors import FuguError, Reason
from fugu.host.database import transaction

__all__ = ["BINDING_SCHEMA", "BindingError", "bind", "identifiers"]

BINDING_SCHEMA = """
    CREATE TABLE binding (kind TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (kind, digest)) WITHOUT ROWID;
"""
_CARD = "card"
_NUMBERS = {
    "board": ("sys/firmware/devicetree/base/serial-number", "proc/device-tree/serial-number"),
    "product": ("sys/class/dmi/id/product_uuid",),
}


class BindingError(FuguError, reason=Reason.OUTBOX):
    """The outbox belongs to another machine."""


def identifiers(binding: str = "auto", root: Path = Path("/")) -> frozenset[tuple[str, str]]:
    """Identifiers of this machine, pairs of kind and value; `binding` is `auto`, `off`, or a name given by hand."""
    if binding == "off":
        return frozenset()
    if binding != "auto":
        return frozenset({("name", binding)})
    found = {(kind, _read(root / path)) for kind, paths in _NUMBERS.items() for path in paths}
    for card in sorted((root / "sys/class/net").glob("*")):
        if (card / "device").exists() and _read(card / "addr_assign_type") in ("", "0"):  # real, with its own address
            found.add((_CARD, _read(card / "address")))
    return frozenset((kind, value) for kind, value in found if len(set(value) - set("-: ")) > 1)


def bind(db: sqlite3.Connection, outbox: Path, found: frozenset[tuple[str, str]], *, moved: bool) -> None:
    """Check that an outbox belongs to the machine (another than before if `moved`), or bind one that is nobody's.

    Raises BindingError if it is another machine's, sqlite3.Error if it cannot be used.
    """
    (salt,) = db.execute("SELECT salt FROM intact_device").fetchone()
    digests = {(kind, hashlib.sha256(salt + f"{kind}\0{value}".encode()).digest()) for kind, value in found}
    stored = set(db.execute("SELECT kind, digest FROM intact_binding"))
    if stored and not moved and not _same(stored, digests):
        raise BindingError(
            f"outbox {outbox} was begun on another machine: this looks like a copy of another device's disk. If the "
            "device has moved on purpose, and the other machine will never run it again: fugu-agent moved CONFIG.toml"
        )
    kinds = {kind for kind, _ in digests}
    digests |= {row for row in stored if row[0] not in kinds and not moved}
    if digests != stored:
        with transaction(db):
            db.execute("DELETE FROM binding")
            db.executemany("INSERT INTO binding VALUES (?, ?)", sorted(digests))


def _same(stored: set[tuple[str, bytes]], found: set[tuple[str, bytes]]) -> bool:
    numbers = {kind for kind, _ in stored} & {kind for kind, _ in found} - {_CARD}
    return any(kind in numbers or not numbers for kind, _ in stored & found)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\0\n ").lower()
    except OSError:
        return ""
