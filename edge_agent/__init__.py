"""The device side: read a sensor, randomise each reading once, keep the symbols until they are safe elsewhere.

Of `fugu`, it imports only `core`, `contract`, `host` and `mqtt`; `python -m edge_agent CONFIG.toml` runs it. A running
agent loads neither numpy nor a document parser: a child process checks configuration and policies, and ends first.
"""
