"""The gateway process, the only part of `gateway` that does I/O.

`process.run` serves a fleet until it is told to stop; `service.Gateway` is the same for use inside a program.
"""
