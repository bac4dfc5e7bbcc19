"""Audits: what a policy, a device or a stream promises, against what can be recomputed and measured of it."""

from __future__ import annotations

from gateway.audit.statement import Statement, policy_statement, signed_statement

__all__ = ["Statement", "policy_statement", "signed_statement"]
