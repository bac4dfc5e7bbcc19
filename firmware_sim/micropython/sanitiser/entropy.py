"""Random bytes of cryptographic grade: on Unix those of the kernel.

On an ESP32 the radio feeds the generator of the hardware: while no radio is on, nothing is drawn. On RP2040 and RP2350
`os.urandom` reads a ring oscillator, or a generator with 128 bits of state that is not cryptographic. These boards use
HMAC_DRBG (`sanitiser.drbg`) from a provisioned secret.
"""

import os

_NO_DEVICE = 19


def system_entropy(board: str):
    """Return a function that fills a buffer with random bytes, or raises OSError."""
    if board in ("rp2040", "rp2350"):
        from sanitiser.drbg import provisioned

        return provisioned(os.urandom)
    if board not in ("esp32", "unix"):
        raise OSError(_NO_DEVICE)

    def fill(buffer) -> None:
        if board == "esp32" and not _radio_is_on():
            raise OSError(_NO_DEVICE)
        random_bytes = os.urandom(len(buffer))
        buffer[:] = random_bytes
        _wipe(random_bytes)

    return fill


def _radio_is_on() -> bool:
    import network

    for interface in (network.STA_IF, network.AP_IF):
        if network.WLAN(interface).active():
            return True
    try:
        import bluetooth

        return bluetooth.BLE().active()
    except ImportError:
        return False


def _wipe(buffer: bytes) -> None:
    import uctypes

    view = uctypes.bytearray_at(uctypes.addressof(buffer), len(buffer))
    for i in range(len(view)):
        view[i] = 0
