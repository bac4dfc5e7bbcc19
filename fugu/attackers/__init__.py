"""Attackers: what an adversary really achieves against sanitised outputs whose truth is known; no noise is set here."""
