"""Random bytes: of the board's generator, where that is of cryptographic grade.

ESP32: the generator of the hardware, seeded by the radio, which has to be on. RP2350: the true random number generator
behind the SDK's. Unix: the kernel's.
"""

import os

_BOARDS = ("esp32", "rp2350", "unix")


def system_entropy(board: str):
    """A function that fills a buffer with random bytes, or raises OSError."""
    if board not in _BOARDS:
        raise OSError("no generator that is good enough")

    def fill(buffer) -> None:
        drawn = os.urandom(len(buffer))
        buffer[:] = drawn
        _wipe(drawn)

    return fill


def _wipe(data: bytes) -> None:
    """Overwrite what `os.urandom` has left in memory."""
    import uctypes

    view = uctypes.bytearray_at(uctypes.addressof(data), len(data))
    for i in range(len(view)):
        view[i] = 0
