"""Batch releases for the public zone, computed from sanitised symbols, and the ledger that limits them.

Numbers and the ledger's own file only; `gateway.service` schedules and publishes.
"""
