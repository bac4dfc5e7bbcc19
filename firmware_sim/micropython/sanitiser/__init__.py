"""The sanitiser for microcontrollers: pure MicroPython, no floating-point number; docs/firmware.md has the rest."""
