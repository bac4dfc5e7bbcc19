"""`fugu demo`: the whole path on real heart rates, with real processes and a real broker, and what an attacker gets.

`run` shows it in the terminal and writes a report that opens offline.
"""

from __future__ import annotations

from fugu.demo.session import run

__all__ = ["run"]
