"""Shared parts of tests: real brokers and processes, scenes, slow twins and oracles. No test imports another."""
