"""Audits: what a policy, a device or a stream promises, against what can be recomputed and measured of it."""
