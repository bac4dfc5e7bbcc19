"""Random bytes for a board without a good generator: from a secret that was provisioned, with its state in flash.

Source: NIST SP 800-90A Rev. 1, section 10.1.2, HMAC_DRBG with SHA-256. The state in flash only ever makes seeds. A
start takes a new one, and so does every so many blocks after it. The state behind a seed is durable before the seed is
used. So a power cut at any moment, or many, never brings the same output again.
"""

import hashlib
import os
import struct

from fugu.core.messages import hmac

STATE, NEWER, SEED = "generator", "generator.new", "generator.seed"
SEED_BYTES = 64
BLOCK, BLOCKS = 256, 65536
_FORMAT = b"FGR\x01"
_FORM = ">4sQ32s32s16s"
_CHECK = 16
_BAD = 5


class Drbg:
    """HMAC_DRBG, instantiated with entropy input, nonce and personalisation, one after the other."""

    def __init__(self, seed: bytes) -> None:
        self.key, self.value = bytes(32), b"\x01" * 32
        self.reseed(seed)

    def reseed(self, data: bytes = b"") -> None:
        """Take something more in; also the function that the standard calls Update."""
        for mark in (b"\0", b"\x01") if data else (b"\0",):
            self.key = hmac(self.key, self.value + mark + data)
            self.value = hmac(self.key, self.value)

    def generate(self, size: int) -> bytes:
        """At most 65,536 bytes."""
        output = b""
        while len(output) < size:
            self.value = hmac(self.key, self.value)
            output += self.value
        self.reseed()
        return output[:size]


def provisioned(hedge):
    """A function that fills a buffer with random bytes, or raises OSError; nothing rests on the bytes of `hedge`."""
    pool, block_left, blocks, child = bytearray(BLOCK), 0, 0, None

    def fill(buffer) -> None:
        nonlocal block_left, blocks, child
        at = 0
        while at < len(buffer):
            if not block_left:
                if not blocks:
                    child, blocks = _seeded(hedge), BLOCKS
                pool[:] = child.generate(BLOCK)
                block_left, blocks = BLOCK, blocks - 1
            size = min(block_left, len(buffer) - at)
            buffer[at : at + size] = pool[block_left - size : block_left]
            pool[block_left - size : block_left] = bytes(size)
            block_left, at = block_left - size, at + size

    return fill


def _seeded(hedge) -> Drbg:
    """A generator with a seed that nobody had before."""
    root, counter, taken = _state()
    seed = root.generate(48)
    _write(root, counter + 1, taken)
    return Drbg(seed + struct.pack(">Q", counter) + hedge(32))


def _state() -> tuple:
    """The state in flash, how many seeds it has made, and which provisioned seed it has taken last."""
    stored, seed = _read(STATE), _read(SEED)
    if stored is None and seed is None:
        raise OSError(_BAD)
    if seed is not None and len(seed) != SEED_BYTES:
        raise OSError(_BAD)
    counter, taken = 0, bytes(_CHECK)
    if stored is None:
        root = Drbg(seed)
        taken = _digest(seed)
        _write(root, counter, taken)
    else:
        root = Drbg(b"")
        whole = len(stored) == struct.calcsize(_FORM) + _CHECK and _digest(stored[:-_CHECK]) == stored[-_CHECK:]
        if not whole or stored[:4] != _FORMAT:
            raise OSError(_BAD)
        _, counter, root.key, root.value, taken = struct.unpack(_FORM, stored[:-_CHECK])
    if seed is not None:
        if taken != _digest(seed):
            root.reseed(seed)
            taken = _digest(seed)
            _write(root, counter, taken)
        os.remove(SEED)
    return root, counter, taken


def _write(root: Drbg, counter: int, taken: bytes) -> None:
    data = struct.pack(_FORM, _FORMAT, counter, root.key, root.value, taken)
    with open(NEWER, "wb") as file:
        file.write(data + _digest(data))
    os.rename(NEWER, STATE)


def _read(name: str):
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno == 2:
            return None
        raise


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_CHECK]
