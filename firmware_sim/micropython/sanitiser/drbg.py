"""Random bytes for a board without a good generator: from a provisioned secret, with the state in flash.

Source: NIST SP 800-90A Rev. 1, section 10.1.2, HMAC_DRBG with SHA-256. The state in flash only ever makes seeds. Each
start takes a new seed, and so does each `BLOCKS`-th block after it. The state after a seed is durable before the seed
is used. So power cuts at any moment never bring the same output again.
"""

import os
import struct

from fugu.core.messages import hmac
from fugu.core.trust import read_file, replace_file, short_digest

STATE, SEED = "generator", "generator.seed"
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

    def reseed(self, input_bytes: bytes = b"") -> None:
        """Mix further input bytes into the state; the function Update of the standard."""
        for mark in (b"\0", b"\x01") if input_bytes else (b"\0",):
            self.key = hmac(self.key, self.value + mark + input_bytes)
            self.value = hmac(self.key, self.value)

    def generate(self, size: int) -> bytes:
        """Return `size` bytes, at most 65,536."""
        output = b""
        while len(output) < size:
            self.value = hmac(self.key, self.value)
            output += self.value
        self.reseed()
        return output[:size]


def provisioned(hedge):
    """Return a function that fills a buffer with random bytes, or raises OSError.

    `hedge` gives further bytes for seeds; no guarantee rests on them.
    """
    pool, block_left, blocks, generator = bytearray(BLOCK), 0, 0, None

    def fill(buffer) -> None:
        nonlocal block_left, blocks, generator
        offset = 0
        while offset < len(buffer):
            if not block_left:
                if not blocks:
                    generator, blocks = _new_generator(hedge), BLOCKS
                pool[:] = generator.generate(BLOCK)
                block_left, blocks = BLOCK, blocks - 1
            size = min(block_left, len(buffer) - offset)
            buffer[offset : offset + size] = pool[block_left - size : block_left]
            pool[block_left - size : block_left] = bytes(size)
            block_left, offset = block_left - size, offset + size

    return fill


def _new_generator(hedge) -> Drbg:
    """Return a generator with a new seed, which was never used before."""
    root, counter, seed_digest = _read_state()
    seed = root.generate(48)
    _write(root, counter + 1, seed_digest)
    return Drbg(seed + struct.pack(">Q", counter) + hedge(32))


def _read_state() -> tuple:
    """Return the generator in flash, the number of seeds it has made, and the digest of its last provisioned seed."""
    stored_state, seed = read_file(STATE), read_file(SEED)
    if stored_state is None and seed is None:
        raise OSError(_BAD)
    if seed is not None and len(seed) != SEED_BYTES:
        raise OSError(_BAD)
    counter, seed_digest = 0, bytes(_CHECK)
    if stored_state is None:
        root = Drbg(seed)
        seed_digest = short_digest(seed)
        _write(root, counter, seed_digest)
    else:
        root = Drbg(b"")
        is_intact = (
            len(stored_state) == struct.calcsize(_FORM) + _CHECK
            and short_digest(stored_state[:-_CHECK]) == stored_state[-_CHECK:]
        )
        if not is_intact or stored_state[:4] != _FORMAT:
            raise OSError(_BAD)
        _, counter, root.key, root.value, seed_digest = struct.unpack(_FORM, stored_state[:-_CHECK])
    if seed is not None:
        if seed_digest != short_digest(seed):
            root.reseed(seed)
            seed_digest = short_digest(seed)
            _write(root, counter, seed_digest)
        os.remove(SEED)
    return root, counter, seed_digest


def _write(root: Drbg, counter: int, seed_digest: bytes) -> None:
    state = struct.pack(_FORM, _FORMAT, counter, root.key, root.value, seed_digest)
    replace_file(STATE, state + short_digest(state))
