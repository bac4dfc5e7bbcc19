"""Stand-ins for a board's hardware in a simulation, under MicroPython's Unix port; no part of an image."""
