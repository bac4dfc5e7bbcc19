"""The device side: read a sensor, randomise each reading once, keep the symbols until they are safe elsewhere.

Imports `fugu.contract`, `fugu.host` and `fugu.mqtt` only; `python -m edge_agent CONFIG.toml` runs it. A running agent
carries neither numpy nor a document parser: configuration and policies are checked in a child process that ends first.
"""
