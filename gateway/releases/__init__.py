"""Batch releases, computed from sanitised symbols, and the ledger that limits them.

`schedule` says when, `jobs` and `counts` what, `allowance` and `statistics` with how much noise; `ledger` and `record`
write it down, and `audit` checks that without the symbols.
"""
