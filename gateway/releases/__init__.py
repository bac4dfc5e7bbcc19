"""Batch releases, computed from sanitised symbols, and the ledger that limits them."""
