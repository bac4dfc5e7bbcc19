"""`fugu demo`, `fugu try` and `fugu start`: replays of recordings, by real processes and a real broker on this machine.

A page in one browser shows what stays, what leaves, and what attackers make of it.
"""
