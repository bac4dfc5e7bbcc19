"""Attackers: measure what an adversary achieves against outputs whose truth is known; no noise is planned here."""
