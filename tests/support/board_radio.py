"""Runs under MicroPython: the generator of an ESP32 whose radio is off, and on."""

import sys

from sanitiser.entropy import system_entropy


class Radio:
    STA_IF, AP_IF = 0, 1
    on = ()

    class WLAN:
        def __init__(self, interface):
            self._interface = interface

        def active(self):
            return self._interface in Radio.on


class Bluetooth:
    on = False

    class BLE:
        def active(self):
            return Bluetooth.on


sys.modules["network"] = Radio
fill, buffer = system_entropy("esp32"), bytearray(64)
for chip in (None, Bluetooth):
    if chip is not None:
        sys.modules["bluetooth"] = chip
    for Radio.on in ((), (0,), (1,), ()):
        buffer[:] = bytes(64)
        try:
            fill(buffer)
            drawn = True
        except OSError:
            drawn = False
        assert drawn == bool(Radio.on), Radio.on
        assert drawn == (buffer != bytes(64))
Bluetooth.on = True
fill(buffer)
assert buffer != bytes(64)
try:
    system_entropy("pyboard")
    print("a board that nobody knows")
except OSError:
    print("refused")
