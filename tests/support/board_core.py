"""Runs under MicroPython: imports the modules that are its arguments, and prints each that it has."""

import sys

for name in sys.argv[1:]:
    __import__(name)
    if name in sys.modules:
        print(name)
