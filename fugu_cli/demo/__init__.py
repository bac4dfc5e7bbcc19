"""`fugu demo`: the whole path on real heart rates, with real processes and a real broker, and what an attacker gets.

`session.run` shows it in the terminal and writes a report that opens offline.
"""
