"""The sanitiser for microcontrollers: pure MicroPython, the same policies, frames and guarantees as the agent's.

A reading is an integer, in the unit that the compiled policy names. Nothing here uses a floating-point number.
"""
